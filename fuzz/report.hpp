// The reports of a campaign: JSON, JUnit, bundles of findings, and tables of what was tried.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "fuzz/campaign.hpp"
#include "fuzz/fault_search.hpp"
#include "model/support/ledger.hpp"

namespace samesum::fuzz {

/// Seed, commit, backend and versions: what is needed to repeat a run.
struct RunInfo {
    std::uint64_t seed = 1;
    std::string commit, backend;
    std::string backend_note;  ///< why it is not nccl; empty when nothing is to say
    std::string versions;
};
[[nodiscard]] std::string commit();
[[nodiscard]] std::string versions();

/// One digest of a whole campaign.
[[nodiscard]] std::uint64_t digest_of(std::span<const Tally> tallies);

[[nodiscard]] nlohmann::ordered_json json_of(const RunInfo& head);
[[nodiscard]] nlohmann::ordered_json json_of(std::span<const FaultSearch> searches);
[[nodiscard]] nlohmann::ordered_json json_of(const RunInfo& head, std::span<const Tally> tallies,
                                             std::span<const FaultSearch> searches, std::span<const Evidence> evidence);
/// One testcase for each line of evidence; a failure if it is not as claimed.
[[nodiscard]] std::string junit_of(const RunInfo& head, std::span<const Evidence> evidence);
/// A finding that is not as claimed, as a file that can be replayed.
[[nodiscard]] std::string finding_file(const RunInfo& head, const Tally& tally);
/// "fixed_root_is_routing_invariant-1f3870be", the same for the same minimal case.
[[nodiscard]] std::string finding_name(const Tally& tally);
/// Writes a folder for each such finding, to attach to a bug report: finding.txt, replay.txt, environment.txt,
/// campaign.json. Returns their names. Throws UsageError when they cannot be written.
std::vector<std::string> write_bundles(const std::string& folder, const RunInfo& head, std::span<const Tally> tallies,
                                       const nlohmann::ordered_json& campaign);
/// Labels of classes() with the share of cases that had them.
[[nodiscard]] std::string histogram_of(std::span<const Tally> tallies);
/// The combinations of scheme, algorithm and protocol that were reached, and their numbers of channels.
[[nodiscard]] std::string coverage_of(std::span<const Tally> tallies);

}  // namespace samesum::fuzz
