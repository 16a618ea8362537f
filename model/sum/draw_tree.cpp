// One layout for text and SVG. A node is in the row of its lowest leaf and the column of its height.
// SPDX-License-Identifier: Apache-2.0
#include "model/sum/draw_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "model/support/svg.hpp"

namespace samesum {
namespace {

struct Joint {
    int column;        // height in the tree, 1 and up
    int upper, lower;  // rows of the two operands
    int upper_column, lower_column;
};

struct Layout {
    std::vector<int> leaves;  // ranks, top to bottom
    std::vector<Joint> joints;
    int columns = 0;
};

Layout layout(const ReductionTree& tree) {
    struct Placed {
        int row, column;
    };
    Layout result;
    std::vector<Placed> stack;
    for (const std::int32_t code : tree.postfix()) {
        if (code != ReductionTree::add) {
            stack.push_back({static_cast<int>(result.leaves.size()), 0});
            result.leaves.push_back(code);
            continue;
        }
        const Placed right = stack.back();
        stack.pop_back();
        const Placed left = stack.back();
        stack.back() = {right.row, std::max(left.column, right.column) + 1};
        result.joints.push_back({stack.back().column, left.row, right.row, left.column, right.column});
        result.columns = std::max(result.columns, stack.back().column);
    }
    return result;
}

std::string label_of(int rank, std::span<const std::string> labels) {
    return static_cast<std::size_t>(rank) < labels.size() ? labels[static_cast<std::size_t>(rank)]
                                                          : fmt::format("{}", rank);
}

}  // namespace

std::string shortened(const ReductionTree& tree, std::size_t max) {
    const std::string text = tree.str();
    if (text.size() <= max) return text;
    const std::size_t half = (max - 5) / 2;
    return text.substr(0, half) + " ... " + text.substr(text.size() - half);
}

std::string draw_text(const ReductionTree& tree, std::span<const std::string> labels) {
    if (tree.leaf_count() > 64) return shortened(tree, 200) + "\n";
    const Layout drawing = layout(tree);
    std::size_t width = 0;
    for (const int rank : drawing.leaves) width = std::max(width, label_of(rank, labels).size());

    // Cells of one character each; column c of the layout is cell 2c.
    const std::size_t cells = 2 * static_cast<std::size_t>(drawing.columns) + 2;
    std::vector<std::vector<std::string_view>> grid(drawing.leaves.size(), std::vector<std::string_view>(cells, " "));
    const auto line = [&](int row, int from, int to) {
        for (int cell = 2 * from + (from > 0 ? 1 : 0); cell < 2 * to; ++cell)
            grid[static_cast<std::size_t>(row)][static_cast<std::size_t>(cell)] = "─";
    };
    for (const Joint& joint : drawing.joints) {
        line(joint.upper, joint.upper_column, joint.column);
        line(joint.lower, joint.lower_column, joint.column);
        const auto cell = 2 * static_cast<std::size_t>(joint.column);
        grid[static_cast<std::size_t>(joint.upper)][cell] = "┐";
        for (int row = joint.upper + 1; row < joint.lower; ++row) grid[static_cast<std::size_t>(row)][cell] = "│";
        grid[static_cast<std::size_t>(joint.lower)][cell] = "┴";
    }
    grid.back()[cells - 1] = "─";

    std::string text;
    for (std::size_t row = 0; row < grid.size(); ++row) {
        std::string rendered = fmt::format("{:>{}} ", label_of(drawing.leaves[row], labels), width);
        for (const std::string_view cell : grid[row]) rendered += cell;
        rendered.erase(rendered.find_last_not_of(' ') + 1);
        text += rendered + "\n";
    }
    return text;
}

std::string draw_dot(const ReductionTree& tree, std::span<const std::string> labels) {
    std::string text = "digraph order {\n  rankdir=LR;\n  node [shape=circle];\n";
    std::vector<std::string> stack;
    std::size_t additions = 0;
    for (const std::int32_t code : tree.postfix()) {
        if (code != ReductionTree::add) {
            stack.push_back(fmt::format("r{}", code));
            text += fmt::format("  r{} [label=\"{}\", shape=box];\n", code, label_of(code, labels));
            continue;
        }
        const std::string right = stack.back();
        stack.pop_back();
        const std::string left = stack.back();
        stack.back() = fmt::format("a{}", additions++);
        text += fmt::format("  {0} [label=\"+\"];\n  {1} -> {0};\n  {2} -> {0};\n", stack.back(), left, right);
    }
    return text + "}\n";
}

std::string draw_svg(const Picture& picture, std::span<const std::string> labels) {
    constexpr int row_height = 24, column_width = 34, margin = 16, bar_width = 720;
    std::string body;
    int width = 2 * margin + 9 * static_cast<int>(picture.title.size());
    int y = 40;
    if (!picture.bar.empty() && picture.bar.back().end > picture.begin) {
        const double scale =
            static_cast<double>(bar_width) / static_cast<double>(picture.bar.back().end - picture.begin);
        std::uint64_t begin = picture.begin;
        for (const Picture::Stretch& stretch : picture.bar) {
            const double x = margin + static_cast<double>(begin - picture.begin) * scale;
            const double w = static_cast<double>(stretch.end - begin) * scale;
            const std::string label = stretch.tree < picture.trees.size() ? picture.trees[stretch.tree].label : "...";
            body += fmt::format(
                "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"26\" fill=\"{}\"><title>elements {} to "
                "{}: {}</title></rect>\n",
                x, y, w, svg_colour(stretch.tree), begin, stretch.end, svg_escaped(label));
            if (w > 18)
                body += fmt::format("<text class=\"on\" x=\"{:.2f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                                    x + w / 2, y + 18, svg_escaped(label));
            begin = stretch.end;
        }
        body += fmt::format("<text x=\"{}\" y=\"{}\">{}</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n",
                            margin, y + 44, picture.begin, margin + bar_width, y + 44, begin);
        width = std::max(width, bar_width + 2 * margin);
        y += 70;
    }
    for (std::size_t i = 0; i < picture.trees.size(); ++i) {
        const Layout drawing = layout(picture.trees[i].tree);
        std::size_t longest = 1;
        for (const int rank : drawing.leaves) longest = std::max(longest, label_of(rank, labels).size());
        const int left = margin + 36 + 9 * static_cast<int>(longest);
        const auto column_x = [&](int column) { return left + column * column_width; };
        const auto row_y = [&](int row) { return y + 14 + row * row_height; };
        body += fmt::format(
            "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text>\n",
            margin, y + 3, svg_colour(i), margin + 17, y + 14, svg_escaped(picture.trees[i].label));
        for (std::size_t row = 0; row < drawing.leaves.size(); ++row)
            body += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", left - 6,
                                row_y(static_cast<int>(row)) + 5, svg_escaped(label_of(drawing.leaves[row], labels)));
        for (const Joint& joint : drawing.joints)
            body += fmt::format("<path d=\"M{} {}H{}V{}M{} {}H{}\"/>\n", column_x(joint.upper_column),
                                row_y(joint.upper), column_x(joint.column), row_y(joint.lower),
                                column_x(joint.lower_column), row_y(joint.lower), column_x(joint.column));
        for (const Joint& joint : drawing.joints)
            body += fmt::format("<circle cx=\"{0}\" cy=\"{1}\" r=\"7\"/><path d=\"M{2} {1}h8M{0} {3}v8\"/>\n",
                                column_x(joint.column), row_y(joint.lower), column_x(joint.column) - 4,
                                row_y(joint.lower) - 4);
        width = std::max(width, column_x(drawing.columns) + margin + 8);
        y = row_y(static_cast<int>(drawing.leaves.size())) + 14;
    }
    body.insert(0, fmt::format("<text x=\"{}\" y=\"24\">{}</text>\n", margin, svg_escaped(picture.title)));
    return svg_document(width, y, picture.title,
                        "svg{background:#fff}text{font:14px ui-monospace,monospace;fill:#222}text.on{fill:#fff;"
                        "paint-order:stroke;stroke:#0006;stroke-width:2px}path{fill:none;stroke:#456;stroke-width:1.6}"
                        "circle{fill:#fff;stroke:#456;stroke-width:1.6}",
                        body);
}

}  // namespace samesum
