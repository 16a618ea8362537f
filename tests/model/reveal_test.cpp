// Given trees must be found, and functions that are not trees must be recognised as such.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE reveal
#include "model/sum/reveal.hpp"

#include <bit>
#include <boost/test/unit_test.hpp>
#include <numeric>

#include "model/arithmetic/hop_arithmetic.hpp"
#include "model/sum/element_sum.hpp"
#include "model/support/error.hpp"

using namespace samesum;

namespace {

/// Computes element e of the sum under test.
using Adder = std::function<Bits(std::uint64_t element, std::span<const Bits> leaves)>;

struct Planted {
    Format format;
    int ranks;
    std::uint64_t elements;
    Adder add;
    std::vector<std::vector<std::byte>> results{};
    std::vector<std::vector<std::byte>> inputs{};

    SumUnderTest sum() {
        SumUnderTest under_test;
        under_test.elements = elements;
        const std::size_t bytes = elements * static_cast<std::size_t>(traits(format).bytes());
        under_test.run_masks = [this, bytes](std::span<const std::vector<Bits>> masks) {
            results.assign(masks.size(), std::vector<std::byte>(bytes));
            std::vector<std::span<const std::byte>> views;
            for (std::size_t k = 0; k < masks.size(); ++k) {
                for (std::uint64_t e = 0; e < elements; ++e) store(format, results[k], e, add(e, masks[k]));
                views.emplace_back(results[k]);
            }
            return views;
        };
        under_test.run_data = [this, bytes](const std::function<void(int, std::span<std::byte>)>& fill) {
            inputs.assign(static_cast<std::size_t>(ranks), std::vector<std::byte>(bytes));
            for (int rank = 0; rank < ranks; ++rank) fill(rank, inputs[static_cast<std::size_t>(rank)]);
            results.assign(1, std::vector<std::byte>(bytes));
            std::vector<Bits> leaves(static_cast<std::size_t>(ranks));
            for (std::uint64_t e = 0; e < elements; ++e) {
                for (std::size_t rank = 0; rank < leaves.size(); ++rank) leaves[rank] = load(format, inputs[rank], e);
                store(format, results[0], e, add(e, leaves));
            }
            return std::span<const std::byte>(results[0]);
        };
        return under_test;
    }
};

Adder by_tree(Format format, const ReductionTree& tree, Accumulation accumulation = Accumulation::per_hop) {
    return [=](std::uint64_t, std::span<const Bits> leaves) {
        return sum_element({.format = format, .accumulation = accumulation}, tree, leaves);
    };
}

ReductionTree rank_order(int ranks) {
    std::vector<int> order(static_cast<std::size_t>(ranks));
    std::iota(order.begin(), order.end(), 0);
    return ReductionTree::left_fold(order);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_tree_of_up_to_6_leaves_is_found_in_every_format) {
    std::size_t trees = 0;
    for (const Format format : float_formats)
        for (int ranks = 1; ranks <= 6; ++ranks)
            for (const ReductionTree& tree : all_trees(ranks)) {
                Planted planted{format, ranks, 12, by_tree(format, tree)};
                const Revealed revealed = reveal(format, ranks, planted.sum());
                BOOST_TEST_REQUIRE((revealed.answer == Revealed::Answer::order), revealed.why);
                BOOST_TEST_REQUIRE(revealed.trees.size() == 1u);
                BOOST_TEST_REQUIRE(revealed.trees.front().str() == tree.str());
                BOOST_TEST_REQUIRE(revealed.segments.size() == 1u);
                ++trees;
            }
    BOOST_TEST(trees == 6u * (1 + 1 + 3 + 15 + 105 + 945));
}

BOOST_AUTO_TEST_CASE(wide_and_deep_trees_are_found) {
    for (const Format format : {Format::float32, Format::bfloat16, Format::float16, Format::float64})
        for (const int ranks : {16, 33, 64}) {
            std::vector<int> order(static_cast<std::size_t>(ranks));
            for (int i = 0; i < ranks; ++i) order[static_cast<std::size_t>(i)] = (i * 5 + 3) % ranks;
            if (ranks % 5 == 0) continue;
            for (const ReductionTree& tree : {ReductionTree::left_fold(order), ReductionTree::balanced(order)}) {
                Planted planted{format, ranks, 3, by_tree(format, tree)};
                const Revealed revealed = reveal(format, ranks, planted.sum());
                BOOST_TEST_REQUIRE((revealed.answer == Revealed::Answer::order), revealed.why);
                BOOST_TEST(same_order(revealed.trees.front(), tree));
            }
        }
}

BOOST_AUTO_TEST_CASE(each_element_has_its_own_tree) {
    const std::vector<ReductionTree> trees{ReductionTree::parse("((0 1) (2 3))"),
                                           ReductionTree::parse("(((3 2) 1) 0)")};
    const auto which = [](std::uint64_t e) { return e < 3 ? 0u : e < 7 ? 1u : e < 9 ? 0u : 1u; };
    Planted planted{Format::bfloat16, 4, 10, [&](std::uint64_t e, std::span<const Bits> leaves) {
                        return sum_element({.format = Format::bfloat16}, trees[which(e)], leaves);
                    }};
    const Revealed revealed = reveal(Format::bfloat16, 4, planted.sum());
    BOOST_TEST((revealed.answer == Revealed::Answer::order), revealed.why);
    BOOST_TEST_REQUIRE(revealed.trees.size() == 2u);
    BOOST_TEST(same_order(revealed.trees[0], trees[0]));
    BOOST_TEST(same_order(revealed.trees[1], trees[1]));
    BOOST_TEST_REQUIRE(revealed.segments.size() == 4u);
    BOOST_TEST(revealed.segments[1].begin == 3u);
    BOOST_TEST(revealed.segments[1].end == 7u);
    BOOST_TEST(revealed.segments[3].tree == 1u);
}

BOOST_AUTO_TEST_CASE(sums_without_one_order_are_recognised) {
    const auto three_at_once = [](std::uint64_t, std::span<const Bits> leaves) {
        // One rounding for three operands, as in a fused accumulator, then one addition.
        const Bits first = exact_sum(Format::bfloat16, leaves.first(3));
        return HopArithmetic(Format::bfloat16).add(first, leaves[3]);
    };
    int calls = 0;
    const auto varying = [&calls](std::uint64_t e, std::span<const Bits> leaves) {
        // Masks repeat values, random data does not.
        const bool turned = e == 5 && leaves[0] != leaves[3] && leaves[1] != leaves[2] && leaves[2] != leaves[3] &&
                            leaves[0] != leaves[1] && leaves[0] != leaves[2] && leaves[1] != leaves[3] &&
                            ++calls % 2 == 0;
        return sum_element({.format = Format::bfloat16},
                           ReductionTree::parse(turned ? "(((1 2) 3) 0)" : "(((0 1) 2) 3)"), leaves);
    };
    const struct {
        const char* what;
        Format format;
        Adder add;
        Revealed::Answer answer;
    } cases[] = {
        {"a float32 accumulator under bfloat16", Format::bfloat16,
         by_tree(Format::bfloat16, rank_order(4), Accumulation::fp32_once), Revealed::Answer::not_observable},
        {"a float32 accumulator under float16", Format::float16,
         by_tree(Format::float16, rank_order(4), Accumulation::fp32_once), Revealed::Answer::not_observable},
        {"an exact sum", Format::float32, by_tree(Format::float32, rank_order(4), Accumulation::exact),
         Revealed::Answer::not_observable},
        {"three operands at once", Format::bfloat16, three_at_once, Revealed::Answer::not_observable},
        {"a constant", Format::float32, [](std::uint64_t, std::span<const Bits>) { return Bits{0x40490fdb}; },
         Revealed::Answer::not_observable},
        {"an order that changes from call to call", Format::bfloat16, varying, Revealed::Answer::not_one_order},
    };
    for (const auto& each : cases) {
        BOOST_TEST_CONTEXT(each.what) {
            Planted planted{each.format, 4, 64, each.add};
            const Revealed revealed = reveal(each.format, 4, planted.sum());
            BOOST_TEST(name(revealed.answer) == name(each.answer), revealed.why);
            BOOST_TEST(!revealed.why.empty());
        }
    }
}

BOOST_AUTO_TEST_CASE(counts_that_fit_no_tree_are_distinguished) {
    // Units for pairs 01 02 03 12 13 23.
    BOOST_TEST(infer_tree(4, std::vector{2, 1, 0, 1, 0, 0}).tree->str() == "(((0 1) 2) 3)");
    BOOST_TEST(!infer_tree(4, std::vector{0, 0, 0, 0, 0, 0}).tree);
    BOOST_TEST(infer_tree(4, std::vector{0, 0, 0, 0, 0, 0}).why_not.find("more than two operands") !=
               std::string::npos);
    BOOST_TEST(!infer_tree(4, std::vector{2, 0, 0, 0, 0, 0}).tree);
    BOOST_TEST(!infer_tree(4, std::vector{2, 1, 0, 1, 0, 1}).tree);
    BOOST_TEST(!infer_tree(4, std::vector{3, 1, 0, 1, 0, 0}).tree);
    BOOST_TEST(!infer_tree(4, std::vector{-1, 1, 0, 1, 0, 0}).tree);
    // Every assignment of counts either belongs to a tree or is rejected.
    std::size_t found = 0;
    for (int code = 0; code < 729; ++code) {
        std::vector<int> units;
        for (int i = 0, rest = code; i < 6; ++i, rest /= 3) units.push_back(rest % 3);
        found += infer_tree(4, units).tree ? 1 : 0;
    }
    BOOST_TEST(found == all_trees(4).size());
}

BOOST_AUTO_TEST_CASE(masks_count_correctly) {
    for (const Format format : float_formats)
        for (int ranks = 2; ranks <= 10; ++ranks) {
            const MaskValues values = mask_values(format, ranks);
            const HopArithmetic hop(format);
            Bits units = 0;
            for (int k = 0; k < ranks - 1; ++k) {
                BOOST_TEST_REQUIRE(to_double(format, units) == k * to_double(format, values.unit));
                BOOST_TEST_REQUIRE(hop.add(values.big, units) == values.big);
                units = hop.add(units, values.unit);
            }
            BOOST_TEST_REQUIRE(hop.add(values.big, values.minus_big) == 0u);
        }
    BOOST_CHECK_THROW((void)mask_values(Format::float8_e5m2, 11), UsageError);
    BOOST_CHECK_THROW((void)mask_values(Format::int32, 2), UsageError);
    BOOST_CHECK_THROW((void)reveal(Format::float32, 2, SumUnderTest{}), UsageError);
}
