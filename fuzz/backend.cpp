// The model as a backend: one row at a time, with vector code where its bits are the same.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/backend.hpp"

#include <fmt/format.h>

#include "model/sum/native_sum.hpp"
#include "model/support/error.hpp"

namespace samesum::fuzz {

bool by_nccl(Scheme scheme) { return !is_ordered(scheme) && scheme != Scheme::exact; }

Request request_of(const Case& c, const Side& side) {
    Request request{.scheme = side.scheme,
                    .comm = {.topology = Topology::from_rings(side.rings, side.ranks_per_node), .version = side.nccl},
                    .routing = routing_of(c, side),
                    .format = c.format,
                    .options = {},
                    .algorithm = side.algorithm,
                    .launch_mode = side.launch_mode};
    if (side.threads > 0) request.comm.settings.threads = request.comm.settings.ll128_threads = side.threads;
    const bool scatters = dispatched(side.scheme, request.routing) == Scheme::reduce_scatter;
    request.options = {.root = side.root,
                       .accumulation = side.accumulation,
                       .forced = {scatters ? side.algorithm : Algorithm::ring, side.protocol}};
    return request;
}

ReductionTree tree_of(const Case& c, const Side& side) {
    if (side.tree) return *side.tree;
    const Request request = request_of(c, side);
    const CombinePlan plan =
        plan_combine(request.scheme, request.comm, request.routing, request.format, request.options);
    return plan.schedule.segment_at(side.row * c.hidden + c.column).order.as_tree();
}

std::vector<Bits> Backend::combine_row(const Request& request, const Partials& partials, std::uint64_t row) {
    const std::vector<Bits> result = combine(request, partials.whole());
    ensure(result.size() == request.routing.elements(), "a backend returns every element");
    const auto begin = result.begin() + static_cast<std::ptrdiff_t>(row * request.routing.hidden);
    return {begin, begin + static_cast<std::ptrdiff_t>(request.routing.hidden)};
}

std::vector<Bits> ModelBackend::combine(const Request& request, std::span<const std::vector<Bits>> partials) {
    return samesum::combine(request.scheme, request.comm, request.routing, request.format, partials, request.options);
}

std::vector<Bits> predicted_row(const Request& request, const Partials& partials, std::uint64_t row) {
    const CombinePlan plan =
        plan_combine(request.scheme, request.comm, request.routing, request.format, request.options);
    const std::uint64_t begin = row * request.routing.hidden;
    std::vector<Bits> result, leaves(static_cast<std::size_t>(partials.ranks()));
    result.reserve(request.routing.hidden);
    plan.schedule.visit(begin, begin + request.routing.hidden, [&](const Segment& segment) {
        const ReductionTree tree = segment.order.as_tree();
        const SumRule rule = rule_for(segment, request.format, plan.accumulation);
        for (std::uint64_t element = segment.begin; element < segment.end; ++element) {
            for (std::size_t q = 0; q < leaves.size(); ++q)
                leaves[q] = partials.at(static_cast<int>(q), row, element - begin);
            result.push_back(sum_element(rule, tree, leaves));
        }
        return true;
    });
    return result;
}

std::vector<Bits> ModelBackend::combine_row(const Request& request, const Partials& partials, std::uint64_t row) {
    // Vector code where its bits are the same: several times as fast as predicted_row(), and an independent
    // computation.
    const CombinePlan plan =
        plan_combine(request.scheme, request.comm, request.routing, request.format, request.options);
    const std::uint64_t begin = row * request.routing.hidden, hidden = request.routing.hidden;
    const auto width = static_cast<std::size_t>(traits(request.format).bytes());
    const auto ranks = static_cast<std::size_t>(partials.ranks());
    bytes_.resize((ranks + 1) * hidden * width);
    for (std::size_t q = 0; q < ranks; ++q)
        for (std::uint64_t column = 0; column < hidden; ++column)
            store(request.format, bytes_, q * hidden + column, partials.at(static_cast<int>(q), row, column));
    const std::span<std::byte> sums = std::span(bytes_).subspan(ranks * hidden * width);
    std::vector<const std::byte*> leaves(ranks);
    std::vector<Bits> column(ranks);
    plan.schedule.visit(begin, begin + hidden, [&](const Segment& segment) {
        const ReductionTree tree = segment.order.as_tree();
        const SumRule rule = rule_for(segment, request.format, plan.accumulation);
        const std::uint64_t first = segment.begin - begin, last = segment.end - begin;
        // Vector code cannot return the right operand's payload of two float64 NaNs.
        if (native_takes(rule) && !(rule.nan_from_right && request.format == Format::float64)) {
            for (std::size_t q = 0; q < ranks; ++q) leaves[q] = bytes_.data() + (q * hidden + first) * width;
            native_sum(rule, tree, leaves, sums.data() + first * width, last - first);
            return true;
        }
        for (std::uint64_t i = first; i < last; ++i) {
            for (std::size_t q = 0; q < ranks; ++q) column[q] = load(request.format, bytes_, q * hidden + i);
            store(request.format, sums, i, sum_element(rule, tree, column));
        }
        return true;
    });
    std::vector<Bits> result(hidden);
    for (std::uint64_t i = 0; i < hidden; ++i) result[i] = load(request.format, sums, i);
    return result;
}

}  // namespace samesum::fuzz
