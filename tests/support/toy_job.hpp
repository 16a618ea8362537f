// Jobs for tests of launched_job: ranks without a GPU, started side by side with the variables of a launcher.
// SPDX-License-Identifier: Apache-2.0
//
// The job's program is the test itself, called with --toys and the name of a script.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "impl/ranks/launched_job.hpp"
#include "impl/ranks/placement.hpp"
#include "impl/ranks/rank_group.hpp"
#include "model/support/program.hpp"
#include "model/support/progress.hpp"
#include "model/support/temporary_folder.hpp"

namespace samesum::gpu::testing {

namespace fs = std::filesystem;

// --- The toys ---

constexpr std::uint64_t bulk_bytes = 3'000'001;

inline std::byte bulk(std::uint64_t i, int rank) {
    return static_cast<std::byte>((i * 2654435761u >> 11) + static_cast<std::uint64_t>(rank));
}

/// Does what the command says; "die 2" is for rank 2 only.
class ToyWorker : public Worker {
public:
    explicit ToyWorker(const RankContext& context) : context_(context) {
        if (const char* const file = std::getenv("TEST_PIDS"))
            std::ofstream(file, std::ios::app) << fmt::format("{}\n", ::getpid());
    }
    std::string answer(std::string_view text) override {
        std::istringstream words{std::string(text)};
        std::string verb;
        words >> verb;
        if (verb == "bulk") {
            std::uint64_t from = 0, to = 0;
            words >> from >> to;
            const auto input = context_.input(from, bulk_bytes);
            // In more parts than one sendmsg takes.
            constexpr std::uint64_t part = 1000;
            for (std::uint64_t at = 0; at < bulk_bytes; at += part) {
                const auto from_here = input.subspan(at, std::min(part, bulk_bytes - at));
                std::transform(from_here.begin(), from_here.end(), context_.result(to + at, from_here.size()).begin(),
                               [](std::byte each) { return ~each; });
            }
            return "done";
        }
        if (int rank = 0; words >> rank && rank != context_.rank()) return "not me";
        context_.set_current_call(verb);
        if (verb == "die") ::_exit(7);
        if (verb == "crash") std::abort();
        if (verb == "hang")
            for (;;) ::pause();
        if (verb == "throw") {
            std::ofstream(context_.log_file(), std::ios::app) << "a warning\n";
            throw Inconclusive("something broke");
        }
        if (verb == "refuse") throw UsageError("no such thing");
        if (verb == "count") return std::to_string(++count_);
        return fmt::format("{}/{}{}", context_.rank(), context_.ranks(),
                           std::getenv("TEST_SET") == nullptr ? "" : std::getenv("TEST_SET"));
    }

private:
    RankContext context_;
    int count_ = 0;
};

inline std::unique_ptr<Worker> make_toy(const RankContext& context) { return std::make_unique<ToyWorker>(context); }

inline void run_bulk(LaunchedJob& launched_job) {
    constexpr std::uint64_t spaced = 4 << 20;
    const auto ranks = static_cast<std::size_t>(launched_job.ranks());
    RankGroup group({.ranks = launched_job.ranks(), .memory_bytes = 2 * ranks * spaced, .launched_job = &launched_job},
                    make_toy);
    for (int round = 0; round < 3; ++round) {
        std::fill(group.memory().begin(), group.memory().end(), std::byte{0xa5});
        std::vector<std::string> commands;
        std::vector<Range> inputs;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            inputs.push_back({rank * spaced + 5, bulk_bytes});
            commands.push_back(fmt::format("bulk {} {}", inputs.back().offset, (ranks + rank) * spaced + 9));
            for (std::uint64_t i = 0; i < bulk_bytes; ++i)
                group.memory()[inputs.back().offset + i] = bulk(i, static_cast<int>(rank) + round);
        }
        (void)group.execute(commands, 30, inputs);
        for (std::size_t rank = 0; rank < ranks; ++rank)
            for (std::uint64_t i = 0; i < spaced; ++i) {
                const bool written = i >= 9 && i < 9 + bulk_bytes;
                const std::byte expected = written ? ~bulk(i - 9, static_cast<int>(rank) + round) : std::byte{0xa5};
                ensure(group.memory()[(ranks + rank) * spaced + i] == expected, "results come back, and nothing else");
            }
    }
    fmt::print("bulk came back\n");
}

inline void run_failures(LaunchedJob& launched_job) {
    const int last = launched_job.ranks() - 1;
    RankGroup group(
        {.ranks = launched_job.ranks(), .memory_bytes = 4096, .start_seconds = 0.5, .launched_job = &launched_job},
        make_toy);
    (void)group.execute("count", 5);
    for (const char* verb : {"die", "crash", "hang", "throw", "refuse"}) {
        try {
            (void)group.execute(fmt::format("{} {}", verb, last), 0.5);
            fmt::print("{} is not seen\n", verb);
        } catch (const RankFailure& failure) {
            fmt::print("{} log [{}]\n", failure.what(), group.log(last));
        } catch (const UsageError& error) {
            fmt::print("usage: {}\n", error.what());
        }
        fmt::print("afresh: {}\n", group.execute("count", 5).back());
    }
}

/// Rank 0's part. An exception ends the job.
inline Exit run_script(const std::string& script, LaunchedJob& launched_job) {
    const auto all = [&](int ranks) {
        return RankGroupOptions{
            .ranks = ranks, .environment = {{{"TEST_SET", "!"}}}, .memory_bytes = 4096, .launched_job = &launched_job};
    };
    if (script == "who") {
        RankGroup group(all(launched_job.ranks()), make_toy);
        fmt::print("{}\n", fmt::join(group.execute("who", 5), " "));
    } else if (script == "few") {
        for (const int ranks : {2, 3, 1}) {
            RankGroup group(all(ranks), make_toy);
            fmt::print("{}; ", fmt::join(group.execute("who", 5), " "));
        }
        RankGroup too_many(all(launched_job.ranks() + 1), make_toy);
    } else if (script == "bulk") {
        run_bulk(launched_job);
    } else if (script == "failures") {
        run_failures(launched_job);
    } else if (script == "hang") {
        RankGroup group(all(launched_job.ranks()), make_toy);
        (void)group.execute("who", 5);
        fmt::print("hanging\n");
        std::fflush(stdout);
        (void)group.execute(fmt::format("hang {}", launched_job.ranks() - 1), 100);
    } else if (script == "refuted") {
        return Exit::not_as_claimed;
    } else {
        throw UsageError("no script " + script);
    }
    return Exit::as_claimed;
}

inline int toys(const std::string& script) {
    const auto launch = launch_of(this_environment());
    if (!launch) {
        fmt::print("alone\n");
        return 0;
    }
    try {
        if (launch->rank > 0) return serve_launched_job(*launch, make_toy, std::getenv("TEST_OWN_MEMORY") == nullptr);
        LaunchedJob launched_job(*launch);
        Exit code = Exit::inconclusive;
        try {
            code = run_script(script, launched_job);
        } catch (const UsageError& error) {
            fmt::print("{}\n", error.what());
            code = Exit::usage;
        } catch (const Inconclusive& error) {
            fmt::print("{}\n", error.what());
        }
        launched_job.leave(static_cast<int>(code));
        return static_cast<int>(code);
    } catch (const UsageError& error) {
        fmt::print("{}\n", error.what());
        return 2;
    } catch (const std::exception& error) {
        fmt::print("{}\n", error.what());
        return 3;
    }
}

// --- Jobs ---

using Variables = std::map<std::string, std::string>;

inline std::string own_path() { return fs::read_symlink("/proc/self/exe").string(); }

/// A temporary folder whose files can be read.
class Scratch {
public:
    [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }
    [[nodiscard]] std::string text(const std::string& name) const {
        std::ifstream stream(file(name), std::ios::binary);
        return {std::istreambuf_iterator<char>(stream), {}};
    }

private:
    TemporaryFolder folder_{"samesum-test"};
};

/// Processes started side by side, each with its own variables; each one's output goes into a file.
class Job {
public:
    ~Job() {
        for (const pid_t pid : pids_)
            if (pid > 0) {
                ::kill(pid, SIGKILL);
                ::waitpid(pid, nullptr, 0);
            }
    }
    inline std::size_t start(const std::vector<std::string>& words, const Variables& variables) {
        const std::string file = scratch_.file(std::to_string(pids_.size()));
        std::fflush(nullptr);
        const pid_t pid = ::fork();
        if (pid == 0) {
            for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
            ::setenv("TEST_PIDS", scratch_.file("pids").c_str(), 1);
            if (std::freopen(file.c_str(), "w", stdout) == nullptr || ::dup2(STDOUT_FILENO, STDERR_FILENO) < 0)
                ::_exit(99);
            std::vector<char*> arguments;
            for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
            arguments.push_back(nullptr);
            ::execvp(arguments.front(), arguments.data());
            ::_exit(98);
        }
        pids_.push_back(pid);
        exits_.push_back(-1);
        return pids_.size() - 1;
    }
    /// The exit code (-1: ended by a signal), or -2 when it did not end in time.
    inline int exit_of(std::size_t i, double seconds = 30) {
        for (const double until = monotonic_seconds() + seconds; pids_[i] > 0 && monotonic_seconds() < until;) {
            int status = 0;
            if (::waitpid(pids_[i], &status, WNOHANG) == pids_[i]) {
                pids_[i] = -1;
                exits_[i] = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
            } else {
                ::usleep(2000);
            }
        }
        return pids_[i] > 0 ? -2 : exits_[i];
    }
    [[nodiscard]] pid_t pid(std::size_t i) const { return pids_[i]; }
    [[nodiscard]] std::string said(std::size_t i) const { return scratch_.text(std::to_string(i)); }
    [[nodiscard]] bool says(std::size_t i, std::string_view text, double seconds = 10) const {
        for (const double until = monotonic_seconds() + seconds; monotonic_seconds() < until; ::usleep(2000))
            if (said(i).find(text) != std::string::npos) return true;
        return false;
    }
    /// Are the ranks' own processes gone?
    [[nodiscard]] bool nothing_left(double seconds = 3) const {
        const auto alive = [&] {
            std::istringstream pids(scratch_.text("pids"));
            for (std::string pid; pids >> pid;) {
                std::ifstream stat("/proc/" + pid + "/stat");
                std::string line;
                if (std::getline(stat, line) && line.find(") Z ") == std::string::npos) return true;
            }
            return false;
        };
        for (const double until = monotonic_seconds() + seconds; monotonic_seconds() < until; ::usleep(5000))
            if (!alive()) return true;
        return false;
    }
    [[nodiscard]] const Scratch& scratch() const { return scratch_; }

private:
    Scratch scratch_;
    std::vector<pid_t> pids_;
    std::vector<int> exits_;
};

/// A job number that is new in this run.
inline int fresh_number() {
    static int last = static_cast<int>(::getpid() % 30000);
    return last = last % 60000 + 1;
}

using Launcher = Variables (*)(int rank, int ranks, int job);

inline const std::vector<std::pair<const char*, Launcher>> launchers{
    {"torchrun",
     [](int rank, int ranks, int job) -> Variables {
         return {{"RANK", std::to_string(rank)},       {"WORLD_SIZE", std::to_string(ranks)},
                 {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", std::to_string(ranks)},
                 {"MASTER_ADDR", "localhost"},         {"MASTER_PORT", std::to_string(job)},
                 {"TORCHELASTIC_RUN_ID", "none"}};
     }},
    {"Open MPI",
     [](int rank, int ranks, int job) -> Variables {
         return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                 {"OMPI_COMM_WORLD_SIZE", std::to_string(ranks)},
                 {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
                 {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(ranks)},
                 {"PMIX_NAMESPACE", std::to_string(job)}};
     }},
    {"MPICH",
     [](int rank, int ranks, int job) -> Variables {
         return {{"PMI_RANK", std::to_string(rank)},
                 {"PMI_SIZE", std::to_string(ranks)},
                 {"MPI_LOCALRANKID", std::to_string(rank)},
                 {"MPI_LOCALNRANKS", std::to_string(ranks)},
                 {"SAMESUM_HYDRA_PROXY", std::to_string(job)}};
     }},
    {"srun",
     [](int rank, int ranks, int job) -> Variables {
         return {{"SLURM_PROCID", std::to_string(rank)},
                 {"SLURM_NTASKS", std::to_string(ranks)},
                 {"SLURM_LOCALID", std::to_string(rank)},
                 {"SLURM_JOB_ID", std::to_string(job)},
                 {"SLURM_STEP_ID", "0"},
                 {"SLURM_STEP_NODELIST", "localhost"}};
     }},
};

/// Rank i is the job's i-th process.
inline void start_ranks(Job& job, int ranks, const std::vector<std::string>& words, const Variables& more = {},
                        Launcher launcher = launchers.front().second) {
    const int number = fresh_number();
    for (int rank = 0; rank < ranks; ++rank) {
        Variables variables = launcher(rank, ranks, number);
        variables.insert(more.begin(), more.end());
        job.start(words, variables);
    }
}

inline std::vector<std::string> toy(const std::string& script) { return {own_path(), "--toys", script}; }

/// All ranks end with the code, and only rank 0 prints anything.
inline void expect_end(Job& job, std::size_t ranks, int code) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        BOOST_TEST(job.exit_of(rank) == code, "rank " << rank << " ends with " << job.exit_of(rank));
        if (rank > 0) BOOST_TEST(job.said(rank) == "");
    }
    BOOST_TEST(job.nothing_left());
}

/// Reports what cannot be tested here. A missing tool is a failure where nothing may be skipped.
inline void skip(const std::string& why, bool tool = false) {
    fmt::print("skipped: {}\n", why);
    BOOST_TEST((!tool || std::getenv("SAMESUM_STRICT") == nullptr), why);
}

inline bool runs(const std::string& shell) { return std::system((shell + " >/dev/null 2>&1").c_str()) == 0; }

inline int free_port() {
    const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    BOOST_REQUIRE(::bind(probe, reinterpret_cast<sockaddr*>(&address), length) == 0);
    ::getsockname(probe, reinterpret_cast<sockaddr*>(&address), &length);
    ::close(probe);
    return ntohs(address.sin_port);
}

}  // namespace samesum::gpu::testing
