// Which bytes the combines of impl/ move where, for any number of ranks and any sizes: its own templates, executed.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <set>
#include <utility>

#include "impl/kernels/indexing.hpp"
#include "model/combine/scheme.hpp"
#include "proofs/claims/claims.hpp"
#include "proofs/engine/lemma.hpp"

namespace samesum {
namespace {

namespace code = gpu::indexing;
using Chunk = code::Range<SymbolicInteger>;

SymbolicInteger next_first_row(Lemma& l, const SymbolicInteger& first_row, const SymbolicInteger& rows) {
    return l.code("next_first_row", [&] { return code::next_first_row(first_row, rows); });
}
Chunk chunk(Lemma& l, const SymbolicInteger& first_row, const SymbolicInteger& rows, const SymbolicInteger& row) {
    return l.code("chunk", [&] { return code::chunk(first_row, rows, row); });
}
code::Move<SymbolicInteger> scatter(Lemma& l, const SymbolicInteger& root, const SymbolicInteger& self,
                                    const SymbolicInteger& peer, const Chunk& own, const Chunk& peers) {
    return l.code("scatter", [&] { return code::scatter(root, self, peer, own, peers); });
}
code::Move<SymbolicInteger> exchange(Lemma& l, const SymbolicInteger& self, const SymbolicInteger& peer,
                                     const Chunk& own, const Chunk& peers) {
    return l.code("exchange", [&] { return code::exchange(self, peer, own, peers); });
}
SymbolicInteger received_at(Lemma& l, const SymbolicInteger& rank, const SymbolicInteger& own) {
    return l.code("received_at", [&] { return code::received_at(rank, own); });
}

/// An arbitrary chunk.
Chunk any_chunk(Lemma& l, const std::string& whose) {
    return {l.natural(whose + "_offset"), l.natural(whose + "_count")};
}

/// Larger than any buffer: an eighth of the range of std::uint64_t.
const SymbolicInteger max_bytes(std::uint64_t{1} << 61);

Truth within(const SymbolicInteger& at, const Chunk& range) {
    return at >= range.offset && at < range.offset + range.count;
}
Truth same(const Chunk& a, const Chunk& b) { return a.offset == b.offset && a.count == b.count; }

/// By induction over ranks: chunks follow one another from 0 on, so none overlaps another and every byte of the buffer
/// is in one.
Lemmas chunks_partition_the_buffer() {
    Lemmas all;
    all.add("first_chunk_begins_at_0", [](Lemma& l) {
        const SymbolicInteger row = l.natural("row");
        const Chunk first = chunk(l, l.constant(0), l.natural("rows"), row);
        l.show("begins_at_0", first.offset == SymbolicInteger(0));
    });
    all.add("next_chunk_begins_where_the_last_ends", [](Lemma& l) {
        const SymbolicInteger row = l.natural("row"), first = l.natural("first_row"), rows = l.natural("rows");
        const Chunk own = chunk(l, first, rows, row);
        const Chunk next = chunk(l, next_first_row(l, first, rows), l.natural("next_rows"), row);
        l.show("no_gap_no_overlap", next.offset == own.offset + own.count);
        l.show("whole_rows", own.count == rows * row);
    });
    // The step of "ranks before this one own each byte below its offset once, and no other".
    all.add("every_byte_has_one_owner", [](Lemma& l) {
        const SymbolicInteger row = l.natural("row"), first = l.natural("first_row"), rows = l.natural("rows");
        const SymbolicInteger byte = l.natural("byte"), owners = l.natural("owners_before");
        const Chunk own = chunk(l, first, rows, row);
        const Chunk next = chunk(l, next_first_row(l, first, rows), l.natural("next_rows"), row);
        l.assume("induction_hypothesis", owners == count_if(byte < own.offset));
        l.show("one_owner_below_the_next_offset", owners + count_if(within(byte, own)) == count_if(byte < next.offset));
    });
    all.add("fits_64_bits", [](Lemma& l) {
        const SymbolicInteger row = l.natural("row"), first = l.natural("first_row"), rows = l.natural("rows");
        l.assume("the_buffer_fits", (first + rows) * row <= max_bytes);
        l.assume("rows_are_not_empty", row >= SymbolicInteger(1));
        (void)chunk(l, first, rows, row);
        (void)next_first_row(l, first, rows);
        l.fits_64_bits();
    });
    return all;
}

/// Each owner receives its own chunk, as the root of fixed_root sends it.
Lemmas scatter_moves_each_chunk_to_its_owner() {
    Lemmas all;
    all.add("sends_match_receives", [](Lemma& l) {
        const SymbolicInteger root = l.natural("root"), a = l.natural("a"), b = l.natural("b");
        const Chunk of_a = any_chunk(l, "chunk_of_a"), of_b = any_chunk(l, "chunk_of_b");
        const auto at_a = scatter(l, root, a, b, of_a, of_b), at_b = scatter(l, root, b, a, of_b, of_a);
        l.assume("a_rank_is_one_rank", implies(a == b, same(of_a, of_b)));
        l.show("b_receives_what_a_sends", at_a.sent.count == at_b.received.count);
        l.show("nothing_goes_to_oneself", implies(a == b, at_a.sent.count == SymbolicInteger(0)));
        l.show("only_the_root_sends", implies(at_a.sent.count > SymbolicInteger(0), a == root));
    });
    all.add("each_byte_arrives_once", [](Lemma& l) {
        const SymbolicInteger root = l.natural("root"), self = l.natural("self"), peer = l.natural("peer");
        const SymbolicInteger byte = l.natural("byte");
        const Chunk own = any_chunk(l, "own"), peers = any_chunk(l, "peers");
        const auto here = scatter(l, root, self, peer, own, peers), there = scatter(l, root, peer, self, peers, own);
        l.assume("not_the_root", self != root);
        l.assume("of_the_own_chunk", byte < own.count);
        l.show("from_the_root_alone", count_if(within(byte, here.received)) == count_if(peer == root));
        l.show("the_same_byte_of_the_sums",
               implies(peer == root, there.sent.offset + (byte - here.received.offset) == own.offset + byte));
        l.show("within_the_result", here.received.offset + here.received.count <= own.count);
    });
    all.add("workspace_holds_the_sums", [](Lemma& l) {
        const SymbolicInteger root = l.natural("root"), self = l.natural("self"), peer = l.natural("peer");
        const SymbolicInteger size = l.natural("all");
        const Chunk own = any_chunk(l, "own"), peers = any_chunk(l, "peers");
        const auto here = scatter(l, root, self, peer, own, peers);
        const SymbolicInteger workspace =
            l.code("fixed_root_workspace", [&] { return code::fixed_root_workspace(root, self, size); });
        l.assume("chunks_lie_in_the_buffer", peers.offset + peers.count <= size);
        l.show("sent_from_within",
               implies(here.sent.count > SymbolicInteger(0), here.sent.offset + here.sent.count <= workspace));
        l.show("no_more_than_needed", workspace == select(self == root, size, SymbolicInteger(0)));
    });
    return all;
}

/// Each peer receives what a rank of exchange_ordered sends, apart from what other ranks send.
Lemmas exchange_moves_each_chunk_to_its_owner() {
    Lemmas all;
    all.add("sends_match_receives", [](Lemma& l) {
        const SymbolicInteger a = l.natural("a"), b = l.natural("b");
        const Chunk of_a = any_chunk(l, "chunk_of_a"), of_b = any_chunk(l, "chunk_of_b");
        const auto at_a = exchange(l, a, b, of_a, of_b), at_b = exchange(l, b, a, of_b, of_a);
        l.assume("a_rank_is_one_rank", implies(a == b, same(of_a, of_b)));
        l.show("b_receives_what_a_sends", at_a.sent.count == at_b.received.count);
        l.show("all_of_bs_chunk", implies(a != b, same(at_a.sent, of_b)));
        l.show("nothing_goes_to_oneself", implies(a == b, at_a.sent.count == SymbolicInteger(0)));
    });
    all.add("received_chunks_lie_apart", [](Lemma& l) {
        // p < q < ranks, written so that solvers need not compare products.
        const SymbolicInteger self = l.natural("self"), p = l.natural("p"),
                              q = p + SymbolicInteger(1) + l.natural("between");
        const SymbolicInteger ranks = q + SymbolicInteger(1) + l.natural("beyond");
        const Chunk own = any_chunk(l, "own"), of_p = any_chunk(l, "chunk_of_p"), of_q = any_chunk(l, "chunk_of_q");
        const auto from_p = exchange(l, self, p, own, of_p), from_q = exchange(l, self, q, own, of_q);
        const SymbolicInteger workspace =
            l.code("exchange_workspace", [&] { return code::exchange_workspace(ranks, own.count); });
        l.show("no_overlap", from_p.received.offset + from_p.received.count <= from_q.received.offset);
        l.show("within_the_workspace", from_q.received.offset + from_q.received.count <= workspace);
        l.show("read_where_received", from_p.received.offset == received_at(l, p, own.count));
    });
    all.add("spacing", [](Lemma& l) {
        const SymbolicInteger bytes = l.natural("bytes");
        const SymbolicInteger spaced = l.code("spaced", [&] { return code::spaced(bytes); });
        l.show("holds_the_chunk", bytes <= spaced);
        l.show("by_less_than_256", spaced < bytes + SymbolicInteger(256));
        l.show("aligned", spaced == spaced / SymbolicInteger(256) * SymbolicInteger(256));
    });
    all.add("one_spacing_for_all", [](Lemma& l) {
        const SymbolicInteger rank = l.natural("rank"), own = l.natural("own"), ranks = l.natural("ranks");
        const SymbolicInteger spaced = code::spaced(own);
        const SymbolicInteger workspace =
            l.code("exchange_workspace", [&] { return code::exchange_workspace(ranks, own); });
        l.show("begins_at_a_multiple", received_at(l, rank, own) == rank * spaced);
        l.show("no_more_than_needed", workspace == ranks * spaced);
    });
    all.add("fits_64_bits", [](Lemma& l) {
        const SymbolicInteger self = l.natural("self"), peer = l.natural("peer"), ranks = l.natural("ranks");
        const Chunk own = any_chunk(l, "own"), peers = any_chunk(l, "peers");
        const SymbolicInteger workspace =
            l.code("exchange_workspace", [&] { return code::exchange_workspace(ranks, own.count); });
        l.assume("the_workspace_fits", workspace <= max_bytes && own.count <= max_bytes);
        l.assume("a_rank", peer < ranks);
        (void)exchange(l, self, peer, own, peers);
        l.fits_64_bits();
    });
    return all;
}

SymbolicInteger piece_at(Lemma& l, const SymbolicInteger& index, const SymbolicInteger& piece) {
    return l.code("piece_at", [&] { return code::piece_at(index, piece); });
}
code::Move<SymbolicInteger> within_node(Lemma& l, const SymbolicInteger& place, const SymbolicInteger& peer,
                                        const Chunk& mine, const Chunk& theirs, const SymbolicInteger& piece) {
    return l.code("within_node", [&] { return code::within_node(place, peer, mine, theirs, piece); });
}
code::Move<SymbolicInteger> across_nodes(Lemma& l, const SymbolicInteger& node, const SymbolicInteger& peer,
                                         const SymbolicInteger& mine, const SymbolicInteger& theirs,
                                         const SymbolicInteger& piece) {
    return l.code("across_nodes", [&] { return code::across_nodes(node, peer, mine, theirs, piece); });
}

/// Each rank is one (node, place), and what a rank sends is what its peer receives.
void add_node_transfers(Lemmas& all) {
    all.add("a_rank_for_each_node_and_place", [](Lemma& l) {
        // Of nodes of place + beyond + 1 ranks.
        const SymbolicInteger node = l.natural("node"), place = l.natural("place");
        const SymbolicInteger in_node = place + SymbolicInteger(1) + l.natural("beyond");
        const SymbolicInteger rank = l.code("rank_at", [&] { return code::rank_at(node, place, in_node); });
        l.show("of_the_node", node * in_node <= rank && rank < (node + SymbolicInteger(1)) * in_node);
        l.show("at_the_place", rank - node * in_node == place);
    });
    all.add("sends_match_receives_within_a_node", [](Lemma& l) {
        const SymbolicInteger a = l.natural("a"), b = l.natural("b"), piece = l.natural("piece");
        const Chunk of_a = any_chunk(l, "chunk_of_a"), of_b = any_chunk(l, "chunk_of_b");
        const auto at_a = within_node(l, a, b, of_a, of_b, piece), at_b = within_node(l, b, a, of_b, of_a, piece);
        l.assume("a_place_is_one_place", implies(a == b, same(of_a, of_b)));
        l.show("b_receives_what_a_sends", at_a.sent.count == at_b.received.count);
        l.show("all_of_bs_chunk", implies(a != b, same(at_a.sent, of_b)));
        l.show("nothing_goes_to_oneself", implies(a == b, at_a.sent.count == SymbolicInteger(0)));
        l.show("read_where_received", at_b.received.offset == piece_at(l, a, piece));
    });
    all.add("sends_match_receives_across_nodes", [](Lemma& l) {
        const SymbolicInteger a = l.natural("a"), b = l.natural("b"), piece = l.natural("piece");
        const SymbolicInteger of_a = l.natural("count_of_a"), of_b = l.natural("count_of_b");
        const auto at_a = across_nodes(l, a, b, of_a, of_b, piece), at_b = across_nodes(l, b, a, of_b, of_a, piece);
        l.assume("a_node_is_one_node", implies(a == b, of_a == of_b));
        l.show("b_receives_what_a_sends", at_a.sent.count == at_b.received.count);
        l.show("all_of_bs_sums", implies(a != b, at_a.sent.count == of_b));
        l.show("nothing_goes_to_oneself", implies(a == b, at_a.sent.count == SymbolicInteger(0)));
        l.show("where_the_sums_for_b_are", at_a.sent.offset == piece_at(l, b, piece));
        l.show("read_where_received", at_b.received.offset == piece_at(l, a, piece));
    });
}

/// The parts of the workspace and the pieces in them do not overlap.
void add_node_pieces(Lemmas& all) {
    all.add("pieces_lie_apart", [](Lemma& l) {
        const SymbolicInteger piece = l.natural("piece"), p = l.natural("p"), bytes = l.natural("bytes");
        const SymbolicInteger q = p + SymbolicInteger(1) + l.natural("between");
        l.assume("a_chunk_fits_a_piece", bytes <= piece);
        l.show("no_overlap", piece_at(l, p, piece) + bytes <= piece_at(l, q, piece));
    });
    all.add("the_workspace_has_three_parts", [](Lemma& l) {
        const SymbolicInteger piece = l.natural("piece"), senders = l.natural("senders"), nodes = l.natural("nodes");
        const SymbolicInteger sums = l.code("node_sums_at", [&] { return code::node_sums_at(senders, piece); });
        const SymbolicInteger others =
            l.code("other_sums_at", [&] { return code::other_sums_at(senders, nodes, piece); });
        const SymbolicInteger size =
            l.code("by_node_workspace", [&] { return code::by_node_workspace(senders, nodes, piece); });
        l.show("what_is_sent_ends_where_sums_begin", sums == piece_at(l, senders, piece));
        l.show("sums_end_where_others_begin", others == sums + piece_at(l, nodes, piece));
        l.show("others_end_the_workspace", size == others + piece_at(l, nodes, piece));
    });
    all.add("fits_64_bits", [](Lemma& l) {
        const SymbolicInteger piece = l.natural("piece"), senders = l.natural("senders"), nodes = l.natural("nodes");
        const SymbolicInteger size =
            l.code("by_node_workspace", [&] { return code::by_node_workspace(senders, nodes, piece); });
        l.assume("the_workspace_fits", size <= max_bytes && piece >= SymbolicInteger(1));
        (void)l.code("node_sums_at", [&] { return code::node_sums_at(senders, piece); });
        (void)l.code("other_sums_at", [&] { return code::other_sums_at(senders, nodes, piece); });
        (void)piece_at(l, nodes, piece);
        l.fits_64_bits();
    });
}

Lemmas nodes_exchange_their_sums() {
    Lemmas all;
    add_node_transfers(all);
    add_node_pieces(all);
    return all;
}

/// The ordered sum of gather_ordered reads the own chunk of each rank's partial in turn.
Lemmas gather_reads_the_own_chunk_of_each() {
    Lemmas all;
    all.add("own_chunk_of_each_partial", [](Lemma& l) {
        const SymbolicInteger rank = l.natural("rank"), ranks = rank + SymbolicInteger(1) + l.natural("beyond");
        const SymbolicInteger size = l.natural("all");
        const SymbolicInteger byte = l.natural("byte");
        const Chunk own = any_chunk(l, "own");
        const SymbolicInteger at = l.code("gathered_at", [&] { return code::gathered_at(rank, size, own.offset); });
        const SymbolicInteger workspace =
            l.code("gather_workspace", [&] { return code::gather_workspace(ranks, size); });
        l.assume("the_own_chunk_lies_in_the_buffer", own.offset + own.count <= size && byte < own.count);
        l.show("the_ranks_own_byte", at + byte == rank * size + (own.offset + byte));
        l.show("of_its_own_partial", at + byte < (rank + SymbolicInteger(1)) * size);
        l.show("within_the_workspace", at + byte < workspace);
        l.show("no_more_than_needed", workspace == ranks * size);
    });
    return all;
}

/// A chunk of direct_ordered travels in tiles of lines of words. Sender and receiver count a tile's lines by the same
/// function of the owner's chunk.
constexpr std::uint64_t tile_lines = 8, words_a_line = 15;

SymbolicInteger word_at(Lemma& l, const SymbolicInteger& line, const SymbolicInteger& word) {
    return l.code("word_at", [&] { return code::word_at(line, word); });
}
SymbolicInteger tiles_of(Lemma& l, const SymbolicInteger& bytes, const SymbolicInteger& tile) {
    return l.code("tiles_of", [&] { return code::tiles_of(bytes, tile); });
}
SymbolicInteger lines_of(Lemma& l, const SymbolicInteger& bytes, const SymbolicInteger& tile,
                         const SymbolicInteger& lines) {
    return l.code("tile_lines_of", [&] { return code::tile_lines_of(bytes, tile, lines); });
}

/// Every byte of the chunk is in exactly one word that is sent.
void add_words(Lemmas& all) {
    all.add("no_byte_travels_twice", [](Lemma& l) {
        const SymbolicInteger i = l.natural("line_i"), j = l.natural("line_j"), v = l.natural("word_v"),
                              w = l.natural("word_w");
        const SymbolicInteger x = l.natural("byte_x"), y = l.natural("byte_y");
        l.assume("words_and_bytes", v < SymbolicInteger(words_a_line) && w < SymbolicInteger(words_a_line) &&
                                        x < SymbolicInteger(8) && y < SymbolicInteger(8));
        l.show("one_place_each", implies(word_at(l, i, v) + x == word_at(l, j, w) + y, i == j && v == w && x == y));
    });
    all.add("every_byte_travels", [](Lemma& l) {
        const SymbolicInteger lines = l.constant(tile_lines), data = l.constant(tile_lines * code::line_data);
        const SymbolicInteger byte = l.natural("byte"), bytes = l.natural("bytes"), max = l.natural("most_bytes");
        const SymbolicInteger tile = l.natural("tile"), line = l.natural("line_of_tile"), word = l.natural("word");
        l.assume("of_the_chunk", byte < bytes && bytes <= max);
        l.assume("its_place", line < lines && word < SymbolicInteger(words_a_line));
        const SymbolicInteger begin = word_at(l, tile * lines + line, word);
        l.assume("its_word", begin <= byte && byte < begin + SymbolicInteger(8));
        l.show("in_a_tile_that_is_sent", tile < tiles_of(l, max, data));
        l.show("in_a_line_that_is_sent", line < lines_of(l, bytes, tile, lines));
    });
    all.add("a_word_has_a_place", [](Lemma& l) {
        const SymbolicInteger byte = l.natural("byte"), width(code::line_data);
        const SymbolicInteger line = byte / width, word = (byte - line * width) / SymbolicInteger(8);
        const SymbolicInteger begin = word_at(l, line, word);
        l.show("of_a_line", word < SymbolicInteger(words_a_line));
        l.show("that_holds_the_byte", begin <= byte && byte < begin + SymbolicInteger(8));
    });
}

/// Tiles and lines are as many as needed.
void add_tiles(Lemmas& all) {
    all.add("lines_of_a_tile", [](Lemma& l) {
        const SymbolicInteger lines = l.constant(tile_lines), tile = l.natural("tile"), bytes = l.natural("bytes");
        const SymbolicInteger sent = lines_of(l, bytes, tile, lines);
        l.show("one_at_least", sent >= SymbolicInteger(1));
        l.show("as_many_as_there_are", sent <= lines);
        l.show("none_in_vain",
               sent == SymbolicInteger(1) ||
                   (tile * lines + sent - SymbolicInteger(1)) * SymbolicInteger(code::line_data) < bytes);
    });
    all.add("tiles", [](Lemma& l) {
        const SymbolicInteger data = l.constant(tile_lines * code::line_data), max = l.natural("most_bytes");
        const SymbolicInteger tiles = tiles_of(l, max, data);
        l.show("none_in_vain", tiles == SymbolicInteger(0) || (tiles - SymbolicInteger(1)) * data < max);
        l.show("hold_everything", tiles * data >= max);
    });
    // A lane's words in the tile's later lines are a fixed distance behind its first.
    all.add("rounds", [](Lemma& l) {
        const SymbolicInteger line = l.natural("line"), word = l.natural("word"), round = l.natural("round");
        l.show("four_lines_on", word_at(l, line, word) + round * SymbolicInteger(4 * code::line_data) ==
                                    word_at(l, line + SymbolicInteger(4) * round, word));
        l.show("eight_bytes_on",
               word_at(l, line, word) + SymbolicInteger(8) == word_at(l, line, word + SymbolicInteger(1)));
    });
    all.add("fits_64_bits", [](Lemma& l) {
        const SymbolicInteger lines = l.constant(tile_lines), data = l.constant(tile_lines * code::line_data);
        const SymbolicInteger tile = l.natural("tile"), bytes = l.natural("bytes"), max = l.natural("most_bytes");
        const SymbolicInteger line = l.natural("line_of_tile"), word = l.natural("word");
        const SymbolicInteger at = tile * lines + line;
        l.assume("chunks_fit", bytes <= max && max <= max_bytes);
        l.assume("a_place", line < lines && word < SymbolicInteger(words_a_line));
        l.assume("a_tile", tile < tiles_of(l, max, data));
        (void)lines_of(l, bytes, tile, lines);
        (void)word_at(l, at, word);
        l.fits_64_bits();
    });
}

Lemmas lines_carry_the_own_chunk_once() {
    Lemmas all;
    add_words(all);
    add_tiles(all);
    return all;
}

/// Of a tile's 8 lines of 16 words each lane takes two neighbouring words in each of two rounds; the last is the flag.
Enumeration lanes_share_a_tile() {
    Enumeration tried;
    std::set<std::pair<std::uint64_t, std::uint64_t>> places;
    for (std::uint64_t lane = 0; lane < 32; ++lane)
        for (std::uint64_t round = 0; round < 2; ++round)
            for (std::uint64_t half = 0; half < 2; ++half) {
                ++tried.cases;
                const std::uint64_t line = round * 4 + lane / 8, word = lane % 8 * 2 + half;
                if (!places.insert({line, word}).second || line >= tile_lines || word > words_a_line)
                    tried.counterexample = fmt::format("lane {}, round {}, half {}", lane, round, half);
            }
    if (places.size() != tile_lines * (words_a_line + 1)) tried.counterexample = "a word of a line has no lane";
    return tried;
}

Lemmas dispatch_is_vllms() {
    Lemmas all;
    all.add("dispatch", [](Lemma& l) {
        const Truth is_default = l.truth("is_vllm_default"), equal_sizes = l.truth("equal_sizes");
        const SymbolicInteger scheme = l.natural("scheme"), when_equal = l.natural("reduce_scatter"),
                              otherwise = l.natural("reduce_per_owner");
        const SymbolicInteger runs =
            l.code("dispatch", [&] { return code::dispatch(is_default, equal_sizes, scheme, when_equal, otherwise); });
        l.show("equal_sizes", implies(is_default && equal_sizes, runs == when_equal));
        l.show("other_sizes", implies(is_default && !equal_sizes, runs == otherwise));
        l.show("other_schemes", implies(!is_default, runs == scheme));
    });
    all.add("gate", [](Lemma& l) {
        const Truth asked = l.truth("batch_invariant");
        const SymbolicInteger ranks = l.natural("ranks");
        const Truth fixed_root = l.code("gate", [&] { return code::gate(asked, ranks); });
        l.show("only_when_asked", implies(fixed_root, asked));
        l.show("whenever_order_matters", implies(asked && ranks > SymbolicInteger(2), fixed_root));
        l.show("never_at_two", implies(fixed_root, ranks > SymbolicInteger(2)));
    });
    return all;
}

/// impl/ and model/ have separate dispatchers and gates; they agree.
Enumeration dispatches_agree() {
    Enumeration tried;
    const auto differs = [&](Scheme here, Scheme there, const std::string& where) {
        ++tried.cases;
        if (here != there) tried.counterexample = fmt::format("{}: {} and {}", where, name(here), name(there));
        return here != there;
    };
    for (std::uint64_t sizes = 0; sizes < 256; ++sizes) {
        const Routing routing{{sizes % 4, sizes / 4 % 4, sizes / 16 % 4, sizes / 64}, 1};
        for (const Scheme scheme : all_schemes) {
            const Scheme here = code::dispatch(scheme == Scheme::vllm_default, routing.equal_sizes(), scheme,
                                               Scheme::reduce_scatter, Scheme::reduce_per_owner);
            if (differs(here, dispatched(scheme, routing), fmt::format("{}, sizes {}", name(scheme), sizes)))
                return tried;
        }
    }
    for (int ranks = 1; ranks <= 64; ++ranks)
        for (const bool asked : {false, true}) {
            const Scheme here = code::gate(asked, ranks) ? Scheme::fixed_root : Scheme::vllm_default;
            if (differs(here, gated(asked, ranks), fmt::format("{} ranks", ranks))) return tried;
        }
    return tried;
}

}  // namespace

std::vector<Obligation> claims_of_indexing() {
    std::vector<Obligation> claims;
    std::vector<Statement> mutations;
    const auto add = [&](Obligation claim, const Lemmas& lemmas) {
        for (Statement& each : lemmas.mutations(5000)) mutations.push_back(std::move(each));
        claim.statements = lemmas.statements();
        claims.push_back(std::move(claim));
    };
    add({.name = "chunks_partition_the_buffer",
         .sentence = "every byte of the buffer is in the chunk of exactly one rank, zero sizes included",
         .scope = "any ranks, sizes, row"},
        chunks_partition_the_buffer());
    add({.name = "scatter_is_a_bijection",
         .sentence = "sends and receives match in peer and count, and each owner gets each byte of its chunk once",
         .scope = "any ranks, root, sizes",
         .assumes_of_nccl = {"delivers_bytes"}},
        scatter_moves_each_chunk_to_its_owner());
    add({.name = "exchange_is_a_bijection",
         .sentence = "sends and receives match in peer and count, and what is received overlaps nowhere",
         .scope = "any ranks, sizes",
         .assumes_of_nccl = {"delivers_bytes"}},
        exchange_moves_each_chunk_to_its_owner());
    add({.name = "nodes_exchange_their_sums",
         .sentence = "by node, too: sends and receives match within nodes and across them, and nothing overlaps",
         .scope = "any ranks, nodes, sizes",
         .assumes_of_nccl = {"delivers_bytes"}},
        nodes_exchange_their_sums());
    add({.name = "gather_reads_own_chunks",
         .sentence = "each rank adds, of every rank's partial, the bytes of its own chunk",
         .scope = "any ranks, sizes",
         .assumes_of_nccl = {"delivers_bytes"}},
        gather_reads_the_own_chunk_of_each());
    add({.name = "lines_carry_own_chunks",
         .sentence = "direct_ordered's lines carry each byte of the own chunk once, and are as many as are waited for",
         .scope = "any ranks, sizes",
         .enumerate = lanes_share_a_tile},
        lines_carry_the_own_chunk_once());
    add({.name = "dispatch_is_vllms",
         .sentence = "impl/ takes the scheme that vLLM would, as the model does",
         .scope = "any scheme, sizes, ranks",
         .enumerate = dispatches_agree},
        dispatch_is_vllms());
    claims.push_back(mutations_are_refuted("impl/kernels/indexing.hpp", std::move(mutations)));
    return claims;
}

}  // namespace samesum
