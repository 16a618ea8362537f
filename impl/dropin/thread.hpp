// What this library remembers of each thread: the group that is open, whose code is running, what went wrong last.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "impl/dropin/data_call.hpp"

namespace samesum::dropin {

struct Thread {
    int in_nccl = 0;               ///< the real library is running: calls are its own and go straight through
    ncclComm_t playing = nullptr;  ///< a combine of ours is running on this communicator
    int groups = 0;                ///< ncclGroupStart less ncclGroupEnd
    std::uint64_t group = 0;       ///< number of the outermost group, 0 outside
    std::vector<DataCall> deferred;
    ncclResult_t group_result = ncclSuccess;  ///< of what was refused inside the group
    std::string last_error;
};
[[nodiscard]] Thread& this_thread();

/// One line on stderr, and what ncclGetLastError and samesumLastError then say.
ncclResult_t complain(ncclResult_t result, const std::string& line);

}  // namespace samesum::dropin
