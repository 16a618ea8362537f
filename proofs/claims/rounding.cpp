// How much an order can change a sum, and when a float32 accumulator hides the order completely.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "model/sum/reachable.hpp"
#include "model/sum/witness.hpp"
#include "proofs/claims/claims.hpp"

namespace samesum {
namespace {

constexpr std::array narrow_formats{Format::float16, Format::bfloat16, Format::float8_e4m3, Format::float8_e5m2};
constexpr int float32_precision = 24;

/// The most binades above their lowest that `count` values may reach, so that all their sums are exact in float32:
/// count x 2^(window + precision) <= 2^24.
int window(Format format, int count) {
    int width = float32_precision - traits(format).precision();
    for (int values = 1; values < count; values *= 2) --width;
    return width;
}

// --- float32 accumulators ---

/// In units of the common factor of all values: a partial sum is at most the sum of its leaves' magnitudes.
Statement partial_sums_stay_small() {
    return {.name = "partial_sums_are_small_integers",
            .logic = "QF_LIA",
            .declarations = declare(std::vector<Term>{{"left"}, {"right"}, {"of_left"}, {"of_right"}}, "Int") +
                            "(define-fun magnitude ((k Int)) Int (ite (< k 0) (- k) k))\n",
            .assumptions = {{"induction_hypothesis",
                             {"(and (<= (magnitude left) of_left) (<= (magnitude right) of_right))"}},
                            {"all_magnitudes", {"(<= (+ of_left of_right) 16777216)"}}},
            .goal = {"(and (<= (magnitude (+ left right)) (+ of_left of_right)) "
                     "(<= (magnitude (+ left right)) 16777216))"}};
}

/// Such an integer is a float32 number, and an addition whose exact result is a float32 number is exact.
Statement small_integers_are_numbers() {
    return {.name = "integers_up_to_2_24_are_float32",
            .logic = "QF_BVFP",
            .declarations = "(declare-const k (_ BitVec 26))\n",
            .assumptions = {{"small", {"(and (bvsle k (_ bv16777216 26)) (bvsge k (bvneg (_ bv16777216 26))))"}}},
            .goal = {"(= ((_ fp.to_sbv 26) RTZ ((_ to_fp 8 24) RNE k)) k)"}};
}

/// The same with the addition itself, at a precision where solvers can follow it bit by bit.
Statement additions_of_small_integers_are_exact() {
    return {.name = "additions_up_to_2_8_are_exact_in_bfloat16",
            .logic = "QF_BVFP",
            .declarations =
                "(declare-const l (_ BitVec 10))\n(declare-const r (_ BitVec 10))\n"
                "(define-fun number ((k (_ BitVec 10))) (_ FloatingPoint 8 8) ((_ to_fp 8 8) RNE k))\n"
                "(define-fun small ((k (_ BitVec 10))) Bool\n"
                "  (and (bvsle k (_ bv256 10)) (bvsge k (bvneg (_ bv256 10)))))\n",
            .assumptions = {{"small", {"(and (small l) (small r) (small (bvadd l r)))"}}},
            .goal = {"(= (fp.add RNE (number l) (number r)) (number (bvadd l r)))"}};
}

Bits summed_in_float32(Format format, const ReductionTree& tree, std::span<const Bits> leaves) {
    return sum_element({.format = format, .accumulation = Accumulation::fp32_once}, tree, leaves);
}

std::string shown(Format format, std::span<const Bits> leaves) {
    return str_leaves(format, std::vector<Bits>(leaves.begin(), leaves.end()));
}

/// Leaves for which the trees do not all give the same bits under fp32_once.
std::string told_apart(Format format, std::span<const ReductionTree> trees, std::span<const Bits> leaves) {
    const Bits first = summed_in_float32(format, trees.front(), leaves);
    for (const ReductionTree& tree : trees.subspan(1)) {
        const Bits other = summed_in_float32(format, tree, leaves);
        if (other == first) continue;
        return fmt::format("{}: {}\n{} makes {} ({})\n{} makes {} ({})", name(format), shown(format, leaves),
                           trees.front().str(), decimal(format, first), hex(format, first), tree.str(),
                           decimal(format, other), hex(format, other));
    }
    return {};
}

std::vector<Bits> finite_values(Format format) {
    std::vector<Bits> values;
    for (Bits bits = 0; bits <= traits(format).mask(); ++bits)
        if (is_finite(format, bits)) values.push_back(bits);
    return values;
}

/// A value with binary exponent e is an integer multiple of 2^(e + 1 - precision), by less than 2^precision.
void every_value_is_an_integer_of_its_binade(Enumeration& tried) {
    for (const Format format : narrow_formats) {
        const FormatTraits& t = traits(format);
        for (const Bits bits : finite_values(format)) {
            if (is_zero(format, bits)) continue;
            const double value = std::fabs(to_double(format, bits));
            const int exponent = std::max(std::ilogb(value), 1 - t.bias());
            const double units = std::ldexp(value, t.precision() - 1 - exponent);
            ++tried.cases;
            if (units == std::floor(units) && units < std::ldexp(1.0, t.precision())) continue;
            tried.counterexample = fmt::format("{}: {}", name(format), hex(format, bits));
            return;
        }
    }
}

/// Values at both ends of the window, of all signs and the extreme significands, and trees of many shapes.
void eight_values_in_their_window(Enumeration& tried) {
    constexpr int count = 8;
    std::vector<int> ranks{0, 1, 2, 3, 4, 5, 6, 7};
    const std::array trees{ReductionTree::left_fold(ranks), ReductionTree::balanced(ranks),
                           ReductionTree::parse("(0 (1 (2 (3 (4 (5 (6 7)))))))"),
                           ReductionTree::parse("((0 7) ((1 6) ((2 5) (3 4))))"),
                           ReductionTree::parse("((((0 2) 4) 6) (((7 5) 3) 1))")};
    for (const Format format : {Format::float16, Format::bfloat16, Format::float8_e5m2}) {
        const FormatTraits& t = traits(format);
        const Bits up = static_cast<Bits>(std::min(window(format, count), t.bias() - 4)) << t.fraction_bits;
        const Bits low = t.one(), odd = low + 1, widest = low + ((Bits{1} << t.fraction_bits) - 1);
        const std::array picks{odd, odd | t.sign(), widest + up, (widest + up) | t.sign(), low + up, odd + up};
        for (std::size_t pick = 0; pick < 1679616; pick += 7) {  // every 7th of 6^8
            std::vector<Bits> leaves;
            for (std::size_t rest = pick, i = 0; i < count; ++i, rest /= picks.size())
                leaves.push_back(picks[rest % picks.size()]);
            ++tried.cases;
            tried.counterexample = told_apart(format, trees, leaves);
            if (!tried.counterexample.empty()) return;
        }
    }
}

/// float8_e4m3 is one window: 73 x 448 x 2^9 < 2^24. All triples, up to their common sign.
void every_e4m3_triple(Enumeration& tried) {
    constexpr Format format = Format::float8_e4m3;
    const std::array trees{ReductionTree::parse("((0 1) 2)"), ReductionTree::parse("((0 2) 1)"),
                           ReductionTree::parse("(0 (1 2))")};
    const std::vector<Bits> values = finite_values(format);
    for (std::size_t i = 0; i < values.size() / 2; ++i)
        for (std::size_t j = i; j < values.size(); ++j)
            for (std::size_t k = j; k < values.size(); ++k) {
                ++tried.cases;
                tried.counterexample = told_apart(format, trees, std::array{values[i], values[j], values[k]});
                if (!tried.counterexample.empty()) return;
            }
}

Enumeration float32_hides_order() {
    Enumeration tried;
    for (const auto part : {every_value_is_an_integer_of_its_binade, eight_values_in_their_window, every_e4m3_triple})
        if (tried.counterexample.empty()) part(tried);
    return tried;
}

/// One binade more than the window of 8 values: five large ones that end half-way between two results, and three small
/// ones, d + d - 2^precision = 2, that decide the rounding when added first and are absorbed one by one when added
/// last.
Enumeration float32_shows_order(Format format) {
    const FormatTraits& t = traits(format);
    const int binades = window(format, 8) + 1, lowest = -t.fraction_bits;
    const Bits implicit = Bits{1} << t.fraction_bits;
    const auto number = [&](Bits significand, int binade) {
        const auto field = static_cast<Bits>(t.bias() + lowest + binade);
        return field << t.fraction_bits | (significand - implicit);
    };
    const Bits total = 4 * (2 * implicit + 1), fifth = total / 5;
    std::vector<Bits> leaves;
    for (Bits i = 0; i < 5; ++i) leaves.push_back(number(fifth + (i < total % 5 ? 1 : 0), binades));
    leaves.insert(leaves.end(), {number(implicit + 1, 0), number(implicit + 1, 0), number(implicit, 1) | t.sign()});
    const std::array trees{ReductionTree::parse("(((((((0 1) 2) 3) 4) 5) 6) 7)"),
                           ReductionTree::parse("(((((5 6) 7) 0) 1) ((2 3) 4))")};
    return {1, told_apart(format, trees, leaves)};
}

// --- Error bounds ---

/// A step up a tree, over the reals. a + 1 and b + 1 leaves below, whose magnitudes add up to A1 and A2; S are exact
/// sums, T computed ones, R the rounded T1 + T2, u half a unit of the last place. Products stand as constants of their
/// own, so that what is left is linear: P = u A, E1 = a P1, E2 = b P2, X = b P1, Y = a P2, F = u E. The bound of both
/// parts together is (a + b + 1) (P1 + P2) = E1 + E2 + X + Y + P1 + P2.
Statement step_up(std::string name, std::vector<Assumption> rounding) {
    std::vector<Term> constants;
    for (const char* each : {"A1", "A2", "E1", "E2", "P1", "P2", "X", "Y", "F1", "F2", "S1", "S2", "T1", "T2", "R"})
        constants.push_back({each});
    Statement statement{
        .name = std::move(name),
        .logic = "QF_LRA",
        .declarations = declare(constants, "Real") +
                        "(define-fun magnitude ((x Real)) Real (ite (< x 0.0) (- x) x))\n"
                        "(define-fun rounding () Real (magnitude (- R (+ T1 T2))))\n",
        .assumptions = {{"magnitudes", {"(and (<= (magnitude S1) A1) (<= (magnitude S2) A2))"}},
                        {"induction_hypothesis", {"(and (<= (magnitude (- T1 S1)) E1) (<= (magnitude (- T2 S2)) E2))"}},
                        {"products_are_not_negative", {"(and (<= 0.0 P1) (<= 0.0 P2) (<= 0.0 X) (<= 0.0 Y))"}}},
        .goal = {"(<= (magnitude (- R (+ S1 S2))) (+ E1 E2 X Y P1 P2))"}};
    for (Assumption& each : rounding) statement.assumptions.push_back(std::move(each));
    return statement;
}

Statement products(std::string name, std::string assumed, std::string goal) {
    const std::vector<Term> constants{{"u"}, {"a"}, {"A1"}, {"A2"}, {"T"}};
    return {.name = std::move(name),
            .logic = "QF_NRA",
            .declarations = declare(constants, "Real"),
            .assumptions = {{"signs", {"(and (< 0.0 u) (<= u 1.0) (<= 0.0 a) (<= 0.0 A1) (<= 0.0 A2) (<= 0.0 T))"}},
                            {"case", {std::move(assumed)}}},
            .goal = {std::move(goal)}};
}

/// Rounding changes a sum by at most either operand, since the other is representable, and by at most u times the sum.
std::vector<Statement> error_grows_by_one_unit() {
    return {
        step_up("right_part_is_small", {{"right_part_is_small", {"(and (<= A2 P1) (<= E2 X))"}},
                                        {"rounds_by_no_more_than_an_operand", {"(<= rounding (magnitude T2))"}}}),
        step_up("left_part_is_small", {{"left_part_is_small", {"(and (<= A1 P2) (<= E1 Y))"}},
                                       {"rounds_by_no_more_than_an_operand", {"(<= rounding (magnitude T1))"}}}),
        step_up("parts_are_comparable", {{"parts_are_comparable", {"(and (<= F1 Y) (<= F2 X))"}},
                                         {"rounds_by_half_a_unit", {"(<= rounding (+ P1 P2 F1 F2))"}}}),
        products("small_part_has_small_errors", "(<= A2 (* u A1))", "(<= (* a (* u A2)) (* a (* u A1)))"),
        products("comparable_parts_have_small_errors", "(<= (* u A1) A2)", "(<= (* u (* a (* u A1))) (* a (* u A2)))"),
        products("half_a_unit_of_the_sum", "(<= T (+ A1 (* a (* u A1)) A2))",
                 "(<= (* u T) (+ (* u A1) (* u (* a (* u A1))) (* u A2)))")};
}

/// The proof's assumptions about one addition, and the bound for three values: in the model, for all of float8.
Enumeration float8_sums_lie_within_the_bound() {
    Enumeration tried;
    const std::array trees{ReductionTree::parse("((0 1) 2)"), ReductionTree::parse("((0 2) 1)"),
                           ReductionTree::parse("(0 (1 2))")};
    for (const Format format : {Format::float8_e4m3, Format::float8_e5m2}) {
        const SumRule rule{.format = format};
        const double unit = std::ldexp(1.0, -traits(format).precision());
        const double largest = to_double(format, traits(format).largest());
        const std::vector<Bits> values = finite_values(format);
        for (std::size_t i = 0; i < values.size() / 2; ++i)
            for (std::size_t j = 0; j < values.size(); ++j) {
                const double x = to_double(format, values[i]), y = to_double(format, values[j]);
                if (std::fabs(x + y) > largest) continue;
                ++tried.cases;
                const std::array both{values[i], values[j]};
                const double error =
                    std::fabs(to_double(format, sum_element(rule, ReductionTree::parse("(0 1)"), both)) - (x + y));
                if (error <= unit * std::fabs(x + y) && error <= std::fabs(x) && error <= std::fabs(y)) continue;
                tried.counterexample = fmt::format("{}: {}", name(format), shown(format, both));
                return tried;
            }
        // Every third value keeps all exponents and both signs.
        for (std::size_t i = 0; i < values.size() / 2; i += 3)
            for (std::size_t j = i; j < values.size(); j += 3)
                for (std::size_t k = j; k < values.size(); k += 3) {
                    const std::array leaves{values[i], values[j], values[k]};
                    const SumBound bound = any_order_bound(rule, leaves);
                    for (const ReductionTree& tree : trees) {
                        ++tried.cases;
                        if (bound.admits(format, sum_element(rule, tree, leaves))) continue;
                        tried.counterexample = fmt::format("{}: {}", name(format), shown(format, leaves));
                        return tried;
                    }
                }
    }
    return tried;
}

}  // namespace

std::vector<Obligation> claims_of_rounding() {
    std::vector<Obligation> claims;
    claims.push_back({.name = "float32_hides_order_in_a_window",
                      .sentence = "accumulated in float32, n values whose exponents differ by at most w have the same "
                                  "sum in every order while n x 2^(w + precision) <= 2^24 and nothing overflows",
                      .scope = "16-bit and 8-bit floats",
                      .statements = {partial_sums_stay_small(), small_integers_are_numbers(),
                                     additions_of_small_integers_are_exact()},
                      .enumerate = float32_hides_order});
    for (const Format format : {Format::float16, Format::bfloat16})
        claims.push_back({.name = "float32_shows_order_beyond_the_window",
                          .sentence = "one binade beyond that window two orders of 8 values differ",
                          .scope = std::string(name(format)),
                          .enumerate = [format] { return float32_shows_order(format); },
                          .settled = Obligation::Settled::by_example});
    claims.push_back({.name = "error_is_bounded_in_every_order",
                      .sentence =
                          "while nothing overflows, every order's sum lies within (n - 1) u (|x0| + |x1| + ...) "
                          "of the exact one, u = 2^-precision, so two orders within twice that",
                      .scope = "every float format, any number of values",
                      .statements = error_grows_by_one_unit(),
                      .enumerate = float8_sums_lie_within_the_bound,
                      .assumes_of_nccl = {"adds_as_modelled"}});
    return claims;
}

}  // namespace samesum
