// The rules in the order in which they end the matter.
// SPDX-License-Identifier: Apache-2.0
#include "impl/dropin/policy.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "model/support/error.hpp"

namespace samesum::dropin {
namespace {

constexpr std::array<std::string_view, 5> policies{"none", "observe", "fixed_root", "ordered", "direct"};

std::string_view text_of(const std::function<const char*(const char*)>& value_of, const char* key) {
    const char* value = value_of(key);
    return value != nullptr ? value : "";
}

}  // namespace

std::string_view name(Policy policy) { return policies.at(static_cast<std::size_t>(policy)); }

Configuration read_configuration(const std::function<const char*(const char*)>& value_of) {
    Configuration read;
    const std::string_view policy = text_of(value_of, "SAMESUM_POLICY");
    const std::string_view accumulation = text_of(value_of, "SAMESUM_ACCUMULATION");
    read.calls_file = text_of(value_of, "SAMESUM_CALLS");
    if (!policy.empty()) {
        for (std::size_t i = 1; i < policies.size(); ++i)
            if (policies[i] == policy) read.policy = static_cast<Policy>(i);
        if (read.policy == Policy::none)
            read.complaint = fmt::format(
                "SAMESUM_POLICY='{}'; observe, fixed_root, ordered or direct would be right, or unset for "
                "NCCL as it is",
                policy);
    }
    if (!accumulation.empty() && read.complaint.empty()) {
        if (accumulation == "fp32_once")
            read.accumulation = Accumulation::fp32_once;
        else if (accumulation != "per_hop")
            read.complaint =
                fmt::format("SAMESUM_ACCUMULATION='{}'; per_hop or fp32_once would be right", accumulation);
        if (read.complaint.empty() && read.accumulation != Accumulation::per_hop && read.policy != Policy::ordered &&
            read.policy != Policy::direct)
            read.complaint = fmt::format(
                "SAMESUM_ACCUMULATION={}, but SAMESUM_POLICY={}: NCCL adds then and rounds at every hop; "
                "ordered or direct would be right",
                accumulation, policy.empty() ? "(unset)" : policy);
    }
    read.records = read.policy == Policy::observe || (read.replaces() && !read.calls_file.empty());
    if (read.policy == Policy::none && read.complaint.empty() && !read.calls_file.empty())
        read.complaint = "SAMESUM_CALLS is set, but SAMESUM_POLICY is not; SAMESUM_POLICY=observe would be right";
    return read;
}

const Configuration& configuration() {
    static const Configuration read = read_configuration([](const char* key) { return std::getenv(key); });
    return read;
}

Decision decide(const Configuration& configuration, const DataCall& call, int ranks) {
    const auto refuse = [&](std::string_view reason) {
        return Decision{Decision::Act::refuse,
                        fmt::format("nccl{} of {} by {} over {} ranks under SAMESUM_POLICY={}: {}", name(call.function),
                                    name(call.type), name(call.operation), ranks, name(configuration.policy), reason)};
    };
    if (!configuration.replaces() || !adds(call.function)) return {};
    if (ranks <= 2 || call.count == 0) return {};
    if (!is_float(call.type)) return {};
    if (call.operation == ncclMin || call.operation == ncclMax) return {};
    // NCCL has the better words for these.
    if (call.comm == nullptr || call.input == nullptr || static_cast<int>(call.operation) < 0) return {};
    if (call.function == Function::reduce && (call.root < 0 || call.root >= ranks)) return {};
    if (call.operation == ncclSum) return {Decision::Act::replace};
    if (call.operation == ncclProd) {
        if (configuration.policy == Policy::fixed_root && call.function == Function::all_reduce)
            return {Decision::Act::replace};
        return refuse("only sums are kept in order; observe would be right where no bits are compared");
    }
    // ncclAvg is a sum of inputs that NCCL scales itself, in one rounding with the addition or not: by protocol, and
    // under LL128 by the element's place (2.28.9, device/reduce_kernel.h, measured for 3 and 5 ranks).
    return refuse(
        "NCCL scales on the way, rounded by protocol and position; ncclSum, then a division by the caller, "
        "would be right");
}

}  // namespace samesum::dropin
