// NCCL splits a call over channels in cells. A call may begin on a channel that the call before it left partly filled,
// fill whole channels, and end on another partly filled one:
//
//   channel   0         1          2          3
//             [task A ][A hi|B lo][ B mid   ][B hi    ]
//
// SPDX-License-Identifier: Apache-2.0
#include "model/nccl/partition.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/nccl/channel_split.hpp"
#include "model/support/error.hpp"

namespace samesum {
namespace {

std::uint64_t element_bytes(const Call& call) { return static_cast<std::uint64_t>(traits(call.format).bytes()); }

/// LL sends a flag beside each word, so its traffic counts four times.
std::uint64_t traffic_per_byte(const Task& task, int ranks) {
    return traffic_per_byte(task.call.collective, ranks) * (task.choice.protocol == Protocol::ll ? 4 : 1);
}

}  // namespace

std::uint64_t traffic_per_byte(Collective collective, int ranks) {
    switch (collective) {
        case Collective::all_reduce:
            return 2;
        case Collective::reduce_scatter:
            return static_cast<std::uint64_t>(ranks);
        default:
            return 1;
    }
}

bool is_nvls(Algorithm algorithm) { return algorithm == Algorithm::nvls || algorithm == Algorithm::nvls_tree; }

std::vector<std::vector<ChannelPart>> partition(std::span<const Task> tasks, const Communicator& comm) {
    // NVLS tasks and the others fill the channels independently of each other; tasks are sorted by this kind.
    const auto second = std::find_if(tasks.begin(), tasks.end(), [&](const Task& task) {
        return is_nvls(task.choice.algorithm) != is_nvls(tasks.front().choice.algorithm);
    });
    if (second != tasks.end()) {
        const auto first_kind = static_cast<std::size_t>(second - tasks.begin());
        auto parts = partition(tasks.first(first_kind), comm);
        auto rest = partition(tasks.subspan(first_kind), comm);
        parts.insert(parts.end(), rest.begin(), rest.end());
        return parts;
    }
    const bool rounds_up = comm.version >= NcclVersion{2, 29, 2};
    const std::uint64_t min_traffic = rounds_up ? 32768 : 16384;
    const bool nvls = !tasks.empty() && is_nvls(tasks.front().choice.algorithm);
    const auto max_channels = static_cast<std::uint64_t>(nvls ? nvls_channels : comm.channels());

    std::uint64_t traffic = 0, wanted = 0;
    for (const Task& task : tasks) {
        traffic +=
            std::max(min_traffic, task.call.count * element_bytes(task.call) * traffic_per_byte(task, comm.ranks()));
        wanted += static_cast<std::uint64_t>(task.choice.max_channels);
    }
    const std::uint64_t channels = std::max<std::uint64_t>(1, std::min(wanted, max_channels));
    const std::uint64_t per_channel = rounds_up ? channel_split::round_up(traffic / channels, std::uint64_t{16})
                                                : std::max(min_traffic, traffic / channels);

    std::vector<std::vector<ChannelPart>> parts;
    channel_split::CurrentChannel<std::uint64_t> current{0, 0};
    for (const Task& task : tasks) {
        const std::uint64_t bytes = element_bytes(task.call);
        const std::uint64_t per_byte = traffic_per_byte(task, comm.ranks());
        const std::uint64_t cell = channel_split::cell_bytes(min_traffic, per_byte);
        const std::uint64_t per_cell = cell * per_byte;
        const channel_split::CellSplit<std::uint64_t> split = channel_split::split_cells(
            channel_split::divide_up(task.call.count * bytes, cell), channel_split::divide_up(per_channel, per_cell),
            channel_split::cells_that_fit(current, per_channel, per_cell), current.channel, max_channels);

        std::vector<ChannelPart> own;
        std::uint64_t begin = 0;
        const auto add_part = [&](std::uint64_t cells) {
            const std::uint64_t count = channel_split::part_elements(cells, cell / bytes, begin, task.call.count);
            own.push_back({static_cast<int>(split.first_channel + own.size()), begin, count});
            begin += count;
        };
        add_part(split.cells_lo);
        for (std::uint64_t i = 0; i < split.mid_channels; ++i) add_part(split.cells_per_channel);
        if (split.cells_hi > 0) add_part(split.cells_hi);
        ensure(begin == task.call.count, "the channels' parts cover the call");

        current = channel_split::channel_after(split, current, per_channel, per_cell, max_channels);
        parts.push_back(std::move(own));
    }
    return parts;
}

std::uint64_t chunk_elements(const Task& task, std::uint64_t part_count, const Communicator& comm) {
    const Settings& settings = comm.settings;
    const auto ranks = static_cast<std::uint64_t>(comm.ranks());
    const std::uint64_t part_bytes =
        part_count * element_bytes(task.call) * (task.call.collective == Collective::reduce_scatter ? ranks : 1);
    std::uint64_t chunk = 0, grain = 0;
    switch (task.choice.protocol) {
        case Protocol::ll:
            chunk = settings.ll_buffer / 8 / 2;
            grain = 16;
            break;
        case Protocol::ll128:
            chunk = settings.ll128_buffer / 8 / 16 * 15;
            grain = 1920;
            break;
        case Protocol::simple:
            chunk = settings.simple_buffer / 8;
            grain = 512;
            break;
    }
    if (task.choice.algorithm == Algorithm::ring && task.choice.protocol == Protocol::simple &&
        task.call.collective != Collective::reduce)
        chunk *= 4;  // chunkSteps, include/collectives.h
    if (task.choice.algorithm == Algorithm::tree && task.choice.protocol == Protocol::ll128) {
        const double per_node = static_cast<double>(comm.ranks()) / comm.nodes();
        const double steps = 1 + std::floor(std::log2(comm.nodes())) + 0.1 * per_node;
        const auto pieces = [&] { return static_cast<double>(part_bytes / chunk); };
        while (pieces() < steps * 64 / per_node && chunk > 131072) chunk /= 2;
        while (pieces() < steps * 16 / per_node && chunk > 32768) chunk /= 2;
    }
    if (task.choice.algorithm == Algorithm::pat)
        while (chunk * 16 > part_bytes && chunk > 65536) chunk /= 2;
    return chunk / grain * (grain / element_bytes(task.call));
}

}  // namespace samesum
