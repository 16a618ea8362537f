// Lessons on numbers alone: one addition, two orders, ties, and why orders differ from three values on.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/sum/native_sum.hpp"
#include "model/sum/reachable.hpp"
#include "model/sum/rounding_steps.hpp"
#include "model/sum/witness.hpp"
#include "model/support/error.hpp"
#include "model/teach/lessons.hpp"

namespace samesum {
namespace {

constexpr Format bf16 = Format::bfloat16;
using Kind = Rounding::Kind;

const ReductionTree first_two_first = ReductionTree::parse("((0 1) 2)");
const ReductionTree last_two_first = ReductionTree::parse("(0 (1 2))");

Bits bfloat16(std::string_view value) { return parse_value(bf16, value); }

Lesson one_addition() {
    const Bits base = bfloat16("256"), odd = bfloat16("258");
    struct Case {
        const char* left;
        const char* right;
        Kind kind;
    };
    const std::array cases{Case{"256", "0.75", Kind::truncated}, Case{"256", "1.5", Kind::incremented},
                           Case{"256", "1", Kind::truncated_at_tie}};
    std::string rows;
    for (const Case& each : cases) {
        const Bits left = bfloat16(each.left), right = bfloat16(each.right);
        ensure(rounding_of_sum(bf16, left, right).kind == each.kind, "the lesson shows one case of each rounding");
        rows += (rows.empty() ? "" : "\n") + worked_addition(bf16, left, right);
    }
    const HopArithmetic hop(bf16);
    const Bits one = bfloat16("1"), sum = hop.add(odd, one);
    ensure(rounding_of_sum(bf16, odd, one).kind == Kind::incremented_at_tie && sum == odd + 1,
           "258 + 1 is a tie that is rounded up");
    ensure(hop.add(base, one) == base, "256 + 1 is 256");
    // The smallest number that changes 256: the number after 1.
    const Bits min = one + 1;
    ensure(hop.add(base, min) == odd, "adding the number after 1 changes 256");

    Lesson lesson;
    lesson.name = "addition";
    lesson.title = "One addition and its rounding";
    lesson.minutes = 3;
    lesson.text = {
        prose(fmt::format(
            "A bfloat16 number has {} significant bits: the leading 1 and {} after the point. From 256 to 512 the last "
            "one is worth 2, so the neighbours of 256 are {} and {}; 257 does not exist.",
            traits(bf16).precision(), traits(bf16).fraction_bits, exact_decimal(bf16, base - 1),
            exact_decimal(bf16, base + 1))),
        prose(
            "An addition aligns the two numbers at the point, adds them exactly, and keeps the bits that fit. Below, "
            "the "
            "bar marks the last bit that fits. The first bit after it is the guard; sticky says whether any 1 follows "
            "the guard. These two decide: guard 0: truncated; guard 1 and sticky 1: the last place is incremented; "
            "guard 1 and sticky 0: a tie, which goes to the neighbour whose last bit is 0."),
        figure(rows),
        prose(
            "One addition rounds once, by at most half a unit in the last place, and always the same way. Nothing here "
            "is random.")};
    lesson.question = "256 + 1 is a tie and stays 256. What is 258 + 1?";
    lesson.answer = {figure(worked_addition(bf16, odd, one)),
                     prose(fmt::format("{}: also a tie, but the last bit of 258 is 1, so the tie rounds up.",
                                       exact_decimal(bf16, sum)))};
    lesson.command = "samesum sum eval --dtype bfloat16 --values '258 1' --explain";
    lesson.result = "= " + hex(bf16, sum);
    lesson.exercise = {
        "Which is the smallest bfloat16 number x > 0 for which 256 + x is not 256?", "one value, e.g. '1.25'",
        exact_decimal(bf16, min), [=](std::string_view answer) -> Grade {
            const Bits x = parse_values(bf16, answer, 1).front();
            const Bits made = HopArithmetic(bf16).add(base, x);
            if (x == min)
                return {true, fmt::format("256 + {} is {}: guard 1, sticky 1. With 1, the number before, it is a tie.",
                                          exact_decimal(bf16, x), exact_decimal(bf16, made))};
            if (made == base)
                return {false, fmt::format("256 + {} is still 256. To exceed the tie, sticky must be 1.",
                                           exact_decimal(bf16, x))};
            return {false, fmt::format("256 + {} is {}, but a smaller x exists. What is the next number after 1?",
                                       exact_decimal(bf16, x), exact_decimal(bf16, made))};
        }};
    return lesson;
}

Lesson two_answers() {
    constexpr Format format = Format::float16;
    const std::vector<Bits> values = parse_values(format, "0.5 512 512.5", 3);
    const Bits left = sum_of(format, first_two_first, values), right = sum_of(format, last_two_first, values);
    const Bits exact = exact_sum(format, values);
    ensure(left != right && left == exact, "two orders, two answers, the first of them correctly rounded");
    const std::vector<Bits> reversed(values.rbegin(), values.rend());
    ensure(sum_of(format, last_two_first, reversed) == exact && sum_of(format, first_two_first, reversed) != exact,
           "on other numbers the second order comes closer");
    const auto witness = separating_witness(first_two_first, last_two_first, bf16);
    ensure(witness.has_value(), "a witness separates the two orders");

    Lesson lesson;
    lesson.name = "two_answers";
    lesson.title = "Three numbers, two answers";
    lesson.minutes = 3;
    lesson.text = {
        prose("Three float16 numbers: 0.5, 512 and 512.5. `((0 1) 2)` adds the first two first, `(0 (1 2))` the last "
              "two."),
        worked_sum({.format = format}, first_two_first, values), worked_sum({.format = format}, last_two_first, values),
        prose(fmt::format(
            "{} and {}: the same three numbers, each addition correctly rounded, but different bits. Addition is "
            "commutative, a + b is b + a, but not associative: (a + b) + c is not always a + (b + c).",
            exact_decimal(format, left), exact_decimal(format, right)))};
    lesson.question = "Which of the two is right?";
    lesson.answer = {prose(fmt::format(
        "The exact sum is {}, so here the first. But both orders round correctly, and on other numbers the second is "
        "closer. For the same request on two machines a different question matters: is it the same order?",
        exact_decimal(format, exact)))};
    lesson.command = "samesum sum eval --dtype float16 --tree '(0 (1 2))' --values '0.5 512 512.5' --explain";
    lesson.result = "= " + hex(format, right);
    std::string solution;
    for (const Bits value : witness->leaves) solution += (solution.empty() ? "" : " ") + exact_decimal(bf16, value);
    lesson.exercise = {"Find three bfloat16 numbers that `((0 1) 2)` and `(0 (1 2))` add to different bits.",
                       "three values, e.g. '1 2 4'", solution, [](std::string_view answer) {
                           return grade_difference({.format = bf16}, first_two_first, last_two_first, answer,
                                                   "Take a number so large that it absorbs 1, its negative, and 1.");
                       }};
    lesson.demonstration = {format, "reduce_scatter, ring", values, 2, 0};
    return lesson;
}

Lesson ties() {
    const std::vector<Bits> values = parse_values(bf16, "256 1 1 1", 4);
    const ReductionTree large_first = ReductionTree::parse("(((0 1) 2) 3)");
    const ReductionTree small_first = ReductionTree::parse("(0 ((1 2) 3))");
    const ReachableSums sums({.format = bf16}, values);
    ensure(sum_of(bf16, large_first, values) == values[0], "256 absorbs each 1");
    ensure(sum_of(bf16, small_first, values) != values[0], "three ones together change 256");
    std::string results;
    for (const Bits bits : sums.results()) {
        const auto tree = sums.tree_for(bits);
        ensure(tree && sum_of(bf16, *tree, values) == bits, "a result's tree gives it");
        results += fmt::format("{:>3} ({})  e.g. by {}\n", exact_decimal(bf16, bits), hex(bf16, bits), tree->str());
    }
    ensure(sums.results().size() > 2, "more than two answers from four values");
    const auto stuck_at = [](Format format) {
        const HopArithmetic hop(format);
        Bits sum = traits(format).one();
        while (hop.add(sum, traits(format).one()) != sum) sum = hop.add(sum, traits(format).one());
        return static_cast<std::uint64_t>(to_double(format, sum));
    };
    const std::uint64_t in_float16 = stuck_at(Format::float16), in_bfloat16 = stuck_at(bf16);

    Lesson lesson;
    lesson.name = "ties";
    lesson.demonstration = {bf16, "reduce_scatter, ring", values, 3, 0};
    lesson.title = "Ties and absorption";
    lesson.minutes = 3;
    lesson.text = {
        prose("A number can absorb at most half a unit in its last place: the sum is then the number itself. In "
              "bfloat16 256 absorbs 1 every time: each sum is a tie and goes to the even neighbour, which "
              "is 256."),
        worked_sum({.format = bf16}, large_first, values),
        prose("If the same three ones are added to each other first, their sum is large enough to change 256:"),
        worked_sum({.format = bf16}, small_first, values),
        prose("This is absorption. Values of similar size rarely depend on the order; one large value among "
              "small ones, as in activations of language models, makes the order visible at once.")};
    lesson.question = "How many different results do all orders of 256, 1, 1, 1 give?";
    lesson.answer = {
        prose(fmt::format("{}. The result depends on how many ones are added together before they are added to 256:",
                          sums.results().size())),
        figure(results)};
    lesson.command = "samesum sum reachable --dtype bfloat16 --values '256 1 1 1' --list";
    lesson.result = fmt::format("{} results, per_hop", sums.results().size());
    lesson.exercise = {
        "Add 1 + 1 + 1 + ... in float16, one after another. At which number does the sum stop growing?",
        "a whole number", std::to_string(in_float16), [=](std::string_view answer) {
            const std::uint64_t number = parse_answer(answer);
            return grade_number(
                answer, in_float16, fmt::format("{} + 1 is a tie and rounds back to {}.", in_float16, in_float16),
                number == in_bfloat16
                    ? fmt::format("{} is where bfloat16 stops; float16 has {} significant bits, not {}.", number,
                                  traits(Format::float16).precision(), traits(bf16).precision())
                    : fmt::format("From which number on are neighbours 2 apart? float16 has {} significant bits.",
                                  traits(Format::float16).precision()));
        }};
    return lesson;
}

Lesson three_ranks() {
    constexpr Format fp8 = Format::float8_e4m3;
    const auto sums = float8_sums(fp8);
    std::size_t commuting = 0;
    for (std::size_t a = 0; a < 256; ++a)
        for (std::size_t b = 0; b < 256; ++b) commuting += sums[a * 256 + b] == sums[b * 256 + a];
    ensure(commuting == sums.size(), "addition commutes");
    const std::vector<ReductionTree> two = all_trees(2), three = all_trees(3);
    ensure(two.size() == 1 && three.size() == 3, "one order of two values, three of three");
    const std::vector<Bits> values = parse_values(bf16, "512 -512 1", 3);
    std::string table;
    std::vector<Bits> results;
    for (const ReductionTree& tree : three) {
        results.push_back(sum_of(bf16, tree, values));
        table += fmt::format("{} makes {}\n", tree.str(), with_pattern(bf16, results.back()));
    }
    std::sort(results.begin(), results.end());
    const auto distinct = std::unique(results.begin(), results.end()) - results.begin();
    ensure(distinct == 2, "three orders, two results");
    std::string counts;
    for (int n = 2; n <= 6; ++n) counts += fmt::format("{} ranks  {:>4} orders\n", n, all_trees(n).size());

    Lesson lesson;
    lesson.name = "three_ranks";
    lesson.demonstration = {bf16, "reduce_scatter, ring", values, 2, 0};
    lesson.title = "Why 2 ranks are safe and 3 are not";
    lesson.minutes = 2;
    lesson.text = {
        prose(fmt::format("Two ranks have two values and one addition: x0 + x1 or x1 + x0. Addition "
                          "commutes bit for bit: in float8_e4m3 all {} pairs were just added both ways, and "
                          "{} gave the same bits. So with 2 ranks every collective has the same order.",
                          sums.size(), commuting)),
        prose("Three ranks can be bracketed in three ways, and the results can differ. With 512, -512 and 1 on "
              "ranks 0, 1 and 2, in bfloat16:"),
        figure(table),
        prose("The number of orders grows quickly (orders that differ only by swapped operands count once):"),
        figure(counts)};
    lesson.question =
        "vLLM uses its deterministic combine only if the communicator has more than 2 ranks. Is that safe?";
    lesson.answer = {prose(
        "Yes: with 2 ranks every path is one addition, and all paths give the same bits. (An exception: when both "
        "values are float64 NaNs, the sum keeps the payload of one of them. But models are not served in float64.)")};
    lesson.command = "samesum order enumerate --ranks 3 --dtype bfloat16 --values '512 -512 1'";
    lesson.result = fmt::format("{} results on these values", distinct);
    const std::uint64_t four = all_trees(4).size(), five = all_trees(5).size();
    ensure(five == 7 * four, "a new leaf multiplies the orders by the number of its possible places");
    lesson.exercise = {
        "How many orders do 5 ranks have, if swapped operands count as the same order?", "a whole number",
        std::to_string(five), [=](std::string_view answer) {
            return grade_number(
                answer, five,
                fmt::format("Each of the {} orders of 4 ranks has {} places for a fifth leaf.", four, five / four),
                fmt::format("4 ranks have {} orders. In how many places of such a tree can a fifth leaf be inserted? "
                            "One is above its root.",
                            four));
        }};
    return lesson;
}

}  // namespace

std::vector<Lesson> lessons_of_addition() { return {one_addition(), two_answers(), ties(), three_ranks()}; }

}  // namespace samesum
