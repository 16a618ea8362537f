// A token keeps its partials while its place changes; its owner must receive the same bits.
//
//   decode  1,1,1,1      prefill  5,0,3,2          large prefill 512,0,301,211
//   row     0 1 2 3      row      0..4 5..7 8 9    rows on every channel
//   owner   0 1 2 3      owner    0    2    3
//
// SPDX-License-Identifier: Apache-2.0
#include "proofs/claims/vllm_scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "model/arithmetic/random.hpp"
#include "model/combine/combine.hpp"
#include "model/sum/witness.hpp"

namespace samesum {
namespace {

constexpr std::uint64_t hidden = 2048;
constexpr Format format = Format::bfloat16;
constexpr Forced ring_simple{Algorithm::ring, Protocol::simple};

/// partials[q][column]: uniform in [-1, 1), rounded to the format.
std::vector<std::vector<Bits>> seeded_partials(int ranks, std::uint64_t seed) {
    Random random(seed);
    std::vector<std::vector<Bits>> partials(static_cast<std::size_t>(ranks), std::vector<Bits>(hidden));
    for (auto& row : partials)
        for (Bits& bits : row) bits = from_double(format, 2 * random.uniform() - 1);
    return partials;
}

struct Place {
    Routing routing;
    std::uint64_t row;

    [[nodiscard]] std::string str() const {
        return fmt::format("owner {} (sizes {}, row {})", routing.owner(row), str_sizes(routing.sizes), row);
    }
};

/// Every row of the small calls, and rows all over a large one. reduce_scatter's own rule for sizes does not matter
/// here.
std::vector<Place> places(std::span<const std::vector<std::uint64_t>> calls) {
    std::vector<Place> all;
    for (const auto& sizes : calls) {
        const Routing routing{sizes, hidden};
        const std::uint64_t step = std::max<std::uint64_t>(1, routing.rows() / 16);
        for (std::uint64_t row = 0; row < routing.rows(); row += step) all.push_back({routing, row});
        if (step > 1) all.push_back({routing, routing.rows() - 1});
    }
    return all;
}

/// What the token's owner receives.
struct Received {
    std::vector<Bits> bits;
    std::vector<ReductionTree> trees;  ///< one a column
};

Received receive(Scheme scheme, const Communicator& comm, const Place& place,
                 std::span<const std::vector<Bits>> partials) {
    const CombinePlan plan = plan_combine(scheme, comm, place.routing, format, {.forced = ring_simple});
    Received received;
    std::vector<Bits> column(partials.size());
    const std::uint64_t first = place.row * hidden;
    plan.schedule.visit(first, first + hidden, [&](const Segment& segment) {
        const ReductionTree tree = segment.order.as_tree();
        for (std::uint64_t element = segment.begin; element < segment.end; ++element) {
            for (std::size_t q = 0; q < partials.size(); ++q) column[q] = partials[q][element - first];
            received.bits.push_back(sum_element({.format = format, .accumulation = plan.accumulation}, tree, column));
            received.trees.push_back(tree);
        }
        return true;
    });
    return received;
}

struct Claim {
    std::string name, sentence, scope;
    Scheme scheme;
    std::vector<Ring> rings;
    std::vector<std::vector<std::uint64_t>> calls;
    Verdict expected = Verdict::upheld;
};

std::string replay_of(const Claim& claim, std::uint64_t seed) {
    return fmt::format("samesum verify {} --seed {}", claim.name, seed);
}

Evidence blank(const Claim& claim, std::uint64_t seed) {
    return {.claim = claim.name,
            .sentence = claim.sentence,
            .scope = claim.scope,
            .expected = claim.expected,
            .verdict = Verdict::inconclusive,
            .decided_by = "not decided",
            .detail = {},
            .witness = {},
            .replay = replay_of(claim, seed),
            .seconds = 0};
}

/// The number of columns whose sum differs under some rotation of the first ring: columns that can reveal an order.
std::size_t order_sensitive_columns(const Ring& ring, std::span<const std::vector<Bits>> partials) {
    std::size_t order_sensitive = 0;
    std::vector<Bits> column(partials.size());
    for (std::size_t c = 0; c < hidden; ++c) {
        for (std::size_t q = 0; q < partials.size(); ++q) column[q] = partials[q][c];
        std::vector<Bits> sums;
        for (const int last : ring)
            sums.push_back(
                sum_element({.format = format}, ReductionTree::left_fold(walk_ending_at(ring, last)), column));
        order_sensitive += std::adjacent_find(sums.begin(), sums.end(), std::not_equal_to<>()) == sums.end() ? 0 : 1;
    }
    return order_sensitive;
}

Evidence decide(const Claim& claim, std::uint64_t seed) {
    const Communicator comm{.topology = Topology::from_rings(claim.rings)};
    const auto partials = seeded_partials(comm.ranks(), seed);
    Evidence evidence = blank(claim, seed);
    const std::size_t order_sensitive = order_sensitive_columns(claim.rings.front(), partials);
    if (order_sensitive == 0 && comm.ranks() > 2) {
        evidence.detail = "vacuous: no element of these partials can tell one order from another";
        return evidence;
    }
    const std::vector<Place> all = places(claim.calls);
    const Received first = receive(claim.scheme, comm, all.front(), partials);
    evidence.verdict = Verdict::upheld;
    evidence.decided_by = fmt::format("{} places on the model", all.size());
    evidence.detail = fmt::format("{} of {} elements can tell orders apart", order_sensitive, hidden);
    for (const Place& place : all) {
        const Received other = receive(claim.scheme, comm, place, partials);
        std::size_t differing = 0, column = 0;
        for (std::size_t c = hidden; c-- > 0;)
            if (other.bits[c] != first.bits[c]) {
                ++differing;
                column = c;
            }
        if (differing == 0) continue;
        evidence.verdict = Verdict::refuted;
        const ReductionTree &a = first.trees[column], &b = other.trees[column];
        const auto small = separating_witness(a, b, format);
        evidence.witness = fmt::format(
            "the same partials in two places: {}\non seeded partials {} of {} elements of the token differ between the "
            "two",
            tell_apart(a, b, format, small.value().leaves, all.front().str(), place.str()), differing, hidden);
        break;
    }
    return evidence;
}

/// vLLM's gate, and every scheme on 2 ranks compared with every other.
Evidence decide_gate(const Claim& claim, std::uint64_t seed) {
    const Communicator comm{.topology = Topology::from_rings(claim.rings)};
    const auto partials = seeded_partials(comm.ranks(), seed);
    Evidence evidence = blank(claim, seed);
    std::vector<Bits> expected;
    std::size_t compared = 0;
    evidence.verdict = Verdict::upheld;
    for (const Scheme scheme : all_schemes)
        for (const Place& place : places(claim.calls)) {
            if (scheme == Scheme::reduce_scatter && !place.routing.equal_sizes()) continue;
            const std::vector<Bits> bits = receive(scheme, comm, place, partials).bits;
            if (expected.empty()) expected = bits;
            ++compared;
            if (bits == expected) continue;
            evidence.verdict = Verdict::refuted;
            evidence.witness = fmt::format("{}: {}", name(scheme), place.str());
        }
    for (int ranks = 1; ranks <= 8; ++ranks)
        if (gated(true, ranks) != (ranks > 2 ? Scheme::fixed_root : Scheme::vllm_default) ||
            gated(false, ranks) != Scheme::vllm_default) {
            evidence.verdict = Verdict::refuted;
            evidence.witness = fmt::format("{} ranks: the gate takes {}", ranks, name(gated(true, ranks)));
        }
    evidence.decided_by = fmt::format("{} places on the model", compared);
    return evidence;
}

}  // namespace

std::vector<LedgerJob> scenario_jobs(std::uint64_t seed) {
    const std::vector<std::uint64_t> decode{1, 1, 1, 1}, prefill{5, 0, 3, 2}, large{512, 0, 301, 211};
    const std::vector<Ring> one_ring(8, Ring{0, 1, 2, 3}), two_rings{{0, 1, 2, 3}, {0, 1, 3, 2}};
    const std::string kept = "a token's bits do not depend on its owner, its position or the rest of the call";
    const std::string scope = "4 ranks x 2048 bfloat16";
    const auto invariant = [](Scheme scheme) { return fmt::format("{}_is_routing_invariant", name(scheme)); };
    std::vector<Claim> claims{
        {invariant(Scheme::vllm_default),
         kept,
         scope,
         Scheme::vllm_default,
         one_ring,
         {decode, prefill, large},
         Verdict::refuted},
        {invariant(Scheme::fixed_root),
         kept + ", given one ring on all channels",
         scope + ", one ring",
         Scheme::fixed_root,
         one_ring,
         {decode, prefill, large}},
        {"fixed_root_is_routing_invariant_on_any_rings",
         kept + ", whatever rings the channels have",
         scope + ", two rings",
         Scheme::fixed_root,
         two_rings,
         {decode, prefill, large},
         Verdict::refuted},
    };
    for (const Scheme scheme :
         {Scheme::gather_ordered, Scheme::exchange_ordered, Scheme::direct_ordered, Scheme::exact})
        claims.push_back({invariant(scheme), kept, scope + ", two rings", scheme, two_rings, {decode, prefill, large}});
    std::vector<LedgerJob> jobs;
    for (const Claim& claim : claims)
        jobs.push_back({blank(claim, seed), [claim, seed] { return std::vector{decide(claim, seed)}; }, 30});
    const Claim gate{
        "two_ranks_are_exempt",    "with 2 ranks all schemes give the same bits; above, the gate takes fixed_root",
        "2 ranks x 2048 bfloat16", Scheme::vllm_default,
        {{0, 1}, {1, 0}},          {{1, 1}, {5, 0}, {3, 2}, {512, 301}}};
    jobs.push_back({blank(gate, seed), [gate, seed] { return std::vector{decide_gate(gate, seed)}; }, 30});
    return jobs;
}

}  // namespace samesum
