// Sums of buffers in one rank's memory, in the order in which they are listed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "model/arithmetic/format.hpp"
#include "model/combine/scheme.hpp"

namespace samesum::gpu {

/// The number of pointers that a kernel's arguments hold.
inline constexpr int max_ranks = 256;

/// The address of each rank's values, in the order in which they are added.
struct Sources {
    const std::byte* values[max_ranks] = {};
    int count = 0;
};

/// result[i] = ((values[0][i] + values[1][i]) + values[2][i]) ...: `per_hop` rounds at every addition, `fp32_once` once
/// at the end of a float32 sum, `exact` once at the end of an exact sum (the same for every order of the sources). NaN
/// results are those of NCCL's sums. `result` may be one of the sources. Any alignment that the format allows. float32
/// and float64 are never narrowed: for them fp32_once is per_hop. Integer formats throw UsageError.
void launch_sum(const Sources& sources, std::byte* result, std::uint64_t elements, Format format,
                Accumulation accumulation, cudaStream_t stream);

/// Keeps the stream busy, for tests of synchronisation.
void launch_delay(std::uint64_t nanoseconds, cudaStream_t stream);
/// destination[i] = value, for every element of `element_bytes` bytes (1, 2, 4 or 8).
void launch_fill(std::byte* destination, std::uint64_t elements, int element_bytes, std::uint64_t value,
                 cudaStream_t stream);

}  // namespace samesum::gpu
