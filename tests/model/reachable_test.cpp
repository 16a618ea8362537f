// Reachable results against all trees, bounds that must hold, and order_matters().
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE reachable
#include "model/sum/reachable.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <set>

#include "model/arithmetic/random.hpp"
#include "model/support/error.hpp"

using namespace samesum;

namespace {

Bits one_nan(Format format, Bits bits) { return is_nan(format, bits) ? traits(format).nan : bits; }

std::set<Bits> by_all_trees(const SumRule& rule, std::span<const Bits> leaves) {
    std::set<Bits> results;
    for (const ReductionTree& tree : all_trees(static_cast<int>(leaves.size())))
        results.insert(one_nan(rule.format, sum_element(rule, tree, leaves)));
    return results;
}

std::set<Bits> by_all_chains(const SumRule& rule, std::span<const Bits> leaves) {
    std::vector<int> order(leaves.size());
    std::iota(order.begin(), order.end(), 0);
    std::set<Bits> results;
    do {
        results.insert(one_nan(rule.format, sum_element(rule, ReductionTree::left_fold(order), leaves)));
    } while (std::next_permutation(order.begin(), order.end()));
    return results;
}

std::vector<Bits> draw(Format format, std::size_t count, int kind, Random& random) {
    std::vector<Bits> leaves;
    while (leaves.size() < count)
        leaves.push_back(kind == 0   ? from_double(format, random.normal())
                         : kind == 1 ? random.spread(format, 12)
                                     : random.pattern(format));
    return leaves;
}

}  // namespace

BOOST_AUTO_TEST_CASE(results_are_those_of_all_trees) {
    Random random(1);
    std::size_t several = 0;
    for (const Format format : all_formats)
        for (const Accumulation accumulation : {Accumulation::per_hop, Accumulation::fp32_once, Accumulation::exact})
            for (int kind = 0; kind < 3; ++kind)
                for (std::size_t n = 1; n <= 7; ++n) {
                    if (!traits(format).is_float && kind < 2) continue;
                    if (n == 7 && accumulation != Accumulation::per_hop) continue;  // 10,395 trees each
                    const SumRule rule{.format = format, .accumulation = accumulation};
                    const std::vector<Bits> leaves = draw(format, n, kind, random);
                    const std::set<Bits> wanted = by_all_trees(rule, leaves);
                    const ReachableSums sums(rule, leaves);
                    const std::set<Bits> got(sums.results().begin(), sums.results().end());
                    // Without an addition a NaN keeps its bits; fp32_once normalises it.
                    BOOST_TEST((got == wanted), name(format)
                                                    << " " << name(accumulation) << " " << n << " leaves, kind " << kind
                                                    << ": " << got.size() << " of " << wanted.size());
                    several += got.size() > 1;
                    for (const Bits result : sums.results()) {
                        const auto tree = sums.tree_for(result);
                        BOOST_REQUIRE(tree);
                        BOOST_TEST(one_nan(format, sum_element(rule, *tree, leaves)) == result);
                    }
                }
    BOOST_TEST(several > 30u);
}

BOOST_AUTO_TEST_CASE(chains_are_fewer) {
    Random random(2);
    std::size_t fewer = 0;
    for (int i = 0; i < 60; ++i) {
        const Format format = i % 4 < 2 ? Format::bfloat16 : Format::float32;
        const std::vector<Bits> leaves = draw(format, 7, i % 2, random);
        const ReachableSums chains({.format = format}, leaves, {.shapes = Shapes::chains});
        const std::set<Bits> got(chains.results().begin(), chains.results().end());
        BOOST_TEST((got == by_all_chains({.format = format}, leaves)));
        fewer += got.size() < ReachableSums({.format = format}, leaves).results().size();
    }
    BOOST_TEST(fewer > 0u);
}

BOOST_AUTO_TEST_CASE(every_result_lies_within_the_bound) {
    Random random(3);
    std::size_t finite = 0, excluded = 0;
    for (int i = 0; i < 300; ++i) {
        const Format format = float_formats[random.below(float_formats.size())];
        const SumRule rule{.format = format, .accumulation = static_cast<Accumulation>(random.below(3))};
        const std::vector<Bits> leaves = draw(format, 3 + random.below(5), i % 3, random);
        const SumBound bound = any_order_bound(rule, leaves);
        const ReachableSums sums(rule, leaves);
        for (const Bits result : sums.results())
            BOOST_TEST(bound.admits(format, result), name(format) << " " << hex(format, result));
        finite += bound.finite;
        // The bound is not vacuous: it excludes far values, and NaN from finite values.
        if (bound.finite)
            excluded += !bound.admits(format, traits(format).nan) && !bound.admits(format, traits(format).largest());
    }
    BOOST_TEST(finite > 100u);
    BOOST_TEST(excluded > 80u);
}

BOOST_AUTO_TEST_CASE(verdicts) {
    struct Case {
        const char* what;
        std::vector<const char*> values;
        const char* result;
        Reach::Verdict verdict;
    };
    const std::vector<Case> cases{
        {"C12, left to right", {"0.5", "512", "512.5"}, "1025", Reach::Verdict::reachable},
        {"C12, right to left", {"0.5", "512", "512.5"}, "1024", Reach::Verdict::reachable},
        {"one step beyond", {"0.5", "512", "512.5"}, "1026", Reach::Verdict::unreachable},
        {"C13: NaN out of finite values", {"1", "2", "3"}, "nan", Reach::Verdict::unreachable},
        {"C13: NaN out of infinities", {"inf", "2", "-inf"}, "nan", Reach::Verdict::reachable},
        {"overflow in one order only", {"65504", "65504", "-65504"}, "inf", Reach::Verdict::reachable},
        {"and not in another", {"65504", "65504", "-65504"}, "65504", Reach::Verdict::reachable},
        {"a value was lost", {"1", "2", "4"}, "5", Reach::Verdict::unreachable},
        {"a value came twice", {"1", "2", "4"}, "11", Reach::Verdict::unreachable},
    };
    for (const Case& c : cases) {
        std::vector<Bits> leaves;
        for (const char* value : c.values) leaves.push_back(parse_value(Format::float16, value));
        const Reach reached = reach({.format = Format::float16}, leaves, parse_value(Format::float16, c.result));
        BOOST_TEST((reached.verdict == c.verdict), c.what);
    }
}

BOOST_AUTO_TEST_CASE(beyond_enumeration_the_bound_decides_or_it_stays_undecided) {
    Random random(4);
    std::vector<Bits> leaves = draw(Format::float32, 40, 0, random);
    const SumRule rule{.format = Format::float32};
    std::vector<int> ranks(40);
    std::iota(ranks.begin(), ranks.end(), 0);
    const Bits result = sum_element(rule, ReductionTree::left_fold(ranks), leaves);
    const Reach likely = reach(rule, leaves, result);
    BOOST_TEST((likely.verdict != Reach::Verdict::unreachable));
    const double far = to_double(Format::float32, result) + 1;
    BOOST_TEST((reach(rule, leaves, from_double(Format::float32, far)).verdict == Reach::Verdict::unreachable));
    BOOST_TEST((reach(rule, leaves, 0x7fffffff).verdict == Reach::Verdict::unreachable));
    // Inside the bound, but so near its edge that none of the tried trees gives it.
    const SumBound bound = any_order_bound(rule, leaves);
    const Reach unknown = reach(rule, leaves, from_double(Format::float32, bound.high), {}, 200);
    BOOST_TEST((unknown.verdict == Reach::Verdict::undecided));
    BOOST_CHECK_THROW(ReachableSums(rule, leaves), Inconclusive);
}

BOOST_AUTO_TEST_CASE(planted_defects_in_sixteen_values) {
    Random random(5);
    const std::vector<Bits> leaves = draw(Format::bfloat16, 13, 0, random);
    const ReachableSums sums({.format = Format::bfloat16}, leaves);
    BOOST_TEST(sums.results().size() > 3u);
    BOOST_TEST((!sums.tree_for(traits(Format::bfloat16).nan)));
    for (const Bits each : sums.results()) {
        const auto tree = sums.tree_for(each);
        BOOST_REQUIRE(tree);
        BOOST_TEST(sum_element({.format = Format::bfloat16}, *tree, leaves) == each);
    }
}

BOOST_AUTO_TEST_CASE(order_matters_as_enumeration_says) {
    Random random(6);
    std::size_t yes = 0, no = 0;
    for (int i = 0; i < 2000; ++i) {
        const Format format = float_formats[random.below(float_formats.size())];
        const SumRule rule{.format = format, .accumulation = static_cast<Accumulation>(random.below(3))};
        std::vector<Bits> leaves;
        const std::size_t n = 2 + random.below(5);
        // Small integers, as in nccl-tests, and other values.
        if (i % 3 == 0)
            for (std::size_t k = 0; k < n; ++k)
                leaves.push_back(from_double(format, static_cast<double>(random.below(4))));
        else
            leaves = draw(format, n, i % 3 == 1 ? 1 : 2, random);
        const bool wanted = ReachableSums(rule, leaves).results().size() > 1;
        BOOST_TEST(order_matters(rule, leaves) == wanted);
        ++(wanted ? yes : no);
    }
    BOOST_TEST(yes > 100u);
    BOOST_TEST(no > 200u);
}

BOOST_AUTO_TEST_CASE(distances_count_representable_numbers) {
    BOOST_TEST(ulp_distance(Format::bfloat16, 0x3f80, 0x3f81) == 1u);
    BOOST_TEST(ulp_distance(Format::bfloat16, 0x8000, 0x0000) == 1u);
    BOOST_TEST(ulp_distance(Format::bfloat16, 0x8001, 0x0001) == 3u);
    BOOST_TEST(ulp_distance(Format::float64, 0xffefffffffffffff, 0x7fefffffffffffff) == 0xffdfffffffffffffu);
}
