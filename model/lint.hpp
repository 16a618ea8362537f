// What an environment's settings do for the order of sums: pinned, acting, inert, rejected, missing, contradictory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/environment.hpp"
#include "model/nccl.hpp"

namespace samesum {

/// What a user can want of a sum's bits; the words of the README.
enum class Invariance : std::uint8_t { run_to_run, rank_equal, owner, position, count, routing };
inline constexpr std::array all_invariances{Invariance::run_to_run, Invariance::rank_equal, Invariance::owner,
                                            Invariance::position,   Invariance::count,      Invariance::routing};
[[nodiscard]] Invariance parse_invariance(std::string_view word);
[[nodiscard]] std::string_view name(Invariance invariance);

struct LintRow {
    enum class Effect : std::uint8_t { pins, acts, inert, rejected, contradictory, missing };
    Effect effect = Effect::inert;
    std::string key, value;
    std::string what;  ///< what it does for the order here
};
[[nodiscard]] std::string_view name(LintRow::Effect effect);

/// Does a collective have an invariance under the settings, and why (not)?
struct InvarianceAnswer {
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
    std::vector<InvarianceAnswer> answers;
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
