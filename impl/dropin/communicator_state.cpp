// States by communicator; each thread caches the one it used last.
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
    std::uint64_t created = 0;
    /// Changes when a state is removed: the threads' cached states are then stale.
    std::atomic<std::uint64_t> generation{1};
};
/// Never destroyed: threads may outlive the end of main.
Registry& communicators() {
    static auto& registry = *new Registry;
    return registry;
}

void require_no_capture(Capture capture, std::string_view what) {
    if (capture != 0)
        throw UsageError(fmt::format(
            "{} at the first call, which cannot be captured into a CUDA graph; expected one call before the capture",
            what));
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
    // At least twice the last block: all kept blocks together then take no more than the newest one.
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

bool CommunicatorState::one_nvlink_domain(Capture capture) {
    if (!one_nvlink_domain_) {
        require_no_capture(capture, "the ranks exchange their GPUs' NVLink domains");
        one_nvlink_domain_ = gpu::one_nvlink_domain(comm_);
    }
    return *one_nvlink_domain_;
}

gpu::PeerMemory* CommunicatorState::peers(Capture capture) {
    if (!peers_) {
        require_no_capture(capture, "direct_ordered maps the peers' memory");
        // All ranks get the same answer, so none waits for a rank that has thrown.
        if (!one_nvlink_domain(capture)) {
            (void)gpu::discover_peers(comm_);
            throw UsageError(
                "direct_ordered needs one process for each rank and NVLink between all their GPUs, and another rank "
                "lacks one of them; expected SAMESUM_POLICY=ordered or another scheme");
        }
        // A kernel that gave up would leave a wrong result behind. NCCL's kernels also wait for ever; frameworks have
        // watchdogs for that.
        constexpr double timeout_s = 1e6;
        peers_ = std::make_unique<gpu::PeerMemory>(comm_, timeout_s);
    }
    return peers_.get();
}

void CommunicatorState::combine(std::optional<Scheme> scheme, gpu::CombineRequest request, const void* partial,
                                void* result, cudaStream_t stream) {
    const Capture capture = capture_of(stream);
    request.scheme =
        scheme ? *scheme : gpu::fastest_ordered(one_nvlink_domain(capture), request.routing, request.format);
    CaptureState& capture_state = capture_states_[capture];
    const bool direct = request.scheme == Scheme::direct_ordered;
    gpu::PeerMemory* const receive_slots = direct ? peers(capture) : nullptr;
    std::byte* const workspace = capture_state.scratch[stream].workspace.reserve(gpu::workspace_bytes(request, rank()));
    // The receive slots serve one call at a time.
    if (direct && capture_state.last && capture_state.last_stream != stream) capture_state.last->hold(stream);
    gpu::combine(request, partial, result, workspace, receive_slots, comm_, stream);
    if (!direct) return;
    if (!capture_state.last) capture_state.last.emplace();
    capture_state.last->record(stream);
    capture_state.last_stream = stream;
}

std::byte* CommunicatorState::packing_buffer(std::size_t bytes, cudaStream_t stream) {
    return capture_states_[capture_of(stream)].scratch[stream].packing.reserve(bytes);
}

void CommunicatorState::close() {
    if (!peers_) return;
    const auto eager = capture_states_.find(0);
    if (eager != capture_states_.end() && eager->second.last) (void)cudaEventSynchronize(eager->second.last->get());
    peers_->close();
    peers_.reset();
}

CommunicatorState* find_state(ncclComm_t comm) {
    Registry& registry = communicators();
    const std::shared_lock lock(registry.mutex);
    const auto found = registry.states.find(comm);
    return found != registry.states.end() ? found->second.get() : nullptr;
}

CommunicatorState& state_of(ncclComm_t comm) {
    struct CachedState {
        ncclComm_t comm = nullptr;
        std::uint64_t generation = 0;
        CommunicatorState* state = nullptr;
    };
    static thread_local CachedState cached;
    Registry& registry = communicators();
    const std::uint64_t generation = registry.generation.load(std::memory_order_acquire);
    if (cached.comm == comm && cached.generation == generation) return *cached.state;
    CommunicatorState* state = find_state(comm);
    if (state == nullptr) {
        const std::unique_lock lock(registry.mutex);
        auto fresh = std::make_unique<CommunicatorState>(comm, registry.created + 1);
        const auto [place, is_new] = registry.states.try_emplace(comm, std::move(fresh));
        state = place->second.get();
        if (is_new) ++registry.created;
    }
    cached = {comm, generation, state};
    return *state;
}

namespace {

std::unique_ptr<CommunicatorState> remove_from_registry(ncclComm_t comm) {
    Registry& registry = communicators();
    const std::unique_lock lock(registry.mutex);
    const auto found = registry.states.find(comm);
    if (found == registry.states.end()) return nullptr;
    std::unique_ptr<CommunicatorState> state = std::move(found->second);
    registry.states.erase(found);
    registry.generation.fetch_add(1, std::memory_order_release);
    return state;
}

}  // namespace

void delete_state(ncclComm_t comm) { remove_from_registry(comm).reset(); }

void abandon_state(ncclComm_t comm) {
    std::unique_ptr<CommunicatorState> state = remove_from_registry(comm);
    if (state && state->has_peers()) (void)state.release();
}

}  // namespace samesum::dropin
