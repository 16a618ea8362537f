// Definitions by text.
// SPDX-License-Identifier: Apache-2.0
#include "proofs/smt_arithmetic.hpp"

#include <fmt/format.h>

#include "model/error.hpp"

namespace samesum {
namespace {

template <class Add>
Term tree_term(const ReductionTree& tree, std::span<const Term> leaves, const Add& add) {
    return evaluate<Term>(tree, leaves, add);
}

}  // namespace

SmtArithmetic::SmtArithmetic(Format format) : format_(format) {
    ensure(traits(format).is_float, "the solver's addition is of floats");
}

std::string SmtArithmetic::leaf_sort() const { return fmt::format("(_ BitVec {})", traits(format_).width); }

std::string SmtArithmetic::value_sort() const {
    const FormatTraits& t = traits(format_);
    return fmt::format("(_ FloatingPoint {} {})", t.has_infinity ? t.exponent_bits : t.exponent_bits + 1,
                       t.precision());
}

std::string SmtArithmetic::definitions() const {
    const FormatTraits& t = traits(format_);
    const std::string leaf = leaf_sort(), value = value_sort();
    if (format_ == Format::float8_e4m3)
        return fmt::format(
            "; float8_e4m3 within (5, 4): exponent field + 8; field 15 is a number unless the fraction is 7\n"
            "(define-fun value ((b {0})) {1}\n"
            "  (ite (= ((_ extract 6 0) b) #b1111111) (_ NaN 5 4)\n"
            "  (ite (= ((_ extract 6 3) b) #b1111) (fp ((_ extract 7 7) b) #b10111 ((_ extract 2 0) b))\n"
            "       ((_ to_fp 5 4) RNE ((_ to_fp 4 4) b)))))\n"
            "(define-fun largest () {1} (fp #b0 #b10111 #b110))\n"
            "(define-fun clamp ((s {1})) {1}\n"
            "  (ite (fp.gt s largest) largest (ite (fp.lt s (fp.neg largest)) (fp.neg largest) s)))\n"
            "(define-fun add ((x {1}) (y {1})) {1} (clamp (fp.add RNE x y)))\n",
            leaf, value);
    const std::string common = fmt::format("(define-fun value ((b {})) {} ((_ to_fp {} {}) b))\n", leaf, value,
                                           t.exponent_bits, t.precision());
    if (format_ == Format::float8_e5m2)
        return common + fmt::format(
                            "(define-fun largest () {0} (fp #b0 #b11110 #b11))\n"
                            "(define-fun clamp ((s {0})) {0}\n"
                            "  (ite (fp.isInfinite s) (ite (fp.isNegative s) (fp.neg largest) largest) s))\n"
                            "(define-fun add ((x {0}) (y {0})) {0} (clamp (fp.add RNE x y)))\n",
                            value);
    return common + fmt::format("(define-fun add ((x {0}) (y {0})) {0} (fp.add RNE x y))\n", value);
}

Term SmtArithmetic::value(const Term& bits) const { return call("value", bits); }
Term SmtArithmetic::add(const Term& left, const Term& right) const { return call("add", left, right); }

Term SmtArithmetic::sum(const ReductionTree& tree, std::span<const Term> leaves) const {
    std::vector<Term> values;
    for (const Term& leaf : leaves) values.push_back(value(leaf));
    return tree_term(tree, values, [this](const Term& left, const Term& right) { return add(left, right); });
}

std::string AnyAddition::declarations() { return "(declare-sort V 0)\n(declare-fun add (V V) V)\n"; }

Term AnyAddition::commutes() { return {"(forall ((x V) (y V)) (= (add x y) (add y x)))"}; }

Term AnyAddition::sum(const ReductionTree& tree, std::span<const Term> leaves) { return tree_term(tree, leaves, add); }

}  // namespace samesum
