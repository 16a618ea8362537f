// One thread_local object: it lives as long as its thread.
// SPDX-License-Identifier: Apache-2.0
#include "impl/dropin/thread_state.hpp"

#include <cstdio>

namespace samesum::dropin {

ThreadState& this_thread() {
    static thread_local ThreadState state;
    return state;
}

bool is_internal() { return this_thread().nccl_depth > 0 || this_thread().combining_on != nullptr; }

InternalCallGuard::InternalCallGuard(ncclComm_t comm) : before_(this_thread().combining_on) {
    this_thread().combining_on = comm;
}
InternalCallGuard::~InternalCallGuard() { this_thread().combining_on = before_; }

ncclResult_t keep_error(ncclResult_t result, const std::string& line) {
    this_thread().last_error = line;
    return result;
}

ncclResult_t report_error(ncclResult_t result, const std::string& line) {
    std::fprintf(stderr, "samesum: %s\n", line.c_str());
    return keep_error(result, line);
}

}  // namespace samesum::dropin
