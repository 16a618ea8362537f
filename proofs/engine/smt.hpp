// Terms of SMT-LIB 2.6 as text: the same text is proved and exported, and any solver can read it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/arithmetic/format.hpp"

namespace samesum {

/// A term, e.g. `(add x0 x1)`. Value type.
struct Term {
    std::string text;

    friend bool operator==(const Term&, const Term&) = default;
};

[[nodiscard]] Term call(std::string_view function, std::span<const Term> arguments);
template <std::same_as<Term>... Terms>
[[nodiscard]] Term call(std::string_view function, const Terms&... arguments) {
    const Term all[] = {arguments...};
    return call(function, std::span<const Term>(all));
}

/// SMT-LIB's `=`: on floats -0 and +0 differ and NaNs are equal, so it is equality of bits except for NaN payloads.
[[nodiscard]] Term equal(const Term& a, const Term& b);
[[nodiscard]] Term negation(const Term& a);
[[nodiscard]] Term implies(const Term& a, const Term& b);
/// True when there are none.
[[nodiscard]] Term conjunction(std::span<const Term> terms);
[[nodiscard]] Term disjunction(std::span<const Term> terms);
/// x0, x1, ... x(count-1).
[[nodiscard]] std::vector<Term> numbered(std::string_view stem, int count);
/// A bit vector of the format's width.
[[nodiscard]] Term bit_vector(int width, Bits bits);

[[nodiscard]] std::string declare(const Term& constant, std::string_view sort);
[[nodiscard]] std::string declare(std::span<const Term> constants, std::string_view sort);

}  // namespace samesum
