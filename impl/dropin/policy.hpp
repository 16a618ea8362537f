// Reads SAMESUM_POLICY and decides about each call. Every rank decides by itself and all must decide alike, so a
// decision depends only on arguments that NCCL requires to be the same on all ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "impl/dropin/data_call.hpp"
#include "model/combine/scheme.hpp"

namespace samesum::dropin {

enum class Policy : std::uint8_t {
    none,        ///< everything is forwarded, nothing is recorded
    observe,     ///< forwarded and recorded
    fixed_root,  ///< one ncclReduce to root 0, then a scatter or a broadcast
    ordered,     ///< the partials are moved and added in rank order, without NVLink
    direct,      ///< the same sums by direct_ordered's kernel, over NVLink
};
[[nodiscard]] std::string_view name(Policy policy);

struct Configuration {
    Policy policy = Policy::none;
    Accumulation accumulation = Accumulation::per_hop;
    bool records = false;
    /// How long this library waits for a communicator or a kernel before it reports an error.
    int timeout_s = 600;
    std::string calls_file;  ///< empty: the name is made of host and process
    /// One line when the settings are wrong: no communicator is then made. Empty when they are right.
    std::string error;

    [[nodiscard]] bool replaces() const { return policy > Policy::observe; }
};
/// Reads SAMESUM_POLICY, SAMESUM_ACCUMULATION, SAMESUM_CALLS and SAMESUM_TIMEOUT_S; `value_of` is getenv or a test's.
[[nodiscard]] Configuration read_configuration(const std::function<const char*(const char*)>& value_of);
/// The configuration of this process, read once.
[[nodiscard]] const Configuration& configuration();

struct Decision {
    enum class Action : std::uint8_t { forward, replace, refuse } action = Action::forward;
    std::string error{};  ///< of a refusal: the whole line
};
/// Calls whose result does not depend on an order are forwarded: sums of integers, which wrap; minima and maxima; 1 or
/// 2 ranks, which need at most one addition (vLLM has the same gate); a count of 0. So are calls that NCCL itself will
/// refuse.
[[nodiscard]] Decision decide(const Configuration& configuration, const DataCall& call, int ranks);

}  // namespace samesum::dropin
