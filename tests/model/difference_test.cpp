// Differences that are planted are explained as what they are, and every named tree gives the bits it is named for.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE difference
#include "model/analysis/difference.hpp"

#include <boost/test/unit_test.hpp>
#include <ostream>
#include <string>

#include "model/arithmetic/random.hpp"
#include "model/support/error.hpp"

namespace samesum {

// Boost.Test prints what it compares.
std::ostream& operator<<(std::ostream& stream, DifferenceKind kind) { return stream << name(kind); }

namespace {

using Buffer = std::vector<std::byte>;

/// Random partials, and sums of them.
struct Partials {
    Format format;
    std::size_t elements;
    std::vector<Buffer> ranks{};

    Partials(Format format_, int count, std::size_t elements_, int spread) : format(format_), elements(elements_) {
        Random random(static_cast<std::uint64_t>(count));
        for (int rank = 0; rank < count; ++rank) {
            ranks.emplace_back(elements * static_cast<std::size_t>(traits(format).bytes()));
            for (std::size_t i = 0; i < elements; ++i) store(format, ranks.back(), i, random.spread(format, spread));
        }
    }
    [[nodiscard]] std::vector<ConstBytes> views() const { return {ranks.begin(), ranks.end()}; }
    [[nodiscard]] Buffer sum(const std::string& order, Accumulation rounding = Accumulation::per_hop) const {
        Buffer result(ranks.front().size());
        sum_buffers({.format = format, .accumulation = rounding}, parse_order(order, static_cast<int>(ranks.size())),
                    views(), result);
        return result;
    }
    [[nodiscard]] Difference explain(const Buffer& a, const Buffer& b, double seconds = 60) const {
        return explain_difference(format, views(), a, b, {}, seconds);
    }
};

/// Every tree in the evidence gives the bits that it is named for, and the bits are those of the results.
void check_evidence(const Partials& partials, const Difference& found, const Buffer& a, const Buffer& b) {
    BOOST_TEST(!found.evidence.empty());
    for (const DifferingElement& each : found.evidence) {
        std::vector<Bits> leaves;
        for (const Buffer& rank : partials.ranks) leaves.push_back(load(partials.format, rank, each.element));
        for (const std::size_t which : {0, 1}) {
            const ExplainedElement& result = each.results[which];
            BOOST_TEST(result.bits == load(partials.format, which == 0 ? a : b, each.element));
            if (result.tree)
                BOOST_TEST(sum_element({.format = partials.format, .accumulation = *result.rounding}, *result.tree,
                                       leaves) == result.bits);
        }
    }
}

constexpr std::array formats{Format::bfloat16, Format::float16, Format::float32, Format::float8_e5m2};

BOOST_AUTO_TEST_CASE(equal_results_are_the_same) {
    const Partials partials(Format::bfloat16, 4, 100, 3);
    const Buffer chain = partials.sum("chain");
    const Difference found = partials.explain(chain, chain);
    BOOST_TEST(found.kind == DifferenceKind::same);
    BOOST_TEST(found.elements == 100u);
    BOOST_TEST(found.differing == 0u);
    BOOST_TEST(found.evidence.empty());
}

BOOST_AUTO_TEST_CASE(an_order_change_is_told_with_its_orders) {
    for (const Format format : formats) {
        const Partials partials(format, 5, 400, 3);
        const Buffer chain = partials.sum("chain");
        const Buffer ring = partials.sum("ring:2");
        for (const Buffer& other : {ring, partials.sum("((0 3) ((1 4) 2))")})
            for (const auto& [a, b] : {std::pair(&chain, &other), std::pair(&other, &chain)}) {
                const Difference found = partials.explain(*a, *b);
                BOOST_TEST(found.kind == DifferenceKind::order_change, name(format));
                BOOST_TEST(found.differing > 0u);
                check_evidence(partials, found, *a, *b);
            }
        const Difference found = partials.explain(chain, ring);
        BOOST_TEST(found.orders[0].value().str() == "((((0 1) 2) 3) 4)");
        BOOST_TEST(found.orders[1].value().str() == "((((3 4) 0) 1) 2)");
        BOOST_TEST((found.roundings[0] == Accumulation::per_hop && found.roundings[1] == Accumulation::per_hop));
    }
}

// Every second element by another ring: each element has an order, the whole has none.
BOOST_AUTO_TEST_CASE(orders_may_differ_by_element) {
    const Partials partials(Format::bfloat16, 5, 400, 3);
    const Buffer chain = partials.sum("chain"), ring = partials.sum("ring:2"), other_ring = partials.sum("ring:1");
    Buffer mixed = ring;
    for (std::size_t i = 0; i < 400; i += 2) store(partials.format, mixed, i, load(partials.format, other_ring, i));
    const Difference found = partials.explain(chain, mixed);
    BOOST_TEST(found.kind == DifferenceKind::order_change);
    BOOST_TEST(found.orders[0].has_value());
    BOOST_TEST(!found.orders[1].has_value());
    check_evidence(partials, found, chain, mixed);
}

BOOST_AUTO_TEST_CASE(a_rounding_is_told_from_an_order) {
    const Partials partials(Format::bfloat16, 6, 800, 3);
    const Buffer hops = partials.sum("chain"), once = partials.sum("chain", Accumulation::fp32_once);
    const Difference found = partials.explain(hops, once);
    BOOST_TEST(found.kind == DifferenceKind::rounding_model);
    BOOST_TEST((found.roundings[0] == Accumulation::per_hop && found.roundings[1] == Accumulation::fp32_once));
    BOOST_TEST((found.orders[0] == found.orders[1]));
    check_evidence(partials, found, hops, once);
}

BOOST_AUTO_TEST_CASE(a_flipped_bit_and_a_lost_rank_are_defects) {
    for (const Format format : formats) {
        const Partials partials(format, 5, 400, 3);
        const Buffer chain = partials.sum("chain");
        Buffer flipped = chain;
        store(format, flipped, 250, load(format, chain, 250) ^ (Bits{1} << (traits(format).width - 3)));
        for (const std::size_t which : {0, 1}) {
            const Difference found = which == 0 ? partials.explain(flipped, chain) : partials.explain(chain, flipped);
            BOOST_TEST(found.kind == DifferenceKind::defect, name(format));
            BOOST_REQUIRE(found.evidence.size() == 1u);
            BOOST_TEST(found.evidence[0].element == 250u);
            BOOST_TEST(found.evidence[0].results[which].defect);
            BOOST_TEST(!found.evidence[0].results[1 - which].defect);
            BOOST_TEST(!found.evidence[0].nearest.empty());
        }
    }
}

BOOST_AUTO_TEST_CASE(no_time_is_inconclusive) {
    const Partials partials(Format::float16, 9, 4000, 3);
    const Buffer chain = partials.sum("chain"), unusual = partials.sum("(((0 3) (1 7)) ((2 (8 5)) (4 6)))");
    BOOST_CHECK_THROW((void)partials.explain(chain, unusual, 0), Inconclusive);
    // The same order, given, is tried first and takes no search.
    const std::vector<ReductionTree> orders{parse_order("(((0 3) (1 7)) ((2 (8 5)) (4 6)))", 9)};
    BOOST_TEST(explain_difference(Format::float16, partials.views(), chain, unusual, orders, 0).kind ==
               DifferenceKind::order_change);
}

BOOST_AUTO_TEST_CASE(sizes_must_fit) {
    const Partials partials(Format::float16, 3, 8, 3);
    const Buffer sum = partials.sum("chain");
    const std::vector<ReductionTree> orders{parse_order("chain", 4)};
    BOOST_CHECK_THROW((void)explain_difference(Format::float16, partials.views(), sum, Buffer(2)), UsageError);
    BOOST_CHECK_THROW((void)explain_difference(Format::float16, partials.views(), {}, {}), UsageError);
    BOOST_CHECK_THROW((void)explain_difference(Format::float16, partials.views(), sum, sum, orders), UsageError);
}

}  // namespace
}  // namespace samesum
