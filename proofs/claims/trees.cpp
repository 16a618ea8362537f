// Rings, binary trees and PAT add every rank exactly once, for any number of ranks: proved by executing the model's
// templates.
// SPDX-License-Identifier: Apache-2.0
#include "model/nccl/tree_index.hpp"
#include "proofs/claims/claims.hpp"
#include "proofs/engine/lemma.hpp"

namespace samesum {
namespace {

/// A ring contains each rank once; a walk around it from the position after `last` visits each position once.
Lemmas walks_visit_each_position_once() {
    Lemmas all;
    all.add("around_a_ring", [](Lemma& l) {
        const SymbolicInteger ranks = l.natural("ranks"), last = l.natural("last");
        const SymbolicInteger i = l.natural("i"), j = l.natural("j"), place = l.natural("position");
        const auto at = [&](const SymbolicInteger& step) {
            const SymbolicInteger sum = last + SymbolicInteger(1) + step;
            return select(sum < ranks, sum, sum - ranks);
        };
        l.assume("positions", last < ranks && i < ranks && j < ranks && place < ranks);
        l.show("a_position", at(i) < ranks);
        l.show("no_position_twice", implies(at(i) == at(j), i == j));
        const SymbolicInteger step =
            select(last < place, place - last - SymbolicInteger(1), place + ranks - last - SymbolicInteger(1));
        l.show("every_position", step < ranks && at(step) == place);
        l.show("ends_at_last", implies(i + SymbolicInteger(1) == ranks, at(i) == last));
    });
    // A left fold: the leaves so far and one more.
    all.add("a_fold_adds_what_it_visits", [](Lemma& l) {
        const SymbolicInteger so_far = l.natural("additions_of_r"), walked = l.natural("visits_of_r");
        const Truth here = l.truth("r_is_here");
        l.assume("induction_hypothesis", so_far == walked);
        l.show("step", so_far + count_if(here) == walked + count_if(here));
    });
    return all;
}

/// Up to 2^31 nodes. A node's parent has a higher lowest bit, so every chain of parents ends at node 0; and a node is
/// one of the two children of its parent and of no other node.
Lemmas parents_and_children_agree() {
    Lemmas all;
    const auto with_node = [](Lemma& l, auto&& body) {
        const SymbolicInteger nodes = l.natural("nodes"), node = l.natural("node");
        l.assume("a_node", nodes <= SymbolicInteger(std::uint64_t{1} << 31) && node < nodes);
        body(nodes, node);
    };
    const auto parent = [](Lemma& l, const SymbolicInteger& nodes, const SymbolicInteger& node) {
        return l.code("parent", [&] { return tree_index::parent(nodes, node); });
    };
    const auto left = [](Lemma& l, const SymbolicInteger& nodes, const SymbolicInteger& node) {
        return l.code("left_child", [&] { return tree_index::left_child(nodes, node); });
    };
    all.add(
        "parent",
        [=](Lemma& l) {
            with_node(l, [&](const SymbolicInteger& nodes, const SymbolicInteger& node) {
                const SymbolicInteger up = parent(l, nodes, node);
                const Truth root = node == SymbolicInteger(0);
                l.show("the_root_has_none", implies(root, up == nodes));
                l.show("others_have_one", implies(!root, up < nodes));
                l.show("at_a_higher_bit", implies(!root, up == SymbolicInteger(0) || tree_index::lowest_bit(up) >
                                                                                         tree_index::lowest_bit(node)));
            });
        },
        Numbers::words);
    const auto agrees_with_parent = [=](Lemma& l, const SymbolicInteger& nodes, const SymbolicInteger& node,
                                        const SymbolicInteger& child) {
        l.show("none_or_a_node", child == nodes || (child < nodes && child != SymbolicInteger(0)));
        l.show("whose_parent_is_this", child == nodes || parent(l, nodes, child) == node);
    };
    all.add(
        "left_child",
        [=](Lemma& l) {
            with_node(l, [&](const SymbolicInteger& nodes, const SymbolicInteger& node) {
                agrees_with_parent(l, nodes, node, left(l, nodes, node));
            });
        },
        Numbers::words);
    all.add(
        "right_child",
        [=](Lemma& l) {
            with_node(l, [&](const SymbolicInteger& nodes, const SymbolicInteger& node) {
                agrees_with_parent(l, nodes, node, tree_index::right_child(nodes, node));
            });
        },
        Numbers::words);
    all.add(
        "the_children_differ",
        [=](Lemma& l) {
            with_node(l, [&](const SymbolicInteger& nodes, const SymbolicInteger& node) {
                const SymbolicInteger a = left(l, nodes, node), b = tree_index::right_child(nodes, node);
                l.show("left_is_behind", a == nodes || a < node);
                l.show("right_is_ahead", b == nodes || b > node);
            });
        },
        Numbers::words);
    all.add(
        "every_node_is_a_child",
        [=](Lemma& l) {
            with_node(l, [&](const SymbolicInteger& nodes, const SymbolicInteger& node) {
                l.assume("not_the_root", node != SymbolicInteger(0));
                const SymbolicInteger up = parent(l, nodes, node);
                l.show("of_its_parent", left(l, nodes, up) == node || tree_index::right_child(nodes, up) == node);
            });
        },
        Numbers::words);
    return all;
}

/// Tree 1 is tree 0 with its nodes renamed, one to one.
Lemmas the_second_tree_is_the_first_renamed() {
    Lemmas all;
    all.add("renaming", [](Lemma& l) {
        const SymbolicInteger nodes = l.natural("nodes"), node = l.natural("node");
        l.assume("a_node", node < nodes);
        const SymbolicInteger mirrored = nodes - SymbolicInteger(1) - node;
        const SymbolicInteger shifted =
            select(node == SymbolicInteger(0), nodes - SymbolicInteger(1), node - SymbolicInteger(1));
        l.show("mirrored", mirrored < nodes && nodes - SymbolicInteger(1) - mirrored == node);
        const SymbolicInteger back =
            select(shifted + SymbolicInteger(1) == nodes, SymbolicInteger(0), shifted + SymbolicInteger(1));
        l.show("shifted", shifted < nodes && back == node);
    });
    return all;
}

/// PAT's tree of distances, up to 2^31 ranks.
Lemmas pat_reaches_each_distance_once() {
    Lemmas all;
    all.add("each_dimension_once", [](Lemma& l) {
        const SymbolicInteger levels = l.natural("levels"), dimensions = l.natural("dimensions");
        const SymbolicInteger i = l.natural("i"), j = l.natural("j");
        const auto dimension = [&](const SymbolicInteger& k) {
            return l.code("pat_dimension", [&] { return tree_index::pat_dimension(k, levels, dimensions); });
        };
        l.assume("steps", i < levels && j < levels && dimensions >= SymbolicInteger(1));
        l.show("one_of_the_levels", dimension(i) < levels);
        l.show("none_twice", implies(dimension(i) == dimension(j), i == j));
        l.show("the_nearest_comes_last", (dimension(i) == SymbolicInteger(0)) == (i + SymbolicInteger(1) == levels));
        const SymbolicInteger downwards = select(levels < dimensions, levels, dimensions);
        l.show("first_downwards_then_upwards",
               i + SymbolicInteger(1) == levels ||
                   dimension(i) + i + SymbolicInteger(1) ==
                       select(i + SymbolicInteger(1) < downwards, downwards, i + i + SymbolicInteger(2)));
    });
    // Distance d receives from the distances d + step, for powers of two below d's lowest bit; distance 0 for all of
    // them.
    all.add(
        "each_distance_once",
        [](Lemma& l) {
            const SymbolicInteger ranks = l.natural("ranks"), x = l.natural("x"), d = l.natural("d"),
                                  step = l.natural("step");
            const auto low = [&](const SymbolicInteger& distance) {
                return l.code("lowest_bit", [&] { return tree_index::lowest_bit(distance); });
            };
            l.assume("distances", ranks <= SymbolicInteger(std::uint64_t{1} << 31) && x < ranks && d < ranks &&
                                      x != SymbolicInteger(0));
            l.assume("a_power_of_two", step != SymbolicInteger(0) && step < ranks &&
                                           (step & (step - SymbolicInteger(1))) == SymbolicInteger(0));
            const Truth receives = (d == SymbolicInteger(0) || step < low(d)) && d + step == x;
            l.show("from_itself_without_its_lowest_bit", receives == (step == low(x) && d == (x ^ low(x))));
            l.show("nearer", implies(receives, d < x));
        },
        Numbers::words);
    return all;
}

}  // namespace

std::vector<Obligation> claims_of_trees() {
    std::vector<Obligation> claims;
    std::vector<Statement> mutations;
    const auto add = [&](Obligation claim, const Lemmas& lemmas) {
        for (Statement& each : lemmas.mutations(20)) mutations.push_back(std::move(each));
        claim.statements = lemmas.statements();
        claims.push_back(std::move(claim));
    };
    add({.name = "rings_add_each_rank_once",
         .sentence = "a fold along a ring, starting after any rank, adds every rank exactly once",
         .scope = "any ranks, ring, root",
         .assumes_of_nccl = {"reduce_is_a_ring"}},
        walks_visit_each_position_once());
    Lemmas trees = parents_and_children_agree();
    add({.name = "trees_add_each_rank_once",
         .sentence = "each node is reached from the root of either binary tree exactly once",
         .scope = "1 to 2^31 nodes",
         .assumes_of_nccl = {"trees_are_nccls"}},
        trees);
    claims.back().statements.push_back(the_second_tree_is_the_first_renamed().statements().front());
    add({.name = "pat_adds_each_rank_once",
         .sentence = "PAT adds each rank's sum exactly once, for any dimensions",
         .scope = "1 to 2^31 ranks",
         .assumes_of_nccl = {"trees_are_nccls"}},
        pat_reaches_each_distance_once());
    claims.push_back(mutations_are_refuted("model/nccl/tree_index.hpp", std::move(mutations)));
    return claims;
}

}  // namespace samesum
