// Exact integer results, rounded in one place.
//
// A finite value is significand * 2^exponent. Operands are shifted so that their leading bit is bit 125 of 128; the
// smaller one is then shifted right to the larger one's exponent, and the bits shifted out set the sticky flag:
//
//      125                                       0
//   a  1xxxxxxxx0000000000000000000000000000000000
//   b     1yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy|yyy -> sticky
//
// A product has at most 106 bits, so operands lose bits only when their exponents differ by 20 or more, where at most
// one leading bit can cancel: 126 - 1 kept bits and the sticky flag always decide a rounding to 53 bits.
// SPDX-License-Identifier: Apache-2.0
#include "model/arithmetic/hop_arithmetic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "model/support/error.hpp"

namespace samesum {
namespace {

__extension__ using Wide = unsigned __int128;

/// A finite value; `sticky`: the magnitude is larger by more than 0 and less than 1 unit of the significand.
struct Exact {
    bool negative = false;
    int exponent = 0;
    Wide significand = 0;
    bool sticky = false;
};

int leading_bit(Wide x) {
    const auto high = static_cast<std::uint64_t>(x >> 64);
    return high ? 127 - std::countl_zero(high) : 63 - std::countl_zero(static_cast<std::uint64_t>(x));
}

bool is_negative(const FormatTraits& t, Bits bits) { return (bits & t.sign()) != 0; }

Exact unpack(const FormatTraits& t, Bits bits) {
    const DecodedFloat value = decode(t, bits);
    return {value.negative, value.exponent, value.significand, false};
}

/// Rounds to nearest even and packs. The encoding is continuous from subnormals to infinity, so a carry out of the
/// significand correctly increments the exponent.
Bits round_and_pack(const FormatTraits& t, const Exact& x) {
    const Bits sign = x.negative ? t.sign() : 0;
    if (x.significand == 0) return sign;
    const int min = 1 - t.bias() - t.fraction_bits;  // exponent of the smallest subnormal's bit
    const int unit = std::max(x.exponent + leading_bit(x.significand) - t.fraction_bits, min);
    const int drop = unit - x.exponent;
    Wide kept = 0;
    if (drop <= 0) {
        kept = x.significand << -drop;
    } else if (drop <= 127) {
        kept = x.significand >> drop;
        const Wide rest = x.significand & ((Wide{1} << drop) - 1);
        const Wide half = Wide{1} << (drop - 1);
        if (rest > half || (rest == half && (x.sticky || (kept & 1)))) ++kept;
    }
    const Bits magnitude = (static_cast<Bits>(unit - min) << t.fraction_bits) + static_cast<Bits>(kept);
    const bool saturates = t.width == 8;
    if (unit - min >= (1 << t.exponent_bits) || magnitude > t.largest())
        return sign | (saturates ? t.largest() : t.infinity());
    return sign | magnitude;
}

Exact left_aligned(Exact x) {
    const int shift = 125 - leading_bit(x.significand);
    return {x.negative, x.exponent - shift, x.significand << shift, x.sticky};
}

/// Sum of two finite values, exact except for the sticky flag. An exact zero is +0 unless both are -0.
Exact exact_sum(const Exact& a, const Exact& b) {
    if (a.significand == 0 && b.significand == 0) return {a.negative && b.negative, 0, 0, false};
    if (a.significand == 0) return b;
    if (b.significand == 0) return a;
    Exact large = left_aligned(a);
    Exact small = left_aligned(b);
    if (large.exponent < small.exponent) std::swap(large, small);
    const int shift = large.exponent - small.exponent;
    const Wide moved = shift > 127 ? 0 : small.significand >> shift;
    const bool sticky = shift > 127 || (moved << shift) != small.significand;
    if (a.negative == b.negative) return {a.negative, large.exponent, large.significand + moved, sticky};
    if (large.significand == moved && !sticky) return {false, 0, 0, false};
    if (large.significand < moved) return {small.negative, large.exponent, moved - large.significand, false};
    // The bits shifted out still have to be subtracted: borrow one unit, keep the sticky flag.
    return {large.negative, large.exponent, large.significand - moved - (sticky ? 1 : 0), sticky};
}

Exact exact_product(const Exact& a, const Exact& b) {
    return {a.negative != b.negative, a.exponent + b.exponent, a.significand * b.significand, false};
}

/// float64 keeps the first NaN operand's payload, quieted; all other formats give traits().nan.
Bits nan_result(Format format, Bits left, Bits right) {
    if (format == Format::float64) {
        constexpr Bits quiet = Bits{1} << 51;
        if (is_nan(format, left)) return left | quiet;
        if (is_nan(format, right)) return right | quiet;
    }
    return traits(format).nan;
}

/// NCCL adds float8 in float16 and rounds again (reduce_kernel.h, FuncSum over fp8). float16 has 11 >= 2p + 2 bits for
/// p <= 4, so the two roundings equal one. Only overflow differs: infinities saturate like large sums.
Bits saturated(const FormatTraits& t, bool negative) { return (negative ? t.sign() : 0) | t.largest(); }

}  // namespace

Bits convert(Format from, Format to, Bits bits) {
    const FormatTraits& source = traits(from);
    const FormatTraits& target = traits(to);
    ensure(source.is_float && target.is_float, "convert() is between float formats");
    if (from == to && to == Format::float64) return bits;
    if (is_nan(from, bits)) return target.nan;
    if (is_infinite(from, bits)) {
        if (target.width == 8) return saturated(target, is_negative(source, bits));
        return (is_negative(source, bits) ? target.sign() : 0) | target.infinity();
    }
    return round_and_pack(target, unpack(source, bits));
}

Bits round_to(Format format, bool negative, std::uint64_t significand, int exponent, bool sticky) {
    return round_and_pack(traits(format), {negative, exponent, significand, sticky});
}

Bits HopArithmetic::add(Bits left, Bits right) const {
    const FormatTraits& t = traits(format_);
    if (!t.is_float) return (left + right) & t.mask();
    if (is_nan(format_, left) || is_nan(format_, right)) return nan_result(format_, left, right);
    const bool left_infinite = is_infinite(format_, left);
    const bool right_infinite = is_infinite(format_, right);
    if (left_infinite || right_infinite) {
        const bool negative = is_negative(t, left_infinite ? left : right);
        if (left_infinite && right_infinite && negative != is_negative(t, right)) return t.nan;
        return t.width == 8 ? saturated(t, negative) : (left_infinite ? left : right);
    }
    return round_and_pack(t, exact_sum(unpack(t, left), unpack(t, right)));
}

Bits HopArithmetic::multiply(Bits left, Bits right) const {
    const FormatTraits& t = traits(format_);
    if (!t.is_float) return (left * right) & t.mask();
    if (is_nan(format_, left) || is_nan(format_, right)) return nan_result(format_, left, right);
    const bool negative = is_negative(t, left) != is_negative(t, right);
    if (is_infinite(format_, left) || is_infinite(format_, right)) {
        if (is_zero(format_, left) || is_zero(format_, right)) return t.nan;
        return t.width == 8 ? saturated(t, negative) : ((negative ? t.sign() : 0) | t.infinity());
    }
    if (t.width == 8) {
        // fp8 products are first rounded to float16; that rounding matters because of float16's subnormals.
        const HopArithmetic half(Format::float16);
        return convert(
            Format::float16, format_,
            half.multiply(convert(format_, Format::float16, left), convert(format_, Format::float16, right)));
    }
    return round_and_pack(t, exact_product(unpack(t, left), unpack(t, right)));
}

Bits HopArithmetic::fused_multiply_add(Bits left, Bits right, Bits addend) const {
    const FormatTraits& t = traits(format_);
    ensure(t.is_float && t.width > 8, "only floats wider than 8 bits are fused");
    const bool product_special = !is_finite(format_, left) || !is_finite(format_, right);
    if (product_special || !is_finite(format_, addend)) {
        // No rounding is involved: multiply, then add.
        const bool product_is_finite = !product_special;
        return add(product_is_finite ? Bits{0} : multiply(left, right), addend);
    }
    return round_and_pack(t, exact_sum(exact_product(unpack(t, left), unpack(t, right)), unpack(t, addend)));
}

Bits HopArithmetic::minimum(Bits left, Bits right) const { return extreme(left, right, false); }
Bits HopArithmetic::maximum(Bits left, Bits right) const { return extreme(left, right, true); }

Bits HopArithmetic::extreme(Bits left, Bits right, bool largest) const {
    const FormatTraits& t = traits(format_);
    if (is_nan(format_, left) && is_nan(format_, right)) return nan_result(format_, left, right);
    const bool left_is_lower = order_key(t, left) <= order_key(t, right);
    const bool take_left = is_nan(format_, right) || (!is_nan(format_, left) && left_is_lower != largest);
    const Bits taken = take_left ? left : right;
    // float8 goes through float16 here too, and the conversion back saturates (FuncMinMax over fp8).
    return t.width == 8 && is_infinite(format_, taken) ? saturated(t, is_negative(t, taken)) : taken;
}

Bits HopArithmetic::combine(Operation operation, Bits left, Bits right) const {
    switch (operation) {
        case Operation::prod:
            return multiply(left, right);
        case Operation::min:
            return minimum(left, right);
        case Operation::max:
            return maximum(left, right);
        default:
            return add(left, right);
    }
}

bool add_is_exact(Format format, Bits left, Bits right) {
    const FormatTraits& t = traits(format);
    if (!t.is_float || !is_finite(format, left) || !is_finite(format, right)) return true;
    const Exact sum = exact_sum(unpack(t, left), unpack(t, right));
    if (sum.significand == 0) return true;
    const Bits rounded = round_and_pack(t, sum);
    if (!is_finite(format, rounded)) return false;
    const Exact back = unpack(t, rounded);
    if (sum.sticky || back.significand == 0) return false;
    // Equal magnitudes: the significand of the larger exponent, shifted to the smaller exponent, equals the other one.
    const Exact& high = back.exponent > sum.exponent ? back : sum;
    const Exact& low = back.exponent > sum.exponent ? sum : back;
    const int shift = high.exponent - low.exponent;
    return leading_bit(high.significand) + shift <= 126 && high.significand << shift == low.significand;
}

}  // namespace samesum
