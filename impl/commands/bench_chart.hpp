// The picture of samesum bench: time against size.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "impl/commands/bench_results.hpp"

namespace samesum::gpu {

/// An SVG picture: one line for each scheme, a dashed one for each limit, both axes logarithmic.
[[nodiscard]] std::string chart(const BenchResults& results);

}  // namespace samesum::gpu
