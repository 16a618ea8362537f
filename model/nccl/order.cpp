// The three ways in which NCCL's kernels add, expanded into trees.
//
//   ring, ending at 0        tree, root 0            PAT to destination 0 (8 ranks)
//
//   1 -> 2 -> 3 -> 0            0                    (7 ((3 ((1 2) 4)) ((5 6) 0)))
//   (((1 2) 3) 0)                \                   distances from the destination are combined along the
//                                 2  (0 ((2 1) 3))   lowest set bit; each rank sends its partial sum once
//                                / \.
//                               1   3
// SPDX-License-Identifier: Apache-2.0
#include "model/nccl/order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "model/nccl/tree_index.hpp"
#include "model/support/error.hpp"

namespace samesum {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// device/all_reduce.h, runTreeSplit: own value, then each child in `down` order. Iterative, since chains are deep.
ReductionTree expand(const TreeLinks& links) {
    std::vector<std::int32_t> postfix;
    struct Visit {
        int rank;
        std::size_t next_child;
    };
    std::vector<Visit> path{{links.root, 0}};
    postfix.push_back(links.root);
    while (!path.empty()) {
        Visit& top = path.back();
        const auto& down = links.down[at(top.rank)];
        if (top.next_child < down.size() && down[top.next_child] >= 0) {
            const int child = down[top.next_child++];
            path.push_back({child, 0});
            postfix.push_back(child);
            continue;
        }
        path.pop_back();
        if (!path.empty()) postfix.push_back(ReductionTree::add);
    }
    return ReductionTree(std::move(postfix));
}

/// The tree over distances from the destination; the recursion is log2(ranks) deep. A received partial sum is the left
/// operand (device/prims_simple.h, patReduce).
void append_pat(std::vector<std::int32_t>& postfix, int distance, int ranks, int dimensions) {
    const int levels = distance == 0 ? std::bit_width(static_cast<unsigned>(ranks - 1))
                                     : std::countr_zero(static_cast<unsigned>(distance));
    std::vector<int> children;
    for (int k = 0; k < levels; ++k) {
        const int child = distance + (1 << tree_index::pat_dimension(k, levels, dimensions));
        if (child < ranks) children.push_back(child);
    }
    // acc = (child acc) for each child: the last child's tree comes first in the program.
    for (auto child = children.rbegin(); child != children.rend(); ++child)
        append_pat(postfix, *child, ranks, dimensions);
    postfix.push_back(distance);
    postfix.insert(postfix.end(), children.size(), ReductionTree::add);
}

}  // namespace

Order Order::ring(std::shared_ptr<const Ring> ring, int last) {
    Order order;
    order.kind_ = Kind::ring;
    order.ranks_ = static_cast<int>(ring->size());
    order.last_ = last;
    order.ring_ = std::move(ring);
    return order;
}

Order Order::tree(std::shared_ptr<const TreeLinks> links) {
    Order order;
    order.kind_ = Kind::tree;
    order.ranks_ = static_cast<int>(links->up.size());
    order.last_ = links->root;
    order.links_ = std::move(links);
    return order;
}

Order Order::pat(int ranks, int destination, int dimensions) {
    Order order;
    order.kind_ = Kind::pat;
    order.ranks_ = ranks;
    order.last_ = destination;
    order.dimensions_ = dimensions;
    return order;
}

Order Order::rank_order(int ranks) {
    Order order;
    order.ranks_ = ranks;
    return order;
}

Order Order::rank_order_by_group(int ranks, int in_group) {
    ensure(in_group > 0 && ranks % in_group == 0, "all groups have the same size");
    Order order = rank_order(ranks);
    order.in_group_ = in_group < ranks ? in_group : 0;
    return order;
}

Order Order::from_owner(int ranks, int owner) {
    Order order;
    order.kind_ = Kind::from_owner;
    order.ranks_ = ranks;
    order.last_ = owner;
    return order;
}

Order Order::not_observable(int ranks, std::string why) {
    Order order;
    order.kind_ = Kind::not_observable;
    order.ranks_ = ranks;
    order.why_ = std::move(why);
    return order;
}

Order Order::ending_at(int rank) const {
    Order order = *this;
    order.last_ = rank;
    return order;
}

Order Order::ending_at_position(std::uint64_t position) const {
    return ending_at(ring_->at(static_cast<std::size_t>(position)));
}

ReductionTree Order::as_tree() const {
    std::vector<int> ranks(at(ranks_));
    std::iota(ranks.begin(), ranks.end(), 0);
    switch (kind_) {
        case Kind::ring:
            return ReductionTree::left_fold(walk_ending_at(*ring_, last_));
        case Kind::tree:
            return expand(*links_);
        case Kind::pat: {
            std::vector<std::int32_t> postfix;
            append_pat(postfix, 0, ranks_, dimensions_);
            // Distance s is the rank s below the destination.
            for (int s = 0; s < ranks_; ++s) ranks[at(s)] = (last_ - s + ranks_) % ranks_;
            return ReductionTree(std::move(postfix)).relabelled(ranks);
        }
        case Kind::rank_order: {
            if (in_group_ == 0) return ReductionTree::left_fold(ranks);
            const auto fold = [&](int first) {
                return ReductionTree::left_fold(std::span(ranks).subspan(at(first), at(in_group_)));
            };
            ReductionTree sum = fold(0);
            for (int first = in_group_; first < ranks_; first += in_group_) sum = ReductionTree::node(sum, fold(first));
            return sum;
        }
        case Kind::from_owner:
            std::rotate(ranks.begin(), ranks.begin() + last_, ranks.end());
            return ReductionTree::left_fold(ranks);
        case Kind::not_observable:
            break;
    }
    throw Inconclusive("order not observable: " + why_);
}

std::string Order::label() const {
    switch (kind_) {
        case Kind::ring: {
            if (ranks_ <= 8) return fmt::format("ring ending at {}", last_);
            const Ring walk = walk_ending_at(*ring_, last_);
            return fmt::format("fold along the ring {}, {}, {}, ..., {}, {}", walk[0], walk[1], walk[2],
                               walk[walk.size() - 2], walk.back());
        }
        case Kind::tree:
            return fmt::format("tree with root {}", last_);
        case Kind::pat:
            return fmt::format("PAT to {}", last_);
        case Kind::rank_order:
            return in_group_ == 0 ? "rank order" : fmt::format("rank order by groups of {}", in_group_);
        case Kind::from_owner:
            return fmt::format("rank order from {}", last_);
        case Kind::not_observable:
            return "not observable";
    }
    return {};
}

bool same_order(const Order& a, const Order& b) {
    if (!a.observable() || !b.observable()) return false;
    return a == b || same_order(a.as_tree(), b.as_tree());
}

int pat_dimensions(int ranks, std::uint64_t chunk_bytes, std::uint64_t part_bytes) {
    const int padded = static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks)));
    int aggregated = 1;
    while (chunk_bytes / (std::max<std::uint64_t>(part_bytes, 1) * static_cast<std::uint64_t>(aggregated)) >= 2 &&
           aggregated < ranks / 2)
        aggregated *= 2;
    for (int step = 0; step < 3; ++step)
        if (aggregated < ranks / 2) aggregated *= 2;
    return std::max<int>(1, std::bit_width(static_cast<unsigned>(padded / aggregated)) - 1);
}

}  // namespace samesum
