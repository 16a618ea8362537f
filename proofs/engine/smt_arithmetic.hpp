// NCCL's addition over solver terms: the trees that add bits also add formulas.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "model/arithmetic/format.hpp"
#include "model/sum/reduction_tree.hpp"
#include "proofs/engine/smt.hpp"

namespace samesum {

/// Addition of a float format, rounding always to nearest even. Leaves are bit vectors, as in memory; sums are SMT-LIB
/// floats, which know one NaN. Apart from float64, NCCL's sums know one NaN as well, so equal terms mean equal bits.
///
/// float8 values live in float16, as NCCL adds them (2.28.9, src/device/reduce_kernel.h): added there, rounded to the
/// float8 precision, saturated. The sort (5, precision) rounds as float8 does: sums of two float8_e4m3 values below
/// 2^-6, where its exponents end, are exact.
class SmtArithmetic {
public:
    explicit SmtArithmetic(Format format);

    [[nodiscard]] Format format() const { return format_; }
    /// Definitions that value() and add() rely on; once at the top of a script.
    [[nodiscard]] std::string definitions() const;
    [[nodiscard]] std::string leaf_sort() const;
    [[nodiscard]] std::string value_sort() const;
    /// The value of a leaf's bits.
    [[nodiscard]] Term value(const Term& bits) const;
    [[nodiscard]] Term add(const Term& left, const Term& right) const;
    /// A tree over leaves' bits, by the template that bits use.
    [[nodiscard]] Term sum(const ReductionTree& tree, std::span<const Term> leaves) const;

private:
    Format format_;
};

/// An uninterpreted addition, `(add x y)` over a sort V: what holds for it holds in every format and for every binary
/// operation.
class AnyAddition {
public:
    [[nodiscard]] static std::string declarations();
    /// for all x y: x + y = y + x
    [[nodiscard]] static Term commutes();
    [[nodiscard]] static Term add(const Term& left, const Term& right) { return call("add", left, right); }
    [[nodiscard]] static Term sum(const ReductionTree& tree, std::span<const Term> leaves);
};

}  // namespace samesum
