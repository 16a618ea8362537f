// Device memory that replaced calls need, and when it may be used again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace samesum::dropin {

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

/// An event that orders work and takes no time stamp.
class OrderEvent {
public:
    OrderEvent();
    ~OrderEvent();
    OrderEvent(const OrderEvent&) = delete;
    OrderEvent& operator=(const OrderEvent&) = delete;

    [[nodiscard]] cudaEvent_t get() const { return event_; }
    void record(cudaStream_t stream) const;
    /// Work put on `stream` from now on waits for the recorded point.
    void hold(cudaStream_t stream) const;
    /// True when the work before the recorded point has ended. Never waits.
    [[nodiscard]] bool is_done() const;

private:
    cudaEvent_t event_ = nullptr;
};

struct Block {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
};

/// Blocks of one device that no work uses any more, for the next Scratch. Memory of an aborted communicator comes here
/// and is not freed, since cudaFree waits for every kernel of the device: also for one that only the abort of another
/// communicator would end.
class BlockPool {
public:
    /// The smallest block that is large enough.
    [[nodiscard]] std::optional<Block> take(std::size_t bytes);
    void give(Block block);
    void free_all();

private:
    std::mutex mutex_;
    std::vector<Block> blocks_;
};
[[nodiscard]] BlockPool& pool_of(int device);

/// Device memory that grows. Blocks that became too small are kept: a captured graph may still write to them.
class Scratch {
public:
    /// At least `bytes` bytes of the current device; the block of the last call if it is large enough. Null for 0.
    [[nodiscard]] std::byte* reserve(std::size_t bytes, BlockPool& pool);
    void give_back(BlockPool& pool);
    /// Waits for the device.
    void free();

private:
    std::vector<Block> blocks_;
};

/// The scratch memory of one capture, or of all calls outside captures. Streams may run at the same time, so each has
/// its own.
class ScratchSet {
public:
    enum class Use : std::uint8_t { workspace, packing };

    ScratchSet(BlockPool& pool, bool captured) : pool_(pool), captured_(captured) {}
    [[nodiscard]] std::byte* reserve(Use use, std::size_t bytes, cudaStream_t stream);
    /// After the work that uses what was reserved: records the point on each stream at which the memory is free again.
    void mark_end_of_use() noexcept;
    /// True when all marked points are passed.
    [[nodiscard]] bool is_idle() const;
    void give_back();
    void free();

private:
    struct StreamScratch {
        Scratch workspace, packing;
        cudaStream_t stream = nullptr;
        std::unique_ptr<OrderEvent> end_of_use;
        bool in_use = false;
    };
    [[nodiscard]] unsigned long long key_of(cudaStream_t stream) const;

    BlockPool& pool_;
    bool captured_;
    /// By the streams' ids: a handle may be another stream's later, and cudaStreamPerThread is a stream of each thread.
    std::map<unsigned long long, StreamScratch> streams_;
};

/// True once the graph that is being captured on a stream, and all that was made of it, are destroyed and no longer
/// run. Throws CudaError.
[[nodiscard]] std::shared_ptr<const std::atomic<bool>> watch_captured_graph(cudaStream_t stream);

}  // namespace samesum::dropin
