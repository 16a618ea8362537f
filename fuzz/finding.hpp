// A case whose sides differ, run again, shrunk to something that a person can read, and explained.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rapidcheck/Shrinkable.h>

#include <cstddef>
#include <optional>
#include <string>

#include "fuzz/backend.hpp"
#include "fuzz/case.hpp"

namespace samesum::fuzz {

/// Two sides that should agree and do not: as found, and shrunk.
struct Finding {
    Case original, minimal;
    bool repeats = true;    ///< false: the same case made different bits when run again; not shrunk
    std::string kind;       ///< "order change", "another order", "rounding", "no order makes these bits", "run-to-run"
    std::string text;       ///< for people: both sides, both trees, both patterns
    std::string replay;     ///< one line for a shell
    std::size_t steps = 0;  ///< of shrinking
};

/// The bits that the two sides made of a case's element.
struct Seen {
    Bits a = 0, b = 0;
    friend bool operator==(const Seen&, const Seen&) = default;
};
/// Runs a differing case again, shrinks it if it repeats the bits in `seen`, and explains it.
[[nodiscard]] Finding investigate(const rc::Shrinkable<Case>& found, Backend& backend, std::optional<Seen> seen = {});
/// The text of a case, whether its sides differ or not.
[[nodiscard]] std::string describe(const Case& c, Backend& backend);

}  // namespace samesum::fuzz
