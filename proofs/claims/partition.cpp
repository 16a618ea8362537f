// NCCL's partition covers each call exactly once, for any count: the model's own templates, executed.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "model/nccl/channel_split.hpp"
#include "proofs/claims/claims.hpp"
#include "proofs/engine/lemma.hpp"

namespace samesum {
namespace {

/// Cells: the units in which elements are dealt.
Lemmas cells_hold_the_call() {
    Lemmas all;
    all.add("cells", [](Lemma& l) {
        const SymbolicInteger min = l.natural("least"), weight = l.natural("weight");
        const SymbolicInteger cell = l.code("cell_bytes", [&] { return channel_split::cell_bytes(min, weight); });
        l.assume("there_is_traffic", min >= SymbolicInteger(1) && weight >= SymbolicInteger(1));
        l.show("at_least_16_bytes", cell >= SymbolicInteger(16));
        l.show("multiples_of_16_bytes", cell == cell / SymbolicInteger(16) * SymbolicInteger(16));
        l.show("make_the_least_traffic", cell * weight >= min);
        l.show("by_less_than_16_bytes",
               implies(cell > SymbolicInteger(16), (cell - SymbolicInteger(16)) * weight < min));
    });
    for (const std::uint64_t width : {1, 2, 4, 8})
        all.add(fmt::format("count.{}", width), [=](Lemma& l) {
            const SymbolicInteger count = l.natural("count"),
                                  cell = l.natural("cell_of_16_bytes") * SymbolicInteger(16);
            const SymbolicInteger elements = cell / SymbolicInteger(width);
            const SymbolicInteger cells =
                l.code("divide_up", [&] { return channel_split::divide_up(count * SymbolicInteger(width), cell); });
            l.assume("a_call", count >= SymbolicInteger(1) && cell >= SymbolicInteger(16));
            l.show("at_least_one", cells >= SymbolicInteger(1));
            l.show("hold_all_elements", cells * elements >= count);
            l.show("none_is_empty", (cells - SymbolicInteger(1)) * elements < count);
        });
    return all;
}

/// low + middle x full + high. By induction over the calls of a plan the channel that a call begins on exists, and has
/// room or is the last.
Lemmas all_cells_are_dealt() {
    Lemmas all;
    const auto has_room = [](const channel_split::Filled<SymbolicInteger>& filled, const SymbolicInteger& per_channel,
                             const SymbolicInteger& max) {
        return filled.channel < max && (filled.channel + SymbolicInteger(1) == max || filled.traffic < per_channel);
    };
    all.add("room", [=](Lemma& l) {
        const channel_split::Filled<SymbolicInteger> filled{l.natural("channel"), l.natural("traffic")};
        const SymbolicInteger per_channel = l.natural("per_channel"), cell = l.natural("cell_traffic"),
                              max = l.natural("most");
        const SymbolicInteger room = l.code("room", [&] { return channel_split::room(filled, per_channel, cell); });
        const SymbolicInteger whole = channel_split::divide_up(per_channel, cell);
        l.assume("induction_hypothesis", has_room(filled, per_channel, max));
        l.assume("there_is_traffic", per_channel >= SymbolicInteger(1) && cell >= SymbolicInteger(1));
        l.show("for_a_cell", filled.channel + SymbolicInteger(1) == max || room >= SymbolicInteger(1));
        l.show("for_all_that_fits", filled.traffic + room * cell >= per_channel);
        l.show("and_no_more",
               implies(room >= SymbolicInteger(1), filled.traffic + (room - SymbolicInteger(1)) * cell < per_channel));
        l.show("a_channel_takes_a_cell", whole >= SymbolicInteger(1));
    });
    all.add("deal", [](Lemma& l) {
        const SymbolicInteger cells = l.natural("cells"), whole = l.natural("whole"), room = l.natural("room");
        const SymbolicInteger channel = l.natural("channel"), max = l.natural("most");
        const auto dealt =
            l.code("deal", [&] { return channel_split::channel_split(cells, whole, room, channel, max); });
        const Truth last = channel + SymbolicInteger(1) == max;
        const SymbolicInteger channels = SymbolicInteger(1) + dealt.middle + count_if(dealt.high > SymbolicInteger(0));
        l.assume("a_call", cells >= SymbolicInteger(1) && whole >= SymbolicInteger(1));
        l.assume("a_channel", channel < max);
        l.assume("with_room", last || room >= SymbolicInteger(1));
        l.show("each_cell_once", dealt.low + dealt.middle * dealt.full + dealt.high == cells);
        l.show("begins_where_the_last_ended", dealt.channel == channel);
        l.show("no_channel_idles", dealt.low >= SymbolicInteger(1) &&
                                       implies(dealt.middle > SymbolicInteger(0), dealt.full >= SymbolicInteger(1)));
        l.show("channels_exist", channel + channels <= max);
        l.show("the_last_is_high", implies(dealt.high == SymbolicInteger(0), dealt.middle == SymbolicInteger(0)));
        l.show("the_first_takes_what_fits", dealt.low == select(last, cells, channel_split::smaller(room, cells)));
        // Channels in the middle are full, unless there are too few: then they share evenly.
        const Truth enough = dealt.high <= whole;
        l.show("full_channels", implies(dealt.middle > SymbolicInteger(0) && enough, dealt.full <= whole));
        l.show("none_more_than_full_where_channels_suffice",
               implies(room + (max - channel - SymbolicInteger(1)) * whole >= cells, enough || last));
        l.show("too_few_channels_are_all_used", implies(!enough, channel + channels == max));
        l.show("even_shares",
               implies(dealt.middle > SymbolicInteger(0) && !enough,
                       dealt.high < dealt.full + dealt.middle + SymbolicInteger(1) && dealt.high >= dealt.full));
    });
    all.add("next_call", [=](Lemma& l) {
        const SymbolicInteger per_channel = l.natural("per_channel"), cell = l.natural("cell_traffic"),
                              max = l.natural("most");
        const channel_split::Filled<SymbolicInteger> before{l.natural("channel"), l.natural("traffic")};
        const channel_split::Deal<SymbolicInteger> dealt{before.channel, l.natural("low"), l.natural("middle"),
                                                         l.natural("full"), l.natural("high")};
        const auto after =
            l.code("filled_after", [&] { return channel_split::filled_after(dealt, before, per_channel, cell, max); });
        const Truth goes_on = dealt.high > SymbolicInteger(0);
        const SymbolicInteger ends_on =
            before.channel + select(goes_on, dealt.middle + SymbolicInteger(1), SymbolicInteger(0));
        const SymbolicInteger now = select(goes_on, dealt.high * cell, before.traffic + dealt.low * cell);
        l.assume("there_is_traffic", per_channel >= SymbolicInteger(1) && cell >= SymbolicInteger(1));
        l.assume("channels_exist", ends_on < max);
        l.show("has_room", has_room(after, per_channel, max));
        l.show("goes_on_where_the_last_ended", (after.channel == ends_on && after.traffic == now) ||
                                                   (after.channel == ends_on + SymbolicInteger(1) &&
                                                    after.traffic == SymbolicInteger(0) && now >= per_channel));
    });
    all.add("first_call", [=](Lemma& l) {
        const SymbolicInteger per_channel = l.natural("per_channel"), max = l.natural("most");
        l.assume("there_is_traffic", per_channel >= SymbolicInteger(1) && max >= SymbolicInteger(1));
        l.show("has_room", has_room({l.constant(0), l.constant(0)}, per_channel, max));
    });
    return all;
}

/// By induction over a call's parts: after parts of c cells so many elements are given as c cells hold.
Lemmas parts_cover_the_call() {
    Lemmas all;
    all.add("step", [](Lemma& l) {
        const SymbolicInteger before = l.natural("cells_before"), cells = l.natural("cells_given");
        const SymbolicInteger elements = l.natural("cell_elements"), count = l.natural("count"),
                              begin = l.natural("begin");
        const SymbolicInteger given =
            l.code("given", [&] { return channel_split::given(cells, elements, begin, count); });
        l.assume("induction_hypothesis", begin == channel_split::smaller(before * elements, count));
        l.show("so_many_are_given", begin + given == channel_split::smaller((before + cells) * elements, count));
    });
    all.add("no_part_is_empty", [](Lemma& l) {
        const SymbolicInteger before = l.natural("cells_before"), after = l.natural("cells_after");
        const SymbolicInteger elements = l.natural("cell_elements"), count = l.natural("count"),
                              begin = before * elements;
        const SymbolicInteger cells = SymbolicInteger(1) + after;
        const SymbolicInteger given =
            l.code("given", [&] { return channel_split::given(cells, elements, begin, count); });
        l.assume("no_cell_is_empty", (before + after) * elements < count && elements >= SymbolicInteger(1));
        l.show("something_is_given", given >= SymbolicInteger(1));
    });
    all.add("end", [](Lemma& l) {
        const SymbolicInteger cells = l.natural("cells"), elements = l.natural("cell_elements"),
                              count = l.natural("count");
        l.assume("cells_hold_all_elements", cells * elements >= count);
        l.show("all_are_given", channel_split::smaller(cells * elements, count) == count);
    });
    all.add("destinations_lie_apart", [](Lemma& l) {
        // reduce_scatter deals the elements of one destination; the parts of all destinations lie a block apart.
        const SymbolicInteger count = l.natural("count"), d = l.natural("destination"), x = l.natural("x"),
                              y = l.natural("y");
        const SymbolicInteger e = d + SymbolicInteger(1) + l.natural("between");
        l.assume("elements_of_a_block", x < count && y < count);
        l.show("no_element_twice", d * count + x < e * count + y);
    });
    return all;
}

/// Ring all-reduce: loops of one chunk for each rank, then a rest that is cut into as many blocks at most.
Lemmas loops_cover_the_part() {
    Lemmas all;
    all.add("whole_loops", [](Lemma& l) {
        const SymbolicInteger count = l.natural("count"), loop = l.natural("ranks"), chunk = l.natural("chunk");
        const SymbolicInteger looped = l.code("looped", [&] { return channel_split::looped(count, loop, chunk); });
        l.assume("ranks_and_chunks", loop >= SymbolicInteger(1) && chunk >= SymbolicInteger(1));
        l.show("whole_loops", looped == count / (loop * chunk) * (loop * chunk));
        l.show("of_the_part", looped <= count);
        l.show("less_than_a_loop_rests", count < looped + loop * chunk);
    });
    for (const std::uint64_t grain : {2, 4, 8, 16})
        all.add(fmt::format("last_loop.{}", grain), [=](Lemma& l) {
            const SymbolicInteger rest = l.natural("rest"), ranks = l.natural("ranks"), unit = l.constant(grain);
            l.assume("a_rest", rest >= SymbolicInteger(1) && ranks >= SymbolicInteger(1));
            const auto blocks = l.code("last_loop", [&] { return channel_split::last_loop(rest, ranks, unit); });
            l.show("blocks_hold_the_rest", blocks.count * blocks.length >= rest);
            l.show("none_is_empty", (blocks.count - SymbolicInteger(1)) * blocks.length < rest);
            l.show("one_for_each_rank_at_most", blocks.count >= SymbolicInteger(1) && blocks.count <= ranks);
            l.show("aligned", blocks.length == blocks.length / unit * unit);
            l.show("no_longer_than_needed", (blocks.length - unit) * ranks < rest);
        });
    return all;
}

}  // namespace

std::vector<Obligation> claims_of_partition() {
    std::vector<Obligation> claims;
    std::vector<Statement> mutations;
    const auto add = [&](Obligation claim, const Lemmas& lemmas) {
        for (Statement& each : lemmas.mutations(20)) mutations.push_back(std::move(each));
        claim.assumes_of_nccl = {"deals_are_nccls"};
        claim.statements = lemmas.statements();
        claims.push_back(std::move(claim));
    };
    add({.name = "cells_hold_the_call",
         .sentence = "a call's cells hold all of its elements, and none is empty",
         .scope = "any count, weight, format"},
        cells_hold_the_call());
    add({.name = "all_cells_are_dealt",
         .sentence = "every cell goes to exactly one existing channel, and no channel in between gets none",
         .scope = "any cells, channels, earlier calls"},
        all_cells_are_dealt());
    add({.name = "parts_cover_the_call",
         .sentence = "the channels' parts are not empty, lie one after another, and cover the call",
         .scope = "any count, channels, format"},
        parts_cover_the_call());
    add({.name = "loops_cover_the_part",
         .sentence = "the chunks of ring all-reduce lie one after another and cover the channel's part",
         .scope = "any count, ranks, chunk, format"},
        loops_cover_the_part());
    claims.push_back(mutations_are_refuted("model/nccl/channel_split.hpp", std::move(mutations)));
    return claims;
}

}  // namespace samesum
