// Records of orders that were revealed on real NCCL, one JSON object per line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/input/log_lines.hpp"
#include "model/nccl/call.hpp"
#include "model/nccl/topology.hpp"
#include "model/sum/reduction_tree.hpp"
#include "model/sum/reveal.hpp"

namespace samesum {

/// One record. Its fields are described in the README beside the recordings.
struct Record {
    int ranks = 0, ranks_per_node = 1;
    Call call;
    std::vector<Call> group;  ///< calls of the group in program order; empty for a lone call
    std::size_t index = 0;    ///< which of them this is
    std::string algorithms, protocols, min_channels, graph;  ///< settings in force, as text
    std::vector<LoggedChoice> choices;  ///< one per call, in NCCL's scheduling order; each with collective and channels
    std::vector<Ring> rings;
    std::string rank0_trees;
    std::string gpu;
    NcclVersion version;
    std::vector<ReductionTree> trees;  ///< canonical
    std::vector<RevealedRange> segments;
};

/// Throws UsageError naming the field that is missing or wrong.
[[nodiscard]] Record parse_record(std::string_view line);

/// "ar:COUNT", "rs:COUNT", "reduce:ROOT:COUNT", joined by ';', as records write groups. Throws UsageError.
[[nodiscard]] std::vector<Call> parse_calls(std::string_view text, Format format);

}  // namespace samesum
