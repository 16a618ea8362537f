// Blocks are handed on between communicators and captures; only the end of a communicator frees them.
// SPDX-License-Identifier: Apache-2.0
#include "impl/dropin/scratch.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <utility>

#include "impl/device/cuda.hpp"

namespace samesum::dropin {

DeviceGuard::DeviceGuard(int device) {
    int now = -1;
    if (cudaGetDevice(&now) != cudaSuccess || now == device || device < 0) return;
    if (cudaSetDevice(device) == cudaSuccess) before_ = now;
}

DeviceGuard::~DeviceGuard() {
    if (before_ >= 0) cudaSetDevice(before_);
}

OrderEvent::OrderEvent() {
    gpu::check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

OrderEvent::~OrderEvent() { cudaEventDestroy(event_); }

void OrderEvent::record(cudaStream_t stream) const { gpu::check(cudaEventRecord(event_, stream), "cudaEventRecord"); }

void OrderEvent::hold(cudaStream_t stream) const {
    gpu::check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
}

bool OrderEvent::is_done() const {
    const RelaxedCaptureGuard relaxed;
    const cudaError_t state = cudaEventQuery(event_);
    if (state != cudaSuccess) (void)cudaGetLastError();
    return state == cudaSuccess;
}

std::optional<Block> BlockPool::take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto found = blocks_.end();
    for (auto at = blocks_.begin(); at != blocks_.end(); ++at)
        if (at->bytes >= bytes && (found == blocks_.end() || at->bytes < found->bytes)) found = at;
    if (found == blocks_.end()) return std::nullopt;
    const Block block = *found;
    blocks_.erase(found);
    return block;
}

void BlockPool::give(Block block) {
    const std::lock_guard lock(mutex_);
    blocks_.push_back(block);
}

void BlockPool::free_all() {
    std::vector<Block> blocks;
    {
        const std::lock_guard lock(mutex_);
        blocks = std::exchange(blocks_, {});
    }
    const RelaxedCaptureGuard relaxed;
    for (const Block& block : blocks) cudaFree(block.data);
}

BlockPool& pool_of(int device) {
    // Never destroyed: threads may outlive the end of main.
    static auto& pools = *new std::map<int, BlockPool>;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    return pools[device];
}

std::byte* Scratch::reserve(std::size_t bytes, BlockPool& pool) {
    if (bytes == 0) return nullptr;
    if (!blocks_.empty() && blocks_.back().bytes >= bytes) return blocks_.back().data;
    // At least twice the last block: all kept blocks together then take no more than the newest one.
    const std::size_t fresh = std::max(bytes, blocks_.empty() ? 0 : 2 * blocks_.back().bytes);
    if (const std::optional<Block> unused = pool.take(fresh)) {
        blocks_.push_back(*unused);
        return blocks_.back().data;
    }
    const RelaxedCaptureGuard relaxed;
    void* data = nullptr;
    gpu::check(cudaMalloc(&data, fresh), "cudaMalloc");
    blocks_.push_back({static_cast<std::byte*>(data), fresh});
    return blocks_.back().data;
}

void Scratch::give_back(BlockPool& pool) {
    for (const Block& block : std::exchange(blocks_, {})) pool.give(block);
}

void Scratch::free() {
    const RelaxedCaptureGuard relaxed;
    for (const Block& block : std::exchange(blocks_, {})) cudaFree(block.data);
}

unsigned long long ScratchSet::key_of(cudaStream_t stream) const {
    unsigned long long id = 0;
    if (!captured_) {
        gpu::check(cudaStreamGetId(stream, &id), "cudaStreamGetId");
        return id;
    }
    // CUDA gives no id of a stream that is being captured, but such a stream lives until the capture ends.
    static thread_local const char own = 0;
    const void* const address = stream == cudaStreamPerThread ? static_cast<const void*>(&own) : stream;
    return reinterpret_cast<std::uintptr_t>(address);
}

std::byte* ScratchSet::reserve(Use use, std::size_t bytes, cudaStream_t stream) {
    if (bytes == 0) return nullptr;
    StreamScratch& scratch = streams_[key_of(stream)];
    scratch.stream = stream;
    scratch.in_use = true;
    return (use == Use::packing ? scratch.packing : scratch.workspace).reserve(bytes, pool_);
}

void ScratchSet::mark_end_of_use() noexcept {
    for (auto& [id, scratch] : streams_) {
        if (!scratch.in_use) continue;
        try {
            if (!scratch.end_of_use) scratch.end_of_use = std::make_unique<OrderEvent>();
            scratch.end_of_use->record(scratch.stream);
            scratch.in_use = false;
        } catch (const std::exception&) {
            // The memory then stays in use.
            (void)cudaGetLastError();
        }
    }
}

bool ScratchSet::is_idle() const {
    return std::all_of(streams_.begin(), streams_.end(), [](const auto& each) {
        return !each.second.in_use && (!each.second.end_of_use || each.second.end_of_use->is_done());
    });
}

void ScratchSet::give_back() {
    for (auto& [id, scratch] : streams_) {
        scratch.workspace.give_back(pool_);
        scratch.packing.give_back(pool_);
    }
    streams_.clear();
}

void ScratchSet::free() {
    for (auto& [id, scratch] : streams_) {
        scratch.workspace.free();
        scratch.packing.free();
    }
    streams_.clear();
}

std::shared_ptr<const std::atomic<bool>> watch_captured_graph(cudaStream_t stream) {
    using Flag = std::shared_ptr<std::atomic<bool>>;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long capture = 0;
    cudaGraph_t graph = nullptr;
    gpu::check(cudaStreamGetCaptureInfo(stream, &status, &capture, &graph), "cudaStreamGetCaptureInfo");
    auto gone = std::make_shared<std::atomic<bool>>(false);
    auto held = std::make_unique<Flag>(gone);
    // The destructor runs on a thread of CUDA's, where no call of CUDA is allowed.
    const auto set_flag = [](void* flag) {
        const std::unique_ptr<Flag> owned(static_cast<Flag*>(flag));
        (*owned)->store(true);
    };
    cudaUserObject_t object{};
    gpu::check(cudaUserObjectCreate(&object, held.get(), set_flag, 1, cudaUserObjectNoDestructorSync),
               "cudaUserObjectCreate");
    (void)held.release();
    const cudaError_t retained = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
    if (retained != cudaSuccess) (void)cudaUserObjectRelease(object, 1);
    gpu::check(retained, "cudaGraphRetainUserObject");
    return gone;
}

}  // namespace samesum::dropin
