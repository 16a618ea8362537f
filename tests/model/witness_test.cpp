// Values that separate orders: for all pairs of small trees and some large ones.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE witness
#include "model/sum/witness.hpp"

#include <boost/test/unit_test.hpp>
#include <numeric>

#include "model/arithmetic/hop_arithmetic.hpp"
#include "model/nccl/order.hpp"

using namespace samesum;

BOOST_AUTO_TEST_CASE(every_pair_of_small_trees) {
    const HopArithmetic arithmetic(Format::bfloat16);
    const auto add = [&](Bits left, Bits right) { return arithmetic.add(left, right); };
    std::size_t told = 0;
    for (int leaves = 1; leaves <= 5; ++leaves)
        for (const ReductionTree& a : all_trees(leaves))
            for (const ReductionTree& b : all_trees(leaves)) {
                const auto witness = separating_witness(a, b, Format::bfloat16);
                BOOST_REQUIRE_EQUAL(witness.has_value(), !same_order(a, b));
                if (!witness) continue;
                ++told;
                BOOST_REQUIRE_NE(evaluate<Bits>(a, witness->leaves, add), evaluate<Bits>(b, witness->leaves, add));
            }
    BOOST_TEST(told == 3u * 2 + 15u * 14 + 105u * 104);
}

BOOST_AUTO_TEST_CASE(swapped_operands_are_the_same_order) {
    BOOST_TEST(!separating_witness(ReductionTree::parse("((0 1) (2 3))"), ReductionTree::parse("((3 2) (1 0))"),
                                   Format::float32));
}

BOOST_AUTO_TEST_CASE(integers_have_no_witness) {
    BOOST_TEST(
        !separating_witness(ReductionTree::parse("((0 1) 2)"), ReductionTree::parse("(0 (1 2))"), Format::int32));
}

BOOST_AUTO_TEST_CASE(the_threshold_is_the_smallest_power_that_absorbs_both_signs) {
    for (const Format format : float_formats) {
        const FormatTraits& t = traits(format);
        const HopArithmetic arithmetic(format);
        const auto absorbs = [&](Bits power) {
            return arithmetic.add(power, t.one()) == power &&
                   arithmetic.add(power | t.sign(), t.one()) == (power | t.sign());
        };
        const Bits power = absorption_threshold(format);
        BOOST_TEST(absorbs(power), name(format));
        BOOST_TEST(!absorbs(power - (Bits{1} << t.fraction_bits)), name(format));
    }
}

BOOST_AUTO_TEST_CASE(many_ranks) {
    std::vector<int> ring(65536);
    std::iota(ring.begin(), ring.end(), 0);
    const ReductionTree a = ReductionTree::left_fold(ring);
    std::swap(ring[40000], ring[40001]);
    const ReductionTree b = ReductionTree::left_fold(ring);
    for (const Format format : float_formats) {
        const auto witness = separating_witness(a, b, format);
        BOOST_REQUIRE(witness);
        BOOST_TEST(witness->left != witness->right);
    }
    BOOST_TEST(separating_witness(a, Order::pat(65536, 0, 3).as_tree(), Format::bfloat16).has_value());
}

BOOST_AUTO_TEST_CASE(drawn_side_by_side) {
    const ReductionTree a = ReductionTree::parse("((0 1) 2)"), b = ReductionTree::parse("(0 (1 2))");
    const auto witness = separating_witness(a, b, Format::bfloat16);
    const std::string text = tell_apart(a, b, Format::bfloat16, witness.value().leaves);
    BOOST_TEST(
        text.starts_with("x0 = 512 (0x4400), x1 = -512 (0xc400), x2 = 1 (0x3f80)\n"
                         "((0 1) 2) makes 1 (0x3f80)     (0 (1 2)) makes 0 (0x0000)\n"));
}
