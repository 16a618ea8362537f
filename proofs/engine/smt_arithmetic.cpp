// The SMT-LIB definitions of each format's addition.
// SPDX-License-Identifier: Apache-2.0
#include "proofs/engine/smt_arithmetic.hpp"

#include <fmt/format.h>

#include "model/support/error.hpp"

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
    const FormatTraits& t = traits(traits(format_).width == 8 ? Format::float16 : format_);
    return fmt::format("(_ FloatingPoint {} {})", t.exponent_bits, t.precision());
}

std::string SmtArithmetic::definitions() const {
    const FormatTraits& t = traits(format_);
    const std::string leaf = leaf_sort(), value = value_sort();
    if (t.width != 8)
        return fmt::format(
            "(define-fun value ((b {0})) {1} ((_ to_fp {2} {3}) b))\n"
            "(define-fun add ((x {1}) (y {1})) {1} (fp.add RNE x y))\n",
            leaf, value, t.exponent_bits, t.precision());
    const std::string decode =
        format_ == Format::float8_e5m2
            ? fmt::format(
                  "; the upper half of a float16\n"
                  "(define-fun value ((b {})) {} ((_ to_fp 5 11) (concat b #x00)))\n",
                  leaf, value)
            : fmt::format(
                  "; exponent field 15 is a number unless the fraction is 7: float16's field 23\n"
                  "(define-fun value ((b {0})) {1}\n"
                  "  (ite (= ((_ extract 6 0) b) #b1111111) (_ NaN 5 11)\n"
                  "  (ite (= ((_ extract 6 3) b) #b1111)\n"
                  "       (fp ((_ extract 7 7) b) #b10111 (concat ((_ extract 2 0) b) #b0000000))\n"
                  "       ((_ to_fp 5 11) RNE ((_ to_fp 4 4) b)))))\n",
                  leaf, value);
    return decode + fmt::format(
                        "(define-fun rounded ((s {0})) {0} ((_ to_fp 5 11) RNE ((_ to_fp 5 {1}) RNE s)))\n"
                        "(define-fun largest () {0} (value {2}))\n"
                        "(define-fun saturated ((s {0})) {0}\n"
                        "  (ite (fp.gt s largest) largest (ite (fp.lt s (fp.neg largest)) (fp.neg largest) s)))\n"
                        "(define-fun add ((x {0}) (y {0})) {0} (saturated (rounded (fp.add RNE x y))))\n",
                        value, t.precision(), bit_vector(8, t.largest()).text);
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
