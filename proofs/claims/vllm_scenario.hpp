// The situation that samesum comes from, on the model: 4 ranks, hidden 2048, bfloat16, decode and prefill.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "proofs/engine/obligation.hpp"

namespace samesum {

/// One token's seeded partials, combined wherever the token may lie: which schemes keep its bits?
[[nodiscard]] std::vector<Inquiry> scenario_inquiries(std::uint64_t seed);

}  // namespace samesum
