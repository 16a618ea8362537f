// Addition commutes and is not associative, and a tree is determined by its sums.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "model/arithmetic/hop_arithmetic.hpp"
#include "model/sum/element_sum.hpp"
#include "model/sum/witness.hpp"
#include "proofs/claims/claims.hpp"
#include "proofs/engine/smt_arithmetic.hpp"

namespace samesum {
namespace {

std::string show_sum(Format format, Bits left, Bits right) {
    const Bits sum = HopArithmetic(format).add(left, right);
    return fmt::format("{} + {} = {} ({})", hex(format, left), hex(format, right), hex(format, sum),
                       decimal(format, sum));
}

/// Both orders of a pair, or nothing when they agree.
std::string disagreement(Format format, Bits x, Bits y) {
    const HopArithmetic arithmetic(format);
    if (arithmetic.add(x, y) == arithmetic.add(y, x)) return {};
    return show_sum(format, x, y) + "\n" + show_sum(format, y, x);
}

template <class Case>
Enumeration all_pairs(Format format, const Case& counterexample) {
    Enumeration tried;
    const Bits last = traits(format).mask();
    for (Bits x = 0; x <= last; ++x)
        for (Bits y = 0; y <= last; ++y) {
            ++tried.cases;
            tried.counterexample = counterexample(x, y);
            if (!tried.counterexample.empty()) return tried;
        }
    return tried;
}

Statement commutes(Format format) {
    const SmtArithmetic arithmetic(format);
    const std::vector<Term> x = numbered("x", 2);
    const Term a = arithmetic.value(x[0]), b = arithmetic.value(x[1]);
    return {.name = std::string(name(format)),
            .logic = "QF_BVFP",
            .declarations = declare(x, arithmetic.leaf_sort()) + arithmetic.definitions(),
            .goal = equal(arithmetic.add(a, b), arithmetic.add(b, a)),
            .constants = {"x0", "x1"},
            .confirm = [format](const Assignment& v) { return disagreement(format, v.at("x0"), v.at("x1")); }};
}

/// The other half for float64, whose NaN sums have a payload, which the solver's single NaN does not have.
Statement payloads_commute() {
    const std::vector<Term> x = numbered("x", 2);
    const std::string nan = "(define-fun nan ((b (_ BitVec 64))) Bool (bvugt ((_ extract 62 0) b) (_ bv" +
                            std::to_string(traits(Format::float64).infinity()) + " 63)))\n";
    const std::string payload =
        "(define-fun payload ((x (_ BitVec 64)) (y (_ BitVec 64))) (_ BitVec 64)\n"
        "  (ite (nan x) (bvor x #x0008000000000000) (ite (nan y) (bvor y #x0008000000000000) #xfff8000000000000)))\n";
    return {.name = "float64_payload",
            .logic = "QF_BV",
            .declarations = declare(x, "(_ BitVec 64)") + nan + payload,
            .assumptions = {{"not_both_nan", {"(not (and (nan x0) (nan x1)))"}}},
            .goal = equal(call("payload", x[0], x[1]), call("payload", x[1], x[0])),
            .constants = {"x0", "x1"},
            .confirm = [](const Assignment& v) { return disagreement(Format::float64, v.at("x0"), v.at("x1")); }};
}

void add_commutativity(std::vector<Obligation>& claims) {
    for (const Format format : float_formats) {
        Obligation claim{.name = "addition_commutes",
                         .sentence = "x + y and y + x are the same bits",
                         .scope = std::string(name(format)),
                         .statements = {commutes(format)}};
        if (format == Format::float64) {
            claim.sentence += ", unless both are NaN";
            claim.scope += " but two NaNs";
            claim.statements.push_back(payloads_commute());
        }
        if (traits(format).width == 8)
            claim.enumerate = [format] {
                return all_pairs(format, [format](Bits x, Bits y) { return disagreement(format, x, y); });
            };
        claims.push_back(std::move(claim));
    }
    claims.push_back({.name = "addition_commutes_with_nan_payloads",
                      .sentence = "x + y and y + x are the same bits, whatever NaNs x and y are",
                      .scope = "float64",
                      .enumerate =
                          [] {
                              constexpr Bits quiet = 0x7ff8000000000000;
                              return Enumeration{1, disagreement(Format::float64, quiet | 1, quiet | 2)};
                          },
                      .expected = Verdict::refuted});
}

void add_associativity(std::vector<Obligation>& claims) {
    const ReductionTree left = ReductionTree::parse("((0 1) 2)"), right = ReductionTree::parse("(0 (1 2))");
    for (const Format format : float_formats) {
        Statement statement = same_bits(std::string(name(format)), left, right, format);
        statement.expected = SatResult::sat;
        claims.push_back({.name = "addition_is_not_associative",
                          .sentence = "(x0 + x1) + x2 and x0 + (x1 + x2) differ for some x0, x1, x2",
                          .scope = std::string(name(format)),
                          .statements = {std::move(statement)},
                          .settled = Obligation::Settled::by_example});
    }
}

/// Three leaves decide: M on i, -M on j, 1 on k, +0 elsewhere. A subtree's sum depends only on which of i, j, k it
/// holds and, when it holds all three, on whether k met one of i, j before they met each other. This is the table of
/// all additions that can occur; by induction over subtrees the root makes 1 or 0 accordingly.
Statement three_leaves_decide(Format format) {
    const SmtArithmetic arithmetic(format);
    const int width = traits(format).width;
    const auto constant = [&](Bits bits) { return arithmetic.value(bit_vector(width, bits)); };
    const Term zero = constant(0), one = constant(traits(format).one());
    const Term plus = constant(absorption_threshold(format));
    const Term minus = constant(absorption_threshold(format) | traits(format).sign());
    std::vector<Term> table;
    const auto makes = [&](const Term& a, const Term& b, const Term& sum) {
        table.push_back(equal(arithmetic.add(a, b), sum));
        table.push_back(equal(arithmetic.add(b, a), sum));
    };
    for (const Term& each : {zero, one, plus, minus}) makes(each, zero, each);  // none of the three joins
    makes(plus, one, plus);                                                     // k meets i: the 1 is lost
    makes(minus, one, minus);                                                   // k meets j: the 1 is lost
    makes(plus, minus, zero);                                                   // i meets j, with or without a lost k
    table.push_back(negation(equal(one, zero)));
    return {.name = std::string(name(format)),
            .logic = "QF_BVFP",
            .declarations = arithmetic.definitions(),
            .goal = conjunction(table)};
}

/// Every pair of different orders of up to `leaves` leaves is distinguished by its witness, in every float format.
Enumeration every_pair_is_told_apart(int leaves) {
    Enumeration tried;
    for (int n = 2; n <= leaves; ++n) {
        const std::vector<ReductionTree> trees = all_trees(n);
        for (std::size_t i = 0; i < trees.size(); ++i)
            for (std::size_t j = 0; j < trees.size(); ++j)
                for (const Format format : float_formats) {
                    ++tried.cases;
                    const auto witness = separating_witness(trees[i], trees[j], format);
                    if (witness.has_value() == (i != j)) continue;
                    tried.counterexample = fmt::format("{}: {} and {}", name(format), trees[i].str(), trees[j].str());
                    return tried;
                }
    }
    return tried;
}

/// Swapping operands anywhere changes nothing: one step up a tree, whichever operands are swapped below.
Statement swapping_changes_nothing() {
    return {.name = "swapped_operands",
            .logic = "UF",
            .declarations = AnyAddition::declarations() +
                            declare(std::vector<Term>{{"left"}, {"right"}, {"left2"}, {"right2"}}, "V"),
            .assumptions = {{"addition_commutes", AnyAddition::commutes()},
                            {"equal_below", {"(and (= left left2) (= right right2))"}}},
            .goal = {"(and (= (add left right) (add left2 right2)) (= (add left right) (add right2 left2)))"}};
}

void add_decidability(std::vector<Obligation>& claims) {
    Obligation claim{.name = "orders_decidable_by_shape",
                     .sentence =
                         "two trees give the same bits on all inputs if and only if they are equal up to swapping "
                         "operands",
                     .scope = "every float format, any number of leaves",
                     .statements = {swapping_changes_nothing()},
                     .enumerate = [] { return every_pair_is_told_apart(5); }};
    for (const Format format : float_formats) claim.statements.push_back(three_leaves_decide(format));
    claims.push_back(std::move(claim));
    claims.push_back({.name = "orders_decidable_by_shape_in_coq",
                      .sentence = "the argument from one addition to trees of any number of leaves, step by step",
                      .scope = "any number of leaves",
                      .coq = "shape_theorem.v"});
}

/// Accumulated in float32 and rounded once.
Term fp32_once(const SmtArithmetic& arithmetic, const ReductionTree& tree, std::span<const Term> leaves) {
    std::vector<Term> wide;
    for (const Term& leaf : leaves) wide.push_back(call("(_ to_fp 8 24) RNE", arithmetic.value(leaf)));
    const Term sum = evaluate<Term>(tree, wide, [](const Term& a, const Term& b) { return call("fp.add RNE", a, b); });
    const FormatTraits& t = traits(arithmetic.format());
    return call(fmt::format("(_ to_fp {} {}) RNE", t.exponent_bits, t.precision()), sum);
}

Bits model_sum(Format format, Accumulation accumulation, const ReductionTree& tree, std::span<const Bits> leaves) {
    return sum_element({.format = format, .accumulation = accumulation}, tree, leaves);
}

Statement rounding_once_changes_nothing(Format format, int ranks) {
    const SmtArithmetic arithmetic(format);
    const std::vector<Term> x = numbered("x", ranks);
    std::vector<int> order(x.size());
    std::iota(order.begin(), order.end(), 0);
    const ReductionTree tree = ReductionTree::left_fold(order);
    Statement statement{.name = std::string(name(format)),
                        .logic = "QF_BVFP",
                        .declarations = declare(x, arithmetic.leaf_sort()) + arithmetic.definitions(),
                        .goal = equal(arithmetic.sum(tree, x), fp32_once(arithmetic, tree, x))};
    for (const Term& each : x) statement.constants.push_back(each.text);
    statement.confirm = [format, tree, constants = statement.constants](const Assignment& v) {
        const FormatTraits& t = traits(format);
        const auto differ = [&](const std::vector<Bits>& leaves) {
            return model_sum(format, Accumulation::per_hop, tree, leaves) !=
                   model_sum(format, Accumulation::fp32_once, tree, leaves);
        };
        std::vector<Bits> found;
        for (const std::string& constant : constants) found.push_back(v.at(constant));
        if (!differ(found)) return std::string();
        // Small values with the same effect, if possible: 2^p and ones, each absorbed alone but not together.
        std::vector<Bits> small(found.size(), t.one());
        small.front() = t.one() + (static_cast<Bits>(t.precision()) << t.fraction_bits);
        const std::vector<Bits>& shown = differ(small) ? small : found;
        const auto show = [&](Accumulation accumulation) {
            const Bits sum = model_sum(format, accumulation, tree, shown);
            return fmt::format("{} makes {} ({})", name(accumulation), decimal(format, sum), hex(format, sum));
        };
        return str_leaves(format, shown) + "\n" + show(Accumulation::per_hop) + "\n" + show(Accumulation::fp32_once);
    };
    return statement;
}

void add_accumulation(std::vector<Obligation>& claims) {
    for (const Format format : {Format::float16, Format::bfloat16}) {
        Statement harmless = rounding_once_changes_nothing(format, 2);
        harmless.seconds = 240;  // Z3 5.4 takes 15 to 60 s
        claims.push_back({.name = "fp32_once_is_per_hop_at_two_ranks",
                          .sentence = "adding two values in float32 and rounding once is adding them in the format",
                          .scope = std::string(name(format)),
                          .statements = {std::move(harmless)},
                          .slow = true});
        Statement statement = rounding_once_changes_nothing(format, 3);
        statement.expected = SatResult::sat;
        claims.push_back({.name = "fp32_once_differs_from_three_ranks_on",
                          .sentence = "with three values the two roundings differ",
                          .scope = std::string(name(format)),
                          .statements = {std::move(statement)},
                          .settled = Obligation::Settled::by_example});
    }
    for (const Format format : {Format::float8_e4m3, Format::float8_e5m2})
        claims.push_back({.name = "exact_is_one_addition_at_two_ranks",
                          .sentence = "the exact sum of two finite values, rounded once, is their sum in the format",
                          .scope = std::string(name(format)),
                          .enumerate = [format] {
                              return all_pairs(format, [format](Bits x, Bits y) {
                                  if (!is_finite(format, x) || !is_finite(format, y)) return std::string();
                                  const std::array<Bits, 2> both{x, y};
                                  if (exact_sum(format, both) == HopArithmetic(format).add(x, y)) return std::string();
                                  return show_sum(format, x, y) + "; exactly " + hex(format, exact_sum(format, both));
                              });
                          }});
}

}  // namespace

Statement same_bits(std::string name, const ReductionTree& a, const ReductionTree& b, Format format) {
    const SmtArithmetic arithmetic(format);
    const std::vector<Term> x = numbered("x", a.leaf_count());
    Statement statement{.name = std::move(name),
                        .logic = "QF_BVFP",
                        .declarations = declare(x, arithmetic.leaf_sort()) + arithmetic.definitions(),
                        .goal = equal(arithmetic.sum(a, x), arithmetic.sum(b, x))};
    for (const Term& each : x) statement.constants.push_back(each.text);
    statement.confirm = [a, b, format, constants = statement.constants](const Assignment& v) {
        std::vector<Bits> leaves;
        for (const std::string& constant : constants) leaves.push_back(v.at(constant));
        if (model_sum(format, Accumulation::per_hop, a, leaves) == model_sum(format, Accumulation::per_hop, b, leaves))
            return std::string();
        const auto small = separating_witness(a, b, format);
        return tell_apart(a, b, format, small ? small->leaves : leaves);
    };
    return statement;
}

Statement same_for_any_addition(std::string name, const std::vector<ReductionTree>& trees) {
    const std::vector<Term> x = numbered("x", trees.front().leaf_count());
    std::vector<Term> equalities;
    for (const ReductionTree& tree : trees)
        equalities.push_back(equal(AnyAddition::sum(trees.front(), x), AnyAddition::sum(tree, x)));
    return {.name = std::move(name),
            .logic = "UF",
            .declarations = AnyAddition::declarations() + declare(x, "V"),
            .assumptions = {{"addition_commutes", AnyAddition::commutes()}},
            .goal = conjunction(equalities)};
}

std::vector<Obligation> claims_of_addition() {
    std::vector<Obligation> claims;
    add_commutativity(claims);
    add_associativity(claims);
    add_decidability(claims);
    add_accumulation(claims);
    for (Obligation& each : claims) each.assumes_of_nccl = {"adds_as_modelled"};
    return claims;
}

}  // namespace samesum
