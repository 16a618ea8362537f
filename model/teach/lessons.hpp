// The lessons of `samesum teach`: every number in them comes from the engine when they are made, and so does every
// claim.
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

/// A paragraph, or lines that are shown as they are.
struct Passage {
    bool is_figure = false;
    std::string text;  ///< a paragraph is one line; words in `backquotes` are code
};
[[nodiscard]] Passage prose(std::string text);
[[nodiscard]] Passage figure(std::string text);

struct Grade {
    bool right = false;
    std::string says;  ///< why it is right, or a hint
};

struct Exercise {
    std::string task;
    std::string form;      ///< what an answer looks like: "three values, e.g. '1 2 4'"
    std::string solution;  ///< one right answer
    /// By the engine; throws UsageError for an answer that cannot be read.
    std::function<Grade(std::string_view answer)> grade;
};

/// What the page's reduction is set to when a lesson is tried out there: a token that moves from one owner to another.
struct Demonstration {
    Format format{};
    std::string scheme;        ///< one of the page's
    std::vector<Bits> values;  ///< of ranks 0, 1, ...
    int before = 0, after = 0;
};

struct Lesson {
    std::string name;  ///< as in `samesum teach NAME`
    std::string title;
    int minutes = 3;
    std::vector<Passage> text;
    std::string question;
    std::vector<Passage> answer;
    std::string command;  ///< that reproduces what was shown
    std::string result;   ///< part of what it prints
    Exercise exercise;
    std::optional<Demonstration> demonstration{};
};

/// All lessons, in the order in which they are taught. Throws std::logic_error when one claims what no longer holds.
[[nodiscard]] std::vector<Lesson> lessons();
[[nodiscard]] std::vector<Lesson> lessons_of_addition();
[[nodiscard]] std::vector<Lesson> lessons_of_orders();
[[nodiscard]] std::vector<Lesson> lessons_of_promises();

// What lessons are written with.

/// leaves added in the tree's order, in the format.
[[nodiscard]] Bits sum_of(Format format, const ReductionTree& tree, std::span<const Bits> leaves);
/// "256 (0x4380)".
[[nodiscard]] std::string with_pattern(Format format, Bits bits);
/// The tree, then each of its additions with bits under bits.
[[nodiscard]] Passage worked_sum(const SumRule& rule, const ReductionTree& tree, std::span<const Bits> leaves);
/// One addition, bits under bits.
[[nodiscard]] std::string worked_addition(Format format, Bits left, Bits right);
/// A whole number. Throws UsageError.
[[nodiscard]] std::uint64_t number_in(std::string_view answer);
/// The grade of a number that has one right value.
[[nodiscard]] Grade grade_number(std::string_view answer, std::uint64_t right, std::string why, std::string hint);
/// The grade of values that are to come out differently in two orders.
[[nodiscard]] Grade grade_difference(const SumRule& rule, const ReductionTree& a, const ReductionTree& b,
                                     std::string_view answer, std::string hint);

}  // namespace samesum
