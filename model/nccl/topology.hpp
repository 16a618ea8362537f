// The nodes of the ranks, and the ring and tree links of each channel of a communicator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace samesum {

/// Ranks in send direction, closed cyclically, written from any rank.
using Ring = std::vector<int>;

/// The up and down links of one channel's tree; -1 where there is none. `down` is in the order of addition.
struct TreeLinks {
    int root = 0;
    std::vector<int> up;
    std::vector<std::array<int, 3>> down;

    friend bool operator==(const TreeLinks&, const TreeLinks&) = default;
};

/// Which GPUs of a node exchange data with the parent's and the children's nodes (NCCL 2.28.9 graph/topo.h,
/// NCCL_TOPO_PATTERN_*).
enum class TreePattern : int { balanced = 1, split = 2, tree = 3 };

/// A channel's links; shared, because channels often have equal links and rings can be long.
struct Channel {
    std::shared_ptr<const Ring> ring;
    std::shared_ptr<const TreeLinks> tree;  ///< null when unknown
};

/// One node's own lists of one search channel (NCCL_GRAPH_DUMP_FILE): its ranks in ring order and in tree order.
struct NodeLists {
    std::vector<int> ring;
    std::vector<int> tree;
    TreePattern pattern = TreePattern::balanced;
};

/// The layout of a communicator. Every ring visits every rank exactly once.
class Topology {
public:
    /// Throws UsageError when a ring is not a permutation of 0..n-1 or ranks < 1.
    Topology(std::vector<int> node_of, std::vector<Channel> channels);

    /// Every rank its own node: ring 0..n-1 on all channels; channels 0..C/2-1 the first of the double binary trees,
    /// the rest the second (NCCL 2.28.9 graph/connect.cc).
    static Topology one_rank_per_node(int ranks, int channels = 2);
    /// One node, ranks in GPU order: ring 0..n-1, tree = chain from 0, on all channels.
    static Topology one_node(int ranks, int channels = 2);
    /// Given rings, trees unknown; every `ranks_per_node` consecutive ranks share a node.
    static Topology from_rings(std::span<const Ring> rings, int ranks_per_node = 1);
    /// As NCCL joins the nodes' search results: lists[node][search channel]. Rings connect the nodes
    /// in order, trees by the double binary tree; the search channels appear twice (connect.cc, ncclTopoPostset).
    static Topology from_node_lists(std::span<const std::vector<NodeLists>> lists);

    [[nodiscard]] int ranks() const { return static_cast<int>(node_of_.size()); }
    [[nodiscard]] int nodes() const { return nodes_; }
    [[nodiscard]] int node_of(int rank) const { return node_of_.at(static_cast<std::size_t>(rank)); }
    [[nodiscard]] std::span<const Channel> channels() const { return channels_; }
    [[nodiscard]] const Ring& ring(int channel) const { return *channels_.at(static_cast<std::size_t>(channel)).ring; }

    /// The first `max` channels, or the existing ones repeated up to `min` (NCCL_MAX_NCHANNELS, NCCL_MIN_NCHANNELS;
    /// connect.cc, copyChannels). 0 means no limit.
    [[nodiscard]] Topology with_channels(int min, int max) const;

private:
    std::vector<int> node_of_;
    int nodes_ = 0;
    std::vector<Channel> channels_;
};

/// The ring written from `start`.
[[nodiscard]] Ring rotated(const Ring& ring, int start);
/// The ranks from next(last) around the ring to `last`: the order in which NCCL's ring kernels add them.
[[nodiscard]] Ring walk_ending_at(const Ring& ring, int last);
/// Whether two rings give ncclReduce to `root` the same order: walked from next(root), they are equal except that the
/// first two ranks may be swapped.
[[nodiscard]] bool same_reduce_order(const Ring& a, const Ring& b, int root);

/// "0 1 2 3" or "0,1,2,3"; throws UsageError.
[[nodiscard]] Ring parse_ring(std::string_view text);
[[nodiscard]] std::string str(const Ring& ring);

/// The double binary tree over `nodes` nodes (NCCL 2.28.9 graph/trees.cc, ncclGetDtree), tree 0 or 1.
struct BinaryTreeNode {
    int parent = -1;
    std::array<int, 2> child{-1, -1};  ///< NCCL's child0 and child1
};
[[nodiscard]] BinaryTreeNode double_binary_tree(int nodes, int node, int tree);

}  // namespace samesum
