// Which rank sits on which host, node and GPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/nccl/call.hpp"

namespace samesum::gpu {

/// Where a rank that a launcher started sits.
struct RankLocation {
    std::string host, gpu;  ///< equal texts mean the same host, the same GPU
    int device = 0;         ///< the GPU's number in the rank's process
};

/// The GPUs and versions of this machine, or of the machines of a launched job.
struct Hardware {
    std::vector<std::string> gpus;  ///< names; of a launched job those that ranks sit on
    int compute_capability = 0;     ///< of the first
    std::string driver, runtime;
    NcclVersion nccl;
    std::vector<RankLocation> locations{};  ///< of a launched job's ranks; empty where this process starts its own
};

/// The ranks of one node sit on different GPUs. A node is a host, or a value of NCCL_HOSTID.
struct Placement {
    int ranks = 1, ranks_per_node = 1;
    std::vector<int> gpu_of;  ///< each rank's device number
    bool several_nodes = false;
    bool gpus_are_shared = false;
    int hosts = 1;
    bool nodes_are_hosts = false;  ///< NCCL_HOSTID is not needed
};
/// With `ranks_per_node` 0: one node where there are enough GPUs, else one rank per node.
/// Throws UsageError when a node has more ranks than there are GPUs, or `ranks` is not a multiple of `ranks_per_node`.
[[nodiscard]] Placement place_ranks(int ranks, int ranks_per_node, int gpus);
/// The same for the first `ranks` of a launched job. With `ranks_per_node` 0 and no two ranks on one GPU, the hosts are
/// the nodes; consecutive ranks must then sit on one host, equally many on each.
[[nodiscard]] Placement place_ranks(int ranks, int ranks_per_node, std::span<const RankLocation> locations);
[[nodiscard]] Placement place_ranks(int ranks, int ranks_per_node, const Hardware& hardware);

}  // namespace samesum::gpu
