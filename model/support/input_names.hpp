// How messages name what a user can give: by flags of a command line, or by keywords of a Python function.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/support/error.hpp"

namespace samesum {

enum class InputStyle : std::uint8_t { flags, keywords };

/// Sets the style of all messages of this process; flags unless set. Once, at the start.
void set_input_style(InputStyle style);

/// The input that the command line calls --FLAG: "--ranks-per-node" or "ranks_per_node", "--algo" or "algorithm".
[[nodiscard]] std::string input_name(std::string_view flag);

/// "--ranks is missing; see --help", or "ranks is missing". `instead` names alternatives: " (or --log)".
[[nodiscard]] UsageError missing_input(std::string_view flag, std::string_view instead = {});

}  // namespace samesum
