// What schemes have in common with each other and with the model, and what few ranks make impossible.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <numeric>

#include "fuzz/property_tables.hpp"

namespace samesum::fuzz {
namespace {

Property with_pat() {
    Property property = invariance_of(Scheme::vllm_default, Invariance::count, false, Verdict::refuted, true);
    property.name += "_with_pat";
    property.sentence =
        "a token's bits do not depend on how many other tokens are in the call, where reduce-scatter is PAT";
    return property;
}

Property three_ranks() {
    Property property{.name = "three_ranks_need_no_ring",
                      .sentence =
                          "with 3 ranks every ring gives fixed_root the same bits, since the root adds last and "
                          "the others commute",
                      .scope = "3 ranks, any rings",
                      .of_orders = true,
                      .min_ranks = 3,
                      .max_ranks = 3,
                      .schemes = {Scheme::fixed_root}};
    const TokenSpec spec{.scheme = Scheme::fixed_root, .min_ranks = 3, .max_ranks = 3, .one_ring = false};
    property.draw = [=](Draw& draw) {
        Case c = draw_token(draw, spec);
        move_token(draw, c, Invariance::routing, spec);
        if (draw.one_in(2)) c.b.rings = draw_rings(draw, 3, false);
        return c;
    };
    property.objection = [](const Case& c) -> std::string {
        const bool meant = c.a.scheme == Scheme::fixed_root && c.b.scheme == Scheme::fixed_root && c.a.ranks() == 3 &&
                           c.b.ranks() == 3 && c.a.root == c.b.root && c.a.maker == Maker::combine &&
                           c.b.maker == Maker::combine && c.a.contributors.empty() && c.b.contributors.empty();
        return meant ? "" : "both sides are fixed_root to one root of 3 ranks";
    };
    return property;
}

Property two_ranks() {
    Property property{.name = "two_ranks_agree",
                      .sentence = "with 2 ranks every scheme makes the same bits, wherever the token lies",
                      .scope = "2 ranks, every pair of schemes",
                      .headline = true,
                      .min_ranks = 2,
                      .max_ranks = 2,
                      .shares_side = true,
                      .schemes = {all_schemes.begin(), all_schemes.end()}};
    property.draw = [](Draw& draw) {
        const TokenSpec spec{
            .scheme = draw.scheme(all_schemes), .min_ranks = 2, .max_ranks = 2, .one_ring = false, .pat = true};
        Case c = draw_token(draw, spec);
        draw.next_side();
        c.b.scheme = draw.scheme(all_schemes);
        draw_place(draw, c, c.b, spec);
        c.a.accumulation = c.b.accumulation = Accumulation::per_hop;
        return c;
    };
    property.objection = [](const Case& c) -> std::string {
        if (c.a.maker != Maker::combine || c.b.maker != Maker::combine) return "both sides are combines";
        if (c.a.ranks() != 2 || c.b.ranks() != 2 || c.x.size() != 2) return "2 ranks";
        if (c.a.contributors != c.b.contributors) return "each rank keeps its partial";
        if (c.a.accumulation != Accumulation::per_hop || c.b.accumulation != Accumulation::per_hop)
            return "one rounding an addition";
        return {};
    };
    return property;
}

Property broadcast_equals_root() {
    Property property{.name = "reduce_broadcast_equals_fixed_root",
                      .sentence = "both are one ncclReduce to the root and then pure movement",
                      .scope = "3 to 16 ranks, any rings",
                      .of_orders = true,
                      .min_ranks = 3,
                      .schemes = {Scheme::fixed_root}};
    property.draw = [](Draw& draw) {
        Case c = draw_token(draw, {.scheme = Scheme::fixed_root, .min_ranks = 3, .one_ring = false});
        c.b.scheme = Scheme::reduce_broadcast;
        return c;
    };
    property.objection = [](const Case& c) -> std::string {
        Side expected = c.a;
        expected.scheme = Scheme::reduce_broadcast;
        if (c.a.scheme != Scheme::fixed_root || c.a.maker != Maker::combine || !same_but_launch_mode(expected, c.b))
            return "the sides differ in fixed_root and reduce_broadcast alone";
        return {};
    };
    return property;
}

Property ordered_agree() {
    Property property{.name = "ordered_schemes_agree",
                      .sentence =
                          "gather_ordered, exchange_ordered and direct_ordered make the same bits in one rounding, "
                          "whatever routing and rings",
                      .scope = "3 to 16 ranks",
                      .headline = true,
                      .of_orders = true,
                      .min_ranks = 3};
    static constexpr std::array ordered{Scheme::gather_ordered, Scheme::exchange_ordered, Scheme::direct_ordered};
    property.schemes = {ordered.begin(), ordered.end()};
    property.shares_side = true;
    property.draw = [](Draw& draw) {
        const TokenSpec spec{.scheme = draw.scheme(ordered), .min_ranks = 3, .one_ring = false};
        Case c = draw_token(draw, spec);
        draw.next_side();
        c.b.scheme = draw.scheme(ordered);
        draw_place(draw, c, c.b, spec);
        return c;
    };
    property.objection = [](const Case& c) -> std::string {
        if (c.a.maker != Maker::combine || c.b.maker != Maker::combine || !is_ordered(c.a.scheme) ||
            !is_ordered(c.b.scheme))
            return "both sides are ordered schemes";
        if (c.a.accumulation != c.b.accumulation) return "both sides round alike";
        if (!c.a.contributors.empty() || !c.b.contributors.empty())
            return "rank i contributes x[i]: expected no contributors";
        return {};
    };
    return property;
}

Property exact_order_free() {
    Property property{
        .name = "exact_is_order_free",
        .sentence = "exact makes the same bits whichever ranks hold the partials, and on however many ranks",
        .scope = "3 to 16 ranks, permuted and regrouped",
        .headline = true,
        .of_orders = true,
        .min_ranks = 3,
        .shares_side = true,
        .schemes = {Scheme::exact}};
    property.draw = [](Draw& draw) {
        TokenSpec spec{.scheme = Scheme::exact, .min_ranks = 3, .one_ring = false};
        Case c = draw_token(draw, spec);
        draw.next_side();
        const int ranks = c.a.ranks() + (draw.setup() != nullptr || draw.one_in(2) ? 0 : draw.between(1, 6));
        std::vector<int> contributors(static_cast<std::size_t>(ranks));
        std::iota(contributors.begin(), contributors.end(), 0);
        draw.shuffle(contributors);
        contributors.resize(c.x.size());
        c.b.contributors = std::move(contributors);
        c.b.sizes.resize(static_cast<std::size_t>(ranks));
        c.b.rings = draw_rings(draw, ranks, false);
        draw_place(draw, c, c.b, spec);
        return c;
    };
    property.objection = [](const Case& c) -> std::string {
        const bool meant = c.a.scheme == Scheme::exact && c.b.scheme == Scheme::exact && c.a.maker == Maker::combine &&
                           c.b.maker == Maker::combine;
        return meant ? "" : "both sides are exact";
    };
    return property;
}

/// With one contributor and -0 from all others, the row must arrive unchanged. Additions and conversions change NaNs,
/// and infinities in float8; those are only moved without any addition.
bool survives_transport(const Case& c) {
    const bool alone = c.a.ranks() == 1 && c.a.scheme != Scheme::exact && c.a.accumulation == Accumulation::per_hop;
    const Bits bits = c.x.front();
    return alone || is_finite(c.format, bits) || (is_infinite(c.format, bits) && traits(c.format).width > 8);
}

Property pure_movement() {
    Property property{.name = "scatter_is_pure_movement",
                      .sentence =
                          "a row that one rank alone contributes to arrives bit for bit: -0 stays, and with one "
                          "rank NaN payloads do",
                      .scope = "1 to 16 ranks, every scheme",
                      .headline = true,
                      .schemes = {all_schemes.begin(), all_schemes.end()}};
    property.draw = [](Draw& draw) {
        const TokenSpec spec{
            .scheme = draw.scheme(all_schemes), .min_ranks = 1, .max_ranks = 16, .one_ring = false, .pat = true};
        Case c = draw_token(draw, spec);
        c.x.resize(1);
        if (draw.one_in(3)) c.x.front() = draw_edge(draw, c.format);
        c.a.contributors = {draw.between(0, c.a.ranks() - 1)};
        if (!survives_transport(c)) c.x.front() = traits(c.format).sign();
        c.b = c.a;
        c.b.maker = Maker::movement;
        return c;
    };
    property.objection = [](const Case& c) -> std::string {
        Side expected = c.a;
        expected.maker = Maker::movement;
        if (c.a.maker != Maker::combine || !same_but_launch_mode(expected, c.b) || c.x.size() != 1)
            return "side a combines; side b moves the one contributor's row and is otherwise the same";
        if (!survives_transport(c)) return "adding -0 changes this x";
        return {};
    };
    return property;
}

Property predicted() {
    Property property{.name = "results_are_as_predicted",
                      .sentence = "what the backend makes is what the model's order makes of the partials",
                      .scope = "3 to 16 ranks, every scheme, any rings",
                      .headline = true,
                      .of_orders = true,
                      .min_ranks = 3,
                      .schemes = {all_schemes.begin(), all_schemes.end()}};
    property.draw = [](Draw& draw) {
        const bool same_ring = draw.setup() != nullptr ? one_ring(draw.setup()->rings) : draw.one_in(2);
        const TokenSpec spec{.scheme = draw.scheme(all_schemes), .min_ranks = 3, .one_ring = same_ring, .pat = true};
        Case c = draw_token(draw, spec);
        c.b.maker = Maker::prediction;
        return c;
    };
    property.objection = [](const Case& c) -> std::string {
        Side expected = c.a;
        expected.maker = Maker::prediction;
        if (c.a.maker != Maker::combine || !same_but_launch_mode(expected, c.b))
            return "side b is by=prediction and otherwise the same as a";
        return {};
    };
    return property;
}

Property call_repeats() {
    Property property{.name = "call_repeats",
                      .sentence =
                          "the same call makes the same bits again: eager or captured, in place or not, aligned "
                          "or not, on another communicator",
                      .scope = "2 to 16 ranks, every scheme",
                      .schemes = {all_schemes.begin(), all_schemes.end()}};
    property.draw = [](Draw& draw) {
        const bool same_ring = draw.setup() != nullptr && one_ring(draw.setup()->rings);
        const TokenSpec spec{.scheme = draw.scheme(all_schemes), .min_ranks = 2, .one_ring = same_ring, .pat = true};
        return draw_token(draw, spec);
    };
    property.objection = [](const Case& c) -> std::string {
        if (c.a.maker != Maker::combine || !same_but_launch_mode(c.a, c.b)) return "both sides are one combine";
        return {};
    };
    return property;
}

Property any_root() {
    Property property{.name = "fixed_root_is_root_invariant",
                      .sentence = "the root may be any rank",
                      .scope = "3 to 16 ranks, one ring",
                      .expected = Verdict::refuted,
                      .min_ranks = 3,
                      .shares_side = true,
                      .schemes = {Scheme::fixed_root}};
    property.draw = [](Draw& draw) {
        Case c = draw_token(draw, {.scheme = Scheme::fixed_root, .min_ranks = 3});
        draw.next_side();
        c.b.root = (c.a.root + draw.between(1, c.a.ranks() - 1)) % c.a.ranks();
        return c;
    };
    property.objection = [](const Case& c) -> std::string {
        Side expected = c.b;
        expected.root = c.a.root;
        const bool meant = c.a.scheme == Scheme::fixed_root && c.a.maker == Maker::combine &&
                           same_but_launch_mode(expected, c.a) && c.a.root != c.b.root && one_ring(c.a.rings);
        return meant ? "" : "fixed_root on one ring; the sides differ in the root alone";
    };
    return property;
}

}  // namespace

std::vector<Property> properties_of_few_ranks() { return {two_ranks(), three_ranks()}; }

std::vector<Property> properties_of_schemes() {
    return {call_repeats(),  with_pat(),         any_root(),      broadcast_equals_root(),
            ordered_agree(), exact_order_free(), pure_movement(), predicted()};
}

}  // namespace samesum::fuzz
