// What SAMESUM_POLICY asks for, and what that makes of one call. Ranks must come to the same answer each on its own, so
// it rests on nothing but what NCCL requires to be the same on all of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

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
    direct,      ///< the same sums by the kernel that goes over NVLink
};
[[nodiscard]] std::string_view name(Policy policy);

struct Configuration {
    Policy policy = Policy::none;
    Accumulation accumulation = Accumulation::per_hop;
    bool records = false;
    std::string calls_file;  ///< empty: a name made of host and process
    /// Why no job may start: one line that says what is wrong and what would be right. Empty when all is well.
    std::string complaint;

    [[nodiscard]] bool replaces() const { return policy > Policy::observe; }
};
/// Reads SAMESUM_POLICY, SAMESUM_ACCUMULATION and SAMESUM_CALLS; `value_of` is getenv or a test's.
[[nodiscard]] Configuration read_configuration(const std::function<const char*(const char*)>& value_of);
/// That of this process, read once.
[[nodiscard]] const Configuration& configuration();

struct Decision {
    enum class Act : std::uint8_t { forward, replace, refuse } act = Act::forward;
    std::string why{};  ///< of a refusal: the whole line
};
/// Sums whose order cannot show are forwarded: of integers, which wrap; minima and maxima; of 1 or 2 ranks, which are
/// one addition (vLLM's gate, too); of nothing. So is what NCCL itself will refuse.
[[nodiscard]] Decision decide(const Configuration& configuration, const DataCall& call, int ranks);

}  // namespace samesum::dropin
