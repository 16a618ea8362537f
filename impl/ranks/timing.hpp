// One rank's side of samesum bench: how long combines take, and how long the hardware's limits would.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "impl/combine/combine.hpp"
#include "impl/device/nccl.hpp"
#include "impl/kernels/peer_memory.hpp"

namespace samesum::gpu {

/// Something to be timed: puts itself on the stream once.
struct BenchItem {
    std::string name;
    std::function<void(cudaStream_t)> work;
};
struct Repetitions {
    int iterations = 20, repetitions = 11;
    bool captured = true;  ///< in one CUDA graph of all iterations, else call by call
};

/// Microseconds of one iteration: [item, repetition]. Repetitions of all items are interleaved, so that what disturbs
/// the machine disturbs all alike; ranks begin each together. Collective.
[[nodiscard]] std::vector<std::vector<double>> time_all(const std::vector<BenchItem>& items, const Repetitions& pace,
                                                        const Communicator& comm, cudaStream_t stream);

/// The limits under the names "peer_read", "peer_write" (each rank moves what a combine of equal chunks of `bytes` must
/// receive) and "launch".
[[nodiscard]] std::vector<BenchItem> limits(const PeerMappedBuffer& lent, std::byte* sink, std::uint64_t bytes,
                                            const Communicator& comm);

}  // namespace samesum::gpu
