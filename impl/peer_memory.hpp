// Memory of each rank that all ranks of one host can read, and the flags by which their kernels meet.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "impl/cuda.hpp"
#include "impl/kernels.hpp"
#include "impl/nccl.hpp"

namespace samesum::gpu {

/// Each rank lends the others `bytes` of its device memory through CUDA IPC. One process a rank, all on one host;
/// ranks may share a GPU. Collective in its making and its closing.
class PeerMemory {
public:
    PeerMemory(const Communicator& comm, std::size_t bytes);
    ~PeerMemory();
    PeerMemory(const PeerMemory&) = delete;
    PeerMemory& operator=(const PeerMemory&) = delete;

    [[nodiscard]] std::size_t size() const { return bytes_; }
    [[nodiscard]] std::byte* own() const { return memory_.data(); }
    /// Rank r's lent memory as this rank addresses it.
    [[nodiscard]] const std::byte* of(int rank) const { return mapped_[static_cast<std::size_t>(rank)]; }
    /// The most ranks that share a GPU: their kernels must all be resident to meet. The same on all ranks.
    [[nodiscard]] int ranks_on_gpu() const { return ranks_on_gpu_; }
    [[nodiscard]] const KernelBarrier& barrier() const { return barrier_; }

    /// Throws Inconclusive when a kernel waited for a peer in vain since the last call. Waits for the device.
    void check_barriers();
    /// Gives the peers' memory back, waits until they have done so too, and frees.
    void close();

private:
    void unmap();

    const Communicator& comm_;
    std::size_t bytes_;
    DeviceBuffer memory_;  ///< the lent bytes, then the flags
    DeviceBuffer own_words_;
    std::vector<std::byte*> mapped_;
    KernelBarrier barrier_;
    int ranks_on_gpu_ = 1;
};

}  // namespace samesum::gpu
