// The lessons of `samesum teach`. Every number is computed and every claim is checked when a lesson is built.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/sum/element_sum.hpp"
#include "model/sum/reduction_tree.hpp"

namespace samesum {

/// A paragraph, or preformatted lines.
struct Passage {
    bool is_figure = false;
    std::string text;  ///< a paragraph is one line; words in `backquotes` are code
};
[[nodiscard]] Passage prose(std::string text);
[[nodiscard]] Passage figure(std::string text);

struct Grade {
    bool right = false;
    std::string says;  ///< the reason if right, else a hint
};

struct Exercise {
    std::string task;
    std::string form;      ///< the format of an answer: "three values, e.g. '1 2 4'"
    std::string solution;  ///< one right answer
    /// Evaluates an answer; throws UsageError if it cannot be parsed.
    std::function<Grade(std::string_view answer)> grade;
};

/// The settings of the page's reduction for a lesson: a token that moves from one owner to another.
struct Demonstration {
    Format format{};
    std::string scheme;        ///< one of the page's schemes
    std::vector<Bits> values;  ///< of ranks 0, 1, ...
    int before = 0, after = 0;
};

struct Lesson {
    std::string name;  ///< of `samesum teach NAME`
    std::string title;
    int minutes = 3;
    std::vector<Passage> text;
    std::string question;
    std::vector<Passage> answer;
    std::string command;  ///< reproduces what the lesson shows
    std::string result;   ///< part of the output of `command`
    Exercise exercise;
    std::optional<Demonstration> demonstration{};
};

/// All lessons in teaching order. Throws std::logic_error if a claim of a lesson does not hold.
[[nodiscard]] std::vector<Lesson> lessons();
[[nodiscard]] std::vector<Lesson> lessons_of_addition();
[[nodiscard]] std::vector<Lesson> lessons_of_orders();
[[nodiscard]] std::vector<Lesson> lessons_of_promises();

// Helpers for lessons.

/// The sum of the leaves in the tree's order, each addition in the format.
[[nodiscard]] Bits sum_of(Format format, const ReductionTree& tree, std::span<const Bits> leaves);
/// "256 (0x4380)".
[[nodiscard]] std::string with_pattern(Format format, Bits bits);
/// The tree, then each of its additions, aligned bit by bit.
[[nodiscard]] Passage worked_sum(const SumRule& rule, const ReductionTree& tree, std::span<const Bits> leaves);
/// One addition, aligned bit by bit.
[[nodiscard]] std::string worked_addition(Format format, Bits left, Bits right);
/// A whole number. Throws UsageError.
[[nodiscard]] std::uint64_t parse_answer(std::string_view answer);
/// The grade of an exercise with one right number.
[[nodiscard]] Grade grade_number(std::string_view answer, std::uint64_t right, std::string why, std::string hint);
/// The grade of an exercise that asks for values on which two orders differ.
[[nodiscard]] Grade grade_difference(const SumRule& rule, const ReductionTree& a, const ReductionTree& b,
                                     std::string_view answer, std::string hint);

}  // namespace samesum
