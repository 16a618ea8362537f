// Jobs of processes that a launcher started: imitated by their environment variables, by real mpirun, torchrun and srun
// where installed, and on two "hosts", which are network namespaces.
// SPDX-License-Identifier: Apache-2.0
//
// The job's program is this test itself, called with --toys and the name of a script; its ranks need no GPU.
#define BOOST_TEST_MODULE impl_launch
#define BOOST_TEST_NO_MAIN
#define BOOST_TEST_ALTERNATIVE_INIT_API
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
#include <cstdlib>
#include <cstring>
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

using namespace samesum;
using namespace samesum::gpu;

namespace {

namespace fs = std::filesystem;

// --- The toys ---

constexpr std::uint64_t bulk_bytes = 3'000'001;

std::byte bulk(std::uint64_t i, int rank) {
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

std::unique_ptr<Worker> make_toy(const RankContext& context) { return std::make_unique<ToyWorker>(context); }

void run_bulk(LaunchedJob& launched_job) {
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

void run_failures(LaunchedJob& launched_job) {
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
Exit run_script(const std::string& script, LaunchedJob& launched_job) {
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

int toys(const std::string& script) {
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

std::string own_path() { return fs::read_symlink("/proc/self/exe").string(); }

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
    std::size_t start(const std::vector<std::string>& words, const Variables& variables) {
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
    int exit_of(std::size_t i, double seconds = 30) {
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
int fresh_number() {
    static int last = static_cast<int>(::getpid() % 30000);
    return last = last % 60000 + 1;
}

using Launcher = Variables (*)(int rank, int ranks, int job);

const std::vector<std::pair<const char*, Launcher>> launchers{
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
void start_ranks(Job& job, int ranks, const std::vector<std::string>& words, const Variables& more = {},
                 Launcher launcher = launchers.front().second) {
    const int number = fresh_number();
    for (int rank = 0; rank < ranks; ++rank) {
        Variables variables = launcher(rank, ranks, number);
        variables.insert(more.begin(), more.end());
        job.start(words, variables);
    }
}

std::vector<std::string> toy(const std::string& script) { return {own_path(), "--toys", script}; }

/// All ranks end with the code, and only rank 0 prints anything.
void expect_end(Job& job, std::size_t ranks, int code) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        BOOST_TEST(job.exit_of(rank) == code, "rank " << rank << " ends with " << job.exit_of(rank));
        if (rank > 0) BOOST_TEST(job.said(rank) == "");
    }
    BOOST_TEST(job.nothing_left());
}

/// Reports what cannot be tested here. A missing tool is a failure where nothing may be skipped.
void skip(const std::string& why, bool tool = false) {
    fmt::print("skipped: {}\n", why);
    BOOST_TEST((!tool || std::getenv("SAMESUM_STRICT") == nullptr), why);
}

bool runs(const std::string& shell) { return std::system((shell + " >/dev/null 2>&1").c_str()) == 0; }

}  // namespace

BOOST_AUTO_TEST_CASE(hosts_are_nodes_unless_ranks_share_a_gpu_or_the_user_says_otherwise) {
    const auto locations = [](const std::string& words) {
        std::vector<RankLocation> list;
        std::istringstream stream(words);
        for (std::string word; stream >> word;) list.push_back({word.substr(0, 1), word.substr(1), word.back() - '0'});
        return list;
    };
    // A host is a letter, a GPU a digit.
    const struct {
        const char* locations;
        int ranks, asked;
        int in_node, hosts;
        bool shared, nodes_are_hosts;
        const char* wrong = nullptr;
    } cases[] = {
        {"a0 a1 b0 b1", 4, 0, 2, 2, false, true},
        {"a0 a1 b0 b1", 4, 1, 1, 2, false, false},
        {"a0 a1 a2 a3", 4, 0, 4, 1, false, true},
        {"a0 a1 a2 a3", 4, 2, 2, 1, false, false},
        {"a0 a0 b0 b0", 4, 0, 1, 2, true, false},
        {"a0 a0 a0 a0", 4, 0, 1, 1, true, false},
        {"a0 a1 a0 a1", 4, 2, 2, 1, true, false},
        {"a0 b0", 2, 0, 1, 2, false, true},
        {"a0 a1 b0 b1", 2, 0, 2, 1, false, true},
        {"a0 a1 b0 b1", 3, 1, 1, 2, false, false},
        {"a0 a1 b0 b1", 3, 0, 0, 0, false, false, "do not follow each other"},
        {"a0 b0 a1 b1", 4, 0, 0, 0, false, false, "do not follow each other"},
        {"a0 b0 a1 b1", 4, 1, 1, 2, false, false},
        {"a0 b0 a1 b1", 4, 2, 0, 0, false, false,
         "2 ranks per node need a host and as many GPUs; ranks 0 and 1 sit on"},
        {"a0 a0 b0 b0", 4, 2, 0, 0, false, false, "ranks 0 and 1 share a GPU"},
        {"a0 a1 b0 b1", 4, 3, 0, 0, false, false, "4 ranks are not a multiple of 3 ranks per node"},
        {"a0 a1 b0 b1", 4, 4, 0, 0, false, false, "sit on two hosts"},
        {"a0 a1", 4, 0, 0, 0, false, false, "4 ranks: expected 1 to 2"},
    };
    for (const auto& each : cases) {
        BOOST_TEST_CONTEXT(each.locations << ", " << each.ranks << " ranks, " << each.asked << " a node") {
            if (each.wrong != nullptr) {
                BOOST_CHECK_EXCEPTION(
                    (void)place_ranks(each.ranks, each.asked, locations(each.locations)), UsageError,
                    [&](const UsageError& error) { return std::strstr(error.what(), each.wrong) != nullptr; });
                continue;
            }
            const Placement placement = place_ranks(each.ranks, each.asked, locations(each.locations));
            BOOST_TEST(placement.ranks == each.ranks);
            BOOST_TEST(placement.ranks_per_node == each.in_node);
            BOOST_TEST(placement.hosts == each.hosts);
            BOOST_TEST(placement.several_nodes == (each.in_node < each.ranks));
            BOOST_TEST(placement.gpus_are_shared == each.shared);
            BOOST_TEST(placement.nodes_are_hosts == each.nodes_are_hosts);
            for (std::size_t rank = 0; rank < placement.gpu_of.size(); ++rank)
                BOOST_TEST(placement.gpu_of[rank] == locations(each.locations)[rank].device);
        }
    }
}

BOOST_AUTO_TEST_CASE(every_launchers_ranks_come_together) {
    for (const auto& [name, launcher] : launchers) {
        BOOST_TEST_CONTEXT(name) {
            Job job;
            start_ranks(job, 4, toy("who"), {}, launcher);
            expect_end(job, 4, 0);
            BOOST_TEST(job.said(0) == "0/4! 1/4! 2/4! 3/4!\n");
        }
    }
}

BOOST_AUTO_TEST_CASE(inputs_go_out_and_results_come_back_with_shared_memory_and_without) {
    for (const Variables& memory : {Variables{}, Variables{{"TEST_OWN_MEMORY", "1"}}}) {
        Job job;
        start_ranks(job, 4, toy("bulk"), memory);
        expect_end(job, 4, 0);
        BOOST_TEST(job.said(0) == "bulk came back\n");
    }
}

BOOST_AUTO_TEST_CASE(a_group_may_be_smaller_than_the_job_but_not_larger) {
    Job job;
    start_ranks(job, 4, toy("few"));
    expect_end(job, 4, 2);
    BOOST_TEST(job.said(0) == "0/2! 1/2!; 0/3! 1/3! 2/3!; 0/1!; 5 ranks; torchrun started 4\n");
}

BOOST_AUTO_TEST_CASE(failures_name_the_rank_and_the_call_and_the_ranks_start_afresh) {
    for (const Variables& memory : {Variables{}, Variables{{"TEST_OWN_MEMORY", "1"}}}) {
        Job job;
        start_ranks(job, 3, toy("failures"), memory);
        expect_end(job, 3, 0);
        BOOST_TEST(job.said(0) ==
                   "rank 2 died in die: exited with 7 log []\nafresh: 1\n"
                   "rank 2 died in crash: killed by signal 6 log []\nafresh: 1\n"
                   "rank 2 hung in hang: no answer in 0.5 s; 1 of 3 ranks are silent log []\nafresh: 1\n"
                   "rank 2 failed in throw: something broke log [a warning\n]\nafresh: 1\n"
                   "usage: no such thing\nafresh: 1\n");
    }
}

BOOST_AUTO_TEST_CASE(all_end_with_rank_0s_exit_code) {
    Job job;
    start_ranks(job, 3, toy("refuted"));
    expect_end(job, 3, 1);
}

BOOST_AUTO_TEST_CASE(ranks_that_do_not_join_are_named) {
    Job job;
    const int number = fresh_number();
    for (const int rank : {0, 1, 3}) {
        Variables variables = launchers.front().second(rank, 5, number);
        variables["SAMESUM_JOIN_SECONDS"] = "1.5";
        job.start(toy("who"), variables);
    }
    expect_end(job, 3, 3);
    BOOST_TEST(job.said(0).starts_with("of 5 ranks that torchrun started, 2, 4 did not come to 127.0.0.1:"));
    BOOST_TEST(job.said(0).ends_with(" within 1.5 s\n"));
}

BOOST_AUTO_TEST_CASE(a_rank_without_rank_0_says_so) {
    Job job;
    Variables variables = launchers.front().second(2, 4, fresh_number());
    variables["SAMESUM_JOIN_SECONDS"] = "0.5";
    job.start(toy("who"), variables);
    BOOST_TEST(job.exit_of(0) == 3);
    BOOST_TEST(job.said(0).starts_with("rank 2: rank 0 was not found at 127.0.0.1:"));
}

BOOST_AUTO_TEST_CASE(a_job_ends_with_any_of_its_processes) {
    for (const std::size_t victim : {2u, 0u}) {
        for (const int signal : {SIGTERM, SIGKILL}) {
            BOOST_TEST_CONTEXT("rank " << victim << ", signal " << signal) {
                Job job;
                start_ranks(job, 3, toy("hang"));
                BOOST_TEST_REQUIRE(job.says(0, "hanging"));
                const double began = monotonic_seconds();
                ::kill(job.pid(victim), signal);
                for (std::size_t rank = 0; rank < 3; ++rank)
                    BOOST_TEST(job.exit_of(rank, 10) == (rank == victim ? -1 : 3));
                BOOST_TEST(monotonic_seconds() - began < 5);
                BOOST_TEST(job.nothing_left());
                if (victim == 2) BOOST_TEST(job.says(0, "rank 2 died in an unknown call: its process is gone"));
            }
        }
    }
}

namespace {

/// A client or server on the rendezvous port that is not a rank of the job.
class Stranger {
public:
    /// Listens on a port of the loopback interface.
    explicit Stranger(int port, bool listening) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const int yes = 1;
        ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        address_.sin_family = AF_INET;
        address_.sin_port = htons(static_cast<std::uint16_t>(port));
        address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (listening) BOOST_REQUIRE(::bind(socket_, address(), sizeof address_) == 0 && ::listen(socket_, 8) == 0);
    }
    ~Stranger() { ::close(socket_); }
    Stranger(const Stranger&) = delete;

    void connect() {
        for (int i = 0; i < 2000; ++i, ::usleep(2000)) {
            if (::connect(socket_, address(), sizeof address_) == 0) return;
            ::close(socket_);
            socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        }
        BOOST_ERROR("nobody listens");
    }
    void say(std::string_view words) { (void)!::send(socket_, words.data(), words.size(), MSG_NOSIGNAL); }
    /// The first bytes that the first caller sends.
    [[nodiscard]] std::string first_bytes(std::size_t bytes) const {
        const int caller = ::accept(socket_, nullptr, nullptr);
        std::string words(bytes, '\0');
        BOOST_TEST(::recv(caller, words.data(), bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes));
        ::close(caller);
        return words;
    }

private:
    [[nodiscard]] const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&address_); }

    int socket_;
    sockaddr_in address_{};
};

int free_port() {
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

/// Magic and version come first in all versions of the first message, in 16 and 48 bytes; the whole is longer.
constexpr std::size_t version_offset = 16, hello_bytes = 344;

}  // namespace

BOOST_AUTO_TEST_CASE(other_clients_are_turned_away_and_do_not_keep_a_job_from_starting) {
    const int port = free_port();
    Job job;
    const int number = fresh_number();
    const auto start = [&](int rank) {
        Variables variables = launchers.front().second(rank, 2, number);
        variables["SAMESUM_RENDEZVOUS"] = fmt::format("127.0.0.1:{}", port);
        job.start(toy("who"), variables);
    };
    start(0);
    std::vector<std::unique_ptr<Stranger>> strangers;
    const std::string of_another_job = [] {
        std::string hello(hello_bytes, '\0');
        hello.replace(0, 12, "samesum-rank");
        return hello;
    }();
    for (const std::string& words : {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, 'x'),
                                     of_another_job, of_another_job + "y"}) {
        strangers.push_back(std::make_unique<Stranger>(port, false));
        strangers.back()->connect();
        strangers.back()->say(words);
    }
    start(1);
    expect_end(job, 2, 0);
    BOOST_TEST(job.said(0) == "0/2! 1/2!\n");
}

BOOST_AUTO_TEST_CASE(another_version_is_turned_away_in_one_line) {
    const int port = free_port(), number = fresh_number();
    Job job;
    const auto start = [&](int rank) {
        Variables variables = launchers.front().second(rank, 2, number);
        variables["SAMESUM_RENDEZVOUS"] = fmt::format("127.0.0.1:{}", port);
        return job.start(toy("who"), variables);
    };
    std::string hello;
    {
        Stranger fake_rank_0(port, true);
        const std::size_t rank_1 = start(1);
        hello = fake_rank_0.first_bytes(hello_bytes);
        ::kill(job.pid(rank_1), SIGKILL);
        BOOST_TEST(job.exit_of(rank_1) == -1);
    }
    hello.replace(version_offset, 48, std::string("0.0.1") + std::string(43, '\0'));
    const std::size_t rank_0 = start(0);
    Stranger old(port, false);
    old.connect();
    old.say(hello);
    BOOST_TEST(job.exit_of(rank_0) == 2);
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    BOOST_TEST(
        job.said(rank_0).starts_with(fmt::format(
            "rank 1 on {} is samesum 0.0.1, rank 0 is {}: expected one version on all hosts", host.data(), version())),
        job.said(rank_0));
    const std::string said = job.said(rank_0);
    BOOST_TEST(std::count(said.begin(), said.end(), '\n') == 1);
}

BOOST_AUTO_TEST_CASE(ranks_that_disagree_on_their_number_are_refused) {
    const int port = free_port(), number = fresh_number();
    Job job;
    for (const int rank : {0, 1}) {
        Variables variables = launchers.front().second(rank, 2 + rank, number);
        variables["SAMESUM_RENDEZVOUS"] = fmt::format("127.0.0.1:{}", port);
        job.start(toy("who"), variables);
    }
    expect_end(job, 2, 2);
    BOOST_TEST(job.said(0).ends_with(" counts 3 ranks, rank 0 counts 2\n"), job.said(0));
}

BOOST_AUTO_TEST_CASE(a_port_with_another_server_is_skipped) {
    const int number = fresh_number();
    Environment variables;
    for (const auto& [name, value] : launchers.front().second(0, 2, number)) variables[name] = value;
    Stranger server(launch_of(variables)->port, true);
    Job job;
    for (const int rank : {0, 1}) job.start(toy("who"), launchers.front().second(rank, 2, number));
    expect_end(job, 2, 0);
}

BOOST_AUTO_TEST_CASE(a_wrong_environment_is_reported_by_its_rank) {
    Job job;
    Variables variables = launchers.front().second(5, 4, fresh_number());
    variables["LOCAL_RANK"] = "0";
    job.start({std::string(SAMESUM_BINARY_DIR) + "/samesum-impl", "run"}, variables);
    BOOST_TEST(job.exit_of(0) == 2);
    BOOST_TEST(job.said(0) == "samesum run: torchrun: RANK=5 WORLD_SIZE=4: expected a rank from 0 to 3\n");
}

namespace {

/// A real launcher: how to start N processes of a shell line with it.
struct RealLauncher {
    std::string name, there, start;
};

const std::vector<RealLauncher> real_launchers{
    {"Open MPI", "mpirun.openmpi --version",
     "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 exec mpirun.openmpi --oversubscribe -np "},
    {"MPICH", "mpiexec.hydra --version", "exec mpiexec.hydra -n "},
    {"torchrun", "torchrun --help", "exec torchrun --no-python --standalone --nproc-per-node "},
    {"srun", "timeout 10 srun --ntasks 1 true", "exec srun --overcommit --quit-on-interrupt --ntasks "},
};

}  // namespace

BOOST_AUTO_TEST_CASE(real_launchers_start_ranks_and_the_answer_comes_once) {
    for (const RealLauncher& launcher : real_launchers) {
        if (!runs(launcher.there)) {
            // Not required in CI: PyTorch is large, and Slurm needs daemons.
            skip(launcher.name + " is not here", launcher.name != "torchrun" && launcher.name != "srun");
            continue;
        }
        BOOST_TEST_CONTEXT(launcher.name) {
            const struct {
                std::string words, said;
                int exit;
            } cases[] = {
                {own_path() + " --toys who", "0/3! 1/3! 2/3!\n", 0},
                {own_path() + " --toys bulk", "bulk came back\n", 0},
                // The rank's exit code; a launcher's own exit code differs.
                {own_path() + " --toys refuted", "", 1},
                {std::string(SAMESUM_BINARY_DIR) + "/samesum-impl run --rows 3 --ranks 17",
                 "samesum run: --ranks 17: expected at most 3, which " + launcher.name + " started\n", 2},
                {std::string(SAMESUM_BINARY_DIR) + "/samesum-fuzz fuzz --backend model --cases 20 --property "
                                                   "'addition_commutes' --worlds none --launcher mpj",
                 "samesum fuzz: --launcher 'mpj': expected auto, none, torchrun, mpi or slurm\n", 2},
            };
            for (const auto& each : cases) {
                if (each.words.find("samesum-fuzz") != std::string::npos &&
                    !fs::exists(std::string(SAMESUM_BINARY_DIR) + "/samesum-fuzz"))
                    continue;
                Job job;
                // The ranks' output goes to a file, apart from the launcher's own.
                std::ofstream(job.scratch().file("rank.sh"))
                    << each.words << " >> " << job.scratch().file("said") << " 2>&1\necho $? >> "
                    << job.scratch().file("exits") << "\n";
                job.start({"bash", "-c", launcher.start + "3 bash " + job.scratch().file("rank.sh")}, {});
                BOOST_TEST(job.exit_of(0, 60) == 0);
                BOOST_TEST(job.scratch().text("said") == each.said);
                BOOST_TEST(job.scratch().text("exits") == fmt::format("{0}\n{0}\n{0}\n", each.exit));
                BOOST_TEST(job.nothing_left());
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(ctrl_c_ends_all) {
    for (const RealLauncher& launcher : real_launchers) {
        if (!runs(launcher.there)) continue;  // said above
        BOOST_TEST_CONTEXT(launcher.name) {
            Job job;
            const std::size_t it = job.start({"bash", "-c", launcher.start + "3 " + own_path() + " --toys hang"}, {});
            BOOST_TEST_REQUIRE(job.says(it, "hanging", 30));
            ::kill(job.pid(it), SIGINT);
            BOOST_TEST(job.exit_of(it, 20) != -2);
            BOOST_TEST(job.nothing_left());
        }
    }
}

BOOST_AUTO_TEST_CASE(a_real_command_answers_once_and_all_its_processes_end_alike) {
    const std::string program = std::string(SAMESUM_BINARY_DIR) + "/samesum-impl";
    for (const auto& [name, launcher] : launchers) {
        BOOST_TEST_CONTEXT(name) {
            Job job;
            start_ranks(job, 4, {program, "run", "--ranks-per-node", "1"}, {}, launcher);
            const int code = job.exit_of(0, 120);
            expect_end(job, 4, code);
            const std::string said = job.said(0);
            if (code == 0) {
                BOOST_TEST(said.find("# 4 ranks, 1 per node, by " + std::string(name) + " on 1 host") !=
                           std::string::npos);
            } else {
                // No device here, or no CUDA in this build.
                BOOST_TEST(code == 3);
                BOOST_TEST(std::count(said.begin(), said.end(), '\n') == 1);
                BOOST_TEST(said.starts_with("samesum run: "));
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(two_hosts) {
    // Names of network interfaces have at most 15 letters.
    const std::string id = std::to_string(::getpid() % 1'000'000), a = "ssa" + id, b = "ssb" + id;
    const auto clean = [&] { (void)runs(fmt::format("ip netns del {}; ip netns del {}", a, b)); };
    if (!runs("ip -V")) return skip("ip is not installed", true);
    // Like containers, with their own process ids.
    const std::string in_a = fmt::format("ip netns exec {} ", a);
    const std::string in_b =
        fmt::format("ip netns exec {} unshare --pid --fork --kill-child --mount-proc --uts bash -c ", b);
    const bool made = runs(fmt::format(
        "set -e; ip netns add {0}; ip netns add {1}; ip link add v{0} type veth peer name v{1};"
        "ip link set v{0} netns {0}; ip link set v{1} netns {1};"
        "ip -n {0} address add 10.77.0.1/24 dev v{0}; ip -n {1} address add 10.77.0.2/24 dev v{1};"
        "ip -n {0} link set lo up; ip -n {1} link set lo up; ip -n {0} link set v{0} up; ip -n {1} link set v{1} up;"
        "{2} true; {3} true",
        a, b, in_a, in_b));
    if (!made) {
        clean();
        return skip("no network namespaces may be made here");
    }
    const auto start = [&](Job& job, const std::string& script) {
        const int number = fresh_number();
        for (int rank = 0; rank < 4; ++rank) {
            Variables variables = launchers.back().second(rank, 4, number);
            variables["SLURM_LOCALID"] = std::to_string(rank % 2);
            variables["SLURM_STEP_NODELIST"] = "10.77.0.1";
            const std::string words = fmt::format("{} --toys {}", own_path(), script);
            job.start({"bash", "-c",
                       rank < 2 ? fmt::format("exec {} {}", in_a, words)
                                : fmt::format("exec {} 'hostname other; exec {}'", in_b, words)},
                      variables);
        }
    };
    const std::map<std::string, std::string> scripts{{"who", "0/4! 1/4! 2/4! 3/4!\n"}, {"bulk", "bulk came back\n"}};
    for (const auto& [script, said] : scripts) {
        BOOST_TEST_CONTEXT(script) {
            Job job;
            start(job, script);
            for (std::size_t rank = 0; rank < 4; ++rank) BOOST_TEST(job.exit_of(rank) == 0);
            BOOST_TEST(job.said(0) == said);
        }
    }
    // Real mpiruns reach the other host through a replacement for ssh.
    const Scratch scratch;
    const std::string agent = scratch.file("agent");
    fs::create_directory(scratch.file("tmp"));
    std::ofstream(agent) << "#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done; shift\nexec " << in_b
                         << "\"hostname other; TMPDIR=" << scratch.file("tmp") << " $*\"\n";
    fs::permissions(agent, fs::perms::owner_all);
    const std::string open_mpi = fmt::format(
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 exec {} mpirun.openmpi --oversubscribe "
        "--mca plm_rsh_agent {} --mca oob_tcp_if_include v{},v{} --host 10.77.0.1:2,10.77.0.2:2 ",
        in_a, agent, a, b);
    const std::string mpich = fmt::format(
        "exec {} mpiexec.hydra -launcher ssh -launcher-exec {} -iface v{} -hosts 10.77.0.1,10.77.0.2 -n 4 -ppn 2 "
        "-genv SAMESUM_RENDEZVOUS 10.77.0.1:{} ",
        in_a, agent, a, free_port());
    for (const auto& [tool, line] : {std::pair{"mpirun.openmpi", open_mpi}, std::pair{"mpiexec.hydra", mpich}}) {
        if (!runs(std::string(tool) + " --version")) {
            skip(std::string(tool) + " is not installed", true);
            continue;
        }
        BOOST_TEST_CONTEXT(tool) {
            Job job;
            job.start({"bash", "-c", line + own_path() + " --toys bulk"}, {});
            BOOST_TEST(job.exit_of(0) == 0);
            BOOST_TEST(job.said(0) == "bulk came back\n");
        }
    }
    // The other host's network is cut while one of its ranks works: no connection is closed.
    Job job;
    start(job, "hang");
    BOOST_TEST(job.says(0, "hanging"));
    BOOST_TEST(runs(fmt::format("ip -n {0} link set v{0} down", b)));
    const double began = monotonic_seconds();
    for (std::size_t rank = 0; rank < 4; ++rank) BOOST_TEST(job.exit_of(rank, 60) == 3);
    BOOST_TEST(monotonic_seconds() - began < 45);
    BOOST_TEST(job.says(0, "rank 3 died in an unknown call: its process is gone, or its host"), job.said(0));
    clean();
}

int main(int argc, char** argv) {
    if (argc == 3 && std::string_view(argv[1]) == "--toys") return toys(argv[2]);
    return boost::unit_test::unit_test_main(&init_unit_test, argc, argv);
}
