// NCCL's own choice of algorithm, protocol and number of channels: its cost model.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/nccl/communicator.hpp"
#include "model/nccl/partition.hpp"

namespace samesum {

/// Modelled time in us of `bytes` (count * element size, times ranks for reduce_scatter), or nothing where the
/// combination is not available here. NCCL 2.28.9 graph/tuning.cc, ncclTopoTuneModel and ncclTopoGetAlgoTime.
[[nodiscard]] std::optional<double> modelled_time(const Communicator& comm, const Call& call, Algorithm algorithm,
                                                  Protocol protocol, std::uint64_t bytes, int pipelined_calls = 1);

/// The most channels that a call of so many bytes may use (NCCL 2.28.9 enqueue.cc, topoGetAlgoInfo).
[[nodiscard]] int max_channels(const Communicator& comm, const Call& call, Algorithm algorithm, Protocol protocol,
                               std::uint64_t bytes);

/// The cheapest allowed combination; ties go to the earlier one in NCCL's numbering.
/// Without `comm.machine` a choice that is still open throws UsageError naming what has to be given.
[[nodiscard]] Choice choose(const Communicator& comm, const Call& call, Forced forced = {}, int pipelined_calls = 1);

/// The calls of one ncclGroupStart/End in NCCL's scheduling order, each with its choice: calls of like size are
/// aggregated and share one (NCCL 2.28.9 enqueue.cc, ncclPrepareTasks). A lone call is a group of one.
struct GroupedTask {
    Task task;
    std::size_t index = 0;  ///< place in program order
};
[[nodiscard]] std::vector<GroupedTask> prepare_group(const Communicator& comm, std::span<const Call> calls,
                                                     Forced forced = {});

}  // namespace samesum
