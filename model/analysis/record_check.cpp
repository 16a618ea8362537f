// Nothing of a recorded call's result is used to predict it.
// SPDX-License-Identifier: Apache-2.0
#include "model/analysis/record_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "model/nccl/schedule.hpp"
#include "model/support/error.hpp"

namespace samesum {
namespace {

/// Rank 0's links of one channel as NCCL prints them: " [0] 2/-1/-1->0->-1".
std::string links_of_rank0(const Topology& topology, std::size_t channel) {
    const TreeLinks& links = *topology.channels()[channel].tree;
    const auto& down = links.down[0];
    return fmt::format(" [{}] {}/{}/{}->0->{}", channel, down[0], down[1], down[2], links.up[0]);
}

std::string links_of_rank0(const Topology& topology) {
    std::string line = "Trees";
    for (std::size_t channel = 0; channel < topology.channels().size(); ++channel)
        line += links_of_rank0(topology, channel);
    return line;
}

/// Each node's ranks in the order in which a ring visits them.
std::vector<std::vector<int>> by_node(const Ring& ring, int ranks_per_node) {
    std::vector<std::vector<int>> nodes((ring.size() + static_cast<std::size_t>(ranks_per_node) - 1) /
                                        static_cast<std::size_t>(ranks_per_node));
    // Start at the node's entry: a ring written from rank 0 may begin in the middle of node 0.
    std::size_t start = 0;
    for (std::size_t i = 0; i < ring.size(); ++i)
        if (ring[i] / ranks_per_node != ring[(i + ring.size() - 1) % ring.size()] / ranks_per_node &&
            ring[i] / ranks_per_node == 0)
            start = i;
    for (std::size_t i = 0; i < ring.size(); ++i) {
        const int rank = ring[(start + i) % ring.size()];
        nodes[static_cast<std::size_t>(rank / ranks_per_node)].push_back(rank);
    }
    return nodes;
}

/// The machine on which recordings with several nodes are made: "nodes" on one or two GPUs, joined by sockets. NCCL's
/// search reports 1.2 GB/s per channel for them, and 2.4 GB/s inside a node for trees ("bw 2.400000/1.200000"). With
/// two nodes the choice of PAT depends on these speeds.
Machine recording_machine(int search_channels, bool graph_file) {
    Machine machine;
    machine.ring = {search_channels, 1.2, 1.2, 0, true, !graph_file};
    machine.tree = {search_channels, 2.4, 1.2, 0, true, !graph_file};
    return machine;
}

/// The record's rings, joined from as many search channels as `reversed` has; a node's tree list is its part of the
/// ring, or that read backwards.
Topology joined(const Record& record, TreePattern pattern, const std::vector<bool>& reversed) {
    std::vector<std::vector<NodeLists>> lists;
    for (std::size_t c = 0; c < reversed.size(); ++c) {
        const auto nodes = by_node(record.rings[c], record.ranks_per_node);
        lists.resize(nodes.size());
        for (std::size_t node = 0; node < nodes.size(); ++node) {
            std::vector<int> tree = nodes[node];
            if (reversed[c]) std::reverse(tree.begin(), tree.end());
            lists[node].push_back({nodes[node], tree, tree.size() == 1 ? TreePattern::tree : pattern});
        }
    }
    const int channels = static_cast<int>(record.rings.size());
    return Topology::from_node_lists(lists).with_channels(channels, channels);
}

}  // namespace

Communicator communicator_of(const Record& record) {
    const std::size_t channels = record.rings.size();
    if (channels == 0) throw UsageError("field 'rings': expected at least one ring");
    // The nodes' own lists are not in a record; they are found by the links that NCCL printed for rank 0.
    for (std::size_t searched = 1; searched <= std::max<std::size_t>(1, channels / 2); ++searched)
        for (const TreePattern pattern : {TreePattern::balanced, TreePattern::split, TreePattern::tree}) {
            std::vector<bool> reversed(searched);
            const Topology straight = joined(record, pattern, reversed);
            for (std::size_t c = 0; c < std::min(searched, channels); ++c)
                reversed[c] = !record.rank0_trees.empty() &&
                              (record.rank0_trees + " ").find(links_of_rank0(straight, c) + " ") == std::string::npos;
            const Topology topology = joined(record, pattern, reversed);
            bool same = record.rank0_trees.empty() || links_of_rank0(topology) == record.rank0_trees;
            for (std::size_t c = 0; same && c < channels; ++c)
                same = rotated(topology.ring(static_cast<int>(c)), 0) == rotated(record.rings[c], 0);
            if (!same) continue;
            Communicator comm{topology, record.version};
            // Inside one node the ranks use NVLink, whose speed is not in a record.
            if (topology.nodes() > 1)
                comm.machine = recording_machine(static_cast<int>(searched), !record.graph.empty());
            if (!record.algorithms.empty()) set_algorithms(comm.settings, record.algorithms);
            if (!record.protocols.empty()) set_protocols(comm.settings, record.protocols);
            return comm;
        }
    throw UsageError(
        fmt::format("rank 0's links '{}' fit none of the known ways in which NCCL joins nodes", record.rank0_trees));
}

Match check_record(const Record& record) {
    using enum Match::Outcome;
    std::optional<Communicator> comm;
    try {
        comm = communicator_of(record);
    } catch (const UsageError& error) {
        return {not_modelled, error.what()};
    }
    const std::vector<Call> calls = record.group.empty() ? std::vector{record.call} : record.group;
    Forced forced;
    if (!comm->machine && !record.choices.empty())
        forced = {record.choices.front().algorithm, record.choices.front().protocol};
    const std::vector<Plan> plans = plan_group(*comm, calls, forced);
    if (plans.size() != record.choices.size())
        return {differs, fmt::format("NCCL reports {} calls; predicted {}", record.choices.size(), plans.size())};
    std::size_t own = plans.size();
    for (std::size_t i = 0; i < plans.size(); ++i) {
        const Plan& plan = plans[i];
        const LoggedChoice& logged = record.choices[i];
        if (plan.index == record.index) own = i;
        const auto show = [](Collective collective, std::uint64_t bytes, Algorithm algorithm, Protocol protocol,
                             int first, int last) {
            return fmt::format("{}: {} Bytes {} {} channels {}..{}", name(collective), bytes, name(algorithm),
                               name(protocol), first, last);
        };
        const std::string reported = show(*logged.collective, logged.bytes, logged.algorithm, logged.protocol,
                                          *logged.first_channel, *logged.last_channel);
        const Call& call = plan.task.call;
        const std::string predicted =
            show(call.collective, call.count * static_cast<std::uint64_t>(traits(call.format).bytes()),
                 plan.task.choice.algorithm, plan.task.choice.protocol, plan.parts.front().channel,
                 plan.parts.back().channel);
        if (reported != predicted) return {differs, fmt::format("NCCL ran {}; predicted {}", reported, predicted)};
    }
    ensure(own < plans.size(), "the record's call is one of its group");
    const Schedule& schedule = plans[own].schedule;

    std::vector<std::pair<Order, ReductionTree>> unfolded;  // few orders, many segments
    const auto canonical = [&](const Order& order) -> const ReductionTree& {
        for (const auto& [known, tree] : unfolded)
            if (known == order) return tree;
        return unfolded.emplace_back(order, order.as_tree().canonical()).second;
    };
    for (const RevealedRange& range : record.segments) {
        std::string why;
        schedule.visit(range.begin, range.end, [&](const Segment& segment) {
            if (!segment.order.observable()) {
                why = "not observable: " + segment.order.why_not();
                return false;
            }
            const ReductionTree& predicted = canonical(segment.order);
            if (predicted == record.trees[range.tree]) return true;
            why = fmt::format("elements [{}, {}): revealed {}, predicted {}", segment.begin, segment.end,
                              record.trees[range.tree].str(), predicted.str());
            return false;
        });
        if (!why.empty()) return {differs, why};
    }
    return {};
}

}  // namespace samesum
