// The results that any order of additions can give. A result outside them is a defect, not rounding.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/sum/element_sum.hpp"
#include "model/sum/reduction_tree.hpp"

namespace samesum {

/// Which trees are considered: all, or only chains (over the leaves in any sequence).
enum class Shapes : std::uint8_t { trees, chains };

struct ReachableOptions {
    Shapes shapes = Shapes::trees;
    double seconds = 10;               ///< time limit; beyond it: Inconclusive
    std::size_t results = 20'000'000;  ///< limit over all subsets together; beyond it: Inconclusive
};

/// Every result of adding given values, by dynamic programming over their subsets: a result of a subset is the sum of a
/// result of one part and a result of the rest. All NaNs count as one result.
class ReachableSums {
public:
    /// Sums only. fp32_once: the float32 results, rounded at the end; exact: one result.
    /// Throws Inconclusive for more than 20 leaves, or when a limit is exceeded.
    ReachableSums(const SumRule& rule, std::span<const Bits> leaves, const ReachableOptions& options = {});

    /// In numeric order, -0 before +0, NaN last.
    [[nodiscard]] std::span<const Bits> results() const { return results_; }
    /// One tree over all leaves that gives the result (under `exact` any tree does).
    [[nodiscard]] std::optional<ReductionTree> tree_for(Bits result) const;

private:
    struct Set {
        std::vector<Bits> keys;  // ascending; see order_key()
        bool nan = false;
    };
    struct Split {
        std::uint32_t left, right;
    };
    void splits_of(std::uint32_t subset, std::vector<Split>& splits) const;
    template <class Add>
    void fill(const ReachableOptions& options);
    template <class Add>
    void fill_subset(std::uint32_t subset, std::vector<Split>& splits);
    void note_key_range(std::uint32_t subset);
    [[nodiscard]] ReductionTree tree_of(std::uint32_t subset, std::optional<Bits> key) const;

    SumRule rule_;
    Format accumulator_;
    std::vector<Bits> leaves_;  // in the accumulator's format
    Shapes shapes_;
    std::vector<Set> sets_;  // by subset of the leaves, as a bit mask
    // Each set's smallest and largest key in one compact array, so that a pass over all pairs of parts stays in the
    // cache. `finite`: the set is not empty and both are finite.
    struct KeyRange {
        Bits low = 0, high = 0;
        bool finite = false;
    };
    std::vector<KeyRange> key_ranges_;
    std::vector<Bits> results_;
    std::vector<std::uint64_t> marks_;                             // scratch memory of fill_subset()
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;  // likewise
};

/// An interval that contains the results of all orders, for any number of values: the exact sum plus or minus
/// (n - 1) u (|x0| + |x1| + ...), where u is the accumulator's unit roundoff 2^-p (Jeannerod and Rump 2013).
struct SumBound {
    double low = 0, high = 0;
    /// All values and partial sums are finite in every order: no result is infinity or NaN.
    bool finite = false;
    /// Whether `bits` can be a result according to the bound.
    [[nodiscard]] bool admits(Format format, Bits bits) const;
};
[[nodiscard]] SumBound any_order_bound(const SumRule& rule, std::span<const Bits> leaves);

/// Whether some order of the values gives a result.
struct Reach {
    enum class Verdict : std::uint8_t { reachable, unreachable, undecided } verdict = Verdict::undecided;
    std::optional<ReductionTree> tree{};   ///< a tree that gives it
    std::size_t results = 0;               ///< number of reachable results; 0: not counted
    std::optional<Bits> below{}, above{};  ///< if unreachable: the nearest reachable results
    std::optional<SumBound> bound{};       ///< if it had to be decided by the bound
    std::string why{};                     ///< why the results could not be enumerated
};
/// Enumerates where the limits allow it; else applies the bound, then tries `tries` random trees.
[[nodiscard]] Reach reach(const SumRule& rule, std::span<const Bits> leaves, Bits result,
                          const ReachableOptions& options = {}, int tries = 20000);

/// Whether any two orders differ on these values, i.e. ReachableSums has more than one result. Decided without
/// enumeration when every partial sum is exact, or when a few trees already differ.
[[nodiscard]] bool order_matters(const SumRule& rule, std::span<const Bits> leaves,
                                 const ReachableOptions& options = {});

/// Distance in representable numbers; that of +0 and -0 is 1.
[[nodiscard]] std::uint64_t ulp_distance(Format format, Bits a, Bits b);

}  // namespace samesum
