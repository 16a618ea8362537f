// What the order of each scheme depends on, decided by comparing orders instead of results on sample data.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/combine/combine.hpp"

namespace samesum {

/// What may change without changing the bits of a sum.
enum class Invariance : std::uint8_t {
    run_to_run,  ///< the same call again
    rank_equal,  ///< every rank that receives the element has the same bits
    owner,       ///< another rank owns the token
    position,    ///< the token is at another row of the buffer; same owner, same sizes
    count,       ///< tokens are added to or removed from the call; same owner
    routing,     ///< all of the last three
};
inline constexpr std::array all_invariances{Invariance::run_to_run, Invariance::rank_equal, Invariance::owner,
                                            Invariance::position,   Invariance::count,      Invariance::routing};
[[nodiscard]] std::string_view name(Invariance invariance);
[[nodiscard]] Invariance parse_invariance(std::string_view word);

/// A token's position in a call: the routing and the row.
struct Placement {
    Routing routing;
    std::uint64_t row = 0;
};

/// Two placements of one token that give one of its elements different orders.
struct CounterExample {
    Placement before, after;
    std::uint64_t column = 0;  ///< element of the row
    Order before_order = Order::rank_order(1), after_order = Order::rank_order(1);
};

struct InvarianceAnswer {
    bool holds = false;
    std::string reason;                     ///< why it holds, or what differs
    std::optional<CounterExample> example;  ///< the smallest one found, if it does not hold and two placements show it
    std::size_t placements = 0;             ///< number of placements compared
};

/// Compares the orders of a token's elements over a family of routings: equal, ragged, one owner, with zero sizes, and
/// sizes that straddle the model's channel boundaries.
[[nodiscard]] InvarianceAnswer decide_invariance(Invariance invariance, Scheme scheme, const Communicator& comm,
                                                 std::uint64_t hidden, Format format, const CombineOptions& options);

/// The routings that decide_invariance() compares.
[[nodiscard]] std::vector<Routing> probing_routings(Scheme scheme, int ranks, std::uint64_t hidden);

}  // namespace samesum
