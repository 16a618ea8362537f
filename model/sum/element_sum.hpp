// The bits of one element, from a tree, the ranks' values, and the rule for rounding and scaling.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/arithmetic/format.hpp"
#include "model/arithmetic/operation.hpp"
#include "model/sum/reduction_tree.hpp"

namespace samesum {

/// Everything besides the tree that determines the bits of a sum.
struct SumRule {
    Format format = Format::float32;
    Operation operation = Operation::sum;
    Accumulation accumulation = Accumulation::per_hop;
    /// avg and premulsum: each rank's own value is multiplied by this as it enters (1/n rounded to the format for avg).
    Bits scale = 0;
    /// The multiplication and the addition of a hop are one fma (NCCL's Simple and LL kernels; not LL128 in 16 bits).
    bool fused = true;
    /// Which operand of a hop is the rank's own value: the left one in trees, the right one along rings.
    bool own_is_left = false;
    /// Of two float64 NaNs the result keeps the right operand's payload; if false, the left operand's.
    bool nan_from_right = false;
};

/// 1/n as ncclAvg scales by it, rounded to the format (NCCL 2.28.9 src/enqueue.cc, hostToDevRedOp).
[[nodiscard]] Bits average_scale(Format format, int ranks);

/// leaves[r] is rank r's value. Integer averages divide the wrapped sum at the end, truncating toward zero.
[[nodiscard]] Bits sum_element(const SumRule& rule, const ReductionTree& tree, std::span<const Bits> leaves);

/// The exact sum rounded once to nearest even: the same for every order and grouping of the values.
/// NaN when any value is NaN or infinities of both signs occur; -0 only when every value is -0.
[[nodiscard]] Bits exact_sum(Format format, std::span<const Bits> values);

}  // namespace samesum
