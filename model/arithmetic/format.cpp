// The table of formats; everything else follows from the widths.
// SPDX-License-Identifier: Apache-2.0
#include "model/arithmetic/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cfenv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "model/arithmetic/hop_arithmetic.hpp"
#include "model/support/error.hpp"
#include "model/support/numbers.hpp"

namespace samesum {
namespace {

// The last column is the NaN of ncclSum, measured on an H200. float64 keeps payloads, so its entry is only the NaN of
// infinity minus infinity.
constexpr std::array<FormatTraits, all_formats.size()> table{{
    {"float64", "f64", 64, 11, 52, true, true, true, 0xfff8000000000000},
    {"float32", "f32", 32, 8, 23, true, true, true, 0x7fffffff},
    {"float16", "f16", 16, 5, 10, true, true, true, 0x7fff},
    {"bfloat16", "bf16", 16, 8, 7, true, true, true, 0x7fff},
    {"float8_e4m3", "e4m3", 8, 4, 3, true, true, false, 0x7f},
    {"float8_e5m2", "e5m2", 8, 5, 2, true, true, true, 0x7f},
    {"int8", "i8", 8, 0, 0, false, true, false, 0},
    {"uint8", "u8", 8, 0, 0, false, false, false, 0},
    {"int32", "i32", 32, 0, 0, false, true, false, 0},
    {"uint32", "u32", 32, 0, 0, false, false, false, 0},
    {"int64", "i64", 64, 0, 0, false, true, false, 0},
    {"uint64", "u64", 64, 0, 0, false, false, false, 0},
}};

Bits magnitude(Format format, Bits bits) { return bits & (traits(format).mask() >> 1); }

std::int64_t sign_extend(const FormatTraits& t, Bits bits) {
    const int unused = 64 - t.width;
    return static_cast<std::int64_t>(bits << unused) >> unused;
}

/// A decimal rounded to odd: the adjacent double with an odd last bit, or the exact double if there is one. Rounded
/// again to two or more bits less, it gives the decimal rounded once; the nearest double would not.
double rounded_to_odd(const std::string& text) {
    const int before = std::fegetround();
    std::fesetround(FE_DOWNWARD);
    const double below = std::strtod(text.c_str(), nullptr);
    std::fesetround(FE_UPWARD);
    const double above = std::strtod(text.c_str(), nullptr);
    std::fesetround(before);
    return std::bit_cast<Bits>(below) % 2 == 1 ? below : above;
}

}  // namespace

const FormatTraits& traits(Format format) { return table.at(static_cast<std::size_t>(format)); }

std::string_view name(Format format) { return traits(format).name; }

Format parse_format(std::string_view word) {
    for (const Format format : all_formats)
        if (word == traits(format).name || word == traits(format).short_name) return format;
    constexpr std::array<std::pair<std::string_view, Format>, 8> others{{
        {"fp64", Format::float64},
        {"double", Format::float64},
        {"fp32", Format::float32},
        {"float", Format::float32},
        {"fp16", Format::float16},
        {"half", Format::float16},
        {"fp8_e4m3", Format::float8_e4m3},
        {"fp8_e5m2", Format::float8_e5m2},
    }};
    for (const auto& [alias, format] : others)
        if (word == alias) return format;
    std::string choices;
    for (const Format format : all_formats) choices += fmt::format("{}{}", choices.empty() ? "" : ", ", name(format));
    throw UsageError(fmt::format("unknown data type '{}': expected one of: {}", word, choices));
}

bool is_nan(Format format, Bits bits) {
    const FormatTraits& t = traits(format);
    if (!t.is_float) return false;
    return t.has_infinity ? magnitude(format, bits) > t.infinity() : magnitude(format, bits) == (t.mask() >> 1);
}

bool is_infinite(Format format, Bits bits) {
    const FormatTraits& t = traits(format);
    return t.is_float && t.has_infinity && magnitude(format, bits) == t.infinity();
}

bool is_finite(Format format, Bits bits) { return !is_nan(format, bits) && !is_infinite(format, bits); }

bool is_zero(Format format, Bits bits) { return traits(format).is_float ? magnitude(format, bits) == 0 : bits == 0; }

bool is_subnormal(Format format, Bits bits) {
    const FormatTraits& t = traits(format);
    return t.is_float && !is_zero(format, bits) && (magnitude(format, bits) >> t.fraction_bits) == 0;
}

std::string hex(Format format, Bits bits) { return fmt::format("0x{:0{}x}", bits, traits(format).width / 4); }

Bits parse_hex(Format format, std::string_view word) {
    std::string_view digits = word;
    if (digits.starts_with("0x") || digits.starts_with("0X")) digits.remove_prefix(2);
    const auto bits = integer_in<Bits>(digits, 16);
    if (!bits || *bits > traits(format).mask())
        throw UsageError(fmt::format("'{}' is not a {} bit pattern: expected up to {} hex digits, e.g. {}", word,
                                     name(format), traits(format).width / 4,
                                     hex(format, traits(format).is_float ? traits(format).one() : 1)));
    return *bits;
}

Bits parse_value(Format format, std::string_view word) {
    if (word.starts_with("0x") || word.starts_with("0X")) return parse_hex(format, word);
    const FormatTraits& t = traits(format);
    const std::string text(word);
    char* end = nullptr;
    if (!t.is_float) {
        errno = 0;
        const bool negative = text.starts_with('-');
        const Bits bits = negative ? static_cast<Bits>(std::strtoll(text.c_str(), &end, 10))
                                   : static_cast<Bits>(std::strtoull(text.c_str(), &end, 10));
        if (text.empty() || *end != '\0' || errno != 0 || (negative && !t.is_signed) ||
            decimal(format, bits & t.mask()) != (text.starts_with('+') ? text.substr(1) : text))
            throw UsageError(fmt::format("'{}' is not an {} number", word, name(format)));
        return bits & t.mask();
    }
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0')
        throw UsageError(fmt::format("'{}' is not a number: expected e.g. 1.5, -2e-3, inf, 0x3f80", word));
    if (std::isnan(value)) return t.nan;
    return format == Format::float64 ? std::bit_cast<Bits>(value) : from_double(format, rounded_to_odd(text));
}

std::vector<Bits> parse_values(Format format, std::string_view text, std::size_t count) {
    std::vector<Bits> values;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t end = std::min(text.find_first_of(" ,\t", i), text.size());
        if (end > i) values.push_back(parse_value(format, text.substr(i, end - i)));
        i = end + 1;
    }
    if (values.size() != count)
        throw UsageError(fmt::format("'{}' has {} values: expected {}", text, values.size(), count));
    return values;
}

double to_double(Format format, Bits bits) {
    const FormatTraits& t = traits(format);
    if (!t.is_float) return t.is_signed ? static_cast<double>(sign_extend(t, bits)) : static_cast<double>(bits);
    return std::bit_cast<double>(convert(format, Format::float64, bits));
}

Bits from_double(Format format, double value) {
    const FormatTraits& t = traits(format);
    if (t.is_float) return convert(Format::float64, format, std::bit_cast<Bits>(value));
    ensure(std::fabs(value) < 0x1p63, "a double that is converted to an integer fits 64 bits");
    return static_cast<Bits>(static_cast<std::int64_t>(value)) & t.mask();
}

std::string decimal(Format format, Bits bits) {
    const FormatTraits& t = traits(format);
    if (!t.is_float) return t.is_signed ? fmt::format("{}", sign_extend(t, bits)) : fmt::format("{}", bits);
    if (is_nan(format, bits)) return "nan";
    const double value = to_double(format, bits);
    if (format == Format::float64 || is_infinite(format, bits)) return fmt::format("{}", value);
    // The fewest digits that still round to these bits.
    for (int digits = 1; digits < 17; ++digits) {
        const std::string text = fmt::format("{:.{}g}", value, digits);
        const double rounded = std::strtod(text.c_str(), nullptr);
        // Formatted again, so that common magnitudes have no exponent: -420, not -4.2e+02.
        if (from_double(format, rounded) == bits) return fmt::format("{}", rounded);
    }
    return fmt::format("{}", value);
}

Bits load(Format format, std::span<const std::byte> buffer, std::size_t index) {
    static_assert(std::endian::native == std::endian::little);
    const std::size_t bytes = static_cast<std::size_t>(traits(format).bytes());
    ensure((index + 1) * bytes <= buffer.size(), "an element to read is inside its buffer");
    Bits bits = 0;
    std::memcpy(&bits, buffer.data() + index * bytes, bytes);
    return bits;
}

void store(Format format, std::span<std::byte> buffer, std::size_t index, Bits bits) {
    const std::size_t bytes = static_cast<std::size_t>(traits(format).bytes());
    ensure((index + 1) * bytes <= buffer.size(), "an element to write is inside its buffer");
    std::memcpy(buffer.data() + index * bytes, &bits, bytes);
}

}  // namespace samesum
