// L(i, j), the size of the smallest subtree that holds i and j, determines a tree; so it is built and then checked.
// SPDX-License-Identifier: Apache-2.0
#include "model/sum/reveal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "model/arithmetic/random.hpp"
#include "model/sum/element_sum.hpp"
#include "model/support/error.hpp"

namespace samesum {
namespace {

std::size_t pairs(int ranks) { return static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks - 1) / 2; }

/// Place of pair i < j among all pairs.
std::size_t pair_index(int ranks, int i, int j) {
    if (i > j) std::swap(i, j);
    return static_cast<std::size_t>(i) * static_cast<std::size_t>(2 * ranks - i - 1) / 2 +
           static_cast<std::size_t>(j - i - 1);
}

/// Builds the tree over `members` from subtree sizes; a description of what does not fit otherwise.
class Builder {
public:
    Builder(int ranks, std::span<const int> units) : ranks_(ranks), units_(units) {}

    Shape build(const std::vector<int>& members) {
        Shape shape{ReductionTree::leaf(members.front()), ""};
        std::map<int, std::vector<int>> by_size;
        for (std::size_t i = 1; i < members.size(); ++i)
            by_size[size_with(members.front(), members[i])].push_back(members[i]);
        int size = 1;
        for (const auto& [whole, joined] : by_size) {
            size += static_cast<int>(joined.size());
            if (size != whole)
                return {std::nullopt,
                        fmt::format("rank {} meets {} ranks in a subtree of {}", members.front(), size, whole)};
            // Ranks that meet each other no earlier than they meet the first one are added all at once.
            for (std::size_t a = 0; a < joined.size(); ++a)
                for (std::size_t b = a + 1; b < joined.size(); ++b)
                    if (size_with(joined[a], joined[b]) == whole)
                        return {std::nullopt,
                                fmt::format("one addition has more than two operands: ranks {}, {} and {} "
                                            "meet at once",
                                            members.front(), joined[a], joined[b])};
            const Shape other = build(joined);
            if (!other.tree) return other;
            shape.tree = ReductionTree::node(*shape.tree, *other.tree);
        }
        return shape;
    }

    /// Does every pair meet where the counts say?
    [[nodiscard]] bool fits(const ReductionTree& tree) const {
        std::vector<std::vector<int>> stack;
        for (const std::int32_t code : tree.postfix()) {
            if (code >= 0) {
                stack.push_back({code});
                continue;
            }
            std::vector<int> right = std::move(stack.back());
            stack.pop_back();
            std::vector<int>& left = stack.back();
            const int size = static_cast<int>(left.size() + right.size());
            for (const int i : left)
                for (const int j : right)
                    if (size_with(i, j) != size) return false;
            left.insert(left.end(), right.begin(), right.end());
        }
        return true;
    }

private:
    [[nodiscard]] int size_with(int i, int j) const { return ranks_ - units_[pair_index(ranks_, i, j)]; }

    int ranks_;
    std::span<const int> units_;
};

}  // namespace

std::string_view name(Revealed::Answer answer) {
    switch (answer) {
        case Revealed::Answer::order:
            return "order";
        case Revealed::Answer::not_observable:
            return "not observable";
        case Revealed::Answer::not_one_order:
            return "not one order";
    }
    return "";
}

MaskValues mask_values(Format format, int ranks) {
    const FormatTraits& t = traits(format);
    if (!t.is_float) throw UsageError(fmt::format("{} sums have no order to reveal", t.name));
    // big = 2^b and unit = 2^u: n units must stay below half of big's last place, and n - 2 units must be exact.
    const int top = std::min(t.bias() - 1, 900), bottom = 1 - t.bias();
    const int big = format == Format::bfloat16 ? 100 : format == Format::float32 ? 60 : top;
    const int unit = std::max(std::min(0, big - 2 * t.precision()), bottom);
    const std::uint64_t countable =
        std::min(std::uint64_t{1} << t.precision(), std::uint64_t{1} << std::min(62, big - unit - t.precision()));
    if (static_cast<std::uint64_t>(ranks) > countable + 2)
        throw UsageError(
            fmt::format("{} cannot count {} ranks; at most {} would be right", t.name, ranks, countable + 2));
    const auto power = [&](int exponent) { return static_cast<Bits>(exponent + t.bias()) << t.fraction_bits; };
    return {power(big), power(big) | t.sign(), power(unit)};
}

std::vector<std::vector<Bits>> pair_masks(Format format, int ranks) {
    const MaskValues values = mask_values(format, ranks);
    std::vector<std::vector<Bits>> masks;
    for (int i = 0; i < ranks; ++i)
        for (int j = i + 1; j < ranks; ++j) {
            std::vector<Bits> mask(static_cast<std::size_t>(ranks), values.unit);
            mask[static_cast<std::size_t>(i)] = values.big;
            mask[static_cast<std::size_t>(j)] = values.minus_big;
            masks.push_back(std::move(mask));
        }
    return masks;
}

Shape shape_of(int ranks, std::span<const int> units) {
    ensure(units.size() == pairs(ranks), "a count for every pair");
    for (int i = 0; i < ranks; ++i)
        for (int j = i + 1; j < ranks; ++j)
            if (const int count = units[pair_index(ranks, i, j)]; count < 0 || count > ranks - 2)
                return {std::nullopt, fmt::format("with ranks {} and {} cancelling, the result is no number of the {} "
                                                  "others",
                                                  i, j, ranks - 2)};
    if (ranks > 2 && std::all_of(units.begin(), units.end(), [&](int count) { return count == ranks - 2; }))
        return {std::nullopt, "nothing is ever swallowed: the accumulator is wide enough to forget the order"};
    std::vector<int> members(static_cast<std::size_t>(ranks));
    std::iota(members.begin(), members.end(), 0);
    Builder builder(ranks, units);
    Shape shape = builder.build(members);
    if (shape.tree && !builder.fits(*shape.tree)) return {std::nullopt, "the counts fit no tree"};
    if (shape.tree) shape.tree = shape.tree->canonical();
    return shape;
}

Bits revealing_value(Format format, std::uint64_t seed, int rank, std::uint64_t index) {
    return Random::of(seed * 0x10000 + static_cast<std::uint64_t>(rank), index).spread(format, 6);
}

Revealed reveal(Format format, int ranks, const SumUnderTest& sum, const RevealOptions& options) {
    using enum Revealed::Answer;
    Revealed revealed;
    const std::uint64_t elements = sum.elements;
    if (elements == 0) throw UsageError("a call of no elements has no order to reveal");
    const FormatTraits& t = traits(format);

    // Element by element, which units came out for each pair; equal rows share a class.
    const auto masks = pair_masks(format, ranks);
    const Bits unit = mask_values(format, ranks).unit;
    std::map<Bits, int> count_of{{0, 0}, {t.sign(), 0}};
    // k units summed exactly: the k-th multiple of the unit.
    for (int k = 1; k <= ranks - 2; ++k) count_of[from_double(format, k * to_double(format, unit))] = k;
    std::vector<std::uint32_t> class_of(elements, 0);
    std::vector<std::vector<int>> rows{{}};  // of each class, the counts so far
    const std::size_t at_once = static_cast<std::size_t>(std::clamp<std::uint64_t>(
        (std::uint64_t{1} << 28) / (elements * static_cast<std::uint64_t>(t.bytes())), 1, 64));
    for (std::size_t first = 0; first < masks.size(); first += at_once) {
        const std::size_t many = std::min(at_once, masks.size() - first);
        for (const auto& result : sum.run_masks(std::span(masks).subspan(first, many))) {
            // Neighbours mostly agree, so a class is looked up only where something changes.
            std::map<std::pair<std::uint32_t, int>, std::uint32_t> next;
            std::vector<std::vector<int>> fresh;
            std::pair<std::uint32_t, Bits> last{~0u, 0};
            std::uint32_t last_class = 0;
            for (std::uint64_t e = 0; e < elements; ++e) {
                const Bits bits = load(format, result, e);
                if (last != std::pair{class_of[e], bits}) {
                    last = {class_of[e], bits};
                    const auto known = count_of.find(bits);
                    const int count = known == count_of.end() ? -1 : known->second;
                    const auto [place, is_new] =
                        next.try_emplace({class_of[e], count}, static_cast<std::uint32_t>(fresh.size()));
                    if (is_new) {
                        fresh.push_back(rows[class_of[e]]);
                        fresh.back().push_back(count);
                    }
                    last_class = place->second;
                }
                class_of[e] = last_class;
            }
            rows = std::move(fresh);
        }
    }
    // Classes in order of appearance, equal trees together.
    std::map<ReductionTree, std::size_t> index_of;
    std::vector<std::size_t> tree_of(rows.size());
    for (std::size_t c = 0; c < rows.size(); ++c) {
        const Shape shape = ranks == 1 ? Shape{ReductionTree::leaf(0), ""} : shape_of(ranks, rows[c]);
        if (!shape.tree) {
            const auto where = std::find(class_of.begin(), class_of.end(), static_cast<std::uint32_t>(c));
            revealed.answer = not_observable;
            revealed.why = fmt::format("element {}: {}", where - class_of.begin(), shape.why_not);
            return revealed;
        }
        const auto [place, is_new] = index_of.try_emplace(*shape.tree, revealed.trees.size());
        if (is_new) revealed.trees.push_back(*shape.tree);
        tree_of[c] = place->second;
    }
    for (std::uint64_t e = 0; e < elements; ++e) {
        const std::size_t tree = tree_of[class_of[e]];
        if (revealed.segments.empty() || revealed.segments.back().tree != tree)
            revealed.segments.push_back({e, e, tree});
        revealed.segments.back().end = e + 1;
    }

    const SumRule rule{.format = format};
    for (int round = 0; round < options.confirmations; ++round) {
        const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(round);
        const auto fill = [&](int rank, std::span<std::byte> input) {
            for (std::uint64_t e = 0; e < elements; ++e)
                store(format, input, e, revealing_value(format, seed, rank, e));
        };
        std::vector<std::byte> first;
        for (int repeat = 0; repeat < options.repeats; ++repeat) {
            const auto result = sum.run_data(fill);
            if (repeat == 0) {
                first.assign(result.begin(), result.end());
            } else if (!std::equal(result.begin(), result.end(), first.begin(), first.end())) {
                revealed.answer = not_one_order;
                revealed.why = "the same call on the same data gave different bits";
                return revealed;
            }
        }
        std::vector<Bits> leaves(static_cast<std::size_t>(ranks));
        for (const RevealedRange& range : revealed.segments)
            for (std::uint64_t e = range.begin; e < range.end; ++e) {
                for (int rank = 0; rank < ranks; ++rank)
                    leaves[static_cast<std::size_t>(rank)] = revealing_value(format, seed, rank, e);
                if (sum_element(rule, revealed.trees[range.tree], leaves) == load(format, first, e)) continue;
                if (revealed.mismatches++ == 0)
                    revealed.why = fmt::format("element {}: {} of the random data gives other bits", e,
                                               revealed.trees[range.tree].str());
            }
    }
    if (revealed.mismatches > 0) revealed.answer = not_observable;
    return revealed;
}

}  // namespace samesum
