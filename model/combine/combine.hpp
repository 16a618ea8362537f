// The schemes that combine MoE partials: the model's orders and results.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/combine/routing.hpp"
#include "model/combine/scheme.hpp"
#include "model/nccl/communicator.hpp"
#include "model/nccl/schedule.hpp"
#include "model/sum/element_sum.hpp"

namespace samesum {

/// The orders of a whole combine over the [rows, hidden] buffer, and where it rounds.
struct CombinePlan {
    Schedule schedule;
    Accumulation accumulation = Accumulation::per_hop;
};

/// Throws UsageError where the scheme does not support the routing (reduce_scatter with unequal sizes, a number of
/// ranks that differs from the communicator's).
[[nodiscard]] CombinePlan plan_combine(Scheme scheme, const Communicator& comm, const Routing& routing, Format format,
                                       const CombineOptions& options = {});

/// Combines whole buffers: partials[q] is rank q's [rows, hidden] buffer. The result has the same shape; each row is as
/// its owner receives it.
[[nodiscard]] std::vector<Bits> combine(Scheme scheme, const Communicator& comm, const Routing& routing, Format format,
                                        std::span<const std::vector<Bits>> partials,
                                        const CombineOptions& options = {});

/// One element of that result.
[[nodiscard]] Bits combine_element(const CombinePlan& plan, Format format, std::uint64_t element,
                                   std::span<const Bits> partials);

}  // namespace samesum
