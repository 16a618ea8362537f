// Orders, trees and channel splits against the worked examples of the NCCL specification (its tables and appendix A).
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE schedule

#include "model/nccl/schedule.hpp"

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>

#include "model/nccl/symmetric_kernels.hpp"
#include "model/support/error.hpp"

using namespace samesum;

namespace {

Communicator apart(int ranks, int channels, const char* version = "2.28.9") {
    return {Topology::one_rank_per_node(ranks, channels), parse_nccl_version(version)};
}

/// "[0,16384) ch0 (1 2), ..." with canonical trees only on request.
std::string parts_of(const Plan& plan) {
    std::string text;
    for (const ChannelPart& part : plan.parts)
        text += fmt::format("{}ch{} {}-{}", text.empty() ? "" : " ", part.channel, part.begin, part.begin + part.count);
    return text;
}

std::string segments_of(const Plan& plan, std::size_t max = 100) {
    std::string text;
    plan.schedule.visit(0, plan.schedule.size(), [&](const Segment& segment) {
        text += fmt::format("{}{}-{}", text.empty() ? "" : " ", segment.begin, segment.end);
        return --max > 0;
    });
    return text;
}

std::string tree_at(const Plan& plan, std::uint64_t element) {
    return plan.schedule.segment_at(element).order.as_tree().str();
}

Plan planned(const Communicator& comm, Collective collective, std::uint64_t count, Format format, Algorithm algorithm,
             Protocol protocol, int root = 0) {
    return plan_call(comm, {.collective = collective, .count = count, .format = format, .root = root},
                     {algorithm, protocol});
}

constexpr auto all_reduce = Collective::all_reduce;
constexpr auto reduce = Collective::reduce;
constexpr auto reduce_scatter = Collective::reduce_scatter;
constexpr auto f32 = Format::float32;

}  // namespace

BOOST_AUTO_TEST_CASE(a1_ring_all_reduce_in_16_segments) {
    const Plan plan = planned(apart(8, 2), all_reduce, 32768, f32, Algorithm::ring, Protocol::ll);
    BOOST_TEST(parts_of(plan) == "ch0 0-16384 ch1 16384-32768");
    BOOST_TEST(plan.schedule.segment_count() == 16u);
    BOOST_TEST(tree_at(plan, 0) == "(((((((1 2) 3) 4) 5) 6) 7) 0)");
    BOOST_TEST(tree_at(plan, 2047) == tree_at(plan, 0));
    BOOST_TEST(tree_at(plan, 7 * 2048) == "(((((((0 1) 2) 3) 4) 5) 6) 7)");
    BOOST_TEST(tree_at(plan, 8 * 2048) == tree_at(plan, 0));
}

BOOST_AUTO_TEST_CASE(a2_a3_small_ring_all_reduces) {
    BOOST_TEST(segments_of(planned(apart(4, 1), all_reduce, 1000, f32, Algorithm::ring, Protocol::ll)) ==
               "0-252 252-504 504-756 756-1000");
    BOOST_TEST(segments_of(planned(apart(3, 1), all_reduce, 10, f32, Algorithm::ring, Protocol::ll)) == "0-4 4-8 8-10");
    BOOST_TEST(segments_of(planned(apart(8, 1), all_reduce, 10, f32, Algorithm::ring, Protocol::ll)) == "0-4 4-8 8-10");
}

BOOST_AUTO_TEST_CASE(a4_uneven_simple_split) {
    const Plan plan = planned(apart(4, 8), all_reduce, 1000003, f32, Algorithm::ring, Protocol::simple);
    BOOST_TEST(plan.parts.size() == 8u);
    for (std::size_t i = 0; i < 7; ++i) BOOST_TEST(plan.parts[i].count == 126976u);
    BOOST_TEST(plan.parts[7].count == 111171u);
    BOOST_TEST(plan.schedule.segment_at(0).end == 31744u);
    BOOST_TEST(plan.schedule.segment_at(7 * 126976).end == 7u * 126976 + 27796);
}

BOOST_AUTO_TEST_CASE(a5_a7_versions_differ) {
    BOOST_TEST(parts_of(planned(apart(8, 4), all_reduce, 300000, f32, Algorithm::ring, Protocol::ll128)) ==
               "ch0 0-75776 ch1 75776-151552 ch2 151552-227328 ch3 227328-300000");
    const Plan later = planned(apart(8, 4, "2.29.7"), all_reduce, 300000, f32, Algorithm::ring, Protocol::ll128);
    BOOST_TEST(parts_of(later) == "ch0 0-77824 ch1 77824-155648 ch2 155648-233472 ch3 233472-300000");
    BOOST_TEST(later.schedule.segment_at(0).end == 9728u);
    BOOST_TEST(later.schedule.segment_at(233472).end == 233472u + 8316);
    // A7 has at most 4 of 8 channels.
    const Task task{{.collective = reduce, .count = 100000}, {Algorithm::ring, Protocol::simple, 4}};
    BOOST_TEST(parts_of(plan_task(apart(4, 8), task)) ==
               "ch0 0-28672 ch1 28672-57344 ch2 57344-86016 ch3 86016-100000");
    BOOST_TEST(parts_of(plan_task(apart(4, 8, "2.29.2"), task)) ==
               "ch0 0-32768 ch1 32768-65536 ch2 65536-98304 ch3 98304-100000");
}

BOOST_AUTO_TEST_CASE(a6_large_bfloat16) {
    const Plan plan = planned(apart(8, 8), all_reduce, 16777216, Format::bfloat16, Algorithm::ring, Protocol::simple);
    BOOST_TEST(plan.parts[0].count == 2097152u);
    BOOST_TEST(plan.schedule.segment_at(0).end == 262144u);
}

BOOST_AUTO_TEST_CASE(a8_reduce_scatter_parts_are_per_destination) {
    const Task task{{.collective = reduce_scatter, .count = 5000}, {Algorithm::ring, Protocol::ll, 2}};
    const Plan plan = plan_task(apart(4, 2), task);
    BOOST_TEST(parts_of(plan) == "ch0 0-2560 ch1 2560-5000");
    BOOST_TEST(segments_of(plan, 4) == "0-2560 2560-5000 5000-7560 7560-10000");
    BOOST_TEST(tree_at(plan, 5000) == "(((2 3) 0) 1)");
}

BOOST_AUTO_TEST_CASE(a9_a_group_shares_channels) {
    const auto groups = [](const char* version) {
        std::vector<Task> tasks;
        for (const std::uint64_t count : {1000u, 3000u, 9000u})
            tasks.push_back({{.collective = all_reduce, .count = count}, {Algorithm::ring, Protocol::ll, 4}});
        std::string text;
        for (const auto& parts : partition(tasks, apart(4, 4, version))) {
            for (const ChannelPart& part : parts)
                text += fmt::format("ch{} {}-{} ", part.channel, part.begin, part.begin + part.count);
            text += "| ";
        }
        return text;
    };
    BOOST_TEST(groups("2.28.9") == "ch0 0-1000 | ch0 0-2560 ch1 2560-3000 | ch1 0-3072 ch2 3072-6656 ch3 6656-9000 | ");
    BOOST_TEST(groups("2.29.7") == "ch0 0-1000 | ch0 0-3000 | ch1 0-4096 ch2 4096-8192 ch3 8192-9000 | ");
}

BOOST_AUTO_TEST_CASE(a10_reduce_walks_the_ring_to_the_root) {
    const auto order = [](int ranks, int root) {
        return tree_at(planned(apart(ranks, 1), reduce, 1, f32, Algorithm::ring, Protocol::ll, root), 0);
    };
    BOOST_TEST(order(4, 0) == "(((1 2) 3) 0)");
    BOOST_TEST(order(4, 3) == "(((0 1) 2) 3)");
    BOOST_TEST(order(5, 0) == "((((1 2) 3) 4) 0)");
}

BOOST_AUTO_TEST_CASE(a11_two_trees) {
    const Plan plan = planned(apart(4, 2), all_reduce, 65536, f32, Algorithm::tree, Protocol::ll);
    BOOST_TEST(tree_at(plan, 32767) == "(0 ((2 1) 3))");
    BOOST_TEST(tree_at(plan, 32768) == "(3 ((1 2) 0))");
}

BOOST_AUTO_TEST_CASE(a12_symmetric_kernels) {
    const Communicator comm{Topology::one_node(4, 8)};
    const Call call{.collective = all_reduce, .count = 5000};
    BOOST_TEST(tree_at(plan_symmetric(comm, call, {"AllReduce_AGxLL_R"}), 4999) == "(((0 1) 2) 3)");
    const Call scatter{.collective = reduce_scatter, .count = 100};
    BOOST_TEST(tree_at(plan_symmetric(comm, scatter, {"ReduceScatter_LD"}), 250) == "(((2 3) 0) 1)");
    BOOST_TEST(tree_at(plan_symmetric(comm, scatter, {"ReduceScatter_LL"}), 250) == "(((0 1) 2) 3)");
    // Region A: 8192-byte rounds of 4 pieces; 40000 bytes hold one round of 4 ranks x 1 block; then B and the rest.
    const Plan pieces = plan_symmetric(comm, {.collective = all_reduce, .count = 10000}, {"AllReduce_RSxLD_AGxST"});
    BOOST_TEST(tree_at(pieces, 511) == "(((0 1) 2) 3)");
    BOOST_TEST(tree_at(pieces, 512) == "(((1 2) 3) 0)");
    BOOST_TEST(tree_at(pieces, 8192) == "(((0 1) 2) 3)");
    BOOST_TEST(tree_at(pieces, 8192 + 32) == "(((1 2) 3) 0)");
    BOOST_TEST(!plan_symmetric(comm, call, {"AllReduce_RSxLDMC_AGxSTMC"}).schedule.segment_at(0).order.observable());
    BOOST_CHECK_THROW((void)plan_symmetric(comm, call, {"ReduceScatter_LD"}), UsageError);
    BOOST_CHECK_THROW((void)plan_symmetric(apart(4, 2), call, {"AllReduce_AGxLL_R"}), UsageError);
}

BOOST_AUTO_TEST_CASE(symmetric_pieces_cover_the_buffer_once) {
    for (const std::uint64_t count : {1u, 31u, 33u, 4096u, 10001u, 100003u})
        for (const std::uint64_t offset : {0u, 4u, 12u})
            for (const int blocks : {1, 3}) {
                const Plan plan = plan_symmetric({Topology::one_node(3, 8)}, {.collective = all_reduce, .count = count},
                                                 {"AllReduce_RSxLD_AGxST", blocks, offset, offset});
                std::uint64_t covered = 0;
                for (const Part& part : plan.schedule.parts()) covered += part.end - part.begin;
                BOOST_TEST(covered == count);
                std::uint64_t visited = 0;
                plan.schedule.visit(0, count, [&](const Segment& segment) {
                    visited += segment.end - segment.begin;
                    return true;
                });
                BOOST_TEST(visited == count);
            }
}

BOOST_AUTO_TEST_CASE(trees_of_one_rank_per_node) {
    struct Row {
        int nodes;
        const char *first, *second;
    };
    for (const Row& row :
         {Row{2, "(0 1)", "(1 0)"}, Row{3, "(0 (2 1))", "(1 (0 2))"}, Row{4, "(0 ((2 1) 3))", "(3 ((1 2) 0))"},
          Row{5, "(0 (4 ((2 1) 3)))", "(1 (0 ((3 2) 4)))"}, Row{6, "(0 ((4 ((2 1) 3)) 5))", "(5 ((1 ((3 4) 2)) 0))"},
          Row{7, "(0 ((4 ((2 1) 3)) (6 5)))", "(1 ((5 ((3 2) 4)) (0 6)))"},
          Row{8, "(0 ((4 ((2 1) 3)) ((6 5) 7)))", "(7 ((3 ((5 6) 4)) ((1 2) 0)))"},
          Row{16, "(0 ((8 ((4 ((2 1) 3)) ((6 5) 7))) ((12 ((10 9) 11)) ((14 13) 15))))",
              "(15 ((7 ((11 ((13 14) 12)) ((9 10) 8))) ((3 ((5 6) 4)) ((1 2) 0))))"}}) {
        const Topology topology = Topology::one_rank_per_node(row.nodes, 2);
        BOOST_TEST(Order::tree(topology.channels()[0].tree).as_tree().str() == row.first);
        BOOST_TEST(Order::tree(topology.channels()[1].tree).as_tree().str() == row.second);
    }
}

BOOST_AUTO_TEST_CASE(trees_of_several_ranks_per_node) {
    struct Row {
        int nodes, ranks_per_node;
        TreePattern pattern;
        const char *first, *second;
    };
    using enum TreePattern;
    for (const Row& row : {Row{1, 8, balanced, "(0 (1 (2 (3 (4 (5 (6 7)))))))", "(0 (1 (2 (3 (4 (5 (6 7)))))))"},
                           Row{2, 4, balanced, "((0 (1 (2 3))) (4 (5 (6 7))))", "((4 (5 (6 7))) (0 (1 (2 3))))"},
                           Row{2, 4, split, "(0 ((1 (2 3)) (4 (5 (6 7)))))", "(4 ((5 (6 7)) (0 (1 (2 3)))))"},
                           Row{2, 4, tree, "((0 (1 (2 3))) (4 (5 (6 7))))", "((4 (5 (6 7))) (0 (1 (2 3))))"},
                           Row{4, 2, balanced, "((0 1) ((4 (5 (2 3))) (6 7)))", "((6 7) ((2 (3 (4 5))) (0 1)))"},
                           Row{4, 2, split, "(0 (1 (4 ((5 (2 3)) (6 7)))))", "(6 (7 (2 ((3 (4 5)) (0 1)))))"},
                           Row{4, 2, tree, "((0 1) (((4 5) (2 3)) (6 7)))", "((6 7) (((2 3) (4 5)) (0 1)))"}}) {
        std::vector<std::vector<NodeLists>> lists;
        for (int node = 0; node < row.nodes; ++node) {
            std::vector<int> ranks;
            for (int i = 0; i < row.ranks_per_node; ++i) ranks.push_back(node * row.ranks_per_node + i);
            lists.push_back({{ranks, ranks, row.pattern}});
        }
        const Topology topology = Topology::from_node_lists(lists);
        BOOST_TEST(Order::tree(topology.channels()[0].tree).as_tree().str() == row.first);
        BOOST_TEST(Order::tree(topology.channels()[1].tree).as_tree().str() == row.second);
    }
}

BOOST_AUTO_TEST_CASE(pat_trees) {
    struct Row {
        int ranks, dimensions;
        const char* tree;
    };
    for (const Row& row :
         {Row{2, 1, "(1 0)"}, Row{3, 1, "(2 (1 0))"}, Row{4, 1, "(3 ((1 2) 0))"}, Row{5, 2, "(4 (1 ((2 3) 0)))"},
          Row{6, 2, "(5 ((1 2) ((3 4) 0)))"}, Row{7, 2, "(6 ((2 (1 3)) ((4 5) 0)))"},
          Row{8, 2, "(7 ((3 ((1 2) 4)) ((5 6) 0)))"}, Row{9, 2, "(8 (1 ((4 ((2 3) 5)) ((6 7) 0))))"},
          Row{10, 2, "(9 ((1 2) ((5 ((3 4) 6)) ((7 8) 0))))"},
          Row{12, 2, "(11 ((3 ((1 2) 4)) ((7 ((5 6) 8)) ((9 10) 0))))"},
          Row{16, 2, "(15 ((7 ((3 ((1 2) 4)) ((5 6) 8))) ((11 ((9 10) 12)) ((13 14) 0))))"},
          Row{33, 2,
              "(32 (1 ((16 ((8 ((4 ((2 3) 5)) ((6 7) 9))) ((12 ((10 11) 13)) ((14 15) 17)))) ((24 ((20 ((18 19) 21)) "
              "((22 "
              "23) 25))) ((28 ((26 27) 29)) ((30 31) 0))))))"},
          Row{33, 3,
              "(32 (1 ((16 ((8 ((6 7) ((4 ((2 3) 5)) 9))) ((14 15) ((12 ((10 11) 13)) 17)))) ((24 ((22 23) ((20 ((18 "
              "19) "
              "21)) 25))) ((30 31) ((28 ((26 27) 29)) 0))))))"}})
        BOOST_TEST(Order::pat(row.ranks, 0, row.dimensions).as_tree().str() == row.tree);
    BOOST_TEST(Order::pat(8, 4, 2).as_tree().str() == "(3 ((7 ((5 6) 0)) ((1 2) 4)))");
    // 33 to 64 ranks: three dimensions exactly when the part holds more than half a chunk.
    BOOST_TEST(pat_dimensions(64, 65536, 32768) == 2);
    BOOST_TEST(pat_dimensions(64, 65536, 32769) == 3);
    BOOST_TEST(pat_dimensions(8, 65536, 65536) == 1);
}

BOOST_AUTO_TEST_CASE(a13_unequal_rings_from_node_lists) {
    std::vector<std::vector<NodeLists>> lists;
    for (int node = 0; node < 4; ++node)
        lists.push_back({{{2 * node, 2 * node + 1}, {2 * node, 2 * node + 1}, TreePattern::balanced},
                         {{2 * node + 1, 2 * node}, {2 * node + 1, 2 * node}, TreePattern::balanced}});
    const Topology topology = Topology::from_node_lists(lists);
    BOOST_TEST(str(topology.ring(0)) == "0 1 2 3 4 5 6 7");
    BOOST_TEST(str(topology.ring(1)) == "0 3 2 5 4 7 6 1");
    BOOST_TEST(str(topology.ring(3)) == str(topology.ring(1)));
    const char* trees[]{"((0 1) ((4 (5 (2 3))) (6 7)))", "((1 0) ((5 (4 (3 2))) (7 6)))",
                        "((6 7) ((2 (3 (4 5))) (0 1)))", "((7 6) ((3 (2 (5 4))) (1 0)))"};
    for (std::size_t c = 0; c < 4; ++c)
        BOOST_TEST(Order::tree(topology.channels()[c].tree).as_tree().str() == trees[c]);
    BOOST_TEST(!same_reduce_order(topology.ring(0), topology.ring(1), 0));
}

BOOST_AUTO_TEST_CASE(three_ranks_need_no_equal_rings) {
    for (int root = 0; root < 3; ++root) BOOST_TEST(same_reduce_order({0, 1, 2}, {0, 2, 1}, root));
    BOOST_TEST(same_reduce_order({0, 1, 2, 3}, {0, 2, 1, 3}, 0));
    BOOST_TEST(!same_reduce_order({0, 1, 2, 3}, {0, 2, 1, 3}, 1));
}

BOOST_AUTO_TEST_CASE(a_schedule_of_2_to_the_40_elements_over_65536_ranks_is_compact) {
    const Communicator comm{Topology::one_rank_per_node(65536, 32)};
    const Plan plan = planned(comm, all_reduce, std::uint64_t{1} << 40, f32, Algorithm::ring, Protocol::simple);
    BOOST_TEST(plan.schedule.parts().size() <= 64u);
    BOOST_TEST(plan.schedule.segment_count() == (std::uint64_t{1} << 40) / 524288);
    BOOST_TEST(plan.schedule.segment_at((std::uint64_t{1} << 40) - 1).order.last() == 65535);
    const Plan scatter = planned(comm, reduce_scatter, 1 << 24, f32, Algorithm::ring, Protocol::simple);
    BOOST_TEST(scatter.schedule.segment_at((std::uint64_t{1} << 40) - 1).order.last() == 65535);
}

BOOST_AUTO_TEST_CASE(captured_all_reduce_on_one_node_uses_16_of_24_channels) {
    const Communicator comm{Topology::one_node(8, 24)};
    Call call{.collective = all_reduce, .count = 1 << 24};
    const auto channels = [&] { return plan_call(comm, call, {Algorithm::ring, Protocol::simple}).parts.size(); };
    BOOST_TEST(channels() == 24u);
    call.registered = true;
    BOOST_TEST(channels() == 16u);
    call.in_place = true;
    BOOST_TEST(channels() == 24u);
}

BOOST_AUTO_TEST_CASE(every_split_covers_its_call) {
    for (const char* version : {"2.27.7", "2.28.9", "2.29.7", "2.30.7"})
        for (const Protocol protocol : all_protocols)
            for (const Collective collective : all_collectives)
                for (const int channels : {1, 2, 3, 24})
                    for (std::uint64_t count = 1; count < 3'000'000; count = count * 3 + 1) {
                        const Plan plan = planned(apart(5, channels, version), collective, count, Format::bfloat16,
                                                  Algorithm::ring, protocol);
                        std::uint64_t next = 0;
                        plan.schedule.visit(0, plan.schedule.size(), [&](const Segment& segment) {
                            BOOST_REQUIRE(segment.begin == next);
                            next = segment.end;
                            return true;
                        });
                        BOOST_REQUIRE(next == plan.schedule.size());
                        BOOST_REQUIRE(plan.parts.back().channel < channels);
                    }
}

BOOST_AUTO_TEST_CASE(avg_never_takes_pat) {
    Communicator comm = apart(4, 2);
    set_algorithms(comm.settings, "reducescatter:pat");
    BOOST_CHECK_THROW((void)plan_call(comm, {.collective = reduce_scatter, .count = 10, .operation = Operation::avg}),
                      UsageError);
    BOOST_TEST((plan_call(comm, {.collective = reduce_scatter, .count = 10}).task.choice.algorithm == Algorithm::pat));
}
