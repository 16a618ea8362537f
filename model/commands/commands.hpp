// The commands of samesum-model: three groups, and the commands of `order` and `sum`, one a file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "model/support/error.hpp"

namespace samesum {

Exit order_command(std::span<const std::string> arguments);
Exit sum_command(std::span<const std::string> arguments);
Exit teach_command(std::span<const std::string> arguments);

Exit order_show(std::span<const std::string> arguments);
Exit order_diff(std::span<const std::string> arguments);
Exit order_invariance(std::span<const std::string> arguments);
Exit order_enumerate(std::span<const std::string> arguments);
Exit order_paths(std::span<const std::string> arguments);
Exit order_lint(std::span<const std::string> arguments);
Exit order_calls(std::span<const std::string> arguments);
Exit order_check(std::span<const std::string> arguments);

Exit sum_eval(std::span<const std::string> arguments);
Exit sum_witness(std::span<const std::string> arguments);
Exit sum_expect(std::span<const std::string> arguments);
Exit sum_reachable(std::span<const std::string> arguments);
Exit sum_mask(std::span<const std::string> arguments);

}  // namespace samesum
