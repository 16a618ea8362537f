// Public reports of sums that changed, each asked as its reporter would and answered by the tool.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE cases
#include <boost/test/unit_test.hpp>

#include "tests/program.hpp"

using samesum::testing::Outcome;
using samesum::testing::run;

namespace {

/// Checks the exit code and that every text was said.
void expect(const std::string& arguments, int exit, std::initializer_list<const char*> texts,
            const std::string& input = {}) {
    const Outcome outcome = run(arguments, input);
    BOOST_TEST_CONTEXT("samesum " << arguments << "\n" << outcome.out << outcome.err) {
        BOOST_TEST(outcome.exit == exit);
        for (const char* text : texts) BOOST_TEST(outcome.says(text), "should say: " << text);
    }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(the_count_decides)

// Two tensors of 3000 and 5000 elements fused: the second one's elements move to other chunks of the longer buffer.
BOOST_AUTO_TEST_CASE(c1_fusing_tensors_changes_results) {
    expect(
        "order diff --ranks 8 --ranks-per-node 8 --channels 2 --collective all_reduce --algo ring --proto simple "
        "--count 5000 --with '--count 8000' --offset 3000",
        1, {"of 5000 elements change their order"});
    // On one tree and one channel the same fusion moves nothing.
    expect(
        "order diff --ranks 8 --ranks-per-node 8 --channels 1 --collective all_reduce --algo tree --proto simple "
        "--count 5000 --with '--count 8000' --offset 3000",
        0, {"0 of 5000 elements change their order"});
}

// Several nodes with the tree pinned: channels follow the size, and each half of them has another tree.
BOOST_AUTO_TEST_CASE(c2_prefill_and_decode_differ_under_a_pinned_tree) {
    const std::string call =
        "order diff --ranks 4 --ranks-per-node 1 --channels 8 --collective all_reduce --algo tree --proto "
        "simple --dtype bfloat16 --count 1x5120 --with '--count 512x5120'";
    expect(call, 0, {"0 of 5120 elements change their order"});  // the first row stays on the first channel
    expect(call + " --offset 2560000", 1,
           {"5120 of 5120 elements change their order", "(0 ((2 1) 3))", "(3 ((1 2) 0))"});
    // One channel pinned: the same everywhere.
    expect(
        "order diff --ranks 4 --ranks-per-node 1 --channels 1 --collective all_reduce --algo tree --proto simple "
        "--dtype bfloat16 --count 1x5120 --with '--count 512x5120' --offset 2560000",
        0, {"0 of 5120 elements change"});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(the_owner_decides)

BOOST_AUTO_TEST_CASE(c3_moe_combine_depends_on_the_data_parallel_rank) {
    expect("order invariance --ranks 4 --ranks-per-node 1 --schemes vllm_default,fixed_root", 0,
           {"vllm_default is not owner-invariant", "sizes 1,1,1,1, row 0 (owner 0): (((1 2) 3) 0)",
            "sizes 1,1,1,1, row 1 (owner 1): (((2 3) 0) 1)"});
    // The assumption: channels that differ break fixed_root as well.
    expect("order invariance --rings '0,1,2,3;0,2,3,1' --schemes fixed_root", 0,
           {"fixed_root is not position-invariant"});
}

BOOST_AUTO_TEST_CASE(c4_two_ranks_are_safe_and_three_are_not) {
    const Outcome two = run("order invariance --ranks 2 --ranks-per-node 1");
    BOOST_TEST(two.exit == 0);
    BOOST_TEST(!two.says(" no "));
    BOOST_TEST(!two.says("is not"));
    expect("order invariance --ranks 3 --ranks-per-node 1 --schemes vllm_default", 0,
           {"vllm_default is not owner-invariant"});
}

// Reduce-scatter instead of all-reduce: which rows move with the sequence-parallel rewrite.
BOOST_AUTO_TEST_CASE(c7_sequence_parallelism_breaks_batch_invariance) {
    expect("order invariance --ranks 4 --ranks-per-node 4 --channels 1 --schemes reduce_scatter", 0,
           {"reduce_scatter is not owner-invariant"});
    expect("order invariance --ranks 2 --ranks-per-node 2 --channels 1 --schemes reduce_scatter --json -", 0,
           {"run-to-run", "yes"});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(the_topology_decides)

BOOST_AUTO_TEST_CASE(c10_a_ring_that_is_only_rotated_moves_all_reduce_but_not_reduce) {
    const std::string ring = " --rings '0,1,2,3,4,5,6,7' --algo ring --proto ll --count 4096 --with '--rings ";
    expect("order diff --collective reduce" + ring + "4,5,6,7,0,1,2,3'", 0, {"0 of 4096 elements change"});
    expect("order diff --collective reduce" + ring + "0,2,4,6,1,3,5,7'", 1, {"4096 of 4096 elements change"});
    expect("order diff --collective all_reduce" + ring + "0,2,4,6,1,3,5,7'", 1, {"elements change their order"});
}

BOOST_AUTO_TEST_CASE(c11_c15_what_the_switch_adds_is_not_observable) {
    expect(
        "order show --collective all_reduce --ranks 8 --ranks-per-node 8 --channels 24 --algo nvls --proto simple "
        "--count "
        "4194304",
        3, {"not observable", "mm(0 1 2 3 4 5 6 7)"});
    // Six of the placements gave 2.0 on one machine: no tree of rounded additions gives 2 for every placement.
    expect("order enumerate --ranks 4 --values '1e8 1 -1e8 1'", 0, {"8  0x00000000", "4  0x3f800000", "3  0x40000000"});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(the_batch_picks_the_kernel)

// Two kernels and the library behind one all-reduce, switched by bytes and by alignment.
constexpr const char* custom = R"json({"name": "custom all-reduce", "ranks": 4, "paths": [
    {"name": "one stage", "below_bytes": 524288, "multiple_of_bytes": 16, "order": "rank_order", "rounding": "fp32_once"},
    {"name": "two stages", "below_bytes": 8388608, "multiple_of_bytes": 16, "order": "from_owner", "rounding": "fp32_once"},
    {"name": "library", "order": "(((1 2) 3) 0)"}]})json";

BOOST_AUTO_TEST_CASE(c5_size_thresholds) {
    expect("order paths - --row 10240 --rows 1000", 1,
           {"1         51  one stage", "52        819  two stages", "820       1000  library",
            "one stage: (((0 1) 2) 3), fp32_once; depends on nothing",
            "two stages: (((0 1) 2) 3), fp32_once; depends on the row's place",
            "a row's bits depend on how many rows are in the batch"},
           custom);
    expect("order paths - --row 10240 --rows 51", 0, {"every row is summed the same way in every batch"}, custom);
}

BOOST_AUTO_TEST_CASE(c25_the_16_byte_rule) {
    expect("order paths - --row 4 --rows 8", 1,
           {"1          3  library", "4          4  one stage", "5          7  library", "8          8  one stage"},
           custom);
}

BOOST_AUTO_TEST_CASE(c8_a_fused_path_that_starts_at_the_own_rank) {
    expect("order paths - --row 4096 --rows 4", 1, {"depends on the row's place"},
           R"json({"ranks": 8, "paths": [{"name": "two shot", "order": "from_owner"}]})json");
}

BOOST_AUTO_TEST_CASE(c22_another_vendors_ring_and_line) {
    // Ring reduce-scatter: an order for each position. A line adds from one end: one order for all.
    expect("order paths - --row 2048 --rows 4", 1, {"depends on the row's place"},
           R"json({"ranks": 3, "paths": [{"name": "ring", "order": ["((1 2) 0)", "((2 0) 1)", "((0 1) 2)"]}]})json");
    expect("order paths - --row 2048 --rows 4", 0, {"depends on nothing"},
           R"json({"ranks": 3, "paths": [{"name": "line", "order": "((2 1) 0)"}]})json");
}

BOOST_AUTO_TEST_CASE(descriptions_that_are_wrong) {
    struct Row {
        const char *text, *complaint;
    };
    for (const Row& row :
         {Row{"", "not a JSON object"}, Row{"{}", "'ranks' is a number"}, Row{R"({"ranks": 2})", "'paths' is a list"},
          Row{R"({"ranks": 2, "paths": [{}]})", "'order' is missing"},
          Row{R"json({"ranks": 2, "paths": [{"order": "(0 2)"}]})json", "does not add each of the ranks 0 to 1 once"},
          Row{R"({"ranks": 2, "paths": [{"order": "rank_order", "below": 3}]})", "'below' is not name"},
          Row{R"({"ranks": 2, "paths": [{"order": "rank_order", "below_bytes": 3}]})", "no path takes 1 rows"}}) {
        const Outcome outcome = run("order paths - --row 8", row.text);
        BOOST_TEST(outcome.exit == 2);
        BOOST_TEST(outcome.complains(row.complaint), outcome.err);
    }
}

BOOST_AUTO_TEST_SUITE_END()
