// What an NCCL_DEBUG=INFO log says about its communicators: rings, trees, graphs, choices, and what it does not say.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "model/input/log_communicator.hpp"

namespace samesum {

struct NcclLog {
    std::string file;
    std::vector<LogCommunicator> communicators;  ///< in order of first appearance
    std::vector<std::string> notes;              ///< truncated lines, lines that fit no communicator
    std::size_t lines = 0, nccl_lines = 0;

    /// The communicator with this id or place ("0", "1", ...); with no `pick` the only one, or the only one of the
    /// largest size. Throws UsageError listing the communicators when that is not one.
    [[nodiscard]] const LogCommunicator& communicator(std::string_view pick = {}) const;
};

/// Reads a log as users have it: launcher tags, timestamps and colours in front, CR LF, blank and foreign lines,
/// ranks and communicators interleaved. `file` is for messages. Throws UsageError when there is no NCCL line in it.
[[nodiscard]] NcclLog parse_nccl_log(std::string_view text, const std::string& file);

}  // namespace samesum
