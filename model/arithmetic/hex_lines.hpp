// A fast reader of lines of bit patterns: "0x3f80 0xbf80 0x0001", one element per line.
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
    /// columns: patterns per line; 0: as many as the first line has.
    HexLines(int file_descriptor, Format format, std::size_t columns);

    /// As given, else that of the first line; 0 if there is no line.
    [[nodiscard]] std::size_t columns();
    /// Appends up to `max` lines to the columns, as little-endian elements, and returns their number; 0 at the end. A
    /// bad line throws UsageError with its number, what it holds and what is expected, after all lines before it have
    /// been returned.
    std::size_t read(std::span<std::vector<std::byte>> columns, std::size_t max);
    /// Number of the last line returned, counted from 1, skipped lines included.
    [[nodiscard]] std::uint64_t line() const { return line_; }

private:
    bool refill();
    [[nodiscard]] std::vector<Bits> parse_line(const char* begin, const char* end) const;

    int file_;
    Format format_;
    std::size_t columns_;
    std::vector<char> buffer_;
    std::size_t at_ = 0, end_ = 0;  // complete lines of the buffer that have not been returned yet
    std::size_t filled_ = 0;
    bool finished_ = false;
    std::uint64_t line_ = 0;
    std::optional<UsageError> failure_;
};

/// Appends "0x3f80\n" for each element of a buffer.
void append_hex_lines(Format format, std::span<const std::byte> elements, std::string& text);

}  // namespace samesum
