// A status line on stderr for long work, and the clock for it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace samesum {

/// Whether the stream is a terminal and NO_COLOR is not set.
[[nodiscard]] bool colourful(int file_descriptor);

/// A status line on stderr for long work: rewritten in place on a terminal, one plain line every 30 s elsewhere.
class Progress {
public:
    explicit Progress(std::string what);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    void update(std::string_view status);

private:
    std::string what_;
    bool terminal_;
    double shown_;
    bool visible_ = false;
};

/// Seconds since some fixed point, for durations.
[[nodiscard]] double monotonic_seconds();

}  // namespace samesum
