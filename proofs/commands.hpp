// The commands that samesum-proofs answers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "model/support/error.hpp"

namespace samesum {

Exit prove_command(std::span<const std::string> arguments);
Exit verify_command(std::span<const std::string> arguments);

}  // namespace samesum
