// Grammar of counts and machines, and the plan of what was described.
// SPDX-License-Identifier: Apache-2.0
#include "model/input/call_description.hpp"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "model/nccl/symmetric_kernels.hpp"
#include "model/support/error.hpp"
#include "model/support/text.hpp"

namespace samesum {
namespace {

double real_number(std::string_view word, std::string_view where) {
    double number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (word.empty() || error != std::errc{} || end != word.data() + word.size() || !(number >= 0 && number < 1e6))
        throw UsageError(fmt::format("{}: '{}' is no number from 0 to 1e6", where, word));
    return number;
}

}  // namespace

Plan Scenario::plan() const {
    if (!symmetric_kernel.empty()) return plan_symmetric(comm, call(), {symmetric_kernel, symmetric_blocks});
    if (call().count == 0) return plan_call(comm, call(), forced);
    for (Plan& plan : plan_group(comm, group, forced))
        if (plan.index == index) return std::move(plan);
    throw UsageError("the call is not one of its group");
}

std::uint64_t parse_count(std::string_view text, std::string_view flag) {
    std::uint64_t product = 1;
    for (const std::string_view factor : split(text, 'x')) {
        std::uint64_t number = 0;
        const auto [end, error] = std::from_chars(factor.data(), factor.data() + factor.size(), number);
        constexpr std::uint64_t max = std::uint64_t{1} << 44;
        if (factor.empty() || error != std::errc{} || end != factor.data() + factor.size() || number > max ||
            (number != 0 && product > max / number))
            throw UsageError(fmt::format("--{} '{}': a number up to 2^44, or a product like 64x2048", flag, text));
        product *= number;
    }
    return product;
}

Machine parse_machine(std::string_view text) {
    Machine machine;
    const auto graph = [&](std::string_view key, std::string_view value) {
        const auto parts = split(value, ':');
        if (parts.size() != 3)
            throw UsageError(
                fmt::format("--machine: '{}={}' is not channels:inside:between, e.g. {}=1:1.2:1.2", key, value, key));
        GraphSpeed speed;
        speed.channels = static_cast<int>(real_number(parts[0], key));
        speed.bw_intra = real_number(parts[1], key);
        speed.bw_inter = real_number(parts[2], key);
        return speed;
    };
    bool nvlink = true, same_channels = true;
    for (const std::string_view item : split(text, ',')) {
        const std::size_t equals = item.find('=');
        const std::string_view key = item.substr(0, equals);
        const std::string_view value = equals == std::string_view::npos ? "" : item.substr(equals + 1);
        if (key == "sm")
            machine.compute_capability = static_cast<int>(real_number(value, "--machine sm"));
        else if (key == "cpu" && (value == "intel" || value == "amd" || value == "other"))
            machine.cpu = value == "intel" ? CpuVendor::intel : value == "amd" ? CpuVendor::amd : CpuVendor::other;
        else if (key == "ring")
            machine.ring = graph(key, value);
        else if (key == "tree")
            machine.tree = graph(key, value);
        else if (key == "ll128")
            machine.ll128 = real_number(value, "--machine ll128") != 0;
        else if (key == "nvlink")
            nvlink = real_number(value, "--machine nvlink") != 0;
        else if (key == "same_channels")
            same_channels = real_number(value, "--machine same_channels") != 0;
        else
            throw UsageError(
                fmt::format("--machine: '{}' is not one of sm=90, cpu=intel|amd|other, ring=C:I:B, tree=C:I:B, "
                            "ll128=0|1, nvlink=0|1, same_channels=0|1",
                            item));
    }
    if (machine.ring.channels == 0) throw UsageError("--machine: ring=channels:inside:between is missing");
    for (GraphSpeed* speed : {&machine.ring, &machine.tree}) {
        speed->nvlink = nvlink;
        speed->same_channels = same_channels;
    }
    return machine;
}

std::string describe(const Call& call, int ranks) {
    const std::string what = fmt::format("{} of {} {}", name(call.collective), call.count, name(call.format));
    switch (call.collective) {
        case Collective::reduce:
            return fmt::format("{} to root {} over {} ranks", what, call.root, ranks);
        case Collective::reduce_scatter:
            return fmt::format("{} a rank over {} ranks", what, ranks);
        default:
            return fmt::format("{} over {} ranks", what, ranks);
    }
}

std::string describe(const Plan& plan) {
    if (plan.accumulation == Accumulation::fp32_once) return "symmetric kernel, float32 sums rounded once";
    if (plan.parts.empty()) return "nothing to do";
    return fmt::format("{}, {}, channels {}..{}", name(plan.task.choice.algorithm), name(plan.task.choice.protocol),
                       plan.parts.front().channel, plan.parts.back().channel);
}

}  // namespace samesum
