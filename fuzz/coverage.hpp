// What a case exercises: its data, its routing, and which of NCCL's calls over how many channels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/case.hpp"

namespace samesum::fuzz {

/// Labels of a case for histograms, one for each aspect.
[[nodiscard]] std::vector<std::string_view> classes(const Case& c);

/// What of NCCL a case exercises: the call, its algorithm and protocol, the number of channels.
struct Combination {
    Scheme scheme = Scheme::fixed_root, dispatched = Scheme::fixed_root;
    Algorithm algorithm = Algorithm::ring;
    Protocol protocol = Protocol::simple;
    /// The position of the token's row among the segments of the model's orders.
    enum class Cut : std::uint8_t {
        whole,      ///< the whole call has one order
        inside,     ///< the call has several orders, the row one
        at_border,  ///< the row begins or ends where an order does
        across,     ///< the row has several orders
    } cut = Cut::whole;
    int channels = 0;  ///< channels that the call uses
    friend auto operator<=>(const Combination&, const Combination&) = default;
};
/// Nothing if NCCL does not add.
[[nodiscard]] std::optional<Combination> combination(const Case& c, const Side& side);
/// "vllm_default as reduce_scatter PAT SIMPLE, row across a border", without the channels.
[[nodiscard]] std::string str(const Combination& combination);

/// Do some of a few other orders give other bits for the case's x? If not, no order could show.
[[nodiscard]] bool is_order_sensitive(const Case& c);

}  // namespace samesum::fuzz
