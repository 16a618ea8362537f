// Numbers read from text: the whole word must be the number.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace samesum {

/// The number that all of `word` spells, in the given base, or nothing: also nothing for an empty word, a sign that the
/// type does not have, blanks, and values out of the type's range.
template <class Integer>
[[nodiscard]] std::optional<Integer> integer_in(std::string_view word, int base = 10) {
    Integer number{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number, base);
    if (word.empty() || error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
    return number;
}

/// The same for a decimal fraction ("1.2", "3e5"); nothing for infinities and NaN.
[[nodiscard]] std::optional<double> real_in(std::string_view word);

/// A whole number from `min` to `max`. `what` names the place for messages, e.g. "--ranks" or "field 'count'".
/// Throws UsageError: "WHAT 'WORD': expected a whole number from MIN to MAX".
[[nodiscard]] std::int64_t whole_number(std::string_view word, std::string_view what, std::int64_t min,
                                        std::int64_t max);

}  // namespace samesum
