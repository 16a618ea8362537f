// Ranks without a GPU: answers, deaths, hangs, deadlines, Ctrl-C, and nothing left behind.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE impl_rank_group
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "impl/ranks/private_mps.hpp"
#include "impl/ranks/rank_group.hpp"
#include "model/support/files.hpp"
#include "model/support/numbers.hpp"
#include "model/support/progress.hpp"
#include "model/support/temporary_folder.hpp"

using namespace samesum;
using namespace samesum::gpu;

namespace {

/// Does what the command says; a command for one rank names it: "die 2".
class FakeWorker : public Worker {
public:
    explicit FakeWorker(const RankContext& context) : context_(context) {}

    std::string answer(std::string_view command) override {
        const std::size_t space = command.find(' ');
        const std::string verb(command.substr(0, space));
        if (space != std::string_view::npos && integer_in<int>(command.substr(space + 1)) != context_.rank())
            return "not me";
        context_.set_current_call(verb);
        if (verb == "die") ::_exit(7);
        if (verb == "crash") std::abort();
        if (verb == "hang")
            for (;;) ::pause();
        if (verb == "throw") throw Inconclusive("something broke");
        if (verb == "refuse") throw UsageError("no such thing");
        if (verb == "count") return std::to_string(++count_);
        if (verb == "environment") return std::getenv("SAMESUM_TEST_VALUE");
        if (verb == "log") {
            std::ofstream(context_.log_file(), std::ios::app) << "rank " << context_.rank() << "\n";
            return "logged";
        }
        if (verb == "large") return std::string(3'000'000, 'x');
        if (verb == "write") {
            context_.result(static_cast<std::uint64_t>(context_.rank()), 1).front() =
                static_cast<std::byte>(100 + context_.rank());
            return "written";
        }
        return std::to_string(context_.rank()) + "/" + std::to_string(context_.ranks());
    }

private:
    RankContext context_;
    int count_ = 0;
};

WorkerFactory fake() {
    return [](const RankContext& context) { return std::make_unique<FakeWorker>(context); };
}

/// Is the process gone, not even waiting to be reaped?
bool gone(pid_t pid) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(stat, text);
    return !stat || text.find(") Z ") != std::string::npos;
}

bool gone_within(pid_t pid, double seconds) {
    for (const double end = monotonic_seconds() + seconds; monotonic_seconds() < end; ::usleep(5000))
        if (gone(pid)) return true;
    return gone(pid);
}

std::size_t entries(const char* folder) {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_answer_and_keep_their_state) {
    RankGroup group({.ranks = 5}, fake());
    const auto who = group.execute("who", 5);
    for (int rank = 0; rank < 5; ++rank) BOOST_TEST(who[static_cast<std::size_t>(rank)] == std::to_string(rank) + "/5");
    BOOST_TEST(group.execute("count", 5).back() == "1");
    BOOST_TEST(group.execute("count", 5).back() == "2");
    BOOST_TEST(group.execute("large", 5)[3].size() == 3'000'000u);
    group.execute("write", 5);
    for (std::size_t rank = 0; rank < 5; ++rank)
        BOOST_TEST(static_cast<int>(group.memory()[rank]) == 100 + static_cast<int>(rank));
    BOOST_TEST(group.starts() == 1);
}

BOOST_AUTO_TEST_CASE(each_rank_has_its_own_environment_and_log) {
    RankGroup group({.ranks = 2, .environment = {{{"SAMESUM_TEST_VALUE", "a"}}, {{"SAMESUM_TEST_VALUE", "b"}}}},
                    fake());
    const auto values = group.execute("environment", 5);
    BOOST_TEST(values[0] == "a");
    BOOST_TEST(values[1] == "b");
    group.execute("log", 5);
    BOOST_TEST(group.log(1) == "rank 1\n");
    BOOST_TEST(group.log(1, 5) == "1\n");
    BOOST_TEST(std::getenv("SAMESUM_TEST_VALUE") == nullptr);
}

BOOST_AUTO_TEST_CASE(failures_name_the_rank_and_the_call_and_the_group_recovers) {
    const struct {
        const char* command;
        RankFailure::Kind kind;
        const char* call;
        const char* why;
    } cases[] = {
        {"die 2", RankFailure::Kind::died, "die", "exited with 7"},
        {"crash 2", RankFailure::Kind::died, "crash", "killed by signal 6"},
        {"hang 2", RankFailure::Kind::hung, "hang", "1 of 3 ranks are silent"},
        {"throw 2", RankFailure::Kind::failed, "throw", "something broke"},
    };
    RankGroup group({.ranks = 3, .start_seconds = 0}, fake());
    group.execute("who", 5);
    int starts = 1;
    for (const auto& each : cases) {
        BOOST_TEST_CONTEXT(each.command) {
            const auto pids = group.processes();
            const double begin = monotonic_seconds();
            try {
                group.execute(each.command, 0.3);
                BOOST_ERROR("no failure was reported");
            } catch (const RankFailure& failure) {
                BOOST_TEST(failure.rank == 2);
                BOOST_TEST((failure.kind == each.kind));
                BOOST_TEST(failure.call == each.call);
                BOOST_TEST(!group.running());
                BOOST_TEST(std::strstr(failure.what(), each.why) != nullptr, failure.what());
            }
            BOOST_TEST(monotonic_seconds() - begin < 3);
            for (const pid_t pid : pids) BOOST_TEST(gone_within(pid, 1));
            BOOST_TEST(group.execute("count", 5)[0] == "1");  // a fresh rank
            BOOST_TEST(group.starts() == ++starts);
        }
    }
}

BOOST_AUTO_TEST_CASE(a_usage_error_stays_a_usage_error) {
    RankGroup group({.ranks = 2}, fake());
    BOOST_CHECK_THROW(group.execute("refuse 1", 5), UsageError);
    BOOST_TEST(group.execute("who", 5)[1] == "1/2");
}

BOOST_AUTO_TEST_CASE(a_factory_that_throws_is_reported) {
    RankGroup group({.ranks = 2}, [](const RankContext& context) -> std::unique_ptr<Worker> {
        if (context.rank() == 1) throw Inconclusive("no device");
        return std::make_unique<FakeWorker>(context);
    });
    BOOST_CHECK_EXCEPTION(group.execute("who", 5), RankFailure, [](const RankFailure& failure) {
        return failure.rank == 1 && std::strstr(failure.what(), "no device") != nullptr;
    });
}

BOOST_AUTO_TEST_CASE(no_orphans_however_the_parent_ends) {
    for (const int signal : {SIGINT, SIGTERM, SIGKILL, SIGABRT}) {
        BOOST_TEST_CONTEXT("signal " << signal) {
            int ends[2];
            BOOST_REQUIRE(::pipe(ends) == 0);
            const pid_t parent = ::fork();
            if (parent == 0) {
                for (const int each : {SIGINT, SIGTERM, SIGABRT}) ::signal(each, SIG_DFL);
                ::setpgid(0, 0);
                RankGroup group({.ranks = 3}, fake());
                group.execute("who", 5);
                for (const pid_t pid : group.processes())
                    if (::write(ends[1], &pid, sizeof pid) != sizeof pid) ::_exit(9);
                group.execute("hang", 60);
                ::_exit(9);
            }
            std::vector<pid_t> ranks(3);
            for (pid_t& pid : ranks) BOOST_REQUIRE(::read(ends[0], &pid, sizeof pid) == sizeof pid);
            ::usleep(50000);
            // Ctrl-C goes to the whole group of processes.
            ::kill(signal == SIGINT ? -parent : parent, signal);
            int status = 0;
            ::waitpid(parent, &status, 0);
            BOOST_TEST(WIFSIGNALED(status));
            BOOST_TEST(WTERMSIG(status) == signal);
            for (const pid_t pid : ranks) BOOST_TEST(gone_within(pid, 2));
            ::close(ends[0]);
            ::close(ends[1]);
        }
    }
}

BOOST_AUTO_TEST_CASE(nothing_is_left_in_the_file_system_and_no_descriptor_stays_open) {
    const std::size_t shared = entries("/dev/shm"), open = entries("/proc/self/fd");
    for (int i = 0; i < 3; ++i) {
        RankGroup group({.ranks = 4}, fake());
        group.execute("write", 5);
        BOOST_CHECK_THROW(group.execute("die 1", 5), RankFailure);
        group.execute("write", 5);
        BOOST_TEST(entries("/dev/shm") == shared);
    }
    BOOST_TEST(entries("/proc/self/fd") == open);
}

BOOST_AUTO_TEST_CASE(the_mps_daemon_is_stopped_and_its_folder_removed) {
    // A fake nvidia-cuda-mps-control that records its arguments and its input.
    const TemporaryFolder folder("samesum-test");
    const std::string script = folder.file("nvidia-cuda-mps-control"), said = folder.file("said");
    std::ofstream(script) << "#!/bin/sh\necho \"$1 $(cat)\" >> " << said << "\n";
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    const std::string path = std::getenv("PATH");
    ::unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    ::setenv("PATH", (folder.path().string() + ":" + path).c_str(), 1);
    BOOST_TEST(PrivateMps::available());
    std::string pipe_folder;
    {
        const PrivateMps mps;
        pipe_folder = mps.environment().at("CUDA_MPS_PIPE_DIRECTORY");
        BOOST_TEST(std::filesystem::exists(pipe_folder));
    }
    BOOST_TEST(!std::filesystem::exists(pipe_folder));
    // The same when the parent is killed outright.
    const pid_t parent = ::fork();
    if (parent == 0) {
        ::alarm(30);
        const PrivateMps mps;
        ::kill(::getpid(), SIGKILL);
    }
    ::waitpid(parent, nullptr, 0);
    std::string text;
    for (const double end = monotonic_seconds() + 5; monotonic_seconds() < end; ::usleep(10000)) {
        text = read_file(said);
        if (std::count(text.begin(), text.end(), '\n') == 4) break;
    }
    BOOST_TEST(text == "-d \n quit -t 2\n-d \n quit -t 2\n");
    std::ofstream(script) << "#!/bin/sh\nexit 1\n";
    BOOST_CHECK_THROW(PrivateMps{}, Inconclusive);
    ::setenv("PATH", path.c_str(), 1);
}
