// Computes the exact value of each step as significand * 2^exponent in big integers and compares the rounded one with
// it.
// SPDX-License-Identifier: Apache-2.0
#include "model/sum/rounding_steps.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include <boost/multiprecision/cpp_int.hpp>

#include "model/arithmetic/hop_arithmetic.hpp"
#include "model/support/error.hpp"

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
    const DecodedFloat value = decode(traits(format), bits);
    return {value.negative ? -cpp_int(value.significand) : cpp_int(value.significand), value.exponent};
}

/// All digits of the decimal; a long one is shortened in the middle.
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

/// The rounding error in units of the distance between the two numbers around `exact`.
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
        return fmt::format("saturated at {}", exact_decimal(format, result));
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

/// The exponent of the leading bit; x is not zero.
int leading(const Dyadic& x) { return static_cast<int>(msb(cpp_int(abs(x.significand)))) + x.exponent; }

/// Whether the bit of weight 2^place of the magnitude is 1.
bool bit_at(const Dyadic& x, int place) {
    return place >= x.exponent && bit_test(cpp_int(abs(x.significand)), static_cast<unsigned>(place - x.exponent));
}

/// The exponent of the last place of a magnitude rounded to the format.
int last_kept(const FormatTraits& t, const Dyadic& exact) {
    return std::max(leading(exact), 1 - t.bias()) - t.fraction_bits;
}

Rounding decision(Format format, const Dyadic& exact, Bits result) {
    using Kind = Rounding::Kind;
    if (is_infinite(format, result)) return {Kind::overflowed, {}};
    if (sign(exact) == 0) return {};
    const int last = last_kept(traits(format), exact);
    Rounding rounding;
    for (int place = last - 1; place >= exact.exponent; --place) rounding.lost += bit_at(exact, place) ? '1' : '0';
    rounding.lost.erase(rounding.lost.find_last_not_of('0') + 1);
    const cpp_int magnitude = abs(exact.significand);
    const Dyadic kept{last > exact.exponent ? cpp_int(magnitude >> (last - exact.exponent)) : magnitude,
                      std::max(last, exact.exponent)};
    const Dyadic rounded = value_of(format, result & ~traits(format).sign());
    const bool guard = rounding.lost.starts_with('1'), sticky = rounding.lost.size() > 1;
    const bool incremented = guard && (sticky || bit_at(kept, last));
    const Dyadic right = incremented ? kept + Dyadic{1, last} : kept;
    if (const int off = sign(rounded + -right); off != 0) {
        ensure(off < 0 && traits(format).width == 8, "a sum is rounded to nearest even, or saturated");
        rounding.kind = Kind::saturated;
    } else if (!rounding.lost.empty()) {
        rounding.kind = sticky || !guard ? (incremented ? Kind::incremented : Kind::truncated)
                                         : (incremented ? Kind::incremented_at_tie : Kind::truncated_at_tie);
    }
    return rounding;
}

class Explainer {
public:
    explicit Explainer(const SumRule& rule) : rule_(rule) {}

    static constexpr std::string_view product = " * ";

    struct Operand {
        Bits bits = 0;
        std::string name;
        bool own = false;  ///< a rank's value that is still to be scaled
    };

    Operand step(Format format, std::string what, std::vector<std::pair<Format, Bits>> operands,
                 std::string_view symbol, Bits result, const std::optional<Dyadic>& exact, std::string rounding = {}) {
        RoundingStep step;
        if (exact && symbol != product) step.terms = operands;
        step.what = what;
        for (const auto& [operand_format, bits] : operands) {
            if (!step.expression.empty()) step.expression += symbol, step.values += symbol;
            step.expression += hex(operand_format, bits);
            step.values += exact_decimal(operand_format, bits);
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
                if (!traits(format).is_float)
                    return step(format, what, operands, product, result, {}, "modulo 2^width");
                if (!finite(format, left.bits, right.bits))
                    return step(format, what, operands, product, result, {}, special(format, result));
                return step(format, what, operands, product, result,
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
            format, own.name + "*s", {{format, own.bits}, {format, rule_.scale}}, product, result,
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
        Operand sum = step(format, what, {{format, own.bits}, {format, rule_.scale}}, product, result, exact,
                           exact ? "" : special(format, result));
        steps_.back().expression += " + " + hex(format, other.bits);
        steps_.back().values += " + " + exact_decimal(format, other.bits);
        return sum;
    }

    std::vector<RoundingStep> take() { return std::move(steps_); }

private:
    SumRule rule_;
    std::vector<RoundingStep> steps_;
};

}  // namespace

std::string_view str(Rounding::Kind kind) {
    switch (kind) {
        case Rounding::Kind::truncated:
            return "guard 0: below half, truncated";
        case Rounding::Kind::truncated_at_tie:
            return "guard 1, sticky 0: a tie; the last bit kept is 0, even: truncated";
        case Rounding::Kind::incremented:
            return "guard 1, sticky 1: above half, last place + 1";
        case Rounding::Kind::incremented_at_tie:
            return "guard 1, sticky 0: a tie; the last bit kept is 1, odd: last place + 1";
        case Rounding::Kind::saturated:
            return "beyond the largest value: saturated";
        case Rounding::Kind::overflowed:
            return "beyond the largest value: infinity";
        default:
            return "exact";
    }
}

std::string exact_decimal(Format format, Bits bits) {
    if (!traits(format).is_float || !is_finite(format, bits) || is_zero(format, bits))
        return samesum::decimal(format, bits);
    const std::string exact = decimal(value_of(format, bits));
    if (exact.size() <= 14) return exact;
    // The shortest decimal that reads back can have a single digit in a narrow format or for subnormals, far from the
    // value.
    const int digits = traits(format).width <= 16 ? 6 : traits(format).width == 32 ? 9 : 17;
    return fmt::format("{:.{}g}", to_double(format, bits), digits);
}

Rounding rounding_of_sum(Format format, Bits left, Bits right) {
    ensure(traits(format).is_float && is_finite(format, left) && is_finite(format, right),
           "rounding_of_sum() takes finite floats");
    return decision(format, value_of(format, left) + value_of(format, right), HopArithmetic(format).add(left, right));
}

std::string draw_bits(const RoundingStep& step) {
    if (step.terms.empty() || !is_finite(step.format, step.result)) return {};
    const FormatTraits& t = traits(step.format);
    std::vector<Dyadic> terms;
    Dyadic exact;
    for (const auto& [format, bits] : step.terms) {
        terms.push_back(value_of(format, bits));
        exact = exact + terms.back();
    }
    const Rounding rounding = decision(step.format, exact, step.result);
    const Dyadic result = value_of(step.format, step.result);
    const bool is_exact = rounding.kind == Rounding::Kind::exact;

    // Columns are weights, from 2^top down to 2^low; the bar is after 2^last.
    int top = 1 - t.bias(), low = 0;
    for (const Dyadic& each : {exact, result})
        if (sign(each) != 0) top = std::max(top, leading(each));
    bool all_zero = true;
    for (const Dyadic& term : terms) {
        if (sign(term) == 0) continue;
        top = std::max(top, leading(term));
        const int lowest = static_cast<int>(lsb(cpp_int(abs(term.significand)))) + term.exponent;
        low = all_zero ? lowest : std::min(low, lowest);
        all_zero = false;
    }
    int last = sign(exact) == 0 ? top - t.fraction_bits : last_kept(t, exact);
    // Of an exact sum the bar comes after the last nonzero bit.
    if (is_exact) last = std::max(last, std::min(all_zero ? last : low, top - t.fraction_bits));
    constexpr int max_lost = 12;
    const auto digits = [&](const Dyadic& x) {
        std::string text = sign(x) < 0 ? "-" : " ";
        for (int place = top; place >= last; --place) {
            text += bit_at(x, place) ? '1' : '0';
            if (place == top) text += '.';
        }
        return text;
    };
    const auto tail = [&](const Dyadic& x) {
        std::string text = "|";
        for (int place = last - 1; place >= std::max(x.exponent, last - max_lost); --place)
            text += bit_at(x, place) ? '1' : '0';
        text.erase(text.find_last_not_of('0') + 1);
        const bool further =
            sign(x) != 0 && static_cast<int>(lsb(cpp_int(abs(x.significand)))) + x.exponent < last - max_lost;
        if (further) text.resize(max_lost + 1, '0'), text += "..";
        return text;
    };
    std::size_t width = tail(exact).size();
    for (const Dyadic& term : terms) width = std::max(width, tail(term).size());
    const auto row = [&](char mark, const std::string& bits, const std::string& behind, const std::string& value) {
        return fmt::format("{} {}{:<{}}  x 2^{}  {}\n", mark, bits, behind, width, top, value);
    };
    const auto named = [](Format format, Bits bits) {
        return fmt::format("{} ({})", exact_decimal(format, bits), hex(format, bits));
    };
    std::string text;
    for (std::size_t i = 0; i < terms.size(); ++i)
        text +=
            row(i == 0 ? ' ' : '+', digits(terms[i]), tail(terms[i]), named(step.terms[i].first, step.terms[i].second));
    if (is_exact) return text + row('=', digits(exact), tail(exact), named(step.format, step.result) + ", exact");
    text += row('=', digits(exact), tail(exact), decimal(exact) + " exactly");
    text += fmt::format("{:{}}^ {}\n", "", 3 + digits(exact).size(), str(rounding.kind));
    return text + row('>', digits(result), "", named(step.format, step.result));
}

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
    ensure(explained == result, "an explanation ends with the bits of sum_element()");
    return {explainer.take(), result};
}

}  // namespace samesum
