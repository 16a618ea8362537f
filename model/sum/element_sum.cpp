// The sum of one element along its tree, according to a rule.
// SPDX-License-Identifier: Apache-2.0
#include "model/sum/element_sum.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <vector>

#include "model/arithmetic/hop_arithmetic.hpp"
#include "model/support/error.hpp"

namespace samesum {
namespace {

/// A fixed-point number of `size` words; bit 0 has weight 2^-`point`, that of the smallest subnormal.
template <std::size_t size, int point>
class FixedPoint {
public:
    void add(bool negative, std::uint64_t significand, int exponent) {
        const int shift = exponent + point;
        ensure(shift >= 0, "no finite value is below the smallest subnormal");
        const auto limb = static_cast<std::size_t>(shift / 64);
        const int offset = shift % 64;
        const std::array<std::uint64_t, 2> pieces{significand << offset, offset ? significand >> (64 - offset) : 0};
        std::uint64_t carry = 0;
        for (std::size_t i = limb; i < limbs_.size(); ++i) {
            const std::uint64_t piece = i - limb < 2 ? pieces[i - limb] : 0;
            const std::uint64_t before = limbs_[i];
            if (negative) {
                limbs_[i] = before - piece - carry;
                carry = before < piece || (before == piece && carry) ? 1 : 0;
            } else {
                limbs_[i] = before + piece + carry;
                carry = limbs_[i] < before || (limbs_[i] == before && carry) ? 1 : 0;
            }
        }
    }

    /// Sign, leading 64 bits, their exponent, and whether any lower bit is 1.
    struct Head {
        bool negative;
        std::uint64_t bits;
        int exponent;
        bool sticky;
    };
    [[nodiscard]] Head head() const {
        std::array<std::uint64_t, size> magnitude = limbs_;
        const bool negative = (limbs_.back() >> 63) != 0;
        if (negative) {
            std::uint64_t carry = 1;
            for (std::uint64_t& limb : magnitude) {
                limb = ~limb + carry;
                carry = carry && limb == 0 ? 1 : 0;
            }
        }
        std::size_t top = size - 1;
        while (top > 0 && magnitude[top] == 0) --top;
        if (magnitude[top] == 0) return {false, 0, 0, false};
        const int leading = std::countl_zero(magnitude[top]);
        std::uint64_t bits = magnitude[top] << leading;
        bool sticky = false;
        if (top > 0) {
            if (leading > 0) bits |= magnitude[top - 1] >> (64 - leading);
            sticky = leading > 0 ? (magnitude[top - 1] << leading) != 0 : magnitude[top - 1] != 0;
            for (std::size_t i = 0; i + 1 < top; ++i) sticky = sticky || magnitude[i] != 0;
        }
        return {negative, bits, static_cast<int>(top) * 64 - leading - point, sticky};
    }

private:
    std::array<std::uint64_t, size> limbs_{};
};
/// Wide enough for 2^59 additions of any values of the format.
using Float64Sum = FixedPoint<36, 1074>;
using Float32Sum = FixedPoint<6, 149>;  ///< also for all formats whose values float32 represents

/// A partial sum, or a rank's own value that is not scaled yet.
struct Operand {
    Bits bits;
    bool own;
};

Bits scaled_sum(const SumRule& rule, const ReductionTree& tree, std::span<const Bits> leaves) {
    const HopArithmetic hop(rule.format);
    const bool fuses = rule.fused && traits(rule.format).width > 8;
    std::vector<Operand> own;
    for (const Bits value : leaves) own.push_back({value, true});
    const auto entered = [&](const Operand& x) { return x.own ? hop.multiply(x.bits, rule.scale) : x.bits; };
    const Operand sum = evaluate<Operand>(tree, own, [&](const Operand& left, const Operand& right) -> Operand {
        const Operand& mine = rule.own_is_left ? left : right;
        const Operand& other = rule.own_is_left ? right : left;
        if (mine.own && fuses) return {hop.fused_multiply_add(mine.bits, rule.scale, entered(other)), false};
        return {hop.add(entered(left), entered(right)), false};
    });
    return entered(sum);
}

Bits divided(const FormatTraits& t, Bits sum, std::uint64_t divisor) {
    if (!t.is_signed || !(sum & t.sign())) return sum / divisor;
    const Bits magnitude = (~sum + 1) & t.mask();
    return (~(magnitude / divisor) + 1) & t.mask();
}

}  // namespace

Bits average_scale(Format format, int ranks) {
    if (format == Format::float64) return std::bit_cast<Bits>(1.0 / ranks);
    return convert(Format::float32, format, std::bit_cast<std::uint32_t>(static_cast<float>(1.0 / ranks)));
}

Bits sum_element(const SumRule& rule, const ReductionTree& tree, std::span<const Bits> leaves) {
    const FormatTraits& t = traits(rule.format);
    const bool scales = rule.operation == Operation::avg || rule.operation == Operation::premulsum;
    if (rule.accumulation == Accumulation::exact) {
        ensure(rule.operation == Operation::sum, "exact accumulation is for sums");
        std::vector<Bits> values;
        for (const int rank : tree.leaves()) values.push_back(leaves[static_cast<std::size_t>(rank)]);
        return exact_sum(rule.format, values);
    }
    if (rule.accumulation == Accumulation::fp32_once && t.is_float && t.width < 32) {
        ensure(rule.operation == Operation::sum, "float32 accumulation is for sums");
        const HopArithmetic hop(Format::float32);
        std::vector<Bits> wide;
        for (const Bits value : leaves) wide.push_back(convert(rule.format, Format::float32, value));
        const Bits sum = evaluate<Bits>(tree, wide, [&](Bits left, Bits right) { return hop.add(left, right); });
        return convert(Format::float32, rule.format, sum);
    }
    if (scales && t.is_float) return scaled_sum(rule, tree, leaves);
    const HopArithmetic hop(rule.format);
    std::vector<Bits> scaled;
    if (rule.operation == Operation::premulsum) {  // of integers
        for (const Bits value : leaves) scaled.push_back(hop.multiply(value, rule.scale));
        leaves = scaled;
    }
    // A hop keeps its left operand's NaN payload; apart from that its operations commute.
    const Bits sum = evaluate<Bits>(tree, leaves, [&](Bits left, Bits right) {
        return rule.nan_from_right ? hop.combine(rule.operation, right, left)
                                   : hop.combine(rule.operation, left, right);
    });
    if (rule.operation == Operation::avg) return divided(t, sum, static_cast<std::uint64_t>(tree.leaf_count()));
    return sum;
}

namespace {

template <class Sum>
Bits exact_sum_of_floats(Format format, std::span<const Bits> values) {
    const FormatTraits& t = traits(format);
    Sum sum;
    bool all_negative_zero = !values.empty(), positive_infinity = false, negative_infinity = false;
    for (const Bits value : values) {
        if (is_nan(format, value)) return t.nan;
        const bool negative = (value & t.sign()) != 0;
        all_negative_zero = all_negative_zero && value == t.sign();
        if (is_infinite(format, value)) {
            (negative ? negative_infinity : positive_infinity) = true;
            continue;
        }
        const DecodedFloat finite = decode(t, value);
        sum.add(finite.negative, finite.significand, finite.exponent);
    }
    if (positive_infinity && negative_infinity) return t.nan;
    if (positive_infinity || negative_infinity) {
        const Bits sign = negative_infinity ? t.sign() : 0;
        return sign | (t.width == 8 ? t.largest() : t.infinity());
    }
    if (all_negative_zero) return t.sign();
    const auto head = sum.head();
    return round_to(format, head.negative, head.bits, head.exponent, head.sticky);
}

}  // namespace

Bits exact_sum(Format format, std::span<const Bits> values) {
    if (!traits(format).is_float) {
        const HopArithmetic hop(format);
        Bits sum = 0;
        for (const Bits value : values) sum = hop.add(sum, value);
        return sum;
    }
    return format == Format::float64 ? exact_sum_of_floats<Float64Sum>(format, values)
                                     : exact_sum_of_floats<Float32Sum>(format, values);
}

}  // namespace samesum
