// The lessons and a reduction to step through, as one page without a network: the engine's results, looked up by
// script.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "model/arithmetic/format.hpp"
#include "model/teach/lessons.hpp"

namespace samesum {

struct PageOptions {
    int ranks = 8;  ///< 2 .. ranks can be chosen on the page
    /// The values that can be chosen in a format, in place of the usual ones; every value of float8 always can.
    std::map<Format, std::vector<Bits>> values{};
};

/// Everything that the page's script looks up: formats with their values and sums, schemes with their trees, lessons.
/// The script itself adds nothing. Throws UsageError for values whose sums are too many to embed.
[[nodiscard]] nlohmann::ordered_json teach_data(std::span<const Lesson> lessons, const PageOptions& options);

/// One self-contained HTML page, below 1 MiB.
[[nodiscard]] std::string teach_page(std::span<const Lesson> lessons, const PageOptions& options);

/// For other programs and for the page.
[[nodiscard]] nlohmann::ordered_json as_json(const Lesson& lesson);

}  // namespace samesum
