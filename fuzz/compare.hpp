// Runs both sides of a case and compares their bits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fuzz/backend.hpp"
#include "fuzz/case.hpp"

namespace samesum::fuzz {

/// The token's row, [hidden], as one side makes it.
[[nodiscard]] std::vector<Bits> row_of(const Case& c, const Side& side, Backend& backend);

struct Comparison {
    std::vector<Bits> a, b;
    bool same = true;
    std::uint64_t column = 0;  ///< the first that differs; `Case::column` where it does
    /// If one side is a prediction and the token is as predicted: an element of the same call that is not.
    std::optional<Element> mismatch_elsewhere{};
};
[[nodiscard]] Comparison compare(const Case& c, Backend& backend);

/// The same case about another column of the token, whose partials are written out instead of drawn from the fill.
[[nodiscard]] Case with_column(const Case& c, std::uint64_t column);
/// The same case about another element of the buffers.
[[nodiscard]] Case with_element(const Case& c, const Element& element);

}  // namespace samesum::fuzz
