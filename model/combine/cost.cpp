// Two measured points determine two parameters; all other times are computed and can be compared with measurements.
// SPDX-License-Identifier: Apache-2.0
#include "model/combine/cost.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "model/support/error.hpp"

namespace samesum {

Traffic traffic(Scheme scheme, int ranks, std::uint64_t received) {
    const double chunk = static_cast<double>(received), others = ranks - 1;
    const double all = static_cast<double>(ranks) * chunk;
    switch (scheme) {
        case Scheme::reduce_scatter:
        case Scheme::vllm_default:
        case Scheme::reduce_per_owner:
            return {others * chunk, ranks - 1, 1};
        case Scheme::fixed_root:
            // Each rank except the root forwards the whole buffer; the root then sends each owner its chunk and copies
            // its own.
            return {all, ranks, 3};
        case Scheme::reduce_broadcast:
            // With 2 ranks, one sends the sum and the other sends it back; with more, the ranks between do both.
            return {ranks > 2 ? 2 * all : all, 2 * (ranks - 1), 3};
        case Scheme::gather_ordered:
            return {others * all, ranks - 1, 2};
        case Scheme::exchange_ordered:
        case Scheme::exact:
            return {others * chunk, 1, 2};
        case Scheme::direct_ordered:
            // 120 of the 128 bytes of a line are data.
            return {others * chunk * 16 / 15, 1, 1};
    }
    return {};
}

double AlphaBeta::microseconds(const Traffic& traffic) const {
    return traffic.launches * launch_us + traffic.hops * alpha_us + traffic.sent / (beta_gbs * 1e3);
}

AlphaBeta fit(Scheme scheme, int ranks, double launch_us,
              const std::vector<std::pair<std::uint64_t, double>>& measured) {
    const auto [smallest, largest] = std::minmax_element(measured.begin(), measured.end());
    if (measured.size() < 2 || smallest->first == largest->first)
        throw UsageError(fmt::format("{} was measured at one size: expected two or more", name(scheme)));
    if (largest->second <= smallest->second)
        throw UsageError(fmt::format("{} was not slower for {} bytes than for {}: expected a wider range of sizes",
                                     name(scheme), largest->first, smallest->first));
    const Traffic small = traffic(scheme, ranks, smallest->first), large = traffic(scheme, ranks, largest->first);
    AlphaBeta line;
    line.beta_gbs = (large.sent - small.sent) / (largest->second - smallest->second) / 1e3;
    line.launch_us = launch_us;
    const double rest = smallest->second - small.launches * launch_us - small.sent / (line.beta_gbs * 1e3);
    line.alpha_us = std::max(0.0, rest / small.hops);
    return line;
}

}  // namespace samesum
