// Do the first cases of a campaign catch every planted fault?
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fuzz/backend.hpp"
#include "fuzz/faults.hpp"
#include "model/support/ledger.hpp"

namespace samesum::fuzz {

/// The result of searching for one planted fault.
struct FaultSearch {
    const Fault* fault = nullptr;
    std::uint64_t cases = 0;  ///< until it was caught, or all if it was not
    bool caught = false;
    std::optional<Case> example;
};
/// Searches for every planted fault with its property. The first cases of a campaign must catch it.
[[nodiscard]] std::vector<FaultSearch> search_faults(std::uint64_t seed, std::uint64_t max_cases);
/// The same for faults_of_ranks(), on real ranks. Throws UsageError in builds without them.
[[nodiscard]] std::vector<FaultSearch> search_faults_of_ranks(Backend& backend, std::uint64_t seed,
                                                              std::uint64_t max_cases);

[[nodiscard]] Evidence evidence_of(std::span<const FaultSearch> searches);

}  // namespace samesum::fuzz
