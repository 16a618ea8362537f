// The table of properties: what ought to agree with what, whether it is true, and cases that try it.
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

/// "The two sides of each of these cases make the same bits." Its name is that of the claim.
struct Property {
    std::string name;
    std::string sentence;
    std::string scope;
    Verdict expected = Verdict::upheld;  ///< refuted: the claim is false, and the campaign must find that out
    bool headline = false;               ///< stands in the ledger of `samesum verify`
    bool of_orders = false;              ///< empty unless the data could tell another order
    int min_ranks = 1, max_ranks = 16;
    bool shares_side = false;       ///< may several cases have side a in common?
    std::vector<Scheme> schemes{};  ///< of which it draws some; empty: it makes no calls
    std::function<Case(Draw&)> draw{};
    /// Why a case is none of the property's; empty when it is. Shrinking and replaying stay inside.
    std::function<std::string(const Case&)> objection{};
};

[[nodiscard]] std::span<const Property> properties();
/// Throws UsageError for an unknown name.
[[nodiscard]] const Property& property_named(std::string_view name);
/// The case's own fields and the property's demands on them; empty when both are met.
[[nodiscard]] std::string objection(const Property& property, const Case& c);

/// Does it draw cases within the limits? `world` aside.
[[nodiscard]] bool fits(const Property& property, const Limits& limits);
/// Throws NotHere.
[[nodiscard]] Case draw_case(const Property& property, Draw draw);
/// Cases of a property; their shrinks are cases of it, too.
[[nodiscard]] rc::Gen<Case> cases(const Property& property, const Limits& limits = {});
/// A given case with those shrinks.
[[nodiscard]] rc::Shrinkable<Case> shrinkable(const Property& property, Case c);

/// The token's row, [hidden], as one side makes it.
[[nodiscard]] std::vector<Bits> row_of(const Case& c, const Side& side, Backend& backend);

struct Comparison {
    std::vector<Bits> a, b;
    bool same = true;
    std::uint64_t column = 0;  ///< the first that differs; `Case::column` where it does
    /// Of a predicted case whose token is as predicted: another row of the same call that is not, and its column.
    std::optional<Element> stray{};
};
[[nodiscard]] Comparison compare(const Case& c, Backend& backend);

/// The case about another column of the same token: its partials written out instead of drawn from the fill.
[[nodiscard]] Case about_column(const Case& c, std::uint64_t column);
/// The case about another element of the same buffers.
[[nodiscard]] Case about_element(const Case& c, const Element& element);

/// What of NCCL a case exercises: which call, as what, over how many channels.
struct Combination {
    Scheme scheme = Scheme::fixed_root, dispatched = Scheme::fixed_root;
    Algorithm algorithm = Algorithm::ring;
    Protocol protocol = Protocol::simple;
    /// How the token's row lies among the segments of the model's orders.
    enum class Cut : std::uint8_t {
        whole,      ///< one order makes the whole call
        inside,     ///< several orders make the call, one of them the row
        at_border,  ///< the row begins or ends where an order does
        across,     ///< several orders make the row
    } cut = Cut::whole;
    int channels = 0;  ///< that the call's elements travel on
    friend auto operator<=>(const Combination&, const Combination&) = default;
};
/// Nothing where no call of NCCL adds.
[[nodiscard]] std::optional<Combination> combination(const Case& c, const Side& side);
/// "vllm_default as reduce_scatter PAT SIMPLE, row across a border", without the channels.
[[nodiscard]] std::string str(const Combination& combination);

/// Do some of a few other orders make other bits of the case's x? Else no order could show on it.
[[nodiscard]] bool tells_orders(const Case& c);

}  // namespace samesum::fuzz
