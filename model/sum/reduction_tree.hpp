// The binary tree of additions that makes one element, and its evaluation over any kind of value.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace samesum {

/// A binary tree whose leaves are ranks, stored as a postfix program: a number pushes a leaf, `add` adds the two
/// values on top (the deeper one is the left operand). Printed `((0 1) 2)`: (x0 + x1) + x2. Value type.
class ReductionTree {
public:
    static constexpr std::int32_t add = -1;

    /// Throws std::logic_error unless `postfix` is one whole tree.
    explicit ReductionTree(std::vector<std::int32_t> postfix);

    static ReductionTree leaf(int rank);
    static ReductionTree node(const ReductionTree& left, const ReductionTree& right);
    /// (((first second) third) ...): the order of a ring.
    static ReductionTree left_fold(std::span<const int> ranks);
    /// ((0 1) (2 3)) ...: halves, of odd counts the left one larger.
    static ReductionTree balanced(std::span<const int> ranks);
    /// Reads `((0 1) 2)`; spaces are free. Throws UsageError naming the column. Leaves must differ.
    static ReductionTree parse(std::string_view text);

    [[nodiscard]] std::span<const std::int32_t> postfix() const { return postfix_; }
    [[nodiscard]] int leaf_count() const { return static_cast<int>(postfix_.size() + 1) / 2; }
    [[nodiscard]] std::vector<int> leaves() const;
    [[nodiscard]] std::string str() const;

    /// The same tree with operands swapped so that the one holding the smallest rank comes first. Addition commutes
    /// bit for bit (float64 NaN payloads aside), so two trees are the same order iff their canonical forms are equal.
    [[nodiscard]] ReductionTree canonical() const;
    /// Leaf r becomes ranks[r].
    [[nodiscard]] ReductionTree relabelled(std::span<const int> ranks) const;

    friend bool operator==(const ReductionTree&, const ReductionTree&) = default;
    friend auto operator<=>(const ReductionTree&, const ReductionTree&) = default;

private:
    std::vector<std::int32_t> postfix_;
};

/// An order by name or as an S-expression (order_help); `ranks`: number of leaves, 0 if only an S-expression can tell.
/// Throws UsageError with the choices.
[[nodiscard]] ReductionTree parse_order(std::string_view text, int ranks);
inline constexpr const char* order_help = "'((0 1) 2)', chain, ring:LAST (LAST+1, ..., LAST), reversed or balanced";

/// Equal up to swapping operands.
[[nodiscard]] bool same_order(const ReductionTree& a, const ReductionTree& b);

/// Calls visit(left, right) for each addition and returns the root's value; leaf r stands for leaves[r].
/// One template for bits, solver terms and strings: the caller chooses Value and Add.
template <class Value, class Add>
[[nodiscard]] Value evaluate(const ReductionTree& tree, std::span<const Value> leaves, Add&& add) {
    std::vector<Value> stack;
    for (const std::int32_t code : tree.postfix()) {
        if (code >= 0) {
            stack.push_back(leaves[static_cast<std::size_t>(code)]);
            continue;
        }
        Value right = std::move(stack.back());
        stack.pop_back();
        stack.back() = add(stack.back(), right);
    }
    return std::move(stack.back());
}

/// All (2n-3)!! binary trees over n leaves up to swapping operands, in canonical form. Throws UsageError above n = 10.
[[nodiscard]] std::vector<ReductionTree> all_trees(int leaf_count);

}  // namespace samesum
