// What the claims assume about NCCL, and what checks it on a live machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "model/support/ledger.hpp"
#include "proofs/engine/obligation.hpp"

namespace samesum {

/// A fact about NCCL that claims depend on.
struct NcclAssumption {
    std::string name, sentence;
    std::string probe;                ///< a command that checks it on a live machine
    std::vector<std::string> tested;  ///< globs of the claims on real NCCL that would fail without it
};
[[nodiscard]] const std::vector<NcclAssumption>& nccl_assumptions();

/// The assumptions of these obligations and what checks each. If `ledger` has claims decided on real NCCL: also the
/// results here, and the theorems that therefore apply to this machine's communicator.
[[nodiscard]] std::string assumption_ledger(std::span<const Obligation> obligations, std::span<const Evidence> ledger);

/// The table as JSON.
[[nodiscard]] nlohmann::ordered_json assumptions_as_json();

}  // namespace samesum
