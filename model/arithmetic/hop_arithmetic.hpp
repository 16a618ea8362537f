// One addition, multiplication or conversion as NCCL's kernels do it, in integer arithmetic on bit patterns.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "model/arithmetic/format.hpp"
#include "model/arithmetic/operation.hpp"

namespace samesum {

/// Rounds a value of one format to another: to nearest, ties to even, subnormals kept.
/// Overflow gives infinity, in float8 the largest finite value (NCCL's fp8 conversions saturate).
/// NaN gives the target's `traits().nan`; float64 to float64 is the identity.
[[nodiscard]] Bits convert(Format from, Format to, Bits bits);

/// significand * 2^exponent (plus less than one unit of its last bit when `sticky`), rounded to nearest even.
[[nodiscard]] Bits round_to(Format format, bool negative, std::uint64_t significand, int exponent, bool sticky);

/// The arithmetic of one hop (NCCL 2.28.9, src/device/reduce_kernel.h; measured on H200):
/// every result is one round-to-nearest-even to the format, subnormals kept; NaN results are `traits().nan`,
/// except that float64 keeps the (quieted) payload of its left NaN operand, else of its right one (rule_for() says
/// which operand is left); float8 saturates, an infinite float8_e5m2 sum too. Integers wrap.
class HopArithmetic {
public:
    explicit HopArithmetic(Format format) : format_(format) {}

    [[nodiscard]] Format format() const { return format_; }
    [[nodiscard]] Bits add(Bits left, Bits right) const;
    [[nodiscard]] Bits multiply(Bits left, Bits right) const;
    /// left * right + addend, rounded once; floats wider than 8 bits only.
    [[nodiscard]] Bits fused_multiply_add(Bits left, Bits right, Bits addend) const;
    /// A single NaN is dropped, -0 < +0 (PTX min and max); infinities of float8_e5m2 saturate as in sums.
    [[nodiscard]] Bits minimum(Bits left, Bits right) const;
    [[nodiscard]] Bits maximum(Bits left, Bits right) const;
    /// sum, prod, min or max of two values; for avg and premulsum the addition only: sum_element() scales.
    [[nodiscard]] Bits combine(Operation operation, Bits left, Bits right) const;

private:
    [[nodiscard]] Bits extreme(Bits left, Bits right, bool largest) const;

    Format format_;
};

/// Whether `left + right` is exact, i.e. not changed by rounding.
[[nodiscard]] bool add_is_exact(Format format, Bits left, Bits right);

}  // namespace samesum
