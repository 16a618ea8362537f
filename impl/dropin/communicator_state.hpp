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

#include "impl/combine/combine.hpp"
#include "impl/device/nccl.hpp"
#include "impl/dropin/abort_gate.hpp"
#include "impl/dropin/direct_order.hpp"
#include "impl/dropin/scratch.hpp"
#include "impl/dropin/thread_state.hpp"
#include "impl/kernels/peer_memory.hpp"

namespace samesum::dropin {

/// The capture that a stream is in; 0 when it is in none.
using Capture = unsigned long long;
[[nodiscard]] Capture capture_of(cudaStream_t stream);

class CommunicatorState {
public:
    /// Reads rank, number of ranks and device from NCCL. Throws NcclError.
    CommunicatorState(ncclComm_t comm, std::uint64_t number);
    /// Frees its device memory, which waits for the device. After an abort the memory goes to the device's pool, and
    /// that which peers may still map is kept until the process ends.
    ~CommunicatorState();
    CommunicatorState(const CommunicatorState&) = delete;
    CommunicatorState& operator=(const CommunicatorState&) = delete;

    [[nodiscard]] const gpu::Communicator& comm() const { return comm_; }
    [[nodiscard]] int rank() const { return comm_.rank(); }
    [[nodiscard]] int ranks() const { return comm_.ranks(); }
    [[nodiscard]] int device() const { return device_; }
    /// 1, 2, ... in the order in which this process first used them.
    [[nodiscard]] std::uint64_t number() const { return number_; }
    /// The recorder whose file describes this communicator; a forked child has another recorder.
    [[nodiscard]] std::atomic<const void*>& described_by() { return described_by_; }
    /// Held while work of ours is put on a stream. An abort takes gate() instead.
    [[nodiscard]] std::mutex& mutex() { return mutex_; }
    [[nodiscard]] AbortGate& gate() { return gate_; }

    /// gpu::combine with the memory that it needs. No scheme: the fastest ordered one. Throws what gpu::combine throws,
    /// and UsageError if the peers' memory would have to be mapped inside a capture.
    void combine(std::optional<Scheme> scheme, gpu::CombineRequest request, const void* partial, void* result,
                 cudaStream_t stream);
    /// Scratch memory of this stream for packing inputs; combines use another block.
    [[nodiscard]] std::byte* packing_buffer(std::size_t bytes, cudaStream_t stream);
    /// After the last work of a call that used scratch memory.
    void mark_end_of_use() noexcept;
    /// Unmaps the peers' memory. Collective, like ncclCommFinalize and ncclCommDestroy; to be called before them.
    /// Throws Inconclusive when direct_ordered's last kernel does not end within SAMESUM_TIMEOUT_S.
    void close();
    /// After ncclCommAbort or ncclCommRevoke: ends direct_ordered's kernels. From now on nothing is done together with
    /// the peers. Takes no lock that a call holds; waits for no kernel.
    void abandon() noexcept;
    /// True when no work of this library uses its scratch memory. Only for a state that no other thread uses.
    [[nodiscard]] bool is_idle() const;

private:
    /// Kept for each capture until its graph is destroyed, and once for all calls outside captures (0).
    struct CaptureState {
        CaptureState(BlockPool& pool, bool captured) : scratch(pool, captured) {}
        ScratchSet scratch;
        std::optional<OrderEvent> last;  ///< end of direct_ordered's last call in this capture
        std::shared_ptr<const std::atomic<bool>> graph_is_gone;
    };
    [[nodiscard]] CaptureState& capture_state(Capture capture, cudaStream_t stream);
    [[nodiscard]] bool one_nvlink_domain(Capture capture);
    [[nodiscard]] gpu::PeerMemory* peers(Capture capture);
    void wait_for_last_direct();

    gpu::Communicator comm_;
    int device_ = -1;
    std::uint64_t number_;
    std::atomic<const void*> described_by_{nullptr};
    std::mutex mutex_;
    AbortGate gate_;
    std::map<Capture, CaptureState> capture_states_;
    std::unique_ptr<gpu::PeerMemory> peers_;
    std::shared_ptr<OrderEvent> last_direct_;  ///< outside captures
    std::optional<bool> one_nvlink_domain_;
    std::mutex stop_mutex_;  ///< of the next two
    std::unique_ptr<KernelStop> stop_;
    bool abandoned_ = false;
};

/// While it lives, one call of this library uses the state and its scratch memory.
class StateUse {
public:
    explicit StateUse(CommunicatorState& state)
        : internal_(state.comm().get(), state.gate()), lock_(state.mutex()), device_(state.device()), state_(state) {}
    ~StateUse() { state_.mark_end_of_use(); }
    StateUse(const StateUse&) = delete;
    StateUse& operator=(const StateUse&) = delete;

private:
    InternalCallGuard internal_;
    std::lock_guard<std::mutex> lock_;
    DeviceGuard device_;
    CommunicatorState& state_;
};

/// The state of a communicator, made at its first use: by then the communicator is complete, whichever function made
/// it. Who holds the pointer may go on while another thread aborts. Throws NcclError, and UsageError for a communicator
/// that is being aborted.
[[nodiscard]] std::shared_ptr<CommunicatorState> state_of(ncclComm_t comm);
/// The state if there is one, else null.
[[nodiscard]] std::shared_ptr<CommunicatorState> find_state(ncclComm_t comm);
/// For a communicator that is about to be destroyed: NCCL may use its address again.
void delete_state(ncclComm_t comm);
/// Before NCCL's abort: no further call of this library is made on the communicator. Null if it has no state.
[[nodiscard]] std::shared_ptr<CommunicatorState> begin_abort(ncclComm_t comm);
/// After NCCL's abort. The state's memory is handed on when no thread and no kernel uses it any more.
void end_abort(ncclComm_t comm, std::shared_ptr<CommunicatorState> state);
/// NCCL has just made a communicator at this address: a state that an abort has not removed yet is another's.
void forget_aborted(ncclComm_t comm);

}  // namespace samesum::dropin
