// Translates each scheme into NCCL calls or rank order.
// SPDX-License-Identifier: Apache-2.0
#include "model/combine/combine.hpp"

#include <fmt/format.h>

#include "model/support/error.hpp"

namespace samesum {
namespace {

Schedule ordered(const Order& order, std::uint64_t elements) {
    std::vector<Part> parts;
    if (elements > 0) parts.push_back({0, 0, elements, elements, 1, elements, order, Part::Advance::none});
    return {order.ranks(), elements, std::move(parts)};
}

Order order_by_node(int ranks, const CombineOptions& options) {
    if (options.ranks_per_node == 0) return Order::rank_order(ranks);
    if (options.ranks_per_node < 1 || ranks % options.ranks_per_node != 0)
        throw UsageError(
            fmt::format("{} ranks: expected a multiple of the {} ranks of a node", ranks, options.ranks_per_node));
    if (options.accumulation != Accumulation::per_hop)
        throw UsageError("ranks per node: expected rounding per_hop, since the sums of nodes are sent rounded");
    return Order::rank_order_by_group(ranks, options.ranks_per_node);
}

Schedule reduce_scatter(const Communicator& comm, const Routing& routing, Format format, const Forced& forced) {
    if (!routing.equal_sizes())
        throw UsageError(fmt::format("sizes {}: expected equal sizes for reduce_scatter", str_sizes(routing.sizes)));
    const Call call{
        .collective = Collective::reduce_scatter, .count = routing.sizes.front() * routing.hidden, .format = format};
    return plan_call(comm, call, forced).schedule;
}

/// vLLM's reduce_scatterv: one group of reduces. The grouping affects the channels.
Schedule reduce_per_owner(const Communicator& comm, const Routing& routing, Format format, const Forced& forced) {
    std::vector<Call> calls;
    for (int rank = 0; rank < routing.ranks(); ++rank)
        calls.push_back({.collective = Collective::reduce,
                         .count = routing.sizes[static_cast<std::size_t>(rank)] * routing.hidden,
                         .format = format,
                         .root = rank});
    std::vector<Part> parts;
    for (const Plan& plan : plan_group(comm, calls, forced)) {
        const std::uint64_t offset = routing.first_row(static_cast<int>(plan.index)) * routing.hidden;
        const auto moved = plan.schedule.parts_at(offset);
        parts.insert(parts.end(), moved.begin(), moved.end());
    }
    return {comm.ranks(), routing.elements(), std::move(parts)};
}

Schedule reduce_to(int root, const Communicator& comm, const Routing& routing, Format format, const Forced& forced) {
    const Call call{.collective = Collective::reduce, .count = routing.elements(), .format = format, .root = root};
    return plan_call(comm, call, forced).schedule;
}

}  // namespace

CombinePlan plan_combine(Scheme scheme, const Communicator& comm, const Routing& routing, Format format,
                         const CombineOptions& options) {
    if (routing.ranks() != comm.ranks())
        throw UsageError(fmt::format("sizes of {} ranks: expected {}, as many as the communicator has", routing.ranks(),
                                     comm.ranks()));
    switch (dispatched(scheme, routing)) {
        case Scheme::reduce_scatter:
            return {reduce_scatter(comm, routing, format, options.forced)};
        case Scheme::reduce_per_owner:
            return {reduce_per_owner(comm, routing, format, options.forced)};
        case Scheme::fixed_root:
        case Scheme::reduce_broadcast:
            return {reduce_to(options.root, comm, routing, format, options.forced)};
        case Scheme::exact:
            return {ordered(Order::rank_order(comm.ranks()), routing.elements()), Accumulation::exact};
        default:
            return {ordered(order_by_node(comm.ranks(), options), routing.elements()), options.accumulation};
    }
}

Bits combine_element(const CombinePlan& plan, Format format, std::uint64_t element, std::span<const Bits> partials) {
    const Segment segment = plan.schedule.segment_at(element);
    return sum_element(rule_for(segment, format, plan.accumulation), segment.order.as_tree(), partials);
}

std::vector<Bits> combine(Scheme scheme, const Communicator& comm, const Routing& routing, Format format,
                          std::span<const std::vector<Bits>> partials, const CombineOptions& options) {
    if (static_cast<int>(partials.size()) != comm.ranks())
        throw UsageError(fmt::format("{} partial buffers: expected {}, one per rank", partials.size(), comm.ranks()));
    for (const auto& partial : partials)
        if (partial.size() != routing.elements())
            throw UsageError(fmt::format("a partial buffer of {} elements: expected {} rows of {}, i.e. {}",
                                         partial.size(), routing.rows(), routing.hidden, routing.elements()));
    const CombinePlan plan = plan_combine(scheme, comm, routing, format, options);
    std::vector<Bits> result(routing.elements());
    std::vector<Bits> column(partials.size());
    plan.schedule.visit(0, routing.elements(), [&](const Segment& segment) {
        const ReductionTree tree = segment.order.as_tree();
        const SumRule rule = rule_for(segment, format, plan.accumulation);
        for (std::uint64_t element = segment.begin; element < segment.end; ++element) {
            for (std::size_t q = 0; q < partials.size(); ++q) column[q] = partials[q][element];
            result[element] = sum_element(rule, tree, column);
        }
        return true;
    });
    return result;
}

}  // namespace samesum
