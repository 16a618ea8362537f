// The commands of samesum-impl.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/support/error.hpp"

namespace samesum::gpu {

Exit run_command(std::span<const std::string> arguments);
Exit reveal_command(std::span<const std::string> arguments);
Exit bench_command(std::span<const std::string> arguments);

/// Names and versions of the GPU software that samesum was built with and that this machine has.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> versions();

}  // namespace samesum::gpu
