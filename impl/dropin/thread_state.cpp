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

InternalCallGuard::InternalCallGuard(ncclComm_t comm, AbortGate& gate)
    : comm_before_(this_thread().combining_on), gate_before_(this_thread().gate) {
    ThreadState& thread = this_thread();
    thread.combining_on = comm;
    thread.gate = &gate;
    thread.internal_error.clear();
}

InternalCallGuard::~InternalCallGuard() {
    this_thread().combining_on = comm_before_;
    this_thread().gate = gate_before_;
}

ncclResult_t keep_error(ncclResult_t result, const std::string& line) {
    this_thread().last_error = line;
    return result;
}

ncclResult_t report_error(ncclResult_t result, const std::string& line) {
    std::fprintf(stderr, "samesum: %s\n", line.c_str());
    return keep_error(result, line);
}

}  // namespace samesum::dropin
