// The order of additions of anything that sums, found out from outside: masks in, trees out.
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

/// Three values such that big + unit = big, big + -big = 0, and sums of up to `most` units are exact: where `big` and
/// `-big` meet, everything below is swallowed, and what comes out counts the units above.
struct MaskValues {
    Bits big, minus_big, unit;
};
/// Throws UsageError where the format cannot count so many ranks (float8_e5m2: 10, float8_e4m3: 18), or is no float.
[[nodiscard]] MaskValues mask_values(Format format, int ranks);

/// masks[k][r]: what rank r contributes at every element. One for each pair i < j, in lexicographic order: rank i big,
/// rank j -big, all others unit.
[[nodiscard]] std::vector<std::vector<Bits>> pair_masks(Format format, int ranks);

/// A tree, or why there is none.
struct Shape {
    std::optional<ReductionTree> tree;  ///< canonical
    std::string why_not;
};
/// units[k]: the units that came out for pair k, i.e. the leaves outside the smallest subtree that holds both; -1 for
/// anything that is no such number. Additions of more than two operands at once, and counts that fit no tree, are told
/// apart in `why_not`.
[[nodiscard]] Shape shape_of(int ranks, std::span<const int> units);

/// The callables that reveal() tries out. Both return the bits of all `elements` results.
struct SumUnderTest {
    std::uint64_t elements = 0;
    /// For each mask the results, in the format's memory layout.
    std::function<std::vector<std::span<const std::byte>>(std::span<const std::vector<Bits>> masks)> run_masks;
    /// inputs[r]: the values of rank r, in memory layout; the callee's own until the next call.
    std::function<std::span<const std::byte>(const std::function<void(int rank, std::span<std::byte> input)>& fill)>
        run_data;
};

struct RevealOptions {
    std::uint64_t seed = 1;
    int confirmations = 1;  ///< random buffers that the trees must reproduce
    int repeats = 2;        ///< how often each of them is run; all must agree
};

/// Elements [begin, end) made by trees[tree].
struct RevealedRange {
    std::uint64_t begin = 0, end = 0;
    std::size_t tree = 0;
};

struct Revealed {
    enum class Answer : std::uint8_t {
        order,           ///< every element has a tree, and random data confirms it
        not_observable,  ///< counts that fit no tree, or trees that random data contradicts (a wider accumulator, say)
        not_one_order,   ///< the same call gave different bits
    };
    Answer answer = Answer::order;
    std::string why;
    std::vector<ReductionTree> trees;  ///< canonical, in order of first appearance
    std::vector<RevealedRange> segments;
    std::uint64_t mismatches = 0;  ///< elements of the random data that the trees did not reproduce
};
[[nodiscard]] std::string_view name(Revealed::Answer answer);

/// n(n-1)/2 masked calls show the tree of every element at once; random data confirms them with HopArithmetic.
[[nodiscard]] Revealed reveal(Format format, int ranks, const SumUnderTest& sum, const RevealOptions& options = {});

/// Element `index` of rank `rank` of random data: magnitudes within 2^-6 .. 2^6, so that most orders differ on most of
/// them. A function of its arguments alone.
[[nodiscard]] Bits revealing_value(Format format, std::uint64_t seed, int rank, std::uint64_t index);

}  // namespace samesum
