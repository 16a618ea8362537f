// Rows and their owners.
// SPDX-License-Identifier: Apache-2.0
#include "model/combine/routing.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "model/support/error.hpp"
#include "model/support/numbers.hpp"
#include "model/support/text.hpp"

namespace samesum {

std::uint64_t Routing::rows() const { return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}); }

std::uint64_t Routing::first_row(int rank) const {
    return std::accumulate(sizes.begin(), sizes.begin() + rank, std::uint64_t{0});
}

int Routing::owner(std::uint64_t row) const {
    std::uint64_t end = 0;
    for (int rank = 0; rank < ranks(); ++rank) {
        end += sizes[static_cast<std::size_t>(rank)];
        if (row < end) return rank;
    }
    throw UsageError(fmt::format("row {} is outside of the buffer of {} rows", row, end));
}

bool Routing::equal_sizes() const {
    return std::adjacent_find(sizes.begin(), sizes.end(), std::not_equal_to<>()) == sizes.end();
}

std::vector<std::uint64_t> equal_sizes(std::uint64_t total_rows, int ranks) {
    if (ranks < 1) throw UsageError(fmt::format("{} ranks: expected at least 1", ranks));
    const auto n = static_cast<std::uint64_t>(ranks);
    if (total_rows % n != 0)
        throw UsageError(fmt::format("{} rows: expected a multiple of the {} ranks, or --sizes", total_rows, ranks));
    return std::vector<std::uint64_t>(n, total_rows / n);
}

std::vector<std::uint64_t> parse_sizes(std::string_view text, int ranks) {
    std::vector<std::uint64_t> sizes;
    for (const std::string_view word : split(text, ',')) {
        const auto size = integer_in<std::uint64_t>(word);
        // 2^40 rows are more than any buffer has, and their sums cannot overflow.
        if (!size || *size > (std::uint64_t{1} << 40))
            throw UsageError(
                fmt::format("sizes '{}': '{}' is not a number of rows; expected e.g. 1,1,1,1", text, word));
        sizes.push_back(*size);
    }
    if (static_cast<int>(sizes.size()) != ranks)
        throw UsageError(fmt::format("sizes '{}': {} ranks; expected {}, as many as the communicator has", text,
                                     sizes.size(), ranks));
    return sizes;
}

std::string str_sizes(const std::vector<std::uint64_t>& sizes) { return fmt::format("{}", fmt::join(sizes, ",")); }

}  // namespace samesum
