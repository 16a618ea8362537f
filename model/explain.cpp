// The exact value of every step as significand * 2^exponent in big integers; the rounding is read off against it.
// SPDX-License-Identifier: Apache-2.0
#include "model/explain.hpp"

#include <fmt/format.h>

#include <boost/multiprecision/cpp_int.hpp>

#include "model/error.hpp"

namespace samesum {
namespace {

using boost::multiprecision::cpp_int;

struct Dyadic {
    cpp_int significand = 0;
    int exponent = 0;
};

Dyadic operator+(const Dyadic& a, const Dyadic& b) {
    const int low = std::min(a.exponent, b.exponent);
    return {(a.significand << (a.exponent - low)) + (b.significand << (b.exponent - low)), low};
}
Dyadic operator-(const Dyadic& a) { return {-a.significand, a.exponent}; }
Dyadic operator*(const Dyadic& a, const Dyadic& b) { return {a.significand * b.significand, a.exponent + b.exponent}; }
int sign(const Dyadic& x) { return x.significand.sign(); }

Dyadic value_of(Format format, Bits bits) {
    const FormatTraits& t = traits(format);
    const Bits hidden = Bits{1} << t.fraction_bits;
    const auto field = static_cast<int>((bits & (t.mask() >> 1)) / hidden);
    Dyadic value{bits % hidden + (field ? hidden : 0), (field ? field : 1) - t.bias() - t.fraction_bits};
    if (bits & t.sign()) value.significand = -value.significand;
    return value;
}

/// All digits of the decimal; in the middle of a long one, three dots.
std::string decimal(const Dyadic& x) {
    cpp_int digits = abs(x.significand);
    std::size_t places = 0;
    if (x.exponent >= 0) {
        digits <<= x.exponent;
    } else {
        digits *= pow(cpp_int(5), static_cast<unsigned>(-x.exponent));
        places = static_cast<std::size_t>(-x.exponent);
    }
    std::string text = digits.str();
    if (places > 0) {
        if (text.size() <= places) text.insert(0, places + 1 - text.size(), '0');
        text.insert(text.size() - places, ".");
        text.erase(text.find_last_not_of('0') + 1);
        if (text.back() == '.') text.pop_back();
    }
    if (text.size() > 60) text = text.substr(0, 40) + "..." + text.substr(text.size() - 6);
    return (sign(x) < 0 ? "-" : "") + text;
}

/// A pattern's value: all of its digits where they are few, else the shortest that read back.
std::string shown(Format format, Bits bits) {
    if (!traits(format).is_float || !is_finite(format, bits) || is_zero(format, bits))
        return samesum::decimal(format, bits);
    const std::string exact = decimal(value_of(format, bits));
    return exact.size() <= 14 ? exact : samesum::decimal(format, bits);
}

/// exact - result as a share of the distance of the two numbers around `exact`.
std::string rounding_of(Format format, const Dyadic& exact, Bits result) {
    const FormatTraits& t = traits(format);
    if (is_nan(format, result)) return "not a number";
    if (is_infinite(format, result)) return "overflows to infinity";
    const Dyadic rounded = value_of(format, result);
    const Dyadic error = rounded + -exact;
    if (sign(error) == 0) return "exact";
    // The neighbour of the result on the other side of the exact value.
    const bool grows = (sign(error) < 0) == ((result & t.sign()) == 0);
    if (grows && (result & ~t.sign()) == t.largest() && t.width == 8)
        return fmt::format("saturated at {}", shown(format, result));
    const Bits neighbour = (result & ~t.sign()) == 0 ? 1 : (grows ? result + 1 : result - 1);
    Dyadic gap = value_of(format, neighbour) + -rounded;
    if (sign(gap) < 0) gap = -gap;
    const Dyadic off{abs(error.significand), error.exponent};
    const Dyadic twice_less_gap = off + off + -gap;
    const char* direction = sign(error) > 0 ? "up" : "down";
    if (sign(twice_less_gap) == 0) return fmt::format("rounded {} by 1/2 ulp (tie to even)", direction);
    // Four digits of off / gap.
    const int low = std::min(off.exponent, gap.exponent);
    const cpp_int share = (off.significand << (off.exponent - low)) * 10000 / (gap.significand << (gap.exponent - low));
    const auto parts = share.convert_to<int>();
    if (parts == 0) return fmt::format("rounded {} by less than 0.0001 ulp", direction);
    return fmt::format("rounded {} by {:g} ulp", direction, parts / 10000.0);
}

class Explainer {
public:
    explicit Explainer(const SumRule& rule) : rule_(rule) {}

    struct Operand {
        Bits bits = 0;
        std::string name;
        bool own = false;  ///< a rank's value that is still to be scaled
    };

    Operand step(Format format, std::string what, std::vector<std::pair<Format, Bits>> operands, const char* symbol,
                 Bits result, const std::optional<Dyadic>& exact, std::string rounding = {}) {
        RoundingStep step;
        step.what = what;
        for (const auto& [operand_format, bits] : operands) {
            if (!step.expression.empty()) step.expression += symbol, step.values += symbol;
            step.expression += hex(operand_format, bits);
            step.values += shown(operand_format, bits);
        }
        step.format = format;
        step.result = result;
        if (exact) step.exact = decimal(*exact);
        step.rounding = !rounding.empty() ? rounding : exact ? rounding_of(format, *exact, result) : "";
        step.rounded = step.rounding.starts_with("rounded") || step.rounding.starts_with("saturated") ||
                       step.rounding.starts_with("overflows");
        steps_.push_back(std::move(step));
        return {result, std::move(what)};
    }

    static bool finite(Format format, Bits a, Bits b) { return is_finite(format, a) && is_finite(format, b); }
    static std::string special(Format format, Bits result) {
        return is_nan(format, result) ? "not a number" : is_infinite(format, result) ? "infinite operand" : "saturated";
    }

    Operand combined(Format format, const Operand& left, const Operand& right) {
        const HopArithmetic hop(format);
        const Bits result = hop.combine(rule_.operation, left.bits, right.bits);
        const std::string what = fmt::format("({} {})", left.name, right.name);
        const std::vector<std::pair<Format, Bits>> operands{{format, left.bits}, {format, right.bits}};
        switch (rule_.operation) {
            case Operation::min:
            case Operation::max:
                return step(format, what, operands, rule_.operation == Operation::min ? " min " : " max ", result, {},
                            "exact");
            case Operation::prod:
                if (!traits(format).is_float) return step(format, what, operands, " * ", result, {}, "modulo 2^width");
                if (!finite(format, left.bits, right.bits))
                    return step(format, what, operands, " * ", result, {}, special(format, result));
                return step(format, what, operands, " * ", result,
                            value_of(format, left.bits) * value_of(format, right.bits));
            default:
                if (!traits(format).is_float) return step(format, what, operands, " + ", result, {}, "modulo 2^width");
                if (!finite(format, left.bits, right.bits))
                    return step(format, what, operands, " + ", result, {}, special(format, result));
                return step(format, what, operands, " + ", result,
                            value_of(format, left.bits) + value_of(format, right.bits));
        }
    }

    /// A rank's own value times the scale.
    Operand scaled(const Operand& own) {
        const Format format = rule_.format;
        const Bits result = HopArithmetic(format).multiply(own.bits, rule_.scale);
        const bool is_finite_number = traits(format).is_float && finite(format, own.bits, rule_.scale);
        return step(
            format, own.name + "*s", {{format, own.bits}, {format, rule_.scale}}, " * ", result,
            is_finite_number ? std::optional(value_of(format, own.bits) * value_of(format, rule_.scale)) : std::nullopt,
            is_finite_number ? "" : special(format, result));
    }

    /// own * scale + other, rounded once.
    Operand fused(const Operand& own, const Operand& other, std::string what) {
        const Format format = rule_.format;
        const Bits result = HopArithmetic(format).fused_multiply_add(own.bits, rule_.scale, other.bits);
        std::optional<Dyadic> exact;
        if (finite(format, own.bits, rule_.scale) && is_finite(format, other.bits))
            exact = value_of(format, own.bits) * value_of(format, rule_.scale) + value_of(format, other.bits);
        Operand sum = step(format, what, {{format, own.bits}, {format, rule_.scale}}, " * ", result, exact,
                           exact ? "" : special(format, result));
        steps_.back().expression += " + " + hex(format, other.bits);
        steps_.back().values += " + " + shown(format, other.bits);
        return sum;
    }

    std::vector<RoundingStep> take() { return std::move(steps_); }

private:
    SumRule rule_;
    std::vector<RoundingStep> steps_;
};

}  // namespace

Explanation explain(const SumRule& rule, const ReductionTree& tree, std::span<const Bits> leaves) {
    const FormatTraits& t = traits(rule.format);
    Explainer explainer(rule);
    using Operand = Explainer::Operand;
    std::vector<Operand> named;
    for (std::size_t rank = 0; rank < leaves.size(); ++rank)
        named.push_back({leaves[rank], std::to_string(rank), true});
    const bool scales = (rule.operation == Operation::avg && t.is_float) || rule.operation == Operation::premulsum;
    const bool once = rule.accumulation == Accumulation::fp32_once && t.is_float && t.width < 32;
    const Bits result = sum_element(rule, tree, leaves);
    Bits explained = result;
    if (rule.accumulation == Accumulation::exact) {
        Dyadic exact;
        bool finite = true;
        std::vector<std::pair<Format, Bits>> operands;
        for (const int rank : tree.leaves()) {
            const Bits bits = leaves[static_cast<std::size_t>(rank)];
            operands.emplace_back(rule.format, bits);
            finite = finite && t.is_float && is_finite(rule.format, bits);
            if (finite) exact = exact + value_of(rule.format, bits);
        }
        explainer.step(rule.format, "all", operands, " + ", result, finite ? std::optional(exact) : std::nullopt,
                       finite ? "" : Explainer::special(rule.format, result));
    } else if (once) {
        for (Operand& operand : named) operand.bits = convert(rule.format, Format::float32, operand.bits);
        const Operand sum = evaluate<Operand>(tree, named, [&](const Operand& left, const Operand& right) {
            return explainer.combined(Format::float32, left, right);
        });
        const bool finite = is_finite(Format::float32, sum.bits);
        explained = convert(Format::float32, rule.format, sum.bits);
        explainer.step(rule.format, "to " + std::string(t.name), {{Format::float32, sum.bits}}, "", explained,
                       finite ? std::optional(value_of(Format::float32, sum.bits)) : std::nullopt,
                       finite ? "" : Explainer::special(rule.format, explained));
    } else if (scales) {
        const bool fuses = rule.fused && t.is_float && t.width > 8;
        const auto entered = [&](const Operand& x) { return x.own ? explainer.scaled(x) : x; };
        const Operand sum = evaluate<Operand>(tree, named, [&](const Operand& left, const Operand& right) -> Operand {
            const Operand& mine = rule.own_is_left ? left : right;
            const Operand& other = rule.own_is_left ? right : left;
            if (mine.own && fuses) {
                const Operand received = entered(other);
                return explainer.fused(mine, received, fmt::format("({} {})", left.name, right.name));
            }
            const Operand a = entered(left), b = entered(right);
            Operand total = explainer.combined(rule.format, a, b);
            total.name = fmt::format("({} {})", left.name, right.name);
            return total;
        });
        explained = entered(sum).bits;
    } else {
        const Operand sum = evaluate<Operand>(tree, named, [&](const Operand& left, const Operand& right) {
            return explainer.combined(rule.format, left, right);
        });
        // Integer averages divide once, at the end.
        if (rule.operation == Operation::avg)
            explainer.step(rule.format, fmt::format("divided by {}", tree.leaf_count()), {{rule.format, sum.bits}}, "",
                           result, {}, "toward zero");
        else
            explained = sum.bits;
    }
    ensure(explained == result, "an explanation ends on the bits that it explains");
    return {explainer.take(), result};
}

}  // namespace samesum
