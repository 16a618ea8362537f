// Names of schemes, and how vLLM chooses between them.
// SPDX-License-Identifier: Apache-2.0
#include "model/combine/scheme.hpp"

#include <fmt/format.h>

#include <string>

#include "model/support/error.hpp"

namespace samesum {
namespace {

constexpr std::array<std::string_view, all_schemes.size()> names{
    "reduce_scatter", "reduce_per_owner", "vllm_default",   "fixed_root", "reduce_broadcast",
    "gather_ordered", "exchange_ordered", "direct_ordered", "exact"};

}  // namespace

Scheme parse_scheme(std::string_view word) {
    for (const Scheme scheme : all_schemes)
        if (word == name(scheme)) return scheme;
    std::string choices;
    for (const std::string_view each : names) choices += fmt::format("{}{}", choices.empty() ? "" : ", ", each);
    throw UsageError(fmt::format("unknown scheme '{}': expected one of: {}", word, choices));
}

std::string_view name(Scheme scheme) { return names.at(static_cast<std::size_t>(scheme)); }

bool is_ordered(Scheme scheme) {
    return scheme == Scheme::gather_ordered || scheme == Scheme::exchange_ordered || scheme == Scheme::direct_ordered;
}

Scheme dispatched(Scheme scheme, const Routing& routing) {
    if (scheme != Scheme::vllm_default) return scheme;
    return routing.equal_sizes() ? Scheme::reduce_scatter : Scheme::reduce_per_owner;
}

Scheme gated(bool batch_invariant, int ranks) {
    return batch_invariant && ranks > 2 ? Scheme::fixed_root : Scheme::vllm_default;
}

}  // namespace samesum
