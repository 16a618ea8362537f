// Whole buffers summed by a schedule: the bits of sum_element() for each element, at memory speed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "model/nccl/schedule.hpp"
#include "model/sum/element_sum.hpp"

namespace samesum {

using ConstBytes = std::span<const std::byte>;

/// output[e] = sum over ranks of inputs[r][e], in each element's own order; elements in memory layout, little endian.
/// The operand and NaN rules come from each segment, by rule_for(), not from `rule`. threads: 0 for all hardware
/// threads. The bits are those of sum_element(). Throws UsageError when sizes do not fit, Inconclusive where an order
/// is not observable.
void sum_buffers(const SumRule& rule, const Schedule& schedule, std::span<const ConstBytes> inputs,
                 std::span<std::byte> output, int threads = 0);
/// All elements in the order of one tree.
void sum_buffers(const SumRule& rule, const ReductionTree& tree, std::span<const ConstBytes> inputs,
                 std::span<std::byte> output, int threads = 0);

}  // namespace samesum
