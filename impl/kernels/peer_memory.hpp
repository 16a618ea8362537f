// Memory of each rank that the other ranks of one NVLink domain can write: where direct_ordered's mail arrives.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "impl/device/cuda.hpp"
#include "impl/device/nccl.hpp"
#include "impl/kernels/direct_sum.hpp"

namespace samesum::gpu {

/// Who shares this host and its GPUs.
struct PeerTopology {
    int ranks_on_gpu = 1;     ///< of the fullest GPU
    int multiprocessors = 0;  ///< of the smallest
};
/// Collective. Throws UsageError where ranks cannot write each other's memory: on other hosts, two in one process, on
/// GPUs that no NVLink joins.
[[nodiscard]] PeerTopology discover_peers(const Communicator& comm);

/// The same answer on all ranks: can direct_ordered work here? Collective.
[[nodiscard]] bool one_nvlink_domain(const Communicator& comm);

/// Each rank lends the others `bytes` of its device memory, full of zeros, through CUDA IPC. Ranks may share a GPU.
/// Collective in its making and its closing.
class PeerMappedBuffer {
public:
    PeerMappedBuffer(const Communicator& comm, std::size_t bytes);
    ~PeerMappedBuffer();
    PeerMappedBuffer(const PeerMappedBuffer&) = delete;
    PeerMappedBuffer& operator=(const PeerMappedBuffer&) = delete;

    [[nodiscard]] std::size_t size() const { return memory_.size(); }
    /// Rank r's memory as this rank addresses it.
    [[nodiscard]] std::byte* of(int rank) const { return mapped_[static_cast<std::size_t>(rank)]; }
    /// Gives the others' memory back, waits until they have done so too, and frees.
    void close();

private:
    void unmap();

    const Communicator& comm_;
    DeviceBuffer memory_;
    std::vector<std::byte*> mapped_;
};

/// The letterboxes of direct_ordered. Their size depends on the number of ranks only (34 MiB for 2, 69 MiB for 8
/// H200s): callers' buffers of any size pass through them and need not be registered. Collective in its making and its
/// closing. Serves the calls of one stream, which may be captured; calls on several streams need one each.
class PeerMemory {
public:
    /// Throws what discover_peers() throws.
    explicit PeerMemory(const Communicator& comm, double timeout_s = 10);

    [[nodiscard]] const ReceiveSlots& receive_slots() const { return receive_slots_; }
    /// Throws Inconclusive when a kernel waited for a peer in vain; these mailboxes are then of no more use. Waits for
    /// the device.
    void check_delivery();
    void close() { inboxes_.close(); }

private:
    PeerMemory(const Communicator& comm, double timeout_s, int blocks);

    int rank_;
    PeerMappedBuffer inboxes_;
    DeviceBuffer own_words_;
    ReceiveSlots receive_slots_;
};

}  // namespace samesum::gpu
