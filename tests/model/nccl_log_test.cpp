// Logs of NCCL: what the ranks of a topology print is read back as that topology, whatever launchers, pipes and
// people did to the lines; what is missing is named.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE nccl_log
#include "model/input/nccl_log.hpp"

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <numeric>

#include "model/input/graph_file.hpp"
#include "model/nccl/schedule.hpp"
#include "model/support/error.hpp"
#include "model/support/files.hpp"
#include "tests/support/mutate.hpp"

using namespace samesum;

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

std::string golden(const std::string& name) { return read_file(SAMESUM_SOURCE_DIR "/tests/golden/logs/" + name); }

bool mentions(const std::vector<std::string>& lines, std::string_view part) {
    for (const std::string& line : lines)
        if (line.find(part) != std::string::npos) return true;
    return false;
}

/// How the log of a topology's ranks is printed.
struct Printing {
    std::string version = "2.28.9+cuda13.0";
    bool graph_lines = true;  ///< subsystem GRAPH
    bool named = true;        ///< "Init START" and "Init COMPLETE"
    bool tagged = false;
    std::vector<int> ranks{};  ///< that are logged; empty: all
    std::string comm_id = "0xc0ffee";
    int pid = 1000;
};

/// One list of lines for each logged rank, in the order in which the rank prints them.
std::vector<std::vector<std::string>> printed(const Topology& topology, const Printing& how) {
    std::vector<std::vector<std::string>> result;
    const int n = topology.ranks(), channels = static_cast<int>(topology.channels().size());
    std::vector<int> ranks = how.ranks;
    if (ranks.empty()) {
        ranks.resize(at(n));
        std::iota(ranks.begin(), ranks.end(), 0);
    }
    const int width = static_cast<int>(std::to_string(n - 1).size());
    for (const int rank : ranks) {
        const int node = topology.node_of(rank);
        int local = 0, locals = 0;
        for (int other = 0; other < n; ++other) {
            if (topology.node_of(other) != node) continue;
            if (other < rank) ++local;
            ++locals;
        }
        const std::string prefix =
            fmt::format("{}machine-{}:{}:{} [{}] NCCL INFO ", how.tagged ? fmt::format("[1,{}]<stderr>:", rank) : "",
                        node, how.pid + rank, how.pid + 500 + rank, local);
        std::vector<std::string> lines;
        const auto say = [&](const std::string& text) { lines.push_back(prefix + text); };
        if (rank == 0) say("NCCL version " + how.version);
        const std::string identity =
            fmt::format("comm 0x{:x} rank {} nranks {} cudaDev {} nvmlDev {} busId {:x} commId {}",
                        0x5500 + how.pid + rank, rank, n, local, local, 0x1000 * (local + 1), how.comm_id);
        if (how.named) say("ncclCommInitRank " + identity + " - Init START");
        say(fmt::format("comm 0x{:x} rank {} nRanks {} nNodes {} localRanks {} localRank {} MNNVL 0",
                        0x5500 + how.pid + rank, rank, n, topology.nodes(), locals, local));
        for (int c = 0; c < channels && rank == 0; ++c) {
            std::string line = fmt::format("Channel {:02}/{:02} :", c, channels);
            for (const int member : rotated(topology.ring(c), 0)) line += fmt::format(" {:{}}", member, width);
            if (line.size() > 127) line = line.substr(0, 124) + "...";
            say(line);
        }
        std::string trees = "Trees";
        for (int c = 0; c < channels; ++c) {
            const Ring walk = rotated(topology.ring(c), rank);
            if (how.graph_lines)
                say(fmt::format("Ring {:02} : {} -> {} -> {}", c, walk.back(), rank, walk[1 % walk.size()]));
            const TreeLinks& links = *topology.channels()[at(c)].tree;
            const auto& down = links.down[at(rank)];
            trees += fmt::format(" [{}] {}/{}/{}->{}->{}", c, down[0], down[1], down[2], rank, links.up[at(rank)]);
        }
        say(trees.substr(0, 5 + 1022));
        say(fmt::format(
            "{} coll channels, {} collnet channels, 0 nvls channels, 4 p2p channels, 2 p2p channels per peer", channels,
            channels));
        if (how.named) say("ncclCommInitRank " + identity + " - Init COMPLETE");
        result.push_back(std::move(lines));
    }
    return result;
}

std::string interleaved(std::vector<std::vector<std::string>> sequences, std::uint64_t seed) {
    Mutator draw{seed};
    std::string text;
    while (!sequences.empty()) {
        const std::size_t which = draw.below(sequences.size());
        auto& lines = sequences[which];
        std::string line = lines.front();
        lines.erase(lines.begin());
        if (lines.empty()) sequences.erase(sequences.begin() + static_cast<std::ptrdiff_t>(which));
        if (draw.below(7) == 0) line = "\x1b[32m" + line + "\x1b[0m";
        if (draw.below(9) == 0) text += "a line of the program, not NCCL's\n";
        if (draw.below(11) == 0) text += "\r\n";
        text += line + (draw.below(2) == 0 ? "\n" : "\r\n");
    }
    return text;
}

std::vector<Topology> topologies() {
    std::vector<Topology> result;
    for (const int n : {2, 3, 4, 5, 8, 16}) result.push_back(Topology::one_rank_per_node(n, 2));
    for (const int n : {2, 4, 8}) result.push_back(Topology::one_node(n, 4));
    result.push_back(Topology::one_rank_per_node(100, 4));
    const std::string reversed = read_file(SAMESUM_SOURCE_DIR "/tests/golden/graphs/reversed-second-channel.xml");
    result.push_back(communicator_from_graph(parse_graph_file(reversed, "reversed"), 4, 2).topology);
    result.push_back(communicator_from_graph(parse_graph_file(reversed, "reversed"), 7, 2).topology);
    return result;
}

void check_same(const Topology& expected, const Communicator& found) {
    BOOST_REQUIRE(found.ranks() == expected.ranks());
    BOOST_REQUIRE(found.channels() == static_cast<int>(expected.channels().size()));
    for (int rank = 0; rank < expected.ranks(); ++rank)
        BOOST_TEST(found.topology.node_of(rank) == expected.node_of(rank));
    for (int c = 0; c < found.channels(); ++c) {
        BOOST_TEST((rotated(found.topology.ring(c), 0) == rotated(expected.ring(c), 0)));
        BOOST_REQUIRE(found.topology.channels()[at(c)].tree != nullptr);
        BOOST_TEST((*found.topology.channels()[at(c)].tree == *expected.channels()[at(c)].tree));
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_all_ranks_print_is_read_back) {
    std::uint64_t seed = 1;
    for (const Topology& topology : topologies())
        for (const bool named : {true, false})
            for (const bool tagged : {true, false}) {
                BOOST_TEST_CONTEXT(topology.ranks() << " ranks, " << topology.nodes() << " nodes, named " << named
                                                    << ", tagged " << tagged) {
                    const std::string text = interleaved(printed(topology, {.named = named, .tagged = tagged}), ++seed);
                    const NcclLog log = parse_nccl_log(text, "f");
                    BOOST_REQUIRE(log.communicators.size() == 1u);
                    const LogCommunicator& comm = log.communicator();
                    BOOST_TEST(comm.contradictions.empty());
                    check_same(topology, comm.communicator());
                    BOOST_TEST(str(comm.communicator().version) == "2.28.9");
                }
            }
}

BOOST_AUTO_TEST_CASE(communicators_of_one_log_are_distinguished) {
    const auto shapes = topologies();
    std::uint64_t seed = 100;
    for (std::size_t a = 0; a < shapes.size(); ++a) {
        const Topology &first = shapes[a], &second = shapes[(a + 1) % shapes.size()];
        // In different processes at once, and in the same processes one after the other.
        auto lines = printed(first, {.comm_id = "0xaaa"});
        for (auto& each : printed(second, {.comm_id = "0xbbb", .pid = 5000})) lines.push_back(each);
        const NcclLog at_once = parse_nccl_log(interleaved(lines, ++seed), "f");
        BOOST_REQUIRE(at_once.communicators.size() == 2u);
        check_same(first, at_once.communicator("0xaaa").communicator());
        check_same(second, at_once.communicator("0xbbb").communicator());

        std::string after = interleaved(printed(first, {.comm_id = "0xaaa"}), ++seed);
        after += interleaved(printed(first, {.comm_id = "0xbbb"}), ++seed);
        const NcclLog in_turn = parse_nccl_log(after, "f");
        BOOST_REQUIRE(in_turn.communicators.size() == 2u);
        check_same(first, in_turn.communicator("1").communicator());
        BOOST_CHECK_THROW((void)in_turn.communicator(), UsageError);  // which of the two?
        BOOST_CHECK_THROW((void)in_turn.communicator("0xccc"), UsageError);
    }
}

BOOST_AUTO_TEST_CASE(without_start_lines_the_order_of_appearance_distinguishes_communicators) {
    const Topology shape = Topology::one_node(4, 2);
    const std::string text = interleaved(printed(shape, {.named = false, .pid = 1000}), 3) +
                             interleaved(printed(shape, {.named = false, .pid = 3000}), 4);
    const NcclLog log = parse_nccl_log(text, "f");
    BOOST_REQUIRE(log.communicators.size() == 2u);
    check_same(shape, log.communicator("0").communicator());
    check_same(shape, log.communicator("1").communicator());
    BOOST_TEST(mentions(log.notes, "order of their lines"));
}

BOOST_AUTO_TEST_CASE(ranks_that_are_not_logged_are_named) {
    const Topology shape = Topology::one_rank_per_node(8, 2);
    struct {
        std::vector<int> ranks;
        bool graph_lines;
        const char* missing;
        bool rings_known;
    } cases[]{
        {{0, 1, 2, 4, 6, 7}, true, "tree links of ranks 3, 5 on channels 0 to 1", true},
        {{0}, true, "tree links of ranks 1 to 7", true},
        {{1, 2, 3, 4, 5, 6, 7}, true, "tree links of ranks 0", true},
        {{1, 2, 3, 4, 5, 6, 7}, false, "rings of channels 0 to 1: rank 0, which prints them, is not in the log", false},
        {{3}, true, "rings of channels 0 to 1", false},
    };
    for (const auto& each : cases) {
        const NcclLog log = parse_nccl_log(
            interleaved(printed(shape, {.graph_lines = each.graph_lines, .ranks = each.ranks}), 9), "f.log");
        const LogCommunicator& comm = log.communicator();
        BOOST_TEST(mentions(comm.missing, each.missing), each.missing);
        BOOST_TEST(mentions(comm.missing, "NCCL_DEBUG_FILE=nccl.%h.%p"));
        if (each.rings_known && comm.version) {
            const Communicator found = comm.communicator();
            BOOST_TEST((rotated(found.topology.ring(0), 0) == rotated(shape.ring(0), 0)));
            BOOST_TEST(!found.topology.channels()[0].tree);
        } else {
            BOOST_CHECK_EXCEPTION((void)comm.communicator(), UsageError, [&](const UsageError& error) {
                return std::string(error.what()).find("f.log: communicator") == 0;
            });
        }
    }
}

BOOST_AUTO_TEST_CASE(lines_cut_by_nccl_are_recognised) {
    const NcclLog alone = parse_nccl_log(golden("rank-0-of-48-cut-lines-2.30.7.log"), "f");
    BOOST_TEST(mentions(alone.notes, "2 lines were cut by NCCL"));
    const LogCommunicator& comm = alone.communicator();
    BOOST_TEST(comm.ranks == 48);
    BOOST_TEST(comm.nodes == 2);
    BOOST_TEST(mentions(comm.missing, "rings of channels 0 to 1: rank 0's 'Channel' lines are cut at 127 characters"));
    BOOST_TEST(mentions(comm.missing, "tree links of ranks 1 to 47"));
    BOOST_TEST(mentions(comm.assumptions, "24 consecutive ranks share a node"));
    BOOST_CHECK_THROW((void)comm.communicator(), UsageError);

    // 'Ring' lines of every rank complete the rings; 'Trees' lines of 64 channels are cut at 1023 characters.
    const Topology wide = Topology::one_rank_per_node(100, 64);
    const NcclLog log = parse_nccl_log(interleaved(printed(wide, {}), 1), "f");
    const LogCommunicator& found = log.communicator();
    for (int c = 0; c < 64; ++c) BOOST_TEST(found.rings[at(c)].has_value());
    BOOST_TEST(mentions(found.missing, "'Trees' lines are cut at 1023 characters"));
    int trees = 0;
    for (int c = 0; c < 64; ++c) {
        if (!found.trees[at(c)]) continue;
        ++trees;
        BOOST_TEST((*found.trees[at(c)] == *wide.channels()[at(c)].tree));
    }
    BOOST_TEST(trees > 20);
    BOOST_TEST(trees < 64);
}

BOOST_AUTO_TEST_CASE(a_log_as_torchrun_leaves_it) {
    const NcclLog log = parse_nccl_log(golden("one-node-four-ranks-2.28.9.log"), "f");
    BOOST_REQUIRE(log.communicators.size() == 4u);  // two, and the two halves of a split
    BOOST_CHECK_THROW((void)log.communicator(), UsageError);

    const LogCommunicator& first = log.communicator("0x5a1f00000000000a");
    BOOST_TEST(first.missing.empty());
    BOOST_TEST(first.contradictions.empty());
    BOOST_TEST(first.str() == "4 ranks on 1 nodes, 4 channels, NCCL 2.28.9, ranks 0 to 3 logged");
    BOOST_TEST(first.thread_thresholds == "8/8/64 | 32/8/64 | 512 | 512");
    BOOST_TEST((first.environment == Environment{{"NCCL_NVLS_ENABLE", "0"}}));
    const Communicator comm = first.communicator({}, 90);
    BOOST_TEST(!comm.settings.nvls_enabled);
    BOOST_TEST(str(comm.topology.ring(1)) == "0 2 1 3");
    BOOST_TEST(Order::tree(comm.topology.channels()[0].tree).as_tree().str() == "(0 (1 (2 3)))");
    BOOST_REQUIRE(comm.machine.has_value());
    BOOST_TEST(comm.machine->ring.bw_intra == 20);
    BOOST_TEST(comm.machine->tree.bw_intra == 40);
    BOOST_TEST(comm.machine->ring.nvlink);
    BOOST_TEST(!comm.machine->ring.same_channels);
    BOOST_TEST(comm.machine->ll128);
    BOOST_TEST(!comm.machine->nvls);
    BOOST_TEST((comm.machine->cpu == CpuVendor::intel));
    BOOST_REQUIRE(first.choice(Collective::all_reduce, 128) != nullptr);
    BOOST_TEST((first.choice(Collective::all_reduce, 128)->protocol == Protocol::ll));
    BOOST_TEST(*first.choice(Collective::all_reduce, 128)->last_channel == 0);
    BOOST_TEST(first.choice(Collective::all_reduce, 256) == nullptr);

    const LogCommunicator& second = log.communicator("1");
    BOOST_TEST(second.channels == 2);
    BOOST_REQUIRE(second.choice(Collective::reduce_scatter, 2097152) != nullptr);
    BOOST_TEST((second.choice(Collective::reduce_scatter, 2097152)->algorithm == Algorithm::ring));
    BOOST_TEST(second.choices.size() == 2u);  // with the AllGather, which adds nothing
    BOOST_TEST(!second.choices.back().collective.has_value());
    for (const char* half : {"2", "3"}) {
        BOOST_TEST(log.communicator(half).ranks == 2);
        BOOST_TEST(str(log.communicator(half).communicator().topology.ring(0)) == "0 1");
    }
    // The symmetric kernel's call has no COLL line: it follows the latest call of its function.
    BOOST_REQUIRE(first.symmetric.size() == 1u);
    BOOST_TEST(first.symmetric[0].kernel == "AllReduce_AGxLL_R");
    BOOST_TEST(first.symmetric[0].blocks == 4);
}

BOOST_AUTO_TEST_CASE(old_logs_are_read_but_not_modelled) {
    const NcclLog log = parse_nccl_log(golden("four-nodes-mpirun-2.18.6.log"), "old.log");
    const LogCommunicator& comm = log.communicator();
    BOOST_TEST(comm.ranks == 4);
    BOOST_TEST(comm.nodes == 4);
    BOOST_TEST(mentions(comm.assumptions, "each of the 4 hosts is one node"));
    BOOST_TEST(comm.choices.size() == 2u);
    BOOST_TEST((comm.choices[0].algorithm == Algorithm::tree));
    BOOST_TEST((comm.choices[0].protocol == Protocol::ll128));
    BOOST_TEST((comm.choices[1].protocol == Protocol::simple));
    BOOST_CHECK_EXCEPTION((void)comm.communicator(), UsageError, [](const UsageError& error) {
        return std::string(error.what()).find("NCCL 2.18.6 is not modelled; expected 2.27 to 2.30") !=
               std::string::npos;
    });
    check_same(Topology::one_rank_per_node(4, 2), comm.communicator(NcclVersion{2, 28, 9}));
}

BOOST_AUTO_TEST_CASE(the_graph_of_one_rank_gives_the_trees_of_all) {
    // Rank 0 alone of four on one node; up to 2.27 the graph prints ranks, later bus ids that the topology resolves.
    for (const bool by_bus : {false, true}) {
        std::string text =
            "h:1:2 [0] NCCL INFO NCCL version 2.27.7+cuda12.9\n"
            "h:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - "
            "Init START\n";
        const char* gpus[]{"0", "1", "2", "3"};
        const char* buses[]{"0-1000", "0-2000", "0-3000", "0-4000"};
        if (by_bus)
            for (int i = 0; i < 4; ++i)
                text += fmt::format("h:1:2 [0] NCCL INFO   + NVL[20.0] - GPU/{} ({})\n", buses[i], i);
        const auto gpu = [&](int i) { return std::string("GPU/") + (by_bus ? buses[i] : gpus[i]); };
        text +=
            "h:1:2 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 1, bw 20.000000/20.000000, type NVL/PIX, "
            "sameChannels 1\n";
        text += fmt::format("h:1:2 [0] NCCL INFO  0 : {} {} {} {}\n", gpu(0), gpu(2), gpu(1), gpu(3));
        text +=
            "h:1:2 [0] NCCL INFO Pattern 1, crossNic 0, nChannels 1, bw 20.000000/20.000000, type NVL/PIX, "
            "sameChannels 1\n";
        text += fmt::format("h:1:2 [0] NCCL INFO  0 : {} {} {} {}\n", gpu(0), gpu(3), gpu(2), gpu(1));
        text +=
            "h:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 0\n"
            "h:1:2 [0] NCCL INFO Channel 00/02 : 0 2 1 3\n"
            "h:1:2 [0] NCCL INFO Channel 01/02 : 0 2 1 3\n"
            "h:1:2 [0] NCCL INFO Trees [0] 3/-1/-1->0->-1 [1] 3/-1/-1->0->-1\n"
            "h:1:2 [0] NCCL INFO 2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels "
            "per peer\n";
        const LogCommunicator comm = parse_nccl_log(text, "f").communicators.front();
        BOOST_TEST(comm.missing.empty());
        BOOST_TEST(mentions(comm.assumptions, "follow from the nodes' graphs"));
        BOOST_REQUIRE(comm.communicator().topology.channels()[1].tree != nullptr);
        BOOST_TEST(Order::tree(comm.communicator().topology.channels()[1].tree).as_tree().str() == "(0 (3 (2 1)))");
        // A graph that contradicts the logged links is not used.
        std::string other = text;
        other.replace(other.find("Trees [0] 3/"), 12, "Trees [0] 2/");
        BOOST_TEST(mentions(parse_nccl_log(other, "f").communicators.front().missing, "tree links of ranks 1 to 3"));
    }
}

BOOST_AUTO_TEST_CASE(contradictions_are_reported) {
    const Topology shape = Topology::one_node(4, 2);
    const std::string text = interleaved(printed(shape, {}), 1);
    struct {
        const char *from, *to, *part;
    } cases[]{
        {"Ring 00 : 0 -> 1 -> 2", "Ring 00 : 0 -> 1 -> 3", "channel 0: after rank 1 comes"},
        {"[1] 3/-1/-1->2->1", "[1] -1/-1/-1->2->1", "channel 1: the ranks' 'Trees' lines do not form one tree"},
        {"rank 2 nRanks 4 nNodes 1", "rank 2 nRanks 4 nNodes 2", "nodes, another rank"},
        {"NCCL version 2.28.9", "RCCL version 2.28.9", "the NCCL version"},
        {"[0] 1/-1/-1->0->-1", "[0] 1/-1/-1->0->9", "do not form one tree"},
    };
    for (const auto& each : cases) {
        std::string changed = text;
        const std::size_t place = changed.find(each.from);
        BOOST_REQUIRE(place != std::string::npos);
        changed.replace(place, std::string(each.from).size(), each.to);
        const NcclLog log = parse_nccl_log(changed, "f");
        bool found = mentions(log.communicators.front().missing, each.part);
        found = found || mentions(log.communicators.front().contradictions, each.part);
        BOOST_TEST(found, each.part);
        BOOST_CHECK_THROW((void)log.communicators.front().communicator(), UsageError);
    }
    // Lines that two processes wrote into each other are still two messages.
    std::string glued = text;
    const std::size_t end = glued.find("\n", glued.find("coll channels"));
    glued.erase(end, 1);
    check_same(shape, parse_nccl_log(glued, "f").communicators.front().communicator());
}

BOOST_AUTO_TEST_CASE(lines_torn_by_a_shared_pipe_lose_only_themselves) {
    // As a tail of a server's log shows it: the START lines are gone, and the COMPLETE lines are torn by each other.
    const std::string text =
        "m:1:1 [0] NCCL INFO Channel 00/02 : 0 1\n"
        "m:1:1 [0] NCCL INFO Channel 01/02 : 0 1\n"
        "m:2:2 [1] NCCL INFO Trees [0] -1/-1/-1->1->0 [1] -1/-1/-1->1->0\n"
        "m:1:1 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1\n"
        "m:2:2 [1] NCCL INFO 2 coll channels, 2 collnet channels, 16 nvls channels, 4 p2p channels, 4 p2p channels per "
        "peer\n"
        "m:2:2 [1] NCCL INFO ncclCommInitRankConfig comm 0x5561 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId a8m:1:1 [0] "
        "NCCL INFO "
        "ncclCommInitRankConfig comm 0x5551 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 53000 commId 0xf9 - Init "
        "COMPLETE\n"
        "000 commId 0xf9 - Init COMPLETE\n"
        "m:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n";
    const NcclLog log = parse_nccl_log(text, "f");
    BOOST_REQUIRE(log.communicators.size() == 1u);
    const LogCommunicator& comm = log.communicator();
    BOOST_TEST(comm.ranks == 2);
    BOOST_TEST((comm.logged_ranks == std::vector<int>{0, 1}));
    BOOST_TEST(comm.trees[0].has_value());
    BOOST_TEST(mentions(comm.assumptions, "each of the 1 hosts is one node"));
    check_same(Topology::one_node(2, 2), comm.communicator());
}

BOOST_AUTO_TEST_CASE(what_is_not_a_log_is_refused) {
    for (const char* text : {"", "\n\n", "hello", "{\"a\": 1}", "NCCL_DEBUG=INFO"})
        BOOST_CHECK_EXCEPTION((void)parse_nccl_log(text, "x.log"), UsageError, [](const UsageError& error) {
            return std::string(error.what()).find("x.log: no 'NCCL INFO' line") == 0;
        });
    // NCCL lines without any communicator.
    const NcclLog log = parse_nccl_log("h:1:2 [0] NCCL INFO cudaDriverVersion 13000\n", "x.log");
    BOOST_TEST(log.communicators.empty());
    BOOST_CHECK_EXCEPTION((void)log.communicator(), UsageError, [](const UsageError& error) {
        return std::string(error.what()).find("no communicator in 1 NCCL lines") != std::string::npos;
    });
}

BOOST_AUTO_TEST_CASE(mutated_logs_never_crash) {
    std::vector<std::string> seeds{golden("one-node-four-ranks-2.28.9.log"),
                                   golden("rank-0-of-48-cut-lines-2.30.7.log"), golden("four-nodes-mpirun-2.18.6.log")};
    const auto [parsed, refused] = mutate(seeds, 21, 1500, [](const std::string& text) {
        const NcclLog log = parse_nccl_log(text, "mutant");
        for (const LogCommunicator& comm : log.communicators) {
            (void)comm.str();
            try {
                (void)comm.communicator(NcclVersion{2, 28, 9}, 90);
            } catch (const UsageError& error) {
                if (std::string(error.what()).find('\n') != std::string::npos) throw std::runtime_error(error.what());
            }
        }
    });
    BOOST_TEST(parsed > 1000);
    (void)refused;
}
