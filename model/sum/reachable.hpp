// Which results can any order of additions give? What none can give is a defect, not rounding.
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

/// Which trees are meant: all of them, or chains over the leaves in any sequence.
enum class Shapes : std::uint8_t { trees, chains };

struct ReachableOptions {
    Shapes shapes = Shapes::trees;
    double seconds = 10;               ///< then Inconclusive
    std::size_t results = 20'000'000;  ///< held for all subsets together; beyond: Inconclusive
};

/// Every result of adding given values, by dynamic programming over their subsets: what a subset can give is what its
/// parts can give, added. All NaNs count as one result.
class ReachableSums {
public:
    /// Sums only. float32 accumulation is one of float32 results, rounded at the end; exact has one result.
    /// Throws Inconclusive when there are more than 20 leaves or the limits do not suffice.
    ReachableSums(const SumRule& rule, std::span<const Bits> leaves, const ReachableOptions& options = {});

    /// In numeric order, -0 before +0, NaN last.
    [[nodiscard]] std::span<const Bits> results() const { return results_; }
    /// One tree over all leaves that gives the result (under `exact` any tree does).
    [[nodiscard]] std::optional<ReductionTree> tree_for(Bits result) const;

private:
    struct Set {
        std::vector<Bits> keys;  // ascending; see key_of()
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
    void note_ends(std::uint32_t subset);
    [[nodiscard]] ReductionTree tree_of(std::uint32_t subset, std::optional<Bits> key) const;

    SumRule rule_;
    Format accumulator_;
    std::vector<Bits> leaves_;  // in the accumulator's format
    Shapes shapes_;
    std::vector<Set> sets_;  // by subset of the leaves, as a bit mask
    // Each set's least and greatest key side by side, so that looking at all pairs of parts stays in the cache; `tame`:
    // there are such and both are finite.
    struct Ends {
        Bits low = 0, high = 0;
        bool tame = false;
    };
    std::vector<Ends> ends_;
    std::vector<Bits> results_;
    std::vector<std::uint64_t> marks_;                             // scratch of fill_subset()
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;  // so too
};

/// An interval that holds every result of every order, whatever the number of values: the exact sum plus or minus
/// (n - 1) u (|x0| + |x1| + ...), u being half a unit of the accumulator's last place (Jeannerod and Rump 2013).
struct SumBound {
    double low = 0, high = 0;
    /// All values and partial sums are finite in every order, so that neither infinity nor NaN can come out.
    bool finite = false;
    /// Could this be a result?
    [[nodiscard]] bool admits(Format format, Bits bits) const;
};
[[nodiscard]] SumBound any_order_bound(const SumRule& rule, std::span<const Bits> leaves);

/// Can the values give this result?
struct Reach {
    enum class Verdict : std::uint8_t { reachable, unreachable, undecided } verdict = Verdict::undecided;
    std::optional<ReductionTree> tree{};   ///< that gives it
    std::size_t results = 0;               ///< how many there are; 0: not counted
    std::optional<Bits> below{}, above{};  ///< the nearest reachable results when it is not one itself
    std::optional<SumBound> bound{};       ///< when that is all there was to go by
    std::string why{};                     ///< what could not be enumerated
};
/// Enumerates where it can; else tries `tries` random trees, and then the bound.
[[nodiscard]] Reach reach(const SumRule& rule, std::span<const Bits> leaves, Bits result,
                          const ReachableOptions& options = {}, int tries = 20000);

/// Do any two orders differ on these values? As ReachableSums with more than one result, but decided early where the
/// values allow: at once when every partial sum is exact, or when a few trees already differ.
[[nodiscard]] bool order_matters(const SumRule& rule, std::span<const Bits> leaves,
                                 const ReachableOptions& options = {});

/// Values of a float format apart, counted in representable numbers; +0 and -0 are one apart.
[[nodiscard]] std::uint64_t ulp_distance(Format format, Bits a, Bits b);

}  // namespace samesum
