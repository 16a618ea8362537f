// Cases from command lines, files and folders of earlier findings, tried again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fuzz/backend.hpp"
#include "fuzz/campaign.hpp"
#include "fuzz/report.hpp"

namespace samesum::fuzz {

/// What a replayed case came to.
struct Replay {
    const Property* property = nullptr;
    Case at_difference;  ///< the case about its first element that differs, if one does
    bool agree = true;   ///< do the two sides have the same bits?
    [[nodiscard]] bool as_claimed() const { return agree == (property->expected == Verdict::upheld); }
};
/// Throws UsageError for a line that is not a case of its property.
[[nodiscard]] Replay replay(const std::string& line, Backend& backend);

/// The lines of a file that hold a case: those of a finding that begin with "case: ", else all but comments.
[[nodiscard]] std::vector<std::string> case_lines(const std::string& file);

/// Replays what earlier campaigns left in a folder; adds a line of evidence if there was something to replay.
void replay_corpus(const std::string& folder, Backend& backend, std::vector<Evidence>& evidence);
/// Writes the findings that are not as claimed to the folder.
void keep_findings(const std::string& folder, std::span<const Tally> tallies, const RunInfo& run);

}  // namespace samesum::fuzz
