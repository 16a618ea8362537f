// Values on which two different orders differ: small, readable, and made rather than searched for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/arithmetic/format.hpp"
#include "model/sum/reduction_tree.hpp"

namespace samesum {

/// Three leaves that two trees bracket differently: tree `a` adds `plus` and `minus` before `one` comes near them, tree
/// `b` adds `one` to one of them first.
struct Bracketing {
    int plus = 0, minus = 0, one = 0;
};
/// Nothing when the trees are the same order. Both must have the same leaves. Takes time linear in their size.
[[nodiscard]] std::optional<Bracketing> different_bracketing(const ReductionTree& a, const ReductionTree& b);

/// The least power of two M of a float format for which M + 1 and -M + 1 round back to M and -M.
[[nodiscard]] Bits absorption_threshold(Format format);

/// One value a leaf, and what the two trees make of them.
struct SeparatingWitness {
    std::vector<Bits> leaves;  ///< leaves[r] is rank r's value
    Bits left = 0, right = 0;  ///< bits of tree a and of tree b; they differ
};

/// M, -M and 1 on the three leaves of different_bracketing(), +0 elsewhere: tree `a` makes 1, tree `b` makes 0. So two
/// orders of any number of leaves agree on all inputs only if they are equal up to swapping operands. Nothing for equal
/// orders and for integers, whose addition associates. The answer has been evaluated.
[[nodiscard]] std::optional<SeparatingWitness> separating_witness(const ReductionTree& a, const ReductionTree& b,
                                                                  Format format);

/// "x0 = 512 (0x4400), x1 = -512 (0xc400)"; above 16 leaves the nonzero ones only.
[[nodiscard]] std::string str_leaves(Format format, const std::vector<Bits>& leaves);

/// The values, and the two trees drawn side by side under what each makes of them:
///
///     x0 = 512 (0x4400), x1 = -512 (0xc400), x2 = 1 (0x3f80)
///     ((0 1) 2) makes 1 (0x3f80)     (0 (1 2)) makes 0 (0x0000)
///     0 ─┐                           0 ───┐
///     1 ─┴─┐                         1 ─┐ │
///     2 ───┴─                        2 ─┴─┴─
///
/// Additions are in the format; labels name the trees' results, e.g. "owner 0"; empty: the tree itself.
[[nodiscard]] std::string tell_apart(const ReductionTree& a, const ReductionTree& b, Format format,
                                     const std::vector<Bits>& leaves, std::string_view label_a = {},
                                     std::string_view label_b = {});

}  // namespace samesum
