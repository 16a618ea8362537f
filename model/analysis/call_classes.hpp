// What the sums of a recorded job depend on: owner, position, count or nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/input/call_description.hpp"
#include "model/input/call_stream.hpp"

namespace samesum {

/// What a sum's order depends on, from harmless to worst.
enum class OrderClass : std::uint8_t {
    nothing_added,       ///< moves data only, or no elements
    no_order,            ///< integers wrap, minima and maxima keep: every order has the same bits
    one_addition,        ///< two ranks
    invariant,           ///< one order for every element, count and owner
    refused,             ///< the policy did not let it run
    not_observable,      ///< an adder that cannot be seen into
    count_dependent,     ///< other counts are added in other orders
    position_dependent,  ///< elements of one call are added in different orders
    owner_dependent,     ///< by the rank that receives them
};
[[nodiscard]] std::string_view name(OrderClass order_class);
[[nodiscard]] bool depends(OrderClass order_class);

/// Calls that are alike, and what was found out about them.
struct ClassifiedCalls {
    RecordedCall call;  ///< the first of them
    int ranks = 0;
    std::size_t times = 0;
    std::string prediction{};  ///< "RING, SIMPLE, channels 0..3"; empty where none was needed
    OrderClass order_class{};
    std::string why{};
};

/// Judges the calls of all streams, the most frequent first of the worst class first. `scenario_for` describes a
/// communicator; where it leaves algorithm or protocol open and gives no machine, Ring and Simple are assumed, and said
/// in `assumptions`, as is all that the scenarios assume.
[[nodiscard]] std::vector<ClassifiedCalls> classify_calls(
    std::span<const CallStream> streams,
    const std::function<ResolvedCommunicator(const CallStream&, const RecordedCommunicator&)>& scenario_for,
    std::vector<std::string>& assumptions);

}  // namespace samesum
