// Turns a violated invariant into an exception.
// SPDX-License-Identifier: Apache-2.0
#include "model/support/error.hpp"

namespace samesum {

void ensure(bool condition, const char* what, std::source_location where) {
    if (condition) return;
    throw std::logic_error(std::string("a defect in samesum: ") + what + " does not hold (" + where.file_name() + ":" +
                           std::to_string(where.line()) + ")");
}

}  // namespace samesum
