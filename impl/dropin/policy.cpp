// The rules of decide() in the order in which they apply.
// SPDX-License-Identifier: Apache-2.0
#include "impl/dropin/policy.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <optional>

#include "model/support/error.hpp"
#include "model/support/numbers.hpp"

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
            read.error = fmt::format(
                "SAMESUM_POLICY='{}': expected observe, fixed_root, ordered or direct, or unset for NCCL as it is",
                policy);
    }
    if (!accumulation.empty() && read.error.empty()) {
        if (accumulation == "fp32_once")
            read.accumulation = Accumulation::fp32_once;
        else if (accumulation != "per_hop")
            read.error = fmt::format("SAMESUM_ACCUMULATION='{}': expected per_hop or fp32_once", accumulation);
        if (read.error.empty() && read.accumulation != Accumulation::per_hop && read.policy != Policy::ordered &&
            read.policy != Policy::direct)
            read.error = fmt::format(
                "SAMESUM_ACCUMULATION={} with SAMESUM_POLICY={}, under which NCCL adds and rounds at every hop: "
                "expected "
                "SAMESUM_POLICY=ordered or direct",
                accumulation, policy.empty() ? "(unset)" : policy);
    }
    if (const std::string_view timeout = text_of(value_of, "SAMESUM_TIMEOUT_S"); !timeout.empty()) {
        constexpr int max_timeout_s = 7 * 24 * 3600;
        const std::optional<int> seconds = integer_in<int>(timeout);
        if (seconds && *seconds >= 1 && *seconds <= max_timeout_s)
            read.timeout_s = *seconds;
        else if (read.error.empty())
            read.error = fmt::format("SAMESUM_TIMEOUT_S='{}': expected 1 to {} seconds", timeout, max_timeout_s);
    }
    read.records = read.policy == Policy::observe || (read.replaces() && !read.calls_file.empty());
    if (read.policy == Policy::none && read.error.empty() && !read.calls_file.empty())
        read.error = "SAMESUM_CALLS is set and SAMESUM_POLICY is not: expected SAMESUM_POLICY=observe";
    return read;
}

const Configuration& configuration() {
    static const Configuration read = read_configuration([](const char* key) { return std::getenv(key); });
    return read;
}

Decision decide(const Configuration& configuration, const DataCall& call, int ranks) {
    const auto refuse = [&](std::string_view reason) {
        return Decision{Decision::Action::refuse,
                        fmt::format("nccl{} of {} by {} over {} ranks under SAMESUM_POLICY={}: {}", name(call.function),
                                    name(call.type), name(call.operation), ranks, name(configuration.policy), reason)};
    };
    if (!configuration.replaces() || !adds(call.function)) return {};
    if (ranks <= 2 || call.count == 0) return {};
    if (!is_float(call.type)) return {};
    if (call.operation == ncclMin || call.operation == ncclMax) return {};
    // Wrong arguments: NCCL's own error describes them.
    if (call.comm == nullptr || call.input == nullptr || static_cast<int>(call.operation) < 0) return {};
    if (call.function == Function::reduce && (call.root < 0 || call.root >= ranks)) return {};
    if (call.operation == ncclSum) return {Decision::Action::replace};
    if (call.operation == ncclProd) {
        if (configuration.policy == Policy::fixed_root && call.function == Function::all_reduce)
            return {Decision::Action::replace};
        return refuse("only sums are kept in order; expected SAMESUM_POLICY=observe where no bits are compared");
    }
    // For ncclAvg NCCL scales the inputs while it adds. Whether scaling and addition share one rounding depends on the
    // protocol and, under LL128, on the element's position (2.28.9, device/reduce_kernel.h, measured for 3 and 5
    // ranks).
    return refuse(
        "NCCL scales while it adds, with a rounding that depends on protocol and position; expected ncclSum and a "
        "division by the caller");
}

}  // namespace samesum::dropin
