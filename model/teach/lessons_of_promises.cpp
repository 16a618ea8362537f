// Lessons on what formats, wide accumulators, switches and combines guarantee, and under which assumptions.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "model/analysis/changed_share.hpp"
#include "model/arithmetic/hop_arithmetic.hpp"
#include "model/combine/invariance.hpp"
#include "model/combine/scheme.hpp"
#include "model/sum/draw_tree.hpp"
#include "model/sum/reachable.hpp"
#include "model/sum/rounding_steps.hpp"
#include "model/sum/witness.hpp"
#include "model/support/error.hpp"
#include "model/support/text.hpp"
#include "model/teach/lessons.hpp"

namespace samesum {
namespace {

constexpr Format bf16 = Format::bfloat16;
constexpr Format e4m3 = Format::float8_e4m3;

const ReductionTree first_two_first = ReductionTree::parse("((0 1) 2)");
const ReductionTree last_two_first = ReductionTree::parse("(0 (1 2))");

std::string listed(Format format, std::span<const Bits> values) {
    std::string text;
    for (const Bits value : values) text += (text.empty() ? "" : " ") + exact_decimal(format, value);
    return text;
}

Lesson saturation() {
    const std::vector<Bits> values = parse_values(e4m3, "384 96 -384", 3);
    const Bits left = sum_of(e4m3, first_two_first, values), right = sum_of(e4m3, last_two_first, values);
    const Bits largest = traits(e4m3).largest();
    ensure(rounding_of_sum(e4m3, values[0], values[1]).kind == Rounding::Kind::saturated, "384 + 96 saturates");
    ensure(left != right, "saturation makes the order visible");
    const std::vector<Bits> halves = parse_values(Format::float16, "60000 20000 -60000", 3);
    const Bits overflown = sum_of(Format::float16, first_two_first, halves);
    ensure(is_infinite(Format::float16, overflown), "float16 overflows to infinity and stays infinite");

    Lesson lesson;
    lesson.name = "float8";
    lesson.demonstration = {e4m3, "reduce_scatter, ring", values, 2, 0};
    lesson.title = "fp8 that saturates";
    lesson.minutes = 3;
    lesson.text = {prose(fmt::format(
                       "float8_e4m3 has {} significant bits and its largest value is {}; it has no infinity. Where a "
                       "sum is larger, NCCL's additions give {}. Add 384, 96 and -384 in two orders:",
                       traits(e4m3).precision(), exact_decimal(e4m3, largest), exact_decimal(e4m3, largest))),
                   worked_sum({.format = e4m3}, first_two_first, values),
                   worked_sum({.format = e4m3}, last_two_first, values),
                   prose(fmt::format(
                       "{} and {}, from the same three numbers and without a warning. In float16 60000 + 20000 - 60000 "
                       "gives {}, which is easy to notice. A saturated sum looks like any other number.",
                       exact_decimal(e4m3, left), exact_decimal(e4m3, right), decimal(Format::float16, overflown)))};
    lesson.question = "384 + 72 is 456, which is also larger than 448. Is that sum saturated, too?";
    const Bits near = HopArithmetic(e4m3).add(parse_value(e4m3, "384"), parse_value(e4m3, "72"));
    ensure(near == largest && rounding_of_sum(e4m3, parse_value(e4m3, "384"), parse_value(e4m3, "72")).kind ==
                                  Rounding::Kind::truncated,
           "456 is rounded, not saturated");
    lesson.answer = {prose("No: 456 is nearer to 448 than to 480, the next value if the format had one, so it is an "
                           "ordinary rounding. The result is also 448, but for a different reason."),
                     figure(worked_addition(e4m3, parse_value(e4m3, "384"), parse_value(e4m3, "72")))};
    lesson.command = "samesum sum eval --dtype float8_e4m3 --values '384 96 -384' --explain";
    lesson.result = "saturated at " + exact_decimal(e4m3, largest);
    lesson.exercise = {
        "Find three float8_e4m3 values whose first two saturate, while `(0 (1 2))` gives the exact sum.",
        "three values, e.g. '1 2 4'", "448 32 -448", [](std::string_view answer) -> Grade {
            const std::vector<Bits> x = parse_values(e4m3, answer, 3);
            for (const Bits each : x)
                if (!is_finite(e4m3, each)) return {false, "Finite values only."};
            if (rounding_of_sum(e4m3, x[0], x[1]).kind != Rounding::Kind::saturated)
                return {false, fmt::format("{} + {} does not saturate.", exact_decimal(e4m3, x[0]),
                                           exact_decimal(e4m3, x[1]))};
            const Bits other = HopArithmetic(e4m3).add(x[1], x[2]);
            const bool exact = add_is_exact(e4m3, x[1], x[2]) && add_is_exact(e4m3, x[0], other);
            const Bits sum = sum_of(e4m3, last_two_first, x);
            if (!exact)
                return {false, fmt::format("(0 (1 2)) gives {}, but with a rounding on the way. The last value should "
                                           "cancel most of the first.",
                                           exact_decimal(e4m3, sum))};
            return {true, fmt::format("((0 1) 2) gives {}, (0 (1 2)) the exact {}.",
                                      exact_decimal(e4m3, sum_of(e4m3, first_two_first, x)), exact_decimal(e4m3, sum))};
        }};
    return lesson;
}

Lesson rounded_once() {
    const SumRule once{.format = bf16, .accumulation = Accumulation::fp32_once};
    const std::vector<Bits> hidden = parse_values(bf16, "256 1 1", 3),
                            shown = parse_values(bf16, "16777216 1 -16777216", 3);
    const Bits per_hop = sum_of(bf16, first_two_first, hidden), rounded = sum_element(once, first_two_first, hidden);
    ensure(per_hop != rounded && rounded == sum_element(once, last_two_first, hidden),
           "float32 hides the order of 256 1 1");
    const Bits left = sum_element(once, first_two_first, shown), right = sum_element(once, last_two_first, shown);
    ensure(left != right, "float32 does not hide the order of 2^24 1 -2^24");
    const Ring ring = *Topology::one_rank_per_node(8).channels()[0].ring;
    const auto way = [&](int last, const SumRule& rule) {
        return Way{ReductionTree::left_fold(walk_ending_at(ring, last)), rule};
    };
    const SumRule hop{.format = bf16};
    constexpr std::uint64_t samples = 20000;
    const Share share_hop = changed_share(way(0, hop), way(1, hop), {}, samples, 1);
    const Share share_once = changed_share(way(0, once), way(1, once), {}, samples, 1);
    ensure(share_once.changed == 0 && share_hop.changed > samples / 4,
           "normal data shows the order per hop, not in fp32_once");
    const auto separates = separating_witness(first_two_first, last_two_first, Format::float32);
    ensure(separates.has_value(), "two orders of float32 sums differ");

    Lesson lesson;
    lesson.name = "fp32_once";
    lesson.title = "Rounding once hides the order, but not always";
    lesson.minutes = 4;
    lesson.text = {
        prose(fmt::format(
            "Some kernels add bfloat16 values in float32 and round once, at the end. Then 256 + 1 + 1 is {} "
            "instead of {}, in every order:",
            exact_decimal(bf16, rounded), exact_decimal(bf16, per_hop))),
        worked_sum(once, first_two_first, hidden),
        prose(fmt::format(
            "On normally distributed data of 8 ranks two ring orders differ in {:.0f} % of the elements when each hop "
            "rounds to bfloat16; rounded once, in {} of {} samples. It seems as if the order no longer mattered.",
            100 * share_hop.value(), share_once.changed, share_once.samples)),
        prose(fmt::format(
            "It still does. float32 has {} significant bits, which are not enough for values that are further apart:",
            traits(Format::float32).precision())),
        worked_sum(once, first_two_first, shown),
        prose(fmt::format("The order `(0 (1 2))` gives {} for the same values, not {}. Rarely is not never: one token "
                          "in a long answer is enough.",
                          exact_decimal(bf16, right), exact_decimal(bf16, left)))};
    lesson.question =
        "A test draws normal data, rounds once, compares two orders and finds no difference. What does it show?";
    lesson.answer = {prose(
        "Almost nothing: on this data it could hardly fail. `samesum sum mask` shows in advance which elements of "
        "given tensors can reveal an order.")};
    lesson.command = "samesum sum eval --dtype bfloat16 --rounding fp32_once --values '16777216 1 -16777216' --explain";
    lesson.result = "= " + hex(bf16, left);
    lesson.exercise = {
        "Find three bfloat16 values, other than these, that `((0 1) 2)` and `(0 (1 2))` add to different bits even in "
        "float32 rounded once.",
        "three values, e.g. '1 2 4'", listed(Format::float32, separates->leaves),
        [=](std::string_view answer) -> Grade {
            if (parse_values(bf16, answer, 3) == shown) return {false, "These are the values of the lesson."};
            return grade_difference(once, first_two_first, last_two_first, answer,
                                    "How large must a number be to absorb 1 in float32?");
        }};
    return lesson;
}

Lesson no_order() {
    const Communicator node{.topology = Topology::one_node(8, 16)};
    const Plan plan =
        plan_call(node, {.collective = Collective::all_reduce, .count = 4096}, {Algorithm::nvls, Protocol::simple});
    const Order order = plan.schedule.segment_at(0).order;
    ensure(!order.observable(), "the order of a sum in the switch is not observable");
    const std::vector<Bits> values = parse_values(bf16, "1 0.00390625 9.5367431640625e-07", 3);
    const SumRule hop{.format = bf16}, once{.format = bf16, .accumulation = Accumulation::fp32_once};
    const ReachableSums by_hop(hop, values), by_float32(once, values);
    const Bits wide = by_float32.results().front();
    ensure(by_hop.results().size() == 1 && by_float32.results().size() == 1 && by_hop.results().front() != wide,
           "no order of bfloat16 sums gives what a float32 sum gives");
    const auto by_none = [](std::span<const Bits> x, Bits result) {
        for (const Accumulation each : {Accumulation::per_hop, Accumulation::fp32_once, Accumulation::exact})
            if (reach({.format = bf16, .accumulation = each}, x, result).verdict != Reach::Verdict::unreachable)
                return false;
        return true;
    };
    const Bits defect = wide + 1;
    ensure(by_none(values, defect), "no accumulation gives the number after it");
    const std::vector<Bits> ones = parse_values(bf16, "256 1 1 1", 4);
    const ReachableSums all_of_ones(hop, ones);
    const Bits beyond = all_of_ones.results().back() + 1;
    ensure(by_none(ones, beyond), "no accumulation gives more than the largest result");

    Lesson lesson;
    lesson.name = "nvls";
    lesson.title = "NVLS: when no order explains it";
    lesson.minutes = 3;
    lesson.text = {
        prose("With NVLS the NVSwitch adds the values of a node's GPUs. What samesum says about its order:"),
        figure(fmt::format("not observable: {}\n", order.why_not())),
        prose(
            "`mm` is the switch's addition; samesum claims no tree for it. But a result can still be checked: can any "
            "order give it? Take 1, 1/256 and a millionth (2^-20) in bfloat16. In every order an addition in "
            "bfloat16 loses the millionth, and then the tie:"),
        worked_sum(hop, last_two_first, values),
        prose(fmt::format("All {} orders give {}. If the result is {}, the cause is not an order but a wider adder, "
                          "float32 rounded once:",
                          all_trees(3).size(), with_pattern(bf16, by_hop.results().front()), with_pattern(bf16, wide))),
        worked_sum(once, last_two_first, values)};
    lesson.question = fmt::format("And if the result is {}?", with_pattern(bf16, defect));
    lesson.answer = {
        prose("Then neither an order nor a wider accumulator explains it. It is not a rounding but a defect: a value "
              "added twice, a stale buffer, a lost flag. `samesum sum reachable` exits with 1.")};
    lesson.command =
        fmt::format("samesum sum reachable --dtype bfloat16 --values '1 0.00390625 9.5367431640625e-07' --result {}",
                    hex(bf16, wide));
    lesson.result = "(fp32_once)";
    lesson.exercise = {
        "256, 1, 1, 1 were added in bfloat16. Name a result that no order and no wider accumulator can give.",
        "one value, e.g. '256'", exact_decimal(bf16, beyond), [=](std::string_view answer) -> Grade {
            const Bits result = parse_values(bf16, answer, 1).front();
            if (by_none(ones, result))
                return {true, "No order and no accumulator gives it: such a result is a defect."};
            for (const Accumulation each : {Accumulation::per_hop, Accumulation::fp32_once, Accumulation::exact}) {
                const Reach found = reach({.format = bf16, .accumulation = each}, ones, result);
                if (found.tree)
                    return {false, fmt::format("{} is the result of {} ({}). Lesson `ties` lists the possible results.",
                                               with_pattern(bf16, result), found.tree->str(), name(each))};
            }
            return {false, "That result is possible."};
        }};
    return lesson;
}

constexpr std::uint64_t fixed_root_hidden = 2048;

InvarianceAnswer invariance_of(Scheme scheme, Invariance asked, const Communicator& comm) {
    const CombineOptions options{.forced = {Algorithm::ring, Protocol::simple}};
    return decide_invariance(asked, scheme, comm, fixed_root_hidden, bf16, options);
}

/// Schemes by what their orders do not depend on.
std::string invariance_table(const Communicator& comm) {
    constexpr std::array schemes{Scheme::vllm_default, Scheme::fixed_root, Scheme::gather_ordered};
    constexpr std::array asked{Invariance::owner, Invariance::position, Invariance::count};
    std::string text = fmt::format("independent of\n{:<16}", "");
    for (const Invariance each : asked) text += fmt::format("{:>10}", name(each));
    text += "\n";
    for (const Scheme scheme : schemes) {
        text += fmt::format("{:<16}", name(scheme));
        for (const Invariance each : asked)
            text += fmt::format("{:>10}", invariance_of(scheme, each, comm).holds ? "yes" : "no");
        text += "\n";
    }
    return text;
}

Exercise two_rings_one_order() {
    const Ring plain{0, 1, 2, 3}, swapped{0, 2, 1, 3};
    ensure(same_reduce_order(plain, swapped, 0) && !same_reduce_order(plain, {0, 1, 3, 2}, 0),
           "the first two ranks of a chain may be swapped");
    return {
        "The rings are 0 1 2 3 and 0 2 1 3. Does one ncclReduce to root 0 use one order for the whole buffer?",
        "yes or no", same_reduce_order(plain, swapped, 0) ? "yes" : "no", [=](std::string_view answer) -> Grade {
            const std::string_view word = trimmed(answer);
            if (word != "yes" && word != "no") throw UsageError(fmt::format("'{}': expected yes or no", answer));
            const auto walk = [](const Ring& ring) { return ReductionTree::left_fold(walk_ending_at(ring, 0)).str(); };
            if ((word == "yes") == same_reduce_order(plain, swapped, 0))
                return {true, fmt::format("{} and {} differ only in the first two, and addition commutes.", walk(plain),
                                          walk(swapped))};
            return {false, "Write both chains to rank 0 as brackets, and swap operands of an addition where needed."};
        }};
}

Lesson fixed_root() {
    const Communicator one{.topology = Topology::one_rank_per_node(4)};
    const std::vector<Ring> two_rings{{0, 1, 2, 3}, {0, 1, 3, 2}};
    const Communicator two{.topology = Topology::from_rings(two_rings)};
    const InvarianceAnswer broken = invariance_of(Scheme::fixed_root, Invariance::position, two);
    ensure(invariance_of(Scheme::fixed_root, Invariance::position, one).holds && !broken.holds,
           "a fixed root needs one ring");
    ensure(invariance_of(Scheme::gather_ordered, Invariance::position, two).holds,
           "a sum in rank order depends on no ring");
    ensure(broken.example.has_value(), "two placements show the difference");
    const CounterExample& example = *broken.example;
    const ReductionTree before = example.before_order.as_tree(), after = example.after_order.as_tree();
    const auto witness = separating_witness(before, after, bf16);
    ensure(witness.has_value(), "the two placements have two orders");
    const auto place = [](const Placement& at) {
        return fmt::format("sizes {}, row {}", str_sizes(at.routing.sizes), at.row);
    };
    ensure(same_reduce_order({0, 1, 2}, {0, 2, 1}, 0) && same_reduce_order({0, 1, 2}, {0, 2, 1}, 1),
           "three ranks have one order to each root");

    Lesson lesson;
    lesson.name = "fixed_root";
    lesson.demonstration = {bf16, "fixed_root", witness->leaves, 0, 1};
    lesson.title = "What a fixed root fixes, and what it assumes";
    lesson.minutes = 5;
    lesson.text = {
        prose("vLLM's fix for batch-invariant serving: one ncclReduce of the whole buffer to rank 0, which then sends "
              "each "
              "owner its rows. The scatter only moves bits, so every row is added in the order that ends at rank 0, "
              "for every owner. Do the orders depend on owner, position or count? Four ranks, one ring:"),
        figure(invariance_table(one)),
        prose(
            "But NCCL splits a large call over channels, and each channel has its own ring. With the rings 0 1 2 3 and "
            "0 1 3 2:"),
        figure(invariance_table(two)),
        prose("One ncclReduce, one root, but two orders. The same token at two places of the buffer:"),
        figure(tell_apart(before, after, bf16, witness->leaves, place(example.before), place(example.after)) + "\n"),
        prose(
            "So a fixed root assumes that all channels in use share one ring. vLLM's batch-invariant mode pins NCCL to "
            "one channel, which makes that true. Combines that add in rank order themselves, like `gather_ordered`, "
            "need no such assumption.")};
    lesson.question = "With 3 ranks and different rings, does one ncclReduce use different orders?";
    lesson.answer = {
        prose("No. The chain to the root adds the other two ranks, then the root's own value, and the first addition "
              "commutes. Three ranks need no assumption about rings; four do.")};
    lesson.command =
        "samesum order invariance --rings '0,1,2,3;0,1,3,2' --schemes vllm_default,fixed_root,gather_ordered";
    lesson.result = fmt::format(
        "{}: {}", fmt::format("row {} (owner {})", example.after.row, example.after.routing.owner(example.after.row)),
        after.str());
    lesson.exercise = two_rings_one_order();
    return lesson;
}

Lesson order_free() {
    const std::vector<Bits> values = parse_values(bf16, "512 1 -512 0.5", 4);
    const std::vector<ReductionTree> orders = all_trees(4);
    std::set<Bits> per_hop, exact;
    for (const ReductionTree& order : orders) {
        per_hop.insert(sum_of(bf16, order, values));
        exact.insert(sum_element({.format = bf16, .accumulation = Accumulation::exact}, order, values));
    }
    ensure(per_hop.size() > 1 && exact.size() == 1, "several results per hop, one exact result");
    const Bits right = *exact.begin();
    // Rank order depends on the number of ranks: two ranks that first add two values each give another tree.
    const ReductionTree four = ReductionTree::parse("(((0 1) 2) 3)"), two = ReductionTree::parse("((0 1) (2 3))");
    const std::vector<Bits> split = parse_values(bf16, "512 1 -512 1", 4);
    ensure(sum_of(bf16, four, split) != sum_of(bf16, two, split), "rank order depends on the number of ranks");
    const std::vector<Bits> far = parse_values(bf16, "1e30 1 -1e30 0.5", 4);
    const Bits far_sum = exact_sum(bf16, far);
    const Bits far_chain = sum_of(bf16, four, far);
    ensure(far_chain != far_sum, "the chain loses what the exact sum keeps");

    Lesson lesson;
    lesson.name = "order_free";
    lesson.demonstration = {bf16, "gather_ordered", split, 0, 1};
    lesson.title = "Sums without an order";
    lesson.minutes = 3;
    lesson.text = {
        prose(fmt::format(
            "`gather_ordered`, `exchange_ordered` and `direct_ordered` fix the order: always 0, 1, 2, ... `exact` "
            "removes it: the values are added exactly, as integers of many bits, and the sum is rounded once. Integer "
            "addition is associative, so the order has no effect. 512, 1, -512 and 0.5 in bfloat16, in all {} orders:",
            orders.size())),
        figure(fmt::format("per hop  {} results: {}\nexact    {} result:  {}\n", per_hop.size(),
                           listed(bf16, std::vector<Bits>(per_hop.begin(), per_hop.end())), exact.size(),
                           with_pattern(bf16, right))),
        worked_sum({.format = bf16, .accumulation = Accumulation::exact}, four, values)};
    lesson.question = "Rank order always gives the same bits. Then what is an order-free sum good for?";
    lesson.answer = {prose(
        fmt::format("Rank order is one order only as long as the number of ranks stays the same. 512, 1, -512, 1 on "
                    "four ranks give {}; two ranks that each add their own two first give {}. The exact sum of "
                    "all four is {} on any number of ranks, provided that no value is rounded before it.",
                    exact_decimal(bf16, sum_of(bf16, four, split)), exact_decimal(bf16, sum_of(bf16, two, split)),
                    exact_decimal(bf16, exact_sum(bf16, split))))};
    lesson.command = "samesum sum eval --dtype bfloat16 --rounding exact --values '512 1 -512 0.5' --explain";
    lesson.result = fmt::format("= {}", hex(bf16, right));
    lesson.exercise = {
        "1e30, 1, -1e30 and 0.5 in bfloat16: what is the order-free sum?", "one value, e.g. '1e30'",
        exact_decimal(bf16, far_sum), [=](std::string_view answer) -> Grade {
            const Bits given = parse_values(bf16, answer, 1).front();
            if (given == far_sum) return {true, "The large values cancel exactly and nothing else is lost."};
            if (given == far_chain)
                return {false, "That is the result of the chain (((0 1) 2) 3), which loses the 1 in 1e30."};
            return {false, "Add them without rounding, then round once."};
        }};
    return lesson;
}

}  // namespace

std::vector<Lesson> lessons_of_promises() {
    return {saturation(), rounded_once(), no_order(), fixed_root(), order_free()};
}

}  // namespace samesum
