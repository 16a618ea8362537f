// How a call's elements are dealt to channels and chunks: NCCL's index arithmetic, over any integer type.
// SPDX-License-Identifier: Apache-2.0
//
// proofs/ executes these templates over a solver's integers. A solver takes every path at once: choices are select(),
// never if. All amounts are non-negative.
#pragma once

namespace samesum::deal {

template <class T>
[[nodiscard]] constexpr T select(bool chosen, T yes, T no) {
    return chosen ? yes : no;
}
template <class Int>
[[nodiscard]] constexpr Int smaller(const Int& a, const Int& b) {
    return select(b < a, b, a);
}
template <class Int>
[[nodiscard]] constexpr Int divide_up(const Int& a, const Int& b) {
    return (a + b - Int(1)) / b;
}
template <class Int>
[[nodiscard]] constexpr Int round_up(const Int& a, const Int& m) {
    return divide_up(a, m) * m;
}

/// Bytes of a cell: what makes `least` bytes of traffic when each byte counts `weight` times.
template <class Int>
[[nodiscard]] constexpr Int cell_bytes(const Int& least, const Int& weight) {
    return round_up(divide_up(least, weight), Int(16));
}

/// A call's cells on consecutive channels: `low` on the first, `full` on each of `middle` channels, `high` on the last.
template <class Int>
struct Deal {
    Int channel, low, middle, full, high;
};
/// `whole`: cells that fill a channel; `room`: cells that still fit into `channel`, of `most` channels. There is at
/// least one cell, and one fills no less than a channel. NCCL 2.28.9 enqueue.cc, scheduleCollTasksToPlan.
template <class Int>
[[nodiscard]] constexpr Deal<Int> deal(const Int& cells, const Int& whole, const Int& room, const Int& channel,
                                       const Int& most) {
    const Int none(0), one(1);
    const Int low = select(channel + one == most, cells, smaller(cells, room));
    const Int rest = cells - low;
    const Int full = smaller(cells, whole);
    const Int middle = rest / full, high = rest - middle * full;

    // More than there are channels: the rest goes evenly to those that follow, the last taking the remainder.
    const auto too_many = most < channel + select(none < low, one, none) + middle + select(none < high, one, none);
    const Int following = select(too_many, most - channel - one, one);
    const Int even = rest / following;
    const Int wide = select(too_many, even, full);
    const Int between = select(too_many, following - one, middle);
    const Int last = select(too_many, even + (rest - even * following), high);

    // The last channel is `high`, also when it is full.
    const auto ends_full = last == none && none < between;
    const Int inner = between - select(ends_full, one, none);
    const Int outer = select(ends_full, wide, last);

    // Nothing fits into the first channel: the next one is the first.
    const auto skips = low == none;
    const auto only = inner == none;
    return {channel + select(skips, one, none), select(skips, select(only, outer, wide), low),
            inner - select(skips, select(only, none, one), none), wide,
            select(skips, select(only, none, outer), outer)};
}

/// Elements of a part of `cells` cells that begins at element `begin` of `count`: the last cell may not be full.
template <class Int>
[[nodiscard]] constexpr Int given(const Int& cells, const Int& cell_elements, const Int& begin, const Int& count) {
    return smaller(cells * cell_elements, count - begin);
}

/// Ring all-reduce cuts a part of `count` elements into `whole` loops of one chunk for each rank, and a rest of at most
/// as many blocks of `length` elements. NCCL 2.28.9 device/all_reduce.h, runRing.
template <class Int>
struct Loops {
    Int whole, looped, rest, length, blocks;
};
template <class Int>
[[nodiscard]] constexpr Loops<Int> loops(const Int& count, const Int& ranks, const Int& chunk, const Int& grain) {
    const Int whole = count / (ranks * chunk);
    const Int looped = whole * (ranks * chunk);
    const Int rest = count - looped;
    const Int length = round_up(divide_up(rest, ranks), grain);
    return {whole, looped, rest, length, divide_up(rest, select(Int(0) < length, length, Int(1)))};
}

}  // namespace samesum::deal
