// Memory of each rank that the other ranks of one NVLink domain can write: where direct_ordered's mail arrives.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "impl/cuda.hpp"
#include "impl/direct.hpp"
#include "impl/nccl.hpp"

namespace samesum::gpu {

/// Each rank lends the others a part of its device memory through CUDA IPC: one process a rank, all on one host; ranks
/// may share a GPU. Its size depends on the number of ranks only (17 MiB for 2, 35 MiB for 8 H200s): callers' buffers
/// of any size pass through it and need not be registered. Collective in its making and its closing.
/// Serves the calls of one stream, which may be captured; calls on several streams need one each.
class PeerMemory {
public:
    /// Throws UsageError where direct_ordered cannot work: ranks on other hosts, GPUs that no NVLink joins.
    explicit PeerMemory(const Communicator& comm, double patience_s = 10);
    ~PeerMemory();
    PeerMemory(const PeerMemory&) = delete;
    PeerMemory& operator=(const PeerMemory&) = delete;

    [[nodiscard]] const Mailboxes& mailboxes() const { return mailboxes_; }
    /// Throws Inconclusive when a kernel waited for a peer in vain; these mailboxes are then of no more use. Waits for
    /// the device.
    void check_delivery();
    /// Gives the peers' memory back, waits until they have done so too, and frees.
    void close();

private:
    void unmap();

    const Communicator& comm_;
    DeviceBuffer inbox_, own_words_;
    std::vector<std::byte*> mapped_;
    Mailboxes mailboxes_;
};

}  // namespace samesum::gpu
