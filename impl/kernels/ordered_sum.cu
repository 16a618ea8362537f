// The kernels that add buffers of one rank; direct_sum.cu has the kernel that ranks run together.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "impl/device/cuda.hpp"
#include "impl/kernels/addition.cuh"
#include "impl/kernels/clock.cuh"
#include "impl/kernels/ordered_sum.hpp"

namespace samesum::gpu {
namespace {

constexpr int threads = 512;

/// An exact sum as an integer in units of the format's smallest subnormal, in 32-bit limbs whose carries are propagated
/// at the end. Integer addition is associative, so the order cannot matter.
template <int fraction_bits, int exponent_bits, bool has_infinity, int width>
class ExactSum {
public:
    static constexpr std::uint64_t sign = std::uint64_t{1} << (width - 1);
    static constexpr std::uint64_t top_field = (std::uint64_t{1} << exponent_bits) - 1;
    static constexpr std::uint64_t infinity = top_field << fraction_bits;
    static constexpr std::uint64_t nan = width == 64 ? 0x7fffffffffffffffull : (sign - 1);
    static constexpr std::uint64_t largest = has_infinity ? infinity - 1 : sign - 2;
    static constexpr bool saturates = width == 8;
    /// Bits of the largest finite value, of the sum of 256 of them, and of a sign.
    static constexpr int limbs = (static_cast<int>(top_field) + fraction_bits + 1 + 8 + 31) / 32 + 1;

    __device__ void add(std::uint64_t bits) {
        const bool negative = (bits & sign) != 0;
        const std::uint64_t magnitude = bits & (sign - 1);
        all_negative_zero_ = all_negative_zero_ && bits == sign;
        if (magnitude > (has_infinity ? infinity : largest)) is_nan_ = true;
        if (has_infinity && magnitude == infinity) (negative ? negative_infinity_ : positive_infinity_) = true;
        const int field = static_cast<int>(magnitude >> fraction_bits);
        const std::uint64_t significand =
            (magnitude & ((std::uint64_t{1} << fraction_bits) - 1)) | (field ? std::uint64_t{1} << fraction_bits : 0);
        const int position = field ? field - 1 : 0;
        const int limb = position / 32, shift = position % 32;
        const std::uint64_t low = significand << shift;
        const std::uint64_t high = shift ? significand >> (64 - shift) : 0;
        const std::int64_t pieces[3] = {static_cast<std::int64_t>(low & 0xffffffffu),
                                        static_cast<std::int64_t>(low >> 32), static_cast<std::int64_t>(high)};
        for (int i = 0; i < 3 && limb + i < limbs; ++i) limb_[limb + i] += negative ? -pieces[i] : pieces[i];
    }

    __device__ std::uint64_t rounded() {
        if (is_nan_ || (positive_infinity_ && negative_infinity_)) return nan_result();
        if (positive_infinity_ || negative_infinity_)
            return (negative_infinity_ ? sign : 0) | (saturates ? largest : infinity);
        if (all_negative_zero_) return sign;
        propagate_carries();
        const bool negative = limb_[limbs - 1] < 0;
        if (negative) {
            for (int i = 0; i < limbs; ++i) limb_[i] = -limb_[i];
            propagate_carries();
        }
        int length = 0;
        for (int i = limbs - 1; i >= 0 && length == 0; --i)
            if (limb_[i] != 0) length = 32 * i + 64 - __clzll(limb_[i]);
        // A significand of fraction_bits + 1 bits is kept; its leading bit adds one to the exponent field below.
        const int cut = length > fraction_bits + 1 ? length - (fraction_bits + 1) : 0;
        std::uint64_t kept = 0;
        for (int i = 0; i < fraction_bits + 1; ++i) kept |= static_cast<std::uint64_t>(bit(cut + i)) << i;
        if (cut > 0 && bit(cut - 1)) {
            bool sticky = false;
            for (int i = 0; i < cut - 1 && !sticky; ++i) sticky = bit(i);
            if (sticky || (kept & 1)) ++kept;
        }
        const std::uint64_t magnitude = (static_cast<std::uint64_t>(cut) << fraction_bits) + kept;
        const std::uint64_t bounded = magnitude > largest ? (saturates ? largest : infinity) : magnitude;
        return (negative ? sign : 0) | bounded;
    }

private:
    static __device__ std::uint64_t nan_result() { return width == 64 ? 0xfff8000000000000ull : nan; }
    __device__ bool bit(int i) const { return (limb_[i / 32] >> (i % 32)) & 1; }
    __device__ void propagate_carries() {
        for (int i = 0; i + 1 < limbs; ++i) {
            limb_[i + 1] += limb_[i] >> 32;
            limb_[i] &= 0xffffffff;
        }
    }

    std::int64_t limb_[limbs] = {};
    bool is_nan_ = false, positive_infinity_ = false, negative_infinity_ = false, all_negative_zero_ = true;
};

/// An exact sum needs many registers; a smaller block leaves each thread enough.
constexpr int exact_threads = 128;

template <class Stored, class Exact>
__global__ __launch_bounds__(exact_threads) void sum_exactly(const __grid_constant__ Sources sources, Stored* result,
                                                             std::uint64_t elements) {
    const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
    for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements; i += stride) {
        Exact sum;
        for (int q = 0; q < sources.count; ++q) sum.add(reinterpret_cast<const Stored*>(sources.values[q])[i]);
        result[i] = static_cast<Stored>(sum.rounded());
    }
}

/// Adds packs first, first + stride, ... of all sources in their order, all at `offset` bytes from their beginnings.
template <class Rule, int width>
__device__ void add_packs(const Sources& sources, std::byte* result, std::uint64_t offset, std::uint64_t packs,
                          std::uint64_t first, std::uint64_t stride) {
    using Stored = typename Rule::Stored;
    using Block = Pack<Stored, width>;
    constexpr int in_flight = 8;  // loads of this many ranks are issued before the first addition
    for (std::uint64_t i = first; i < packs; i += stride) {
        typename Rule::Sum sum[width];
        for (int q = 0; q < sources.count; q += in_flight) {
            Block loaded[in_flight];
#pragma unroll
            for (int k = 0; k < in_flight; ++k)
                if (q + k < sources.count)
                    loaded[k] = reinterpret_cast<const Block*>(sources.values[q + k] + offset)[i];
#pragma unroll
            for (int k = 0; k < in_flight; ++k) {
                if (q + k >= sources.count) break;
#pragma unroll
                for (int e = 0; e < width; ++e)
                    sum[e] = q + k == 0 ? Rule::first(loaded[k].element[e]) : Rule::add(sum[e], loaded[k].element[e]);
            }
        }
        Block out;
#pragma unroll
        for (int e = 0; e < width; ++e) out.element[e] = Rule::last(sum[e]);
        reinterpret_cast<Block*>(result + offset)[i] = out;
    }
}

template <class Rule, int width>
__global__ __launch_bounds__(threads) void sum_in_order(const __grid_constant__ Sources sources, std::byte* result,
                                                        std::uint64_t elements) {
    const std::uint64_t first = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
    const std::uint64_t packs = elements / width;
    add_packs<Rule, width>(sources, result, 0, packs, first, stride);
    // The last elements, fewer than a pack, one at a time.
    if constexpr (width > 1)
        add_packs<Rule, 1>(sources, result, packs * width * sizeof(typename Rule::Stored), elements - packs * width,
                           first, stride);
}

__global__ void delay(std::uint64_t nanoseconds) {
    const std::uint64_t begin = nanoseconds_now();
    while (nanoseconds_now() - begin < nanoseconds) __nanosleep(1000);
}

template <class Word>
__global__ void fill(Word* destination, std::uint64_t elements, Word value) {
    const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
    for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements; i += stride)
        destination[i] = value;
}

int blocks_for(std::uint64_t work, int max) {
    return static_cast<int>(std::clamp<std::uint64_t>((work + threads - 1) / threads, 1, static_cast<unsigned>(max)));
}

bool all_aligned(const Sources& sources, const std::byte* result) {
    auto bits = reinterpret_cast<std::uintptr_t>(result);
    for (int q = 0; q < sources.count; ++q) bits |= reinterpret_cast<std::uintptr_t>(sources.values[q]);
    return bits % 16 == 0;
}

template <class Rule>
void launch_ordered(Rule, const Sources& sources, std::byte* result, std::uint64_t elements, cudaStream_t stream) {
    // 16 bytes at a time where every address allows it.
    constexpr int width = 16 / sizeof(typename Rule::Stored);
    const bool packed = all_aligned(sources, result);
    const auto blocks = static_cast<unsigned>(blocks_for(elements / (packed ? width : 1), 2048));
    packed ? sum_in_order<Rule, width><<<blocks, threads, 0, stream>>>(sources, result, elements)
           : sum_in_order<Rule, 1><<<blocks, threads, 0, stream>>>(sources, result, elements);
    check(cudaGetLastError(), "launch of an ordered sum");
}

template <class Stored, int fraction_bits, int exponent_bits, bool has_infinity>
void launch_exact(const Sources& sources, std::byte* result, std::uint64_t elements, cudaStream_t stream) {
    using Exact = ExactSum<fraction_bits, exponent_bits, has_infinity, 8 * sizeof(Stored)>;
    sum_exactly<Stored, Exact><<<static_cast<unsigned>(blocks_for(elements, 8192)), exact_threads, 0, stream>>>(
        sources, reinterpret_cast<Stored*>(result), elements);
    check(cudaGetLastError(), "launch of an exact sum");
}

}  // namespace

void launch_sum(const Sources& sources, std::byte* result, std::uint64_t elements, Format format,
                Accumulation accumulation, cudaStream_t stream) {
    if (accumulation != Accumulation::exact)
        return with_rule(format, accumulation, [&](auto rule) {
            if (elements > 0) launch_ordered(rule, sources, result, elements, stream);
        });
    if (elements == 0) return;
    switch (format) {
        case Format::float64:
            return launch_exact<std::uint64_t, 52, 11, true>(sources, result, elements, stream);
        case Format::float32:
            return launch_exact<std::uint32_t, 23, 8, true>(sources, result, elements, stream);
        case Format::float16:
            return launch_exact<std::uint16_t, 10, 5, true>(sources, result, elements, stream);
        case Format::bfloat16:
            return launch_exact<std::uint16_t, 7, 8, true>(sources, result, elements, stream);
        case Format::float8_e4m3:
            return launch_exact<std::uint8_t, 3, 4, false>(sources, result, elements, stream);
        case Format::float8_e5m2:
            return launch_exact<std::uint8_t, 2, 5, true>(sources, result, elements, stream);
        default:
            throw UsageError("exact sums expect a floating-point format; integer sums are exact already");
    }
}

void launch_delay(std::uint64_t nanoseconds, cudaStream_t stream) {
    delay<<<1, 1, 0, stream>>>(nanoseconds);
    check(cudaGetLastError(), "launch of a delay");
}

void launch_fill(std::byte* destination, std::uint64_t elements, int element_bytes, std::uint64_t value,
                 cudaStream_t stream) {
    if (elements == 0) return;
    const auto blocks = static_cast<unsigned>(blocks_for(elements, 1024));
    const auto as = [&]<class Word>(Word word) {
        fill<<<blocks, threads, 0, stream>>>(reinterpret_cast<Word*>(destination), elements, word);
    };
    switch (element_bytes) {
        case 1:
            as(static_cast<std::uint8_t>(value));
            break;
        case 2:
            as(static_cast<std::uint16_t>(value));
            break;
        case 4:
            as(static_cast<std::uint32_t>(value));
            break;
        default:
            as(value);
    }
    check(cudaGetLastError(), "launch of a fill");
}

}  // namespace samesum::gpu
