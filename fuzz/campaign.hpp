// Campaigns: properties x seed x budget, and what came out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/backend.hpp"
#include "fuzz/coverage.hpp"
#include "fuzz/finding.hpp"
#include "fuzz/properties.hpp"

namespace samesum::fuzz {

/// The results of one property's cases.
struct Tally {
    const Property* property = nullptr;
    std::uint64_t cases = 0;
    std::uint64_t differing = 0;        ///< cases whose sides differ
    std::uint64_t order_sensitive = 0;  ///< cases whose data could reveal another order
    std::uint64_t digest = 0;           ///< of all bits made; the same for the same seed on every machine
    std::map<std::string_view, std::uint64_t> classes;
    std::map<Combination, std::uint64_t> combinations;
    std::optional<Finding> finding;  ///< the first one
    std::uint64_t refused = 0;       ///< cases that NCCL refused
    std::uint64_t unavailable = 0;   ///< cases that are not possible on the open ranks
    std::string why_undecided;       ///< why the backend failed; then the tally is inconclusive
    double seconds = 0;

    /// Could less than a tenth of the data have revealed another order?
    [[nodiscard]] bool vacuous() const;
};

struct CampaignOptions {
    std::vector<const Property*> properties;
    std::optional<std::uint64_t> cases;  ///< of each property, over all shards
    std::optional<double> seconds;       ///< of the whole campaign
    std::uint64_t seed = 1;
    std::uint64_t shard = 0, shards = 1;  ///< this machine tries the cases whose number is `shard` modulo `shards`
    int jobs = 1;
    Limits limits{};
    bool guided = true;                                 ///< prefer combinations reached least, in some of the cases
    std::function<std::shared_ptr<Backend>()> backend;  ///< one for each job; real ranks support one job only
    std::function<void(std::span<const Tally>)> progress{};
};
[[nodiscard]] std::vector<Tally> run_campaign(const CampaignOptions& options);

/// Case `index` of a property under a seed. Early ones are small.
[[nodiscard]] rc::Shrinkable<Case> case_of(const Property& property, std::uint64_t seed, std::uint64_t index,
                                           const Limits& limits = {});

/// The same for open ranks: several cases in a row have side a in common. `attempt`: another case in its place.
/// Throws Unavailable.
[[nodiscard]] Case case_on_ranks(const Property& property, std::uint64_t seed, std::uint64_t index,
                                 const Limits& limits, std::uint64_t attempt = 0);

/// Cases that each setup of ranks gets before the next one is opened.
inline constexpr std::uint64_t round_cases = 64;
/// Ranks that died or hung this often in a row are given up; each time costs a minute.
inline constexpr int max_failures_in_a_row = 3;

[[nodiscard]] Evidence evidence_of(const Tally& tally, std::string_view backend);

}  // namespace samesum::fuzz
