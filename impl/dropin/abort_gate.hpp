// Says that a communicator's abort has begun, so that no further call is made on it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <atomic>
#include <mutex>
#include <optional>

namespace samesum::dropin {

/// ncclCommAbort frees the communicator while another thread may be inside a call that this library replaced. That
/// thread looks here before it makes the next of its calls.
class AbortGate {
public:
    /// Waits for a query under way and for nothing else.
    void close() {
        const std::lock_guard lock(mutex_);
        closed_.store(true);
    }
    [[nodiscard]] bool is_closed() const { return closed_.load(); }
    /// Runs `query`, a call on the communicator that does not block. Nothing once the gate is closed.
    template <class Query>
    [[nodiscard]] std::optional<ncclResult_t> while_open(const Query& query) {
        const std::lock_guard lock(mutex_);
        if (closed_.load()) return std::nullopt;
        return query();
    }

private:
    std::mutex mutex_;
    std::atomic<bool> closed_{false};
};

}  // namespace samesum::dropin
