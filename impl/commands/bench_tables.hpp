// The answers of samesum bench as text: nccl-tests' table, Markdown, comma-separated values, a plan for more ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "impl/commands/bench_results.hpp"

namespace samesum::gpu {

/// "64 KiB".
[[nodiscard]] std::string short_bytes(std::uint64_t bytes);

/// Versions, settings and how it was measured, as comment lines.
[[nodiscard]] std::string heading(const BenchResults& results);

/// nccl-tests' columns: size is the whole buffer; algbw = size / time, busbw = algbw (n - 1) / n.
[[nodiscard]] std::string table(const BenchResults& results);
/// The table's computed columns, an object for each row; a cell that the table leaves empty is absent.
[[nodiscard]] nlohmann::ordered_json table_json(const BenchResults& results);

[[nodiscard]] std::string csv(const BenchResults& results);

/// Medians in microseconds as Markdown, one line for each scheme and limit; then the ratios of `which` to the two
/// schemes that vLLM chooses between.
[[nodiscard]] std::string markdown(const BenchResults& results, std::string_view which = "direct_ordered");

/// The times that the alpha-beta lines through the measured points predict for other numbers of ranks.
[[nodiscard]] std::string plan(const BenchResults& results, const std::vector<int>& numbers);
[[nodiscard]] nlohmann::ordered_json plan_json(const BenchResults& results, const std::vector<int>& numbers);

}  // namespace samesum::gpu
