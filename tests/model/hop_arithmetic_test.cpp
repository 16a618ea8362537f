// Single additions, multiplications, fused operations and conversions against independent references: exact integers,
// this machine's floating point, and the rules measured on an H200.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE arithmetic
#include "model/arithmetic/hop_arithmetic.hpp"

#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <utility>

#include "model/arithmetic/random.hpp"
#include "tests/support/exact_reference.hpp"

using namespace samesum;

namespace {

/// Counts disagreements and names the first, so that a million checks are one assertion.
class Agreement {
public:
    explicit Agreement(std::string what) : what_(std::move(what)) {}
    void see(Format format, Bits left, Bits right, Bits got, Bits wanted) {
        ++seen_;
        if (got == wanted) return;
        if (wrong_++ == 0)
            first_ = what_ + " of " + hex(format, left) + " and " + hex(format, right) + " gives " + hex(format, got) +
                     ", the judge says " + hex(format, wanted);
    }
    ~Agreement() {
        BOOST_TEST(seen_ > 0u);
        BOOST_TEST(wrong_ == 0u,
                   std::string(name_of_format_) + " " + first_ << " (" << wrong_ << " of " << seen_ << ")");
    }
    void of(Format format) { name_of_format_ = name(format); }

private:
    std::string what_, first_;
    std::string_view name_of_format_;
    std::size_t seen_ = 0, wrong_ = 0;
};

bool both_finite(Format f, Bits a, Bits b) { return is_finite(f, a) && is_finite(f, b); }

/// Calls visit(left, right) on pairs with critical roundings: near in magnitude, far apart, edge cases.
template <class Visit>
void visit_pairs(Format format, std::size_t pairs, std::uint64_t seed, Visit&& visit) {
    Random random(seed);
    const FormatTraits& t = traits(format);
    for (std::size_t i = 0; i < pairs; ++i) {
        const Bits left = random.pattern(format);
        Bits right = random.pattern(format);
        if (i % 2 == 0) {
            // Exponents up to two precisions apart, so that every alignment and cancellation occurs.
            const auto apart =
                static_cast<std::int64_t>(random.below(static_cast<Bits>(4 * t.precision()))) - 2 * t.precision();
            const Bits moved = (left & (t.mask() >> 1)) + (static_cast<Bits>(apart) << t.fraction_bits);
            right = ((moved ^ (right & ((Bits{1} << t.fraction_bits) - 1))) & (t.mask() >> 1)) | (right & t.sign());
        }
        visit(left, right);
    }
}

float as_float(Bits bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); }
double as_double(Bits bits) { return std::bit_cast<double>(bits); }

}  // namespace

BOOST_AUTO_TEST_CASE(every_pair_of_both_float8_formats_is_the_rounded_exact_result) {
    for (const Format format : {Format::float8_e4m3, Format::float8_e5m2}) {
        const HopArithmetic hop(format);
        const FormatTraits& t = traits(format);
        Agreement add("sum"), multiply("product"), minimum("minimum"), maximum("maximum");
        add.of(format), multiply.of(format), minimum.of(format), maximum.of(format);
        for (Bits a = 0; a < 256; ++a) {
            for (Bits b = 0; b < 256; ++b) {
                const bool a_nan = is_nan(format, a), b_nan = is_nan(format, b);
                if (a_nan || b_nan) {
                    add.see(format, a, b, hop.add(a, b), t.nan);
                    multiply.see(format, a, b, hop.multiply(a, b), t.nan);
                    const Bits kept = a_nan ? b : a;
                    const Bits wanted = a_nan && b_nan              ? t.nan
                                        : is_infinite(format, kept) ? (kept & t.sign()) | t.largest()
                                                                    : kept;
                    minimum.see(format, a, b, hop.minimum(a, b), wanted);
                    maximum.see(format, a, b, hop.maximum(a, b), wanted);
                    continue;
                }
                // An infinity counts as 2^16 or more: larger than all numbers.
                const auto finite = [&](Bits x) { return is_infinite(format, x) ? (x & t.sign()) | t.largest() : x; };
                const Bits low = exact_reference::compare(exact_reference::value(format, finite(a)),
                                                          exact_reference::value(format, finite(b))) < 0 ||
                                         (exact_reference::value(format, finite(a)).significand == 0 &&
                                          exact_reference::value(format, finite(b)).significand == 0 &&
                                          exact_reference::negative(format, a))
                                     ? finite(a)
                                     : finite(b);
                minimum.see(format, a, b, hop.minimum(a, b), low);
                maximum.see(format, a, b, hop.maximum(a, b), finite(a) == low ? finite(b) : finite(a));
                if (!both_finite(format, a, b)) {
                    const bool a_inf = is_infinite(format, a), b_inf = is_infinite(format, b);
                    const bool opposite =
                        a_inf && b_inf && exact_reference::negative(format, a) != exact_reference::negative(format, b);
                    add.see(format, a, b, hop.add(a, b), opposite ? t.nan : finite(a_inf ? a : b));
                    const Bits sign = (a ^ b) & t.sign();
                    multiply.see(format, a, b, hop.multiply(a, b),
                                 is_zero(format, a) || is_zero(format, b) ? t.nan : sign | t.largest());
                    continue;
                }
                add.see(format, a, b, hop.add(a, b), exact_reference::sum(format, a, b));
                // Products are first rounded to float16 (NCCL 2.28.9, reduce_kernel.h, FuncProd over fp8).
                const Bits zero =
                    exact_reference::negative(format, a) != exact_reference::negative(format, b) ? 0x8000 : 0;
                const Bits half = exact_reference::nearest(
                    Format::float16, exact_reference::value(format, a) * exact_reference::value(format, b), false,
                    zero);
                const Bits product =
                    half == 0x7c00 || half == 0xfc00
                        ? ((half >> 8) & t.sign()) | t.largest()
                        : exact_reference::nearest(format, exact_reference::value(Format::float16, half), true,
                                                   (half >> 8) & t.sign());
                multiply.see(format, a, b, hop.multiply(a, b), product);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(sums_and_products_are_the_rounded_exact_ones) {
    for (const Format format : {Format::float16, Format::bfloat16, Format::float32, Format::float64}) {
        const HopArithmetic hop(format);
        Agreement add("sum"), multiply("product"), exact("exactness");
        add.of(format), multiply.of(format), exact.of(format);
        visit_pairs(format, format == Format::float64 ? 10000 : 30000, 11, [&](Bits a, Bits b) {
            if (!both_finite(format, a, b)) return;
            add.see(format, a, b, hop.add(a, b), exact_reference::sum(format, a, b));
            multiply.see(format, a, b, hop.multiply(a, b), exact_reference::product(format, a, b));
            const Bits sum = exact_reference::sum(format, a, b);
            const bool is_exact =
                is_finite(format, sum) &&
                exact_reference::compare(exact_reference::value(format, sum),
                                         exact_reference::value(format, a) + exact_reference::value(format, b)) == 0;
            exact.see(format, a, b, add_is_exact(format, a, b), is_exact);
        });
    }
}

BOOST_AUTO_TEST_CASE(float32_and_float64_equal_this_machines) {
    {
        const HopArithmetic hop(Format::float32);
        Agreement add("sum"), multiply("product"), fused("fused");
        Random random(5);
        visit_pairs(Format::float32, 1000000, 12, [&](Bits a, Bits b) {
            if (is_nan(Format::float32, a) || is_nan(Format::float32, b)) return;
            const auto canonical = [](float x) {
                return std::isnan(x) ? Bits{0x7fffffff} : std::bit_cast<std::uint32_t>(x);
            };
            add.see(Format::float32, a, b, hop.add(a, b), canonical(as_float(a) + as_float(b)));
            multiply.see(Format::float32, a, b, hop.multiply(a, b), canonical(as_float(a) * as_float(b)));
            const Bits c = random.pattern(Format::float32);
            if (is_nan(Format::float32, c)) return;
            fused.see(Format::float32, a, b, hop.fused_multiply_add(a, b, c),
                      canonical(std::fma(as_float(a), as_float(b), as_float(c))));
        });
    }
    const HopArithmetic hop(Format::float64);
    Agreement add("sum"), multiply("product"), fused("fused");
    Random random(6);
    visit_pairs(Format::float64, 700000, 13, [&](Bits a, Bits b) {
        if (is_nan(Format::float64, a) || is_nan(Format::float64, b)) return;
        const auto canonical = [](double x) { return std::isnan(x) ? 0xfff8000000000000 : std::bit_cast<Bits>(x); };
        add.see(Format::float64, a, b, hop.add(a, b), canonical(as_double(a) + as_double(b)));
        multiply.see(Format::float64, a, b, hop.multiply(a, b), canonical(as_double(a) * as_double(b)));
        const Bits c = random.pattern(Format::float64);
        if (is_nan(Format::float64, c)) return;
        fused.see(Format::float64, a, b, hop.fused_multiply_add(a, b, c),
                  canonical(std::fma(as_double(a), as_double(b), as_double(c))));
    });
}

// Fused results near the product, near the addend, and where they nearly cancel, which random numbers never do.
BOOST_AUTO_TEST_CASE(fused_results_are_the_rounded_exact_ones_where_product_and_addend_meet) {
    for (const Format format : {Format::float16, Format::bfloat16, Format::float32, Format::float64}) {
        const HopArithmetic hop(format);
        Agreement fused("fused");
        fused.of(format);
        Random random(21);
        for (int i = 0; i < 30000; ++i) {
            const Bits a = random.spread(format, 5), b = random.spread(format, 5);
            const Bits product = hop.multiply(a, b);
            // The addend is the product or its negative, a few units off: the result is the low half of the product.
            const Bits c =
                ((product ^ (random.next() & traits(format).sign())) + random.below(5) - 2) & traits(format).mask();
            if (!is_finite(format, c)) continue;
            const exact_reference::Dyadic exact =
                exact_reference::value(format, a) * exact_reference::value(format, b) +
                exact_reference::value(format, c);
            fused.see(format, a, b, hop.fused_multiply_add(a, b, c), exact_reference::nearest(format, exact, false));
        }
    }
}

// For sums and products of 16-bit formats, rounding to float32 first equals rounding once: float32 has
// 24 >= 2 p + 2 bits for p = 11 and p = 8 (Figueroa's theorem), and the sums' and float16 products' subnormals are
// exact in it.
BOOST_AUTO_TEST_CASE(sixteen_bit_formats_agree_with_float32_hardware) {
    for (const Format format : {Format::float16, Format::bfloat16}) {
        const HopArithmetic hop(format);
        Agreement add("sum"), multiply("product");
        add.of(format), multiply.of(format);
        Random random(31);
        const auto wide = [&](Bits x) {
            const exact_reference::Dyadic exact = exact_reference::value(format, x);
            return static_cast<float>(std::ldexp(exact.significand.convert_to<double>(), exact.exponent));
        };
        std::vector<float> value(65536);
        for (Bits x = 0; x < 65536; ++x) {
            if (!is_finite(format, x)) continue;
            value[x] = std::copysign(std::fabs(wide(x)), exact_reference::negative(format, x) ? -1.0f : 1.0f);
        }
        // All left operands with random right operands, so that every pattern occurs on both sides.
        for (Bits a = 0; a < 65536; ++a) {
            for (int k = 0; k < 8; ++k) {
                const Bits b = random.pattern(format);
                if (!both_finite(format, a, b)) continue;
                const float sum = value[a] + value[b];
                const Bits bits = std::bit_cast<std::uint32_t>(sum);
                if (format == Format::bfloat16) {
                    const Bits rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
                    add.see(format, a, b, hop.add(a, b), rounded);
                } else {
                    add.see(format, a, b, hop.add(a, b), convert(Format::float32, format, bits));
                }
                const double product = static_cast<double>(value[a]) * value[b];  // exact
                multiply.see(format, a, b, hop.multiply(a, b),
                             convert(Format::float64, format, std::bit_cast<Bits>(product)));
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(conversions_are_the_rounded_values) {
    for (const Format from : float_formats) {
        for (const Format to : float_formats) {
            Agreement conversion(std::string("to ") + std::string(name(to)));
            conversion.of(from);
            Random random(41);
            const auto see = [&](Bits x) {
                const FormatTraits& target = traits(to);
                const Bits sign = exact_reference::negative(from, x) ? target.sign() : 0;
                Bits wanted = 0;
                if (is_nan(from, x)) {
                    wanted = from == to && to == Format::float64 ? x : target.nan;
                } else if (is_infinite(from, x)) {
                    wanted = sign | (exact_reference::saturates(to) ? target.largest() : target.infinity());
                } else {
                    wanted = exact_reference::nearest(to, exact_reference::value(from, x),
                                                      exact_reference::saturates(to), sign);
                }
                conversion.see(from, x, 0, convert(from, to, x), wanted);
            };
            const bool all = traits(from).width <= 16;
            for (Bits x = 0; x < (all ? traits(from).mask() + 1 : 20000); ++x) see(all ? x : random.pattern(from));
            // Values next to the target's ties.
            for (int i = 0; i < 4000 && traits(from).fraction_bits > traits(to).fraction_bits + 1; ++i) {
                const Bits grid = convert(to, from, random.spread(to, 40));
                const Bits half = Bits{1} << (traits(from).fraction_bits - traits(to).fraction_bits - 1);
                see(grid + half + random.below(3) - 1);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(nan_infinity_and_zero_follow_what_was_measured) {
    // measured.md, "Arithmetic of one addition": H200, NCCL 2.28.9.
    struct Case {
        Format format;
        Bits left, right, sum;
    };
    const std::vector<Case> cases{
        {Format::float32, 0x7fc00001, 0x3f800000, 0x7fffffff},
        {Format::float32, 0x3f800000, 0xff800001, 0x7fffffff},
        {Format::float32, 0x7f800000, 0xff800000, 0x7fffffff},
        {Format::float32, 0x7f800000, 0x3f800000, 0x7f800000},
        {Format::float32, 0x7f7fffff, 0x7f7fffff, 0x7f800000},
        {Format::float32, 0x00000001, 0x00000001, 0x00000002},
        {Format::float32, 0x3f800000, 0xbf800000, 0x00000000},
        {Format::float32, 0x80000000, 0x80000000, 0x80000000},
        {Format::float32, 0x80000000, 0x00000000, 0x00000000},
        {Format::float16, 0xfe00, 0x3c00, 0x7fff},
        {Format::float16, 0x7c00, 0xfc00, 0x7fff},
        {Format::bfloat16, 0xffc1, 0x3f80, 0x7fff},
        {Format::bfloat16, 0x7f80, 0xff80, 0x7fff},
        {Format::float64, 0x7ff0000000000123, 0x3ff0000000000000, 0x7ff8000000000123},
        {Format::float64, 0x3ff0000000000000, 0xfff8000000000456, 0xfff8000000000456},
        {Format::float64, 0x7ff8000000000001, 0x7ff8000000000002, 0x7ff8000000000001},
        {Format::float64, 0x7ff0000000000000, 0xfff0000000000000, 0xfff8000000000000},
        {Format::float8_e4m3, 0x7e, 0x7e, 0x7e},
        {Format::float8_e4m3, 0xfe, 0xfe, 0xfe},
        {Format::float8_e4m3, 0xff, 0x38, 0x7f},
        {Format::float8_e5m2, 0x7b, 0x7b, 0x7b},
        {Format::float8_e5m2, 0x7c, 0x3c, 0x7b},
        {Format::float8_e5m2, 0xfc, 0x3c, 0xfb},
        {Format::float8_e5m2, 0x7c, 0xfc, 0x7f},
        {Format::float8_e5m2, 0xfd, 0x3c, 0x7f},
    };
    for (const Case& each : cases)
        BOOST_TEST(HopArithmetic(each.format).add(each.left, each.right) == each.sum,
                   name(each.format) << " " << hex(each.format, each.left) << " + " << hex(each.format, each.right));
}

BOOST_AUTO_TEST_CASE(minimum_and_maximum_order_all_patterns) {
    for (const Format format : {Format::float16, Format::bfloat16}) {
        const HopArithmetic hop(format);
        Random random(51);
        std::size_t wrong = 0;
        for (int i = 0; i < 300000; ++i) {
            const Bits a = random.pattern(format), b = random.pattern(format);
            const Bits low = hop.minimum(a, b), high = hop.maximum(a, b);
            if (is_nan(format, a) && is_nan(format, b)) {
                wrong += low != traits(format).nan || high != traits(format).nan;
            } else if (is_nan(format, a) || is_nan(format, b)) {
                const Bits kept = is_nan(format, a) ? b : a;
                wrong += low != kept || high != kept;
            } else {
                const bool pair = (low == a && high == b) || (low == b && high == a);
                const double l = to_double(format, low), h = to_double(format, high);
                wrong += !pair || !(l < h || (l == h && (std::signbit(l) || !std::signbit(h))));
            }
        }
        BOOST_TEST(wrong == 0u);
    }
}

BOOST_AUTO_TEST_CASE(integers_wrap) {
    BOOST_TEST(HopArithmetic(Format::int8).add(0x7f, 0x01) == 0x80u);
    BOOST_TEST(HopArithmetic(Format::uint8).add(0xff, 0x02) == 0x01u);
    BOOST_TEST(HopArithmetic(Format::int32).multiply(0x10000, 0x10001) == 0x10000u);
    BOOST_TEST(HopArithmetic(Format::int8).minimum(0x80, 0x7f) == 0x80u);
    BOOST_TEST(HopArithmetic(Format::uint8).minimum(0x80, 0x7f) == 0x7fu);
    BOOST_TEST(HopArithmetic(Format::int64).maximum(~Bits{0}, 0) == 0u);
    BOOST_TEST(HopArithmetic(Format::uint64).add(~Bits{0}, 2) == 1u);
}

// The reference must be able to fail: it must detect a hop that truncates instead of rounding.
BOOST_AUTO_TEST_CASE(the_reference_detects_a_wrong_rounding) {
    Random random(61);
    std::size_t caught = 0;
    for (int i = 0; i < 1000; ++i) {
        const Bits a = random.spread(Format::bfloat16, 4), b = random.spread(Format::bfloat16, 4);
        const float sum = as_float(a << 16) + as_float(b << 16);
        caught += (std::bit_cast<std::uint32_t>(sum) >> 16) != exact_reference::sum(Format::bfloat16, a, b);
    }
    BOOST_TEST(caught > 100u);
}
