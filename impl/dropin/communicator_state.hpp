// What this library keeps for each NCCL communicator: scratch memory, the peers' mapped memory, its number.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "impl/combine/combine.hpp"
#include "impl/device/cuda.hpp"
#include "impl/device/nccl.hpp"
#include "impl/kernels/peer_memory.hpp"

namespace samesum::dropin {

/// The capture that a stream is in; 0 when it is in none.
using Capture = unsigned long long;
[[nodiscard]] Capture capture_of(cudaStream_t stream);

/// While it lives this thread may allocate memory even if some stream is being captured, as in NCCL itself.
class RelaxedCaptureGuard {
public:
    RelaxedCaptureGuard() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    ~RelaxedCaptureGuard() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    RelaxedCaptureGuard(const RelaxedCaptureGuard&) = delete;
    RelaxedCaptureGuard& operator=(const RelaxedCaptureGuard&) = delete;

private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// While it lives `device` is the current device.
class DeviceGuard {
public:
    explicit DeviceGuard(int device);
    ~DeviceGuard();
    DeviceGuard(const DeviceGuard&) = delete;
    DeviceGuard& operator=(const DeviceGuard&) = delete;

private:
    int before_ = -1;
};

/// Device memory that grows. Blocks that became too small are kept until the destructor runs: a captured graph may
/// still write to them.
class Scratch {
public:
    Scratch() = default;
    ~Scratch();
    Scratch(Scratch&&) = default;
    Scratch& operator=(Scratch&&) = delete;
    /// At least `bytes` bytes; the block of the last call if it is large enough. Null for 0.
    [[nodiscard]] std::byte* reserve(std::size_t bytes);

private:
    struct Block {
        std::byte* data;
        std::size_t bytes;
    };
    std::vector<Block> blocks_;
};

class CommunicatorState {
public:
    /// Reads rank, number of ranks and device from NCCL. Throws NcclError.
    CommunicatorState(ncclComm_t comm, std::uint64_t number);

    [[nodiscard]] const gpu::Communicator& comm() const { return comm_; }
    [[nodiscard]] int rank() const { return comm_.rank(); }
    [[nodiscard]] int ranks() const { return comm_.ranks(); }
    [[nodiscard]] int device() const { return device_; }
    /// 1, 2, ... in the order in which this process first used them.
    [[nodiscard]] std::uint64_t number() const { return number_; }
    /// The recorder whose file describes this communicator; a forked child has another recorder.
    [[nodiscard]] std::atomic<const void*>& described_by() { return described_by_; }
    /// Held while work of ours is put on a stream.
    [[nodiscard]] std::mutex& mutex() { return mutex_; }

    /// gpu::combine with the memory that it needs. No scheme: the fastest ordered one. Throws what gpu::combine throws,
    /// and UsageError if the peers' memory would have to be mapped inside a capture.
    void combine(std::optional<Scheme> scheme, gpu::CombineRequest request, const void* partial, void* result,
                 cudaStream_t stream);
    /// Scratch memory of this stream for packing inputs; combines use another block.
    [[nodiscard]] std::byte* packing_buffer(std::size_t bytes, cudaStream_t stream);
    [[nodiscard]] bool has_peers() const { return peers_ != nullptr; }
    /// Unmaps the peers' memory. Collective, like ncclCommFinalize and ncclCommDestroy; to be called before them.
    void close();

private:
    struct StreamScratch {
        Scratch workspace, packing;
    };
    /// Kept for each capture, and once for all calls outside captures (0). Graphs may run concurrently, so each capture
    /// has its own scratch memory until the communicator is destroyed. `last` orders direct_ordered's calls from
    /// several streams. All share one set of receive slots: graphs with direct_ordered's calls on one communicator must
    /// not overlap.
    struct CaptureState {
        std::map<cudaStream_t, StreamScratch> scratch;
        std::optional<gpu::Event> last;  ///< end of direct_ordered's last call
        cudaStream_t last_stream = nullptr;
    };
    [[nodiscard]] bool one_nvlink_domain(Capture capture);
    [[nodiscard]] gpu::PeerMemory* peers(Capture capture);

    gpu::Communicator comm_;
    int device_ = -1;
    std::uint64_t number_;
    std::atomic<const void*> described_by_{nullptr};
    std::mutex mutex_;
    std::map<Capture, CaptureState> capture_states_;
    std::unique_ptr<gpu::PeerMemory> peers_;
    std::optional<bool> one_nvlink_domain_;
};

/// The state of a communicator, made at its first use: by then the communicator is complete, whichever function made
/// it. It lives until delete_state() or abandon_state(). Throws NcclError.
[[nodiscard]] CommunicatorState& state_of(ncclComm_t comm);
/// The state if there is one, else null.
[[nodiscard]] CommunicatorState* find_state(ncclComm_t comm);
/// For a communicator that is about to be freed: NCCL may use its address again.
void delete_state(ncclComm_t comm);
/// The same after an error. If peers' memory is mapped, a kernel may wait for a peer for ever and freeing its memory
/// would wait for the kernel: that memory is then kept until the process ends.
void abandon_state(ncclComm_t comm);

}  // namespace samesum::dropin
