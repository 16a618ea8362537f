// States by communicator, found quickly by the thread that used the same one last.
// SPDX-License-Identifier: Apache-2.0
#include "impl/dropin/communicator_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <shared_mutex>
#include <unordered_map>

#include "model/support/error.hpp"

namespace samesum::dropin {
namespace {

struct Registry {
    std::shared_mutex mutex;
    std::unordered_map<ncclComm_t, std::unique_ptr<CommunicatorState>> states;
    std::uint64_t met = 0;
    /// Changes when a state goes: what threads remember is then stale.
    std::atomic<std::uint64_t> generation{1};
};
/// Never destroyed: threads may outlive the end of main.
Registry& registry() {
    static auto& registry = *new Registry;
    return registry;
}

void require_no_capture(Capture capture, std::string_view what) {
    if (capture != 0)
        throw UsageError(fmt::format(
            "{} for the first time inside a CUDA graph's capture; one call before the capture would be right", what));
}

}  // namespace

Capture capture_of(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    Capture capture = 0;
    if (cudaStreamGetCaptureInfo(stream, &status, &capture) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return status == cudaStreamCaptureStatusNone ? 0 : capture;
}

DeviceGuard::DeviceGuard(int device) {
    int now = -1;
    if (cudaGetDevice(&now) != cudaSuccess || now == device || device < 0) return;
    if (cudaSetDevice(device) == cudaSuccess) before_ = now;
}

DeviceGuard::~DeviceGuard() {
    if (before_ >= 0) cudaSetDevice(before_);
}

Scratch::~Scratch() {
    const RelaxedCaptureGuard relaxed;
    for (const Block& block : blocks_) cudaFree(block.data);
}

std::byte* Scratch::reserve(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    if (!blocks_.empty() && blocks_.back().bytes >= bytes) return blocks_.back().data;
    // Twice the last one at least: all the small ones that are kept then take no more than the last.
    const std::size_t fresh = std::max(bytes, blocks_.empty() ? 0 : 2 * blocks_.back().bytes);
    const RelaxedCaptureGuard relaxed;
    void* data = nullptr;
    gpu::check(cudaMalloc(&data, fresh), "cudaMalloc");
    blocks_.push_back({static_cast<std::byte*>(data), fresh});
    return blocks_.back().data;
}

CommunicatorState::CommunicatorState(ncclComm_t comm, std::uint64_t number) : comm_(comm), number_(number) {
    comm_.check(ncclCommCuDevice(comm, &device_), "ncclCommCuDevice");
}

bool CommunicatorState::nvlink_joins_all(Capture capture) {
    if (!nvlink_joins_all_) {
        require_no_capture(capture, "the ranks ask for each other's GPUs");
        nvlink_joins_all_ = gpu::one_nvlink_domain(comm_);
    }
    return *nvlink_joins_all_;
}

gpu::PeerMemory* CommunicatorState::peers(Capture capture) {
    if (!peers_) {
        require_no_capture(capture, "direct_ordered maps the peers' memory");
        // All ranks hear the same answer, so none waits for one that has given up.
        if (!nvlink_joins_all(capture)) {
            (void)gpu::discover_peers(comm_);
            throw UsageError(
                "direct_ordered needs ranks that see each other's memory over NVLink, a process for each; "
                "another rank does not; ordered would be right");
        }
        // A kernel that gave up would leave a wrong result behind; NCCL's wait for ever, too, and frameworks watch
        // them.
        constexpr double timeout_s = 1e6;
        peers_ = std::make_unique<gpu::PeerMemory>(comm_, timeout_s);
    }
    return peers_.get();
}

void CommunicatorState::combine(std::optional<Scheme> scheme, gpu::CombineRequest request, const void* partial,
                                void* result, cudaStream_t stream) {
    const Capture capture = capture_of(stream);
    request.scheme =
        scheme ? *scheme : gpu::fastest_ordered(nvlink_joins_all(capture), request.routing, request.format);
    CaptureState& capture_state = capture_states_[capture];
    const bool direct = request.scheme == Scheme::direct_ordered;
    gpu::PeerMemory* const receive_slots = direct ? peers(capture) : nullptr;
    std::byte* const workspace = capture_state.scratch[stream].workspace.reserve(gpu::workspace_bytes(request, rank()));
    // The letterboxes serve one call at a time.
    if (direct && capture_state.last && capture_state.last_stream != stream) capture_state.last->hold(stream);
    gpu::combine(request, partial, result, workspace, receive_slots, comm_, stream);
    if (!direct) return;
    if (!capture_state.last) capture_state.last.emplace();
    capture_state.last->record(stream);
    capture_state.last_stream = stream;
}

std::byte* CommunicatorState::packing_buffer(std::size_t bytes, cudaStream_t stream) {
    return capture_states_[capture_of(stream)].scratch[stream].pack.reserve(bytes);
}

void CommunicatorState::close() {
    if (!peers_) return;
    const auto eager = capture_states_.find(0);
    if (eager != capture_states_.end() && eager->second.last) (void)cudaEventSynchronize(eager->second.last->get());
    peers_->close();
    peers_.reset();
}

CommunicatorState* known_state_of(ncclComm_t comm) {
    Registry& all = registry();
    const std::shared_lock lock(all.mutex);
    const auto found = all.states.find(comm);
    return found != all.states.end() ? found->second.get() : nullptr;
}

CommunicatorState& state_of(ncclComm_t comm) {
    struct Remembered {
        ncclComm_t comm = nullptr;
        std::uint64_t generation = 0;
        CommunicatorState* state = nullptr;
    };
    static thread_local Remembered last;
    Registry& all = registry();
    const std::uint64_t generation = all.generation.load(std::memory_order_acquire);
    if (last.comm == comm && last.generation == generation) return *last.state;
    CommunicatorState* state = known_state_of(comm);
    if (state == nullptr) {
        const std::unique_lock lock(all.mutex);
        auto fresh = std::make_unique<CommunicatorState>(comm, all.met + 1);
        const auto [place, is_new] = all.states.try_emplace(comm, std::move(fresh));
        state = place->second.get();
        if (is_new) ++all.met;
    }
    last = {comm, generation, state};
    return *state;
}

namespace {

std::unique_ptr<CommunicatorState> taken(ncclComm_t comm) {
    Registry& all = registry();
    const std::unique_lock lock(all.mutex);
    const auto found = all.states.find(comm);
    if (found == all.states.end()) return nullptr;
    std::unique_ptr<CommunicatorState> last = std::move(found->second);
    all.states.erase(found);
    all.generation.fetch_add(1, std::memory_order_release);
    return last;
}

}  // namespace

void forget(ncclComm_t comm) { taken(comm).reset(); }

void abandon(ncclComm_t comm) {
    std::unique_ptr<CommunicatorState> last = taken(comm);
    if (last && last->has_peers()) (void)last.release();
}

}  // namespace samesum::dropin
