// Reference arithmetic that shares no code with the model: exact integers of Boost.Multiprecision and a search for the
// nearest pattern.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include <boost/multiprecision/cpp_int.hpp>

#include "model/arithmetic/format.hpp"

namespace samesum::exact_reference {

using boost::multiprecision::cpp_int;

/// significand * 2^exponent.
struct Dyadic {
    cpp_int significand;
    int exponent = 0;
};

inline Dyadic operator+(const Dyadic& a, const Dyadic& b) {
    const int low = std::min(a.exponent, b.exponent);
    return {(a.significand << (a.exponent - low)) + (b.significand << (b.exponent - low)), low};
}
inline Dyadic operator*(const Dyadic& a, const Dyadic& b) {
    return {a.significand * b.significand, a.exponent + b.exponent};
}
/// The sign of a - b.
inline int compare(const Dyadic& a, const Dyadic& b) {
    const Dyadic difference = a + Dyadic{-b.significand, b.exponent};
    return difference.significand.sign();
}

/// The value of a finite magnitude pattern, or of the pattern after the largest: the next value of an unbounded
/// exponent.
inline Dyadic magnitude_value(Format format, Bits magnitude) {
    const FormatTraits& t = traits(format);
    const Bits hidden = Bits{1} << t.fraction_bits;
    const auto field = static_cast<int>(magnitude / hidden);
    const int min = 2 - (1 << (t.exponent_bits - 1)) - t.fraction_bits;
    if (field == 0) return {cpp_int(magnitude), min};
    return {cpp_int(magnitude % hidden + hidden), min + field - 1};
}

inline Dyadic value(Format format, Bits bits) {
    const FormatTraits& t = traits(format);
    Dyadic result = magnitude_value(format, bits & ~t.sign() & t.mask());
    if (bits & t.sign()) result.significand = -result.significand;
    return result;
}

/// The nearest pattern, ties to even, by bisection. `saturates`: overflow gives the largest value. A zero has the sign
/// `zero_sign`.
inline Bits nearest(Format format, const Dyadic& exact, bool saturates, Bits zero_sign = 0) {
    const FormatTraits& t = traits(format);
    if (exact.significand == 0) return zero_sign;
    const Bits sign = exact.significand < 0 ? t.sign() : 0;
    const Dyadic x{abs(exact.significand), exact.exponent};
    Bits low = 0, high = t.largest() + 1;  // value(low) <= x < value(high)
    if (compare(x, magnitude_value(format, high)) >= 0) return sign | (saturates ? t.largest() : t.infinity());
    while (high - low > 1) {
        const Bits middle = low + (high - low) / 2;
        (compare(x, magnitude_value(format, middle)) >= 0 ? low : high) = middle;
    }
    const int side = compare(x + x, magnitude_value(format, low) + magnitude_value(format, high));
    const Bits rounded = side > 0 || (side == 0 && low % 2 == 1) ? high : low;
    if (rounded > t.largest()) return sign | (saturates ? t.largest() : t.infinity());
    return sign | rounded;
}

inline bool saturates(Format format) { return traits(format).width == 8; }

inline bool negative(Format format, Bits bits) { return (bits & traits(format).sign()) != 0; }

/// Finite operands: the correctly rounded sum and product.
inline Bits sum(Format format, Bits a, Bits b) {
    const Bits zero = negative(format, a) && negative(format, b) ? traits(format).sign() : 0;
    return nearest(format, value(format, a) + value(format, b), saturates(format), zero);
}
inline Bits product(Format format, Bits a, Bits b) {
    const Bits zero = negative(format, a) != negative(format, b) ? traits(format).sign() : 0;
    return nearest(format, value(format, a) * value(format, b), saturates(format), zero);
}

}  // namespace samesum::exact_reference
