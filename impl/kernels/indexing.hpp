// The index arithmetic of the combines over any integer type: offsets, counts, and which rank sends what to which.
// SPDX-License-Identifier: Apache-2.0
//
// proofs/ executes these templates over a solver's integers, so the proved code is the code that runs. A solver follows
// every path at once: choices are select(), never if. All amounts are non-negative.
#pragma once

namespace samesum::gpu::indexing {

template <class T>
[[nodiscard]] constexpr T select(bool chosen, T yes, T no) {
    return chosen ? yes : no;
}
template <class Int>
[[nodiscard]] constexpr Int smaller(const Int& a, const Int& b) {
    return select(b < a, b, a);
}
template <class Int>
[[nodiscard]] constexpr Int clamp(const Int& value, const Int& min, const Int& max) {
    return select(value < min, min, smaller(value, max));
}

/// [offset, offset + count) of a buffer.
template <class Int>
struct Range {
    Int offset, count;
};

// --- Chunks: one rank's rows after another's in the [rows, hidden] buffer ---

/// The first row of the next rank; rank 0's is 0.
template <class Int>
[[nodiscard]] constexpr Int next_first_row(const Int& first_row, const Int& rows) {
    return first_row + rows;
}
/// A rank's part of the buffer, in bytes or elements; `row` is the length of a row in that unit.
template <class Int>
[[nodiscard]] constexpr Range<Int> chunk(const Int& first_row, const Int& rows, const Int& row) {
    return {first_row * row, rows * row};
}

// --- The workspace ---

/// Received chunks begin at multiples of 256 bytes, so that sums read them as aligned as separate buffers.
template <class Int>
[[nodiscard]] constexpr Int spaced(const Int& bytes) {
    return (bytes + Int(255)) / Int(256) * Int(256);
}
/// The offset of the chunk received from a rank; each has `own` bytes.
template <class Int>
[[nodiscard]] constexpr Int received_at(const Int& rank, const Int& own) {
    return rank * spaced(own);
}
/// The offset of the own chunk within the gathered partials, which have `all` bytes each.
template <class Int>
[[nodiscard]] constexpr Int gathered_at(const Int& rank, const Int& all, const Int& own_offset) {
    return rank * all + own_offset;
}
template <class Int>
[[nodiscard]] constexpr Int fixed_root_workspace(const Int& root, const Int& self, const Int& all) {
    return select(self == root, all, Int(0));
}
template <class Int>
[[nodiscard]] constexpr Int gather_workspace(const Int& ranks, const Int& all) {
    return ranks * all;
}
template <class Int>
[[nodiscard]] constexpr Int exchange_workspace(const Int& ranks, const Int& own) {
    return ranks * spaced(own);
}

// --- Groups of sends and receives ---

/// A rank's exchange with one peer within a group of calls; peers follow in rank order. A count of 0 makes no call.
template <class Int>
struct Move {
    Range<Int> sent;      ///< of the buffer that is sent from
    Range<Int> received;  ///< of the buffer that is received into
};

/// fixed_root: the root sends each other rank its chunk of the sums, and copies its own.
template <class Int>
[[nodiscard]] constexpr Move<Int> scatter(const Int& root, const Int& self, const Int& peer, const Range<Int>& own,
                                          const Range<Int>& peers) {
    const Int none(0);
    return {{peers.offset, select(self == root, select(peer == root, none, peers.count), none)},
            {none, select(self == root, none, select(peer == root, own.count, none))}};
}

/// exchange_ordered: every rank sends to every other rank that rank's chunk of its partial; its own chunk is not moved.
template <class Int>
[[nodiscard]] constexpr Move<Int> exchange(const Int& self, const Int& peer, const Range<Int>& own,
                                           const Range<Int>& peers) {
    const Int none(0);
    return {{peers.offset, select(peer == self, none, peers.count)},
            {received_at(peer, own.count), select(peer == self, none, own.count)}};
}

// --- Sums by node: ranks are (node, place); the workspace holds equal pieces, each as long as the largest chunk: what
// `senders` ranks of the node sent, then the node's sums for each node, then the other nodes' sums of the own chunk ---

template <class Int>
[[nodiscard]] constexpr Int rank_at(const Int& node, const Int& place, const Int& in_node) {
    return node * in_node + place;
}
template <class Int>
[[nodiscard]] constexpr Int piece_at(const Int& index, const Int& piece) {
    return index * piece;
}
template <class Int>
[[nodiscard]] constexpr Int node_sums_at(const Int& senders, const Int& piece) {
    return senders * piece;
}
template <class Int>
[[nodiscard]] constexpr Int other_sums_at(const Int& senders, const Int& nodes, const Int& piece) {
    return (senders + nodes) * piece;
}
template <class Int>
[[nodiscard]] constexpr Int by_node_workspace(const Int& senders, const Int& nodes, const Int& piece) {
    return (senders + nodes + nodes) * piece;
}
/// Within a node, for the chunks whose owners are on one node: `mine` is that of the owner at this rank's place,
/// `theirs` that of the owner at the peer's place.
template <class Int>
[[nodiscard]] constexpr Move<Int> within_node(const Int& place, const Int& peer, const Range<Int>& mine,
                                              const Range<Int>& theirs, const Int& piece) {
    const Int none(0);
    return {{theirs.offset, select(peer == place, none, theirs.count)},
            {piece_at(peer, piece), select(peer == place, none, mine.count)}};
}
/// Between the ranks of one place: from the node's sums to the other nodes' sums. Offsets count from their beginnings.
template <class Int>
[[nodiscard]] constexpr Move<Int> across_nodes(const Int& node, const Int& peer, const Int& mine, const Int& theirs,
                                               const Int& piece) {
    const Int none(0);
    return {{piece_at(peer, piece), select(peer == node, none, theirs)},
            {piece_at(peer, piece), select(peer == node, none, mine)}};
}

// --- direct_ordered: chunks go in lines of 15 words of data, 8 bytes each, and a flag; several lines are a tile ---

inline constexpr int line_data = 120;  ///< bytes

/// How many tiles of `tile` bytes of data hold `bytes`.
template <class Int>
[[nodiscard]] constexpr Int tiles_of(const Int& bytes, const Int& tile) {
    return (bytes + tile - Int(1)) / tile;
}
/// How many of the tile's lines are sent to the owner of a chunk of `bytes`: those that hold part of it, but at least
/// one, whose flag tells the owner that the sender has reached this step.
template <class Int>
[[nodiscard]] constexpr Int tile_lines_of(const Int& bytes, const Int& tile, const Int& lines) {
    const Int begin = tile * lines * Int(line_data);
    return clamp(tiles_of(bytes - smaller(begin, bytes), Int(line_data)), Int(1), lines);
}
/// The offset of a line's word in the chunk, in bytes.
template <class Int>
[[nodiscard]] constexpr Int word_at(const Int& line, const Int& word) {
    return line * Int(line_data) + word * Int(8);
}

// --- Which scheme runs ---

/// vLLM's dispatch: the scheme of vllm_default depends on whether all ranks own equally many rows.
template <class Bool, class Scheme>
[[nodiscard]] constexpr Scheme dispatch(const Bool& is_vllm_default, const Bool& equal_sizes, const Scheme& scheme,
                                        const Scheme& when_equal, const Scheme& otherwise) {
    return select(is_vllm_default, select(equal_sizes, when_equal, otherwise), scheme);
}

/// vLLM's gate: whether batch-invariant serving uses fixed_root. With 2 ranks every path is one addition.
template <class Bool, class Int>
[[nodiscard]] constexpr Bool gate(const Bool& batch_invariant, const Int& ranks) {
    return batch_invariant && Int(2) < ranks;
}

}  // namespace samesum::gpu::indexing
