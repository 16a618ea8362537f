// What one addition does, and what a tree of them does.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "fuzz/property_tables.hpp"

namespace samesum::fuzz {
namespace {

Property of_trees(std::string name, std::string sentence, const char* a, const char* b, Verdict expected) {
    const auto tree_a = ReductionTree::parse(a), tree_b = ReductionTree::parse(b);
    Property property{.name = std::move(name),
                      .sentence = std::move(sentence),
                      .scope = "every float format",
                      .expected = expected,
                      .headline = true};
    property.draw = [=](Draw& draw) {
        if (draw.setup() != nullptr) throw Unavailable{};  // no ranks take part
        Case c;
        c.format = draw.format();
        c.x = draw_partials(draw, c.format, static_cast<std::size_t>(tree_a.leaf_count()));
        c.a.maker = c.b.maker = Maker::tree;
        c.a.tree = tree_a;
        c.b.tree = tree_b;
        return c;
    };
    property.objection = [=](const Case& c) -> std::string {
        if (c.a.tree != tree_a || c.b.tree != tree_b || static_cast<int>(c.x.size()) != tree_a.leaf_count())
            return fmt::format("the sides are {} and {}", tree_a.str(), tree_b.str());
        return {};
    };
    return property;
}

}  // namespace

std::vector<Property> properties_of_addition() {
    return {of_trees("addition_commutes", "x0 + x1 = x1 + x0, bit for bit", "(0 1)", "(1 0)", Verdict::upheld),
            of_trees("addition_is_associative", "(x0 + x1) + x2 = x0 + (x1 + x2)", "((0 1) 2)", "(0 (1 2))",
                     Verdict::refuted)};
}

}  // namespace samesum::fuzz
