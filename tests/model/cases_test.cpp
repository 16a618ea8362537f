// Public reports of sums that changed: the command that their reporters would run, and its answer.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE cases
#include <initializer_list>

#include <boost/test/unit_test.hpp>

#include "tests/support/program.hpp"

using samesum::testing::Outcome;
using samesum::testing::run;

namespace {

/// Checks the exit code, and that stdout has every text.
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

// Two tensors of 3000 and 5000 elements fused: the elements of the second move to other chunks of the longer buffer.
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
    const std::string two = "order invariance --ranks 2 --ranks-per-node 2 --channels 1 --schemes reduce_scatter";
    expect(two, 0, {"run-to-run", "yes"});
    expect(two + " --json -", 0, {"run-to-run", "\"holds\": true"});
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
    {"name": "one stage", "below_bytes": 524288, "multiple_of_bytes": 16,
     "order": "rank_order", "rounding": "fp32_once"},
    {"name": "two stages", "below_bytes": 8388608, "multiple_of_bytes": 16,
     "order": "from_owner", "rounding": "fp32_once"},
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
        const char *text, *error;
    };
    for (const Row& row :
         {Row{"", "not a JSON object"}, Row{"{}", "field 'ranks' is missing"},
          Row{R"({"ranks": 2})", "field 'paths' is missing"},
          Row{R"({"ranks": 2, "paths": [{}]})", "'order' is missing"},
          Row{R"json({"ranks": 2, "paths": [{"order": "(0 2)"}]})json", "expected each of the ranks 0 to 1 once"},
          Row{R"({"ranks": 2, "paths": [{"order": "rank_order", "below": 3}]})", "field 'below': expected name"},
          Row{R"({"ranks": 2, "paths": [{"order": "rank_order", "below_bytes": 3}]})", "no path takes 1 rows"}}) {
        const Outcome outcome = run("order paths - --row 8", row.text);
        BOOST_TEST(outcome.exit == 2);
        BOOST_TEST(outcome.complains(row.error), outcome.err);
    }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(the_rounding_decides)

// Per hop in bfloat16 against one rounding of a float32 sum: half of the elements of 8 ranks; and what is rounded once
// hides the order from normal data, so that a test of invariance there says nothing.
BOOST_AUTO_TEST_CASE(c6_c14_float32_accumulation_changes_bits_and_hides_the_order) {
    const std::string data = " --dtype bfloat16 --samples 20000 --seed 1";
    expect("sum expect --ranks 8 --before chain --after chain --rounding-after fp32_once" + data, 0,
           {"52.", "20000 samples"});
    expect("sum expect --ranks 8 --before ring:0 --after ring:1 --rounding fp32_once" + data, 0, {"0.00 %"});
    expect(
        "order show --collective all_reduce --count 100 --dtype bfloat16 --ranks 8 --ranks-per-node 8 --channels 24 "
        "--symmetric AllReduce_AGxLL_R",
        0, {"float32 sums rounded once", "(((((((0 1) 2) 3) 4) 5) 6) 7)"});
}

BOOST_AUTO_TEST_CASE(c12_three_float16_numbers_two_answers) {
    expect("sum eval --dtype float16 --tree '((0 1) 2)' --values '0.5 512 512.5' --explain", 0,
           {"= 0x6401 (1025)", "exact"});
    expect("sum eval --dtype float16 --tree '(0 (1 2))' --values '0.5 512 512.5' --explain", 0,
           {"= 0x6400 (1024)", "rounded down by 1/2 ulp (tie to even)"});
}

BOOST_AUTO_TEST_CASE(c24_an_average_is_no_sum_divided) {
    // Scaled as it enters: every bfloat16(1/10) of the largest value stays finite; the sum would not.
    expect("sum eval --dtype bfloat16 --op avg --values '3e38 3e38 3e38 3e38 3e38 3e38 3e38 3e38 3e38 3e38'", 0,
           {"0x7f64"});
    expect("sum eval --dtype bfloat16 --op sum --values '3e38 3e38 3e38 3e38 3e38 3e38 3e38 3e38 3e38 3e38'", 0,
           {"0x7f80"});
    expect("order show --collective reduce --op avg --count 960 --ranks 3 --ranks-per-node 1 --proto ll128", 0,
           {"fused or not by the element's position in 1920-byte slices"});
}

// With at most two contributions an addition in bfloat16 and one in float32, rounded, are one; with three they are not.
BOOST_AUTO_TEST_CASE(c27_two_contributions_may_bypass_float32_and_three_may_not) {
    const std::string values = " --dtype bfloat16 --values ";
    for (const char* two : {"'256 1'", "'1.0078125 -3e-3'", "'3e38 3e38'", "'1e-40 -3e-40'"})
        BOOST_TEST(run("sum eval" + values + two).out == run("sum eval --rounding fp32_once" + values + two).out);
    BOOST_TEST(run("sum eval" + values + "'256 1 1'").out !=
               run("sum eval --rounding fp32_once" + values + "'256 1 1'").out);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(no_order_explains_it)

BOOST_AUTO_TEST_CASE(c13_nan_from_finite_values_is_a_defect) {
    expect("sum reachable --dtype bfloat16 --values '256 1 1 1' --result nan", 1, {"not by any order: defect"});
    expect("sum reachable --dtype bfloat16 --values '256 1 1 1' --result 258", 0, {"reachable"});
}

BOOST_AUTO_TEST_CASE(c21_two_ranks_look_elsewhere) {
    expect("sum witness --ranks 2 --tree ring:0 --other ring:1", 1, {"the same order"});
}

// The same call again: ring and tree orders are fixed by the call, so a result that varies has another cause.
BOOST_AUTO_TEST_CASE(c9_the_same_call_never_differs_by_order) {
    expect(
        "order diff --collective reduce_scatter --ranks 4 --ranks-per-node 4 --channels 4 --algo ring --proto simple "
        "--count "
        "64x6144 --with '--proto simple'",
        0, {"0 of 1572864 elements change"});
    expect("order invariance --ranks 4 --ranks-per-node 4 --channels 4 --schemes reduce_scatter", 0, {"run-to-run"});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(tests_that_cannot_fail)

// Small integers, as nccl-tests uses them: every partial sum is exact, no order can show.
BOOST_AUTO_TEST_CASE(c18_data_that_is_blind_to_order) {
    std::string blind, order_sensitive;
    for (int i = 0; i < 200; ++i) {
        blind += i % 2 ? "0x3f80 0x4000 0xbf80 0x4040\n" : "0x4000 0xc000 0x3f80 0x4040\n";
        order_sensitive += "0x4400 0x3f80 0xc400 0x3f80\n";
    }
    expect("sum mask --dtype bfloat16", 1, {"0 of 200 elements can reveal an order", "vacuous"}, blind);
    expect("sum mask --dtype bfloat16", 0, {"200 of 200 elements can reveal an order"}, order_sensitive);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(must_all_ranks_agree)

// Rank r adds its own value first: (1 2) 3, (2 1) 3, (3 1) 2, ...
BOOST_AUTO_TEST_CASE(c19_ranks_0_and_1_always_agree_and_others_need_not) {
    expect("sum witness --tree '(((0 1) 2) 3)' --other '(((1 0) 2) 3)'", 1, {"the same order"});
    expect("sum witness --tree '(((0 1) 2) 3)' --other '(((2 0) 1) 3)' --dtype float64", 0,
           {"1 of 1 pairs of orders told apart"});
    expect("sum witness --tree '(((0 1) 2) 3)' --other '(((3 0) 1) 2)' --dtype float64", 0,
           {"1 of 1 pairs of orders told apart"});
}

// One tree over all shards is the same for 1, 2 and 4 ranks only if each rank's own sum is the matching subtree.
BOOST_AUTO_TEST_CASE(c26_the_same_bits_for_1_2_4_ranks) {
    expect("sum witness --tree '(((0 1) (2 3)) ((4 5) (6 7)))' --other '(((1 0) (3 2)) ((5 4) (7 6)))'", 1,
           {"the same order"});
    expect(
        "sum witness --tree '(((0 1) (2 3)) ((4 5) (6 7)))' --other '((((0 1) 2) 3) (((4 5) 6) 7))' --dtype bfloat16",
        0, {"1 of 1 pairs of orders told apart"});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(pins_that_contradict_each_other)

BOOST_AUTO_TEST_CASE(c20_what_each_pin_does) {
    const std::string lint = "order lint --env - --ranks 8 --want ";
    expect(lint + "count", 1, {"AllReduce       no"}, "NCCL_ALGO=Ring\n");
    expect(lint + "run-to-run", 0, {}, "NCCL_ALGO=Ring\nNCCL_NVLS_ENABLE=0\n");
    expect(lint + "count", 0, {"AllReduce       yes"},
           "NCCL_ALGO=allreduce:tree\nNCCL_MAX_NCHANNELS=1\nNCCL_NVLS_ENABLE=0\n");
    expect(lint + "count", 1, {"does not pin Reduce and ReduceScatter"},
           "NCCL_ALGO=allreduce:tree\nNCCL_NVLS_ENABLE=0\n");
}

BOOST_AUTO_TEST_CASE(settings_that_do_nothing_are_named) {
    expect("order lint --env - --ranks 8", 0,
           {"inert          NCCL_P2P_NET_DISABLE=1", "rejected       NCCL_NTHREADS=1"},
           "NCCL_P2P_NET_DISABLE=1\nNCCL_NTHREADS=1\n");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(order_free_sums)

// The last conversion is part of the promise: more ranks, another grouping, the same bits.
BOOST_AUTO_TEST_CASE(c23_a_reproducible_sum_that_stays_one) {
    const std::string exact = "sum eval --rounding exact --dtype bfloat16 --values ";
    const std::string one = run(exact + "'1e30 1 -1e30 0.5'").out;
    for (const char* values : {"'0.5 1e30 -1e30 1'", "'1 0.5 1e30 -1e30'", "'1e30 0.25 -1e30 0.25 1'", "'1.5'"})
        BOOST_TEST(run(exact + values).out == one);
}

BOOST_AUTO_TEST_SUITE_END()
