// Kept alive by the thread itself.
// SPDX-License-Identifier: Apache-2.0
#include "impl/dropin/thread.hpp"

#include <cstdio>

namespace samesum::dropin {

Thread& this_thread() {
    static thread_local Thread thread;
    return thread;
}

ncclResult_t complain(ncclResult_t result, const std::string& line) {
    this_thread().last_error = line;
    std::fprintf(stderr, "samesum: %s\n", line.c_str());
    return result;
}

}  // namespace samesum::dropin
