// Each rounding of one element's sum in text: operands, exact result, rounded result and the reason.
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
    std::string expression;  ///< "0x3f80 + 0x3b80": bit patterns of the operands
    std::string values;      ///< "1 + 0.00390625"
    std::string exact;       ///< exact result in decimal, shortened when it has more than 40 digits
    Format format{};         ///< of the result
    Bits result = 0;
    bool rounded = false;
    std::string rounding;  ///< "exact", "rounded up by 1/2 ulp (tie to even)", "NaN: ...", "saturated at 448"
    /// The terms of a sum or conversion of finite floats; empty for all other operations.
    std::vector<std::pair<Format, Bits>> terms{};
};

struct Explanation {
    std::vector<RoundingStep> steps;
    Bits result = 0;
};

/// Steps in the order of the tree's postfix program. The result equals sum_element()'s.
[[nodiscard]] Explanation explain(const SumRule& rule, const ReductionTree& tree, std::span<const Bits> leaves);

/// The decision of one rounding to nearest even, from the bits below the last place: `guard` is the first of them,
/// `sticky` says whether any later one is 1. Truncated and incremented refer to the magnitude.
struct Rounding {
    enum class Kind : std::uint8_t {
        exact,
        truncated,
        truncated_at_tie,
        incremented,
        incremented_at_tie,
        saturated,
        overflowed,
    };
    Kind kind = Kind::exact;
    std::string lost;  ///< the bits of the exact magnitude below the last place, trailing zeros removed: "1", "011"
};
/// "guard 0: below half, truncated".
[[nodiscard]] std::string_view str(Rounding::Kind kind);
/// The rounding of a sum of two finite floats.
[[nodiscard]] Rounding rounding_of_sum(Format format, Bits left, Bits right);

/// The terms of a step's sum, its exact value and the result, aligned bit by bit; a bar marks the last place:
///
///     1.0000000|    x 2^8  256 (0x4380)
///   + 0.0000000|1   x 2^8  1 (0x3f80)
///   = 1.0000000|1   x 2^8  257 exactly
///                ^ guard 1, sticky 0: a tie; the last bit kept is 0, even: truncated
///   > 1.0000000     x 2^8  256 (0x4380)
///
/// Empty where a step has no terms or its result is not finite.
[[nodiscard]] std::string draw_bits(const RoundingStep& step);

/// A value with all of its digits if they are at most 14 characters, else rounded to 6, 9 or 17 digits (by width):
/// "448".
[[nodiscard]] std::string exact_decimal(Format format, Bits bits);

}  // namespace samesum
