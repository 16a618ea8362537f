// What each scheme promises, given the orders of NCCL's calls.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "model/combine/combine.hpp"
#include "model/sum/witness.hpp"
#include "proofs/claims/claims.hpp"
#include "proofs/engine/smt_arithmetic.hpp"

namespace samesum {
namespace {

constexpr Forced ring_simple{Algorithm::ring, Protocol::simple};
constexpr std::uint64_t hidden = 2048;

Ring identity(int ranks) {
    Ring ring(static_cast<std::size_t>(ranks));
    std::iota(ring.begin(), ring.end(), 0);
    return ring;
}

/// Every ring through rank 0, written from it: (n-1)! of them.
std::vector<Ring> all_rings(int ranks) {
    std::vector<Ring> rings;
    Ring ring = identity(ranks);
    do rings.push_back(ring);
    while (std::next_permutation(ring.begin() + 1, ring.end()));
    return rings;
}

Communicator communicator(const std::vector<Ring>& rings) { return {.topology = Topology::from_rings(rings)}; }

/// Decode, prefill, zeros, one owner for everything, and calls large enough for every channel.
std::vector<Routing> routings(int ranks) {
    const auto n = static_cast<std::uint64_t>(ranks);
    std::vector<Routing> all;
    for (const std::uint64_t rows : {std::uint64_t{1}, std::uint64_t{512}}) {
        all.push_back({std::vector<std::uint64_t>(n, rows), hidden});
        std::vector<std::uint64_t> ragged(n), zeros(n, 0), one_owner(n, 0);
        for (std::uint64_t r = 0; r < n; ++r) ragged[r] = rows * ((r * 5 + 3) % 7);
        for (std::uint64_t r = 0; r < n; r += 2) zeros[r] = rows + r;
        one_owner[n / 2] = 3 * rows;
        all.push_back({ragged, hidden});
        all.push_back({zeros, hidden});
        all.push_back({one_owner, hidden});
    }
    return all;
}

/// A row of a routing as text, for counterexamples.
std::string where(const Routing& routing, std::uint64_t element) {
    return fmt::format("sizes {}, row {} of owner {}", str_sizes(routing.sizes), element / routing.hidden,
                       routing.owner(element / routing.hidden));
}

/// Compares every order of a scheme, over routings, with the first one.
class OneOrder {
public:
    /// False at the first order that differs.
    bool agrees(const CombinePlan& plan, const Routing& routing, Enumeration& tried) {
        bool same = true;
        // Two consecutive blocks are enough: within a part, orders repeat and are rotated only by the owner.
        for (const Part& part : plan.schedule.parts()) {
            const std::uint64_t blocks = std::min<std::uint64_t>(part.blocks, 64);
            for (std::uint64_t block = 0; block < blocks && same; ++block) {
                const ReductionTree tree = part.order_of_block(block).as_tree().canonical();
                const std::string place = where(routing, part.begin + block * part.period);
                ++tried.cases;
                if (!tree_) {
                    tree_ = tree;
                    place_ = place;
                } else if (*tree_ != tree) {
                    tried.counterexample = fmt::format("{}: {}\n{}: {}", place_, tree_->str(), place, tree.str());
                    same = false;
                }
            }
        }
        return same;
    }

private:
    std::optional<ReductionTree> tree_;
    std::string place_;
};

/// At two ranks all schemes, rings, roots, algorithms and protocols have one order.
Enumeration one_order_at_two_ranks() {
    Enumeration tried;
    OneOrder one;
    const Communicator comm{.topology = Topology::one_rank_per_node(2, 4)};
    for (const Scheme scheme : all_schemes)
        for (const Routing& routing : routings(2)) {
            if (scheme == Scheme::reduce_scatter && !routing.equal_sizes()) continue;
            for (const Protocol protocol : all_protocols)
                for (const int root : {0, 1}) {
                    const CombineOptions options{.root = root, .forced = {Algorithm::ring, protocol}};
                    if (!one.agrees(plan_combine(scheme, comm, routing, Format::bfloat16, options), routing, tried))
                        return tried;
                }
        }
    return tried;
}

/// All channels share a ring; any ring, root and routing: one order for each ring and root.
Enumeration fixed_root_keeps_its_order() {
    Enumeration tried;
    for (int ranks = 2; ranks <= 8; ++ranks) {
        const std::vector<Ring> rings = all_rings(std::min(ranks, 5));
        for (Ring ring : rings) {
            for (int rank = static_cast<int>(ring.size()); rank < ranks; ++rank) ring.push_back(rank);
            const Communicator comm = communicator(std::vector<Ring>(8, ring));
            for (int root = 0; root < ranks; ++root) {
                OneOrder one;
                for (const Routing& routing : routings(ranks))
                    for (const Scheme scheme : {Scheme::fixed_root, Scheme::reduce_broadcast}) {
                        const CombineOptions options{.root = root, .forced = ring_simple};
                        if (!one.agrees(plan_combine(scheme, comm, routing, Format::bfloat16, options), routing, tried))
                            return tried;
                    }
            }
        }
    }
    return tried;
}

/// The same with rings that differ from channel to channel, for schemes where samesum adds, not NCCL.
Enumeration keeps_its_order_on_any_rings(Scheme scheme, int ranks_per_node = 0) {
    Enumeration tried;
    for (int ranks = 2; ranks <= 8; ++ranks) {
        if (ranks_per_node > 0 && ranks % ranks_per_node != 0) continue;
        OneOrder one;
        const Communicator same = communicator(std::vector<Ring>(8, identity(ranks)));
        std::vector<Ring> rings = all_rings(std::min(ranks, 4));
        for (Ring& ring : rings)
            for (int rank = static_cast<int>(ring.size()); rank < ranks; ++rank) ring.insert(ring.begin() + 1, rank);
        const Communicator different = communicator(rings);
        for (const Communicator* comm : {&same, &different})
            for (const Routing& routing : routings(ranks))
                if (!one.agrees(plan_combine(scheme, *comm, routing, Format::bfloat16,
                                             {.ranks_per_node = ranks_per_node, .forced = ring_simple}),
                                routing, tried))
                    return tried;
    }
    return tried;
}

/// Sums of five values from the edges of every format: no permutation changes a bit.
Enumeration exact_ignores_order() {
    Enumeration tried;
    for (const Format format : float_formats) {
        const FormatTraits& t = traits(format);
        const std::vector<Bits> edges{0,
                                      t.sign(),
                                      1,
                                      t.sign() | 1,
                                      t.one(),
                                      t.one() | t.sign(),
                                      t.one() + 1,
                                      absorption_threshold(format),
                                      absorption_threshold(format) | t.sign(),
                                      t.largest(),
                                      t.largest() | t.sign(),
                                      t.has_infinity ? t.infinity() : t.largest() - 1,
                                      t.nan};
        const std::size_t n = edges.size();
        for (std::size_t pick = 0; pick < n * n * n * n; ++pick) {
            std::vector<Bits> values{edges[pick % n], edges[pick / n % n], edges[pick / n / n % n],
                                     edges[pick / n / n / n]};
            if (!std::is_sorted(values.begin(), values.end())) continue;
            const Bits sum = exact_sum(format, values);
            do {
                ++tried.cases;
                if (exact_sum(format, values) == sum) continue;
                tried.counterexample = fmt::format("{}: {}", name(format), str_leaves(format, values));
                return tried;
            } while (std::next_permutation(values.begin(), values.end()));
        }
    }
    return tried;
}

/// Two rings, walked from the root, are the same order exactly when they are equal up to their first two members; every
/// other pair is distinguished by a witness.
Enumeration different_rings_are_told_apart(int max_ranks) {
    Enumeration tried;
    for (int ranks = 3; ranks <= max_ranks; ++ranks) {
        const std::vector<Ring> rings = all_rings(ranks);
        for (const Ring& a : rings)
            for (const Ring& b : rings)
                for (const int root : {0, ranks - 1}) {
                    ++tried.cases;
                    const ReductionTree first = ReductionTree::left_fold(walk_ending_at(a, root));
                    const ReductionTree second = ReductionTree::left_fold(walk_ending_at(b, root));
                    const bool apart = separating_witness(first, second, Format::bfloat16).has_value();
                    if (apart == same_reduce_order(a, b, root) || (ranks == 3 && apart)) {
                        tried.counterexample = fmt::format("rings {} and {}, root {}", str(a), str(b), root);
                        return tried;
                    }
                }
    }
    return tried;
}

/// Every order that NCCL's model can name adds each rank exactly once.
Enumeration every_order_adds_each_rank_once() {
    Enumeration tried;
    const auto complete = [&](const Order& order) {
        ++tried.cases;
        std::vector<int> leaves = order.as_tree().leaves();
        std::sort(leaves.begin(), leaves.end());
        if (leaves == identity(order.ranks())) return true;
        tried.counterexample = fmt::format("{} ranks, {}: {}", order.ranks(), order.label(), order.as_tree().str());
        return false;
    };
    for (int ranks = 1; ranks <= 64; ++ranks) {
        const Topology topology = Topology::one_rank_per_node(ranks, 2);
        std::vector<Order> orders{Order::tree(topology.channels()[0].tree), Order::tree(topology.channels()[1].tree),
                                  Order::rank_order(ranks)};
        for (int last = 0; last < ranks; ++last) {
            orders.push_back(Order::ring(topology.channels()[0].ring, last));
            orders.push_back(Order::from_owner(ranks, last));
            for (int dimensions = 1; ranks > 1 && (1 << dimensions) <= 2 * ranks; ++dimensions)
                orders.push_back(Order::pat(ranks, last, dimensions));
        }
        for (const Order& order : orders)
            if (!complete(order)) return tried;
    }
    return tried;
}

/// One token, two places for it: element p1 of one call and p2 of another. Each call's partition assigns its elements
/// to channels arbitrarily, so owners, sizes, counts, positions and protocols are all covered; the root is any rank.
/// The fold on a channel begins at the root's successor, follows the ring, and ends with the root. By induction over
/// its steps both folds reach the same ranks with the same sums, so they also end at the same step with the same bits.
constexpr const char* two_places =
    "(declare-sort Rank 0)\n(declare-sort Channel 0)\n(declare-sort Place 0)\n"
    "(declare-fun next (Channel Rank) Rank)\n"
    "(declare-const root Rank)\n(declare-const p1 Place)\n(declare-const p2 Place)\n"
    "(declare-fun channel1 (Place) Channel)\n(declare-fun channel2 (Place) Channel)\n"
    "(declare-fun partial1 (Place Rank) V)\n(declare-fun partial2 (Place Rank) V)\n"
    "(define-fun c1 () Channel (channel1 p1))\n(define-fun c2 () Channel (channel2 p2))\n"
    "; the rank reached and the sum so far: after the first step, and one step after (r, s)\n"
    "(define-fun first1 () Rank (next c1 root))\n(define-fun first2 () Rank (next c2 root))\n"
    "(declare-const r1 Rank)\n(declare-const r2 Rank)\n(declare-const s1 V)\n(declare-const s2 V)\n"
    "(define-fun next1 () Rank (next c1 r1))\n(define-fun next2 () Rank (next c2 r2))\n";

Statement induction(std::string name, std::vector<Assumption> hypothesis, std::string goal) {
    Statement statement{
        .name = std::move(name),
        .logic = "UF",
        .declarations = AnyAddition::declarations() + two_places,
        .assumptions = {{"one_ring_on_all_channels",
                         {"(forall ((c Channel) (d Channel) (r Rank)) (= (next c r) (next d r)))"}},
                        {"the_token_keeps_its_partials", {"(forall ((r Rank)) (= (partial1 p1 r) (partial2 p2 r)))"}}},
        .goal = {std::move(goal)}};
    for (Assumption& each : hypothesis) statement.assumptions.push_back(std::move(each));
    return statement;
}

std::vector<Statement> fold_by_induction() {
    return {induction("base", {}, "(and (= first1 first2) (= (partial1 p1 first1) (partial2 p2 first2)))"),
            induction("step", {{"induction_hypothesis", {"(and (= r1 r2) (= s1 s2))"}}},
                      "(and (= next1 next2) (= (add s1 (partial1 p1 next1)) (add s2 (partial2 p2 next2))))"),
            induction("end", {{"induction_hypothesis", {"(and (= r1 r2) (= s1 s2))"}}}, "(= (= r1 root) (= r2 root))")};
}

void add_two_and_three_ranks(std::vector<Obligation>& claims) {
    claims.push_back({.name = "two_ranks_agree",
                      .sentence = "with 2 ranks every way to combine is the same single addition",
                      .scope = "every scheme, root, protocol and routing",
                      .statements = {same_for_any_addition(
                          "any_addition", {ReductionTree::parse("(0 1)"), ReductionTree::parse("(1 0)")})},
                      .enumerate = one_order_at_two_ranks,
                      .assumes_of_nccl = {"adds_as_modelled"}});
    const Communicator comm = communicator({identity(3)});
    const Routing routing{{1, 1, 1}, hidden};
    const CombinePlan plan =
        plan_combine(Scheme::vllm_default, comm, routing, Format::bfloat16, {.forced = ring_simple});
    const auto tree_of_owner = [&](std::uint64_t owner) {
        return plan.schedule.segment_at(owner * hidden).order.as_tree();
    };
    Statement statement = same_bits("owners_0_and_1", tree_of_owner(0), tree_of_owner(1), Format::bfloat16);
    statement.expected = SatResult::sat;
    claims.push_back({.name = "three_ranks_is_the_smallest",
                      .sentence = "with 3 ranks the owner of a token already changes its bits under vllm_default",
                      .scope = "3 ranks, bfloat16",
                      .statements = {std::move(statement)},
                      .settled = Obligation::Settled::by_example,
                      .assumes_of_nccl = {"reduce_is_a_ring"}});
}

void add_fixed_root(std::vector<Obligation>& claims) {
    claims.push_back(
        {.name = "fixed_root_is_routing_invariant",
         .sentence = "given one ring on all channels, a token's bits do not depend on its owner, its position or the "
                     "rest of the call",
         .scope = "one ring; any ranks, root, sizes, format",
         .statements = fold_by_induction(),
         .assumes_of_nccl = {"one_ring", "reduce_is_a_ring", "delivers_bytes"}});
    claims.push_back({.name = "fixed_root_is_routing_invariant",
                      .sentence = "the same on the schedules that the model makes",
                      .scope = "one ring; schedules of 2 to 8 ranks",
                      .enumerate = fixed_root_keeps_its_order,
                      .assumes_of_nccl = {"one_ring", "reduce_is_a_ring", "delivers_bytes"}});

    // The first two channels of a real call with different rings.
    const Communicator comm = communicator({{0, 1, 2, 3}, {0, 1, 3, 2}});
    const Routing routing{{512, 512, 512, 512}, hidden};
    const CombinePlan plan = plan_combine(Scheme::fixed_root, comm, routing, Format::bfloat16, {.forced = ring_simple});
    Statement differs = same_bits("rings_0123_and_0132", plan.schedule.segment_at(0).order.as_tree(),
                                  plan.schedule.segment_at(routing.elements() - 1).order.as_tree(), Format::bfloat16);
    differs.expected = SatResult::sat;
    claims.push_back({.name = "fixed_root_needs_one_ring",
                      .sentence = "with two rings, first and last row of one fixed_root call are added in different "
                                  "orders",
                      .scope = "4 ranks, rings 0 1 2 3 and 0 1 3 2",
                      .statements = {std::move(differs)},
                      .settled = Obligation::Settled::by_example,
                      .assumes_of_nccl = {"reduce_is_a_ring"}});
    claims.push_back({.name = "fixed_root_needs_one_ring",
                      .sentence = "any two rings are told apart by a witness, unless they are equal, walked from the "
                                  "root, up to their first two members",
                      .scope = "every pair of rings of 3 to 6 ranks",
                      .enumerate = [] { return different_rings_are_told_apart(6); },
                      .assumes_of_nccl = {"reduce_is_a_ring"}});
    claims.push_back({.name = "three_ranks_need_no_ring",
                      .sentence = "with 3 ranks the root comes last and the other two commute, so every ring gives "
                                  "fixed_root the same bits",
                      .scope = "3 ranks, all rings, formats",
                      .statements = {same_for_any_addition("any_addition",
                                                           {ReductionTree::left_fold(walk_ending_at({0, 1, 2}, 0)),
                                                            ReductionTree::left_fold(walk_ending_at({0, 2, 1}, 0))})},
                      .assumes_of_nccl = {"reduce_is_a_ring", "adds_as_modelled"}});
}

void add_ordered(std::vector<Obligation>& claims) {
    for (const Scheme scheme : {Scheme::gather_ordered, Scheme::exchange_ordered, Scheme::direct_ordered})
        claims.push_back({.name = fmt::format("{}_is_routing_invariant", name(scheme)),
                          .sentence = "a token's bits do not depend on owner, position, call, rings or channels",
                          .scope = "2 to 8 ranks, any rings",
                          .enumerate = [scheme] { return keeps_its_order_on_any_rings(scheme); },
                          .assumes_of_nccl = {"delivers_bytes"}});
    claims.push_back({.name = "ordered_by_node_is_routing_invariant",
                      .sentence = "so also when each node's partials are added first, and then the nodes' sums: "
                                  "((0 1) (2 3)) ...",
                      .scope = "2 to 8 ranks in nodes of 2 to 4",
                      .enumerate =
                          [] {
                              Enumeration all;
                              for (const int in_node : {2, 3, 4})
                                  for (const Scheme scheme : {Scheme::exchange_ordered, Scheme::direct_ordered}) {
                                      const Enumeration some = keeps_its_order_on_any_rings(scheme, in_node);
                                      all.cases += some.cases;
                                      if (!some.counterexample.empty()) all.counterexample = some.counterexample;
                                  }
                              return all;
                          },
                      .assumes_of_nccl = {"delivers_bytes"}});
    claims.push_back({.name = "exact_is_order_free",
                      .sentence = "the exact sum, rounded once, is the same for every order of its values",
                      .scope = "every float format, 4 values",
                      .enumerate = exact_ignores_order,
                      .assumes_of_nccl = {"delivers_bytes"}});
    claims.push_back({.name = "every_order_adds_each_rank_once",
                      .sentence = "ring, both trees, PAT and rank orders hold every rank exactly once",
                      .scope = "1 to 64 ranks",
                      .enumerate = every_order_adds_each_rank_once,
                      .assumes_of_nccl = {"reduce_is_a_ring", "trees_are_nccls"}});
}

}  // namespace

std::vector<Obligation> claims_of_schemes() {
    std::vector<Obligation> claims;
    add_two_and_three_ranks(claims);
    add_fixed_root(claims);
    add_ordered(claims);
    return claims;
}

}  // namespace samesum
