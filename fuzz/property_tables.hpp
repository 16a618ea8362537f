// The parts of the table of properties, and the demands that several of them share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "fuzz/draw_token.hpp"
#include "fuzz/properties.hpp"

namespace samesum::fuzz {

/// Trees of additions without any call: properties_of_addition.cpp.
[[nodiscard]] std::vector<Property> properties_of_addition();
/// Schemes x what changes about the token's place: properties_of_invariance.cpp.
[[nodiscard]] std::vector<Property> properties_of_invariance();
/// 2 and 3 ranks, where less can differ: properties_of_schemes.cpp.
[[nodiscard]] std::vector<Property> properties_of_few_ranks();
/// What schemes have in common with each other and with the model: properties_of_schemes.cpp.
[[nodiscard]] std::vector<Property> properties_of_schemes();

/// A property's cases are invariance cases of one scheme. `any_rings`: channels may have different rings.
[[nodiscard]] Property invariance_of(Scheme scheme, Invariance invariance, bool any_rings, Verdict expected,
                                     bool only_pat = false);

/// The sides are equal except for how the calls are launched.
[[nodiscard]] bool same_but_launch_mode(Side expected, const Side& b);

}  // namespace samesum::fuzz
