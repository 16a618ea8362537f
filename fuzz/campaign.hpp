// Campaigns: properties x seed x budget, what came out, and findings reduced to something that a person can read.
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
#include "fuzz/faults.hpp"
#include "fuzz/properties.hpp"

namespace samesum::fuzz {

/// Two sides that ought to agree and do not, as found and as small as it gets.
struct Finding {
    Case original, minimal;
    bool repeats = true;    ///< else the same case made different bits when it was run again, and was not shrunk
    std::string kind;       ///< "order change", "another order", "rounding", "no order makes these bits", "run-to-run"
    std::string text;       ///< for people: both sides, both trees, both patterns
    std::string replay;     ///< one line for a shell
    std::size_t steps = 0;  ///< of shrinking
};

/// What a property's cases came to.
struct Tally {
    const Property* property = nullptr;
    std::uint64_t cases = 0;
    std::uint64_t differing = 0;        ///< cases whose sides differ
    std::uint64_t order_sensitive = 0;  ///< cases whose data could reveal another order
    std::uint64_t digest = 0;           ///< of all bits that were made; the same for the same seed, wherever it runs
    std::map<std::string_view, std::uint64_t> classes;
    std::map<Combination, std::uint64_t> combinations;
    std::optional<Finding> finding;  ///< the first one
    std::uint64_t refused = 0;       ///< cases that NCCL would not run
    std::uint64_t unfit = 0;         ///< cases that the open ranks cannot have
    std::string trouble;             ///< why the backend could not serve; then the tally decides nothing
    double seconds = 0;

    /// Less than a tenth of the data could have shown what the property denies.
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
    bool guided = true;                                 ///< steer some cases to combinations that were reached least
    std::function<std::shared_ptr<Backend>()> backend;  ///< one for each job; real ranks serve one job alone
    std::function<void(std::span<const Tally>)> progress{};
};
[[nodiscard]] std::vector<Tally> run_campaign(const CampaignOptions& options);

/// Case `index` of a property under a seed. Early ones are small.
[[nodiscard]] rc::Shrinkable<Case> case_of(const Property& property, std::uint64_t seed, std::uint64_t index,
                                           const Limits& limits = {});

/// The bits that the two sides made of a case's element.
struct Seen {
    Bits a = 0, b = 0;
    friend bool operator==(const Seen&, const Seen&) = default;
};
/// Runs a differing case again, shrinks it if it repeats what was `seen`, and says what it shows.
[[nodiscard]] Finding investigate(const rc::Shrinkable<Case>& found, Backend& backend, std::optional<Seen> seen = {});
/// The text of a case, whether its sides differ or not.
[[nodiscard]] std::string tell(const Case& c, Backend& backend);

/// How a planted fault fared.
struct FaultSearch {
    const Fault* fault = nullptr;
    std::uint64_t cases = 0;  ///< until it was caught, or in vain
    bool caught = false;
    std::optional<Case> example;
};
/// Hunts every planted fault with its property. The first cases of a campaign must see it.
[[nodiscard]] std::vector<FaultSearch> hunt_faults(std::uint64_t seed, std::uint64_t max_cases);
/// The same for faults_of_ranks(), on real ranks. Throws UsageError in builds that make none.
[[nodiscard]] std::vector<FaultSearch> hunt_faults_of_ranks(Backend& backend, std::uint64_t seed,
                                                            std::uint64_t max_cases);

[[nodiscard]] Evidence evidence_of(const Tally& tally, std::string_view backend);
[[nodiscard]] Evidence evidence_of(std::span<const FaultSearch> hunts);

}  // namespace samesum::fuzz
