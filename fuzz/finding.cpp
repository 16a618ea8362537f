// A difference is confirmed by repetition, shrunk, and compared with what orders and roundings could have made.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/finding.hpp"

#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <tuple>

#include "fuzz/compare.hpp"
#include "model/sum/rounding_steps.hpp"
#include "model/sum/witness.hpp"
#include "model/support/error.hpp"
#include "model/support/progress.hpp"

namespace samesum::fuzz {
namespace {

constexpr int reruns = 3;

/// A possible cause of the bits of the case's element.
struct Explanation {
    bool as_modelled = false;
    std::string what;
};

Explanation explain(const Case& c, const Side& side, Bits bits) {
    if (side.maker != Maker::combine) return {true, {}};
    if (!side.contributors.empty()) return {true, {}};  // other ranks contribute the leaves
    const Accumulation accumulation = side.scheme == Scheme::exact ? Accumulation::exact : side.accumulation;
    const bool rounds_once = is_ordered(side.scheme) || side.scheme == Scheme::exact;
    const ReductionTree own = tree_of(c, side);
    const auto sum = [&](const ReductionTree& tree, Accumulation how) {
        return sum_element({.format = c.format, .accumulation = how}, tree, c.x);
    };
    if (sum(own, rounds_once ? accumulation : Accumulation::per_hop) == bits) return {true, {}};
    if (c.x.size() <= 7) {
        const auto trees = all_trees(static_cast<int>(c.x.size()));
        for (const ReductionTree& tree : trees)
            if (sum(tree, Accumulation::per_hop) == bits) return {false, "another order, such as " + tree.str()};
        for (const ReductionTree& tree : trees)
            if (sum(tree, Accumulation::fp32_once) == bits)
                return {false, "float32 sums rounded once, such as " + tree.str()};
    }
    if (exact_sum(c.format, c.x) == bits) return {false, "the exact sum rounded once"};
    return {false, c.x.size() <= 7 ? "no order makes these bits: corruption or a race" : "not the modelled order"};
}

/// The first addition of each side that the other side does not make.
std::string first_additions_apart(const Case& c, const ReductionTree& a, const ReductionTree& b) {
    const SumRule rule{.format = c.format};
    const auto steps_of_a = samesum::explain(rule, a.canonical(), c.x).steps;
    const auto steps_of_b = samesum::explain(rule, b.canonical(), c.x).steps;
    const auto first = [](const std::vector<RoundingStep>& own, const std::vector<RoundingStep>& other) {
        for (const RoundingStep& step : own)
            if (std::none_of(other.begin(), other.end(), [&](const auto& each) { return each.what == step.what; }))
                return fmt::format("{}: {} makes {}", step.what, step.values, decimal(step.format, step.result));
        return std::string("none");
    };
    return fmt::format("first addition apart: a {}; b {}", first(steps_of_a, steps_of_b),
                       first(steps_of_b, steps_of_a));
}

std::string where(const Case& c, const Side& side) {
    if (side.maker == Maker::tree) return side.tree->str();
    if (side.maker == Maker::movement)
        return fmt::format("rank {}'s row as it is", side.contributors.empty() ? 0 : side.contributors[0]);
    const int owner = routing_of(c, side).owner(side.row);
    return fmt::format("{}{}, sizes {}, row {} (owner {})", side.maker == Maker::prediction ? "predicted: " : "",
                       name(side.scheme), str_sizes(side.sizes), side.row, owner);
}

std::string replay_line(const Case& c, const Backend& backend) {
    return fmt::format("samesum fuzz {}--replay '{}'", backend.flags(), str(c));
}

/// Runs the case again and again: why its bits do not repeat, or nothing. `seen` is filled in if it is empty.
std::optional<std::string> differs_from_run_to_run(const Case& c, Backend& backend, std::optional<Seen>& seen) {
    for (int i = 0; i <= reruns; ++i) {
        backend.forget_results();
        const Comparison result = compare(c, backend);
        const Seen again{result.a[c.column], result.b[c.column]};
        if (!seen) seen = again;
        // An element that was wrong once and is right now is nondeterministic, too.
        if (*seen == again && again.a != again.b) continue;
        const auto pattern = [&](Bits bits) { return hex(c.format, bits); };
        return fmt::format("the same call made {} and then {} on side a, {} and then {} on side b\ncase: {}",
                           pattern(seen->a), pattern(again.a), pattern(seen->b), pattern(again.b), str(c));
    }
    return std::nullopt;
}

bool same_communicator(const Side& side, const Side& as) {
    return side.ranks() == as.ranks() && side.rings == as.rings && side.ranks_per_node == as.ranks_per_node &&
           side.protocol == as.protocol && side.algorithm == as.algorithm;
}

/// The simplest case that still differs on `backend`. `keep_communicators`: settings of the communicators stay as
/// found. Counts its steps.
Case smallest_differing(const rc::Shrinkable<Case>& found, Backend& backend, bool keep_communicators,
                        std::size_t& steps) {
    const Case original = found.value();
    const auto fits = [&](const Case& c) {
        return !keep_communicators || (same_communicator(c.a, original.a) && same_communicator(c.b, original.b));
    };
    const ShrinkLimits shrink_limits = backend.shrink_limits();
    const double until = monotonic_seconds() + shrink_limits.seconds;
    std::size_t tries = 0;
    const auto differs = [&](const Case& c) {
        try {
            // The differing column stays the case's own, so that x remains the cause of the difference.
            const Comparison result = compare(c, backend);
            return result.a[c.column] != result.b[c.column];
        } catch (const Inconclusive&) {
            return false;  // real ranks cannot have every simpler case
        }
    };
    rc::Shrinkable<Case> smallest = found;
    for (bool smaller = true; smaller;) {
        smaller = false;
        auto shrinks = smallest.shrinks();
        while (auto next = shrinks.next()) {
            if (++tries > shrink_limits.tries || monotonic_seconds() > until) break;
            if (!fits(next->value()) || !differs(next->value())) continue;
            smallest = *next;
            smaller = true;
            ++steps;
            break;
        }
    }
    return smallest.value();
}

}  // namespace

std::string describe(const Case& c, Backend& backend) {
    const Comparison result = compare(c, backend);
    const Bits a = result.a[c.column], b = result.b[c.column];
    const Explanation of_a = explain(c, c.a, a), of_b = explain(c, c.b, b);
    const bool by_order = of_a.as_modelled && of_b.as_modelled && a != b && c.a.maker != Maker::movement &&
                          c.b.maker != Maker::movement && c.a.contributors.empty() && c.b.contributors.empty() &&
                          c.a.scheme != Scheme::exact && c.b.scheme != Scheme::exact &&
                          c.a.accumulation == Accumulation::per_hop && c.b.accumulation == Accumulation::per_hop;
    if (by_order) {
        std::string label_a = where(c, c.a), label_b = where(c, c.b);
        const ReductionTree tree_a = tree_of(c, c.a), tree_b = tree_of(c, c.b);
        return fmt::format("{}\n{}", tell_apart(tree_a, tree_b, c.format, c.x, label_a, label_b),
                           first_additions_apart(c, tree_a, tree_b));
    }
    std::string text = str_leaves(c.format, c.x);
    for (const auto& [letter, side, bits, why] : {std::tuple{'a', &c.a, a, &of_a}, std::tuple{'b', &c.b, b, &of_b}}) {
        text += fmt::format("\n{}: {} makes {} ({})", letter, where(c, *side), decimal(c.format, bits),
                            hex(c.format, bits));
        if (side->maker == Maker::combine || side->maker == Maker::prediction)
            text += fmt::format("\n   modelled order {}", tree_of(c, *side).str());
        if (!why->as_modelled) text += fmt::format("\n   seen: {}", why->what);
    }
    return text;
}

Finding investigate(const rc::Shrinkable<Case>& found, Backend& backend, std::optional<Seen> seen) {
    Finding finding;
    finding.original = finding.minimal = found.value();
    finding.replay = replay_line(finding.original, backend);
    const Case& original = finding.original;
    if (auto why = differs_from_run_to_run(original, backend, seen)) {
        finding.repeats = false;
        finding.kind = "run-to-run";
        finding.text = std::move(*why);
        return finding;
    }
    // If the model explains the difference, the case is shrunk on the model, which is a thousand times as fast as
    // ranks, and then confirmed on the ranks. Only the communicators that are there can be used: their settings stay as
    // found.
    ModelBackend model;
    const bool explained = backend.setups() > 0 && explain(original, original.a, seen->a).as_modelled &&
                           explain(original, original.b, seen->b).as_modelled;
    Backend& quick = explained ? static_cast<Backend&>(model) : backend;
    finding.minimal = smallest_differing(found, quick, explained, finding.steps);
    if (explained) {
        const Comparison confirmed = compare(finding.minimal, backend);
        if (confirmed.a[finding.minimal.column] == confirmed.b[finding.minimal.column]) finding.minimal = original;
    }
    finding.replay = replay_line(finding.minimal, backend);
    const Case& c = finding.minimal;
    const Comparison result = compare(c, backend);
    const Explanation a = explain(c, c.a, result.a[c.column]), b = explain(c, c.b, result.b[c.column]);
    finding.kind = a.as_modelled && b.as_modelled ? "order change" : !a.as_modelled ? a.what : b.what;
    finding.text = fmt::format("{}\ncase: {}", describe(c, backend), str(c));
    for (const auto& [side, letter] : {std::pair{&c.a, 'a'}, std::pair{&c.b, 'b'}}) {
        backend.forget_results();
        static_cast<void>(row_of(c, *side, backend));
        if (const std::string log = backend.nccl_log(); !log.empty() && side->maker == Maker::combine)
            finding.text += fmt::format("\n{}: NCCL logged: {}", letter, log);
    }
    return finding;
}

}  // namespace samesum::fuzz
