// Exhaustive enumerations: sets of inputs small enough to try completely.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "fuzz/backend.hpp"
#include "model/support/ledger.hpp"

namespace samesum::fuzz {

/// Every owner assignment of up to `tokens` tokens on 1 to 4 ranks: a token's bits may depend on its owner where the
/// scheme says so, and on nothing else.
[[nodiscard]] Evidence every_owner_assignment(Backend& backend, int tokens);
/// Every sizes vector of up to `total` rows on 4 ranks: every row arrives, once, with the bits of its own partials.
[[nodiscard]] Evidence every_sizes_vector(Backend& backend, int total);
/// Every tree of up to `leaves` leaves reads back, is its own canonical form, and is distinguished from rank order by a
/// witness.
[[nodiscard]] Evidence every_tree(int leaves);
/// Every pair of float8 values: addition commutes, and is the exact sum rounded once.
[[nodiscard]] Evidence every_float8_pair();
/// Every three float8 values in every order: the exact sum does not depend on it, the sum by additions does.
[[nodiscard]] Evidence every_float8_triple();

/// How much to enumerate: `some` takes a second on the model, seconds on real ranks; `all` a few seconds, or minutes.
enum class Enumeration : std::uint8_t { none, some, all };
[[nodiscard]] std::vector<Evidence> enumerate(Backend& backend, Enumeration which);

}  // namespace samesum::fuzz
