// Jobs whose launcher is imitated by its environment variables: joining, failing, ending.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE impl_launched_job
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
#include "tests/support/toy_job.hpp"

using namespace samesum;
using namespace samesum::gpu;
using namespace samesum::gpu::testing;

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

int main(int argc, char** argv) {
    if (argc == 3 && std::string_view(argv[1]) == "--toys") return toys(argv[2]);
    return boost::unit_test::unit_test_main(&init_unit_test, argc, argv);
}
