// The versions of CUDA and NCCL; no_gpu.cpp has the answer of builds without them.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "impl/commands/commands.hpp"
#include "impl/device/cuda.hpp"
#include "impl/device/nccl.hpp"

namespace samesum::gpu {

std::vector<std::pair<std::string, std::string>> versions() {
    return {{"CUDA", cuda_runtime_version()},
            {"NCCL", fmt::format("{} (header), {} (library found)", str(nccl_header_version()), str(nccl_version()))}};
}

}  // namespace samesum::gpu
