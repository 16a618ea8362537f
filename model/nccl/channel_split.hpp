// NCCL's split of a call's elements over channels and chunks: its index arithmetic, over any integer type.
// SPDX-License-Identifier: Apache-2.0
//
// proofs/ executes these templates over a solver's integers. A solver takes every path at once: choices are select(),
// never if. All amounts are non-negative.
#pragma once

namespace samesum::channel_split {

template <class T>
[[nodiscard]] constexpr T select(bool chosen, T yes, T no) {
    return chosen ? yes : no;
}
template <class Int>
[[nodiscard]] constexpr Int smaller(const Int& a, const Int& b) {
    return select(b < a, b, a);
}
template <class Int>
[[nodiscard]] constexpr Int larger(const Int& a, const Int& b) {
    return select(a < b, b, a);
}
template <class Int>
[[nodiscard]] constexpr Int divide_up(const Int& a, const Int& b) {
    return (a + b - Int(1)) / b;
}
template <class Int>
[[nodiscard]] constexpr Int round_up(const Int& a, const Int& m) {
    return divide_up(a, m) * m;
}

/// Bytes of a cell: the smallest multiple of 16 whose traffic reaches `min_traffic`, at `traffic_per_byte`.
template <class Int>
[[nodiscard]] constexpr Int cell_bytes(const Int& min_traffic, const Int& traffic_per_byte) {
    return round_up(divide_up(min_traffic, traffic_per_byte), Int(16));
}

/// The channel that the next call begins on, and the traffic that it already has. All channels before it are full.
template <class Int>
struct CurrentChannel {
    Int channel, traffic;
};
/// Cells that still fit into the current channel.
template <class Int>
[[nodiscard]] constexpr Int cells_that_fit(const CurrentChannel<Int>& current, const Int& traffic_per_channel,
                                           const Int& traffic_per_cell) {
    return divide_up(traffic_per_channel - smaller(current.traffic, traffic_per_channel), traffic_per_cell);
}

/// A call's cells on consecutive channels: `cells_lo` on `first_channel`, `cells_per_channel` on each of the next
/// `mid_channels` channels, `cells_hi` on the last.
template <class Int>
struct CellSplit {
    Int first_channel, cells_lo, mid_channels, cells_per_channel, cells_hi;
};
/// `full_channel`: cells that fill an empty channel; `fitting`: cells that still fit into `channel`, one of
/// `max_channels`. None of them is 0, except `fitting` on the last channel. NCCL 2.28.9 enqueue.cc,
/// scheduleCollTasksToPlan; its case of a first channel without room (cellsLo == 0) cannot occur, because the next call
/// never begins on such a channel.
template <class Int>
[[nodiscard]] constexpr CellSplit<Int> split_cells(const Int& cells, const Int& full_channel, const Int& fitting,
                                                   const Int& channel, const Int& max_channels) {
    const Int none(0), one(1);
    const Int lo = select(channel + one == max_channels, cells, smaller(cells, fitting));
    const Int rest = cells - lo;
    const Int full = smaller(cells, full_channel);
    const Int middle = rest / full, remainder = rest - middle * full;

    // Too few channels: the rest is split evenly over the channels after the first; the last also takes the remainder.
    const auto too_few = max_channels < channel + one + divide_up(rest, full);
    const Int following = larger(one, max_channels - channel - one);
    const Int even = rest / following;
    const Int per_channel = select(too_few, even, full);
    const Int mid = select(too_few, following - one, middle);
    const Int hi = select(too_few, even + (rest - even * following), remainder);

    // The last channel counts as `cells_hi` even when it is full.
    const auto ends_full = hi == none && none < mid;
    return {channel, lo, mid - select(ends_full, one, none), per_channel, select(ends_full, per_channel, hi)};
}
/// Where the next call begins. Each cell counts with its whole traffic, also a last cell that is not full.
template <class Int>
[[nodiscard]] constexpr CurrentChannel<Int> channel_after(const CellSplit<Int>& split,
                                                          const CurrentChannel<Int>& before,
                                                          const Int& traffic_per_channel, const Int& traffic_per_cell,
                                                          const Int& max_channels) {
    const Int none(0), one(1);
    const auto has_hi = none < split.cells_hi;
    const Int channel = split.first_channel + select(has_hi, split.mid_channels + one, none);
    const Int traffic =
        select(has_hi, split.cells_hi * traffic_per_cell, before.traffic + split.cells_lo * traffic_per_cell);
    const auto next = !(traffic < traffic_per_channel) && !(channel + one == max_channels);
    return {channel + select(next, one, none), select(next, none, traffic)};
}

/// Elements of a part of `cells` cells that begins at element `begin` of `count`: the last cell may not be full.
template <class Int>
[[nodiscard]] constexpr Int part_elements(const Int& cells, const Int& cell_elements, const Int& begin,
                                          const Int& count) {
    return smaller(cells * cell_elements, count - begin);
}

/// Ring all-reduce cuts a part of `count` elements into loops of one chunk for each rank: the elements of whole loops.
/// NCCL 2.28.9 device/all_reduce.h, runRing.
template <class Int>
[[nodiscard]] constexpr Int whole_loops(const Int& count, const Int& ranks, const Int& chunk) {
    return count / (ranks * chunk) * (ranks * chunk);
}
/// The last loop, if elements are left for it: `rest` elements in blocks of `length`, a multiple of `alignment`; at
/// most one block for each rank.
template <class Int>
struct Blocks {
    Int length, count;
};
template <class Int>
[[nodiscard]] constexpr Blocks<Int> last_loop(const Int& rest, const Int& ranks, const Int& alignment) {
    const Int length = round_up(divide_up(rest, ranks), alignment);
    return {length, divide_up(rest, length)};
}

}  // namespace samesum::channel_split
