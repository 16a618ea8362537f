// The table of properties: what should agree with what, whether that is true, and how cases are drawn.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/backend.hpp"
#include "fuzz/case.hpp"
#include "fuzz/generators.hpp"
#include "model/support/ledger.hpp"

namespace samesum::fuzz {

/// "The two sides of each of these cases make the same bits." Named like its claim.
struct Property {
    std::string name;
    std::string sentence;
    std::string scope;
    Verdict expected = Verdict::upheld;  ///< refuted: the claim is false, and the campaign must show it
    bool headline = false;               ///< is in the ledger of `samesum verify`
    bool of_orders = false;              ///< vacuous unless the data can reveal another order
    int min_ranks = 1, max_ranks = 16;
    bool shares_side = false;       ///< may several cases share side a?
    std::vector<Scheme> schemes{};  ///< that it draws from; empty: it makes no calls
    std::function<Case(Draw&)> draw{};
    /// Why a case is not of this property; empty when it is. Shrunk and replayed cases must be of the property.
    std::function<std::string(const Case&)> objection{};
};

[[nodiscard]] std::span<const Property> properties();
/// Throws UsageError for an unknown name.
[[nodiscard]] const Property& property_named(std::string_view name);
/// Why the case is not valid or not of the property; empty when it is both.
[[nodiscard]] std::string objection(const Property& property, const Case& c);

/// Can it draw cases within the limits, apart from `setup`?
[[nodiscard]] bool fits(const Property& property, const Limits& limits);
/// Throws Unavailable.
[[nodiscard]] Case draw_case(const Property& property, Draw draw);
/// Cases of a property; their shrinks are cases of it, too.
[[nodiscard]] rc::Gen<Case> cases(const Property& property, const Limits& limits = {});
/// A given case with its shrinks.
[[nodiscard]] rc::Shrinkable<Case> shrinkable(const Property& property, Case c);

}  // namespace samesum::fuzz
