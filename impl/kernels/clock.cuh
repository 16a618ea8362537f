// The GPU's clock, for delays and timeouts in kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace samesum::gpu {

__device__ inline std::uint64_t nanoseconds_now() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

}  // namespace samesum::gpu
