// Each rounding of one element's sum, in words: what was added, what it is exactly, what it became and why.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "model/element_sum.hpp"
#include "model/reduction_tree.hpp"

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
};

struct Explanation {
    std::vector<RoundingStep> steps;
    Bits result = 0;
};

/// Steps in the order of the tree's program. The result is sum_element()'s.
[[nodiscard]] Explanation explain(const SumRule& rule, const ReductionTree& tree, std::span<const Bits> leaves);

}  // namespace samesum
