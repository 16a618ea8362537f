// What one rank's process does on its GPU when it is told to.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "impl/ranks/rank_group.hpp"

namespace samesum::gpu {

/// Workers that understand the commands of LiveRanks; in builds without CUDA they throw Inconclusive.
[[nodiscard]] WorkerFactory gpu_workers();

}  // namespace samesum::gpu
