// The schemes that combine MoE partials, by name, and their options.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "model/arithmetic/operation.hpp"
#include "model/combine/routing.hpp"
#include "model/nccl/call.hpp"

namespace samesum {

/// How partials are combined.
enum class Scheme : std::uint8_t {
    reduce_scatter,    ///< ncclReduceScatter; equal sizes only
    reduce_per_owner,  ///< one ncclReduce per chunk, root = owner, in one group (vLLM's reduce_scatterv)
    vllm_default,      ///< the first when sizes are equal, else the second
    fixed_root,        ///< one ncclReduce to a fixed root, then a scatter
    reduce_broadcast,  ///< one ncclReduce to a fixed root, then a broadcast of everything
    gather_ordered,    ///< all-gather of the partials, local sum in rank order
    exchange_ordered,  ///< all-to-all of the partials, local sum in rank order
    direct_ordered,    ///< one kernel reads the peers' memory and adds in rank order
    exact,             ///< order-free: the exact sum, rounded once
};
inline constexpr std::array all_schemes{Scheme::reduce_scatter,   Scheme::reduce_per_owner, Scheme::vllm_default,
                                        Scheme::fixed_root,       Scheme::reduce_broadcast, Scheme::gather_ordered,
                                        Scheme::exchange_ordered, Scheme::direct_ordered,   Scheme::exact};

[[nodiscard]] Scheme parse_scheme(std::string_view word);
[[nodiscard]] std::string_view name(Scheme scheme);
/// Whether samesum itself, not NCCL, adds the partials, in rank order.
[[nodiscard]] bool is_ordered(Scheme scheme);

struct CombineOptions {
    int root = 0;                                       ///< of fixed_root and reduce_broadcast
    Accumulation accumulation = Accumulation::per_hop;  ///< of the ordered schemes
    /// Of the ordered schemes: 0 for one fold over all ranks; else the ranks of each node (this many) in rank order,
    /// then the nodes' sums in node order: ((0 1) (2 3)) ... Only per_hop, since the nodes' sums are sent rounded.
    int ranks_per_node = 0;
    Forced forced{};  ///< algorithm and protocol of NCCL's calls
};

/// The scheme that vllm_default dispatches to for this routing; other schemes unchanged.
[[nodiscard]] Scheme dispatched(Scheme scheme, const Routing& routing);

/// vLLM's gate: the deterministic combine is used if requested and the communicator has more than 2 ranks; with 2 ranks
/// every path is one addition.
[[nodiscard]] Scheme gated(bool batch_invariant, int ranks);

}  // namespace samesum
