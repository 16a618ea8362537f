// The groups of commands that samesum-model answers, and the parts of `order` that have files of their own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "model/support/error.hpp"

namespace samesum {

Exit order_command(std::span<const std::string> arguments);
Exit sum_command(std::span<const std::string> arguments);
Exit teach_command(std::span<const std::string> arguments);
/// `order lint`: what an environment's settings do for the order.
Exit order_lint(std::span<const std::string> arguments);

}  // namespace samesum
