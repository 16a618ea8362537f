// How a case becomes simpler: the steps by which a finding is shrunk.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "fuzz/case.hpp"

namespace samesum::fuzz {

/// Cases that are simpler in one respect each, the largest steps first. None is more complicated, so that shrinking
/// ends.
[[nodiscard]] std::vector<Case> simpler(const Case& c);

}  // namespace samesum::fuzz
