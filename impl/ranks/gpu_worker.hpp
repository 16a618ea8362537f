// What one rank's process does on its GPU: the commands that LiveRanks sends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "impl/ranks/worker.hpp"

namespace samesum::gpu {

/// Workers that answer the commands of LiveRanks. In builds without CUDA they throw Inconclusive.
[[nodiscard]] WorkerFactory gpu_workers();

}  // namespace samesum::gpu
