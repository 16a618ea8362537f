// The order of additions of any summing function, inferred from its results on masked inputs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/arithmetic/format.hpp"
#include "model/sum/reduction_tree.hpp"

namespace samesum {

/// Three values such that big + unit = big, big + -big = 0, and the sums of units are exact. All units that are added
/// before `big` and `-big` cancel are absorbed, so the result counts the units that are added later.
struct MaskValues {
    Bits big, minus_big, unit;
};
/// Throws UsageError for integers, and where the format cannot count that many ranks (max. 10 in float8_e5m2, 18 in
/// float8_e4m3).
[[nodiscard]] MaskValues mask_values(Format format, int ranks);

/// masks[k][r]: the value of rank r in every element. One mask for each pair i < j, in lexicographic order: rank i has
/// big, rank j -big, all others unit.
[[nodiscard]] std::vector<std::vector<Bits>> pair_masks(Format format, int ranks);

/// A tree, or the reason why there is none.
struct InferredTree {
    std::optional<ReductionTree> tree;  ///< canonical
    std::string why_not;
};
/// units[k]: the units counted with mask k, i.e. the number of leaves outside the smallest subtree that holds both
/// ranks of the pair; -1 if the result is not a number of units. `why_not` distinguishes additions of more than two
/// operands at once from counts that fit no tree.
[[nodiscard]] InferredTree infer_tree(int ranks, std::span<const int> units);

/// The function that reveal() tests. Both callables return the bits of all `elements` results.
struct SumUnderTest {
    std::uint64_t elements = 0;
    /// For each mask the results, in the format's memory layout.
    std::function<std::vector<std::span<const std::byte>>(std::span<const std::vector<Bits>> masks)> run_masks;
    /// `fill` writes the input of one rank, in memory layout. The results stay valid until the next call.
    std::function<std::span<const std::byte>(const std::function<void(int rank, std::span<std::byte> input)>& fill)>
        run_data;
};

struct RevealOptions {
    std::uint64_t seed = 1;
    int confirmations = 1;  ///< random buffers that the trees must reproduce
    int repeats = 2;        ///< runs of each buffer; all must agree
};

/// Elements [begin, end) are summed by trees[tree].
struct RevealedRange {
    std::uint64_t begin = 0, end = 0;
    std::size_t tree = 0;
};

struct Revealed {
    enum class Answer : std::uint8_t {
        order,           ///< every element has a tree, confirmed on random data
        not_observable,  ///< counts that fit no tree, or trees contradicted by random data (e.g. a wider accumulator)
        not_one_order,   ///< the same call gave different bits
    };
    Answer answer = Answer::order;
    std::string why;
    std::vector<ReductionTree> trees;  ///< canonical, in order of first appearance
    std::vector<RevealedRange> segments;
    std::uint64_t mismatches = 0;  ///< elements of random data that the trees did not reproduce
};
[[nodiscard]] std::string_view name(Revealed::Answer answer);

/// Infers the trees of all elements from n(n-1)/2 masked calls, and confirms them on random data with HopArithmetic.
[[nodiscard]] Revealed reveal(Format format, int ranks, const SumUnderTest& sum, const RevealOptions& options = {});

/// Element `index` of rank `rank` of random data: magnitudes within 2^-6 .. 2^6, so that most orders differ on most
/// elements. A pure function.
[[nodiscard]] Bits revealing_value(Format format, std::uint64_t seed, int rank, std::uint64_t index);

}  // namespace samesum
