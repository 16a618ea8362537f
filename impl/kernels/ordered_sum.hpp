// Sums of what lies in one rank's memory, in an order of our own, written down operand by operand.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "model/arithmetic/format.hpp"
#include "model/combine/scheme.hpp"

namespace samesum::gpu {

/// As many ranks as a kernel's arguments hold.
inline constexpr int max_ranks = 256;

/// Where each rank's values lie, in the order in which they are added.
struct Sources {
    const std::byte* values[max_ranks] = {};
    int count = 0;
};

/// result[i] = ((values[0][i] + values[1][i]) + values[2][i]) ...; `per_hop` rounds at every addition, `fp32_once` once
/// at the end of a float32 sum, `exact` once at the end of an exact one (the same for every order of the sources). NaNs
/// as NCCL's sums have them. `result` may be one of the sources. Any alignment that the format allows. float32 and
/// float64 are never narrowed: for them fp32_once is per_hop. Integers throw UsageError.
void launch_sum(const Sources& sources, std::byte* result, std::uint64_t elements, Format format,
                Accumulation accumulation, cudaStream_t stream);

/// Keeps the stream busy, for tests of what waits for what.
void launch_delay(std::uint64_t nanoseconds, cudaStream_t stream);
/// destination[i] = value, for every element of `element_bytes` bytes (1, 2, 4 or 8).
void launch_fill(std::byte* destination, std::uint64_t elements, int element_bytes, std::uint64_t value,
                 cudaStream_t stream);

}  // namespace samesum::gpu
