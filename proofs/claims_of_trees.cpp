// Rings, binary trees and PAT add every rank exactly once, for any number of ranks: the model's own templates,
// executed.
// SPDX-License-Identifier: Apache-2.0
#include "model/trees.hpp"
#include "proofs/claims.hpp"
#include "proofs/lemma.hpp"

namespace samesum {
namespace {

/// A ring names each rank once; a walk around it from behind `last` takes each of its places once.
Lemmas walks_visit_each_place_once() {
    Lemmas all;
    all.add("around_a_ring", [](Lemma& l) {
        const Natural ranks = l.natural("ranks"), last = l.natural("last");
        const Natural i = l.natural("i"), j = l.natural("j"), place = l.natural("place");
        const auto at = [&](const Natural& step) {
            const Natural sum = last + Natural(1) + step;
            return select(sum < ranks, sum, sum - ranks);
        };
        l.assume("places", last < ranks && i < ranks && j < ranks && place < ranks);
        l.show("a_place", at(i) < ranks);
        l.show("no_place_twice", implies(at(i) == at(j), i == j));
        const Natural step = select(last < place, place - last - Natural(1), place + ranks - last - Natural(1));
        l.show("every_place", step < ranks && at(step) == place);
        l.show("ends_at_last", implies(i + Natural(1) == ranks, at(i) == last));
    });
    // Adding to a left fold: the leaves so far and one more.
    all.add("a_fold_adds_what_it_walks", [](Lemma& l) {
        const Natural so_far = l.natural("additions_of_r"), walked = l.natural("visits_of_r");
        const Truth here = l.truth("r_is_here");
        l.assume("induction_hypothesis", so_far == walked);
        l.show("step", so_far + count_if(here) == walked + count_if(here));
    });
    return all;
}

/// Up to 2^31 nodes. A node's parent lies at a higher bit, so every chain of parents ends at node 0; and a node is one
/// of its parent's two children, and nobody else's.
Lemmas parents_and_children_agree() {
    Lemmas all;
    const auto with_node = [](Lemma& l, auto&& body) {
        const Natural nodes = l.natural("nodes"), node = l.natural("node");
        l.assume("a_node", nodes <= Natural(std::uint64_t{1} << 31) && node < nodes);
        body(nodes, node);
    };
    const auto parent = [](Lemma& l, const Natural& nodes, const Natural& node) {
        return l.code("parent", [&] { return trees::parent(nodes, node); });
    };
    const auto left = [](Lemma& l, const Natural& nodes, const Natural& node) {
        return l.code("left_child", [&] { return trees::left_child(nodes, node); });
    };
    all.add(
        "parent",
        [=](Lemma& l) {
            with_node(l, [&](const Natural& nodes, const Natural& node) {
                const Natural up = parent(l, nodes, node);
                const Truth root = node == Natural(0);
                l.show("the_root_has_none", implies(root, up == nodes));
                l.show("others_have_one", implies(!root, up < nodes));
                l.show("at_a_higher_bit",
                       implies(!root, up == Natural(0) || trees::lowest_bit(up) > trees::lowest_bit(node)));
            });
        },
        Numbers::words);
    const auto knows_its_parent = [=](Lemma& l, const Natural& nodes, const Natural& node, const Natural& child) {
        l.show("none_or_a_node", child == nodes || (child < nodes && child != Natural(0)));
        l.show("whose_parent_is_this", child == nodes || parent(l, nodes, child) == node);
    };
    all.add(
        "left_child",
        [=](Lemma& l) {
            with_node(l, [&](const Natural& nodes, const Natural& node) {
                knows_its_parent(l, nodes, node, left(l, nodes, node));
            });
        },
        Numbers::words);
    all.add(
        "right_child",
        [=](Lemma& l) {
            with_node(l, [&](const Natural& nodes, const Natural& node) {
                knows_its_parent(l, nodes, node, trees::right_child(nodes, node));
            });
        },
        Numbers::words);
    all.add(
        "two_children_are_two",
        [=](Lemma& l) {
            with_node(l, [&](const Natural& nodes, const Natural& node) {
                const Natural a = left(l, nodes, node), b = trees::right_child(nodes, node);
                l.show("left_is_behind", a == nodes || a < node);
                l.show("right_is_ahead", b == nodes || b > node);
            });
        },
        Numbers::words);
    all.add(
        "every_node_is_a_child",
        [=](Lemma& l) {
            with_node(l, [&](const Natural& nodes, const Natural& node) {
                l.assume("not_the_root", node != Natural(0));
                const Natural up = parent(l, nodes, node);
                l.show("of_its_parent", left(l, nodes, up) == node || trees::right_child(nodes, up) == node);
            });
        },
        Numbers::words);
    return all;
}

/// Tree 1 is tree 0 with its nodes renamed, one to one.
Lemmas the_second_tree_is_the_first_renamed() {
    Lemmas all;
    all.add("renaming", [](Lemma& l) {
        const Natural nodes = l.natural("nodes"), node = l.natural("node");
        l.assume("a_node", node < nodes);
        const Natural mirrored = nodes - Natural(1) - node;
        const Natural shifted = select(node == Natural(0), nodes - Natural(1), node - Natural(1));
        l.show("mirrored", mirrored < nodes && nodes - Natural(1) - mirrored == node);
        const Natural back = select(shifted + Natural(1) == nodes, Natural(0), shifted + Natural(1));
        l.show("shifted", shifted < nodes && back == node);
    });
    return all;
}

/// PAT's tree of distances: up to 2^31 ranks.
Lemmas pat_reaches_each_distance_once() {
    Lemmas all;
    all.add("each_dimension_once", [](Lemma& l) {
        const Natural levels = l.natural("levels"), dimensions = l.natural("dimensions");
        const Natural i = l.natural("i"), j = l.natural("j");
        const auto dimension = [&](const Natural& k) {
            return l.code("pat_dimension", [&] { return trees::pat_dimension(k, levels, dimensions); });
        };
        l.assume("turns", i < levels && j < levels && dimensions >= Natural(1));
        l.show("one_of_the_levels", dimension(i) < levels);
        l.show("none_twice", implies(dimension(i) == dimension(j), i == j));
        l.show("the_nearest_comes_last", (dimension(i) == Natural(0)) == (i + Natural(1) == levels));
        const Natural downwards = select(levels < dimensions, levels, dimensions);
        l.show("first_downwards_then_upwards",
               i + Natural(1) == levels ||
                   dimension(i) + i + Natural(1) == select(i + Natural(1) < downwards, downwards, i + i + Natural(2)));
    });
    // From distance d the distances d + step are received, for powers of two below d's lowest bit; from 0 all of them.
    all.add(
        "each_distance_once",
        [](Lemma& l) {
            const Natural ranks = l.natural("ranks"), x = l.natural("x"), d = l.natural("d"), step = l.natural("step");
            const auto low = [&](const Natural& distance) {
                return l.code("lowest_bit", [&] { return trees::lowest_bit(distance); });
            };
            l.assume("distances",
                     ranks <= Natural(std::uint64_t{1} << 31) && x < ranks && d < ranks && x != Natural(0));
            l.assume("a_power_of_two",
                     step != Natural(0) && step < ranks && (step & (step - Natural(1))) == Natural(0));
            const Truth receives = (d == Natural(0) || step < low(d)) && d + step == x;
            l.show("from_itself_without_its_lowest_bit", receives == (step == low(x) && d == (x ^ low(x))));
            l.show("nearer", implies(receives, d < x));
        },
        Numbers::words);
    return all;
}

}  // namespace

std::vector<Obligation> claims_of_trees() {
    std::vector<Obligation> claims;
    std::vector<Statement> planted;
    const auto add = [&](Obligation claim, const Lemmas& lemmas) {
        for (Statement& each : lemmas.planted(20)) planted.push_back(std::move(each));
        claim.statements = lemmas.statements();
        claims.push_back(std::move(claim));
    };
    add({.name = "rings_add_each_rank_once",
         .sentence = "a fold along a ring, from behind any rank on, adds every rank exactly once",
         .scope = "any ranks, ring, root",
         .assumes_of_nccl = {"reduce_is_a_ring"}},
        walks_visit_each_place_once());
    Lemmas trees = parents_and_children_agree();
    add({.name = "trees_add_each_rank_once",
         .sentence = "from the root of either binary tree each node is reached exactly once",
         .scope = "1 to 2^31 nodes",
         .assumes_of_nccl = {"trees_are_nccls"}},
        trees);
    claims.back().statements.push_back(the_second_tree_is_the_first_renamed().statements().front());
    add({.name = "pat_adds_each_rank_once",
         .sentence = "PAT takes each rank's sum exactly once, whatever its dimensions",
         .scope = "1 to 2^31 ranks",
         .assumes_of_nccl = {"trees_are_nccls"}},
        pat_reaches_each_distance_once());
    claims.push_back(planted_changes("model/trees.hpp", std::move(planted)));
    return claims;
}

}  // namespace samesum
