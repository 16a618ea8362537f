// Sums of whole ranges: a tree's postfix program runs on one tile of elements at a time. The value on top of its stack
// stays in registers, so a chain of any length accesses memory only to read its leaves:
//
//   ((0 1) (2 3))   load 0, add leaf 1, spill and load 2, add leaf 3, add the spilled value
//
// A 32-bit lane holds two 16-bit floats; one shift or mask turns each half into a float32, without a shuffle.
// SPDX-License-Identifier: Apache-2.0
#include "model/sum/native_sum.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "model/support/error.hpp"

#if SAMESUM_HIGHWAY
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/sum/native_sum.cpp"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#if !defined(__x86_64__)
#define HWY_COMPILE_ONLY_STATIC
#endif
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
HWY_BEFORE_NAMESPACE();
#endif

namespace samesum {
#if SAMESUM_HIGHWAY
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#else
namespace plain {
#endif

struct Step {
    enum class Kind : std::uint8_t { load, spill_and_load, add_leaf, add_spilled } kind;
    std::int32_t leaf;
};

inline std::vector<Step> program_of(const ReductionTree& tree, std::size_t& depth) {
    std::vector<Step> steps;
    std::size_t spilled = 0;
    depth = 0;
    const auto postfix = tree.postfix();
    for (std::size_t i = 0; i < postfix.size(); ++i) {
        if (postfix[i] == ReductionTree::add) {
            steps.push_back({Step::Kind::add_spilled, 0});
            --spilled;
        } else if (i > 0 && postfix[i + 1] == ReductionTree::add) {
            steps.push_back({Step::Kind::add_leaf, postfix[i++]});
        } else {
            steps.push_back({i == 0 ? Step::Kind::load : Step::Kind::spill_and_load, postfix[i]});
            if (i > 0) depth = std::max(depth, ++spilled);
        }
    }
    return steps;
}

/// Ops: Value (the result of a load), bytes (read by a load), load, add, store, and spill and reload of a Value through
/// `spill_bytes` of memory. Returns the bytes of each leaf that were summed: whole tiles only.
template <class Ops>
std::size_t run(std::span<const Step> steps, std::size_t depth, std::span<const std::byte* const> leaves,
                std::byte* output, std::size_t bytes) {
    const std::size_t width = Ops::bytes(), tile = 4 * width, spill = Ops::spill_bytes();
    std::vector<std::byte> stack(depth * 4 * spill + 1);
    std::size_t at = 0;
    for (; at + tile <= bytes; at += tile) {
        typename Ops::Value a{}, b{}, c{}, d{};
        std::byte* top = stack.data();
        for (const Step& step : steps) {
            const std::byte* leaf = leaves[static_cast<std::size_t>(step.leaf)] + at;
            switch (step.kind) {
                case Step::Kind::spill_and_load:
                    Ops::spill(a, top), Ops::spill(b, top + spill);
                    Ops::spill(c, top + 2 * spill), Ops::spill(d, top + 3 * spill);
                    top += 4 * spill;
                    [[fallthrough]];
                case Step::Kind::load:
                    a = Ops::load(leaf), b = Ops::load(leaf + width);
                    c = Ops::load(leaf + 2 * width), d = Ops::load(leaf + 3 * width);
                    break;
                case Step::Kind::add_leaf:
                    a = Ops::add(a, Ops::load(leaf)), b = Ops::add(b, Ops::load(leaf + width));
                    c = Ops::add(c, Ops::load(leaf + 2 * width)), d = Ops::add(d, Ops::load(leaf + 3 * width));
                    break;
                case Step::Kind::add_spilled:
                    top -= 4 * spill;
                    a = Ops::add(Ops::reload(top), a), b = Ops::add(Ops::reload(top + spill), b);
                    c = Ops::add(Ops::reload(top + 2 * spill), c), d = Ops::add(Ops::reload(top + 3 * spill), d);
                    break;
            }
        }
        std::byte* out = output + at;
        Ops::store(a, out), Ops::store(b, out + width), Ops::store(c, out + 2 * width), Ops::store(d, out + 3 * width);
    }
    return at;
}

/// One element at a time, in any format; `once`: fp32_once.
template <Format format, bool once>
struct ScalarOps {
    using Value = Bits;
    static constexpr Format accumulator = once ? Format::float32 : format;
    static constexpr std::size_t bytes() { return element_bytes(format); }
    static std::size_t spill_bytes() { return sizeof(Bits); }
    static Bits load(const std::byte* from) {
        Bits bits = 0;
        std::memcpy(&bits, from, bytes());
        return once ? convert(format, accumulator, bits) : bits;
    }
    static void store(Bits bits, std::byte* to) {
        if constexpr (once) bits = convert(accumulator, format, bits);
        std::memcpy(to, &bits, bytes());
    }
    static void spill(Bits bits, std::byte* to) { std::memcpy(to, &bits, sizeof bits); }
    static Bits reload(const std::byte* from) {
        Bits bits = 0;
        std::memcpy(&bits, from, sizeof bits);
        return bits;
    }
    static Bits add(Bits left, Bits right) { return NativeAdd<accumulator>::add(left, right); }
};

/// The remainder after the vector code: fewer elements than a tile, each in the first of four scalar slots.
template <class Ops>
void run_rest(std::span<const Step> steps, std::size_t depth, std::span<const std::byte* const> leaves,
              std::byte* output, std::size_t from, std::size_t to) {
    std::vector<typename Ops::Value> stack(depth + 1);
    for (std::size_t at = from; at < to; at += Ops::bytes()) {
        typename Ops::Value value{};
        std::size_t top = 0;
        for (const Step& step : steps) {
            const std::byte* leaf = leaves[static_cast<std::size_t>(step.leaf)] + at;
            if (step.kind == Step::Kind::spill_and_load) stack[top++] = value;
            if (step.kind == Step::Kind::add_spilled)
                value = Ops::add(stack[--top], value);
            else
                value = step.kind == Step::Kind::add_leaf ? Ops::add(value, Ops::load(leaf)) : Ops::load(leaf);
        }
        Ops::store(value, output + at);
    }
}

#if SAMESUM_HIGHWAY
struct Integer32Ops {
    using Lane = std::uint32_t;
    static constexpr hn::ScalableTag<Lane> tag{};
    using Value = hn::Vec<hn::ScalableTag<Lane>>;
    static std::size_t bytes() { return hn::Lanes(tag) * sizeof(Lane); }
    static std::size_t spill_bytes() { return bytes(); }
    static Value load(const std::byte* from) { return hn::LoadU(tag, reinterpret_cast<const Lane*>(from)); }
    static void store(Value value, std::byte* to) { hn::StoreU(value, tag, reinterpret_cast<Lane*>(to)); }
    static void spill(Value value, std::byte* to) { store(value, to); }
    static Value reload(const std::byte* from) { return load(from); }
    static Value add(Value left, Value right) { return hn::Add(left, right); }
};

struct Float32Ops {
    static constexpr hn::ScalableTag<float> tag{};
    using Value = hn::Vec<hn::ScalableTag<float>>;
    static std::size_t bytes() { return hn::Lanes(tag) * sizeof(float); }
    static std::size_t spill_bytes() { return bytes(); }
    static Value load(const std::byte* from) { return hn::LoadU(tag, reinterpret_cast<const float*>(from)); }
    static void spill(Value value, std::byte* to) { hn::StoreU(value, tag, reinterpret_cast<float*>(to)); }
    static void store(Value value, std::byte* to) {
        const hn::RebindToUnsigned<decltype(tag)> bits{};
        const Value nan = hn::BitCast(tag, hn::Set(bits, 0x7fffffffu));
        spill(hn::IfThenElse(hn::IsNaN(value), nan, value), to);
    }
    static Value reload(const std::byte* from) { return load(from); }
    static Value add(Value left, Value right) { return hn::Add(left, right); }
};

constexpr hn::ScalableTag<float> floats_tag{};
constexpr hn::RebindToUnsigned<hn::ScalableTag<float>> words_tag{};
using Floats = hn::Vec<hn::ScalableTag<float>>;
using Words = hn::Vec<hn::RebindToUnsigned<hn::ScalableTag<float>>>;

inline Words word(std::uint32_t value) { return hn::Set(words_tag, value); }
inline Words bits(Floats x) { return hn::BitCast(words_tag, x); }
inline Floats floats(Words x) { return hn::BitCast(floats_tag, x); }
/// Unsigned comparison of words below 2^31.
inline auto less(Words x, std::uint32_t limit) {
    const hn::RebindToSigned<hn::RebindToUnsigned<hn::ScalableTag<float>>> with_sign{};
    return hn::RebindMask(words_tag,
                          hn::Lt(hn::BitCast(with_sign, x), hn::Set(with_sign, static_cast<std::int32_t>(limit))));
}

/// NaN results are NaNs, but not yet with the right payload.
struct Float64Ops {
    static constexpr hn::ScalableTag<double> tag{};
    using Value = hn::Vec<hn::ScalableTag<double>>;
    static std::size_t bytes() { return hn::Lanes(tag) * sizeof(double); }
    static std::size_t spill_bytes() { return bytes(); }
    static Value load(const std::byte* from) { return hn::LoadU(tag, reinterpret_cast<const double*>(from)); }
    static void store(Value value, std::byte* to) { hn::StoreU(value, tag, reinterpret_cast<double*>(to)); }
    static void spill(Value value, std::byte* to) { store(value, to); }
    static Value reload(const std::byte* from) { return load(from); }
    static Value add(Value left, Value right) { return hn::Add(left, right); }
};

/// Two 16-bit floats per lane, `low` and `high`, each as float32. NaN operands have zeros below the format's bits, and
/// so have their sums; so a carry of the rounding never changes a NaN into another value.
template <class Derived, bool once>
struct HalfOps {
    struct Value {
        Floats low = hn::Zero(floats_tag), high = hn::Zero(floats_tag);
    };
    static std::size_t bytes() { return hn::Lanes(floats_tag) * sizeof(float); }
    static std::size_t spill_bytes() { return 2 * bytes(); }

    static Value load(const std::byte* from) {
        const Words both = hn::LoadU(words_tag, reinterpret_cast<const std::uint32_t*>(from));
        return {Derived::widen(hn::ShiftLeft<16>(both)), Derived::widen(hn::And(both, word(0xffff0000)))};
    }
    static void store(const Value& value, std::byte* to) {
        hn::StoreU(hn::Or(hn::ShiftLeft<16>(pattern(value.high)), pattern(value.low)), words_tag,
                   reinterpret_cast<std::uint32_t*>(to));
    }
    static Words pattern(Floats x) {
        return hn::IfThenElse(hn::RebindMask(words_tag, hn::IsNaN(x)), word(0x7fff), Derived::narrow(x));
    }
    static void spill(const Value& value, std::byte* to) {
        hn::StoreU(value.low, floats_tag, reinterpret_cast<float*>(to));
        hn::StoreU(value.high, floats_tag, reinterpret_cast<float*>(to + bytes()));
    }
    static Value reload(const std::byte* from) {
        return {hn::LoadU(floats_tag, reinterpret_cast<const float*>(from)),
                hn::LoadU(floats_tag, reinterpret_cast<const float*>(from + bytes()))};
    }
    static Value add(const Value& left, const Value& right) {
        const Floats low = hn::Add(left.low, right.low), high = hn::Add(left.high, right.high);
        if constexpr (once) return {low, high};
        return {Derived::round(low), Derived::round(high)};
    }
};

template <bool once>
struct Bfloat16Ops : HalfOps<Bfloat16Ops<once>, once> {
    static Floats widen(Words upper) { return floats(upper); }
    static Words rounded(Floats x) {
        const Words odd = hn::And(hn::ShiftRight<16>(bits(x)), word(1));
        return hn::Add(bits(x), hn::Add(odd, word(0x7fff)));
    }
    static Floats round(Floats x) { return floats(hn::And(rounded(x), word(0xffff0000))); }
    static Words narrow(Floats x) { return hn::ShiftRight<16>(once ? rounded(x) : bits(x)); }
};

template <bool once>
struct Float16Ops : HalfOps<Float16Ops<once>, once> {
    static Floats widen(Words upper) {
        const Words sign = hn::And(upper, word(0x80000000));
        const Words magnitude = hn::ShiftRight<3>(hn::And(upper, word(0x7fff0000)));  // fraction in its place
        const Words normal = hn::Add(magnitude, word(112u << 23));
        const Words special = hn::Or(magnitude, word(0x7f800000));
        const Words subnormal =
            bits(hn::Sub(floats(hn::Or(magnitude, word(113u << 23))), hn::Set(floats_tag, 0x1p-14f)));
        const Words finite = hn::IfThenElse(less(magnitude, 0x400u << 13), subnormal, normal);
        return floats(hn::Or(sign, hn::IfThenElse(less(magnitude, 0x7c00u << 13), finite, special)));
    }
    static Words rounded(Words magnitude) {
        const Words odd = hn::And(hn::ShiftRight<13>(magnitude), word(1));
        return hn::Add(magnitude, hn::Add(odd, word(0xfff)));
    }
    /// Sums of float16 below 2^-14 are exact, so subnormals need no special case here.
    static Floats round(Floats x) {
        const Words sign = hn::And(bits(x), word(0x80000000));
        const Words kept = hn::And(rounded(hn::And(bits(x), word(0x7fffffff))), word(0xffffe000));
        const Words overflowed = hn::IfThenElse(hn::RebindMask(words_tag, hn::IsNaN(x)), kept, word(0x7f800000));
        return floats(hn::Or(sign, hn::IfThenElse(less(kept, 0x47800000), kept, overflowed)));
    }
    static Words narrow(Floats x) {
        const Words sign = hn::And(hn::ShiftRight<16>(bits(x)), word(0x8000));
        const Words magnitude = hn::And(bits(x), word(0x7fffffff));
        const Words normal = hn::Sub(hn::ShiftRight<13>(rounded(magnitude)), word(112u << 10));
        const Words half = bits(hn::Add(floats(magnitude), hn::Set(floats_tag, 0.5f)));
        const Words small = hn::Sub(half, word(0x3f000000));
        const Words large = hn::IfThenElse(less(magnitude, 0x47800000), hn::Min(normal, word(0x7c00)), word(0x7c00));
        return hn::Or(sign, hn::IfThenElse(less(magnitude, 0x38800000), small, large));
    }
};
#endif

template <class Vector, class Scalar>
void sum_as(const ReductionTree& tree, std::span<const std::byte* const> leaves, std::byte* output, std::size_t count) {
    std::size_t depth = 0;
    const std::vector<Step> steps = program_of(tree, depth);
    const std::size_t bytes = count * Scalar::bytes();
    const std::size_t done = run<Vector>(steps, depth, leaves, output, bytes);
    run_rest<Scalar>(steps, depth, leaves, output, done, bytes);
}

#if SAMESUM_HIGHWAY
/// float64 in pieces that stay in the cache; their NaNs, whose payloads depend on the operands' sides, are recomputed.
inline void sum_float64(const ReductionTree& tree, std::span<const std::byte* const> leaves, std::byte* output,
                        std::size_t count) {
    using Scalar = ScalarOps<Format::float64, false>;
    std::size_t depth = 0;
    const std::vector<Step> steps = program_of(tree, depth);
    const std::size_t bytes = count * sizeof(double);
    constexpr std::size_t piece = 8192;
    std::vector<const std::byte*> at(leaves.begin(), leaves.end());
    for (std::size_t from = 0; from < bytes; from += piece) {
        const std::size_t length = std::min(piece, bytes - from);
        const std::size_t done = run<Float64Ops>(steps, depth, at, output + from, length);
        for (std::size_t i = 0; i < done; i += sizeof(double)) {
            double value = 0;
            std::memcpy(&value, output + from + i, sizeof value);
            if (value != value) run_rest<Scalar>(steps, depth, at, output + from, i, i + sizeof value);
        }
        run_rest<Scalar>(steps, depth, at, output + from, done, length);
        for (const std::byte*& leaf : at) leaf += length;
    }
}
#endif

inline void sum(const SumRule& rule, const ReductionTree& tree, std::span<const std::byte* const> leaves,
                std::byte* output, std::size_t count) {
    const bool once = sums_once_in_float32(rule);
    const auto go = [&]<class Vector, class Scalar>() { sum_as<Vector, Scalar>(tree, leaves, output, count); };
#if SAMESUM_HIGHWAY
    switch (rule.format) {
        case Format::float32:
            return go.template operator()<Float32Ops, ScalarOps<Format::float32, false>>();
        case Format::float64:
            return sum_float64(tree, leaves, output, count);
        case Format::bfloat16:
            if (once) return go.template operator()<Bfloat16Ops<true>, ScalarOps<Format::bfloat16, true>>();
            return go.template operator()<Bfloat16Ops<false>, ScalarOps<Format::bfloat16, false>>();
        case Format::float16:
            if (once) return go.template operator()<Float16Ops<true>, ScalarOps<Format::float16, true>>();
            return go.template operator()<Float16Ops<false>, ScalarOps<Format::float16, false>>();
        case Format::int32:
        case Format::uint32:
            return go.template operator()<Integer32Ops, ScalarOps<Format::uint32, false>>();
        default:
            break;
    }
#endif
    const auto scalar = [&]<Format format, bool in_float32>() {
        using Ops = ScalarOps<format, in_float32>;
        go.template operator()<Ops, Ops>();
    };
    if (once && rule.format == Format::bfloat16) return scalar.template operator()<Format::bfloat16, true>();
    if (once) return scalar.template operator()<Format::float16, true>();
    with_native_add(rule.format,
                    [&]<Format format>(NativeAdd<format>) { scalar.template operator()<format, false>(); });
}

inline const char* description() {
#if SAMESUM_HIGHWAY
    return hwy::TargetName(HWY_TARGET);
#else
    return "plain C++";
#endif
}

}  // namespace (one for each kind of processor, or plain)
}  // namespace samesum

#if SAMESUM_HIGHWAY
HWY_AFTER_NAMESPACE();
#endif

#if !SAMESUM_HIGHWAY || HWY_ONCE
namespace samesum {

#if SAMESUM_HIGHWAY
HWY_EXPORT(sum);
HWY_EXPORT(description);
#endif

std::span<const std::uint8_t> float8_sums(Format format) {
    const auto made = [](Format of) {
        std::vector<std::uint8_t> table(65536);
        const HopArithmetic hop(of);
        for (Bits pair = 0; pair < table.size(); ++pair)
            table[pair] = static_cast<std::uint8_t>(hop.add(pair / 256, pair % 256));
        return table;
    };
    static const std::vector<std::uint8_t> e4m3 = made(Format::float8_e4m3), e5m2 = made(Format::float8_e5m2);
    ensure(traits(format).is_float && traits(format).width == 8, "the table is for float8 formats");
    return format == Format::float8_e4m3 ? e4m3 : e5m2;
}

bool native_takes(const SumRule& rule) {
    if (rule.operation != Operation::sum) return false;
    // Of two NaNs the vector code keeps the left one's payload.
    if (rule.nan_from_right && rule.format == Format::float64) return false;
    if (rule.accumulation == Accumulation::per_hop) return true;
    return rule.accumulation == Accumulation::fp32_once && traits(rule.format).width > 8;
}

void native_sum(const SumRule& rule, const ReductionTree& tree, std::span<const std::byte* const> leaves,
                std::byte* output, std::size_t count) {
    ensure(native_takes(rule), "native_sum() supports sums only");
    if (tree.leaf_count() == 1 && !sums_once_in_float32(rule)) {
        // No addition and no NaN rule: copies the bits.
        std::memmove(output, leaves[static_cast<std::size_t>(tree.leaves().front())],
                     count * static_cast<std::size_t>(traits(rule.format).bytes()));
        return;
    }
#if SAMESUM_HIGHWAY
    HWY_DYNAMIC_DISPATCH(sum)(rule, tree, leaves, output, count);
#else
    plain::sum(rule, tree, leaves, output, count);
#endif
}

const char* native_description() {
#if SAMESUM_HIGHWAY
    return HWY_DYNAMIC_DISPATCH(description)();
#else
    return plain::description();
#endif
}

}  // namespace samesum
#endif
