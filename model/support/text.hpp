// Splitting and trimming of text.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

namespace samesum {

/// The pieces between separators; at least one; pieces may be empty.
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);

/// The lines without their '\n'; a '\n' at the end starts no further line.
[[nodiscard]] std::vector<std::string_view> lines_of(std::string_view text);

/// Without blanks, tabs and carriage returns at both ends.
[[nodiscard]] std::string_view trimmed(std::string_view text);

}  // namespace samesum
