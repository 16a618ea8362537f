// Trees: text round trips, canonical form, counts, and invalid input.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE reduction_tree
#include "model/sum/reduction_tree.hpp"

#include <boost/test/unit_test.hpp>
#include <numeric>
#include <set>

#include "model/sum/draw_tree.hpp"
#include "model/support/error.hpp"

using namespace samesum;

BOOST_AUTO_TEST_CASE(prints_what_it_parses) {
    for (const char* text : {"0", "(0 1)", "((0 1) 2)", "(0 (1 2))", "(((1 2) 3) 0)", "(5 ((1 2) ((3 4) 0)))"})
        BOOST_TEST(ReductionTree::parse(text).str() == text);
    BOOST_TEST(ReductionTree::parse("( ( 0 1)2 )").str() == "((0 1) 2)");
}

BOOST_AUTO_TEST_CASE(invalid_trees_are_rejected_with_the_column) {
    struct Case {
        const char* text;
        const char* says;
    };
    for (const Case& c : {Case{"", "is incomplete"}, Case{"(0 1", "is incomplete"}, Case{"(0)", "two operands"},
                          Case{"(0 1 2)", "two operands"}, Case{"0 1", "after the tree"}, Case{"(0 x)", "column 4"},
                          Case{"(0 0)", "added twice"}, Case{"(0 -1)", "column 4"}, Case{")", "two operands"},
                          Case{"(0 99999999999999999999)", "column 4"}}) {
        BOOST_TEST_CONTEXT(c.text)
        BOOST_CHECK_EXCEPTION((void)ReductionTree::parse(c.text), UsageError, [&](const UsageError& error) {
            return std::string_view(error.what()).find(c.says) != std::string_view::npos;
        });
    }
}

BOOST_AUTO_TEST_CASE(canonical_form_ignores_only_the_side_of_operands) {
    BOOST_TEST(same_order(ReductionTree::parse("((0 1) 2)"), ReductionTree::parse("(2 (1 0))")));
    BOOST_TEST(!same_order(ReductionTree::parse("((0 1) 2)"), ReductionTree::parse("((0 2) 1)")));
    BOOST_TEST(ReductionTree::parse("(3 ((2 1) 0))").canonical().str() == "((0 (1 2)) 3)");
    for (const ReductionTree& tree : all_trees(5)) BOOST_TEST((tree.canonical() == tree));
}

BOOST_AUTO_TEST_CASE(all_trees_are_as_many_as_the_double_factorial_and_differ) {
    std::size_t expected = 1;
    for (int n = 1; n <= 7; ++n) {
        if (n > 1) expected *= static_cast<std::size_t>(2 * n - 3);
        const auto trees = all_trees(n);
        BOOST_TEST(trees.size() == expected);
        BOOST_TEST(std::set<ReductionTree>(trees.begin(), trees.end()).size() == expected);
    }
    BOOST_CHECK_THROW((void)all_trees(11), UsageError);
    BOOST_CHECK_THROW((void)all_trees(0), UsageError);
}

BOOST_AUTO_TEST_CASE(evaluation_follows_the_tree) {
    const std::vector<std::string> names{"a", "b", "c", "d"};
    const std::string text = evaluate<std::string>(
        ReductionTree::parse("((2 0) (1 3))"), names,
        [](const std::string& left, const std::string& right) { return "(" + left + "+" + right + ")"; });
    BOOST_TEST(text == "((c+a)+(b+d))");
}

BOOST_AUTO_TEST_CASE(deep_trees_need_no_deep_stack) {
    std::vector<int> ranks(1 << 17);
    std::iota(ranks.begin(), ranks.end(), 0);
    const ReductionTree tree = ReductionTree::left_fold(ranks);
    BOOST_TEST((ReductionTree::parse(tree.str()) == tree));
    BOOST_TEST((tree.canonical() == tree));
}

BOOST_AUTO_TEST_CASE(drawings) {
    BOOST_TEST(draw_text(ReductionTree::parse("((0 1) (2 3))")) ==
               "0 ──┐\n"
               "1 ──┴─┐\n"
               "2 ──┐ │\n"
               "3 ──┴─┴─\n");
    BOOST_TEST(draw_text(ReductionTree::parse("(0 (1 2))")) ==
               "0 ────┐\n"
               "1 ──┐ │\n"
               "2 ──┴─┴─\n");
    BOOST_TEST(draw_text(ReductionTree::leaf(7)) == "7  ─\n");
    const std::string dot = draw_dot(ReductionTree::parse("((0 1) 2)"));
    BOOST_TEST(dot.find("r0 -> a0") != std::string::npos);
    BOOST_TEST(dot.find("a0 -> a1") != std::string::npos);
    const std::string svg = draw_svg({"a < b & c", {{"A", ReductionTree::parse("((0 1) 2)")}}});
    BOOST_TEST(svg.find("a &lt; b &amp; c") != std::string::npos);
    BOOST_TEST(svg.find("<title>") != std::string::npos);
}
