// What an environment's settings do for the order of sums, and which invariances hold under them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/combine/invariance.hpp"
#include "model/nccl/call.hpp"
#include "model/support/environment.hpp"

namespace samesum {

struct LintRow {
    enum class Effect : std::uint8_t {
        pins,           ///< takes a choice away from NCCL
        acts,           ///< changes the order, or what it may be
        inert,          ///< does nothing for the order here
        rejected,       ///< NCCL does not take the value
        contradictory,  ///< works against another setting
        missing,        ///< is not set, and leaves a collective open
    };
    Effect effect = Effect::inert;
    std::string key, value;
    std::string what;  ///< what it does for the order here
};
[[nodiscard]] std::string_view name(LintRow::Effect effect);

/// Does a collective (ncclSum, buffers outside symmetric windows) have an invariance under the settings, and why (not)?
struct CollectiveAnswer {
    enum class Holds : std::uint8_t {
        yes,
        depends,  ///< yes if all channels have one ring and tree, which an environment does not say
        unknown,  ///< summed in hardware (NVLS, CollNet): not observable
        no,
        fails,  ///< NCCL refuses the call
    };
    Collective collective{};
    Invariance invariance{};
    Holds holds = Holds::unknown;
    std::string why;  ///< the reason, or the smallest counter-example found
};
[[nodiscard]] std::string_view name(CollectiveAnswer::Holds holds);

/// Settings that give a collective an invariance, and their cost.
struct Recipe {
    Invariance invariance{};
    Collective collective{};
    std::vector<std::pair<std::string, std::string>> settings;  ///< empty: none needed, or none achieves it
    std::string cost;
    /// What the model answers with these settings instead of the environment's.
    CollectiveAnswer::Holds confirmed = CollectiveAnswer::Holds::unknown;
};

struct LintReport {
    std::vector<LintRow> rows;
    std::vector<std::string> blocks;  ///< known blocks of settings found in the environment, with what holds under them
    std::vector<CollectiveAnswer> answers;
    std::vector<Recipe> recipes;
};

/// The release and layout that the settings are for.
struct LintScope {
    NcclVersion version{};
    int ranks = 8;
    int ranks_per_node = 8;
};

/// Answers come from the model: every algorithm and protocol that the settings leave open is planned for calls of 1 to
/// 2^24 elements, with equal and with unequal rings, and the orders are compared. Throws UsageError for a scope that
/// is not a layout.
[[nodiscard]] LintReport lint(const Environment& environment, const LintScope& scope);

}  // namespace samesum
