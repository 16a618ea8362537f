// The ledger: the claims of samesum, how each was decided, and the verdict.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/support/error.hpp"

namespace samesum {

/// The outcome of a claim. An error has no verdict.
enum class Verdict : std::uint8_t { upheld, refuted, inconclusive };
[[nodiscard]] std::string_view name(Verdict verdict);
[[nodiscard]] Verdict parse_verdict(std::string_view word);

/// One line of the ledger. Obligations, properties and README sentences share the claim's name.
struct Evidence {
    std::string claim;     ///< "fixed_root_is_routing_invariant"
    std::string sentence;  ///< the claim in one plain sentence
    std::string scope;     ///< where it was decided: "bfloat16", "4 ranks, hidden 2048", "all world sizes"
    Verdict expected = Verdict::upheld;
    Verdict verdict = Verdict::inconclusive;
    std::string decided_by;  ///< "proved", "exhausted 65536", "4000 cases on the model", "predicted"
    std::string detail;      ///< assumptions, time, solver, or why it is inconclusive
    std::string witness;     ///< text, several lines; only where refuted
    std::string replay;      ///< the command that reproduces the refutation
    double seconds = 0;

    [[nodiscard]] bool as_claimed() const { return verdict == expected; }
};

void to_json(nlohmann::ordered_json& json, const Evidence& evidence);
/// Throws UsageError naming the field that is missing or wrong.
[[nodiscard]] Evidence evidence_from_json(const nlohmann::ordered_json& json);

/// 1 if a verdict differs from the claim, else 3 if a claim is undecided or the ledger is empty, else 0.
[[nodiscard]] Exit exit_code(std::span<const Evidence> ledger);

/// The ledger as a table with aligned columns, witnesses below it, then `notes` if any, and a last line with the count.
[[nodiscard]] std::string format_ledger(std::span<const Evidence> ledger, bool colour, std::string_view notes = {});

}  // namespace samesum
