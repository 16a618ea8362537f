// NVIDIA's library behind ours: found at the first call, asked for each function by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <string>

#include "impl/dropin/thread.hpp"

namespace samesum::dropin {

/// The real function of this name, or null, said on stderr once: SAMESUM_NCCL's file, else the loader's libnccl.so.2.
/// That library is looked for at the first call and not when ours is loaded: a program's own libnccl.so.2 is then
/// there already, and the loader gives the same one.
[[nodiscard]] void* real_function(const char* name);
/// What a call answers whose real function is null: ncclSystemError without a library, else ncclInvalidUsage.
[[nodiscard]] ncclResult_t no_function();
/// Where the real library lies, for people.
[[nodiscard]] const std::string& real_path();

/// Calls the real function behind `exported`, which is ours of that name. What NCCL calls meanwhile is its own affair.
template <auto exported, class... Arguments>
ncclResult_t forward(const char* name, Arguments... arguments) {
    static const auto function = reinterpret_cast<decltype(exported)>(real_function(name));
    if (function == nullptr) return no_function();
    Thread& thread = this_thread();
    ++thread.in_nccl;
    const ncclResult_t result = function(arguments...);
    --thread.in_nccl;
    if (result != ncclSuccess && result != ncclInProgress && thread.in_nccl == 0) thread.last_error.clear();
    return result;
}

}  // namespace samesum::dropin
