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
    nothing_added,       ///< moves data only, or has no elements
    no_order,            ///< integers, minima and maxima: every order gives the same bits
    one_addition,        ///< two ranks: one addition, which commutes
    invariant,           ///< one order for every element, count and owner
    refused,             ///< the policy did not let it run
    not_observable,      ///< summed in hardware, or by a symmetric kernel
    count_dependent,     ///< calls of other counts have other orders
    position_dependent,  ///< elements of one call have different orders
    owner_dependent,     ///< the order depends on the rank that receives the element
};
[[nodiscard]] std::string_view name(OrderClass order_class);
[[nodiscard]] bool depends(OrderClass order_class);

/// Equal calls and their class.
struct ClassifiedCalls {
    RecordedCall call;  ///< the first of them
    int ranks = 0;
    std::size_t times = 0;
    std::string prediction{};  ///< "RING, SIMPLE, channels 0..3"; empty where no plan is needed
    OrderClass order_class{};
    std::string why{};
};

/// Classifies the calls of all streams: the worst class first, in it the most frequent calls first. `resolve_for`
/// describes a communicator. Where it leaves algorithm or protocol open and gives no machine, Ring and Simple are
/// assumed; `assumptions` lists this and all that the communicators assume.
[[nodiscard]] std::vector<ClassifiedCalls> classify_calls(
    std::span<const CallStream> streams,
    const std::function<ResolvedCommunicator(const CallStream&, const RecordedCommunicator&)>& resolve_for,
    std::vector<std::string>& assumptions);

}  // namespace samesum
