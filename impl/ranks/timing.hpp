// One rank's side of samesum bench: times of the combines, and of kernels that reach the hardware's limits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "impl/device/nccl.hpp"
#include "impl/kernels/peer_memory.hpp"

namespace samesum::gpu {

/// Work to be timed; `work` enqueues it once.
struct BenchItem {
    std::string name;
    std::function<void(cudaStream_t)> work;
};
struct Repetitions {
    int iterations = 20, repetitions = 11;
    bool captured = true;  ///< all iterations in one CUDA graph; else call by call
};

/// Microseconds of one iteration: [item, repetition]. The repetitions of all items are interleaved, so that a
/// disturbance of the machine affects all alike; the ranks start each repetition together. Collective.
[[nodiscard]] std::vector<std::vector<double>> time_all(const std::vector<BenchItem>& items, const Repetitions& how,
                                                        const Communicator& comm, cudaStream_t stream);

/// The limits, named "peer_read" and "peer_write" (each rank moves what it must receive in a combine of equal chunks of
/// `bytes`) and "launch".
[[nodiscard]] std::vector<BenchItem> limits(const PeerMappedBuffer& peers, std::byte* sink, std::uint64_t bytes,
                                            const Communicator& comm);

}  // namespace samesum::gpu
