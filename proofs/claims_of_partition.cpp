// NCCL's partition covers each call exactly once, for any count: the model's own templates, executed.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "model/deal.hpp"
#include "proofs/claims.hpp"
#include "proofs/lemma.hpp"

namespace samesum {
namespace {

/// Cells: the units in which elements are dealt.
Lemmas cells_hold_the_call() {
    Lemmas all;
    all.add("cells", [](Lemma& l) {
        const Natural least = l.natural("least"), weight = l.natural("weight");
        const Natural cell = l.code("cell_bytes", [&] { return deal::cell_bytes(least, weight); });
        l.assume("there_is_traffic", least >= Natural(1) && weight >= Natural(1));
        l.show("at_least_16_bytes", cell >= Natural(16));
        l.show("multiples_of_16_bytes", cell == cell / Natural(16) * Natural(16));
        l.show("make_the_least_traffic", cell * weight >= least);
        l.show("by_less_than_16_bytes", implies(cell > Natural(16), (cell - Natural(16)) * weight < least));
    });
    for (const std::uint64_t width : {1, 2, 4, 8})
        all.add(fmt::format("count.{}", width), [=](Lemma& l) {
            const Natural count = l.natural("count"), cell = l.natural("cell_of_16_bytes") * Natural(16);
            const Natural elements = cell / Natural(width);
            const Natural cells = l.code("divide_up", [&] { return deal::divide_up(count * Natural(width), cell); });
            l.assume("a_call", count >= Natural(1) && cell >= Natural(16));
            l.show("at_least_one", cells >= Natural(1));
            l.show("hold_all_elements", cells * elements >= count);
            l.show("none_is_empty", (cells - Natural(1)) * elements < count);
        });
    return all;
}

/// low + middle x full + high. By induction over the calls of a plan the channel that a call begins on exists, and has
/// room or is the last.
Lemmas all_cells_are_dealt() {
    Lemmas all;
    const auto has_room = [](const deal::Filled<Natural>& filled, const Natural& per_channel, const Natural& most) {
        return filled.channel < most && (filled.channel + Natural(1) == most || filled.traffic < per_channel);
    };
    all.add("room", [=](Lemma& l) {
        const deal::Filled<Natural> filled{l.natural("channel"), l.natural("traffic")};
        const Natural per_channel = l.natural("per_channel"), cell = l.natural("cell_traffic"),
                      most = l.natural("most");
        const Natural room = l.code("room", [&] { return deal::room(filled, per_channel, cell); });
        const Natural whole = deal::divide_up(per_channel, cell);
        l.assume("induction_hypothesis", has_room(filled, per_channel, most));
        l.assume("there_is_traffic", per_channel >= Natural(1) && cell >= Natural(1));
        l.show("for_a_cell", filled.channel + Natural(1) == most || room >= Natural(1));
        l.show("for_all_that_fits", filled.traffic + room * cell >= per_channel);
        l.show("and_no_more", implies(room >= Natural(1), filled.traffic + (room - Natural(1)) * cell < per_channel));
        l.show("a_channel_takes_a_cell", whole >= Natural(1));
    });
    all.add("deal", [](Lemma& l) {
        const Natural cells = l.natural("cells"), whole = l.natural("whole"), room = l.natural("room");
        const Natural channel = l.natural("channel"), most = l.natural("most");
        const auto dealt = l.code("deal", [&] { return deal::deal(cells, whole, room, channel, most); });
        const Truth last = channel + Natural(1) == most;
        const Natural channels = Natural(1) + dealt.middle + count_if(dealt.high > Natural(0));
        l.assume("a_call", cells >= Natural(1) && whole >= Natural(1));
        l.assume("a_channel", channel < most);
        l.assume("with_room", last || room >= Natural(1));
        l.show("each_cell_once", dealt.low + dealt.middle * dealt.full + dealt.high == cells);
        l.show("begins_where_the_last_ended", dealt.channel == channel);
        l.show("no_channel_idles",
               dealt.low >= Natural(1) && implies(dealt.middle > Natural(0), dealt.full >= Natural(1)));
        l.show("channels_exist", channel + channels <= most);
        l.show("the_last_is_high", implies(dealt.high == Natural(0), dealt.middle == Natural(0)));
        l.show("the_first_takes_what_fits", dealt.low == select(last, cells, deal::smaller(room, cells)));
        // Channels in the middle are full, unless there are too few: then they share evenly.
        const Truth enough = dealt.high <= whole;
        l.show("full_channels", implies(dealt.middle > Natural(0) && enough, dealt.full <= whole));
        l.show("none_more_than_full_where_channels_suffice",
               implies(room + (most - channel - Natural(1)) * whole >= cells, enough || last));
        l.show("too_few_channels_are_all_used", implies(!enough, channel + channels == most));
        l.show("even_shares", implies(dealt.middle > Natural(0) && !enough,
                                      dealt.high < dealt.full + dealt.middle + Natural(1) && dealt.high >= dealt.full));
    });
    all.add("next_call", [=](Lemma& l) {
        const Natural per_channel = l.natural("per_channel"), cell = l.natural("cell_traffic"),
                      most = l.natural("most");
        const deal::Filled<Natural> before{l.natural("channel"), l.natural("traffic")};
        const deal::Deal<Natural> dealt{before.channel, l.natural("low"), l.natural("middle"), l.natural("full"),
                                        l.natural("high")};
        const auto after =
            l.code("filled_after", [&] { return deal::filled_after(dealt, before, per_channel, cell, most); });
        const Truth goes_on = dealt.high > Natural(0);
        const Natural ends_on = before.channel + select(goes_on, dealt.middle + Natural(1), Natural(0));
        const Natural now = select(goes_on, dealt.high * cell, before.traffic + dealt.low * cell);
        l.assume("there_is_traffic", per_channel >= Natural(1) && cell >= Natural(1));
        l.assume("channels_exist", ends_on < most);
        l.show("has_room", has_room(after, per_channel, most));
        l.show("goes_on_where_the_last_ended",
               (after.channel == ends_on && after.traffic == now) ||
                   (after.channel == ends_on + Natural(1) && after.traffic == Natural(0) && now >= per_channel));
    });
    all.add("first_call", [=](Lemma& l) {
        const Natural per_channel = l.natural("per_channel"), most = l.natural("most");
        l.assume("there_is_traffic", per_channel >= Natural(1) && most >= Natural(1));
        l.show("has_room", has_room({l.constant(0), l.constant(0)}, per_channel, most));
    });
    return all;
}

/// By induction over a call's parts: after parts of c cells so many elements are given as c cells hold.
Lemmas parts_cover_the_call() {
    Lemmas all;
    all.add("step", [](Lemma& l) {
        const Natural before = l.natural("cells_before"), cells = l.natural("cells_given");
        const Natural elements = l.natural("cell_elements"), count = l.natural("count"), begin = l.natural("begin");
        const Natural given = l.code("given", [&] { return deal::given(cells, elements, begin, count); });
        l.assume("induction_hypothesis", begin == deal::smaller(before * elements, count));
        l.show("so_many_are_given", begin + given == deal::smaller((before + cells) * elements, count));
    });
    all.add("no_part_is_empty", [](Lemma& l) {
        const Natural before = l.natural("cells_before"), after = l.natural("cells_after");
        const Natural elements = l.natural("cell_elements"), count = l.natural("count"), begin = before * elements;
        const Natural cells = Natural(1) + after;
        const Natural given = l.code("given", [&] { return deal::given(cells, elements, begin, count); });
        l.assume("no_cell_is_empty", (before + after) * elements < count && elements >= Natural(1));
        l.show("something_is_given", given >= Natural(1));
    });
    all.add("end", [](Lemma& l) {
        const Natural cells = l.natural("cells"), elements = l.natural("cell_elements"), count = l.natural("count");
        l.assume("cells_hold_all_elements", cells * elements >= count);
        l.show("all_are_given", deal::smaller(cells * elements, count) == count);
    });
    all.add("destinations_lie_apart", [](Lemma& l) {
        // reduce_scatter deals the elements of one destination; the parts of all destinations lie a block apart.
        const Natural count = l.natural("count"), d = l.natural("destination"), x = l.natural("x"), y = l.natural("y");
        const Natural e = d + Natural(1) + l.natural("between");
        l.assume("elements_of_a_block", x < count && y < count);
        l.show("no_element_twice", d * count + x < e * count + y);
    });
    return all;
}

/// Ring all-reduce: loops of one chunk for each rank, then a rest that is cut into as many blocks at most.
Lemmas loops_cover_the_part() {
    Lemmas all;
    all.add("whole_loops", [](Lemma& l) {
        const Natural count = l.natural("count"), loop = l.natural("ranks"), chunk = l.natural("chunk");
        const Natural looped = l.code("looped", [&] { return deal::looped(count, loop, chunk); });
        l.assume("ranks_and_chunks", loop >= Natural(1) && chunk >= Natural(1));
        l.show("whole_loops", looped == count / (loop * chunk) * (loop * chunk));
        l.show("of_the_part", looped <= count);
        l.show("less_than_a_loop_rests", count < looped + loop * chunk);
    });
    for (const std::uint64_t grain : {2, 4, 8, 16})
        all.add(fmt::format("last_loop.{}", grain), [=](Lemma& l) {
            const Natural rest = l.natural("rest"), ranks = l.natural("ranks"), unit = l.constant(grain);
            l.assume("a_rest", rest >= Natural(1) && ranks >= Natural(1));
            const auto blocks = l.code("last_loop", [&] { return deal::last_loop(rest, ranks, unit); });
            l.show("blocks_hold_the_rest", blocks.count * blocks.length >= rest);
            l.show("none_is_empty", (blocks.count - Natural(1)) * blocks.length < rest);
            l.show("one_for_each_rank_at_most", blocks.count >= Natural(1) && blocks.count <= ranks);
            l.show("aligned", blocks.length == blocks.length / unit * unit);
            l.show("no_longer_than_needed", (blocks.length - unit) * ranks < rest);
        });
    return all;
}

}  // namespace

std::vector<Obligation> claims_of_partition() {
    std::vector<Obligation> claims;
    std::vector<Statement> planted;
    const auto add = [&](Obligation claim, const Lemmas& lemmas) {
        for (Statement& each : lemmas.planted(20)) planted.push_back(std::move(each));
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
    claims.push_back(planted_changes("model/deal.hpp", std::move(planted)));
    return claims;
}

}  // namespace samesum
