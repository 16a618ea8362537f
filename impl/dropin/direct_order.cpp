// One event outside graphs; one more, recorded and awaited by external nodes, from the first capture on.
// SPDX-License-Identifier: Apache-2.0
#include "impl/dropin/direct_order.hpp"

#include <map>
#include <utility>

namespace samesum::dropin {

void DirectOrder::launch(cudaStream_t stream, std::shared_ptr<OrderEvent>& last,
                         std::optional<OrderEvent>* last_in_capture, const std::function<void()>& launch) {
    const std::lock_guard lock(mutex_);
    if (last_in_capture != nullptr)
        launch_in_capture(stream, *last_in_capture, launch);
    else
        launch_now(stream, last, launch);
}

void DirectOrder::launch_now(cudaStream_t stream, std::shared_ptr<OrderEvent>& last,
                             const std::function<void()>& launch) {
    if (last_) last_->hold(stream);
    if (across_graphs_) across_graphs_->hold(stream);
    launch();
    if (!last) last = std::make_shared<OrderEvent>();
    last->record(stream);
    last_ = last;
    if (across_graphs_) across_graphs_->record(stream);
}

/// NCCL orders its kernels in the same way (2.28.9, strongstream.cc, NCCL_GRAPH_MIXING_SUPPORT).
void DirectOrder::launch_in_capture(cudaStream_t stream, std::optional<OrderEvent>& last_in_capture,
                                    const std::function<void()>& launch) {
    if (!across_graphs_) {
        const RelaxedCaptureGuard relaxed;
        auto fresh = std::make_unique<OrderEvent>();
        if (last_) {
            int device = 0;
            gpu::check(cudaGetDevice(&device), "cudaGetDevice");
            const gpu::Stream outside(device);
            last_->hold(outside.get());
            fresh->record(outside.get());
        }
        across_graphs_ = std::move(fresh);
    }
    if (last_in_capture)
        last_in_capture->hold(stream);
    else
        gpu::check(cudaStreamWaitEvent(stream, across_graphs_->get(), cudaEventWaitExternal), "cudaStreamWaitEvent");
    launch();
    gpu::check(cudaEventRecordWithFlags(across_graphs_->get(), stream, cudaEventRecordExternal),
               "cudaEventRecordWithFlags");
    if (!last_in_capture) last_in_capture.emplace();
    last_in_capture->record(stream);
}

DirectOrder& direct_order_of(int device) {
    // Never destroyed: graphs hold its event.
    static auto& orders = *new std::map<int, DirectOrder>;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    return orders[device];
}

void KernelStop::stop() const noexcept {
    const RelaxedCaptureGuard relaxed;
    const DeviceGuard device(device_);
    static constexpr std::uint32_t one = 1;
    if (cudaMemcpyAsync(expired_, &one, sizeof one, cudaMemcpyHostToDevice, stream_.get()) != cudaSuccess)
        (void)cudaGetLastError();
}

}  // namespace samesum::dropin
