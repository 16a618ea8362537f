// What this library keeps for each of NCCL's communicators: scratch memory, the peers' memory, its number.
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

/// While it lives this thread may allocate though some stream is being captured, as NCCL does itself.
class RelaxedCaptureGuard {
public:
    RelaxedCaptureGuard() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    ~RelaxedCaptureGuard() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    RelaxedCaptureGuard(const RelaxedCaptureGuard&) = delete;
    RelaxedCaptureGuard& operator=(const RelaxedCaptureGuard&) = delete;

private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// While it lives the communicator's device is the current one.
class DeviceGuard {
public:
    explicit DeviceGuard(int device);
    ~DeviceGuard();
    DeviceGuard(const DeviceGuard&) = delete;
    DeviceGuard& operator=(const DeviceGuard&) = delete;

private:
    int before_ = -1;
};

/// Blocks of device memory that live as long as their owner: a captured graph may still write to one that has become
/// too small.
class Scratch {
public:
    Scratch() = default;
    ~Scratch();
    Scratch(Scratch&&) = default;
    Scratch& operator=(Scratch&&) = delete;
    /// At least so many bytes; the same ones as before when they suffice. Null for 0.
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
    /// Asks NCCL who this rank is. Throws NcclError.
    CommunicatorState(ncclComm_t comm, std::uint64_t number);

    [[nodiscard]] const gpu::Communicator& comm() const { return comm_; }
    [[nodiscard]] int rank() const { return comm_.rank(); }
    [[nodiscard]] int ranks() const { return comm_.ranks(); }
    [[nodiscard]] int device() const { return device_; }
    /// 1, 2, ... in the order in which this process met them.
    [[nodiscard]] std::uint64_t number() const { return number_; }
    /// The recorder in whose file it stands; a forked child has another.
    [[nodiscard]] std::atomic<const void*>& introduced_by() { return introduced_by_; }
    /// Held while work of ours is put on a stream.
    [[nodiscard]] std::mutex& mutex() { return mutex_; }

    /// gpu::combine with what it needs. Scheme nothing: the fastest ordered one. Throws what that throws, and
    /// UsageError where the peers would have to be met inside a capture.
    void combine(std::optional<Scheme> scheme, gpu::CombineRequest request, const void* partial, void* result,
                 cudaStream_t stream);
    /// Scratch memory of this stream that no combine uses.
    [[nodiscard]] std::byte* packing_buffer(std::size_t bytes, cudaStream_t stream);
    [[nodiscard]] bool has_peers() const { return peers_ != nullptr; }
    /// Gives the peers' memory back. Collective, like ncclCommFinalize and ncclCommDestroy, which it goes before.
    void close();

private:
    struct StreamScratch {
        Scratch workspace, pack;
    };
    /// All of one capture, or all outside of captures (0): what orders calls from several streams there. Graphs may run
    /// beside each other, so each has scratch memory of its own, until the communicator goes. The letterboxes are one
    /// for all: graphs that hold direct_ordered's calls on one communicator must not overlap.
    struct CaptureState {
        std::map<cudaStream_t, StreamScratch> scratch;
        std::optional<gpu::Event> last;  ///< of direct_ordered's calls
        cudaStream_t last_stream = nullptr;
    };
    [[nodiscard]] bool nvlink_joins_all(Capture capture);
    [[nodiscard]] gpu::PeerMemory* peers(Capture capture);

    gpu::Communicator comm_;
    int device_ = -1;
    std::uint64_t number_;
    std::atomic<const void*> introduced_by_{nullptr};
    std::mutex mutex_;
    std::map<Capture, CaptureState> capture_states_;
    std::unique_ptr<gpu::PeerMemory> peers_;
    std::optional<bool> nvlink_joins_all_;
};

/// The state of a communicator, made at its first use: by then NCCL has finished making the communicator, however it
/// was made. It lives until the communicator is forgotten. Throws NcclError.
[[nodiscard]] CommunicatorState& state_of(ncclComm_t comm);
/// The same where there is one, else null.
[[nodiscard]] CommunicatorState* known_state_of(ncclComm_t comm);
/// The communicator is about to be freed; its address may come again.
void forget(ncclComm_t comm);
/// The same after an error. Where peers have mapped memory of ours, a kernel may wait for one of them for ever: what it
/// uses is then left to the end of the process, as freeing it would wait, too.
void abandon(ncclComm_t comm);

}  // namespace samesum::dropin
