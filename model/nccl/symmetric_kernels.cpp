// AllReduce_RSxLD_AGxST gives each piece of the buffer an owner that reads all peers, its own value first:
//
//   | prefix | region A: 2048-byte pieces | region B: 512-byte pieces | rest: 32 elements each, after the prefix |
//   owner 0    0 1 2 ... n-1 0 1 ...       0 1 2 ...                  0 1 2 ...
//
// SPDX-License-Identifier: Apache-2.0
#include "model/nccl/symmetric_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/support/error.hpp"
#include "model/support/input_names.hpp"

namespace samesum {
namespace {

enum class SumOrder : std::uint8_t { rank_order, from_owner_by_piece, from_destination, in_switch };
struct Kernel {
    std::string_view name;
    Collective collective;
    SumOrder order;
};
constexpr std::array<Kernel, 7> kernels{{
    {"AllReduce_AGxLL_R", Collective::all_reduce, SumOrder::rank_order},
    {"AllReduce_AGxLLMC_R", Collective::all_reduce, SumOrder::rank_order},
    {"AllReduce_RSxLD_AGxST", Collective::all_reduce, SumOrder::from_owner_by_piece},
    {"AllReduce_RSxLDMC_AGxSTMC", Collective::all_reduce, SumOrder::in_switch},
    {"ReduceScatter_LL", Collective::reduce_scatter, SumOrder::rank_order},
    {"ReduceScatter_LD", Collective::reduce_scatter, SumOrder::from_destination},
    {"ReduceScatter_LDMC", Collective::reduce_scatter, SumOrder::in_switch},
}};

const Kernel& find_kernel(std::string_view name) {
    std::string choices;
    for (const Kernel& kernel : kernels) {
        if (kernel.name == name) return kernel;
        choices += fmt::format("{}{}", choices.empty() ? "" : ", ", kernel.name);
    }
    throw UsageError(fmt::format("unknown symmetric kernel '{}': expected one of: {}", name, choices));
}

Part blocks_of(std::uint64_t begin, std::uint64_t end, std::uint64_t length, std::uint64_t first, const Order& order) {
    return {0, begin, length, length, (end - begin + length - 1) / length, end, order, Part::Advance::rank, first};
}

std::vector<Part> pieces(const Communicator& comm, const Call& call, const SymmetricLaunch& launch) {
    const auto element = static_cast<std::uint64_t>(traits(call.format).bytes());
    const std::uint64_t bytes = call.count * element;
    const std::uint64_t round = static_cast<std::uint64_t>(comm.ranks()) * static_cast<std::uint64_t>(launch.blocks);
    const std::uint64_t prefix = std::min(bytes, (16 - launch.input_offset % 16) % 16);
    const auto same_alignment = [&](std::uint64_t modulus) {
        return launch.input_offset % modulus == launch.output_offset % modulus;
    };
    const Order order = Order::from_owner(comm.ranks(), 0);
    std::vector<Part> parts;
    std::uint64_t at = prefix;
    if (same_alignment(16)) {
        const std::uint64_t length = (bytes - at) / 8192 / round * round * 8192;
        if (length > 0) parts.push_back(blocks_of(at / element, (at + length) / element, 2048 / element, 0, order));
        at += length;
    }
    if (element == 4 || (element < 4 && same_alignment(4))) {
        const std::uint64_t length = (bytes - at) / 2048 / round * round * 2048;
        if (length > 0) parts.push_back(blocks_of(at / element, (at + length) / element, 512 / element, 0, order));
        at += length;
    }
    const std::uint64_t before = prefix / element;  // fewer than 32 elements: part of the first group
    if (before > 0) parts.push_back(blocks_of(0, before, before, 0, order));
    std::uint64_t rest = at / element;
    if (rest < call.count && before > 0) {
        const std::uint64_t joined = std::min(call.count, rest + 32 - before);
        parts.push_back(blocks_of(rest, joined, joined - rest, 0, order));
        rest = joined;
    }
    if (rest < call.count) parts.push_back(blocks_of(rest, call.count, 32, before > 0 ? 1 : 0, order));
    return parts;
}

}  // namespace

Plan plan_symmetric(const Communicator& comm, const Call& call, const SymmetricLaunch& launch) {
    const Kernel& kernel = find_kernel(launch.kernel);
    if (kernel.collective != call.collective)
        throw UsageError(fmt::format("{} does not run {}", launch.kernel, name(call.collective)));
    if (comm.nodes() != 1)
        throw UsageError(fmt::format("symmetric kernels run inside one node only: expected {} equal to {}",
                                     input_name("ranks-per-node"), input_name("ranks")));
    constexpr std::array formats{Format::float32, Format::float16, Format::bfloat16, Format::float8_e4m3,
                                 Format::float8_e5m2};
    if (call.operation != Operation::sum || std::find(formats.begin(), formats.end(), call.format) == formats.end())
        throw UsageError(
            fmt::format("{} of {}: symmetric kernels support only the sum of float32, float16, bfloat16 or float8",
                        name(call.operation), name(call.format)));
    if (launch.blocks < 1) throw UsageError(fmt::format("{} blocks: expected at least 1", launch.blocks));
    const std::uint64_t total = call.total(comm.ranks());
    const auto whole = [&](Order order) {
        return std::vector<Part>{
            {0, 0, total, std::max<std::uint64_t>(total, 1), 1, total, std::move(order), Part::Advance::none}};
    };
    std::vector<Part> parts;
    switch (kernel.order) {
        case SumOrder::rank_order:
            parts = whole(Order::rank_order(comm.ranks()));
            break;
        case SumOrder::from_owner_by_piece:
            parts = pieces(comm, call, launch);
            break;
        case SumOrder::from_destination:
            if (call.count > 0) parts.push_back(blocks_of(0, total, call.count, 0, Order::from_owner(comm.ranks(), 0)));
            break;
        case SumOrder::in_switch:
            parts = whole(Order::not_observable(
                comm.ranks(), "the switch adds the values of all GPUs, in an order that NCCL does not specify"));
            break;
    }
    if (total == 0) parts.clear();
    return {{call, {}}, 0, {}, {comm.ranks(), total, std::move(parts)}, Accumulation::fp32_once};
}

}  // namespace samesum
