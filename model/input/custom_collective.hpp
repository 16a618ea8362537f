// Collectives that are not NCCL's, described in a small file: which path a call of some size takes, and its order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/nccl/schedule.hpp"

namespace samesum {

/// One path of a collective that switches between several by size, e.g. vLLM's one-stage and two-stage all-reduce:
///
///     {"name": "custom all-reduce", "ranks": 4, "paths": [
///       {"name": "one stage", "below_bytes": 524288, "multiple_of_bytes": 16, "order": "rank_order", "rounding":
///       "fp32_once"},
///       {"name": "two stages", "below_bytes": 8388608, "multiple_of_bytes": 16, "order": "from_owner"},
///       {"name": "library", "order": "((0 1) (2 3))"}]}
///
/// The first path whose conditions hold takes the call. `order`: "rank_order"; "from_owner": the buffer is cut into one
/// equal part per rank, part r is summed from rank r on; a tree: for every element; a list of trees: one per part.
struct CustomPath {
    std::string name;
    std::optional<std::uint64_t> below_bytes;
    std::uint64_t multiple_of_bytes = 1;
    std::vector<ReductionTree> trees;  ///< one for the whole buffer, or one for each rank's part
    Accumulation accumulation = Accumulation::per_hop;

    [[nodiscard]] bool takes(std::uint64_t bytes) const {
        return bytes % multiple_of_bytes == 0 && (!below_bytes || bytes < *below_bytes);
    }
};

struct CustomCollective {
    std::string name;
    int ranks = 0;
    std::vector<CustomPath> paths;

    /// Index of the path that takes a call of this size; nothing when none does.
    [[nodiscard]] std::optional<std::size_t> path(std::uint64_t bytes) const;
};

/// `file` is for messages. Throws UsageError naming the path and field that is wrong.
[[nodiscard]] CustomCollective parse_custom(std::string_view text, const std::string& file);

/// Do two paths give every element the same order and rounding?
[[nodiscard]] bool same_class(const CustomPath& a, const CustomPath& b);

}  // namespace samesum
