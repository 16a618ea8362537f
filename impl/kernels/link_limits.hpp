// The hardware's limits: kernels that only read or only write other ranks' memory, or do nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace samesum::gpu {

/// Reads `bytes` (a multiple of 16) from a peer's memory and stores nothing. Each thread has four 16-byte loads in
/// flight; more, or TMA's bulk copies, are no faster on H200s.
void launch_peer_read(const std::byte* from, std::byte* sink, std::uint64_t bytes, cudaStream_t stream);
/// Writes `bytes` (a multiple of 16) of one value into a peer's memory.
void launch_peer_write(std::byte* to, std::uint64_t bytes, cudaStream_t stream);
/// An empty kernel: the cost of a launch.
void launch_nothing(cudaStream_t stream);

}  // namespace samesum::gpu
