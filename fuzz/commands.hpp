// The command that samesum-fuzz answers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "model/support/error.hpp"

namespace samesum {

Exit fuzz_command(std::span<const std::string> arguments);

}  // namespace samesum
