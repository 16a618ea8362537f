// Two different orders of up to 2^p values differ on some input (proofs/: orders_decidable_by_shape), so an invariance
// of bits on all inputs is an invariance of the order.
// SPDX-License-Identifier: Apache-2.0
#include "model/combine/invariance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "model/combine/combine.hpp"
#include "model/support/error.hpp"

namespace samesum {
namespace {

constexpr std::array<std::string_view, all_invariances.size()> names{"run-to-run", "rank-equal", "owner",
                                                                     "position",   "count",      "routing"};

/// One placement of a token and the orders of its elements.
struct Probed {
    Placement placement;
    int owner;
    std::vector<Segment> segments;  // of the row; begin and end are relative to the row
};

Probed probe(const CombinePlan& plan, const Routing& routing, std::uint64_t row) {
    Probed probed{{routing, row}, routing.owner(row), {}};
    const std::uint64_t begin = row * routing.hidden;
    plan.schedule.visit(begin, begin + routing.hidden, [&](Segment segment) {
        segment.begin -= begin;
        segment.end -= begin;
        probed.segments.push_back(std::move(segment));
        return true;
    });
    return probed;
}

/// The first column whose order differs.
std::optional<CounterExample> difference(const Probed& a, const Probed& b) {
    std::size_t i = 0, j = 0;
    while (i < a.segments.size() && j < b.segments.size()) {
        const Segment &left = a.segments[i], &right = b.segments[j];
        if (!same_order(left.order, right.order))
            return CounterExample{a.placement, b.placement, std::max(left.begin, right.begin), left.order, right.order};
        const std::uint64_t left_end = left.end, right_end = right.end;
        if (left_end <= right_end) ++i;
        if (right_end <= left_end) ++j;
    }
    return std::nullopt;
}

bool comparable(Invariance invariance, const Probed& a, const Probed& b) {
    const bool same_owner = a.owner == b.owner;
    const bool same_sizes = a.placement.routing == b.placement.routing;
    switch (invariance) {
        case Invariance::owner:
            return same_sizes && !same_owner;
        case Invariance::position:
            return same_sizes && same_owner;
        case Invariance::count:
            return same_owner && a.placement.routing.rows() != b.placement.routing.rows();
        default:
            return true;
    }
}

}  // namespace

std::string_view name(Invariance invariance) { return names.at(static_cast<std::size_t>(invariance)); }

Invariance parse_invariance(std::string_view word) {
    for (const Invariance invariance : all_invariances)
        if (word == name(invariance)) return invariance;
    throw UsageError(fmt::format(
        "unknown invariance '{}': expected one of: run-to-run, rank-equal, owner, position, count, routing", word));
}

std::vector<Routing> probing_routings(Scheme scheme, int ranks, std::uint64_t hidden) {
    const auto n = static_cast<std::uint64_t>(ranks);
    std::vector<Routing> routings;
    const auto add = [&](std::vector<std::uint64_t> sizes) { routings.push_back({std::move(sizes), hidden}); };
    // Small calls use one channel, large ones all channels. 2^22 elements fill 64 channels of any protocol.
    const std::uint64_t large =
        std::max<std::uint64_t>(2, (std::uint64_t{1} << 22) / std::max<std::uint64_t>(hidden, 1) / n);
    for (const std::uint64_t rows : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{5}, large})
        add(std::vector<std::uint64_t>(n, rows));
    if (scheme == Scheme::reduce_scatter) return routings;
    for (const std::uint64_t base : {std::uint64_t{1}, large}) {
        std::vector<std::uint64_t> ragged(n), zeros(n, 0), one_owner(n, 0);
        for (std::uint64_t r = 0; r < n; ++r) ragged[r] = base + (r * 5 + 3) % 7;
        for (std::uint64_t r = 0; r < n; r += 2) zeros[r] = base + r;
        one_owner[n / 2] = base * 3;
        add(ragged);
        add(zeros);
        add(one_owner);
    }
    return routings;
}

InvarianceAnswer decide_invariance(Invariance invariance, Scheme scheme, const Communicator& comm, std::uint64_t hidden,
                                   Format format, const CombineOptions& options) {
    if (invariance == Invariance::run_to_run)
        return {true, "the call determines the order; it does not depend on timing", std::nullopt, 0};
    if (invariance == Invariance::rank_equal) return {true, "each row is summed once and then copied", std::nullopt, 0};
    if (is_ordered(scheme) || scheme == Scheme::exact)
        return {true, scheme == Scheme::exact ? "the exact sum has no order" : "the scheme itself adds in rank order",
                std::nullopt, 0};

    std::vector<Probed> probed;
    for (const Routing& routing : probing_routings(scheme, comm.ranks(), hidden)) {
        const CombinePlan plan = plan_combine(scheme, comm, routing, format, options);
        // The first, middle and last row of every owner, and rows where the order changes inside the buffer.
        std::vector<std::uint64_t> rows;
        for (int rank = 0; rank < comm.ranks(); ++rank) {
            const std::uint64_t size = routing.sizes[static_cast<std::size_t>(rank)];
            if (size == 0) continue;
            for (const std::uint64_t row : {std::uint64_t{0}, size / 2, size - 1})
                rows.push_back(routing.first_row(rank) + row);
        }
        for (const Part& part : plan.schedule.parts()) rows.push_back(part.begin / std::max<std::uint64_t>(hidden, 1));
        std::sort(rows.begin(), rows.end());
        rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
        for (const std::uint64_t row : rows) {
            Probed fresh = probe(plan, routing, row);
            for (const Segment& segment : fresh.segments)
                if (!segment.order.observable())
                    return {false, "not observable: " + segment.order.why_not(), std::nullopt, probed.size()};
            probed.push_back(std::move(fresh));
        }
    }
    std::size_t compared = 0;
    // Small routings come first, so the first difference is the smallest.
    for (std::size_t b = 1; b < probed.size(); ++b)
        for (std::size_t a = 0; a < b; ++a) {
            if (!comparable(invariance, probed[a], probed[b])) continue;
            ++compared;
            if (auto example = difference(probed[a], probed[b]))
                return {false, "two placements of one token have different orders", std::move(example), compared};
        }
    ensure(compared > 0 || comm.ranks() == 1, "some placements were compared");
    return {true, fmt::format("one order over {} pairs of placements", compared), std::nullopt, compared};
}

}  // namespace samesum
