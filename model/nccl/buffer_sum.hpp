// Whole buffers summed by a schedule: sum_element() for each element, at the speed of memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "model/nccl/schedule.hpp"
#include "model/sum/element_sum.hpp"

namespace samesum {

using ConstBytes = std::span<const std::byte>;

/// output[e] = sum over ranks of inputs[r][e], in each element's own order; elements as they lie in memory, little
/// endian. What `rule` says of operands and NaNs is taken from each segment, by rule_for(). threads: 0 for as many as
/// the machine runs at once. Bit for bit sum_element()'s results. Throws UsageError when sizes do not fit, Inconclusive
/// where an order is not observable.
void sum_buffers(const SumRule& rule, const Schedule& schedule, std::span<const ConstBytes> inputs,
                 std::span<std::byte> output, int threads = 0);
/// All elements by one tree.
void sum_buffers(const SumRule& rule, const ReductionTree& tree, std::span<const ConstBytes> inputs,
                 std::span<std::byte> output, int threads = 0);

}  // namespace samesum
