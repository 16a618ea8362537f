// Cases as properties draw them: one token of a call, and the same token in another call.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fuzz/generators.hpp"
#include "model/combine/invariance.hpp"

namespace samesum::fuzz {

/// What to draw: a token with its format, its partials and side a; side b starts as a copy.
struct TokenSpec {
    Scheme scheme = Scheme::fixed_root;
    int min_ranks = 2, max_ranks = 16;
    bool one_ring = true;
    bool spread = false;  ///< two owners at least
    bool pat = false;     ///< reduce_scatter may be PAT
    bool only_pat = false;
};

/// The side's routing and the token's row in it.
void draw_place(Draw& draw, Case& c, Side& side, const TokenSpec& spec);
[[nodiscard]] Case draw_token(Draw& draw, const TokenSpec& spec);
/// Draws side b: the same token elsewhere, as far as the invariance allows.
void move_token(Draw& draw, Case& c, Invariance invariance, const TokenSpec& spec);
/// Why side b does not move the token as the invariance demands; empty when it does.
[[nodiscard]] std::string not_moved(const Case& c, Invariance invariance);

}  // namespace samesum::fuzz
