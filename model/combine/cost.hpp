// The traffic of each combine and a time model, to extrapolate to more ranks than available.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "model/combine/scheme.hpp"

namespace samesum {

/// Traffic of one combine of equal chunks, on the busiest rank.
struct Traffic {
    double sent = 0;   ///< bytes
    int hops = 0;      ///< sequential messages
    int launches = 0;  ///< sequential kernels and copies
};
/// For NCCL's ring algorithms of reduce-scatter, reduce, broadcast and all-gather; `received`: bytes of a rank's own
/// chunk.
[[nodiscard]] Traffic traffic(Scheme scheme, int ranks, std::uint64_t received);

/// time = launches * launch + hops * alpha + sent / beta (Hockney, Parallel Computing 20, 1994).
struct AlphaBeta {
    double launch_us = 0, alpha_us = 0;
    double beta_gbs = 0;  ///< 10^9 bytes per second

    [[nodiscard]] double microseconds(const Traffic& traffic) const;
};
/// Fits the smallest and the largest size of the measured (bytes that a rank receives, microseconds). Throws UsageError
/// for fewer than two sizes, or if the larger one was not slower.
[[nodiscard]] AlphaBeta fit(Scheme scheme, int ranks, double launch_us,
                            const std::vector<std::pair<std::uint64_t, double>>& measured);

}  // namespace samesum
