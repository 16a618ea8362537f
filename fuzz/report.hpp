// What a campaign leaves behind: the JSON document, JUnit, and the table of what was really tried.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "fuzz/campaign.hpp"
#include "model/support/ledger.hpp"

namespace samesum::fuzz {

/// The head of a run: seed, commit, backend, versions; what it takes to do the same again.
struct Head {
    std::uint64_t seed = 1;
    std::string commit, backend, versions;
};
[[nodiscard]] std::string commit();
[[nodiscard]] std::string versions();

/// One digest of a whole campaign.
[[nodiscard]] std::uint64_t digest_of(std::span<const Tally> tallies);

[[nodiscard]] nlohmann::ordered_json json_of(const Head& head, std::span<const Tally> tallies,
                                             std::span<const FaultSearch> hunts, std::span<const Evidence> evidence);
/// One testcase for each line of evidence, a failure where it did not come out as claimed.
[[nodiscard]] std::string junit_of(const Head& head, std::span<const Evidence> evidence);
/// A finding that did not come out as claimed, as a file that replays it.
[[nodiscard]] std::string finding_file(const Head& head, const Tally& tally);
/// "fixed_root_is_routing_invariant-1f3870be", the same for the same minimal case.
[[nodiscard]] std::string finding_name(const Tally& tally);
/// A folder for each such finding, to attach to a bug report: finding.txt, replay.txt, environment.txt, campaign.json.
/// Returns their names. Throws UsageError when they cannot be written.
std::vector<std::string> write_bundles(const std::string& folder, const Head& head, std::span<const Tally> tallies,
                                       const nlohmann::ordered_json& campaign);
/// Labels of classes() with the share of cases that had them.
[[nodiscard]] std::string histogram_of(std::span<const Tally> tallies);
/// Combinations of scheme, algorithm and protocol that were reached, and on how many channels.
[[nodiscard]] std::string coverage_of(std::span<const Tally> tallies);

}  // namespace samesum::fuzz
