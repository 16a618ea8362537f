// Dynamic programming over subsets. Rounded addition is monotone, which avoids nearly all of the work:
//
//   results of A   a0 <= a1 <= ... <= am        sums are between a0 + b0 and am + bk (both rounded);
//   results of B   b0 <= b1 <= ... <= bk        if all numbers there are known, A and B add no result
//
// Numbers are stored as order_key()s: unsigned comparison is numeric, -0 just before +0.
// SPDX-License-Identifier: Apache-2.0
#include "model/sum/reachable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "model/arithmetic/random.hpp"
#include "model/sum/native_sum.hpp"
#include "model/support/error.hpp"
#include "model/support/progress.hpp"

namespace samesum {
namespace {

constexpr std::size_t max_leaves = 20;

/// order_key() and its inverse for a format known at compile time, without branches.
template <class Add>
struct Keys;
template <Format format>
struct Keys<NativeAdd<format>> {
    static constexpr int width = static_cast<int>(8 * element_bytes(format));
    static constexpr Bits sign = Bits{1} << (width - 1);
    static Bits key(Bits bits) { return bits ^ (sign | ((sign - 1) & (0 - (bits >> (width - 1))))); }
    static Bits bits(Bits key) { return key ^ (sign | ((sign - 1) & ((key >> (width - 1)) - 1))); }
    static Bits sum(Bits a, Bits b) { return key(NativeAdd<format>::add(bits(a), bits(b))); }
};

/// A set of marked numbers below `size`, with a count.
class Marks {
public:
    Marks(std::vector<std::uint64_t>& words, std::uint64_t size) : words_(words) { words_.assign(size / 64 + 1, 0); }
    void mark(std::uint64_t i) {
        std::uint64_t& word = words_[i / 64];
        const std::uint64_t bit = std::uint64_t{1} << (i % 64);
        count_ += (word & bit) == 0;
        word |= bit;
    }
    [[nodiscard]] std::uint64_t count() const { return count_; }
    /// Whether all of [first, last] is marked.
    [[nodiscard]] bool full(std::uint64_t first, std::uint64_t last) const {
        const std::uint64_t head = ~std::uint64_t{0} << (first % 64);
        const std::uint64_t tail = ~std::uint64_t{0} >> (63 - last % 64);
        if (first / 64 == last / 64) return (words_[first / 64] & head & tail) == (head & tail);
        if ((words_[first / 64] & head) != head || (words_[last / 64] & tail) != tail) return false;
        for (std::uint64_t word = first / 64 + 1; word < last / 64; ++word)
            if (~words_[word] != 0) return false;
        return true;
    }
    template <class Visit>
    void visit(Visit&& visit) const {
        for (std::size_t word = 0; word < words_.size(); ++word)
            for (std::uint64_t rest = words_[word]; rest != 0; rest &= rest - 1)
                visit(word * 64 + static_cast<std::uint64_t>(std::countr_zero(rest)));
    }

private:
    std::vector<std::uint64_t>& words_;
    std::uint64_t count_ = 0;
};

/// Collects keys in any order with duplicates; sorts and removes the duplicates when it has grown.
class KeySet {
public:
    void insert(Bits key) {
        keys_.push_back(key);
        if (keys_.size() >= limit_) {
            deduplicate();
            limit_ = std::max<std::size_t>(2 * keys_.size(), 4096);
        }
    }
    std::vector<Bits> take() {
        deduplicate();
        return std::move(keys_);
    }

private:
    void deduplicate() {
        std::sort(keys_.begin(), keys_.end());
        keys_.erase(std::unique(keys_.begin(), keys_.end()), keys_.end());
    }
    std::vector<Bits> keys_;
    std::size_t limit_ = 4096;
};

Format accumulator_of(const SumRule& rule) {
    const FormatTraits& t = traits(rule.format);
    const bool wide = rule.accumulation == Accumulation::fp32_once && t.is_float && t.width < 32;
    return wide ? Format::float32 : rule.format;
}

std::vector<Bits> widened(const SumRule& rule, std::span<const Bits> leaves) {
    std::vector<Bits> values(leaves.begin(), leaves.end());
    const Format accumulator = accumulator_of(rule);
    if (accumulator != rule.format)
        for (Bits& value : values) value = convert(rule.format, accumulator, value);
    return values;
}

Bits one_nan(Format format, Bits bits) { return is_nan(format, bits) ? traits(format).nan : bits; }

}  // namespace

ReachableSums::ReachableSums(const SumRule& rule, std::span<const Bits> leaves, const ReachableOptions& options)
    : rule_(rule), accumulator_(accumulator_of(rule)), leaves_(widened(rule, leaves)), shapes_(options.shapes) {
    ensure(rule.operation == Operation::sum, "reachable results are defined for sums");
    ensure(!leaves.empty(), "a sum has a leaf");
    if (rule.accumulation == Accumulation::exact) {
        results_ = {exact_sum(rule.format, leaves)};
        return;
    }
    if (leaves.size() > max_leaves)
        throw Inconclusive(
            fmt::format("cannot enumerate all orders of {} values; expected at most {}", leaves.size(), max_leaves));
    with_native_add(accumulator_, [&](auto add) { fill<decltype(add)>(options); });
    const Set& all = sets_.back();
    const FormatTraits& t = traits(accumulator_);
    for (const Bits key : all.keys) {
        const Bits wide = bits_of_order_key(t, key);
        const Bits bits = accumulator_ == rule.format ? wide : convert(accumulator_, rule.format, wide);
        if (results_.empty() || results_.back() != bits) results_.push_back(bits);
    }
    if (all.nan) results_.push_back(traits(rule.format).nan);
}

/// All splits of a subset into two parts, each once; the lowest leaf is on the left.
void ReachableSums::splits_of(std::uint32_t subset, std::vector<Split>& splits) const {
    splits.clear();
    if (shapes_ == Shapes::chains) {
        for (std::uint32_t rest = subset; rest != 0; rest &= rest - 1)
            splits.push_back({subset & ~(rest & (~rest + 1)), rest & (~rest + 1)});
        return;
    }
    const std::uint32_t lowest = subset & (~subset + 1), others = subset ^ lowest;
    for (std::uint32_t right = others; right != 0; right = (right - 1) & others)
        splits.push_back({subset ^ right, right});
}

template <class Add>
void ReachableSums::fill(const ReachableOptions& options) {
    const double deadline = monotonic_seconds() + options.seconds;
    const FormatTraits& t = traits(accumulator_);
    sets_.resize(std::size_t{1} << leaves_.size());
    key_ranges_.resize(sets_.size());
    std::size_t held = 0;
    std::vector<Split> splits;
    for (std::uint32_t subset = 1; subset < sets_.size(); ++subset) {
        if (subset > 1) note_key_range(subset - 1);
        if (std::has_single_bit(subset)) {
            const Bits leaf = leaves_[static_cast<std::size_t>(std::countr_zero(subset))];
            if (is_nan(accumulator_, leaf))
                sets_[subset].nan = true;
            else
                sets_[subset].keys = {order_key(t, leaf)};
            continue;
        }
        fill_subset<Add>(subset, splits);
        held += sets_[subset].keys.size();
        if (held > options.results)
            throw Inconclusive(fmt::format("these {} values have too many results to enumerate", leaves_.size()));
        if (monotonic_seconds() > deadline)
            throw Inconclusive(fmt::format("enumerating all orders of these {} values takes longer than {} s",
                                           leaves_.size(), options.seconds));
    }
}

void ReachableSums::note_key_range(std::uint32_t subset) {
    const std::vector<Bits>& keys = sets_[subset].keys;
    if (keys.empty()) return;
    const FormatTraits& t = traits(accumulator_);
    key_ranges_[subset] = {keys.front(), keys.back(),
                           is_finite(accumulator_, bits_of_order_key(t, keys.front())) &&
                               is_finite(accumulator_, bits_of_order_key(t, keys.back()))};
}

template <class Add>
void ReachableSums::fill_subset(std::uint32_t subset, std::vector<Split>& splits) {
    const FormatTraits& t = traits(accumulator_);
    const auto sum = [](Bits a, Bits b) { return Keys<Add>::sum(a, b); };
    Set& result = sets_[subset];
    splits_of(subset, splits);
    ranges_.resize(splits.size());
    Bits low = ~Bits{0}, high = 0;
    // Not monotone: integers wrap, and infinities of both signs give NaN.
    bool monotone = t.is_float;
    for (std::size_t i = 0; i < splits.size() && monotone; ++i) {
        const KeyRange& a = key_ranges_[splits[i].left];
        const KeyRange& b = key_ranges_[splits[i].right];
        monotone = a.finite && b.finite;
        ranges_[i] = {sum(a.low, b.low), sum(a.high, b.high)};
        low = std::min(low, ranges_[i].first);
        high = std::max(high, ranges_[i].second);
    }
    constexpr std::uint64_t widest_window = std::uint64_t{1} << 16;
    if (!monotone || high - low >= widest_window) {
        KeySet keys;
        for (const Split& split : splits) {
            const Set& a = sets_[split.left];
            const Set& b = sets_[split.right];
            result.nan = result.nan || a.nan || b.nan;
            for (const Bits x : a.keys)
                for (const Bits y : b.keys) {
                    const Bits bits = Add::add(bits_of_order_key(t, x), bits_of_order_key(t, y));
                    if (is_nan(accumulator_, bits))
                        result.nan = true;
                    else
                        keys.insert(order_key(t, bits));
                }
        }
        result.keys = keys.take();
        return;
    }
    Marks marks(marks_, high - low + 1);
    for (std::size_t i = 0; i < splits.size() && marks.count() <= high - low; ++i) {
        if (marks.full(ranges_[i].first - low, ranges_[i].second - low)) continue;
        const Set* a = &sets_[splits[i].left];
        const Set* b = &sets_[splits[i].right];
        if (a->keys.size() > b->keys.size()) std::swap(a, b);
        for (const Bits x : a->keys) {
            const Bits first = sum(x, b->keys.front()), last = sum(x, b->keys.back());
            if (marks.full(first - low, last - low)) continue;
            for (const Bits y : b->keys) marks.mark(sum(x, y) - low);
        }
    }
    result.keys.reserve(marks.count());
    marks.visit([&](std::uint64_t i) { result.keys.push_back(low + i); });
}

std::optional<ReductionTree> ReachableSums::tree_for(Bits result) const {
    const Bits wanted = one_nan(rule_.format, result);
    if (std::find(results_.begin(), results_.end(), wanted) == results_.end()) return std::nullopt;
    if (sets_.empty()) {  // exact
        std::vector<int> ranks(leaves_.size());
        std::iota(ranks.begin(), ranks.end(), 0);
        return ReductionTree::left_fold(ranks);
    }
    const auto all = static_cast<std::uint32_t>(sets_.size() - 1);
    if (is_nan(rule_.format, wanted)) return tree_of(all, std::nullopt);
    for (const Bits key : sets_.back().keys) {
        const Bits wide = bits_of_order_key(traits(accumulator_), key);
        if ((accumulator_ == rule_.format ? wide : convert(accumulator_, rule_.format, wide)) == wanted)
            return tree_of(all, key);
    }
    return std::nullopt;
}

ReductionTree ReachableSums::tree_of(std::uint32_t subset, std::optional<Bits> key) const {
    if (std::has_single_bit(subset)) return ReductionTree::leaf(std::countr_zero(subset));
    const FormatTraits& t = traits(accumulator_);
    const HopArithmetic hop(accumulator_);
    std::vector<Split> splits;
    splits_of(subset, splits);
    const auto node = [&](const Split& split, std::optional<Bits> x, std::optional<Bits> y) {
        return ReductionTree::node(tree_of(split.left, x), tree_of(split.right, y));
    };
    const auto first_of = [](const Set& set) { return set.keys.empty() ? std::nullopt : std::optional(set.keys[0]); };
    for (const Split& split : splits) {
        const Set& a = sets_[split.left];
        const Set& b = sets_[split.right];
        if (!key && a.nan) return node(split, std::nullopt, first_of(b));
        if (!key && b.nan) return node(split, first_of(a), std::nullopt);
        for (const Bits x : a.keys)
            for (const Bits y : b.keys) {
                const Bits bits = hop.add(bits_of_order_key(t, x), bits_of_order_key(t, y));
                const bool nan = is_nan(accumulator_, bits);
                if (key ? !nan && order_key(t, bits) == *key : nan) return node(split, x, y);
            }
    }
    ensure(false, "an enumerated result has a tree");
    return ReductionTree::leaf(0);
}

bool SumBound::admits(Format format, Bits bits) const {
    if (!is_finite(format, bits)) return !finite;
    const double value = to_double(format, bits);
    return low <= value && value <= high;
}

SumBound any_order_bound(const SumRule& rule, std::span<const Bits> leaves) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const SumBound anything{-infinity, infinity, false};
    const FormatTraits& data = traits(rule.format);
    const FormatTraits& t = traits(accumulator_of(rule));
    if (!data.is_float) return anything;
    std::vector<Bits> wide;
    double magnitudes = 0;
    for (const Bits leaf : leaves) {
        if (!is_finite(rule.format, leaf)) return anything;
        wide.push_back(convert(rule.format, Format::float64, leaf));
        magnitudes += std::fabs(to_double(rule.format, leaf));
    }
    const double n = static_cast<double>(leaves.size());
    magnitudes *= 1 + n * 0x1p-52;  // covers the rounding errors of the additions above
    const double unit = std::ldexp(1.0, -t.precision());
    double largest_partial = magnitudes;
    for (std::size_t i = 1; i < leaves.size() && largest_partial < infinity; ++i) largest_partial *= 1 + 2 * unit;
    // Where partial sums overflow (or saturate in float8) rounding errors no longer bound the error.
    if (!(largest_partial < to_double(accumulator_of(rule), t.largest()))) return anything;
    const double exact = to_double(Format::float64, exact_sum(Format::float64, wide));
    const double error = ((n - 1) * unit + 0x1p-52) * magnitudes * (1 + 0x1p-40);
    SumBound bound{exact - error, exact + error, true};
    if (rule.accumulation == Accumulation::exact) bound = {exact, exact, true};
    // The last rounding to the data's format is monotone.
    bound.low = to_double(rule.format, from_double(rule.format, bound.low));
    bound.high = to_double(rule.format, from_double(rule.format, bound.high));
    bound.finite = std::isfinite(bound.low) && std::isfinite(bound.high);
    return bound;
}

namespace {

/// A random tree or chain over n leaves.
ReductionTree random_order(Random& random, std::size_t leaves, Shapes shapes) {
    std::vector<int> ranks(leaves);
    std::iota(ranks.begin(), ranks.end(), 0);
    for (std::size_t i = leaves; i > 1; --i) std::swap(ranks[i - 1], ranks[random.below(i)]);
    if (shapes == Shapes::chains) return ReductionTree::left_fold(ranks);
    // Builds the postfix program: with two operands on the stack, adds with probability 1/2.
    std::vector<std::int32_t> postfix;
    std::size_t on_stack = 0, used = 0;
    while (used < leaves || on_stack > 1) {
        if (used < leaves && (on_stack < 2 || random.below(2) == 0)) {
            postfix.push_back(ranks[used++]);
            ++on_stack;
        } else {
            postfix.push_back(ReductionTree::add);
            --on_stack;
        }
    }
    return ReductionTree(std::move(postfix));
}

}  // namespace

Reach reach(const SumRule& rule, std::span<const Bits> leaves, Bits result, const ReachableOptions& options,
            int tries) {
    Reach answer;
    const Bits wanted = one_nan(rule.format, result);
    try {
        const ReachableSums sums(rule, leaves, options);
        answer.results = sums.results().size();
        answer.tree = sums.tree_for(wanted);
        if (answer.tree) {
            answer.verdict = Reach::Verdict::reachable;
            return answer;
        }
        answer.verdict = Reach::Verdict::unreachable;
        const FormatTraits& t = traits(rule.format);
        for (const Bits each : sums.results()) {
            if (is_nan(rule.format, each) || is_nan(rule.format, wanted)) continue;
            if (order_key(t, each) < order_key(t, wanted)) answer.below = each;
            if (order_key(t, each) > order_key(t, wanted) && !answer.above) answer.above = each;
        }
        return answer;
    } catch (const Inconclusive& limit) {
        answer.why = limit.what();
    }
    answer.bound = any_order_bound(rule, leaves);
    if (!answer.bound->admits(rule.format, wanted)) {
        answer.verdict = Reach::Verdict::unreachable;
        return answer;
    }
    Random random(1);
    for (int i = 0; i < tries; ++i) {
        const ReductionTree tree = random_order(random, leaves.size(), options.shapes);
        if (one_nan(rule.format, sum_element(rule, tree, leaves)) != wanted) continue;
        answer.verdict = Reach::Verdict::reachable;
        answer.tree = tree;
        break;
    }
    return answer;
}

bool order_matters(const SumRule& rule, std::span<const Bits> leaves, const ReachableOptions& options) {
    if (rule.accumulation == Accumulation::exact || !traits(rule.format).is_float || leaves.size() < 3) return false;
    const Format format = accumulator_of(rule);
    const FormatTraits& t = traits(format);
    const std::vector<Bits> values = widened(rule, leaves);
    // Multiples of 2^k whose magnitudes add up to at most 2^(k + p): every partial sum is such a multiple, and exact.
    bool finite = true, zeros_only = true;
    double magnitudes = 0;
    int unit = std::numeric_limits<int>::max();
    for (const Bits value : values) {
        finite = finite && is_finite(format, value);
        if (!finite || is_zero(format, value)) continue;
        zeros_only = false;
        const DecodedFloat decoded = decode(t, value);
        unit = std::min(unit, decoded.exponent + std::countr_zero(decoded.significand));
        magnitudes += std::fabs(to_double(format, value));
    }
    if (finite && zeros_only) return false;
    // magnitudes is exact enough: if it was rounded, it exceeds 2^53 units, and the comparison is false anyway.
    if (finite && t.width < 64 && magnitudes <= std::ldexp(1.0, unit + t.precision()) &&
        magnitudes <= to_double(format, t.largest()))
        return false;
    // A few trees, each cheap: forwards, backwards, balanced.
    std::vector<int> ranks(leaves.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    const std::vector<int> reversed(ranks.rbegin(), ranks.rend());
    const auto result = [&](const ReductionTree& tree) {
        return one_nan(rule.format, sum_element(rule, tree, leaves));
    };
    const Bits first = result(ReductionTree::left_fold(ranks));
    if (result(ReductionTree::left_fold(reversed)) != first) return true;
    if (options.shapes == Shapes::trees && result(ReductionTree::balanced(ranks)) != first) return true;
    return ReachableSums(rule, leaves, options).results().size() > 1;
}

std::uint64_t ulp_distance(Format format, Bits a, Bits b) {
    const Bits x = order_key(traits(format), a), y = order_key(traits(format), b);
    return x > y ? x - y : y - x;
}

}  // namespace samesum
