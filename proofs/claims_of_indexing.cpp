// Which bytes the combines of impl/ move where, for any number of ranks and any sizes: its own templates, executed.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "impl/indexing.hpp"
#include "model/combine.hpp"
#include "proofs/claims.hpp"
#include "proofs/lemma.hpp"

namespace samesum {
namespace {

namespace code = gpu::indexing;
using Chunk = code::Range<Natural>;

Natural next_first_row(Lemma& l, const Natural& first_row, const Natural& rows) {
    return l.code("next_first_row", [&] { return code::next_first_row(first_row, rows); });
}
Chunk chunk(Lemma& l, const Natural& first_row, const Natural& rows, const Natural& row) {
    return l.code("chunk", [&] { return code::chunk(first_row, rows, row); });
}
code::Move<Natural> scatter(Lemma& l, const Natural& root, const Natural& self, const Natural& peer, const Chunk& own,
                            const Chunk& peers) {
    return l.code("scatter", [&] { return code::scatter(root, self, peer, own, peers); });
}
code::Move<Natural> exchange(Lemma& l, const Natural& self, const Natural& peer, const Chunk& own, const Chunk& peers) {
    return l.code("exchange", [&] { return code::exchange(self, peer, own, peers); });
}
Natural received_at(Lemma& l, const Natural& rank, const Natural& own) {
    return l.code("received_at", [&] { return code::received_at(rank, own); });
}

/// A chunk of which nothing is known.
Chunk any_chunk(Lemma& l, const std::string& whose) {
    return {l.natural(whose + "_offset"), l.natural(whose + "_count")};
}

/// More bytes than any buffer has: an eighth of what std::uint64_t can count.
const Natural most_bytes(std::uint64_t{1} << 61);

Truth within(const Natural& at, const Chunk& range) { return at >= range.offset && at < range.offset + range.count; }
Truth same(const Chunk& a, const Chunk& b) { return a.offset == b.offset && a.count == b.count; }

/// By induction over ranks: chunks lie one after another from 0 on, so none overlaps another and every byte of the
/// buffer is in one.
Lemmas chunks_partition_the_buffer() {
    Lemmas all;
    all.add("first_chunk_begins_at_0", [](Lemma& l) {
        const Natural row = l.natural("row");
        const Chunk first = chunk(l, l.constant(0), l.natural("rows"), row);
        l.show("begins_at_0", first.offset == Natural(0));
    });
    all.add("next_chunk_begins_where_the_last_ends", [](Lemma& l) {
        const Natural row = l.natural("row"), first = l.natural("first_row"), rows = l.natural("rows");
        const Chunk own = chunk(l, first, rows, row);
        const Chunk next = chunk(l, next_first_row(l, first, rows), l.natural("next_rows"), row);
        l.show("no_gap_no_overlap", next.offset == own.offset + own.count);
        l.show("whole_rows", own.count == rows * row);
    });
    // The step of "ranks before this one own each byte below its offset once, and no other".
    all.add("every_byte_has_one_owner", [](Lemma& l) {
        const Natural row = l.natural("row"), first = l.natural("first_row"), rows = l.natural("rows");
        const Natural byte = l.natural("byte"), owners = l.natural("owners_before");
        const Chunk own = chunk(l, first, rows, row);
        const Chunk next = chunk(l, next_first_row(l, first, rows), l.natural("next_rows"), row);
        l.assume("induction_hypothesis", owners == count_if(byte < own.offset));
        l.show("one_owner_below_the_next_offset", owners + count_if(within(byte, own)) == count_if(byte < next.offset));
    });
    all.add("fits_64_bits", [](Lemma& l) {
        const Natural row = l.natural("row"), first = l.natural("first_row"), rows = l.natural("rows");
        l.assume("the_buffer_fits", (first + rows) * row <= most_bytes);
        l.assume("rows_are_not_empty", row >= Natural(1));
        (void)chunk(l, first, rows, row);
        (void)next_first_row(l, first, rows);
        l.fits_64_bits();
    });
    return all;
}

/// What the root of fixed_root sends, the others receive, and it is theirs.
Lemmas scatter_moves_each_chunk_to_its_owner() {
    Lemmas all;
    all.add("sends_match_receives", [](Lemma& l) {
        const Natural root = l.natural("root"), a = l.natural("a"), b = l.natural("b");
        const Chunk of_a = any_chunk(l, "chunk_of_a"), of_b = any_chunk(l, "chunk_of_b");
        const auto at_a = scatter(l, root, a, b, of_a, of_b), at_b = scatter(l, root, b, a, of_b, of_a);
        l.assume("a_rank_is_one_rank", implies(a == b, same(of_a, of_b)));
        l.show("b_receives_what_a_sends", at_a.sent.count == at_b.received.count);
        l.show("nothing_goes_to_oneself", implies(a == b, at_a.sent.count == Natural(0)));
        l.show("only_the_root_sends", implies(at_a.sent.count > Natural(0), a == root));
    });
    all.add("each_byte_arrives_once", [](Lemma& l) {
        const Natural root = l.natural("root"), self = l.natural("self"), peer = l.natural("peer");
        const Natural byte = l.natural("byte");
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
        const Natural root = l.natural("root"), self = l.natural("self"), peer = l.natural("peer");
        const Natural size = l.natural("all");
        const Chunk own = any_chunk(l, "own"), peers = any_chunk(l, "peers");
        const auto here = scatter(l, root, self, peer, own, peers);
        const Natural workspace =
            l.code("fixed_root_workspace", [&] { return code::fixed_root_workspace(root, self, size); });
        l.assume("chunks_lie_in_the_buffer", peers.offset + peers.count <= size);
        l.show("sent_from_within",
               implies(here.sent.count > Natural(0), here.sent.offset + here.sent.count <= workspace));
        l.show("no_more_than_needed", workspace == select(self == root, size, Natural(0)));
    });
    return all;
}

/// What each rank of exchange_ordered sends, its peer receives, beside what the others send.
Lemmas exchange_moves_each_chunk_to_its_owner() {
    Lemmas all;
    all.add("sends_match_receives", [](Lemma& l) {
        const Natural a = l.natural("a"), b = l.natural("b");
        const Chunk of_a = any_chunk(l, "chunk_of_a"), of_b = any_chunk(l, "chunk_of_b");
        const auto at_a = exchange(l, a, b, of_a, of_b), at_b = exchange(l, b, a, of_b, of_a);
        l.assume("a_rank_is_one_rank", implies(a == b, same(of_a, of_b)));
        l.show("b_receives_what_a_sends", at_a.sent.count == at_b.received.count);
        l.show("all_of_bs_chunk", implies(a != b, same(at_a.sent, of_b)));
        l.show("nothing_goes_to_oneself", implies(a == b, at_a.sent.count == Natural(0)));
    });
    all.add("received_chunks_lie_apart", [](Lemma& l) {
        // p < q < ranks, so written that solvers need not compare products.
        const Natural self = l.natural("self"), p = l.natural("p"), q = p + Natural(1) + l.natural("between");
        const Natural ranks = q + Natural(1) + l.natural("beyond");
        const Chunk own = any_chunk(l, "own"), of_p = any_chunk(l, "chunk_of_p"), of_q = any_chunk(l, "chunk_of_q");
        const auto from_p = exchange(l, self, p, own, of_p), from_q = exchange(l, self, q, own, of_q);
        const Natural workspace =
            l.code("exchange_workspace", [&] { return code::exchange_workspace(ranks, own.count); });
        l.show("no_overlap", from_p.received.offset + from_p.received.count <= from_q.received.offset);
        l.show("within_the_workspace", from_q.received.offset + from_q.received.count <= workspace);
        l.show("read_where_received", from_p.received.offset == received_at(l, p, own.count));
    });
    all.add("spacing", [](Lemma& l) {
        const Natural bytes = l.natural("bytes");
        const Natural spaced = l.code("spaced", [&] { return code::spaced(bytes); });
        l.show("holds_the_chunk", bytes <= spaced);
        l.show("by_less_than_256", spaced < bytes + Natural(256));
        l.show("aligned", spaced == spaced / Natural(256) * Natural(256));
    });
    all.add("one_spacing_for_all", [](Lemma& l) {
        const Natural rank = l.natural("rank"), own = l.natural("own"), ranks = l.natural("ranks");
        const Natural spaced = code::spaced(own);
        const Natural workspace = l.code("exchange_workspace", [&] { return code::exchange_workspace(ranks, own); });
        l.show("begins_at_a_multiple", received_at(l, rank, own) == rank * spaced);
        l.show("no_more_than_needed", workspace == ranks * spaced);
    });
    all.add("fits_64_bits", [](Lemma& l) {
        const Natural self = l.natural("self"), peer = l.natural("peer"), ranks = l.natural("ranks");
        const Chunk own = any_chunk(l, "own"), peers = any_chunk(l, "peers");
        const Natural workspace =
            l.code("exchange_workspace", [&] { return code::exchange_workspace(ranks, own.count); });
        l.assume("the_workspace_fits", workspace <= most_bytes && own.count <= most_bytes);
        l.assume("a_rank", peer < ranks);
        (void)exchange(l, self, peer, own, peers);
        l.fits_64_bits();
    });
    return all;
}

/// The ordered sum of gather_ordered reads, of each rank's partial in turn, the own chunk.
Lemmas gather_reads_the_own_chunk_of_each() {
    Lemmas all;
    all.add("own_chunk_of_each_partial", [](Lemma& l) {
        const Natural rank = l.natural("rank"), ranks = rank + Natural(1) + l.natural("beyond");
        const Natural size = l.natural("all");
        const Natural byte = l.natural("byte");
        const Chunk own = any_chunk(l, "own");
        const Natural at = l.code("gathered_at", [&] { return code::gathered_at(rank, size, own.offset); });
        const Natural workspace = l.code("gather_workspace", [&] { return code::gather_workspace(ranks, size); });
        l.assume("the_own_chunk_lies_in_the_buffer", own.offset + own.count <= size && byte < own.count);
        l.show("the_ranks_own_byte", at + byte == rank * size + (own.offset + byte));
        l.show("of_its_own_partial", at + byte < (rank + Natural(1)) * size);
        l.show("within_the_workspace", at + byte < workspace);
        l.show("no_more_than_needed", workspace == ranks * size);
    });
    return all;
}

/// By induction over the pieces of direct_ordered: when the piece at `begin` is due, so many bytes of the own chunk are
/// done as lie below `begin`.
Lemmas pieces_add_the_own_chunk_once() {
    Lemmas all;
    const auto done_below = [](const Natural& begin, const Chunk& own) {
        return select(begin <= own.offset, Natural(0),
                      select(begin < own.offset + own.count, begin - own.offset, own.count));
    };
    const auto piece = [](Lemma& l, const Natural& begin, const Natural& most, const Natural& size, const Chunk& own) {
        return l.code("piece", [&] { return code::piece(begin, most, size, own); });
    };
    all.add("step", [=](Lemma& l) {
        const Natural begin = l.natural("begin"), most = l.natural("most"), size = l.natural("all");
        const Chunk own = any_chunk(l, "own");
        l.assume("the_own_chunk_lies_in_the_buffer", own.offset + own.count <= size);
        l.assume("a_piece_is_due", begin < size && most >= Natural(1));
        const auto now = piece(l, begin, most, size, own);
        const Truth adds = now.own > Natural(0);
        l.show("goes_on_where_the_last_stopped", implies(adds, now.in_result == done_below(begin, own)));
        l.show("so_much_more_is_done", done_below(begin, own) + now.own == done_below(begin + most, own));
        l.show("the_same_byte_of_the_buffer", implies(adds, begin + now.in_piece == own.offset + now.in_result));
        l.show("within_the_piece", now.in_piece + now.own <= now.count);
        l.show("within_the_peers_memory", now.count <= most);
        l.show("within_the_buffer", begin + now.count <= size);
        l.show("whole_pieces_but_the_last", now.count == most || begin + now.count == size);
        l.show("within_the_result", implies(adds, now.in_result + now.own <= own.count));
    });
    all.add("base_and_end", [=](Lemma& l) {
        const Natural begin = l.natural("begin"), size = l.natural("all");
        const Chunk own = any_chunk(l, "own");
        l.assume("the_own_chunk_lies_in_the_buffer", own.offset + own.count <= size);
        l.assume("no_piece_is_due", begin >= size);
        l.show("nothing_is_done_at_first", done_below(Natural(0) * begin, own) == Natural(0));
        l.show("all_is_done_at_last", done_below(begin, own) == own.count);
    });
    all.add("fits_64_bits", [=](Lemma& l) {
        const Natural begin = l.natural("begin"), most = l.natural("most"), size = l.natural("all");
        const Chunk own = any_chunk(l, "own");
        l.assume("the_own_chunk_lies_in_the_buffer", own.offset + own.count <= size);
        l.assume("a_piece_is_due", begin < size && most >= Natural(1));
        l.assume("buffers_fit", size <= most_bytes && most <= most_bytes);
        (void)piece(l, begin, most, size, own);
        l.fits_64_bits();
    });
    for (const std::uint64_t width : {1, 2, 4, 8})
        all.add(fmt::format("no_element_is_cut.{}", width), [=](Lemma& l) {
            const auto times = [&](const Natural& number) { return number * Natural(width); };
            const auto whole = [&](const Natural& number) {
                return number / Natural(width) * Natural(width) == number;
            };
            const Natural unit = l.constant(width);
            const Natural memory = l.natural("memory"), size = times(l.natural("elements"));
            const Natural most = l.code("whole_elements", [&] { return code::whole_elements(memory, unit); });
            const Chunk own{times(l.natural("own_offset")), times(l.natural("own_count"))};
            l.assume("the_own_chunk_lies_in_the_buffer", own.offset + own.count <= size);
            l.show("within_the_memory", most <= memory);
            l.show("wastes_less_than_an_element", memory < most + Natural(width));
            l.show("pieces_are_whole", whole(most));
            const Natural begin = times(l.natural("begun"));
            const auto now = piece(l, begin, times(l.natural("most_elements")), size, own);
            l.assume("a_piece_is_due", begin < size);
            l.show("sums_are_whole", whole(now.own) && whole(now.in_piece) && whole(now.in_result));
        });
    return all;
}

Lemmas dispatch_is_vllms() {
    Lemmas all;
    all.add("dispatch", [](Lemma& l) {
        const Truth is_default = l.truth("is_vllm_default"), equal_sizes = l.truth("equal_sizes");
        const Natural scheme = l.natural("scheme"), when_equal = l.natural("reduce_scatter"),
                      otherwise = l.natural("reduce_per_owner");
        const Natural runs =
            l.code("dispatch", [&] { return code::dispatch(is_default, equal_sizes, scheme, when_equal, otherwise); });
        l.show("equal_sizes", implies(is_default && equal_sizes, runs == when_equal));
        l.show("other_sizes", implies(is_default && !equal_sizes, runs == otherwise));
        l.show("other_schemes", implies(!is_default, runs == scheme));
    });
    all.add("gate", [](Lemma& l) {
        const Truth asked = l.truth("batch_invariant");
        const Natural ranks = l.natural("ranks");
        const Truth fixed_root = l.code("gate", [&] { return code::gate(asked, ranks); });
        l.show("only_when_asked", implies(fixed_root, asked));
        l.show("whenever_order_matters", implies(asked && ranks > Natural(2), fixed_root));
        l.show("never_at_two", implies(fixed_root, ranks > Natural(2)));
    });
    return all;
}

/// impl/ and model/ each have their own dispatch and gate; they agree.
Exhausted dispatches_agree() {
    Exhausted world;
    const auto differs = [&](Scheme here, Scheme there, const std::string& where) {
        ++world.cases;
        if (here != there) world.counterexample = fmt::format("{}: {} and {}", where, name(here), name(there));
        return here != there;
    };
    for (std::uint64_t sizes = 0; sizes < 256; ++sizes) {
        const Routing routing{{sizes % 4, sizes / 4 % 4, sizes / 16 % 4, sizes / 64}, 1};
        for (const Scheme scheme : all_schemes) {
            const Scheme here = code::dispatch(scheme == Scheme::vllm_default, routing.equal_sizes(), scheme,
                                               Scheme::reduce_scatter, Scheme::reduce_per_owner);
            if (differs(here, dispatched(scheme, routing), fmt::format("{}, sizes {}", name(scheme), sizes)))
                return world;
        }
    }
    for (int ranks = 1; ranks <= 64; ++ranks)
        for (const bool asked : {false, true}) {
            const Scheme here = code::gate(asked, ranks) ? Scheme::fixed_root : Scheme::vllm_default;
            if (differs(here, gated(asked, ranks), fmt::format("{} ranks", ranks))) return world;
        }
    return world;
}

}  // namespace

std::vector<Obligation> claims_of_indexing() {
    std::vector<Obligation> claims;
    std::vector<Statement> planted;
    const auto add = [&](Obligation claim, const Lemmas& lemmas) {
        for (Statement& each : lemmas.planted()) planted.push_back(std::move(each));
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
    add({.name = "gather_reads_own_chunks",
         .sentence = "each rank adds, of every rank's partial, the bytes of its own chunk",
         .scope = "any ranks, sizes",
         .assumes_of_nccl = {"delivers_bytes"}},
        gather_reads_the_own_chunk_of_each());
    add({.name = "pieces_cover_own_chunks",
         .sentence = "piece by piece, direct_ordered adds each element of the own chunk once",
         .scope = "any sizes, memory, width"},
        pieces_add_the_own_chunk_once());
    add({.name = "dispatch_is_vllms",
         .sentence = "impl/ takes the scheme that vLLM would, as the model does",
         .scope = "any scheme, sizes, ranks",
         .exhaust = dispatches_agree},
        dispatch_is_vllms());
    claims.push_back(planted_changes("impl/indexing.hpp", std::move(planted)));
    return claims;
}

}  // namespace samesum
