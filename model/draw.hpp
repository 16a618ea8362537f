// Pictures of reduction trees: for a terminal, for Graphviz, for a web page.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "model/reduction_tree.hpp"

namespace samesum {

/// Leaves top to bottom, additions left to right in the order in which they can happen:
///
///     1 ─┐
///     2 ─┴─┐
///     3 ───┴─┐
///     0 ─────┴─
///
/// `labels` names the leaves by rank; empty: the rank's number. Above 64 leaves the S-expression, shortened.
[[nodiscard]] std::string draw_text(const ReductionTree& tree, std::span<const std::string> labels = {});

/// A digraph for Graphviz.
[[nodiscard]] std::string draw_dot(const ReductionTree& tree, std::span<const std::string> labels = {});

/// The same drawing as draw_text, as one self-contained SVG picture with a title for screen readers.
[[nodiscard]] std::string draw_svg(const ReductionTree& tree, std::string_view title,
                                   std::span<const std::string> labels = {});

/// The S-expression, its middle left out when it is longer than `most` characters.
[[nodiscard]] std::string shortened(const ReductionTree& tree, std::size_t most);

}  // namespace samesum
