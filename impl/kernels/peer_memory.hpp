// Memory of each rank that the other ranks of one NVLink domain can write: direct_ordered's receive slots.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "impl/device/cuda.hpp"
#include "impl/device/nccl.hpp"
#include "impl/kernels/direct_sum.hpp"

namespace samesum::gpu {

/// How the ranks of a communicator share GPUs.
struct PeerTopology {
    int ranks_on_gpu = 1;     ///< of the GPU with most ranks
    int multiprocessors = 0;  ///< of the GPU with fewest
};
/// Collective. Throws UsageError, on all ranks, where ranks cannot write each other's memory: on different hosts, two
/// in one process, on GPUs without NVLink between them.
[[nodiscard]] PeerTopology discover_peers(const Communicator& comm);

/// Can direct_ordered run here? The same answer on all ranks. Collective.
[[nodiscard]] bool one_nvlink_domain(const Communicator& comm);

/// Device memory of each rank, `bytes` filled with zeros, that the other ranks map through CUDA IPC. Ranks may share a
/// GPU. Construction and close() are collective.
class PeerMappedBuffer {
public:
    PeerMappedBuffer(const Communicator& comm, std::size_t bytes);
    ~PeerMappedBuffer();
    PeerMappedBuffer(const PeerMappedBuffer&) = delete;
    PeerMappedBuffer& operator=(const PeerMappedBuffer&) = delete;

    [[nodiscard]] std::size_t size() const { return memory_.size(); }
    /// Rank r's memory as this rank addresses it.
    [[nodiscard]] std::byte* of(int rank) const { return mapped_[static_cast<std::size_t>(rank)]; }
    /// Unmaps the peers' memory, waits until they have unmapped this rank's, and frees.
    void close();

private:
    void unmap();

    const Communicator& comm_;
    DeviceBuffer memory_;
    std::vector<std::byte*> mapped_;
};

/// The receive slots of direct_ordered. Their size depends on the number of ranks only (34 MiB for 2, 69 MiB for 8
/// H200s): callers' buffers of any size pass through them and need not be registered. Construction and close() are
/// collective. Serves the calls of one stream, which may be captured; each further stream needs its own PeerMemory.
class PeerMemory {
public:
    /// `job`: a communicator of all ranks that may share this rank's GPU, where `comm` holds a part of them; collective
    /// on it, too. Throws what discover_peers() throws, and Inconclusive where a rank cannot map another's memory; the
    /// same on all ranks.
    explicit PeerMemory(const Communicator& comm, double timeout_s = 10, const Communicator* job = nullptr);

    [[nodiscard]] const ReceiveSlots& receive_slots() const { return receive_slots_; }
    /// Waits for the device. Throws Inconclusive when a kernel's wait for a peer timed out; the receive slots cannot be
    /// used after that.
    void check_delivery();
    void close() { inboxes_.close(); }

private:
    PeerMemory(const Communicator& comm, double timeout_s, const PeerTopology& topology);
    PeerMemory(const Communicator& comm, double timeout_s, const PeerTopology& topology, int blocks);

    int rank_;
    PeerMappedBuffer inboxes_;
    DeviceBuffer own_words_;
    ReceiveSlots receive_slots_;
};

}  // namespace samesum::gpu
