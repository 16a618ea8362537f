// Orders direct_ordered's kernels of one process on one device, and ends those of an aborted communicator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "impl/device/cuda.hpp"
#include "impl/dropin/scratch.hpp"

namespace samesum::dropin {

/// direct_ordered's kernels run one after the other on a device, in the order in which this process launched them or
/// the graphs that hold them. A communicator's receive slots serve one kernel at a time, and a kernel may take all
/// multiprocessors: two that start in different orders on two GPUs would wait for each other. NCCL asks programs for
/// one order of calls on all ranks, so the order is the same everywhere.
class DirectOrder {
public:
    /// Runs `launch`, which puts a kernel on `stream`. `last`: the communicator's event. `last_in_capture`: of the
    /// capture that the stream is in, else null.
    void launch(cudaStream_t stream, std::shared_ptr<OrderEvent>& last, std::optional<OrderEvent>* last_in_capture,
                const std::function<void()>& launch);

private:
    void launch_now(cudaStream_t stream, std::shared_ptr<OrderEvent>& last, const std::function<void()>& launch);
    void launch_in_capture(cudaStream_t stream, std::optional<OrderEvent>& last_in_capture,
                           const std::function<void()>& launch);

    std::mutex mutex_;
    std::shared_ptr<OrderEvent> last_;  ///< end of the last kernel outside graphs
    /// From the first capture on: recorded and awaited by every call and, by nodes of theirs, by graphs. Graphs keep
    /// its handle, so it lives until the process ends.
    std::unique_ptr<OrderEvent> across_graphs_;
};
[[nodiscard]] DirectOrder& direct_order_of(int device);

/// Ends direct_ordered's kernels of one communicator, those that wait for a peer and those to come.
class KernelStop {
public:
    /// `expired`: the word at which the kernels look while they wait.
    KernelStop(int device, std::uint32_t* expired) : device_(device), expired_(expired), stream_(device) {}
    /// Waits for no kernel. Errors of CUDA are ignored.
    void stop() const noexcept;

private:
    int device_;
    std::uint32_t* expired_;
    gpu::Stream stream_;
};

}  // namespace samesum::dropin
