// One answer in two forms: text for people, JSON for machines.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "model/support/error.hpp"
#include "model/support/options.hpp"

namespace samesum {

/// Does `--json -` ask for JSON alone on stdout? Commands that print as they go then print nothing.
[[nodiscard]] bool json_alone(const Options& options);

/// Prints `text` and writes `json` to the file that --json names; with `--json -` stdout holds the JSON and nothing
/// else. Returns `exit`, which is the same in every form. Throws UsageError when the file cannot be written.
[[nodiscard]] Exit emit(const Options& options, std::string_view text, const nlohmann::ordered_json& json, Exit exit);

}  // namespace samesum
