// Scalable Vector Graphics: what all pictures share, and line charts on logarithmic axes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace samesum {

/// Text as the content of an element or of a quoted attribute.
[[nodiscard]] std::string svg_escaped(std::string_view text);

/// The colour of the index-th of several things. The first eight stay apart for colour-blind readers (Okabe and Ito,
/// 2008); later ones repeat them.
[[nodiscard]] std::string_view svg_colour(std::size_t index);

/// A self-contained picture. `title` is unescaped text, for screen readers too; `style` is CSS, `body` elements.
[[nodiscard]] std::string svg_document(int width, int height, std::string_view title, std::string_view style,
                                       std::string_view body);

/// Lines through points (x, y), both axes logarithmic.
struct LogChart {
    struct Line {
        std::string label;
        std::vector<std::pair<double, double>> points;  ///< all above 0, x ascending
        bool dashed = false;
    };
    std::string title, x_label, y_label;
    std::vector<double> x_ticks;             ///< the places on the x axis that are named
    std::vector<std::string> x_tick_labels;  ///< as many
    std::vector<Line> lines;
};
[[nodiscard]] std::string draw_chart(const LogChart& chart);

}  // namespace samesum
