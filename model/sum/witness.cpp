// Why three leaves are enough: let C be a subtree of `a` whose leaf set is not that of a subtree of `b`. It exists,
// because the leaf sets of its subtrees determine a tree. In `b`, the smallest subtree that contains all of C also
// contains a leaf k outside of C, and each of its operands contains a leaf of C: i and j.
//
//   a:  ((.. i .. j ..) .. k ..)           b:  ((.. i .. k ..) (.. j ..))
//         ^ C                                       ^ i + k is added before j
//
// With M on i, -M on j, 1 on k and +0 elsewhere, `a` cancels M first and keeps the 1; `b` adds the 1 to M first, which
// absorbs it.
// SPDX-License-Identifier: Apache-2.0
#include "model/sum/witness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <unordered_set>

#include "model/arithmetic/hop_arithmetic.hpp"
#include "model/sum/draw_tree.hpp"
#include "model/support/error.hpp"
#include "model/support/text.hpp"

namespace samesum {
namespace {

/// splitmix64's finalizer. The fingerprint of a leaf set is the XOR of the fingerprints of its leaves.
std::uint64_t fingerprint(std::int32_t rank) {
    std::uint64_t x = (static_cast<std::uint64_t>(rank) + 1) * 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/// A subtree is a range [begin, end) of the postfix program; its right operand begins at `middle`.
struct Subtree {
    std::size_t begin, middle, end;
    std::uint64_t leaves;
};

/// All subtrees of two or more leaves; a subtree comes before those that contain it.
std::vector<Subtree> subtrees(std::span<const std::int32_t> postfix) {
    std::vector<Subtree> found, open;
    for (std::size_t i = 0; i < postfix.size(); ++i) {
        if (postfix[i] != ReductionTree::add) {
            open.push_back({i, i, i + 1, fingerprint(postfix[i])});
            continue;
        }
        const Subtree right = open.back();
        open.pop_back();
        open.back() = {open.back().begin, right.begin, i + 1, open.back().leaves ^ right.leaves};
        found.push_back(open.back());
    }
    return found;
}

std::span<const std::int32_t> within(const ReductionTree& tree, std::size_t begin, std::size_t end) {
    return tree.postfix().subspan(begin, end - begin);
}

/// The lowest rank in a range of the program that is, or is not, a member.
std::optional<int> lowest(std::span<const std::int32_t> range, const std::vector<bool>& members, bool member) {
    std::optional<int> found;
    for (const std::int32_t code : range)
        if (code != ReductionTree::add && members[static_cast<std::size_t>(code)] == member &&
            (!found || code < *found))
            found = code;
    return found;
}

/// Columns on a terminal: the number of UTF-8 characters.
std::size_t columns(const std::string& line) {
    return static_cast<std::size_t>(
        std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

std::optional<Bracketing> different_bracketing(const ReductionTree& a, const ReductionTree& b) {
    std::vector<int> leaves = a.leaves(), others = b.leaves();
    std::sort(leaves.begin(), leaves.end());
    std::sort(others.begin(), others.end());
    ensure(leaves == others, "two orders of the same values have the same leaves");
    const std::vector<Subtree> of_a = subtrees(a.postfix()), of_b = subtrees(b.postfix());
    std::unordered_set<std::uint64_t> known;
    for (const Subtree& subtree : of_b) known.insert(subtree.leaves);
    const Subtree* odd = nullptr;
    for (const Subtree& subtree : of_a)
        if (!known.contains(subtree.leaves) && (!odd || subtree.end - subtree.begin < odd->end - odd->begin))
            odd = &subtree;
    if (!odd) return std::nullopt;

    std::vector<bool> members(static_cast<std::size_t>(leaves.back()) + 1);
    std::size_t size = 0;
    for (const std::int32_t code : within(a, odd->begin, odd->end))
        if (code != ReductionTree::add) {
            members[static_cast<std::size_t>(code)] = true;
            ++size;
        }
    // Prefix sums: the number of members in a range of b is a difference.
    std::vector<std::size_t> before(b.postfix().size() + 1);
    for (std::size_t i = 0; i < b.postfix().size(); ++i) {
        const std::int32_t code = b.postfix()[i];
        before[i + 1] = before[i] + (code >= 0 && members[static_cast<std::size_t>(code)] ? 1 : 0);
    }
    const auto holder = std::find_if(of_b.begin(), of_b.end(),
                                     [&](const Subtree& s) { return before[s.end] - before[s.begin] == size; });
    ensure(holder != of_b.end(), "the whole tree contains every leaf");
    const auto plus = lowest(within(b, holder->begin, holder->middle), members, true);
    const auto minus = lowest(within(b, holder->middle, holder->end), members, true);
    const auto one = lowest(within(b, holder->begin, holder->end), members, false);
    ensure(plus && minus && one, "both operands of the enclosing subtree have a member");
    return Bracketing{std::min(*plus, *minus), std::max(*plus, *minus), *one};
}

Bits absorption_threshold(Format format) {
    const FormatTraits& t = traits(format);
    ensure(t.is_float, "integers absorb nothing");
    // 2^p absorbs 1 by a tie, but -2^p + 1 is exact below the power of two: twice as large.
    return t.one() + (static_cast<Bits>(t.precision() + 1) << t.fraction_bits);
}

std::optional<SeparatingWitness> separating_witness(const ReductionTree& a, const ReductionTree& b, Format format) {
    const FormatTraits& t = traits(format);
    if (!t.is_float) return std::nullopt;
    const auto bracketing = different_bracketing(a, b);
    if (!bracketing) return std::nullopt;
    SeparatingWitness witness;
    const std::vector<int> ranks = a.leaves();
    witness.leaves.assign(static_cast<std::size_t>(*std::max_element(ranks.begin(), ranks.end())) + 1, 0);
    witness.leaves[static_cast<std::size_t>(bracketing->plus)] = absorption_threshold(format);
    witness.leaves[static_cast<std::size_t>(bracketing->minus)] = absorption_threshold(format) | t.sign();
    witness.leaves[static_cast<std::size_t>(bracketing->one)] = t.one();
    const HopArithmetic arithmetic(format);
    const auto add = [&](Bits left, Bits right) { return arithmetic.add(left, right); };
    witness.left = evaluate<Bits>(a, witness.leaves, add);
    witness.right = evaluate<Bits>(b, witness.leaves, add);
    ensure(witness.left == t.one() && witness.right == 0, "the first order keeps the 1, the second loses it");
    return witness;
}

std::string str_leaves(Format format, const std::vector<Bits>& leaves) {
    std::string text;
    for (std::size_t rank = 0; rank < leaves.size(); ++rank) {
        if (leaves.size() > 16 && is_zero(format, leaves[rank])) continue;
        text += fmt::format("{}x{} = {} ({})", text.empty() ? "" : ", ", rank, decimal(format, leaves[rank]),
                            hex(format, leaves[rank]));
    }
    if (leaves.size() > 16) text += ", all others 0";
    return text;
}

std::string tell_apart(const ReductionTree& a, const ReductionTree& b, Format format, const std::vector<Bits>& leaves,
                       std::string_view label_a, std::string_view label_b) {
    const HopArithmetic arithmetic(format);
    const auto column = [&](const ReductionTree& tree, std::string_view label) {
        const Bits bits =
            evaluate<Bits>(tree, leaves, [&](Bits left, Bits right) { return arithmetic.add(left, right); });
        const std::string caption = label.empty() ? shortened(tree, 60) : fmt::format("{}", label);
        const std::string drawn =
            fmt::format("{} makes {} ({})\n{}", caption, decimal(format, bits), hex(format, bits), draw_text(tree));
        const std::vector<std::string_view> lines = lines_of(drawn);
        return std::vector<std::string>(lines.begin(), lines.end());
    };
    const std::vector<std::string> left = column(a, label_a), right = column(b, label_b);
    std::size_t width = 0;
    for (const std::string& line : left) width = std::max(width, columns(line));
    std::string text = str_leaves(format, leaves);
    for (std::size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
        const std::string first = i < left.size() ? left[i] : std::string();
        const std::string second = i < right.size() ? right[i] : std::string();
        text += "\n" + first;
        if (!second.empty()) text += std::string(width + 5 - columns(first), ' ') + second;
    }
    return text;
}

}  // namespace samesum
