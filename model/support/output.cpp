// The file is written before the text is printed: a path that cannot be written is the first thing that a user sees.
// SPDX-License-Identifier: Apache-2.0
#include "model/support/output.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/support/files.hpp"

namespace samesum {

bool json_alone(const Options& options) { return options.find<std::string>("json") == "-"; }

Exit emit(const Options& options, std::string_view text, const nlohmann::ordered_json& json, Exit exit) {
    if (const auto file = options.find<std::string>("json")) write_json(*file, json);
    if (!json_alone(options)) fmt::print("{}", text);
    return exit;
}

}  // namespace samesum
