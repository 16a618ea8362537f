// Replaces ranks/gpu_worker.cpp and versions.cpp in builds without CUDA and NCCL.
// SPDX-License-Identifier: Apache-2.0
#include "impl/commands/commands.hpp"
#include "impl/ranks/gpu_worker.hpp"

namespace samesum::gpu {

WorkerFactory gpu_workers() {
    return [](const RankContext&) -> std::unique_ptr<Worker> {
        throw Inconclusive("samesum was built without CUDA and NCCL");
    };
}

std::vector<std::pair<std::string, std::string>> versions() { return {{"CUDA, NCCL", "not built in"}}; }

}  // namespace samesum::gpu
