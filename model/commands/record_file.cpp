// Blank lines are skipped.
// SPDX-License-Identifier: Apache-2.0
#include "model/commands/record_file.hpp"

#include <fmt/format.h>

#include "model/support/error.hpp"
#include "model/support/files.hpp"
#include "model/support/text.hpp"

namespace samesum {

void for_each_record(const std::string& file, const std::function<void(const Record&, std::size_t)>& visit) {
    const std::string text = read_file(file);
    std::size_t line_number = 0;
    for (const std::string_view line : split(text, '\n')) {
        ++line_number;
        if (trimmed(line).empty()) continue;
        try {
            visit(parse_record(line), line_number);
        } catch (const UsageError& error) {
            throw UsageError(fmt::format("{}:{}: {}", file, line_number, error.what()));
        }
    }
}

}  // namespace samesum
