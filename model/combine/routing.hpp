// Which rank owns which rows of a combine's buffer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace samesum {

/// The buffer of a combine is [rows(), hidden]; rank r owns sizes[r] consecutive rows, rank after rank, as vLLM's
/// reduce_scatterv lays them out. Zero sizes are allowed.
struct Routing {
    std::vector<std::uint64_t> sizes;
    std::uint64_t hidden = 1;  ///< elements of a row

    [[nodiscard]] int ranks() const { return static_cast<int>(sizes.size()); }
    [[nodiscard]] std::uint64_t rows() const;
    [[nodiscard]] std::uint64_t elements() const { return rows() * hidden; }
    /// First row of a rank.
    [[nodiscard]] std::uint64_t first_row(int rank) const;
    /// The rank that owns a row. Throws UsageError for a row outside the buffer.
    [[nodiscard]] int owner(std::uint64_t row) const;
    [[nodiscard]] bool equal_sizes() const;

    friend bool operator==(const Routing&, const Routing&) = default;
};

/// The default sizes: total / ranks for each rank. Throws UsageError if ranks does not divide total.
[[nodiscard]] std::vector<std::uint64_t> equal_sizes(std::uint64_t total_rows, int ranks);

/// "1,1,1,1"; throws UsageError unless it has `ranks` counts.
[[nodiscard]] std::vector<std::uint64_t> parse_sizes(std::string_view text, int ranks);
[[nodiscard]] std::string str_sizes(const std::vector<std::uint64_t>& sizes);

}  // namespace samesum
