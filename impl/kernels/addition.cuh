// One addition on the device, in each format and both roundings: by `_rn` intrinsics, so that no compiler flag can
// change its bits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstring>

#include "impl/device/cuda.hpp"
#include "model/arithmetic/format.hpp"
#include "model/combine/scheme.hpp"

namespace samesum::gpu {

/// The same bits as another type, in registers.
template <class To, class From>
__device__ To bits_as(const From& from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

/// How one format's values are stored, added in the format (one at a time, and as `Packed` in registers, two at a time
/// where the hardware can), and added in float32. NaN results are the hardware's, which are also NCCL's: 0x7fffffff,
/// 0x7fff, 0x7f; float64 keeps a payload.
template <Format format>
struct Number;

template <>
struct Number<Format::float64> {
    using Stored = double;
    using Wide = double;
    static __device__ Stored add(Stored a, Stored b) { return __dadd_rn(a, b); }
    using Packed = std::uint64_t;
    static __device__ Packed add_packed(Packed a, Packed b) {
        return bits_as<Packed>(add(bits_as<double>(a), bits_as<double>(b)));
    }
    static __device__ Wide widen(Stored a) { return a; }
    static __device__ Stored narrow(Wide a) { return a; }
    static __device__ Wide add_wide(Wide a, Wide b) { return __dadd_rn(a, b); }
};

template <>
struct Number<Format::float32> {
    using Stored = float;
    using Wide = float;
    static __device__ Stored add(Stored a, Stored b) { return __fadd_rn(a, b); }
    using Packed = std::uint32_t;
    static __device__ Packed add_packed(Packed a, Packed b) {
        return bits_as<Packed>(add(bits_as<float>(a), bits_as<float>(b)));
    }
    static __device__ Wide widen(Stored a) { return a; }
    static __device__ Stored narrow(Wide a) { return a; }
    static __device__ Wide add_wide(Wide a, Wide b) { return __fadd_rn(a, b); }
};

template <>
struct Number<Format::float16> {
    using Stored = __half;
    using Wide = float;
    static __device__ Stored add(Stored a, Stored b) { return __hadd_rn(a, b); }
    using Packed = std::uint32_t;
    static __device__ Packed add_packed(Packed a, Packed b) {
        return bits_as<Packed>(__hadd2_rn(bits_as<__half2>(a), bits_as<__half2>(b)));
    }
    static __device__ Wide widen(Stored a) { return __half2float(a); }
    static __device__ Stored narrow(Wide a) { return __float2half_rn(a); }
    static __device__ Wide add_wide(Wide a, Wide b) { return __fadd_rn(a, b); }
};

template <>
struct Number<Format::bfloat16> {
    using Stored = __nv_bfloat16;
    using Wide = float;
    static __device__ Stored add(Stored a, Stored b) { return __hadd_rn(a, b); }
    using Packed = std::uint32_t;
    static __device__ Packed add_packed(Packed a, Packed b) {
        return bits_as<Packed>(__hadd2_rn(bits_as<__nv_bfloat162>(a), bits_as<__nv_bfloat162>(b)));
    }
    static __device__ Wide widen(Stored a) { return __bfloat162float(a); }
    static __device__ Stored narrow(Wide a) { return __float2bfloat16_rn(a); }
    static __device__ Wide add_wide(Wide a, Wide b) { return __fadd_rn(a, b); }
};

/// NCCL adds float8 in float16 and converts back, saturating (2.28.9 device/reduce_kernel.h).
template <__nv_fp8_interpretation_t kind>
struct Number8 {
    using Stored = __nv_fp8_storage_t;
    using Wide = float;
    static __device__ __half half_of(Stored a) { return __half(__nv_cvt_fp8_to_halfraw(a, kind)); }
    static __device__ Stored add(Stored a, Stored b) {
        return __nv_cvt_halfraw_to_fp8(__half_raw(__hadd_rn(half_of(a), half_of(b))), __NV_SATFINITE, kind);
    }
    using Packed = std::uint16_t;
    static __device__ __half2 halves_of(Packed a) { return __half2(__nv_cvt_fp8x2_to_halfraw2(a, kind)); }
    static __device__ Packed add_packed(Packed a, Packed b) {
        return __nv_cvt_halfraw2_to_fp8x2(__half2_raw(__hadd2_rn(halves_of(a), halves_of(b))), __NV_SATFINITE, kind);
    }
    static __device__ Wide widen(Stored a) { return __half2float(half_of(a)); }
    static __device__ Stored narrow(Wide a) { return __nv_cvt_float_to_fp8(a, __NV_SATFINITE, kind); }
    static __device__ Wide add_wide(Wide a, Wide b) { return __fadd_rn(a, b); }
};
template <>
struct Number<Format::float8_e4m3> : Number8<__NV_E4M3> {};
template <>
struct Number<Format::float8_e5m2> : Number8<__NV_E5M2> {};

/// The operations on an element from the first source to the result.
template <Format format>
struct PerHop {
    using Stored = typename Number<format>::Stored;
    using Sum = Stored;
    static __device__ Sum first(Stored a) { return a; }
    static __device__ Sum add(Sum sum, Stored a) { return Number<format>::add(sum, a); }
    static __device__ Stored last(Sum sum) { return sum; }

    /// The same for eight bytes at once.
    using WordSum = std::uint64_t;
    static __device__ void first_word(WordSum& sum, std::uint64_t word) { sum = word; }
    static __device__ void add_word(WordSum& sum, std::uint64_t word) {
        using Packed = typename Number<format>::Packed;
        WordSum total = 0;
#pragma unroll
        for (int at = 0; at < 64; at += 8 * static_cast<int>(sizeof(Packed)))
            total |= static_cast<std::uint64_t>(
                         Number<format>::add_packed(static_cast<Packed>(sum >> at), static_cast<Packed>(word >> at)))
                     << at;
        sum = total;
    }
    static __device__ std::uint64_t last_word(const WordSum& sum) { return sum; }
};

template <Format format>
struct Fp32Once {
    using Stored = typename Number<format>::Stored;
    using Sum = typename Number<format>::Wide;
    static __device__ Sum first(Stored a) { return Number<format>::widen(a); }
    static __device__ Sum add(Sum sum, Stored a) { return Number<format>::add_wide(sum, Number<format>::widen(a)); }
    static __device__ Stored last(Sum sum) { return Number<format>::narrow(sum); }

    static constexpr int in_word = 8 / sizeof(Stored);
    struct WordSum {
        Sum of[in_word];
    };
    struct Word {
        Stored of[in_word];
    };
    static __device__ void first_word(WordSum& sum, std::uint64_t word) {
        const auto stored = bits_as<Word>(word);
#pragma unroll
        for (int e = 0; e < in_word; ++e) sum.of[e] = first(stored.of[e]);
    }
    static __device__ void add_word(WordSum& sum, std::uint64_t word) {
        const auto stored = bits_as<Word>(word);
#pragma unroll
        for (int e = 0; e < in_word; ++e) sum.of[e] = add(sum.of[e], stored.of[e]);
    }
    static __device__ std::uint64_t last_word(const WordSum& sum) {
        Word stored;
#pragma unroll
        for (int e = 0; e < in_word; ++e) stored.of[e] = last(sum.of[e]);
        return bits_as<std::uint64_t>(stored);
    }
};

/// Elements that one load or store moves.
template <class Stored, int width>
struct alignas(sizeof(Stored) * width) Pack {
    Stored element[width];
};

/// Calls launch(Rule<format>{}) with the rule of this format and accumulation. Integer formats throw UsageError: their
/// sums have no order.
void with_rule(Format format, Accumulation accumulation, auto&& launch) {
    // float32 and float64 are never narrowed.
    const bool once = accumulation == Accumulation::fp32_once;
    switch (format) {
        case Format::float64:
            return launch(PerHop<Format::float64>{});
        case Format::float32:
            return launch(PerHop<Format::float32>{});
        case Format::float16:
            return once ? launch(Fp32Once<Format::float16>{}) : launch(PerHop<Format::float16>{});
        case Format::bfloat16:
            return once ? launch(Fp32Once<Format::bfloat16>{}) : launch(PerHop<Format::bfloat16>{});
        case Format::float8_e4m3:
            return once ? launch(Fp32Once<Format::float8_e4m3>{}) : launch(PerHop<Format::float8_e4m3>{});
        case Format::float8_e5m2:
            return once ? launch(Fp32Once<Format::float8_e5m2>{}) : launch(PerHop<Format::float8_e5m2>{});
        default:
            throw UsageError("ordered sums expect a floating-point format; integer sums have no order");
    }
}

}  // namespace samesum::gpu
