// Consecutive ranks fill one node after another.
// SPDX-License-Identifier: Apache-2.0
#include "impl/ranks/placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>

#include "model/support/error.hpp"

namespace samesum::gpu {
namespace {

void check_whole_nodes(const Placement& placement) {
    if (placement.ranks % placement.ranks_per_node != 0)
        throw UsageError(
            fmt::format("{} ranks are not a multiple of {} ranks per node", placement.ranks, placement.ranks_per_node));
}

bool same_host(const RankLocation& a, const RankLocation& b) { return a.host == b.host; }
bool same_gpu(const RankLocation& a, const RankLocation& b) { return same_host(a, b) && a.gpu == b.gpu; }

int count_hosts(std::span<const RankLocation> locations) {
    std::set<std::string> hosts;
    for (const RankLocation& location : locations) hosts.insert(location.host);
    return static_cast<int>(hosts.size());
}

/// Ranks on each host when the ranks of one host follow each other, equally many on each; else 0.
std::size_t even_ranks_per_host(std::span<const RankLocation> locations, int hosts) {
    std::vector<std::size_t> begins;  // of runs of ranks on one host
    for (std::size_t rank = 0; rank < locations.size(); ++rank)
        if (rank == 0 || !same_host(locations[rank], locations[rank - 1])) begins.push_back(rank);
    const std::size_t each = locations.size() / begins.size();
    bool even = static_cast<std::size_t>(hosts) == begins.size() && each * begins.size() == locations.size();
    for (std::size_t run = 0; run < begins.size(); ++run) even = even && begins[run] == run * each;
    return even ? each : 0;
}

/// Throws UsageError unless the ranks of each node sit on one host and on different GPUs.
void check_nodes(std::span<const RankLocation> locations, std::size_t in_node) {
    for (std::size_t rank = 0; rank < locations.size(); ++rank)
        for (std::size_t other = rank / in_node * in_node; other < rank; ++other) {
            const bool one_host = same_host(locations[rank], locations[other]);
            if (!one_host || same_gpu(locations[rank], locations[other]))
                throw UsageError(fmt::format("{} ranks per node need a host and as many GPUs; ranks {} and {} {}",
                                             in_node, other, rank, one_host ? "share a GPU" : "sit on two hosts"));
        }
}

}  // namespace

Placement place_ranks(int ranks, int ranks_per_node, int gpus) {
    if (ranks < 1) throw UsageError(fmt::format("{} ranks: expected at least 1", ranks));
    Placement placement;
    placement.ranks = ranks;
    placement.ranks_per_node = ranks_per_node > 0 ? ranks_per_node : (ranks <= gpus ? ranks : 1);
    if (placement.ranks_per_node > gpus)
        throw UsageError(
            fmt::format("{} ranks per node need as many GPUs: expected at most {}", placement.ranks_per_node, gpus));
    check_whole_nodes(placement);
    placement.several_nodes = placement.ranks_per_node < ranks;
    placement.gpus_are_shared = ranks > gpus;
    // Consecutive ranks sit on consecutive GPUs, so those of one node never share one: a node has no more ranks than
    // there are GPUs.
    for (int rank = 0; rank < ranks; ++rank) placement.gpu_of.push_back(rank % gpus);
    return placement;
}

Placement place_ranks(int ranks, int ranks_per_node, std::span<const RankLocation> locations) {
    if (ranks < 1 || static_cast<std::size_t>(ranks) > locations.size())
        throw UsageError(fmt::format("{} ranks: expected 1 to {}", ranks, locations.size()));
    locations = locations.first(static_cast<std::size_t>(ranks));
    Placement placement;
    placement.ranks = ranks;
    placement.hosts = count_hosts(locations);
    for (std::size_t rank = 0; rank < locations.size(); ++rank) {
        placement.gpu_of.push_back(locations[rank].device);
        for (std::size_t other = 0; other < rank; ++other)
            placement.gpus_are_shared |= same_gpu(locations[rank], locations[other]);
    }
    const std::size_t on_each_host = even_ranks_per_host(locations, placement.hosts);
    if (ranks_per_node == 0 && !placement.gpus_are_shared) {
        if (on_each_host == 0)
            throw UsageError(
                "the ranks of one host do not follow each other, equally many on each: expected --ranks-per-node 1 or "
                "another mapping by the launcher");
        ranks_per_node = static_cast<int>(on_each_host);
    }
    placement.ranks_per_node = std::max(ranks_per_node, 1);
    check_whole_nodes(placement);
    check_nodes(locations, static_cast<std::size_t>(placement.ranks_per_node));
    placement.several_nodes = placement.ranks_per_node < ranks;
    placement.nodes_are_hosts = on_each_host == static_cast<std::size_t>(placement.ranks_per_node);
    return placement;
}

Placement place_ranks(int ranks, int ranks_per_node, const Hardware& hardware) {
    return hardware.locations.empty() ? place_ranks(ranks, ranks_per_node, static_cast<int>(hardware.gpus.size()))
                                      : place_ranks(ranks, ranks_per_node, hardware.locations);
}

}  // namespace samesum::gpu
