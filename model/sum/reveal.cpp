// The sizes of the smallest subtrees that hold each pair (i, j) determine a tree: it is built from them, then checked.
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

/// Index of pair i < j among all pairs.
std::size_t pair_index(int ranks, int i, int j) {
    if (i > j) std::swap(i, j);
    return static_cast<std::size_t>(i) * static_cast<std::size_t>(2 * ranks - i - 1) / 2 +
           static_cast<std::size_t>(j - i - 1);
}

/// Builds the tree over `members` from subtree sizes, or says what does not fit.
class Builder {
public:
    Builder(int ranks, std::span<const int> units) : ranks_(ranks), units_(units) {}

    InferredTree build(const std::vector<int>& members) {
        InferredTree inferred{ReductionTree::leaf(members.front()), ""};
        std::map<int, std::vector<int>> by_size;
        for (std::size_t i = 1; i < members.size(); ++i)
            by_size[size_with(members.front(), members[i])].push_back(members[i]);
        int size = 1;
        for (const auto& [whole, joined] : by_size) {
            size += static_cast<int>(joined.size());
            if (size != whole)
                return {std::nullopt,
                        fmt::format("rank {}: its counts give a subtree of {} ranks, but {} ranks belong to it",
                                    members.front(), whole, size)};
            // Ranks whose smallest common subtree also holds the first rank are operands of one addition.
            for (std::size_t a = 0; a < joined.size(); ++a)
                for (std::size_t b = a + 1; b < joined.size(); ++b)
                    if (size_with(joined[a], joined[b]) == whole)
                        return {std::nullopt,
                                fmt::format("one addition has more than two operands: it joins ranks {}, {} and {}",
                                            members.front(), joined[a], joined[b])};
            const InferredTree other = build(joined);
            if (!other.tree) return other;
            inferred.tree = ReductionTree::node(*inferred.tree, *other.tree);
        }
        return inferred;
    }

    /// Whether each pair has the subtree size that its count says.
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
    if (!t.is_float) throw UsageError(fmt::format("{} sums have no order to reveal: expected a float type", t.name));
    // big = 2^b and unit = 2^u: the sum of n units must stay below half an ulp of big; n - 2 units must be exact.
    const int top = std::min(t.bias() - 1, 900), bottom = 1 - t.bias();
    const int big = format == Format::bfloat16 ? 100 : format == Format::float32 ? 60 : top;
    const int unit = std::max(std::min(0, big - 2 * t.precision()), bottom);
    const std::uint64_t countable =
        std::min(std::uint64_t{1} << t.precision(), std::uint64_t{1} << std::min(62, big - unit - t.precision()));
    if (static_cast<std::uint64_t>(ranks) > countable + 2)
        throw UsageError(fmt::format("{} cannot count {} ranks: expected at most {}", t.name, ranks, countable + 2));
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

InferredTree infer_tree(int ranks, std::span<const int> units) {
    ensure(units.size() == pairs(ranks), "one count for each pair");
    for (int i = 0; i < ranks; ++i)
        for (int j = i + 1; j < ranks; ++j)
            if (const int count = units[pair_index(ranks, i, j)]; count < 0 || count > ranks - 2)
                return {std::nullopt,
                        fmt::format("when ranks {} and {} cancel, the result does not count the {} others", i, j,
                                    ranks - 2)};
    if (ranks > 2 && std::all_of(units.begin(), units.end(), [&](int count) { return count == ranks - 2; }))
        return {std::nullopt, "nothing is ever absorbed: the accumulator is so wide that the order has no effect"};
    std::vector<int> members(static_cast<std::size_t>(ranks));
    std::iota(members.begin(), members.end(), 0);
    Builder builder(ranks, units);
    InferredTree inferred = builder.build(members);
    if (inferred.tree && !builder.fits(*inferred.tree)) return {std::nullopt, "the counts fit no tree"};
    if (inferred.tree) inferred.tree = inferred.tree->canonical();
    return inferred;
}

Bits revealing_value(Format format, std::uint64_t seed, int rank, std::uint64_t index) {
    return Random::of(seed * 0x10000 + static_cast<std::uint64_t>(rank), index).spread(format, 6);
}

namespace {

/// Elements with the same count for every mask are in one class, and have one tree.
struct ElementClasses {
    std::vector<std::uint32_t> class_of;      ///< of each element
    std::vector<std::vector<int>> units{{}};  ///< of each class: the count for each mask so far
};

/// Splits the classes by the results of the next mask. unit_counts: the patterns of exact multiples of the unit.
void split_classes(ElementClasses& classes, Format format, std::span<const std::byte> result,
                   const std::map<Bits, int>& unit_counts) {
    std::map<std::pair<std::uint32_t, int>, std::uint32_t> next;
    std::vector<std::vector<int>> units;
    // Adjacent elements mostly agree, so a class is looked up only where something changes.
    std::pair<std::uint32_t, Bits> last{~0u, 0};
    std::uint32_t last_class = 0;
    for (std::uint64_t e = 0; e < classes.class_of.size(); ++e) {
        std::uint32_t& element_class = classes.class_of[e];
        const Bits bits = load(format, result, e);
        if (last != std::pair{element_class, bits}) {
            last = {element_class, bits};
            const auto known = unit_counts.find(bits);
            const int count = known == unit_counts.end() ? -1 : known->second;
            const auto [place, is_new] =
                next.try_emplace({element_class, count}, static_cast<std::uint32_t>(units.size()));
            if (is_new) {
                units.push_back(classes.units[element_class]);
                units.back().push_back(count);
            }
            last_class = place->second;
        }
        element_class = last_class;
    }
    classes.units = std::move(units);
}

/// Runs all masks, as many at once as fit into 2^28 bytes (64 at most).
ElementClasses classify(Format format, int ranks, const SumUnderTest& sum) {
    const auto masks = pair_masks(format, ranks);
    const Bits unit = mask_values(format, ranks).unit;
    std::map<Bits, int> unit_counts{{0, 0}, {traits(format).sign(), 0}};
    for (int k = 1; k <= ranks - 2; ++k) unit_counts[from_double(format, k * to_double(format, unit))] = k;
    ElementClasses classes{std::vector<std::uint32_t>(sum.elements, 0)};
    const auto at_once = static_cast<std::size_t>(std::clamp<std::uint64_t>(
        (std::uint64_t{1} << 28) / (sum.elements * static_cast<std::uint64_t>(traits(format).bytes())), 1, 64));
    for (std::size_t first = 0; first < masks.size(); first += at_once)
        for (const auto& result :
             sum.run_masks(std::span(masks).subspan(first, std::min(at_once, masks.size() - first))))
            split_classes(classes, format, result, unit_counts);
    return classes;
}

/// The tree of each class and the segments of each tree; false, with the reason, where a class has no tree.
bool find_trees(Revealed& revealed, int ranks, const ElementClasses& classes) {
    std::map<ReductionTree, std::size_t> index_of;
    std::vector<std::size_t> tree_of(classes.units.size());
    for (std::size_t c = 0; c < classes.units.size(); ++c) {
        const InferredTree inferred =
            ranks == 1 ? InferredTree{ReductionTree::leaf(0), ""} : infer_tree(ranks, classes.units[c]);
        if (!inferred.tree) {
            const auto& all = classes.class_of;
            const auto where = std::find(all.begin(), all.end(), static_cast<std::uint32_t>(c));
            revealed.answer = Revealed::Answer::not_observable;
            revealed.why = fmt::format("element {}: {}", where - all.begin(), inferred.why_not);
            return false;
        }
        const auto [place, is_new] = index_of.try_emplace(*inferred.tree, revealed.trees.size());
        if (is_new) revealed.trees.push_back(*inferred.tree);
        tree_of[c] = place->second;
    }
    for (std::uint64_t e = 0; e < classes.class_of.size(); ++e) {
        const std::size_t tree = tree_of[classes.class_of[e]];
        if (revealed.segments.empty() || revealed.segments.back().tree != tree)
            revealed.segments.push_back({e, e, tree});
        revealed.segments.back().end = e + 1;
    }
    return true;
}

/// Runs random data `repeats` times and compares it with the trees, counting mismatches; false when two runs differ.
bool confirm(Revealed& revealed, Format format, int ranks, const SumUnderTest& sum, std::uint64_t seed, int repeats) {
    const auto fill = [&](int rank, std::span<std::byte> input) {
        for (std::uint64_t e = 0; e < sum.elements; ++e)
            store(format, input, e, revealing_value(format, seed, rank, e));
    };
    std::vector<std::byte> first;
    for (int repeat = 0; repeat < repeats; ++repeat) {
        const auto result = sum.run_data(fill);
        if (repeat == 0) {
            first.assign(result.begin(), result.end());
        } else if (!std::equal(result.begin(), result.end(), first.begin(), first.end())) {
            revealed.answer = Revealed::Answer::not_one_order;
            revealed.why = "the same call on the same data gave different bits";
            return false;
        }
    }
    const SumRule rule{.format = format};
    std::vector<Bits> leaves(static_cast<std::size_t>(ranks));
    for (const RevealedRange& range : revealed.segments)
        for (std::uint64_t e = range.begin; e < range.end; ++e) {
            for (int rank = 0; rank < ranks; ++rank)
                leaves[static_cast<std::size_t>(rank)] = revealing_value(format, seed, rank, e);
            if (sum_element(rule, revealed.trees[range.tree], leaves) == load(format, first, e)) continue;
            if (revealed.mismatches++ == 0)
                revealed.why =
                    fmt::format("element {}: {} gives other bits on random data", e, revealed.trees[range.tree].str());
        }
    return true;
}

}  // namespace

Revealed reveal(Format format, int ranks, const SumUnderTest& sum, const RevealOptions& options) {
    if (sum.elements == 0) throw UsageError("cannot reveal the order of a call of 0 elements");
    Revealed revealed;
    if (!find_trees(revealed, ranks, classify(format, ranks, sum))) return revealed;
    for (int round = 0; round < options.confirmations; ++round)
        if (!confirm(revealed, format, ranks, sum, options.seed + static_cast<std::uint64_t>(round), options.repeats))
            return revealed;
    if (revealed.mismatches > 0) revealed.answer = Revealed::Answer::not_observable;
    return revealed;
}

}  // namespace samesum
