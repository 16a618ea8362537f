// Reads lines of bit patterns at the speed of a pipe: "0x3f80 0xbf80 0x0001", one element a line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/arithmetic/format.hpp"
#include "model/support/error.hpp"

namespace samesum {

/// Patterns are hex, with or without 0x, separated by spaces or tabs. Empty lines and lines that begin with '#' are
/// skipped.
class HexLines {
public:
    /// columns: patterns a line; 0: as many as the first line has.
    HexLines(int file_descriptor, Format format, std::size_t columns);

    /// Known at once, or after the first line was read; 0 when there is none.
    [[nodiscard]] std::size_t columns();
    /// Appends up to `most` lines to the columns, elements as they lie in memory (little endian), and returns how many.
    /// 0: the end. A bad line throws UsageError with its number, what is there and what would be right, once all lines
    /// before it have been returned.
    std::size_t read(std::span<std::vector<std::byte>> columns, std::size_t max);
    /// Of the last line returned, counted from 1 with skipped lines.
    [[nodiscard]] std::uint64_t line() const { return line_; }

private:
    bool refill();
    [[nodiscard]] std::vector<Bits> careful(const char* begin, const char* end) const;

    int file_;
    Format format_;
    std::size_t columns_;
    std::vector<char> buffer_;
    std::size_t at_ = 0, end_ = 0;  // whole lines of the buffer that are still to be read
    std::size_t filled_ = 0;
    bool finished_ = false;
    std::uint64_t line_ = 0;
    std::optional<UsageError> failure_;
};

/// Appends "0x3f80\n" for each element of a buffer.
void append_hex_lines(Format format, std::span<const std::byte> elements, std::string& text);

}  // namespace samesum
