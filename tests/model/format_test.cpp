// Parsing and formatting of patterns: hex, decimals, memory.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE format
#include "model/arithmetic/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "model/arithmetic/random.hpp"
#include "model/support/error.hpp"
#include "tests/support/exact_reference.hpp"

using namespace samesum;

BOOST_AUTO_TEST_CASE(classes_of_patterns) {
    struct Case {
        Format format;
        Bits zero, subnormal, one, largest, infinity, nan;
    };
    const std::vector<Case> cases{
        {Format::float32, 0, 1, 0x3f800000, 0x7f7fffff, 0x7f800000, 0x7f800001},
        {Format::float16, 0, 1, 0x3c00, 0x7bff, 0x7c00, 0x7c01},
        {Format::bfloat16, 0, 0x7f, 0x3f80, 0x7f7f, 0x7f80, 0xff81},
        {Format::float64, 0, 1, 0x3ff0000000000000, 0x7fefffffffffffff, 0x7ff0000000000000, 0x7ff0000000000001},
        {Format::float8_e5m2, 0, 3, 0x3c, 0x7b, 0x7c, 0x7d},
    };
    for (const Case& c : cases) {
        BOOST_TEST(is_zero(c.format, c.zero | traits(c.format).sign()));
        BOOST_TEST(is_subnormal(c.format, c.subnormal));
        BOOST_TEST(!is_subnormal(c.format, c.one));
        BOOST_TEST(traits(c.format).one() == c.one);
        BOOST_TEST(traits(c.format).largest() == c.largest);
        BOOST_TEST(is_finite(c.format, c.largest));
        BOOST_TEST(is_infinite(c.format, c.infinity | traits(c.format).sign()));
        BOOST_TEST(is_nan(c.format, c.nan));
        BOOST_TEST(!is_nan(c.format, c.infinity));
    }
    BOOST_TEST(traits(Format::float8_e4m3).largest() == 0x7eu);
    BOOST_TEST(is_nan(Format::float8_e4m3, 0xff));
    BOOST_TEST(is_finite(Format::float8_e4m3, 0x78));
}

BOOST_AUTO_TEST_CASE(decimals_and_hex_read_back) {
    for (const Format format : all_formats) {
        Random random(1);
        const bool all = traits(format).width <= 16;
        for (Bits i = 0; i < (all ? traits(format).mask() + 1 : 3000); ++i) {
            const Bits bits = all ? i : random.pattern(format);
            BOOST_REQUIRE(parse_hex(format, hex(format, bits)) == bits);
            const Bits again = parse_value(format, decimal(format, bits));
            const Bits sign = traits(format).sign();
            if (is_nan(format, bits))
                BOOST_REQUIRE(again == traits(format).nan);
            else if (format == Format::float8_e5m2 && is_infinite(format, bits))
                BOOST_REQUIRE(again == ((bits & sign) | traits(format).largest()));  // conversions saturate
            else
                BOOST_REQUIRE_MESSAGE(again == bits, name(format) << " " << decimal(format, bits));
        }
    }
}

BOOST_AUTO_TEST_CASE(numbers_in_usual_notation) {
    struct Case {
        Format format;
        const char* text;
        Bits bits;
    };
    const std::vector<Case> cases{
        {Format::bfloat16, "1", 0x3f80},
        {Format::bfloat16, "-2.5", 0xc020},
        {Format::bfloat16, "1.00390625", 0x3f80},                // a tie, to even
        {Format::bfloat16, "1.0039062500000000000001", 0x3f81},  // just above it: rounded once, not through a double
        {Format::bfloat16, "1.0117187499999999999999", 0x3f81},  // just below the next tie
        {Format::float32, "16777217", 0x4b800000},
        {Format::float32, "16777217.000000000000000001", 0x4b800001},
        {Format::float32, "1e-46", 0},
        {Format::float32, "1e39", 0x7f800000},
        {Format::float32, "-inf", 0xff800000},
        {Format::float32, "nan", 0x7fffffff},
        {Format::float16, "65519.999", 0x7bff},
        {Format::float16, "65520", 0x7c00},
        {Format::float8_e4m3, "1000", 0x7e},
        {Format::float64, "0.1", 0x3fb999999999999a},
        {Format::float64, "0x7ff8000000000001", 0x7ff8000000000001},
        {Format::int8, "-128", 0x80},
        {Format::uint64, "18446744073709551615", 0xffffffffffffffff},
    };
    for (const Case& c : cases) BOOST_TEST(parse_value(c.format, c.text) == c.bits, name(c.format) << " " << c.text);
    BOOST_TEST(decimal(Format::bfloat16, 0x3dcd) == "0.1");
    BOOST_TEST(decimal(Format::float32, 0x3f800000) == "1");
    BOOST_TEST(decimal(Format::float16, 0xde90) == "-420");
    BOOST_TEST(decimal(Format::float32, 0x7f7fffff) == "3.4028235e+38");
    BOOST_TEST(decimal(Format::float32, 0x80000000) == "-0");
    BOOST_TEST(decimal(Format::int8, 0x80) == "-128");
}

BOOST_AUTO_TEST_CASE(wrong_words_are_named) {
    const std::vector<std::pair<Format, const char*>> cases{
        {Format::bfloat16, "0x12345"}, {Format::bfloat16, "0x"},     {Format::float32, "1.5x"}, {Format::float32, ""},
        {Format::int8, "128"},         {Format::uint8, "-1"},        {Format::int32, "1.5"},    {Format::uint8, "256"},
        {Format::float16, "0xg"},      {Format::float32, "0x-0001"},
    };
    for (const auto& [format, text] : cases) BOOST_CHECK_THROW((void)parse_value(format, text), UsageError);
    BOOST_CHECK_THROW((void)parse_format("float33"), UsageError);
    BOOST_CHECK_THROW((void)parse_values(Format::float32, "1 2", 3), UsageError);
    for (const Format format : all_formats) {
        BOOST_CHECK(parse_format(name(format)) == format);
        BOOST_CHECK(parse_format(traits(format).short_name) == format);
    }
}

// Decimals of many digits, on and next to ties; the reference rounds the exact decimal number.
BOOST_AUTO_TEST_CASE(decimals_are_rounded_once) {
    Random random(7);
    for (const Format format : {Format::float16, Format::bfloat16, Format::float32, Format::float8_e4m3}) {
        for (int i = 0; i < 2000; ++i) {
            const Bits bits = random.spread(format, 6) & ~traits(format).sign();
            const exact_reference::Dyadic two =
                exact_reference::magnitude_value(format, bits) + exact_reference::magnitude_value(format, bits + 1);
            // The tie is two / 2 = m * 5^k / 10^k in decimal, then with a far digit added or subtracted.
            const int k = std::max(0, 1 - two.exponent);
            exact_reference::cpp_int scaled =
                two.significand * pow(exact_reference::cpp_int(5), static_cast<unsigned>(k));
            if (two.exponent - 1 > 0) scaled <<= two.exponent - 1;
            const int change = static_cast<int>(random.below(3)) - 1;
            scaled = scaled * pow(exact_reference::cpp_int(10), 30) + change;
            std::string digits = scaled.str();
            const auto places = static_cast<std::size_t>(k + 30);
            if (digits.size() <= places) digits.insert(0, places + 1 - digits.size(), '0');
            digits.insert(digits.size() - places, ".");
            const Bits even = bits % 2 == 0 ? bits : bits + 1;
            const Bits wanted = change == 0 ? even : change > 0 ? bits + 1 : bits;
            BOOST_REQUIRE_MESSAGE(parse_value(format, digits) == wanted, name(format) << " " << digits);
        }
    }
}

BOOST_AUTO_TEST_CASE(memory_is_little_endian) {
    std::array<std::byte, 16> buffer{};
    store(Format::bfloat16, buffer, 3, 0x1234);
    BOOST_TEST(std::to_integer<int>(buffer[6]) == 0x34);
    BOOST_TEST(std::to_integer<int>(buffer[7]) == 0x12);
    BOOST_TEST(load(Format::bfloat16, buffer, 3) == 0x1234u);
    BOOST_CHECK_THROW((void)load(Format::float64, buffer, 2), std::logic_error);
}

BOOST_AUTO_TEST_CASE(random_numbers_are_the_same_everywhere) {
    Random random(42);
    BOOST_TEST(random.next() == 0xbdd732262feb6e95u);  // splitmix64's published sequence for this seed
    double sum = 0, squares = 0;
    for (int i = 0; i < 100000; ++i) {
        const double x = random.normal();
        sum += x, squares += x * x;
    }
    BOOST_TEST(std::fabs(sum / 100000) < 0.02);
    BOOST_TEST(std::fabs(squares / 100000 - 1) < 0.02);
    std::array<int, 7> hits{};
    for (int i = 0; i < 70000; ++i) ++hits[random.below(7)];
    for (const int each : hits) BOOST_TEST(std::abs(each - 10000) < 500);
}
