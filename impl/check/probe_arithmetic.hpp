// The bits of one addition, minimum or maximum as real NCCL makes them, against the model's.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>

#include "impl/ranks/live_ranks.hpp"

namespace samesum::gpu {

/// ncclReduce over 2 ranks, for each format, operation and protocol: all pairs of 8-bit formats, `pairs` edge-heavy
/// ones of the others. Prints a line each; writes JSON when a file is given.
[[nodiscard]] Exit probe_arithmetic(const Hardware& hardware, std::span<const Format> formats, std::uint64_t pairs,
                                    std::uint64_t seed, const std::optional<std::string>& json_file);

}  // namespace samesum::gpu
