// The number formats that NCCL adds in, and their values as bit patterns.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace samesum {

/// A value is its pattern, right-aligned; bits above the format's width are zero.
using Bits = std::uint64_t;

/// NCCL's data types (nccl.h, ncclDataType_t).
enum class Format : std::uint8_t {
    float64,
    float32,
    float16,
    bfloat16,
    float8_e4m3,
    float8_e5m2,
    int8,
    uint8,
    int32,
    uint32,
    int64,
    uint64,
};

inline constexpr std::array all_formats{Format::float64,     Format::float32,     Format::float16, Format::bfloat16,
                                        Format::float8_e4m3, Format::float8_e5m2, Format::int8,    Format::uint8,
                                        Format::int32,       Format::uint32,      Format::int64,   Format::uint64};
inline constexpr std::array float_formats{Format::float64,  Format::float32,     Format::float16,
                                          Format::bfloat16, Format::float8_e4m3, Format::float8_e5m2};

/// The parameters of a format. For integers only name, width and is_signed have a meaning.
struct FormatTraits {
    std::string_view name;        ///< samesum's name, "bfloat16"
    std::string_view short_name;  ///< as in records of revealed orders, "bf16"
    int width;                    ///< bits
    int exponent_bits;
    int fraction_bits;  ///< explicit significand bits
    bool is_float;
    bool is_signed;
    bool has_infinity;  ///< float8_e4m3 has none: its top exponent encodes numbers
    Bits nan;           ///< the NaN that NCCL's additions produce (measured on H200, NCCL 2.28.9)

    [[nodiscard]] constexpr int bytes() const { return width / 8; }
    [[nodiscard]] constexpr int precision() const { return fraction_bits + 1; }
    [[nodiscard]] constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    [[nodiscard]] constexpr Bits mask() const { return width == 64 ? ~Bits{0} : (Bits{1} << width) - 1; }
    [[nodiscard]] constexpr Bits sign() const { return Bits{1} << (width - 1); }
    [[nodiscard]] constexpr Bits infinity() const { return ((Bits{1} << exponent_bits) - 1) << fraction_bits; }
    /// The largest finite value.
    [[nodiscard]] constexpr Bits largest() const {
        return has_infinity ? infinity() - 1 : (Bits{1} << (width - 1)) - 2;
    }
    [[nodiscard]] constexpr Bits one() const { return Bits(bias()) << fraction_bits; }
};

[[nodiscard]] const FormatTraits& traits(Format format);

/// Accepts "bfloat16", "bf16", "ncclBfloat16"; throws UsageError listing the choices.
[[nodiscard]] Format parse_format(std::string_view word);
[[nodiscard]] std::string_view name(Format format);

/// A finite float: (negative ? -1 : 1) * significand * 2^exponent. Zero has significand 0.
struct DecodedFloat {
    bool negative;
    std::uint64_t significand;
    int exponent;
};
[[nodiscard]] constexpr DecodedFloat decode(const FormatTraits& t, Bits bits) {
    const Bits leading = Bits{1} << t.fraction_bits;
    const int field = static_cast<int>((bits & (t.mask() >> 1)) >> t.fraction_bits);
    return {(bits & t.sign()) != 0, (bits & (leading - 1)) | (field ? leading : 0),
            (field ? field : 1) - t.bias() - t.fraction_bits};
}

/// Bits as a key whose unsigned order is the numeric order, -0 just before +0 (no NaN), and back.
[[nodiscard]] constexpr Bits order_key(const FormatTraits& t, Bits bits) {
    if (!t.is_float) return t.is_signed ? bits ^ t.sign() : bits;
    return (bits & t.sign()) != 0 ? t.mask() ^ bits : bits | t.sign();
}
[[nodiscard]] constexpr Bits bits_of_order_key(const FormatTraits& t, Bits key) {
    if (!t.is_float) return t.is_signed ? key ^ t.sign() : key;
    return (key & t.sign()) != 0 ? key ^ t.sign() : t.mask() ^ key;
}

[[nodiscard]] bool is_nan(Format format, Bits bits);
[[nodiscard]] bool is_infinite(Format format, Bits bits);
[[nodiscard]] bool is_finite(Format format, Bits bits);
[[nodiscard]] bool is_zero(Format format, Bits bits);
[[nodiscard]] bool is_subnormal(Format format, Bits bits);

/// With one hex digit for each 4 bits of the format: 0x3f80.
[[nodiscard]] std::string hex(Format format, Bits bits);
/// With or without 0x; throws UsageError if the word is not a hex number or too wide for the format.
[[nodiscard]] Bits parse_hex(Format format, std::string_view word);

/// A value as a person writes it: a decimal (rounded once), inf, nan, or a 0x bit pattern. Throws UsageError.
[[nodiscard]] Bits parse_value(Format format, std::string_view word);
/// Exactly `count` values, separated by spaces or commas. Throws UsageError.
[[nodiscard]] std::vector<Bits> parse_values(Format format, std::string_view text, std::size_t count);

/// The shortest decimal that reads back as this value: "1.5", "-0", "inf", "nan".
[[nodiscard]] std::string decimal(Format format, Bits bits);

/// The value as a double; exact for every float format, rounded for 64-bit integers.
[[nodiscard]] double to_double(Format format, Bits bits);
/// Rounded once to the format, to nearest even; overflow gives infinity, in float8 the largest finite value.
/// Integers: truncated, wrapping.
[[nodiscard]] Bits from_double(Format format, double value);

/// Reads little-endian elements as they lie in memory, e.g. a buffer copied from a GPU.
[[nodiscard]] Bits load(Format format, std::span<const std::byte> buffer, std::size_t index);
void store(Format format, std::span<std::byte> buffer, std::size_t index, Bits bits);

}  // namespace samesum
