// What each variable of NCCL and of the frameworks does for the order of sums.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/analysis/lint.hpp"
#include "model/nccl/call.hpp"
#include "model/nccl/settings.hpp"
#include "model/support/environment.hpp"

namespace samesum {

/// An algorithm with a protocol that the settings leave to NCCL's choice.
struct Combination {
    Algorithm algorithm;
    Protocol protocol;
};
/// The algorithms, each once: "TREE, RING".
[[nodiscard]] std::string algorithms_listed(const std::vector<Combination>& open);

/// An environment and what it leaves open: what a setting's effect can depend on.
struct LintContext {
    Environment environment;  ///< with what the framework sets
    Environment accepted;     ///< the part whose values NCCL takes
    Settings settings;        ///< of the accepted part
    LintScope scope;
    int channels = 0;  ///< of the communicator
    std::map<Collective, std::vector<Combination>> open;
};

/// The value of a variable; empty where it is not set.
[[nodiscard]] std::string value_in(const Environment& environment, std::string_view key);

/// Is it a setting of NCCL or one that concerns its collectives?
[[nodiscard]] bool concerns_sums(std::string_view key);

/// The effect of a setting that NCCL accepts.
[[nodiscard]] LintRow row_of_setting(const LintContext& context, const std::string& key, const std::string& value);

/// Collectives that the settings leave open or without any algorithm, and settings that work against each other.
[[nodiscard]] std::vector<LintRow> rows_of_gaps(const LintContext& context);

/// The NCCL settings that vLLM makes under VLLM_BATCH_INVARIANT (vLLM batch_invariant.py,
/// override_envs_for_invariance).
[[nodiscard]] const Environment& vllm_block();

/// Blocks of settings that projects are known to use: "PyTorch's deterministic mode (^NVLS)".
[[nodiscard]] std::vector<std::string_view> known_blocks(const Environment& environment);

}  // namespace samesum
