// States by communicator; each thread caches the one it used last.
// SPDX-License-Identifier: Apache-2.0
#include "impl/dropin/communicator_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <shared_mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "impl/dropin/policy.hpp"
#include "model/support/error.hpp"

namespace samesum::dropin {
namespace {

struct Registry {
    std::shared_mutex mutex;
    std::unordered_map<ncclComm_t, std::shared_ptr<CommunicatorState>> states;
    std::vector<std::shared_ptr<CommunicatorState>> aborted;  ///< that a thread or a kernel may still use
    std::uint64_t created = 0;
    /// Changes when a state is removed or its abort begins: the threads' cached states are then stale.
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

CommunicatorState::CommunicatorState(ncclComm_t comm, std::uint64_t number) : comm_(comm), number_(number) {
    comm_.check(ncclCommCuDevice(comm, &device_), "ncclCommCuDevice");
}

CommunicatorState::~CommunicatorState() {
    const DeviceGuard device(device_);
    if (abandoned_) (void)peers_.release();
    for (auto& [capture, kept] : capture_states_) gate_.is_closed() ? kept.scratch.give_back() : kept.scratch.free();
    if (!gate_.is_closed()) pool_of(device_).free_all();
}

CommunicatorState::CaptureState& CommunicatorState::capture_state(Capture capture, cudaStream_t stream) {
    const auto found = capture_states_.find(capture);
    if (found != capture_states_.end()) return found->second;
    for (auto at = capture_states_.begin(); at != capture_states_.end();) {
        CaptureState& kept = at->second;
        const bool unused = kept.graph_is_gone && kept.graph_is_gone->load();
        if (unused) kept.scratch.give_back();
        at = unused ? capture_states_.erase(at) : std::next(at);
    }
    std::shared_ptr<const std::atomic<bool>> graph_is_gone;
    if (capture != 0) graph_is_gone = watch_captured_graph(stream);
    CaptureState& fresh = capture_states_.try_emplace(capture, pool_of(device_), capture != 0).first->second;
    fresh.graph_is_gone = std::move(graph_is_gone);
    return fresh;
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
        // A kernel that gave up would leave a wrong result behind. NCCL's kernels also wait until they are aborted;
        // frameworks have watchdogs for that.
        constexpr double timeout_s = 1e6;
        peers_ = std::make_unique<gpu::PeerMemory>(comm_, timeout_s);
        const std::lock_guard lock(stop_mutex_);
        stop_ = std::make_unique<KernelStop>(device_, peers_->receive_slots().expired);
    }
    return peers_.get();
}

void CommunicatorState::combine(std::optional<Scheme> scheme, gpu::CombineRequest request, const void* partial,
                                void* result, cudaStream_t stream) {
    const Capture capture = capture_of(stream);
    request.scheme =
        scheme ? *scheme : gpu::fastest_ordered(one_nvlink_domain(capture), request.routing, request.format);
    const bool direct = request.scheme == Scheme::direct_ordered;
    gpu::PeerMemory* const receive_slots = direct ? peers(capture) : nullptr;
    CaptureState& kept = capture_state(capture, stream);
    std::byte* const workspace =
        kept.scratch.reserve(ScratchSet::Use::workspace, gpu::workspace_bytes(request, rank()), stream);
    const auto run = [&] { gpu::combine(request, partial, result, workspace, receive_slots, comm_, stream); };
    // After an abort nobody sets the word that ends a waiting kernel.
    if (direct && gate_.is_closed()) throw Inconclusive("the communicator was aborted");
    if (direct)
        direct_order_of(device_).launch(stream, last_direct_, capture != 0 ? &kept.last : nullptr, run);
    else
        run();
}

std::byte* CommunicatorState::packing_buffer(std::size_t bytes, cudaStream_t stream) {
    return capture_state(capture_of(stream), stream).scratch.reserve(ScratchSet::Use::packing, bytes, stream);
}

void CommunicatorState::mark_end_of_use() noexcept {
    // Work in graphs is not marked: their memory is in use until they are gone.
    const auto outside = capture_states_.find(0);
    if (outside != capture_states_.end()) outside->second.scratch.mark_end_of_use();
}

void CommunicatorState::wait_for_last_direct() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(configuration().timeout_s);
    while (last_direct_ && !last_direct_->is_done()) {
        if (gate_.is_closed()) throw Inconclusive("the communicator was aborted");
        if (std::chrono::steady_clock::now() >= deadline)
            throw Inconclusive(
                fmt::format("direct_ordered's last kernel did not end within {} s (SAMESUM_TIMEOUT_S); "
                            "expected every rank to make the same calls before it frees its "
                            "communicator",
                            configuration().timeout_s));
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
}

void CommunicatorState::close() {
    {
        const std::lock_guard lock(stop_mutex_);
        if (!peers_ || abandoned_) return;
    }
    try {
        wait_for_last_direct();
    } catch (const Inconclusive&) {
        abandon();
        throw;
    }
    {
        const std::lock_guard lock(stop_mutex_);
        stop_.reset();
    }
    peers_->close();
    peers_.reset();
}

void CommunicatorState::abandon() noexcept {
    const std::lock_guard lock(stop_mutex_);
    abandoned_ = true;
    if (stop_) stop_->stop();
}

bool CommunicatorState::is_idle() const {
    return std::all_of(capture_states_.begin(), capture_states_.end(), [](const auto& each) {
        const CaptureState& kept = each.second;
        return kept.graph_is_gone ? kept.graph_is_gone->load() : kept.scratch.is_idle();
    });
}

std::shared_ptr<CommunicatorState> find_state(ncclComm_t comm) {
    Registry& registry = communicators();
    const std::shared_lock lock(registry.mutex);
    const auto found = registry.states.find(comm);
    return found != registry.states.end() ? found->second : nullptr;
}

namespace {

/// Hands on the memory of aborted communicators that nothing uses any more.
void release_aborted() {
    Registry& registry = communicators();
    std::vector<std::shared_ptr<CommunicatorState>> unused;
    const std::unique_lock lock(registry.mutex);
    std::erase_if(registry.aborted, [&](auto& state) {
        const bool done = state.use_count() == 1 && state->is_idle();
        if (done) unused.push_back(std::move(state));
        return done;
    });
}

std::shared_ptr<CommunicatorState> make_state(ncclComm_t comm) {
    release_aborted();
    Registry& registry = communicators();
    const std::unique_lock lock(registry.mutex);
    const auto found = registry.states.find(comm);
    if (found != registry.states.end()) return found->second;
    auto fresh = std::make_shared<CommunicatorState>(comm, registry.created + 1);
    ++registry.created;
    return registry.states.emplace(comm, std::move(fresh)).first->second;
}

/// Removes the state; with `expected`, only if it is this one.
std::shared_ptr<CommunicatorState> remove_from_registry(ncclComm_t comm, const CommunicatorState* expected = nullptr) {
    Registry& registry = communicators();
    const std::unique_lock lock(registry.mutex);
    const auto found = registry.states.find(comm);
    if (found == registry.states.end()) return nullptr;
    if (expected != nullptr && found->second.get() != expected) return nullptr;
    std::shared_ptr<CommunicatorState> state = std::move(found->second);
    registry.states.erase(found);
    registry.generation.fetch_add(1, std::memory_order_release);
    return state;
}

}  // namespace

std::shared_ptr<CommunicatorState> state_of(ncclComm_t comm) {
    struct CachedState {
        ncclComm_t comm = nullptr;
        std::uint64_t generation = 0;
        std::weak_ptr<CommunicatorState> state;
    };
    static thread_local CachedState cached;
    const std::uint64_t generation = communicators().generation.load(std::memory_order_acquire);
    if (cached.comm == comm && cached.generation == generation)
        if (std::shared_ptr<CommunicatorState> state = cached.state.lock()) return state;
    std::shared_ptr<CommunicatorState> state = find_state(comm);
    if (!state) state = make_state(comm);
    if (state->gate().is_closed()) throw UsageError("the communicator was aborted");
    cached = {comm, generation, state};
    return state;
}

void delete_state(ncclComm_t comm) {
    remove_from_registry(comm).reset();
    release_aborted();
}

std::shared_ptr<CommunicatorState> begin_abort(ncclComm_t comm) {
    std::shared_ptr<CommunicatorState> state = find_state(comm);
    if (!state) return nullptr;
    state->gate().close();
    communicators().generation.fetch_add(1, std::memory_order_release);
    return state;
}

void end_abort(ncclComm_t comm, std::shared_ptr<CommunicatorState> state) {
    (void)remove_from_registry(comm, state.get());
    Registry& registry = communicators();
    {
        const std::unique_lock lock(registry.mutex);
        registry.aborted.push_back(std::move(state));
    }
    release_aborted();
}

void forget_aborted(ncclComm_t comm) {
    const std::shared_ptr<CommunicatorState> state = find_state(comm);
    if (state && state->gate().is_closed()) (void)remove_from_registry(comm, state.get());
}

}  // namespace samesum::dropin
