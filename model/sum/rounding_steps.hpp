// Each rounding of one element's sum, in words: what was added, what it is exactly, what it became and why.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/sum/element_sum.hpp"
#include "model/sum/reduction_tree.hpp"

namespace samesum {

/// One operation whose result was rounded, or could have been.
struct RoundingStep {
    std::string what;        ///< the operands as part of the tree: "(0 1)", "(0 1) + 2"
    std::string expression;  ///< "0x3f80 + 0x3b80": patterns, as operated on
    std::string values;      ///< "1 + 0.00390625"
    std::string exact;       ///< exact result in decimal, shortened when it has more than 40 digits
    Format format{};         ///< of the result
    Bits result = 0;
    bool rounded = false;
    std::string rounding;  ///< "exact", "rounded up by 1/2 ulp (tie to even)", "NaN: ...", "saturated at 448"
    /// What was added up, where every one of them is finite; empty for all but sums and conversions of floats.
    std::vector<std::pair<Format, Bits>> terms{};
};

struct Explanation {
    std::vector<RoundingStep> steps;
    Bits result = 0;
};

/// Steps in the order of the tree's program. The result is sum_element()'s.
[[nodiscard]] Explanation explain(const SumRule& rule, const ReductionTree& tree, std::span<const Bits> leaves);

/// The decision of one rounding to nearest even, by the bits behind the last one that the format keeps: `guard` is the
/// first of them, `sticky` tells whether any later one is 1.
struct Rounding {
    enum class Way : std::uint8_t { exact, cut, cut_at_tie, raised, raised_at_tie, saturated, infinite };
    Way way = Way::exact;
    std::string lost;  ///< the bits of the exact magnitude that do not fit, without zeros at the end: "1", "011"
};
/// "guard 0: below half, cut off".
[[nodiscard]] std::string_view str(Rounding::Way way);
/// Of a sum of two finite floats.
[[nodiscard]] Rounding rounding_of_sum(Format format, Bits left, Bits right);

/// The terms of a step's sum, its exact value and the result, bits under bits; a bar behind the last one that is kept:
///
///     1.0000000|    x 2^8  256 (0x4380)
///   + 0.0000000|1   x 2^8  1 (0x3f80)
///   = 1.0000000|1   x 2^8  257 exactly
///                ^ guard 1, sticky 0: a tie; the last bit kept is 0, even: cut off
///   > 1.0000000     x 2^8  256 (0x4380)
///
/// Empty where a step has no terms, and where its sum leaves the finite numbers.
[[nodiscard]] std::string draw_bits(const RoundingStep& step);

/// A value with all of its digits where they are few, else rounded to 6, 9 or 17 (by width): "448", "0.00390625".
[[nodiscard]] std::string exact_decimal(Format format, Bits bits);

}  // namespace samesum
