// The calls of a job, as libsamesum-nccl recorded them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/nccl/call.hpp"
#include "model/nccl/settings.hpp"

namespace samesum {

/// One communicator as one process saw it.
struct RecordedCommunicator {
    int ranks = 0;
    int rank = 0;
    std::optional<int> gpus_seen;  ///< of its host
};

struct RecordedCall {
    std::string collective;              ///< NCCL's name, "AllReduce"
    std::optional<Collective> reducing;  ///< none for those that add nothing
    std::optional<Format> format;        ///< none where NCCL has no such type
    Operation operation = Operation::sum;
    std::uint64_t communicator = 0;  ///< key of CallStream::communicators
    std::uint64_t count = 0;
    int root = 0;
    std::uint64_t group = 0;  ///< calls of one ncclGroupStart/End share a number; 0: a call by itself
    bool captured = false, in_place = false;
    std::string did;  ///< "forwarded", "replaced" or "refused"
};

/// What one process wrote.
struct CallStream {
    std::string file;
    NcclVersion version{};
    std::string policy{};       ///< "observe", "fixed_root", "ordered" or "direct"
    Environment environment{};  ///< its NCCL_* settings
    std::map<std::uint64_t, RecordedCommunicator> communicators{};
    std::vector<RecordedCall> calls{};
};

/// An unfinished last line, left by a killed process, is skipped. Throws UsageError naming file and line.
[[nodiscard]] CallStream parse_call_stream(std::string_view text, const std::string& file);

}  // namespace samesum
