// What this library keeps for each thread: the open group, whose code is running, the last error.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "impl/dropin/data_call.hpp"

namespace samesum::dropin {

class AbortGate;

struct ThreadState {
    int nccl_depth = 0;                 ///< above 0 the real library is running: its own calls are forwarded unchanged
    ncclComm_t combining_on = nullptr;  ///< the communicator on which a combine of ours is running
    AbortGate* gate = nullptr;          ///< of that communicator
    std::string internal_error;         ///< why a call of that combine failed, where NCCL does not know
    int group_depth = 0;                ///< ncclGroupStart less ncclGroupEnd
    std::uint64_t group = 0;            ///< number of the outermost group, 0 outside
    std::vector<DataCall> deferred;     ///< replaced calls of the open group, run when it ends
    ncclResult_t group_result = ncclSuccess;  ///< of a call refused inside the group
    std::string last_error;
};
[[nodiscard]] ThreadState& this_thread();
/// True while NCCL or a combine of ours runs on this thread: a call is then not the program's, and no policy applies.
[[nodiscard]] bool is_internal();

/// While it lives, NCCL calls of this thread are parts of a combine on this communicator, until its abort closes
/// `gate`.
class InternalCallGuard {
public:
    InternalCallGuard(ncclComm_t comm, AbortGate& gate);
    ~InternalCallGuard();
    InternalCallGuard(const InternalCallGuard&) = delete;
    InternalCallGuard& operator=(const InternalCallGuard&) = delete;

private:
    ncclComm_t comm_before_;
    AbortGate* gate_before_;
};

/// Keeps the line for ncclGetLastError and samesumLastError. Returns `result`.
ncclResult_t keep_error(ncclResult_t result, const std::string& line);
/// The same, and prints the line on stderr.
ncclResult_t report_error(ncclResult_t result, const std::string& line);

}  // namespace samesum::dropin
