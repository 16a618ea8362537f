// Lines in the default form are parsed eight digits at a time, by arithmetic on a 64-bit word; others by parse_hex().
// SPDX-License-Identifier: Apache-2.0
#include "model/arithmetic/hex_lines.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace samesum {
namespace {

constexpr std::size_t block = std::size_t{1} << 18;
constexpr std::size_t padding = 32;  // readable bytes after the last line

/// Eight hex digits, the first in the lowest byte; false if one is not a hex digit.
inline bool eight_digits(std::uint64_t text, std::uint64_t& value) {
    constexpr std::uint64_t each = 0x0101010101010101;
    const std::uint64_t letters = (text >> 6) & each;
    std::uint64_t nibbles = (text & (15 * each)) + 9 * letters;
    // Formatted again, the value must equal the text in lower case.
    const std::uint64_t is_letter = ((nibbles + 6 * each) >> 4) & each;
    const std::uint64_t again = nibbles + 0x30 * each + 39 * is_letter;
    if ((nibbles & (0xf0 * each)) != 0 || again != (text | (letters << 5))) return false;
    nibbles = ((nibbles << 4) | (nibbles >> 8)) & 0x00ff00ff00ff00ff;
    nibbles = ((nibbles << 8) | (nibbles >> 16)) & 0x0000ffff0000ffff;
    value = ((nibbles << 16) | (nibbles >> 32)) & 0xffffffff;
    return true;
}

/// Exactly `Bytes` * 2 digits.
template <std::size_t Bytes>
inline bool digits(const char* from, std::uint64_t& value) {
    if constexpr (Bytes == 8) {
        std::uint64_t first = 0, second = 0, high = 0, low = 0;
        std::memcpy(&first, from, 8);
        std::memcpy(&second, from + 8, 8);
        const bool good = eight_digits(first, high) && eight_digits(second, low);
        value = high << 32 | low;
        return good;
    } else {
        std::uint64_t text = 0x3030303030303030;
        std::memcpy(&text, from, 2 * Bytes);
        const bool good = eight_digits(text, value);
        value >>= 32 - 8 * Bytes;
        return good;
    }
}

/// Parses one line in the default form; returns its end, or null.
template <std::size_t Bytes>
inline const char* parse_default_line(const char* at, std::size_t columns, std::byte* const* out) {
    for (std::size_t column = 0; column < columns; ++column) {
        if (column > 0 && *at++ != ' ') return nullptr;
        if (at[0] == '0' && (at[1] | 0x20) == 'x') at += 2;
        std::uint64_t value = 0;
        if (!digits<Bytes>(at, value)) return nullptr;
        std::memcpy(out[column], &value, Bytes);
        at += 2 * Bytes;
    }
    return *at == '\n' ? at : nullptr;
}

inline const char* parse_default_line(std::size_t bytes, const char* at, std::size_t columns, std::byte* const* out) {
    switch (bytes) {
        case 1:
            return parse_default_line<1>(at, columns, out);
        case 2:
            return parse_default_line<2>(at, columns, out);
        case 4:
            return parse_default_line<4>(at, columns, out);
        default:
            return parse_default_line<8>(at, columns, out);
    }
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

}  // namespace

HexLines::HexLines(int file_descriptor, Format format, std::size_t columns)
    : file_(file_descriptor), format_(format), columns_(columns), buffer_(block + padding) {}

/// Moves the remaining bytes to the front and reads until there is a complete line. False at the end.
bool HexLines::refill() {
    std::memmove(buffer_.data(), buffer_.data() + at_, filled_ - at_);
    filled_ -= at_;
    at_ = end_ = 0;
    while (!finished_) {
        if (filled_ + padding + 1 >= buffer_.size()) buffer_.resize(2 * buffer_.size());
        const ssize_t got = ::read(file_, buffer_.data() + filled_, buffer_.size() - padding - 1 - filled_);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw UsageError(fmt::format("cannot read the input: {}", std::strerror(errno)));
        const std::size_t before = filled_;
        filled_ += static_cast<std::size_t>(got);
        if (got == 0) {
            finished_ = true;
            if (filled_ > 0 && buffer_[filled_ - 1] != '\n') buffer_[filled_++] = '\n';
            end_ = filled_;
            break;
        }
        const auto last = std::find(buffer_.rend() - static_cast<std::ptrdiff_t>(filled_),
                                    buffer_.rend() - static_cast<std::ptrdiff_t>(before), '\n');
        if (last != buffer_.rend() - static_cast<std::ptrdiff_t>(before)) {
            end_ = static_cast<std::size_t>(buffer_.rend() - last);
            break;
        }
    }
    return end_ > 0;
}

std::vector<Bits> HexLines::parse_line(const char* begin, const char* end) const {
    std::vector<Bits> patterns;
    for (const char* at = begin; at < end;) {
        while (at < end && is_space(*at)) ++at;
        const char* word = at;
        while (at < end && !is_space(*at)) ++at;
        if (at == word) continue;
        if (at - word > 40)
            throw UsageError(fmt::format("'{}...' is too long for a bit pattern", std::string(word, 40)));
        patterns.push_back(parse_hex(format_, std::string_view(word, static_cast<std::size_t>(at - word))));
    }
    return patterns;
}

std::size_t HexLines::columns() {
    while (columns_ == 0) {
        if (at_ == end_ && !refill()) return 0;
        const char* begin = buffer_.data() + at_;
        const char* end = static_cast<const char*>(std::memchr(begin, '\n', end_ - at_));
        const char* first = std::find_if_not(begin, end, is_space);
        if (first != end && *first != '#') {
            try {
                columns_ = parse_line(begin, end).size();
            } catch (const UsageError& error) {
                throw UsageError(fmt::format("line {}: {}", line_ + 1, error.what()));
            }
            break;
        }
        at_ = static_cast<std::size_t>(end + 1 - buffer_.data());
        ++line_;
    }
    return columns_;
}

std::size_t HexLines::read(std::span<std::vector<std::byte>> columns, std::size_t max) {
    if (failure_) throw *failure_;
    const auto bytes = static_cast<std::size_t>(traits(format_).bytes());
    if (HexLines::columns() == 0) return 0;
    const std::size_t before = columns.front().size();
    std::vector<std::byte*> out;
    for (auto& column : columns) {
        column.resize(before + max * bytes);
        out.push_back(column.data() + before);
    }
    std::size_t count = 0;
    while (count < max && !failure_) {
        if (at_ == end_ && !refill()) break;
        const char* begin = buffer_.data() + at_;
        const char* end = parse_default_line(bytes, begin, columns_, out.data());
        // Digits are read eight at a time, possibly beyond this line: an end after the complete lines is invalid.
        if (end == nullptr || end >= buffer_.data() + end_) {
            end = static_cast<const char*>(std::memchr(begin, '\n', end_ - at_));
            try {
                const char* first = std::find_if_not(begin, end, is_space);
                if (first == end || *first == '#') {
                    at_ = static_cast<std::size_t>(end + 1 - buffer_.data());
                    ++line_;
                    continue;
                }
                const std::vector<Bits> patterns = parse_line(begin, end);
                if (patterns.size() != columns_)
                    throw UsageError(fmt::format("{} bit patterns: expected {}", patterns.size(), columns_));
                for (std::size_t column = 0; column < columns_; ++column)
                    std::memcpy(out[column], &patterns[column], bytes);
            } catch (const UsageError& error) {
                failure_.emplace(fmt::format("line {}: {}", line_ + 1, error.what()));
                break;
            }
        }
        at_ = static_cast<std::size_t>(end + 1 - buffer_.data());
        ++line_;
        ++count;
        for (std::byte*& place : out) place += bytes;
    }
    for (auto& column : columns) column.resize(before + count * bytes);
    if (count == 0 && failure_) throw *failure_;
    return count;
}

void append_hex_lines(Format format, std::span<const std::byte> elements, std::string& text) {
    static const std::array<std::array<char, 2>, 256> pairs = [] {
        std::array<std::array<char, 2>, 256> made{};
        for (std::size_t i = 0; i < 256; ++i) made[i] = {"0123456789abcdef"[i / 16], "0123456789abcdef"[i % 16]};
        return made;
    }();
    const auto bytes = static_cast<std::size_t>(traits(format).bytes());
    const std::size_t width = 3 + 2 * bytes, begin = text.size();
    text.resize(begin + elements.size() / bytes * width);
    char* to = text.data() + begin;
    for (std::size_t at = 0; at < elements.size(); at += bytes) {
        *to++ = '0', *to++ = 'x';
        for (std::size_t k = bytes; k-- > 0;) {
            std::memcpy(to, pairs[std::to_integer<std::size_t>(elements[at + k])].data(), 2);
            to += 2;
        }
        *to++ = '\n';
    }
}

}  // namespace samesum
