// Additions in this machine's floating point: the same bits as HopArithmetic, tens of times as fast.
//
// Why the bits are the same: float32 and float64 are IEEE's, as NCCL's are. float16 and bfloat16 sums are made in
// float32 and rounded again; with 24 >= 2 p + 2 bits in between (p = 11, 8), and subnormals exact, the two roundings
// are one. float8 sums are read from a table that HopArithmetic fills. The NaN rule is applied afterwards. Assumes the
// default floating-point mode: nearest even, subnormals kept.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "model/arithmetic/format.hpp"
#include "model/arithmetic/hop_arithmetic.hpp"
#include "model/sum/element_sum.hpp"
#include "model/sum/reduction_tree.hpp"

namespace samesum {

/// All sums of a float8 format: entry left * 256 + right.
[[nodiscard]] std::span<const std::uint8_t> float8_sums(Format format);

/// float16 patterns in float32, exactly, and back, rounded to nearest even; not for NaN.
[[nodiscard]] inline float float16_to_float32(std::uint32_t bits) {
    const std::uint32_t magnitude = bits & 0x7fff, sign = (bits & 0x8000) << 16;
    std::uint32_t wide = (magnitude << 13) + (112u << 23);
    if (magnitude >= 0x7c00) wide = (magnitude << 13) | 0x7f800000;
    // A subnormal: its fraction with a leading 1 of 2^-14, which is then subtracted.
    if (magnitude < 0x400)
        wide = std::bit_cast<std::uint32_t>(std::bit_cast<float>((magnitude << 13) | (113u << 23)) - 0x1p-14f);
    return std::bit_cast<float>(wide | sign);
}
[[nodiscard]] inline std::uint32_t float32_to_float16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7fffffff, sign = (bits >> 16) & 0x8000;
    // The ulp of 0.5 is float16's smallest subnormal: adding 0.5 rounds to it.
    if (magnitude < 0x38800000)
        return sign | (std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000);
    const std::uint32_t rounded = ((magnitude + 0xfff + ((magnitude >> 13) & 1)) >> 13) - (112u << 10);
    return sign | (rounded < 0x7c00 ? rounded : 0x7c00);
}

/// Bytes of an element, known at compile time.
[[nodiscard]] constexpr std::size_t element_bytes(Format format) {
    switch (format) {
        case Format::float64:
        case Format::int64:
        case Format::uint64:
            return 8;
        case Format::float32:
        case Format::int32:
        case Format::uint32:
            return 4;
        case Format::float16:
        case Format::bfloat16:
            return 2;
        default:
            return 1;
    }
}

/// One addition of a format. float64 NaNs go through HopArithmetic, which applies the payload rule.
template <Format format>
struct NativeAdd {
    [[nodiscard]] static Bits add(Bits left, Bits right) {
        constexpr bool is_float8 = format == Format::float8_e4m3 || format == Format::float8_e5m2;
        if constexpr (format == Format::float32) {
            const float sum = std::bit_cast<float>(static_cast<std::uint32_t>(left)) +
                              std::bit_cast<float>(static_cast<std::uint32_t>(right));
            return sum != sum ? 0x7fffffff : std::bit_cast<std::uint32_t>(sum);
        } else if constexpr (format == Format::float64) {
            const double sum = std::bit_cast<double>(left) + std::bit_cast<double>(right);
            return sum != sum ? HopArithmetic(format).add(left, right) : std::bit_cast<Bits>(sum);
        } else if constexpr (format == Format::bfloat16) {
            const float sum = std::bit_cast<float>(static_cast<std::uint32_t>(left << 16)) +
                              std::bit_cast<float>(static_cast<std::uint32_t>(right << 16));
            const auto bits = std::bit_cast<std::uint32_t>(sum);
            return sum != sum ? 0x7fff : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        } else if constexpr (format == Format::float16) {
            const float sum = float16_to_float32(static_cast<std::uint32_t>(left)) +
                              float16_to_float32(static_cast<std::uint32_t>(right));
            return sum != sum ? 0x7fff : float32_to_float16(sum);
        } else if constexpr (is_float8) {
            static const std::uint8_t* const table = float8_sums(format).data();
            return table[left * 256 + right];
        } else {
            return (left + right) & (~Bits{0} >> (64 - 8 * element_bytes(format)));
        }
    }
};

/// Calls visit(NativeAdd<format>{}) for a format known at run time.
template <class Visit>
decltype(auto) with_native_add(Format format, Visit&& visit) {
    switch (format) {
        case Format::float64:
            return visit(NativeAdd<Format::float64>{});
        case Format::float32:
            return visit(NativeAdd<Format::float32>{});
        case Format::float16:
            return visit(NativeAdd<Format::float16>{});
        case Format::bfloat16:
            return visit(NativeAdd<Format::bfloat16>{});
        case Format::float8_e4m3:
            return visit(NativeAdd<Format::float8_e4m3>{});
        case Format::float8_e5m2:
            return visit(NativeAdd<Format::float8_e5m2>{});
        case Format::int8:
        case Format::uint8:
            return visit(NativeAdd<Format::uint8>{});
        case Format::int32:
        case Format::uint32:
            return visit(NativeAdd<Format::uint32>{});
        default:
            return visit(NativeAdd<Format::uint64>{});
    }
}

/// Whether the rule adds 16-bit data in float32. (native_sum() does not take float8 in float32; for wider data
/// fp32_once is the data's own format.)
[[nodiscard]] inline bool sums_once_in_float32(const SumRule& rule) {
    return rule.accumulation == Accumulation::fp32_once && traits(rule.format).width == 16;
}

/// Whether native_sum() supports the rule: per-hop sums in any format, and fp32_once sums of 16-bit floats.
[[nodiscard]] bool native_takes(const SumRule& rule);

/// Elements [0, count) of a sum: leaves[r] points to rank r's elements (little endian, any alignment), `output` to the
/// results; it does not overlap the leaves. Vector code where Highway was found at build time.
void native_sum(const SumRule& rule, const ReductionTree& tree, std::span<const std::byte* const> leaves,
                std::byte* output, std::size_t count);

/// "AVX3 by Highway" or "plain C++", for reports.
[[nodiscard]] const char* native_description();

}  // namespace samesum
