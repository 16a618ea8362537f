// NCCL's search graphs as XML (NCCL_GRAPH_DUMP_FILE, NCCL_GRAPH_FILE): each channel's GPU list of one node.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/nccl/communicator.hpp"

namespace samesum {

/// One graph of the file. NCCL's ids: 0 ring, 1 tree, 2 CollNet chain, 3 NVLS, 4 CollNet direct.
struct SearchGraph {
    int id = 0;
    int pattern = 0;
    int cross_nic = 0;
    GraphSpeed speed;
    std::string type_intra, type_inter;
    /// By channel, the GPUs in the order of the list: places 0..g-1 among the node's GPUs sorted by dev or rank.
    std::vector<std::vector<int>> channels;
};

struct GraphFile {
    std::string file;
    int gpus = 0;  ///< of the node
    std::vector<SearchGraph> graphs;
    std::vector<std::string> assumptions;  ///< made while reading it

    /// Null when the file has no such graph or it has no channels.
    [[nodiscard]] const SearchGraph* find(int id) const;
};

/// `file` is for messages. Throws UsageError: not XML, no ring graph, lists that are not permutations of the GPUs.
[[nodiscard]] GraphFile parse_graph_file(std::string_view text, const std::string& file);

/// All nodes alike: node v has ranks v * ranks_per_node + place. Channels are doubled as NCCL does (connect.cc,
/// ncclTopoPostset); trees are unknown when the file has no tree graph. Throws UsageError when ranks_per_node is not
/// the file's number of GPUs.
[[nodiscard]] Communicator communicator_from_graph(const GraphFile& graph, int nodes, int ranks_per_node);

/// What communicator_from_graph assumes, each with a way to verify it.
[[nodiscard]] std::vector<std::string> graph_assumptions(const GraphFile& graph, int nodes);

}  // namespace samesum
