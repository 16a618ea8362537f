// Environment variables from files: shell scripts, env files, container manifests, JSON.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "model/support/environment.hpp"

namespace samesum {

/// KEY=VALUE lines (output of `env`, `export`, `set`, docker -e, mpirun -x, python os.environ[...] = ..., quotes,
/// comments) or one JSON object of strings and numbers. The last of several values counts. `file` is for messages.
/// Throws UsageError naming a line that is none of these.
[[nodiscard]] Environment parse_environment(std::string_view text, const std::string& file);
/// The environment of this process.
[[nodiscard]] Environment process_environment();

}  // namespace samesum
