// What must hold for every way to combine on real ranks, as a table of named properties.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "impl/ranks/live_ranks.hpp"
#include "model/combine/scheme.hpp"
#include "model/support/ledger.hpp"

namespace samesum::gpu {

struct PropertyOptions {
    std::vector<Scheme> schemes;
    std::vector<Format> formats;
    std::uint64_t rows_per_rank = 4, hidden = 512;
    std::uint64_t seed = 1;
    int cases = 4;               ///< for each property, scheme and format
    int by_node = 0;             ///< first sum over this many ranks of a node; exchange_ordered, direct_ordered only
    std::string fault = "none";  ///< a planted fault
    std::string only;            ///< properties whose names contain this
};

/// Runs the table. A rank that dies or a refusal by NCCL makes that property inconclusive; the others still run.
[[nodiscard]] std::vector<Evidence> check_properties(LiveRanks& ranks, const PropertyOptions& options);

}  // namespace samesum::gpu
