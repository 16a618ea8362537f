// Parents and children in NCCL's double binary tree and in PAT, over any type of unsigned words.
// SPDX-License-Identifier: Apache-2.0
//
// proofs/ executes these templates over a solver's bit vectors. A solver takes every path at once: choices are
// select(), never if.
#pragma once

#include <cstdint>

#include "model/nccl/channel_split.hpp"

namespace samesum::tree_index {

using channel_split::select;

/// 0 for 0.
template <class Word>
[[nodiscard]] constexpr Word lowest_bit(const Word& node) {
    return node & (Word(0) - node);
}

// --- The binary tree over `nodes` nodes, at most 2^31; NCCL 2.28.9 graph/trees.cc, ncclGetBtree. The value `nodes`
// means no node. Of 14 nodes, a node's level being the number of zeros below its lowest bit:
//
//     level 3                  8 ------> its parent is 0, the root
//                        .-----'-----.
//     level 2            4           12
//                     .--'--.     .--'--.
//     level 1         2     6    10     |
//                   .-'-. .-'-. .-'-.   |
//     level 0       1   3 5   7 9  11  13
//
// Node 12 has no node 14: its child1 is the next one that there is, 13. ---

template <class Word>
[[nodiscard]] constexpr Word parent(const Word& nodes, const Word& node) {
    const Word low = lowest_bit(node), rest = node ^ low, up = rest | (low + low);
    return select(node == Word(0), nodes, select(up < nodes, up, rest));
}
/// NCCL's child0.
template <class Word>
[[nodiscard]] constexpr Word left_child(const Word& nodes, const Word& node) {
    const Word low = lowest_bit(node);
    return select(Word(1) < low, node - low / Word(2), nodes);
}
/// NCCL's child1: the node plus the largest power of two below its lowest bit that is still a node; for the root, any
/// power of two.
template <class Word>
[[nodiscard]] constexpr Word right_child(const Word& nodes, const Word& node) {
    const Word low = lowest_bit(node);
    Word child = nodes;
    for (int bit = 0; bit < 31; ++bit) {
        const Word step(std::uint32_t{1} << bit);
        child = select((low == Word(0) || step < low) && node + step < nodes, node + step, child);
    }
    return child;
}

// --- PAT: distances from the destination; a distance other than 0 sends to the distance without its lowest bit ---

/// A distance receives from the distances 2^j ahead, for each j < `levels`: the k-th j (NCCL 2.28.9
/// include/collectives.h, PatRSAlgorithm; `dimensions` is its m, at least 1).
template <class Int>
[[nodiscard]] constexpr Int pat_dimension(const Int& k, const Int& levels, const Int& dimensions) {
    const Int one(1);
    const Int beyond = select(k + one < dimensions, dimensions - one - k, k + one);
    return select(k + one == levels, Int(0), select(levels < dimensions, levels - one - k, beyond));
}

}  // namespace samesum::tree_index
