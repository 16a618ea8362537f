// Numbers are written with two decimals: no locale, the same text on every machine.
// SPDX-License-Identifier: Apache-2.0
#include "model/support/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "model/support/error.hpp"

namespace samesum {
namespace {

constexpr std::size_t colours = 8;

/// A logarithmic axis from `min` to `max`, which are drawn at `from` and `to`.
struct LogAxis {
    double min, max, from, to;

    [[nodiscard]] double at(double value) const {
        return from + (std::log(value) - std::log(min)) / (std::log(max) - std::log(min)) * (to - from);
    }
};

/// 1, 2 and 5 times powers of ten within the axis, or powers of ten alone where those would be too dense.
std::vector<double> decimal_ticks(const LogAxis& axis) {
    const bool dense = axis.max / axis.min > 1e4;
    std::vector<double> ticks;
    for (int power = static_cast<int>(std::floor(std::log10(axis.min))); std::pow(10, power) <= axis.max; ++power)
        for (const int factor : {1, 2, 5}) {
            const double tick = factor * std::pow(10, power);
            if (tick >= axis.min && tick <= axis.max && (factor == 1 || !dense)) ticks.push_back(tick);
        }
    return ticks;
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view text, std::string_view more = {}) {
    return fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                       svg_escaped(text));
}

std::string line_from(double x1, double y1, double x2, double y2, std::string_view css_class) {
    return fmt::format("<path class=\"{}\" d=\"M{:.2f} {:.2f}L{:.2f} {:.2f}\"/>\n", css_class, x1, y1, x2, y2);
}

/// How a line of the chart looks: colours repeat, so the points of later lines are hollow.
struct LineStyle {
    std::string_view stroke, fill, dashes;

    LineStyle(const LogChart::Line& line, std::size_t index)
        : stroke(svg_colour(index)),
          fill(index < colours ? stroke : "#fff"),
          dashes(line.dashed ? " stroke-dasharray=\"6 4\"" : "") {}

    [[nodiscard]] std::string path(std::string_view shape) const {
        return fmt::format("<path class=\"line\" stroke=\"{}\"{} d=\"{}\"/>\n", stroke, dashes, shape);
    }
    [[nodiscard]] std::string point(double x, double y, std::string_view title) const {
        return fmt::format(
            "<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"3.5\" stroke=\"{}\" fill=\"{}\"><title>{}</title></circle>\n", x,
            y, stroke, fill, svg_escaped(title));
    }
};

/// A line and its points; the title of a point holds its value.
std::string plotted(const LogChart::Line& line, const LineStyle& style, const LogAxis& x, const LogAxis& y) {
    std::string shape, points;
    for (const auto& [px, py] : line.points) {
        shape += fmt::format("{}{:.2f} {:.2f}", shape.empty() ? "M" : "L", x.at(px), y.at(py));
        points += style.point(x.at(px), y.at(py), fmt::format("{}: {:.2f}", line.label, py));
    }
    return style.path(shape) + points;
}

std::string legend_entry(const LogChart::Line& line, const LineStyle& style, double x, double y) {
    return style.path(fmt::format("M{:.2f} {:.2f}h32", x, y)) + style.point(x + 16, y, line.label) +
           text_at(x + 40, y + 4, "start", line.label);
}

}  // namespace

std::string svg_escaped(std::string_view text) {
    std::string result;
    for (const char c : text) {
        if (c == '&')
            result += "&amp;";
        else if (c == '<')
            result += "&lt;";
        else if (c == '>')
            result += "&gt;";
        else if (c == '"')
            result += "&quot;";
        else
            result += c;
    }
    return result;
}

std::string_view svg_colour(std::size_t index) {
    constexpr std::array<std::string_view, colours> palette{"#0072B2", "#E69F00", "#009E73", "#CC79A7",
                                                            "#56B4E9", "#D55E00", "#F0E442", "#999999"};
    return palette[index % palette.size()];
}

std::string svg_document(int width, int height, std::string_view title, std::string_view style, std::string_view body) {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
        "aria-label=\"{2}\">\n<title>{2}</title>\n<style>{3}</style>\n{4}</svg>\n",
        width, height, svg_escaped(title), style, body);
}

std::string draw_chart(const LogChart& chart) {
    ensure(chart.x_ticks.size() == chart.x_tick_labels.size(), "a label for every tick");
    constexpr int width = 960, height = 560;
    constexpr double left = 84, right = 700, top = 52, bottom = 488, legend = 724, legend_row = 22;
    double min_x = std::numeric_limits<double>::infinity(), min_y = min_x, max_x = 0, max_y = 0;
    for (const LogChart::Line& line : chart.lines)
        for (const auto& [x, y] : line.points) {
            min_x = std::min(min_x, x);
            max_x = std::max(max_x, x);
            min_y = std::min(min_y, y);
            max_y = std::max(max_y, y);
        }
    ensure(min_x > 0 && min_y > 0 && max_x > 0, "a logarithmic chart has points above 0");
    // Room around the points; a single point stands in the middle.
    const double room_x = std::max(std::pow(max_x / min_x, 0.03), 1.05), room_y = 1.3;
    const LogAxis x{min_x / room_x, max_x * room_x, left, right}, y{min_y / room_y, max_y * room_y, bottom, top};

    std::string body = text_at(left, 30, "start", chart.title, " class=\"title\"");
    for (const double tick : decimal_ticks(y)) {
        body += line_from(left, y.at(tick), right, y.at(tick), "grid");
        body += text_at(left - 8, y.at(tick) + 4, "end", fmt::format("{:g}", tick));
    }
    for (std::size_t i = 0; i < chart.x_ticks.size(); ++i) {
        body += line_from(x.at(chart.x_ticks[i]), top, x.at(chart.x_ticks[i]), bottom, "grid");
        body += text_at(x.at(chart.x_ticks[i]), bottom + 20, "middle", chart.x_tick_labels[i]);
    }
    body += line_from(left, bottom, right, bottom, "axis") + line_from(left, top, left, bottom, "axis");
    body += text_at((left + right) / 2, bottom + 50, "middle", chart.x_label);
    body += text_at(0, 0, "middle", chart.y_label,
                    fmt::format(" transform=\"translate(24 {:.2f}) rotate(-90)\"", (top + bottom) / 2));
    for (std::size_t i = 0; i < chart.lines.size(); ++i) {
        const LineStyle style(chart.lines[i], i);
        body += plotted(chart.lines[i], style, x, y);
        body += legend_entry(chart.lines[i], style, legend, top + 10 + legend_row * static_cast<double>(i));
    }
    return svg_document(width, height, chart.title,
                        "svg{background:#fff}text{font:13px sans-serif;fill:#222}text.title{font-size:15px}"
                        "path{fill:none}path.grid{stroke:#ddd}path.axis{stroke:#222}path.line,circle{stroke-width:2}",
                        body);
}

}  // namespace samesum
