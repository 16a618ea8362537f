// Rings and double binary trees as NCCL 2.28.9 builds them from the nodes' search results.
//
// In the binary tree over nodes, the height of node i is its lowest set bit (8 nodes):
//
//   0---------------.
//                    4            Tree 1 is its mirror image (even number of nodes) or its shift by one (odd), so that
//             2             6     a node that is a leaf in one tree is an inner node in the other.
//          1     3       5     7
// SPDX-License-Identifier: Apache-2.0
#include "model/nccl/topology.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <system_error>
#include <utility>

#include "model/nccl/tree_index.hpp"
#include "model/support/error.hpp"

namespace samesum {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

void check_ring(const Ring& ring, int ranks, std::size_t channel) {
    std::vector<bool> seen(at(ranks));
    for (const int rank : ring) {
        if (rank < 0 || rank >= ranks || seen[at(rank)])
            throw UsageError(fmt::format("ring of channel {}: rank {} is {}; expected each of 0..{} once", channel,
                                         rank, rank < 0 || rank >= ranks ? "out of range" : "named twice", ranks - 1));
        seen[at(rank)] = true;
    }
    if (ring.size() != at(ranks))
        throw UsageError(fmt::format("ring of channel {}: {} ranks; expected {}, as many as the communicator has",
                                     channel, ring.size(), ranks));
}

BinaryTreeNode binary_tree(int nodes, int node) {
    const auto n = static_cast<std::uint32_t>(nodes), at_node = static_cast<std::uint32_t>(node);
    const auto link = [&](std::uint32_t other) { return other == n ? -1 : static_cast<int>(other); };
    return {link(tree_index::parent(n, at_node)),
            {link(tree_index::left_child(n, at_node)), link(tree_index::right_child(n, at_node))}};
}

/// connect.cc, connectTrees: chains inside the nodes, the binary tree between them.
TreeLinks connect_trees(std::span<const std::vector<NodeLists>> lists, std::size_t channel, int ranks, int tree) {
    const int nodes = static_cast<int>(lists.size());
    TreeLinks links;
    links.up.assign(at(ranks), -1);
    links.down.assign(at(ranks), {-1, -1, -1});
    const auto append = [&](int rank, int child) {
        auto& down = links.down[at(rank)];
        const auto free = std::find(down.begin(), down.end(), -1);
        ensure(free != down.end(), "a rank has at most three children");
        *free = child;
    };
    // The GPUs that are linked to the parent and to the two children.
    const auto gpu_for_child = [&](int node, int which) {
        const NodeLists& own = lists[at(node)][channel];
        const std::size_t last = own.tree.size() - 1;
        if (own.pattern == TreePattern::tree) return own.tree[0];
        if (own.pattern == TreePattern::split) return own.tree[std::min<std::size_t>(1, last)];
        return own.tree[which == 0 ? std::min<std::size_t>(1, last) : 0];
    };
    for (int node = 0; node < nodes; ++node) {
        const std::vector<int>& chain = lists[at(node)][channel].tree;
        for (std::size_t j = 0; j + 1 < chain.size(); ++j) {
            append(chain[j], chain[j + 1]);
            links.up[at(chain[j + 1])] = chain[j];
        }
    }
    for (int node = 0; node < nodes; ++node) {
        const BinaryTreeNode place = double_binary_tree(nodes, node, tree);
        if (place.parent < 0) links.root = lists[at(node)][channel].tree[0];
        for (int which = 0; which < 2; ++which) {
            const int child = place.child[at(which)];
            if (child < 0) continue;
            const int below = lists[at(child)][channel].tree[0];
            append(gpu_for_child(node, which), below);
            links.up[at(below)] = gpu_for_child(node, which);
        }
    }
    return links;
}

}  // namespace

BinaryTreeNode double_binary_tree(int nodes, int node, int tree) {
    if (tree == 0) return binary_tree(nodes, node);
    const bool mirror = nodes % 2 == 0;
    const auto to_first = [&](int i) { return mirror ? nodes - 1 - i : (i - 1 + nodes) % nodes; };
    const auto back = [&](int i) { return i < 0 ? -1 : mirror ? nodes - 1 - i : (i + 1) % nodes; };
    BinaryTreeNode links = binary_tree(nodes, to_first(node));
    return {back(links.parent), {back(links.child[0]), back(links.child[1])}};
}

Topology::Topology(std::vector<int> node_of, std::vector<Channel> channels)
    : node_of_(std::move(node_of)), channels_(std::move(channels)) {
    if (node_of_.empty()) throw UsageError("a communicator has at least 1 rank");
    if (channels_.empty()) throw UsageError("a communicator has at least 1 channel");
    nodes_ = *std::max_element(node_of_.begin(), node_of_.end()) + 1;
    const Ring* checked = nullptr;  // repeated rings are shared: check each once
    for (std::size_t c = 0; c < channels_.size(); ++c) {
        ensure(channels_[c].ring != nullptr, "every channel has a ring");
        if (channels_[c].ring.get() == checked) continue;
        checked = channels_[c].ring.get();
        check_ring(*checked, ranks(), c);
    }
}

Topology Topology::one_rank_per_node(int ranks, int channels) {
    if (ranks < 1) throw UsageError(fmt::format("a communicator of {} ranks: expected at least 1", ranks));
    if (channels < 1) throw UsageError(fmt::format("{} channels: expected at least 1", channels));
    const auto searched = static_cast<std::size_t>(channels + 1) / 2;
    std::vector<std::vector<NodeLists>> lists;
    for (int rank = 0; rank < ranks; ++rank)
        lists.push_back(std::vector<NodeLists>(searched, {{rank}, {rank}, TreePattern::tree}));
    return from_node_lists(lists).with_channels(channels, channels);
}

Topology Topology::one_node(int ranks, int channels) {
    if (ranks < 1) throw UsageError(fmt::format("a communicator of {} ranks: expected at least 1", ranks));
    std::vector<int> order(at(ranks));
    std::iota(order.begin(), order.end(), 0);
    const std::vector<std::vector<NodeLists>> lists{{{order, order, TreePattern::balanced}}};
    return from_node_lists(lists).with_channels(channels, channels);
}

Topology Topology::from_rings(std::span<const Ring> rings, int ranks_per_node) {
    if (rings.empty() || rings.front().empty())
        throw UsageError("no ring given: expected at least one ring of at least 1 rank");
    if (ranks_per_node < 1) throw UsageError(fmt::format("{} ranks per node: expected at least 1", ranks_per_node));
    std::vector<int> node_of;
    for (int rank = 0; rank < static_cast<int>(rings.front().size()); ++rank) node_of.push_back(rank / ranks_per_node);
    std::vector<Channel> channels;
    for (const Ring& ring : rings) channels.push_back({std::make_shared<const Ring>(ring), nullptr});
    return {std::move(node_of), std::move(channels)};
}

Topology Topology::from_node_lists(std::span<const std::vector<NodeLists>> lists) {
    ensure(!lists.empty() && !lists.front().empty(), "there is a node, and it has a search channel");
    std::size_t ranks = 0;
    for (const auto& node : lists) ranks += node.front().ring.size();
    std::vector<int> node_of(ranks, -1);
    for (std::size_t node = 0; node < lists.size(); ++node)
        for (const int rank : lists[node].front().ring)
            if (rank >= 0 && at(rank) < ranks) node_of[at(rank)] = static_cast<int>(node);
    if (std::find(node_of.begin(), node_of.end(), -1) != node_of.end())
        throw UsageError("the lists of the nodes: expected every rank once");

    const std::size_t searched = lists.front().size();
    const auto tree_of = [&](std::size_t channel, int tree) {
        return std::make_shared<const TreeLinks>(connect_trees(lists, channel, static_cast<int>(ranks), tree));
    };
    std::vector<Channel> channels(2 * searched);
    for (std::size_t c = 0; c < searched; ++c) {
        Ring ring;
        for (const auto& node : lists) {
            if (node.size() != searched)
                throw UsageError("the lists of the nodes: expected the same number of channels for each node");
            ring.insert(ring.end(), node[c].ring.begin(), node[c].ring.end());
        }
        Channel first{std::make_shared<const Ring>(rotated(ring, 0)), tree_of(c, 0)};
        Channel second{first.ring, tree_of(c, 1)};
        // Channels usually have equal links; equal links are stored once.
        for (std::size_t earlier = 0; earlier < c; ++earlier) {
            if (*channels[earlier].ring == *first.ring) first.ring = second.ring = channels[earlier].ring;
            if (*channels[earlier].tree == *first.tree) first.tree = channels[earlier].tree;
            if (*channels[earlier + searched].tree == *second.tree) second.tree = channels[earlier + searched].tree;
        }
        channels[c] = first;
        channels[c + searched] = second;
    }
    return {std::move(node_of), std::move(channels)};
}

Topology Topology::with_channels(int min, int max) const {
    std::vector<Channel> channels = channels_;
    if (max > 0 && channels.size() > at(max)) channels.resize(at(max));
    for (const std::size_t existing = channels.size(); channels.size() < at(min);)
        channels.push_back(channels[channels.size() - existing]);
    return {node_of_, std::move(channels)};
}

Ring rotated(const Ring& ring, int start) {
    Ring result = ring;
    const auto place = std::find(result.begin(), result.end(), start);
    if (place != result.end()) std::rotate(result.begin(), place, result.end());
    return result;
}

Ring walk_ending_at(const Ring& ring, int last) {
    Ring walk = rotated(ring, last);
    std::rotate(walk.begin(), walk.begin() + 1, walk.end());
    return walk;
}

bool same_reduce_order(const Ring& a, const Ring& b, int root) {
    Ring first = walk_ending_at(a, root);
    Ring second = walk_ending_at(b, root);
    for (Ring* walk : {&first, &second})
        if (walk->size() > 2) std::sort(walk->begin(), walk->begin() + 2);
    return first == second;
}

Ring parse_ring(std::string_view text) {
    Ring ring;
    for (std::size_t i = 0; i < text.size();) {
        if (text[i] == ' ' || text[i] == ',' || text[i] == '.') {
            ++i;
            continue;
        }
        int rank = 0;
        const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), rank);
        if (error != std::errc{})
            throw UsageError(
                fmt::format("'{}' is not a ring: '{}' is not a rank; expected e.g. 0,1,2,3", text, text.substr(i, 8)));
        ring.push_back(rank);
        i = static_cast<std::size_t>(end - text.data());
    }
    if (ring.empty()) throw UsageError("an empty ring: expected e.g. 0,1,2,3");
    check_ring(ring, static_cast<int>(ring.size()), 0);
    return ring;
}

std::string str(const Ring& ring) { return fmt::format("{}", fmt::join(ring, " ")); }

}  // namespace samesum
