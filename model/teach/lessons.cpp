// The list of lessons, and the figures and grades that they share.
// SPDX-License-Identifier: Apache-2.0
#include "model/teach/lessons.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "model/sum/draw_tree.hpp"
#include "model/sum/rounding_steps.hpp"
#include "model/support/error.hpp"
#include "model/support/numbers.hpp"
#include "model/support/text.hpp"

namespace samesum {

Passage prose(std::string text) { return {false, std::move(text)}; }
Passage figure(std::string text) { return {true, std::move(text)}; }

std::vector<Lesson> lessons() {
    std::vector<Lesson> all;
    for (const auto part : {lessons_of_addition, lessons_of_orders, lessons_of_promises})
        for (Lesson& lesson : part()) all.push_back(std::move(lesson));
    return all;
}

Bits sum_of(Format format, const ReductionTree& tree, std::span<const Bits> leaves) {
    return sum_element({.format = format}, tree, leaves);
}

std::string with_pattern(Format format, Bits bits) {
    return fmt::format("{} ({})", exact_decimal(format, bits), hex(format, bits));
}

Passage worked_sum(const SumRule& rule, const ReductionTree& tree, std::span<const Bits> leaves) {
    std::vector<std::string> labels;
    for (std::size_t rank = 0; rank < leaves.size(); ++rank)
        labels.push_back(fmt::format("x{} = {}", rank, exact_decimal(rule.format, leaves[rank])));
    const Explanation explanation = explain(rule, tree, leaves);
    std::string text = draw_text(tree, labels);
    for (const RoundingStep& step : explanation.steps)
        text += fmt::format("\n{}: {}\n{}", step.what, step.rounding, draw_bits(step));
    return figure(text);
}

std::string worked_addition(Format format, Bits left, Bits right) {
    const std::array leaves{left, right};
    return draw_bits(explain({.format = format}, ReductionTree::parse("(0 1)"), leaves).steps.front());
}

std::uint64_t parse_answer(std::string_view answer) {
    const auto number = integer_in<std::uint64_t>(trimmed(answer));
    if (!number) throw UsageError(fmt::format("'{}': expected a whole number", answer));
    return *number;
}

Grade grade_number(std::string_view answer, std::uint64_t right, std::string why, std::string hint) {
    const bool is_right = parse_answer(answer) == right;
    return {is_right, is_right ? std::move(why) : std::move(hint)};
}

Grade grade_difference(const SumRule& rule, const ReductionTree& a, const ReductionTree& b, std::string_view answer,
                       std::string hint) {
    const std::vector<Bits> values = parse_values(rule.format, answer, static_cast<std::size_t>(a.leaf_count()));
    const Bits left = sum_element(rule, a, values), right = sum_element(rule, b, values);
    if (left != right)
        return {true, fmt::format("{} gives {}, {} gives {}.", a.str(), with_pattern(rule.format, left), b.str(),
                                  with_pattern(rule.format, right))};
    return {false, fmt::format("both orders give {}. {}", with_pattern(rule.format, left), hint)};
}

}  // namespace samesum
