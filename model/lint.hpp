// What an environment's settings do for the order of sums: pinned, acting, inert, rejected, missing, contradictory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/environment.hpp"
#include "model/invariance.hpp"
#include "model/nccl.hpp"

namespace samesum {

struct LintRow {
    enum class Effect : std::uint8_t { pins, acts, inert, rejected, contradictory, missing };
    Effect effect = Effect::inert;
    std::string key, value;
    std::string what;  ///< what it does for the order here
};
[[nodiscard]] std::string_view name(LintRow::Effect effect);

/// Does a collective have an invariance under the settings, and why (not)?
struct CollectiveAnswer {
    enum class Verdict : std::uint8_t { yes, no, unknown, fails };
    Collective collective{};
    Invariance invariance{};
    Verdict verdict = Verdict::unknown;
    std::string why;
};

struct Recipe {
    Invariance invariance{};
    Collective collective{};
    std::vector<std::pair<std::string, std::string>> settings;
    std::string cost;
    bool confirmed = false;  ///< the model, asked with these settings, says yes
};

struct LintReport {
    std::vector<LintRow> rows;
    std::vector<std::string> blocks;  ///< known blocks found in the environment, with a judgement
    std::vector<CollectiveAnswer> answers;
    std::vector<Recipe> recipes;
};

/// Where the environment is to act.
struct LintScope {
    NcclVersion version{};
    int ranks = 8;
    int nodes = 1;
};

[[nodiscard]] LintReport lint(const Environment& environment, const LintScope& scope);

}  // namespace samesum
