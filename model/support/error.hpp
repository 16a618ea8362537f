// Errors by cause: wrong input (UsageError), a defect in samesum (ensure), or no possible answer (Inconclusive); exit
// codes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>

namespace samesum {

/// The exit codes of every command.
enum class Exit : int {
    as_claimed = 0,      ///< everything came out as the claims say
    not_as_claimed = 1,  ///< something did not
    usage = 2,           ///< the user's input is wrong
    inconclusive = 3,    ///< no device, time-out, solver says unknown, order not observable
};

/// The user's input is wrong. The message is one line: what is wrong, where, what is expected.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// The input is right, but the question cannot be answered; the message says why.
struct Inconclusive : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A defect in samesum: throws std::logic_error naming the source location. Enabled in every build.
void ensure(bool condition, const char* what, std::source_location where = std::source_location::current());

}  // namespace samesum
