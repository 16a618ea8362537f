// NCCL's tuning: the algorithm, protocol and number of channels that its cost model chooses.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/nccl/communicator.hpp"
#include "model/nccl/partition.hpp"

namespace samesum {

/// Modelled time in us of `bytes` (count * element size, times ranks for reduce_scatter), or std::nullopt
/// where the combination is not available. NCCL 2.28.9 graph/tuning.cc, ncclTopoTuneModel and ncclTopoGetAlgoTime.
[[nodiscard]] std::optional<double> modelled_time(const Communicator& comm, const Call& call, Algorithm algorithm,
                                                  Protocol protocol, std::uint64_t bytes, int pipelined_calls = 1);

/// The maximal number of channels for a call of `bytes` (NCCL 2.28.9 enqueue.cc, topoGetAlgoInfo).
[[nodiscard]] int max_channels(const Communicator& comm, const Call& call, Algorithm algorithm, Protocol protocol,
                               std::uint64_t bytes);

/// The cheapest allowed combination; ties go to the earlier one in NCCL's numbering.
/// Without `comm.machine` an open choice throws UsageError that names the missing input.
[[nodiscard]] Choice choose(const Communicator& comm, const Call& call, Forced forced = {}, int pipelined_calls = 1);

/// The calls of one ncclGroupStart/End in NCCL's scheduling order, each with its choice: calls of similar size are
/// aggregated and share one choice (NCCL 2.28.9 enqueue.cc, ncclPrepareTasks). A lone call is a group of one.
struct GroupedTask {
    Task task;
    std::size_t index = 0;  ///< place in program order
};
[[nodiscard]] std::vector<GroupedTask> prepare_group(const Communicator& comm, std::span<const Call> calls,
                                                     Forced forced = {});

}  // namespace samesum
