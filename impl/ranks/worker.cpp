// Offsets are checked against the shared memory before they are used.
// SPDX-License-Identifier: Apache-2.0
#include "impl/ranks/worker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "model/support/error.hpp"

namespace samesum::gpu {

RankContext::RankContext(int rank, int ranks, std::span<std::byte> memory, std::span<char> current_call, int log,
                         std::vector<Range>& results)
    : rank_(rank), ranks_(ranks), memory_(memory), current_call_(current_call), log_(log), results_(&results) {}

std::span<const std::byte> RankContext::input(std::uint64_t offset, std::uint64_t bytes) const {
    ensure(bytes <= memory_.size() && offset <= memory_.size() - bytes, "the shared memory holds the data");
    return memory_.subspan(offset, bytes);
}

std::span<std::byte> RankContext::result(std::uint64_t offset, std::uint64_t bytes) const {
    (void)input(offset, bytes);
    if (bytes > 0) results_->push_back({offset, bytes});
    return memory_.subspan(offset, bytes);
}

std::string RankContext::log_file() const { return fmt::format("/proc/self/fd/{}", log_); }

void RankContext::set_current_call(std::string_view call) const {
    const std::size_t length = std::min(call.size(), current_call_.size() - 1);
    std::memcpy(current_call_.data(), call.data(), length);
    current_call_[length] = '\0';
}

}  // namespace samesum::gpu
