// From channels and chunks to orders.
//
// Ring all-reduce splits a channel's part into loops of n chunks; chunk c is summed along the ring and ends at ring
// position c:
//
//   part      | loop 0              | loop 1              | rest        |
//   chunks    | 0 | 1 | 2 | 3       | 0 | 1 | 2 | 3       |0|1|2|3      |     n = 4 ranks
//   order     | ends at ring[0], ring[1], ring[2], ring[3], ring[0], ...
//
// SPDX-License-Identifier: Apache-2.0
#include "model/nccl/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/nccl/channel_split.hpp"
#include "model/support/error.hpp"
#include "model/support/input_names.hpp"

namespace samesum {
namespace {

std::uint64_t block_begin(const Part& part, std::uint64_t block) { return part.begin + block * part.period; }

/// The last block that begins at or before `element`, if any.
std::optional<std::uint64_t> block_before(const Part& part, std::uint64_t element) {
    if (element < part.begin) return std::nullopt;
    return std::min((element - part.begin) / part.period, part.blocks - 1);
}

std::uint64_t block_end(const Part& part, std::uint64_t block) {
    return std::min(block_begin(part, block) + part.length, part.end);
}

/// device/all_reduce.h, runRing.
void append_ring_all_reduce(std::vector<Part>& parts, const Communicator& comm, const Task& task,
                            const ChannelPart& channel_part) {
    const auto ranks = static_cast<std::uint64_t>(comm.ranks());
    const std::uint64_t chunk = chunk_elements(task, channel_part.count, comm);
    const std::uint64_t alignment = 16 / static_cast<std::uint64_t>(traits(task.call.format).bytes());
    const auto& ring = comm.topology.channels()[static_cast<std::size_t>(channel_part.channel)].ring;
    const std::uint64_t whole = channel_split::whole_loops(channel_part.count, ranks, chunk),
                        rest = channel_part.count - whole;
    std::uint64_t begin = channel_part.begin;
    const auto append = [&](std::uint64_t length, std::uint64_t blocks, std::uint64_t count) {
        parts.push_back({channel_part.channel, begin, length, length, blocks, begin + count,
                         Order::ring(ring, ring->front()), Part::Advance::ring_position});
        begin += count;
    };
    if (whole > 0) append(chunk, whole / chunk, whole);
    if (rest == 0) return;
    const channel_split::Blocks<std::uint64_t> blocks = channel_split::last_loop(rest, ranks, alignment);
    append(blocks.length, blocks.count, rest);
}

/// The known part of an order with the switch: mm(...) is its sum of the values of one node's GPUs, in an order that
/// NCCL does not specify (device/reduce_kernel.h, Apply_LoadMultimem). The double binary tree connects the nodes, tree
/// 1 on odd channels (graph/connect.cc, connectNvls).
std::string switch_expression(const Communicator& comm, int channel) {
    std::vector<std::string> sums(static_cast<std::size_t>(comm.nodes()));
    for (int rank = 0; rank < comm.ranks(); ++rank) {
        std::string& sum = sums[static_cast<std::size_t>(comm.topology.node_of(rank))];
        sum += fmt::format("{}{}", sum.empty() ? "mm(" : " ", rank);
    }
    for (std::string& sum : sums) sum += ")";
    const std::function<std::string(int)> value = [&](int node) {
        std::string text = sums[static_cast<std::size_t>(node)];
        for (const int child : double_binary_tree(comm.nodes(), node, channel % 2).child)
            if (child >= 0) text = fmt::format("({} {})", text, value(child));
        return text;
    };
    int root = 0;
    while (double_binary_tree(comm.nodes(), root, channel % 2).parent >= 0) ++root;
    return fmt::format("the switch adds the values of a node's GPUs, in an order that NCCL does not specify: {}",
                       value(root));
}

Order reduce_order(const Communicator& comm, const Task& task, const ChannelPart& part) {
    const Channel& channel = comm.topology.channels()[static_cast<std::size_t>(part.channel)];
    const int ranks = comm.ranks();
    switch (task.choice.algorithm) {
        case Algorithm::ring:
            return Order::ring(channel.ring, task.call.collective == Collective::reduce ? task.call.root : 0);
        case Algorithm::tree:
            if (!channel.tree)
                throw UsageError(
                    fmt::format("the tree of channel {} is not known: expected {} with the 'Trees' lines, or {}",
                                part.channel, input_name("log"), input_name("graph")));
            return Order::tree(channel.tree);
        case Algorithm::pat: {
            const auto bytes = static_cast<std::uint64_t>(traits(task.call.format).bytes());
            return Order::pat(
                ranks, 0, pat_dimensions(ranks, chunk_elements(task, part.count, comm) * bytes, part.count * bytes));
        }
        case Algorithm::nvls:
        case Algorithm::nvls_tree:
            return Order::not_observable(ranks, switch_expression(comm, part.channel));
        default:
            return Order::not_observable(ranks, "the network adds the values of the nodes, outside of NCCL");
    }
}

}  // namespace

Order Part::order_of_block(std::uint64_t block) const {
    if (advance == Advance::none) return order;
    const std::uint64_t last = (first + block) % static_cast<std::uint64_t>(order.ranks());
    return advance == Advance::rank ? order.ending_at(static_cast<int>(last)) : order.ending_at_position(last);
}

Schedule::Schedule(int ranks, std::uint64_t size, std::vector<Part> parts)
    : ranks_(ranks), size_(size), parts_(std::move(parts)) {}

Segment Schedule::segment_at(std::uint64_t element) const {
    for (const Part& part : parts_) {
        const auto block = block_before(part, element);
        if (block && element < block_end(part, *block))
            return {block_begin(part, *block), block_end(part, *block), part.order_of_block(*block), part.channel,
                    part.protocol};
    }
    throw UsageError(fmt::format("element {} is outside of the call's {} elements", element, size_));
}

void Schedule::visit(std::uint64_t begin, std::uint64_t end, const std::function<bool(const Segment&)>& visit) const {
    end = std::min(end, size_);
    while (begin < end) {
        Segment segment = segment_at(begin);
        segment.begin = begin;
        segment.end = std::min(segment.end, end);
        begin = segment.end;
        if (!visit(segment)) return;
    }
}

SumRule rule_for(const Segment& segment, Format format, Accumulation accumulation) {
    const bool own_is_left = segment.order.own_value_is_left();
    const bool by_nccl = segment.order.kind() == Order::Kind::ring || segment.order.kind() == Order::Kind::tree ||
                         segment.order.kind() == Order::Kind::pat;
    const bool keeps_own = segment.protocol == Protocol::ll128;
    return {.format = format,
            .accumulation = accumulation,
            .own_is_left = own_is_left,
            .nan_from_right = by_nccl && own_is_left != keeps_own};
}

std::vector<Part> Schedule::parts_at(std::uint64_t offset) const {
    std::vector<Part> moved = parts_;
    for (Part& part : moved) {
        part.begin += offset;
        part.end += offset;
    }
    return moved;
}

std::uint64_t Schedule::segment_count() const {
    std::uint64_t count = 0;
    for (const Part& part : parts_) count += part.blocks;
    return count;
}

std::vector<Order> Schedule::orders(std::size_t max) const {
    std::vector<Order> found;
    for (const Part& part : parts_) {
        const std::uint64_t distinct =
            part.advance == Part::Advance::none ? 1 : std::min(part.blocks, static_cast<std::uint64_t>(ranks_));
        for (std::uint64_t block = 0; block < distinct; ++block) {
            if (found.size() >= max) return found;
            Order order = part.order_of_block(block);
            if (std::find(found.begin(), found.end(), order) == found.end()) found.push_back(std::move(order));
        }
    }
    return found;
}

Schedule make_schedule(const Communicator& comm, const Task& task, std::span<const ChannelPart> channel_parts) {
    const Call& call = task.call;
    if (call.collective == Collective::reduce && (call.root < 0 || call.root >= comm.ranks()))
        throw UsageError(fmt::format("root {} is not a rank: expected 0 to {}", call.root, comm.ranks() - 1));
    std::vector<Part> parts;
    for (const ChannelPart& part : channel_parts) {
        if (part.count == 0) continue;
        if (call.collective == Collective::all_reduce && task.choice.algorithm == Algorithm::ring) {
            append_ring_all_reduce(parts, comm, task, part);
            continue;
        }
        const Order order = reduce_order(comm, task, part);
        if (call.collective == Collective::reduce_scatter && order.observable()) {
            const auto ranks = static_cast<std::uint64_t>(comm.ranks());
            parts.push_back({part.channel, part.begin, part.count, call.count, ranks,
                             (ranks - 1) * call.count + part.begin + part.count, order, Part::Advance::rank});
        } else {
            const std::uint64_t copies =
                call.collective == Collective::reduce_scatter ? static_cast<std::uint64_t>(comm.ranks()) : 1;
            parts.push_back({part.channel, part.begin, part.count, std::max<std::uint64_t>(call.count, 1), copies,
                             (copies - 1) * call.count + part.begin + part.count, order, Part::Advance::none});
        }
    }
    for (Part& part : parts) part.protocol = task.choice.protocol;
    return {comm.ranks(), call.total(comm.ranks()), std::move(parts)};
}

std::vector<Plan> plan_group(const Communicator& comm, std::span<const Call> calls, Forced forced) {
    const std::vector<GroupedTask> grouped = prepare_group(comm, calls, forced);
    std::vector<Task> tasks;
    for (const GroupedTask& task : grouped) tasks.push_back(task.task);
    const auto parts = partition(tasks, comm);
    std::vector<Plan> plans;
    for (std::size_t i = 0; i < tasks.size(); ++i)
        plans.push_back({tasks[i], grouped[i].index, parts[i], make_schedule(comm, tasks[i], parts[i])});
    return plans;
}

Plan plan_call(const Communicator& comm, const Call& call, Forced forced) {
    if (call.count == 0) return {{call, {}}, 0, {}, {comm.ranks(), 0, {}}};
    return std::move(plan_group(comm, std::span(&call, 1), forced).front());
}

Plan plan_task(const Communicator& comm, const Task& task) {
    auto parts = partition(std::span(&task, 1), comm).front();
    Schedule schedule = make_schedule(comm, task, parts);
    return {task, 0, std::move(parts), std::move(schedule)};
}

bool hop_is_fused(Protocol protocol, Format format, std::uint64_t offset) {
    const FormatTraits& t = traits(format);
    if (!t.is_float || t.width == 8) return false;
    if (protocol != Protocol::ll128) return true;
    if (t.width == 16) return false;
    // Slices of 1920 bytes are 120 packs of 16 bytes. Packs whose second word is in a flag thread are reduced
    // completely by code that the compiler fuses; of the others it fuses only the first 8 bytes (2.28.9,
    // src/device/prims_ll128.h, recvReduceSendCopy; float32 measured, float64 by analogy).
    const std::uint64_t pack = offset % 1920 / 16;
    const bool flag_thread = (pack < 32 && pack % 8 == 7) || (60 <= pack && pack < 92 && (pack - 60) % 8 == 7);
    return flag_thread || offset % 16 < 8;
}

}  // namespace samesum
