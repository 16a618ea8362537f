// NVIDIA's library behind ours: opened at the first call, each function looked up by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <string>

#include "impl/dropin/thread_state.hpp"

namespace samesum::dropin {

/// The real function of this name; null, with an error line on stderr, where there is none. The library is the file
/// named by SAMESUM_NCCL, else the loader's libnccl.so.2. It is opened at the first call and not when ours is loaded: a
/// program's own libnccl.so.2 is loaded by then, and the loader returns the same one.
[[nodiscard]] void* real_function(const char* name);
/// The result of a call whose real function is null: ncclSystemError without a library, else ncclInvalidUsage.
[[nodiscard]] ncclResult_t missing_function_result();
/// Path of the real library, for the recorded file and error messages.
[[nodiscard]] const std::string& real_path();

/// Calls the real function behind `exported`, our function of the same name. Calls that NCCL makes meanwhile are
/// internal.
template <auto exported, class... Arguments>
ncclResult_t forward(const char* name, Arguments... arguments) {
    static const auto function = reinterpret_cast<decltype(exported)>(real_function(name));
    if (function == nullptr) return missing_function_result();
    ThreadState& thread = this_thread();
    ++thread.nccl_depth;
    const ncclResult_t result = function(arguments...);
    --thread.nccl_depth;
    if (result != ncclSuccess && result != ncclInProgress && thread.nccl_depth == 0) thread.last_error.clear();
    return result;
}

/// A nonblocking communicator returns ncclInProgress. Waits until it is ready, so that the calls of a combine can go
/// on; at most SAMESUM_TIMEOUT_S, and not after an abort. Only where an InternalCallGuard lives, whose thread's
/// internal_error then says why.
ncclResult_t wait_until_ready(ncclComm_t comm, ncclResult_t result);
/// The result of a call that is not made because the communicator was aborted.
ncclResult_t aborted_result();

}  // namespace samesum::dropin
