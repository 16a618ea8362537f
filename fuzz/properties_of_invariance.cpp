// Invariances are made by a rule: scheme x what changes about the token's place.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "fuzz/property_tables.hpp"

namespace samesum::fuzz {
namespace {

/// Why the sides are not combines on one communicator with the same settings; empty when they are.
std::string not_one_communicator(const Case& c) {
    if (c.a.maker != Maker::combine || c.b.maker != Maker::combine) return "both sides are combines";
    if (!c.a.contributors.empty() || !c.b.contributors.empty())
        return "rank i contributes x[i]: expected no contributors";
    if (c.a.rings != c.b.rings || c.a.root != c.b.root || c.a.algorithm != c.b.algorithm ||
        c.a.protocol != c.b.protocol || c.a.ranks_per_node != c.b.ranks_per_node || c.a.nccl != c.b.nccl ||
        c.a.threads != c.b.threads)
        return "both sides have one communicator, root, algorithm and protocol";
    return {};
}

std::string_view what_changes(Invariance invariance) {
    switch (invariance) {
        case Invariance::owner:
            return "which rank owns it";
        case Invariance::position:
            return "where in the buffer it lies";
        case Invariance::count:
            return "how many other tokens are in the call";
        default:
            return "owner, position and the rest of the call";
    }
}

}  // namespace

Property invariance_of(Scheme scheme, Invariance invariance, bool any_rings, Verdict expected, bool only_pat) {
    const bool free_rings = !by_nccl(scheme);
    // NCCL's reduce is a ring, its reduce-scatter a ring or PAT; vllm_default switches between them with the sizes.
    const bool pat = only_pat || scheme == Scheme::reduce_scatter ||
                     (scheme == Scheme::vllm_default && invariance != Invariance::count);
    const TokenSpec spec{.scheme = scheme,
                         .min_ranks = any_rings && !free_rings ? 4 : 3,
                         .one_ring = !any_rings && !free_rings,
                         .spread = invariance == Invariance::owner,
                         .pat = pat,
                         .only_pat = only_pat};
    Property property{
        .name = fmt::format("{}_is_{}_invariant{}", name(scheme), name(invariance), any_rings ? "_on_any_rings" : ""),
        .sentence = fmt::format("a token's bits do not depend on {}{}", what_changes(invariance),
                                any_rings    ? ", whatever rings the channels have"
                                : free_rings ? ", nor on rings"
                                             : ", given one ring on all channels"),
        .scope = "3 to 16 ranks, every float format",
        .expected = expected,
        .of_orders = expected == Verdict::upheld,
        .min_ranks = spec.min_ranks,
        .shares_side = true,
        .schemes = {scheme},
    };
    property.draw = [=](Draw& draw) {
        // With only one ring, a claim about several rings cannot be tested.
        if (draw.setup() != nullptr && any_rings && one_ring(draw.setup()->rings)) throw Unavailable{};
        Case c = draw_token(draw, spec);
        move_token(draw, c, invariance, spec);
        if (free_rings && draw.one_in(2)) c.b.rings = draw_rings(draw, c.b.ranks(), draw.one_in(2));
        return c;
    };
    property.objection = [=](const Case& c) -> std::string {
        if (c.a.scheme != scheme || c.b.scheme != scheme) return fmt::format("both sides are {}", name(scheme));
        if (c.a.maker != Maker::combine || c.b.maker != Maker::combine) return "both sides are combines";
        if (c.a.accumulation != c.b.accumulation) return "both sides round alike";
        if (!free_rings)
            if (std::string why = not_one_communicator(c); !why.empty()) return why;
        if (!any_rings && !free_rings && !one_ring(c.a.rings)) return "all channels have one ring";
        if (!pat && c.a.algorithm != Algorithm::ring) return "algo is Ring";
        if (only_pat && c.a.algorithm != Algorithm::pat) return "algo is PAT";
        return not_moved(c, invariance);
    };
    return property;
}

std::vector<Property> properties_of_invariance() {
    std::vector<Property> all;
    for (const Scheme scheme : all_schemes)
        for (const Invariance invariance :
             {Invariance::owner, Invariance::position, Invariance::count, Invariance::routing}) {
            const bool follows_owner = scheme == Scheme::reduce_scatter || scheme == Scheme::reduce_per_owner ||
                                       scheme == Scheme::vllm_default;
            const bool moves_owner = invariance == Invariance::owner || invariance == Invariance::routing;
            // Reduces to one root have two claims: a true one, on one ring, and a false one, on any rings.
            const bool to_root = scheme == Scheme::fixed_root || scheme == Scheme::reduce_broadcast;
            for (const bool any_rings : to_root ? std::vector{false, true} : std::vector{false}) {
                const bool holds = !any_rings && !(follows_owner && moves_owner);
                all.push_back(invariance_of(scheme, invariance, any_rings, holds ? Verdict::upheld : Verdict::refuted));
                all.back().headline = invariance == (follows_owner ? Invariance::owner : Invariance::routing);
            }
        }
    return all;
}

}  // namespace samesum::fuzz
