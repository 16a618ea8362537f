// What an NCCL_DEBUG=INFO log says about its communicators: rings, trees, graphs, choices, and what it does not say.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/nccl/communicator.hpp"
#include "model/support/environment.hpp"

namespace samesum {

/// What NCCL chose for one call, as rank 0 prints it.
struct LoggedChoice {
    std::string function;                  ///< "AllReduce"; empty in logs before 2.24, which do not say
    std::optional<Collective> collective;  ///< none for functions that add nothing, and where it is not said
    std::uint64_t bytes = 0;               ///< count * element size, for reduce_scatter of one rank's result
    Algorithm algorithm{};
    Protocol protocol{};
    std::optional<int> first_channel, last_channel;  ///< since 2.24
    std::size_t line = 0;
};

/// A symmetric-memory kernel took the call: its order is the kernel's, not a ring's or tree's.
struct LoggedSymmetric {
    std::string function;
    std::uint64_t bytes = 0;
    std::string kernel;
    int blocks = 0;
    std::size_t line = 0;
};

/// A search graph of one node ("Pattern 4, crossNic 0, nChannels 2, bw 24.0/24.0, type NVL/PIX, sameChannels 1").
struct LoggedGraph {
    int pattern = 0;  ///< 4 ring; 1, 2, 3 tree (TreePattern); 5 NVLS; 6 CollNet direct
    int cross_nic = 0;
    GraphSpeed speed;
    std::string type_intra, type_inter;
    std::vector<std::vector<std::string>> lists;  ///< each channel's GPUs as printed, the NICs left out
};

/// One communicator, put together from the lines of all its ranks that the log holds.
struct LogCommunicator {
    std::string file;
    std::string id;  ///< commId, or what else tells it from the others
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

    /// What cannot be known from the log and would be needed, each with what would supply it.
    std::vector<std::string> missing;
    /// What was taken as given, each with what would check it.
    std::vector<std::string> assumptions;
    /// Lines that contradict each other; communicator() refuses while there are any.
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

struct NcclLog {
    std::string file;
    std::vector<LogCommunicator> communicators;  ///< in order of first appearance
    std::vector<std::string> notes;              ///< truncated lines, lines that fit no communicator
    std::size_t lines = 0, nccl_lines = 0;

    /// The communicator with this id or place ("0", "1", ...); with no `pick` the only one, or the only one of most
    /// ranks. Throws UsageError listing the communicators when that is not one.
    [[nodiscard]] const LogCommunicator& communicator(std::string_view pick = {}) const;
};

/// Reads a log as people have them: launcher tags, timestamps and colours in front, CR LF, blank and foreign lines,
/// ranks and communicators interleaved. `file` is for messages. Throws UsageError when there is no NCCL line in it.
[[nodiscard]] NcclLog parse_nccl_log(std::string_view text, const std::string& file);

}  // namespace samesum
