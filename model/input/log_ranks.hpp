// What each rank's process logged: lines to ranks, and ranks to groups of one communicator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "model/input/log_lines.hpp"
#include "model/support/environment.hpp"

namespace samesum {

/// What one rank logged about one communicator; -1, 0 and empty: not said.
struct RankLog {
    std::string host, process, thread;
    std::string pointer, comm_id, parent;
    std::string split;  ///< "split 0 color 1"
    std::size_t first_line = 0;
    bool started = false, complete = false;
    int rank = -1, ranks = 0, nodes = 0, local_ranks = 0, channels = 0;
    std::map<int, ChannelLine> channel_lines;
    std::map<int, std::pair<int, int>> ring;  ///< channel: previous, next
    std::map<int, RankLinks> trees;
    bool trees_cut = false;
    std::optional<LoggedGraph> ring_graph, tree_graph, nvls_graph;
    std::map<std::string, int> gpu_rank;
    std::string bus;
    std::optional<CpuVendor> cpu;
    std::optional<bool> nvls, net_offload, collnet;
    std::string thread_thresholds;
};

struct ProcessLog {
    std::optional<NcclVersion> version;
    Environment environment;
};

/// A call, and whose it is.
struct CallLog {
    std::variant<LoggedChoice, LoggedSymmetric> choice;
    std::string process;
    std::optional<std::size_t> rank;  ///< index in LogRanks::ranks, by the COLL line before it
};

struct LogRanks {
    std::vector<RankLog> ranks;
    std::map<std::string, ProcessLog> processes;
    std::vector<CallLog> calls;
    std::set<NcclVersion> versions;
    bool rccl = false;  ///< the log is RCCL's
    std::size_t lines = 0, nccl_lines = 0, cut_lines = 0, garbled_lines = 0;
};
[[nodiscard]] LogRanks read_log_ranks(std::string_view text);

/// Indices of the ranks of one communicator together, by commId; for splits by parent, count and colour; else by order
/// of appearance. The communicators are in order of first appearance.
[[nodiscard]] std::vector<std::vector<std::size_t>> ranks_by_communicator(const std::vector<RankLog>& ranks);

}  // namespace samesum
