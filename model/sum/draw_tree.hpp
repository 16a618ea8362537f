// Pictures of reduction trees: for a terminal, for Graphviz, for a web page.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/sum/reduction_tree.hpp"

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

/// What draw_svg shows: a title, the buffer as a bar of coloured ranges, and the trees.
struct Picture {
    struct Tree {
        std::string label;
        ReductionTree tree;
    };
    struct Stretch {
        std::uint64_t end;  ///< of the stretch that begins where the one before ends
        std::size_t tree;   ///< index into trees, which may hold fewer
    };
    std::string title;
    std::vector<Tree> trees;
    std::vector<Stretch> bar{};
    std::uint64_t begin = 0;  ///< first element of the bar
};
/// One self-contained SVG picture, readable in light and dark, with a title for screen readers.
[[nodiscard]] std::string draw_svg(const Picture& picture, std::span<const std::string> labels = {});

/// The S-expression, its middle left out when it is longer than `max` characters.
[[nodiscard]] std::string shortened(const ReductionTree& tree, std::size_t max);

}  // namespace samesum
