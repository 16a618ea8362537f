// The style belongs to the process, so that messages of every room name inputs alike.
// SPDX-License-Identifier: Apache-2.0
#include "model/support/input_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

namespace samesum {
namespace {

std::atomic<InputStyle> style{InputStyle::flags};

}  // namespace

void set_input_style(InputStyle chosen) { style = chosen; }

std::string input_name(std::string_view flag) {
    if (style == InputStyle::flags) return fmt::format("--{}", flag);
    // The flags that are abbreviations.
    using namespace std::string_view_literals;
    constexpr std::array long_names{std::pair{"algo"sv, "algorithm"sv}, std::pair{"proto"sv, "protocol"sv},
                                    std::pair{"env"sv, "environment"sv}};
    for (const auto& [short_name, long_name] : long_names)
        if (flag == short_name) return std::string(long_name);
    std::string name(flag);
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

UsageError missing_input(std::string_view flag, std::string_view instead) {
    return UsageError(
        fmt::format("{} is missing{}{}", input_name(flag), instead, style == InputStyle::flags ? "; see --help" : ""));
}

}  // namespace samesum
