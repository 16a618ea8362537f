// One communicator, put together from what its ranks logged: rings, trees, graphs, and what the log does not say.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/input/log_ranks.hpp"
#include "model/nccl/communicator.hpp"
#include "model/support/environment.hpp"

namespace samesum {

struct LogCommunicator {
    std::string file;
    std::string id;  ///< commId, or what else identifies it
    std::optional<NcclVersion> version;
    int ranks = 0;  ///< 0 when the log does not say
    int nodes = 0;
    int channels = 0;
    std::vector<int> logged_ranks;
    std::vector<int> node_of;                     ///< empty when the log does not say
    std::vector<std::optional<Ring>> rings;       ///< by channel, written from rank 0
    std::vector<std::optional<TreeLinks>> trees;  ///< by channel
    std::optional<LoggedGraph> ring_graph, tree_graph, nvls_graph;
    std::optional<CpuVendor> cpu;
    std::optional<bool> nvls;         ///< multicast support
    std::optional<bool> net_offload;  ///< a device-side net plugin, which excludes PAT
    std::optional<bool> collnet;
    std::string thread_thresholds;  ///< as printed
    std::vector<LoggedChoice> choices;
    std::vector<LoggedSymmetric> symmetric;
    Environment environment;  ///< settings that its processes reported

    /// What is needed and not in the log, each with a way to supply it.
    std::vector<std::string> missing;
    /// Assumptions, each with a way to verify it.
    std::vector<std::string> assumptions;
    /// Lines that contradict each other; communicator() throws while there are any.
    std::vector<std::string> contradictions;

    /// The choice for such a call, if the log shows one.
    [[nodiscard]] const LoggedChoice* choice(Collective collective, std::uint64_t bytes) const;
    /// As far as known: trees that are not known are null. Machine is set when `compute_capability` (e.g. 90) is given
    /// and the log has the graphs. Throws UsageError naming what is missing (ranks, rings), contradictory, or a release
    /// that is not modelled; `as_if` is then the release to answer for.
    [[nodiscard]] Communicator communicator(std::optional<NcclVersion> as_if = {},
                                            std::optional<int> compute_capability = {}) const;
    /// "8 ranks on 2 nodes, 4 channels, NCCL 2.28.9, ranks 0 to 7 logged".
    [[nodiscard]] std::string str() const;
};

/// The communicator of the ranks with these indices, without its choices. `file` is for messages.
[[nodiscard]] LogCommunicator assemble_communicator(const LogRanks& log, const std::vector<std::size_t>& members,
                                                    const std::string& file);

}  // namespace samesum
