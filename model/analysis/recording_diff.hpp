// What changed between two recordings of the same calls: on another NCCL, driver or machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/input/recording.hpp"

namespace samesum {

/// Calls of one kind and of neighbouring sizes with the same change.
struct RecordingChange {
    std::string what;                            ///< "8 ranks, AllReduce of float32"
    std::uint64_t min_bytes = 0, max_bytes = 0;  ///< of the calls' `count`
    std::string before, after;                   ///< "RING LL, 2 channels"
    std::size_t calls = 0;
    double share = 0;     ///< the largest share of a call's elements that are added in another order
    std::string example;  ///< "element 17: ((0 1) 2) before, (0 (1 2)) now"; empty when no order changed
    [[nodiscard]] bool orders() const { return share > 0; }
    [[nodiscard]] std::string str() const;
};

struct RecordingDiff {
    std::size_t compared = 0, unchanged = 0;
    std::vector<RecordingChange> changes;
    std::vector<std::string> only_before, only_after;  ///< calls that the other recording does not have
};
[[nodiscard]] RecordingDiff diff_recordings(std::span<const Record> before, std::span<const Record> after);

}  // namespace samesum
