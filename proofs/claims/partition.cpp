// NCCL's partition covers each call exactly once, for any count: proved by executing the model's templates.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "model/nccl/channel_split.hpp"
#include "proofs/claims/claims.hpp"
#include "proofs/engine/lemma.hpp"

namespace samesum {
namespace {

/// Cells: the units in which a call is split over channels.
Lemmas cells_hold_the_call() {
    Lemmas all;
    all.add("cells", [](Lemma& l) {
        const SymbolicInteger min = l.natural("min_traffic"), weight = l.natural("traffic_per_byte");
        const SymbolicInteger cell = l.code("cell_bytes", [&] { return channel_split::cell_bytes(min, weight); });
        l.assume("there_is_traffic", min >= SymbolicInteger(1) && weight >= SymbolicInteger(1));
        l.show("at_least_16_bytes", cell >= SymbolicInteger(16));
        l.show("multiples_of_16_bytes", cell == cell / SymbolicInteger(16) * SymbolicInteger(16));
        l.show("make_the_minimal_traffic", cell * weight >= min);
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

/// By induction over the calls of a plan: the channel that a call begins on exists, and has room or is the last.
Truth has_room(const channel_split::CurrentChannel<SymbolicInteger>& current, const SymbolicInteger& per_channel,
               const SymbolicInteger& max) {
    return current.channel < max && (current.channel + SymbolicInteger(1) == max || current.traffic < per_channel);
}

void fitting_cells_fill_the_channel(Lemma& l) {
    const channel_split::CurrentChannel<SymbolicInteger> current{l.natural("channel"), l.natural("traffic")};
    const SymbolicInteger per_channel = l.natural("traffic_per_channel"), cell = l.natural("traffic_per_cell"),
                          max = l.natural("max_channels");
    const SymbolicInteger fitting =
        l.code("cells_that_fit", [&] { return channel_split::cells_that_fit(current, per_channel, cell); });
    const SymbolicInteger full_channel = channel_split::divide_up(per_channel, cell);
    l.assume("induction_hypothesis", has_room(current, per_channel, max));
    l.assume("there_is_traffic", per_channel >= SymbolicInteger(1) && cell >= SymbolicInteger(1));
    l.show("room_for_a_cell", current.channel + SymbolicInteger(1) == max || fitting >= SymbolicInteger(1));
    l.show("they_fill_the_channel", current.traffic + fitting * cell >= per_channel);
    l.show("one_less_does_not", implies(fitting >= SymbolicInteger(1),
                                        current.traffic + (fitting - SymbolicInteger(1)) * cell < per_channel));
    l.show("a_channel_takes_a_cell", full_channel >= SymbolicInteger(1));
}

/// cells_lo + mid_channels x cells_per_channel + cells_hi.
void the_split_holds_all_cells(Lemma& l) {
    const SymbolicInteger cells = l.natural("cells"), full_channel = l.natural("full_channel"),
                          fitting = l.natural("fitting");
    const SymbolicInteger channel = l.natural("channel"), max = l.natural("max_channels");
    const auto split =
        l.code("split_cells", [&] { return channel_split::split_cells(cells, full_channel, fitting, channel, max); });
    const Truth last = channel + SymbolicInteger(1) == max;
    const Truth has_middle = split.mid_channels > SymbolicInteger(0);
    const SymbolicInteger channels =
        SymbolicInteger(1) + split.mid_channels + count_if(split.cells_hi > SymbolicInteger(0));
    l.assume("a_call", cells >= SymbolicInteger(1) && full_channel >= SymbolicInteger(1));
    l.assume("a_channel", channel < max);
    l.assume("with_room", last || fitting >= SymbolicInteger(1));
    l.show("each_cell_once", split.cells_lo + split.mid_channels * split.cells_per_channel + split.cells_hi == cells);
    l.show("begins_on_the_channel", split.first_channel == channel);
    l.show("no_channel_idles",
           split.cells_lo >= SymbolicInteger(1) && implies(has_middle, split.cells_per_channel >= SymbolicInteger(1)));
    l.show("channels_exist", channel + channels <= max);
    l.show("the_last_is_high", implies(split.cells_hi == SymbolicInteger(0), split.mid_channels == SymbolicInteger(0)));
    l.show("the_first_takes_what_fits", split.cells_lo == select(last, cells, channel_split::smaller(fitting, cells)));
    // Channels in the middle are full, unless there are too few: then they share evenly.
    const Truth enough = split.cells_hi <= full_channel;
    l.show("full_channels", implies(has_middle && enough, split.cells_per_channel <= full_channel));
    l.show("none_more_than_full_where_channels_suffice",
           implies(fitting + (max - channel - SymbolicInteger(1)) * full_channel >= cells, enough || last));
    l.show("too_few_channels_are_all_used", implies(!enough, channel + channels == max));
    l.show("even_shares", implies(has_middle && !enough,
                                  split.cells_hi < split.cells_per_channel + split.mid_channels + SymbolicInteger(1) &&
                                      split.cells_hi >= split.cells_per_channel));
}

void the_next_call_has_room(Lemma& l) {
    const SymbolicInteger per_channel = l.natural("traffic_per_channel"), cell = l.natural("traffic_per_cell"),
                          max = l.natural("max_channels");
    const channel_split::CurrentChannel<SymbolicInteger> before{l.natural("channel"), l.natural("traffic")};
    const channel_split::CellSplit<SymbolicInteger> split{before.channel, l.natural("cells_lo"),
                                                          l.natural("mid_channels"), l.natural("cells_per_channel"),
                                                          l.natural("cells_hi")};
    const auto after =
        l.code("channel_after", [&] { return channel_split::channel_after(split, before, per_channel, cell, max); });
    const Truth has_hi = split.cells_hi > SymbolicInteger(0);
    const SymbolicInteger ends_on =
        before.channel + select(has_hi, split.mid_channels + SymbolicInteger(1), SymbolicInteger(0));
    const SymbolicInteger now = select(has_hi, split.cells_hi * cell, before.traffic + split.cells_lo * cell);
    l.assume("there_is_traffic", per_channel >= SymbolicInteger(1) && cell >= SymbolicInteger(1));
    l.assume("channels_exist", ends_on < max);
    l.show("has_room", has_room(after, per_channel, max));
    l.show("continues_where_this_call_ended", (after.channel == ends_on && after.traffic == now) ||
                                                  (after.channel == ends_on + SymbolicInteger(1) &&
                                                   after.traffic == SymbolicInteger(0) && now >= per_channel));
}

Lemmas every_cell_has_one_channel() {
    Lemmas all;
    all.add("room", fitting_cells_fill_the_channel);
    all.add("split", the_split_holds_all_cells);
    all.add("next_call", the_next_call_has_room);
    all.add("first_call", [](Lemma& l) {
        const SymbolicInteger per_channel = l.natural("traffic_per_channel"), max = l.natural("max_channels");
        l.assume("there_is_traffic", per_channel >= SymbolicInteger(1) && max >= SymbolicInteger(1));
        l.show("has_room", has_room({l.constant(0), l.constant(0)}, per_channel, max));
    });
    return all;
}

/// By induction over a call's parts: parts of c cells in all hold min(c x cell elements, count) elements.
Lemmas parts_cover_the_call() {
    Lemmas all;
    all.add("step", [](Lemma& l) {
        const SymbolicInteger before = l.natural("cells_before"), cells = l.natural("cells");
        const SymbolicInteger elements = l.natural("cell_elements"), count = l.natural("count"),
                              begin = l.natural("begin");
        const SymbolicInteger part =
            l.code("part_elements", [&] { return channel_split::part_elements(cells, elements, begin, count); });
        l.assume("induction_hypothesis", begin == channel_split::smaller(before * elements, count));
        l.show("the_next_part_begins", begin + part == channel_split::smaller((before + cells) * elements, count));
    });
    all.add("no_part_is_empty", [](Lemma& l) {
        const SymbolicInteger before = l.natural("cells_before"), after = l.natural("cells_after");
        const SymbolicInteger elements = l.natural("cell_elements"), count = l.natural("count"),
                              begin = before * elements;
        const SymbolicInteger cells = SymbolicInteger(1) + after;
        const SymbolicInteger part =
            l.code("part_elements", [&] { return channel_split::part_elements(cells, elements, begin, count); });
        l.assume("no_cell_is_empty", (before + after) * elements < count && elements >= SymbolicInteger(1));
        l.show("the_part_is_not_empty", part >= SymbolicInteger(1));
    });
    all.add("end", [](Lemma& l) {
        const SymbolicInteger cells = l.natural("cells"), elements = l.natural("cell_elements"),
                              count = l.natural("count");
        l.assume("cells_hold_all_elements", cells * elements >= count);
        l.show("all_are_covered", channel_split::smaller(cells * elements, count) == count);
    });
    all.add("destinations_lie_apart", [](Lemma& l) {
        // reduce_scatter splits the elements of one destination; the parts of two destinations lie a block apart.
        const SymbolicInteger count = l.natural("count"), d = l.natural("destination"), x = l.natural("x"),
                              y = l.natural("y");
        const SymbolicInteger e = d + SymbolicInteger(1) + l.natural("between");
        l.assume("elements_of_a_block", x < count && y < count);
        l.show("no_element_twice", d * count + x < e * count + y);
    });
    return all;
}

/// Ring all-reduce: loops of one chunk for each rank, then a rest in at most one block for each rank.
Lemmas loops_cover_the_part() {
    Lemmas all;
    all.add("whole_loops", [](Lemma& l) {
        const SymbolicInteger count = l.natural("count"), loop = l.natural("ranks"), chunk = l.natural("chunk");
        const SymbolicInteger looped =
            l.code("whole_loops", [&] { return channel_split::whole_loops(count, loop, chunk); });
        l.assume("ranks_and_chunks", loop >= SymbolicInteger(1) && chunk >= SymbolicInteger(1));
        l.show("whole_loops", looped == count / (loop * chunk) * (loop * chunk));
        l.show("of_the_part", looped <= count);
        l.show("less_than_a_loop_is_left", count < looped + loop * chunk);
    });
    for (const std::uint64_t alignment : {2, 4, 8, 16})
        all.add(fmt::format("last_loop.{}", alignment), [=](Lemma& l) {
            const SymbolicInteger rest = l.natural("rest"), ranks = l.natural("ranks"), unit = l.constant(alignment);
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
        claim.assumes_of_nccl = {"channel_split_is_nccls"};
        claim.statements = lemmas.statements();
        claims.push_back(std::move(claim));
    };
    add({.name = "cells_hold_the_call",
         .sentence = "a call's cells hold all of its elements, and none is empty",
         .scope = "any count, weight, format"},
        cells_hold_the_call());
    add({.name = "every_cell_has_one_channel",
         .sentence = "every cell is on exactly one existing channel, and no channel in between is empty",
         .scope = "any cells, channels, earlier calls"},
        every_cell_has_one_channel());
    add({.name = "parts_cover_the_call",
         .sentence = "the channels' parts are not empty, are consecutive, and cover the call",
         .scope = "any count, channels, format"},
        parts_cover_the_call());
    add({.name = "loops_cover_the_part",
         .sentence = "the chunks of ring all-reduce are consecutive and cover the channel's part",
         .scope = "any count, ranks, chunk, format"},
        loops_cover_the_part());
    claims.push_back(mutations_are_refuted("model/nccl/channel_split.hpp", std::move(mutations)));
    return claims;
}

}  // namespace samesum
