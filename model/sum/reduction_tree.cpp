// Trees as postfix programs: no recursion, since a ring of 65,536 ranks is a tree 65,535 levels deep.
// SPDX-License-Identifier: Apache-2.0
#include "model/sum/reduction_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <iterator>
#include <numeric>

#include "model/support/error.hpp"
#include "model/support/input_names.hpp"
#include "model/support/numbers.hpp"

namespace samesum {
namespace {

/// Explicit children for the passes that need them. A node's number is its index in the postfix program.
struct Linked {
    std::vector<std::int32_t> left, right, smallest;  // left == -1: a leaf

    explicit Linked(std::span<const std::int32_t> postfix)
        : left(postfix.size(), -1), right(postfix.size(), -1), smallest(postfix.begin(), postfix.end()) {
        std::vector<std::int32_t> open;
        for (std::size_t i = 0; i < postfix.size(); ++i) {
            if (postfix[i] == ReductionTree::add) {
                right[i] = open.back();
                open.pop_back();
                left[i] = open.back();
                open.pop_back();
                smallest[i] = std::min(smallest[at(left[i])], smallest[at(right[i])]);
            }
            open.push_back(static_cast<std::int32_t>(i));
        }
    }
    static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
};

}  // namespace

ReductionTree::ReductionTree(std::vector<std::int32_t> postfix) : postfix_(std::move(postfix)) {
    int height = 0;
    for (const std::int32_t code : postfix_) {
        ensure(code >= add, "a tree consists of ranks and additions");
        height += code == add ? -1 : 1;
        ensure(height >= 1, "every addition of a tree has two operands");
    }
    ensure(height == 1, "a tree has one root");
}

ReductionTree ReductionTree::leaf(int rank) { return ReductionTree({rank}); }

ReductionTree ReductionTree::node(const ReductionTree& left, const ReductionTree& right) {
    std::vector<std::int32_t> postfix = left.postfix_;
    postfix.insert(postfix.end(), right.postfix_.begin(), right.postfix_.end());
    postfix.push_back(add);
    return ReductionTree(std::move(postfix));
}

ReductionTree ReductionTree::left_fold(std::span<const int> ranks) {
    ensure(!ranks.empty(), "a fold has a first operand");
    std::vector<std::int32_t> postfix{ranks.front()};
    postfix.reserve(2 * ranks.size());
    for (const int rank : ranks.subspan(1)) {
        postfix.push_back(rank);
        postfix.push_back(add);
    }
    return ReductionTree(std::move(postfix));
}

ReductionTree ReductionTree::balanced(std::span<const int> ranks) {
    ensure(!ranks.empty(), "a tree has a leaf");
    if (ranks.size() == 1) return leaf(ranks.front());
    const std::size_t half = (ranks.size() + 1) / 2;
    return node(balanced(ranks.first(half)), balanced(ranks.subspan(half)));
}

ReductionTree ReductionTree::parse(std::string_view text) {
    std::vector<std::int32_t> postfix;
    std::vector<int> operands;  // of each open parenthesis
    std::size_t i = 0;
    const auto fail = [&](std::string_view what) {
        throw UsageError(fmt::format("'{}' is not a tree: column {}: {}; expected e.g. ((0 1) 2)", text, i + 1, what));
    };
    const auto operand_done = [&] {
        if (!operands.empty() && ++operands.back() > 2) fail("an addition has two operands");
    };
    for (; i < text.size(); ++i) {
        const char c = text[i];
        if (c == ' ' || c == '\t') continue;
        if (!postfix.empty() && operands.empty()) fail("unexpected text after the tree");
        if (c == '(') {
            operands.push_back(0);
        } else if (c == ')') {
            if (operands.empty() || operands.back() != 2) fail("an addition has two operands");
            postfix.push_back(add);
            operands.pop_back();
            operand_done();
        } else {
            std::int32_t rank = 0;
            const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), rank);
            if (error != std::errc{} || rank < 0) fail("expected a rank, '(' or ')'");
            postfix.push_back(rank);
            operand_done();
            i = static_cast<std::size_t>(end - text.data()) - 1;
        }
    }
    if (postfix.empty() || !operands.empty()) fail("the tree is incomplete");
    ReductionTree tree(std::move(postfix));
    std::vector<int> leaves = tree.leaves();
    std::sort(leaves.begin(), leaves.end());
    if (const auto twice = std::adjacent_find(leaves.begin(), leaves.end()); twice != leaves.end())
        throw UsageError(fmt::format("'{}' is not a tree: rank {} is added twice", text, *twice));
    return tree;
}

std::vector<int> ReductionTree::leaves() const {
    std::vector<int> ranks;
    std::copy_if(postfix_.begin(), postfix_.end(), std::back_inserter(ranks), [](int code) { return code >= 0; });
    return ranks;
}

std::string ReductionTree::str() const {
    const Linked tree(postfix_);
    std::string text;
    constexpr std::int32_t space = -2, close = -3;
    std::vector<std::int32_t> todo{static_cast<std::int32_t>(postfix_.size()) - 1};
    while (!todo.empty()) {
        const std::int32_t next = todo.back();
        todo.pop_back();
        if (next == space) {
            text += ' ';
        } else if (next == close) {
            text += ')';
        } else if (tree.left[Linked::at(next)] < 0) {
            text += fmt::format("{}", postfix_[Linked::at(next)]);
        } else {
            text += '(';
            todo.insert(todo.end(), {close, tree.right[Linked::at(next)], space, tree.left[Linked::at(next)]});
        }
    }
    return text;
}

ReductionTree ReductionTree::canonical() const {
    const Linked tree(postfix_);
    std::vector<std::int32_t> reversed;  // root, right operand, left operand: postfix read from its end
    reversed.reserve(postfix_.size());
    std::vector<std::int32_t> todo{static_cast<std::int32_t>(postfix_.size()) - 1};
    while (!todo.empty()) {
        const std::size_t next = Linked::at(todo.back());
        todo.pop_back();
        reversed.push_back(postfix_[next]);
        if (tree.left[next] < 0) continue;
        std::int32_t first = tree.left[next];
        std::int32_t second = tree.right[next];
        if (tree.smallest[Linked::at(second)] < tree.smallest[Linked::at(first)]) std::swap(first, second);
        todo.push_back(first);
        todo.push_back(second);
    }
    std::reverse(reversed.begin(), reversed.end());
    return ReductionTree(std::move(reversed));
}

ReductionTree ReductionTree::relabelled(std::span<const int> ranks) const {
    std::vector<std::int32_t> postfix = postfix_;
    for (std::int32_t& code : postfix)
        if (code >= 0) code = ranks[static_cast<std::size_t>(code)];
    return ReductionTree(std::move(postfix));
}

ReductionTree parse_order(std::string_view text, int ranks) {
    if (!text.empty() && (text.front() == '(' || (text.front() >= '0' && text.front() <= '9'))) {
        ReductionTree tree = ReductionTree::parse(text);
        std::vector<int> leaves = tree.leaves();
        std::sort(leaves.begin(), leaves.end());
        if (leaves.back() + 1 != static_cast<int>(leaves.size()))
            throw UsageError(fmt::format("'{}': a rank is missing: it has {} leaves, but the highest rank is {}", text,
                                         leaves.size(), leaves.back()));
        if (ranks > 0 && static_cast<int>(leaves.size()) != ranks)
            throw UsageError(fmt::format("'{}' adds {} values: expected {}", text, leaves.size(), ranks));
        return tree;
    }
    if (ranks <= 0)
        throw UsageError(fmt::format("'{}' needs {}, or write the tree, e.g. '((0 1) 2)'", text, input_name("ranks")));
    std::vector<int> order(static_cast<std::size_t>(ranks));
    std::iota(order.begin(), order.end(), 0);
    if (text == "chain") return ReductionTree::left_fold(order);
    if (text == "balanced") return ReductionTree::balanced(order);
    if (text == "reversed") return ReductionTree::left_fold(std::vector<int>(order.rbegin(), order.rend()));
    if (text.starts_with("ring:")) {
        const auto last = integer_in<int>(text.substr(5));
        if (last && *last >= 0 && *last < ranks) {
            std::rotate(order.begin(), order.begin() + (*last + 1) % ranks, order.end());
            return ReductionTree::left_fold(order);
        }
    }
    throw UsageError(fmt::format("'{}' is not an order of {} ranks: expected one of: {}", text, ranks, order_help));
}

bool same_order(const ReductionTree& a, const ReductionTree& b) { return a.canonical() == b.canonical(); }

std::vector<ReductionTree> all_trees(int leaf_count) {
    if (leaf_count < 1 || leaf_count > 10)
        throw UsageError(fmt::format(
            "cannot list all trees of {} leaves: expected 1 to 10, since there are (2n-3)!! trees", leaf_count));
    // Inserts rank k above every node of every tree of the ranks before it; each tree arises exactly once.
    std::vector<ReductionTree> trees{ReductionTree::leaf(0)};
    for (int rank = 1; rank < leaf_count; ++rank) {
        std::vector<ReductionTree> larger;
        for (const ReductionTree& tree : trees) {
            for (std::size_t after = 0; after < tree.postfix().size(); ++after) {
                std::vector<std::int32_t> postfix(tree.postfix().begin(), tree.postfix().end());
                const auto place = postfix.begin() + static_cast<std::ptrdiff_t>(after) + 1;
                postfix.insert(place, {rank, ReductionTree::add});
                larger.push_back(ReductionTree(std::move(postfix)).canonical());
            }
        }
        trees = std::move(larger);
    }
    return trees;
}

}  // namespace samesum
