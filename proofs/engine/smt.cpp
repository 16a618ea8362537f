// Builds terms of SMT-LIB as text.
// SPDX-License-Identifier: Apache-2.0
#include "proofs/engine/smt.hpp"

#include <fmt/format.h>

namespace samesum {

Term call(std::string_view function, std::span<const Term> arguments) {
    std::string text = fmt::format("({}", function);
    for (const Term& argument : arguments) text += " " + argument.text;
    return {text + ")"};
}

Term equal(const Term& a, const Term& b) { return call("=", a, b); }
Term negation(const Term& a) { return call("not", a); }
Term implies(const Term& a, const Term& b) { return call("=>", a, b); }

Term conjunction(std::span<const Term> terms) {
    if (terms.empty()) return {"true"};
    return terms.size() == 1 ? terms.front() : call("and", terms);
}

Term disjunction(std::span<const Term> terms) {
    if (terms.empty()) return {"false"};
    return terms.size() == 1 ? terms.front() : call("or", terms);
}

std::vector<Term> numbered(std::string_view stem, int count) {
    std::vector<Term> terms;
    for (int i = 0; i < count; ++i) terms.push_back({fmt::format("{}{}", stem, i)});
    return terms;
}

Term bit_vector(int width, Bits bits) { return {fmt::format("(_ bv{} {})", bits, width)}; }

std::string declare(const Term& constant, std::string_view sort) {
    return fmt::format("(declare-const {} {})\n", constant.text, sort);
}

std::string declare(std::span<const Term> constants, std::string_view sort) {
    std::string text;
    for (const Term& constant : constants) text += declare(constant, sort);
    return text;
}

}  // namespace samesum
