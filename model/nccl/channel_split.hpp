// How a call's elements are dealt to channels and chunks: NCCL's index arithmetic, over any integer type.
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

/// Bytes of a cell: what makes `least` bytes of traffic when each byte counts `weight` times.
template <class Int>
[[nodiscard]] constexpr Int cell_bytes(const Int& min, const Int& weight) {
    return round_up(divide_up(min, weight), Int(16));
}

/// How far the calls so far have filled the channels: those before `channel` wholly, that one with `traffic`.
template <class Int>
struct Filled {
    Int channel, traffic;
};
/// Cells of `cell_traffic` that still fit into the channel being filled, when a channel takes `per_channel`.
template <class Int>
[[nodiscard]] constexpr Int room(const Filled<Int>& filled, const Int& per_channel, const Int& cell_traffic) {
    return divide_up(per_channel - smaller(filled.traffic, per_channel), cell_traffic);
}

/// A call's cells on consecutive channels from `channel` on: `low` on the first, `full` on each of `middle` channels,
/// `high` on the last.
template <class Int>
struct Deal {
    Int channel, low, middle, full, high;
};
/// `whole`: cells that fill a channel; `room`: cells that still fit into `channel`, of `most` channels; none of them
/// 0, but `room` when the channel is the last. NCCL 2.28.9 enqueue.cc, scheduleCollTasksToPlan; what it provides there
/// for a first channel without room cannot occur, since such a channel is never left to the next call.
template <class Int>
[[nodiscard]] constexpr Deal<Int> channel_split(const Int& cells, const Int& whole, const Int& room, const Int& channel,
                                                const Int& max) {
    const Int none(0), one(1);
    const Int low = select(channel + one == max, cells, smaller(cells, room));
    const Int rest = cells - low;
    const Int full = smaller(cells, whole);
    const Int middle = rest / full, high = rest - middle * full;

    // More than there are channels: the rest goes evenly to those that follow, the last taking the remainder.
    const auto too_many = max < channel + one + divide_up(rest, full);
    const Int following = larger(one, max - channel - one);
    const Int even = rest / following;
    const Int wide = select(too_many, even, full);
    const Int between = select(too_many, following - one, middle);
    const Int last = select(too_many, even + (rest - even * following), high);

    // The last channel is `high`, also when it is full.
    const auto ends_full = last == none && none < between;
    return {channel, low, between - select(ends_full, one, none), wide, select(ends_full, wide, last)};
}
/// Where the next call finds the channels. It sees whole cells taken, also where the last one is not full.
template <class Int>
[[nodiscard]] constexpr Filled<Int> filled_after(const Deal<Int>& dealt, const Filled<Int>& before,
                                                 const Int& per_channel, const Int& cell_traffic, const Int& max) {
    const Int none(0), one(1);
    const auto goes_on = none < dealt.high;
    const Int channel = dealt.channel + select(goes_on, dealt.middle + one, none);
    const Int traffic = select(goes_on, dealt.high * cell_traffic, before.traffic + dealt.low * cell_traffic);
    const auto next = !(traffic < per_channel) && !(channel + one == max);
    return {channel + select(next, one, none), select(next, none, traffic)};
}

/// Elements of a part of `cells` cells that begins at element `begin` of `count`: the last cell may not be full.
template <class Int>
[[nodiscard]] constexpr Int given(const Int& cells, const Int& cell_elements, const Int& begin, const Int& count) {
    return smaller(cells * cell_elements, count - begin);
}

/// Ring all-reduce cuts a part of `count` elements into loops of one chunk for each rank: elements of whole loops.
/// NCCL 2.28.9 device/all_reduce.h, runRing.
template <class Int>
[[nodiscard]] constexpr Int looped(const Int& count, const Int& ranks, const Int& chunk) {
    return count / (ranks * chunk) * (ranks * chunk);
}
/// The last loop, if anything is left for it: `rest` elements in blocks of `length`, in units of `grain`, one for each
/// rank or fewer.
template <class Int>
struct Blocks {
    Int length, count;
};
template <class Int>
[[nodiscard]] constexpr Blocks<Int> last_loop(const Int& rest, const Int& ranks, const Int& grain) {
    const Int length = round_up(divide_up(rest, ranks), grain);
    return {length, divide_up(rest, length)};
}

}  // namespace samesum::channel_split
