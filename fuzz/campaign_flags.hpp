// The flags of samesum fuzz, and what they mean: a backend, limits and a campaign.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "fuzz/campaign.hpp"
#include "fuzz/enumeration.hpp"
#include "model/support/options.hpp"

namespace samesum::fuzz {

/// All flags, with their help. The functions below throw UsageError naming the flag.
[[nodiscard]] Options fuzz_flags();

/// --dtypes, --schemes, --shape and --ranks.
[[nodiscard]] Limits limits_flags(const Options& options);

struct ChosenBackend {
    std::shared_ptr<Backend> backend;
    std::string note;  ///< of --backend auto: why it is not nccl; else empty
};
/// The backend that --backend names. Fills in the limits that a plug-in needs.
[[nodiscard]] ChosenBackend backend_flags(const Options& options, Limits& limits);

/// The campaign with its properties, budget, seed, shard and jobs.
[[nodiscard]] CampaignOptions campaign_flags(const Options& options, const Limits& limits,
                                             const std::shared_ptr<Backend>& backend);
/// --enumerate, or what suits the campaign.
[[nodiscard]] Enumeration enumeration_flag(const Options& options, const CampaignOptions& campaign, bool live);

}  // namespace samesum::fuzz
