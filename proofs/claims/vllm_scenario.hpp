// The vLLM scenario that motivates samesum, on the model: 4 ranks, hidden 2048, bfloat16, decode and prefill.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "proofs/engine/obligation.hpp"

namespace samesum {

/// One token's seeded partials, combined with the token in every place: which schemes keep its bits?
[[nodiscard]] std::vector<LedgerJob> scenario_jobs(std::uint64_t seed);

}  // namespace samesum
