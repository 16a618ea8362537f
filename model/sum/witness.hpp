// Values on which two different orders differ: small, readable, and constructed rather than searched.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/arithmetic/format.hpp"
#include "model/sum/reduction_tree.hpp"

namespace samesum {

/// Three leaves that two trees bracket differently: tree `a` adds `plus` and `minus` before it adds `one` to either,
/// tree `b` adds `one` to one of them first.
struct Bracketing {
    int plus = 0, minus = 0, one = 0;
};
/// std::nullopt for the same order. Both trees must have the same leaves. Linear time.
[[nodiscard]] std::optional<Bracketing> different_bracketing(const ReductionTree& a, const ReductionTree& b);

/// The smallest power of two M of a float format that absorbs 1: M + 1 and -M + 1 round to M and -M.
[[nodiscard]] Bits absorption_threshold(Format format);

/// One value for each leaf, and the results of the two trees.
struct SeparatingWitness {
    std::vector<Bits> leaves;  ///< leaves[r] is rank r's value
    Bits left = 0, right = 0;  ///< bits of tree a and of tree b; they differ
};

/// M, -M and 1 on the three leaves of different_bracketing(), +0 elsewhere: tree `a` gives 1, tree `b` gives 0. Hence
/// two orders of any number of leaves agree on all inputs only if they are equal up to swapping operands. std::nullopt
/// for equal orders and for integers, whose addition is associative. Both results are evaluated and checked.
[[nodiscard]] std::optional<SeparatingWitness> separating_witness(const ReductionTree& a, const ReductionTree& b,
                                                                  Format format);

/// "x0 = 512 (0x4400), x1 = -512 (0xc400)"; above 16 leaves the nonzero ones only.
[[nodiscard]] std::string str_leaves(Format format, const std::vector<Bits>& leaves);

/// The values, and the two trees drawn side by side under their results:
///
///     x0 = 512 (0x4400), x1 = -512 (0xc400), x2 = 1 (0x3f80)
///     ((0 1) 2) makes 1 (0x3f80)     (0 (1 2)) makes 0 (0x0000)
///     0 ─┐                           0 ───┐
///     1 ─┴─┐                         1 ─┐ │
///     2 ───┴─                        2 ─┴─┴─
///
/// Additions are in the format; labels name the trees, e.g. "owner 0"; empty: the S-expression.
[[nodiscard]] std::string tell_apart(const ReductionTree& a, const ReductionTree& b, Format format,
                                     const std::vector<Bits>& leaves, std::string_view label_a = {},
                                     std::string_view label_b = {});

}  // namespace samesum
