// What each combine moves, and the time that follows from it: a plan for more ranks than there are at hand.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "model/combine/scheme.hpp"

namespace samesum {

/// Of one combine of equal chunks on the rank that has most to do.
struct Traffic {
    double sent = 0;   ///< bytes
    int hops = 0;      ///< messages one after another
    int launches = 0;  ///< kernels and copies one after another
};
/// NCCL's reduce-scatter, reduce, broadcast and all-gather as its rings make them; `received` is a rank's own chunk.
[[nodiscard]] Traffic traffic(Scheme scheme, int ranks, std::uint64_t received);

/// time = launches * launch + hops * alpha + sent / beta (Hockney, Parallel Computing 20, 1994).
struct AlphaBeta {
    double launch_us = 0, alpha_us = 0;
    double beta_gbs = 0;  ///< 10^9 bytes a second

    [[nodiscard]] double microseconds(const Traffic& traffic) const;
};
/// Through the smallest and the largest of the measured (bytes a rank receives, microseconds). Throws UsageError with
/// fewer than two sizes, or where the larger took no longer.
[[nodiscard]] AlphaBeta fit(Scheme scheme, int ranks, double launch_us,
                            const std::vector<std::pair<std::uint64_t, double>>& measured);

}  // namespace samesum
