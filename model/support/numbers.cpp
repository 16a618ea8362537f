// Numbers by std::from_chars: no locale, no leading blanks.
// SPDX-License-Identifier: Apache-2.0
#include "model/support/numbers.hpp"

#include <fmt/format.h>

#include <cmath>

#include "model/support/error.hpp"

namespace samesum {

std::optional<double> real_in(std::string_view word) {
    double number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (word.empty() || error != std::errc{} || end != word.data() + word.size() || !std::isfinite(number))
        return std::nullopt;
    return number;
}

std::int64_t whole_number(std::string_view word, std::string_view what, std::int64_t min, std::int64_t max) {
    const auto number = integer_in<std::int64_t>(word);
    if (!number || *number < min || *number > max)
        throw UsageError(fmt::format("{} '{}': expected a whole number from {} to {}", what, word, min, max));
    return *number;
}

}  // namespace samesum
