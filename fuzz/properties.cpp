// Invariances are made by a rule (scheme x what changes); the rest is written out below them.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/properties.hpp"

#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "model/combine/invariance.hpp"
#include "model/sum/native_sum.hpp"
#include "model/support/error.hpp"

namespace samesum::fuzz {
namespace {

bool scatters_only(Scheme scheme) { return scheme == Scheme::reduce_scatter; }
bool one_ring(const Side& side) {
    return std::adjacent_find(side.rings.begin(), side.rings.end(), std::not_equal_to<>()) == side.rings.end();
}
int owner(const Side& side) { return Routing{side.sizes, 1}.owner(side.row); }
std::uint64_t rows(const Side& side) { return Routing{side.sizes, 1}.rows(); }

/// A token somewhere: format, partials, and side a; b is the same.
struct Wanted {
    Scheme scheme = Scheme::fixed_root;
    int min_ranks = 2, max_ranks = 16;
    bool one_ring = true;
    bool spread = false;  ///< two owners at least
    bool pat = false;     ///< reduce_scatter may be PAT
    bool only_pat = false;
};

void draw_place(Draw& draw, Case& c, Side& side, const Wanted& wanted) {
    // Real ranks need long for large calls.
    const std::uint64_t seldom = draw.world() != nullptr ? 24 : 4;
    const bool large = by_nccl(side.scheme) && draw.fixed_rows() == 0 &&
                       (wanted.one_ring || draw.world() != nullptr ? draw.one_in(seldom) : !draw.one_in(seldom));
    side.sizes.assign(static_cast<std::size_t>(side.sizes.size()), 0);
    if (large) {
        draw_straddling(draw, c, side);
        return;
    }
    const bool equal = scatters_only(side.scheme) || (side.scheme == Scheme::vllm_default && draw.one_in(2));
    side.sizes = draw_sizes(draw, side.ranks(), equal, wanted.spread);
    side.row = draw.below(rows(side));
}

Case draw_token(Draw& draw, const Wanted& wanted) {
    Case c;
    c.format = draw.format();
    const int ranks = draw.ranks(wanted.min_ranks, wanted.max_ranks);
    c.hidden = draw.hidden();
    c.column = draw.below(c.hidden);
    c.fill = draw.fill();
    c.x = draw_partials(draw, c.format, static_cast<std::size_t>(ranks));
    Side& a = c.a;
    a.scheme = wanted.scheme;
    a.rings = draw_rings(draw, ranks, wanted.one_ring && by_nccl(wanted.scheme));
    a.protocol = draw.protocol();
    if (const World* world = draw.world()) {
        const bool pat = world->algorithm == Algorithm::pat;
        const bool scatters = scatters_only(wanted.scheme) || wanted.scheme == Scheme::vllm_default;
        if (wanted.only_pat ? !pat : pat && scatters && !wanted.pat) throw NotHere{};
        if (wanted.pat) a.algorithm = world->algorithm;
        a.ranks_per_node = world->ranks_per_node;
        a.nccl = world->nccl;
        a.threads = world->threads;
    } else if (wanted.only_pat || (wanted.pat && draw.one_in(3))) {
        a.algorithm = Algorithm::pat;
        a.protocol = Protocol::simple;  // NCCL has PAT in no other
    }
    if (wanted.scheme == Scheme::fixed_root || wanted.scheme == Scheme::reduce_broadcast)
        a.root = draw.between(0, ranks - 1);
    if (is_ordered(wanted.scheme) && draw.one_in(3)) a.accumulation = Accumulation::fp32_once;
    a.sizes.resize(static_cast<std::size_t>(ranks));
    draw_place(draw, c, a, wanted);
    c.b = a;
    return c;
}

/// Gives a rank one more row, or every rank where all must be equal.
void grow(Side& side, int rank) {
    if (scatters_only(side.scheme))
        for (auto& size : side.sizes) ++size;
    else
        ++side.sizes[static_cast<std::size_t>(rank)];
}

std::uint64_t draw_row_of(Draw& draw, const Side& side, int rank) {
    return Routing{side.sizes, 1}.first_row(rank) + draw.below(side.sizes[static_cast<std::size_t>(rank)]);
}

/// Side b: the same token elsewhere, as far as the invariance lets it go.
void move_token(Draw& draw, Case& c, Invariance invariance, const Wanted& wanted) {
    const int holder = owner(c.a);
    const auto n = c.a.ranks();
    switch (invariance) {
        case Invariance::owner: {
            if (c.a.sizes[static_cast<std::size_t>(holder)] == rows(c.a)) {
                grow(c.a, (holder + draw.between(1, n - 1)) % n);
                c.a.row = draw_row_of(draw, c.a, holder);
            }
            draw.next_side();
            int other = (holder + draw.between(1, n - 1)) % n;
            while (other == holder || c.a.sizes[static_cast<std::size_t>(other)] == 0) other = (other + 1) % n;
            c.b = c.a;
            c.b.row = draw_row_of(draw, c.b, other);
            return;
        }
        case Invariance::position: {
            if (c.a.sizes[static_cast<std::size_t>(holder)] < 2) {
                grow(c.a, holder);
                c.a.row = draw_row_of(draw, c.a, holder);
            }
            draw.next_side();
            c.b = c.a;
            const std::uint64_t first = Routing{c.a.sizes, 1}.first_row(holder);
            const std::uint64_t size = c.a.sizes[static_cast<std::size_t>(holder)];
            c.b.row = first + (c.a.row - first + 1 + draw.below(size - 1)) % size;
            return;
        }
        case Invariance::count:
            draw.next_side();
            draw_place(draw, c, c.b, wanted);
            if (c.b.sizes[static_cast<std::size_t>(holder)] == 0) grow(c.b, holder);
            if (rows(c.b) == rows(c.a)) grow(c.b, holder);
            c.b.row = draw_row_of(draw, c.b, holder);
            return;
        default:
            draw.next_side();
            draw_place(draw, c, c.b, wanted);
            return;
    }
}

/// The sides are the same but for how the calls are run.
bool alike(Side expected, const Side& b) {
    expected.launch_mode = b.launch_mode;
    return expected == b;
}

/// Are both sides combines on one communicator, with the same settings?
std::string not_one_communicator(const Case& c) {
    if (c.a.maker != Maker::combine || c.b.maker != Maker::combine) return "both sides are combines";
    if (!c.a.seats.empty() || !c.b.seats.empty()) return "rank i contributes x[i]; no seats";
    if (c.a.rings != c.b.rings || c.a.root != c.b.root || c.a.algorithm != c.b.algorithm ||
        c.a.protocol != c.b.protocol || c.a.ranks_per_node != c.b.ranks_per_node || c.a.nccl != c.b.nccl ||
        c.a.threads != c.b.threads)
        return "both sides have one communicator, root, algorithm and protocol";
    return {};
}

std::string not_moved(const Case& c, Invariance invariance) {
    switch (invariance) {
        case Invariance::owner:
            if (c.a.sizes != c.b.sizes || owner(c.a) == owner(c.b)) return "same sizes, two owners";
            return {};
        case Invariance::position:
            if (c.a.sizes != c.b.sizes || owner(c.a) != owner(c.b) || c.a.row == c.b.row)
                return "same sizes, one owner, two rows";
            return {};
        case Invariance::count:
            if (owner(c.a) != owner(c.b) || rows(c.a) == rows(c.b)) return "one owner, two numbers of rows";
            return {};
        default:
            return {};
    }
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

Property invariance_of(Scheme scheme, Invariance invariance, bool any_rings, Verdict expected, bool only_pat = false) {
    const bool free_rings = !by_nccl(scheme);
    // NCCL's reduce is a ring, its reduce-scatter a ring or PAT; vllm_default goes from one to the other when the sizes
    // do.
    const bool pat = only_pat || scheme == Scheme::reduce_scatter ||
                     (scheme == Scheme::vllm_default && invariance != Invariance::count);
    const Wanted wanted{.scheme = scheme,
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
        .min_ranks = wanted.min_ranks,
        .shares_side = true,
        .schemes = {scheme},
    };
    property.draw = [=](Draw& draw) {
        // Where there is one ring alone, a claim about several is neither true nor false.
        if (draw.world() != nullptr && any_rings && draw.world()->one_ring()) throw NotHere{};
        Case c = draw_token(draw, wanted);
        move_token(draw, c, invariance, wanted);
        if (free_rings && draw.one_in(2)) c.b.rings = draw_rings(draw, c.b.ranks(), draw.one_in(2));
        return c;
    };
    property.objection = [=](const Case& c) -> std::string {
        if (c.a.scheme != scheme || c.b.scheme != scheme) return fmt::format("both sides are {}", name(scheme));
        if (c.a.maker != Maker::combine || c.b.maker != Maker::combine) return "both sides are combines";
        if (c.a.accumulation != c.b.accumulation) return "both sides round alike";
        if (!free_rings)
            if (std::string why = not_one_communicator(c); !why.empty()) return why;
        if (!any_rings && !free_rings && !one_ring(c.a)) return "all channels have one ring";
        if (!pat && c.a.algorithm != Algorithm::ring) return "algo is Ring";
        if (only_pat && c.a.algorithm != Algorithm::pat) return "algo is PAT";
        return not_moved(c, invariance);
    };
    return property;
}

std::vector<Property> invariances() {
    std::vector<Property> all;
    for (const Scheme scheme : all_schemes)
        for (const Invariance invariance :
             {Invariance::owner, Invariance::position, Invariance::count, Invariance::routing}) {
            const bool follows_owner = scheme == Scheme::reduce_scatter || scheme == Scheme::reduce_per_owner ||
                                       scheme == Scheme::vllm_default;
            const bool moves_owner = invariance == Invariance::owner || invariance == Invariance::routing;
            // Of reduces to one root both the true claim, on one ring, and the false one, on any, are shown.
            const bool to_root = scheme == Scheme::fixed_root || scheme == Scheme::reduce_broadcast;
            for (const bool any_rings : to_root ? std::vector{false, true} : std::vector{false}) {
                const bool holds = !any_rings && !(follows_owner && moves_owner);
                all.push_back(invariance_of(scheme, invariance, any_rings, holds ? Verdict::upheld : Verdict::refuted));
                all.back().headline = invariance == (follows_owner ? Invariance::owner : Invariance::routing);
            }
        }
    return all;
}

Property of_trees(std::string name, std::string sentence, const char* a, const char* b, Verdict expected) {
    const auto tree_a = ReductionTree::parse(a), tree_b = ReductionTree::parse(b);
    Property property{.name = std::move(name),
                      .sentence = std::move(sentence),
                      .scope = "every float format",
                      .expected = expected,
                      .headline = true};
    property.draw = [=](Draw& draw) {
        if (draw.world() != nullptr) throw NotHere{};  // no ranks take part
        Case c;
        c.format = draw.format();
        c.x = draw_partials(draw, c.format, static_cast<std::size_t>(tree_a.leaf_count()));
        c.a.maker = c.b.maker = Maker::tree;
        c.a.tree = tree_a;
        c.b.tree = tree_b;
        return c;
    };
    property.objection = [=](const Case& c) -> std::string {
        if (c.a.tree != tree_a || c.b.tree != tree_b || static_cast<int>(c.x.size()) != tree_a.leaf_count())
            return fmt::format("the sides are {} and {}", tree_a.str(), tree_b.str());
        return {};
    };
    return property;
}

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
    const Wanted wanted{.scheme = Scheme::fixed_root, .min_ranks = 3, .max_ranks = 3, .one_ring = false};
    property.draw = [=](Draw& draw) {
        Case c = draw_token(draw, wanted);
        move_token(draw, c, Invariance::routing, wanted);
        if (draw.one_in(2)) c.b.rings = draw_rings(draw, 3, false);
        return c;
    };
    property.objection = [](const Case& c) -> std::string {
        const bool meant = c.a.scheme == Scheme::fixed_root && c.b.scheme == Scheme::fixed_root && c.a.ranks() == 3 &&
                           c.b.ranks() == 3 && c.a.root == c.b.root && c.a.maker == Maker::combine &&
                           c.b.maker == Maker::combine && c.a.seats.empty() && c.b.seats.empty();
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
        const Wanted wanted{
            .scheme = draw.scheme(all_schemes), .min_ranks = 2, .max_ranks = 2, .one_ring = false, .pat = true};
        Case c = draw_token(draw, wanted);
        draw.next_side();
        c.b.scheme = draw.scheme(all_schemes);
        draw_place(draw, c, c.b, wanted);
        c.a.accumulation = c.b.accumulation = Accumulation::per_hop;
        return c;
    };
    property.objection = [](const Case& c) -> std::string {
        if (c.a.maker != Maker::combine || c.b.maker != Maker::combine) return "both sides are combines";
        if (c.a.ranks() != 2 || c.b.ranks() != 2 || c.x.size() != 2) return "2 ranks";
        if (c.a.seats != c.b.seats) return "each rank keeps its partial";
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
        if (c.a.scheme != Scheme::fixed_root || c.a.maker != Maker::combine || !alike(expected, c.b))
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
        const Wanted wanted{.scheme = draw.scheme(ordered), .min_ranks = 3, .one_ring = false};
        Case c = draw_token(draw, wanted);
        draw.next_side();
        c.b.scheme = draw.scheme(ordered);
        draw_place(draw, c, c.b, wanted);
        return c;
    };
    property.objection = [](const Case& c) -> std::string {
        if (c.a.maker != Maker::combine || c.b.maker != Maker::combine || !is_ordered(c.a.scheme) ||
            !is_ordered(c.b.scheme))
            return "both sides are ordered schemes";
        if (c.a.accumulation != c.b.accumulation) return "both sides round alike";
        if (!c.a.seats.empty() || !c.b.seats.empty()) return "rank i contributes x[i]; no seats";
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
        Wanted wanted{.scheme = Scheme::exact, .min_ranks = 3, .one_ring = false};
        Case c = draw_token(draw, wanted);
        draw.next_side();
        const int ranks = c.a.ranks() + (draw.world() != nullptr || draw.one_in(2) ? 0 : draw.between(1, 6));
        std::vector<int> seats(static_cast<std::size_t>(ranks));
        std::iota(seats.begin(), seats.end(), 0);
        draw.shuffle(seats);
        seats.resize(c.x.size());
        c.b.seats = std::move(seats);
        c.b.sizes.resize(static_cast<std::size_t>(ranks));
        c.b.rings = draw_rings(draw, ranks, false);
        draw_place(draw, c, c.b, wanted);
        return c;
    };
    property.objection = [](const Case& c) -> std::string {
        const bool meant = c.a.scheme == Scheme::exact && c.b.scheme == Scheme::exact && c.a.maker == Maker::combine &&
                           c.b.maker == Maker::combine;
        return meant ? "" : "both sides are exact";
    };
    return property;
}

/// One contributor; -0 from all others changes nothing, so its row has to arrive as it is. NaNs do not survive an
/// addition, nor do infinities in float8, nor either of them a conversion: those travel alone.
bool may_travel(const Case& c) {
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
        const Wanted wanted{
            .scheme = draw.scheme(all_schemes), .min_ranks = 1, .max_ranks = 16, .one_ring = false, .pat = true};
        Case c = draw_token(draw, wanted);
        c.x.resize(1);
        if (draw.one_in(3)) c.x.front() = draw_edge(draw, c.format);
        c.a.seats = {draw.between(0, c.a.ranks() - 1)};
        if (!may_travel(c)) c.x.front() = traits(c.format).sign();
        c.b = c.a;
        c.b.maker = Maker::movement;
        return c;
    };
    property.objection = [](const Case& c) -> std::string {
        Side expected = c.a;
        expected.maker = Maker::movement;
        if (c.a.maker != Maker::combine || !alike(expected, c.b) || c.x.size() != 1)
            return "a combines, b moves the one contributor's row, and is else as a";
        if (!may_travel(c)) return "this x does not survive an addition of -0";
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
        const bool one_ring = draw.world() != nullptr ? draw.world()->one_ring() : draw.one_in(2);
        const Wanted wanted{.scheme = draw.scheme(all_schemes), .min_ranks = 3, .one_ring = one_ring, .pat = true};
        Case c = draw_token(draw, wanted);
        c.b.maker = Maker::prediction;
        return c;
    };
    property.objection = [](const Case& c) -> std::string {
        Side expected = c.a;
        expected.maker = Maker::prediction;
        if (c.a.maker != Maker::combine || !alike(expected, c.b)) return "b is by=prediction and else as a";
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
        const bool one_ring = draw.world() != nullptr && draw.world()->one_ring();
        const Wanted wanted{.scheme = draw.scheme(all_schemes), .min_ranks = 2, .one_ring = one_ring, .pat = true};
        return draw_token(draw, wanted);
    };
    property.objection = [](const Case& c) -> std::string {
        if (c.a.maker != Maker::combine || !alike(c.a, c.b)) return "both sides are one combine";
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
        const bool meant = c.a.scheme == Scheme::fixed_root && c.a.maker == Maker::combine && alike(expected, c.a) &&
                           c.a.root != c.b.root && one_ring(c.a);
        return meant ? "" : "fixed_root on one ring; the sides differ in the root alone";
    };
    return property;
}

}  // namespace

std::span<const Property> properties() {
    static const std::vector<Property> all = [] {
        std::vector<Property> table{
            of_trees("addition_commutes", "x0 + x1 = x1 + x0, bit for bit", "(0 1)", "(1 0)", Verdict::upheld),
            of_trees("addition_is_associative", "(x0 + x1) + x2 = x0 + (x1 + x2)", "((0 1) 2)", "(0 (1 2))",
                     Verdict::refuted),
            two_ranks(), three_ranks()};
        for (Property& property : invariances()) table.push_back(std::move(property));
        for (auto make : {call_repeats, with_pat, any_root, broadcast_equals_root, ordered_agree, exact_order_free,
                          pure_movement, predicted})
            table.push_back(make());
        return table;
    }();
    return all;
}

const Property& property_named(std::string_view name) {
    const auto all = properties();
    const auto found = std::find_if(all.begin(), all.end(), [&](const Property& p) { return p.name == name; });
    if (found == all.end())
        throw UsageError(fmt::format("no property is called '{}'; samesum fuzz --list names them", name));
    return *found;
}

std::string objection(const Property& property, const Case& c) {
    std::string why = objection(c);
    return why.empty() ? property.objection(c) : why;
}

rc::Shrinkable<Case> shrinkable(const Property& property, Case c) {
    return rc::shrinkable::shrinkRecur(std::move(c), [&property](const Case& from) {
        // One after another: most are never asked for.
        return rc::seq::filter(rc::seq::fromContainer(simpler(from)),
                               [&property](const Case& each) { return objection(property, each).empty(); });
    });
}

bool fits(const Property& property, const Limits& limits) {
    if (!limits.allows_ranks(property.min_ranks, property.max_ranks)) return false;
    if (property.schemes.empty()) return limits.schemes.empty();
    return std::any_of(property.schemes.begin(), property.schemes.end(), [&](Scheme s) { return limits.allows(s); });
}

Case draw_case(const Property& property, Draw draw) {
    const bool live = draw.world() != nullptr;
    const LaunchMode launch_mode = live ? draw_manner(draw) : LaunchMode{};
    Case c = property.draw(draw);
    c.property = property.name;
    c.a.launch_mode = launch_mode;
    if (live) c.b.launch_mode = draw_manner(draw);
    return c;
}

rc::Gen<Case> cases(const Property& property, const Limits& limits) {
    return [&property, limits](const rc::Random& random, int size) {
        return shrinkable(property, draw_case(property, Draw(random, size, &limits)));
    };
}

std::vector<Bits> row_of(const Case& c, const Side& side, Backend& backend) {
    if (side.maker == Maker::tree) {
        const HopArithmetic hop(c.format);
        std::vector<Bits> row(c.hidden);
        row[c.column] = evaluate<Bits>(side.tree.value(), c.x, [&](Bits l, Bits r) { return hop.add(l, r); });
        return row;
    }
    const Partials partials(c, side);
    switch (side.maker) {
        case Maker::movement: {
            std::vector<Bits> row(c.hidden);
            const int from = side.seats.empty() ? 0 : side.seats.front();
            for (std::uint64_t column = 0; column < c.hidden; ++column)
                row[column] = partials.at(from, side.row, column);
            return row;
        }
        case Maker::prediction:
            return predicted_row(request_of(c, side), partials, side.row);
        default:
            return backend.combine_row(request_of(c, side), partials, side.row);
    }
}

Comparison compare(const Case& c, Backend& backend) {
    Comparison result;
    result.column = c.column;
    result.a = row_of(c, c.a, backend);
    // What is the same call is made twice.
    if (c.a == c.b) backend.forget();
    result.b = row_of(c, c.b, backend);
    ensure(result.a.size() == c.hidden && result.b.size() == c.hidden, "a row has hidden elements");
    result.same = result.a == result.b;
    if (result.same && c.a.maker == Maker::combine && c.b.maker == Maker::prediction) {
        result.stray = backend.stray(request_of(c, c.a));
        result.same = !result.stray;
        return result;
    }
    if (result.same || result.a[c.column] != result.b[c.column]) return result;
    for (result.column = 0; result.a[result.column] == result.b[result.column];) ++result.column;
    return result;
}

Case about_column(const Case& c, std::uint64_t column) {
    if (column == c.column) return c;
    Case other = c;
    other.column = column;
    const Partials partials(c, c.a);
    for (std::size_t i = 0; i < c.x.size(); ++i)
        other.x[i] = partials.at(c.a.seats.empty() ? static_cast<int>(i) : c.a.seats[i], c.a.row, column);
    return other;
}

Case about_element(const Case& c, const Element& element) {
    Case other = c;
    other.column = element.column;
    other.a.row = other.b.row = element.row;
    const Partials partials(c, c.a);
    other.x.clear();
    other.a.seats.clear();
    other.b.seats.clear();
    for (int rank = 0; rank < c.a.ranks(); ++rank) other.x.push_back(partials.at(rank, element.row, element.column));
    return other;
}

std::optional<Combination> combination(const Case& c, const Side& side) {
    if (side.maker != Maker::combine || !by_nccl(side.scheme)) return std::nullopt;
    const Request request = request_of(c, side);
    const CombinePlan plan =
        plan_combine(request.scheme, request.comm, request.routing, request.format, request.options);
    std::uint64_t channels = 0;
    for (const Part& part : plan.schedule.parts()) channels |= std::uint64_t{1} << (part.channel % 64);
    const std::uint64_t begin = side.row * c.hidden, end = begin + c.hidden, all = request.routing.elements();
    const Segment segment = plan.schedule.segment_at(begin);
    const bool whole = segment.begin == 0 && segment.end >= all;
    const bool at_border = (segment.begin == begin && begin > 0) || (segment.end == end && end < all);
    const auto cut = whole               ? Combination::Cut::whole
                     : segment.end < end ? Combination::Cut::across
                     : at_border         ? Combination::Cut::at_border
                                         : Combination::Cut::inside;
    return Combination{side.scheme,
                       dispatched(side.scheme, request.routing),
                       *request.options.forced.algorithm,
                       side.protocol,
                       cut,
                       std::popcount(channels)};
}

std::string str(const Combination& c) {
    static constexpr std::array cuts{"one order", "row inside an order", "row at a border", "row across a border"};
    return fmt::format("{}{} {} {}, {}", name(c.scheme),
                       c.scheme == c.dispatched ? "" : fmt::format(" as {}", name(c.dispatched)), name(c.algorithm),
                       name(c.protocol), cuts.at(static_cast<std::size_t>(c.cut)));
}

bool tells_orders(const Case& c) {
    return with_native_add(c.format, [&](auto hop) {
        const auto n = c.x.size();
        const auto fold = [&](std::size_t start, std::size_t step) {
            Bits sum = c.x[start];
            for (std::size_t i = 1, at = start; i < n; ++i) {
                at += step;
                if (at >= n) at -= n;
                sum = hop.add(sum, c.x[at]);
            }
            return sum;
        };
        const Bits first = fold(0, 1);
        for (std::size_t start = 1; start < n; ++start)
            if (fold(start, 1) != first) return true;
        return fold(n - 1, n - 1) != first;
    });
}

}  // namespace samesum::fuzz
