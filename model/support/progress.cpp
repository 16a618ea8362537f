// A terminal is recognised by isatty(); NO_COLOR turns off colours only.
// SPDX-License-Identifier: Apache-2.0
#include "model/support/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <utility>

namespace samesum {

bool colourful(int file_descriptor) { return ::isatty(file_descriptor) == 1 && std::getenv("NO_COLOR") == nullptr; }

double monotonic_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Progress::Progress(std::string what)
    : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) == 1), shown_(monotonic_seconds()) {}

Progress::~Progress() {
    if (visible_) fmt::print(stderr, "\r\x1b[K");
}

void Progress::update(std::string_view status) {
    const double now = monotonic_seconds();
    if (now - shown_ < (terminal_ ? 0.1 : 30)) return;
    shown_ = now;
    if (terminal_) {
        fmt::print(stderr, "\r\x1b[K{}: {}", what_, status);
        visible_ = true;
    } else {
        fmt::print(stderr, "{}: {}\n", what_, status);
    }
}

}  // namespace samesum
