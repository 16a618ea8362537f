// Random numbers by integer arithmetic; normal ones by the polar method with a logarithm of its own.
// SPDX-License-Identifier: Apache-2.0
#include "model/arithmetic/random.hpp"

#include <algorithm>
#include <cmath>

namespace samesum {
namespace {

/// ln x for 0 < x < 1 to about 1e-16: x = m * 2^e with m near 1, ln m = 2 (z + z^3/3 + z^5/5 ...), z = (m-1)/(m+1).
double logarithm(double x) {
    int exponent = 0;
    double m = std::frexp(x, &exponent);  // exact
    if (m < 0.70710678118654752) {
        m *= 2;
        --exponent;
    }
    const double z = (m - 1) / (m + 1);
    const double square = z * z;
    double sum = 0;
    for (int k = 23; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
    return 2 * z * sum + exponent * 0.69314718055994530942;
}

}  // namespace

std::uint64_t Random::below(std::uint64_t bound) {
    // Rejects numbers from the incomplete last interval.
    const std::uint64_t limit = ~std::uint64_t{0} - (~std::uint64_t{0} % bound + 1) % bound;
    std::uint64_t x = next();
    while (x > limit) x = next();
    return x % bound;
}

double Random::normal() {
    for (;;) {
        const double u = 2 * uniform() - 1;
        const double v = 2 * uniform() - 1;
        const double s = u * u + v * v;
        if (s > 0 && s < 1) return u * std::sqrt(-2 * logarithm(s) / s);
    }
}

Bits Random::pattern(Format format) {
    const FormatTraits& t = traits(format);
    const Bits any = next() & t.mask();
    if (!t.is_float || below(3) != 0) return any;
    const Bits sign = next() & t.sign();
    const Bits one_off = below(3) - 1;  // -1, 0, 1
    switch (below(6)) {
        case 0:
            return sign | (below(4) & (t.mask() >> 1));
        case 1:
            return sign | (((Bits{1} << t.fraction_bits) + one_off) & (t.mask() >> 1));
        case 2:
            return sign | ((t.largest() + one_off) & (t.mask() >> 1));
        case 3:
            return sign | ((below(Bits{1} << t.exponent_bits) << t.fraction_bits) + one_off) % (t.mask() >> 1);
        case 4:
            return sign | t.infinity() | (any & ((Bits{1} << t.fraction_bits) - 1) & (below(2) ? t.mask() : 0));
        default: {
            const Bits fraction = below(2) ? Bits{1} << below(static_cast<Bits>(t.fraction_bits)) : 0;
            return sign | t.one() | fraction;
        }
    }
}

Bits Random::spread(Format format, int spread) {
    const FormatTraits& t = traits(format);
    const int wide = std::min(spread, t.bias() - 1);
    const Bits exponent = static_cast<Bits>(t.bias() - wide) + below(static_cast<Bits>(2 * wide) + 1);
    return (next() & t.sign()) | (exponent << t.fraction_bits) | (next() & ((Bits{1} << t.fraction_bits) - 1));
}

}  // namespace samesum
