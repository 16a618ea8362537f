// Environment settings as people keep them, and what the NCCL_* ones among them mean for the model.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "model/nccl.hpp"

namespace samesum {

using Environment = std::map<std::string, std::string>;

/// KEY=VALUE lines (output of `env`, `export`, `set`, docker -e, mpirun -x, python os.environ[...] = ..., quotes,
/// comments) or one JSON object of strings and numbers. The last of several values counts. `file` is for messages.
/// Throws UsageError naming the line that is none of these.
[[nodiscard]] Environment parse_environment(std::string_view text, const std::string& file);
/// The environment of this process.
[[nodiscard]] Environment process_environment();

/// Sets what acts on the order (NCCL_ALGO, NCCL_PROTO, channel limits, threads, buffer sizes, NVLS, PAT, symmetric
/// memory, net overhead); other settings are left alone. A value that NCCL would refuse or read as something else
/// throws UsageError naming key, value and what would be right; thread counts are clamped as NCCL does.
void apply_environment(const Environment& environment, Settings& settings);

/// NCCL_NTHREADS and NCCL_LL128_NTHREADS (2.28.9 graph/tuning.cc, getNthreads): not a multiple of 32, or too many: the
/// most; too few: the least; zero or less: the default.
[[nodiscard]] int clamp_threads(int wanted, int least, int most, int otherwise);

/// Strict where NCCL is (strcasecmp of whole words, one function before each ':', only the first list may lack one).
/// Throws UsageError: NCCL fails the communicator on such a value.
void check_list_syntax(std::string_view key, std::string_view value);

}  // namespace samesum
