// The commands of samesum-impl.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "model/error.hpp"

namespace samesum::gpu {

Exit run_command(std::span<const std::string> arguments);
Exit reveal_command(std::span<const std::string> arguments);

}  // namespace samesum::gpu
