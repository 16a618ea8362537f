// One order of additions in compact form: a ring of 65,536 ranks is a pointer and a rank until its tree is built.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "model/nccl/topology.hpp"
#include "model/sum/reduction_tree.hpp"

namespace samesum {

/// The order in which one element is summed. Value type; cheap to copy.
class Order {
public:
    enum class Kind : std::uint8_t {
        ring,            ///< left fold along the ring; `last` is added last
        tree,            ///< double binary tree, chains inside nodes
        pat,             ///< parallel aggregated trees, relative to the destination `last`
        rank_order,      ///< ((0 1) 2) ..., or by groups: ((0 1) (2 3)) ...
        from_owner,      ///< the owner `last` first, then owner + 1, ... (symmetric-memory LD kernels)
        not_observable,  ///< summed in hardware (NVLS switch, CollNet network)
    };

    static Order ring(std::shared_ptr<const Ring> ring, int last);
    static Order tree(std::shared_ptr<const TreeLinks> links);
    /// `dimensions`: m of NCCL's PAT schedule, see pat_dimensions().
    static Order pat(int ranks, int destination, int dimensions);
    static Order rank_order(int ranks);
    /// Each group of `in_group` consecutive ranks in rank order, then the groups' sums in group order.
    static Order rank_order_by_group(int ranks, int in_group);
    static Order from_owner(int ranks, int owner);
    static Order not_observable(int ranks, std::string why);

    /// The same kind of order, ending at (or starting from) another rank, or at the rank at a position of the ring.
    [[nodiscard]] Order ending_at(int rank) const;
    [[nodiscard]] Order ending_at_position(std::uint64_t position) const;

    [[nodiscard]] Kind kind() const { return kind_; }
    [[nodiscard]] int ranks() const { return ranks_; }
    /// The rank that the order ends at (ring, pat) or starts from (from_owner).
    [[nodiscard]] int last() const { return last_; }
    [[nodiscard]] bool observable() const { return kind_ != Kind::not_observable; }
    [[nodiscard]] const std::string& why_not() const { return why_; }

    /// Operands as in NCCL's kernels: along a ring a rank's own value is the right operand, in a tree the left one.
    /// Throws Inconclusive with the reason when the order is not observable.
    [[nodiscard]] ReductionTree as_tree() const;
    [[nodiscard]] bool own_value_is_left() const { return kind_ == Kind::tree || kind_ == Kind::from_owner; }
    /// "ring ending at 3", for people.
    [[nodiscard]] std::string label() const;

    /// The same description; two different descriptions may still be the same order, see same_order().
    friend bool operator==(const Order&, const Order&) = default;

private:
    Kind kind_ = Kind::rank_order;
    int ranks_ = 1;
    int last_ = 0;
    int dimensions_ = 0;
    int in_group_ = 0;  ///< 0: all ranks are one group
    std::shared_ptr<const Ring> ring_;
    std::shared_ptr<const TreeLinks> links_;
    std::string why_;
};

/// Equal trees up to swapping operands; never true for orders that are not observable.
[[nodiscard]] bool same_order(const Order& a, const Order& b);

/// m of NCCL's PAT reduce-scatter for one channel part: bytes of a chunk and bytes of the part for one destination
/// (NCCL 2.28.9 include/collectives.h, PatRSAlgorithm). Matters only for more than 32 ranks.
[[nodiscard]] int pat_dimensions(int ranks, std::uint64_t chunk_bytes, std::uint64_t part_bytes);

}  // namespace samesum
