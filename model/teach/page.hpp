// The lessons and an interactive reduction as one offline HTML page; its script only looks up precomputed results.
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
    int ranks = 8;  ///< the page offers 2 .. ranks
    /// The values that the page offers in a format instead of the default ones. It always offers all values of float8.
    std::map<Format, std::vector<Bits>> values{};
};

/// The data of the page's script: formats with their values and sums, schemes with their trees, lessons. The script
/// computes no sums. Throws UsageError if the values have too many sums to embed.
[[nodiscard]] nlohmann::ordered_json teach_data(std::span<const Lesson> lessons, const PageOptions& options);

/// One self-contained HTML page of less than 1 MiB.
[[nodiscard]] std::string teach_page(std::span<const Lesson> lessons, const PageOptions& options);

/// For --json and for the page.
[[nodiscard]] nlohmann::ordered_json as_json(const Lesson& lesson);

}  // namespace samesum
