// What the hardware can do at best: kernels that only read or only write other ranks' memory, or do nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace samesum::gpu {

/// Reads `bytes` (a multiple of 16) from a peer's memory, and keeps nothing. Four 16-byte loads of each thread are on
/// their way at once; more, and TMA's bulk copies, are no faster on H200s.
void launch_peer_read(const std::byte* from, std::byte* sink, std::uint64_t bytes, cudaStream_t stream);
/// Writes `bytes` (a multiple of 16) of one value into a peer's memory.
void launch_peer_write(std::byte* to, std::uint64_t bytes, cudaStream_t stream);
/// What a launch costs by itself.
void launch_nothing(cudaStream_t stream);

}  // namespace samesum::gpu
