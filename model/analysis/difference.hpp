// Two results of adding the same partials differ: by their order, by their rounding, or is one a defect?
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/nccl/buffer_sum.hpp"
#include "model/sum/element_sum.hpp"
#include "model/sum/reduction_tree.hpp"

namespace samesum {

enum class DifferenceKind : std::uint8_t {
    same,            ///< no element differs
    order_change,    ///< one rounding, other orders
    rounding_model,  ///< orders alone do not explain it, a sum that is rounded elsewhere does
    defect,          ///< no order and no rounding gives one of the results
};
/// "same", "order change", "rounding model", "defect".
[[nodiscard]] std::string_view name(DifferenceKind kind);

/// One element of one result, and an order and a rounding that give it; none for a defect.
struct ExplainedElement {
    Bits bits = 0;
    std::optional<ReductionTree> tree{};
    std::optional<Accumulation> rounding{};
    bool defect = false;
};

/// One element that differs, as evidence.
struct DifferingElement {
    std::uint64_t element = 0;
    std::array<ExplainedElement, 2> results{};
    std::vector<Bits> nearest{};  ///< for a defect: the nearest results that some order gives, per hop
};

struct Difference {
    DifferenceKind kind = DifferenceKind::same;
    std::uint64_t elements = 0, differing = 0;
    std::array<std::optional<Accumulation>, 2> roundings{};  ///< the one that gives all of a result, if one does
    std::array<std::optional<ReductionTree>, 2> orders{};    ///< the one tree that gives all of a result, if one does
    std::vector<DifferingElement> evidence{};                ///< up to 3; for a defect the one element
};

/// Explains why two results of adding `partials`, one buffer a rank, differ. `orders` are tried first, then each ring
/// that ends at a rank, rank order, its reverse and the balanced tree; elements that those do not explain are searched
/// through all orders, for `seconds` in all.
///
/// That an order gives a result does not show that it was taken; that none does proves a defect. Throws Inconclusive
/// where neither was found: too many ranks (more than about 16), or out of time. Throws UsageError when sizes do not
/// fit or there is no element.
[[nodiscard]] Difference explain_difference(Format format, std::span<const ConstBytes> partials, ConstBytes a,
                                            ConstBytes b, std::span<const ReductionTree> orders = {},
                                            double seconds = 60);

}  // namespace samesum
