// The elements that each channel carries, and the chunk size.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/nccl/communicator.hpp"

namespace samesum {

/// A call together with what NCCL decided for it.
struct Task {
    Call call;
    Choice choice;
};

/// Elements [begin, begin + count) of a call (for reduce_scatter: of each destination's block) on one channel.
struct ChannelPart {
    int channel = 0;
    std::uint64_t begin = 0;
    std::uint64_t count = 0;

    friend bool operator==(const ChannelPart&, const ChannelPart&) = default;
};

/// NCCL's lo / mid / hi split of the tasks of one kernel plan, in scheduling order; one list for each task.
/// NCCL 2.28.9 enqueue.cc, scheduleCollTasksToPlan; include/device.h, ncclCollCbdPart.
[[nodiscard]] std::vector<std::vector<ChannelPart>> partition(std::span<const Task> tasks, const Communicator& comm);

/// Elements of one chunk of a part (NCCL 2.28.9 enqueue.cc, calcCollChunking).
[[nodiscard]] std::uint64_t chunk_elements(const Task& task, std::uint64_t part_count, const Communicator& comm);

/// Channels of NVLS and NVLSTree on sm_90 (NCCL 2.28.9 graph/tuning.cc, transport/nvls.cc).
inline constexpr int nvls_channels = 16;
[[nodiscard]] bool is_nvls(Algorithm algorithm);

/// Traffic per byte in the split (ncclFuncTrafficPerByte): all-reduce 2, reduce-scatter n, reduce 1.
[[nodiscard]] std::uint64_t traffic_per_byte(Collective collective, int ranks);

}  // namespace samesum
