// Records of orders revealed on real NCCL, one JSON object a line, and the model's prediction held against each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/nccl/call.hpp"
#include "model/nccl/topology.hpp"
#include "model/sum/reduction_tree.hpp"

namespace samesum {

/// What NCCL wrote about a call: "AllReduce: 64 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}".
struct SaidByNccl {
    Collective collective{};
    std::uint64_t bytes = 0;
    Algorithm algorithm{};
    Protocol protocol{};
    int first_channel = 0, last_channel = 0;
};
/// Nothing when the line is not of this form.
[[nodiscard]] std::optional<SaidByNccl> parse_choice_line(std::string_view line);

/// One record; the fields are those of the README beside the recordings.
struct Record {
    int ranks = 0, ranks_per_node = 1;
    Call call;
    std::vector<Call> group;  ///< calls of the group in program order; empty for a lone call
    std::size_t index = 0;    ///< which of them this is
    std::string algorithms, protocols, min_channels, graph;  ///< settings in force, as text
    std::vector<SaidByNccl> said;                            ///< one a call, in NCCL's scheduling order
    std::vector<Ring> rings;
    std::string rank0_trees;
    std::string gpu;
    NcclVersion version;
    std::vector<ReductionTree> trees;  ///< canonical
    struct Range {
        std::uint64_t begin, end;
        std::size_t tree;
    };
    std::vector<Range> segments;
};

/// Throws UsageError naming the field that is missing or wrong.
[[nodiscard]] Record parse_record(std::string_view line);

/// "ar:COUNT", "rs:COUNT", "reduce:ROOT:COUNT", joined by ';', as records write groups. Throws UsageError.
[[nodiscard]] std::vector<Call> parse_calls(std::string_view text, Format format);

}  // namespace samesum
