// The ways to combine MoE partials on real NCCL: the library's door.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "impl/combine/planted_fault.hpp"
#include "impl/device/nccl.hpp"
#include "impl/kernels/peer_memory.hpp"
#include "model/combine/routing.hpp"
#include "model/combine/scheme.hpp"

namespace samesum::gpu {

/// What every rank must say alike.
struct CombineRequest {
    Scheme scheme = Scheme::fixed_root;
    Routing routing;
    Format format = Format::bfloat16;
    int root = 0;                                       ///< of fixed_root and reduce_broadcast
    Accumulation accumulation = Accumulation::per_hop;  ///< of the ordered schemes
    /// Of the ordered schemes: 0 for one sum over all ranks; else first over the ranks of each node, so many, and then
    /// over the nodes, as CombineOptions::ranks_per_node says. direct_ordered's `peers` are then those of the node.
    int ranks_per_node = 0;
    Fault fault = Fault::none;
};

/// The fastest way to add in rank order, by the tables in tests/golden/observed (two H200s): direct_ordered at every
/// size where NVLink joins all ranks. Elsewhere a small all-gather beats an exchange, whose messages are one for each
/// pair of ranks; the larger buffer is gathered `ranks` times over. Every choice makes the same bits.
[[nodiscard]] Scheme fastest_ordered(bool one_nvlink_domain, const Routing& routing, Format format);

/// Scratch memory on the device that rank `rank` needs for the request; may be 0. For direct_ordered the peers' memory
/// takes its place.
[[nodiscard]] std::size_t workspace_bytes(const CombineRequest& request, int rank);

/// Adds the ranks' partials and gives each rank its own rows.
///
/// partial: this rank's [rows, hidden] buffer. result: [sizes[rank], hidden]; may be those rows of `partial`, else must
/// not overlap it. workspace: workspace_bytes() of device memory that nobody else uses until the stream has come so
/// far. peers: for direct_ordered only. All pointers may be aligned as loosely as the format allows, but the
/// workspace, which begins at 256 bytes as cudaMalloc gives them.
///
/// Everything is put on `stream` and nothing is waited for; it can be captured into a CUDA graph (not the first call of
/// a communicator). Nothing but result, workspace and peers is written. The partials are read from wherever the stream
/// has come to: a producer on the same stream needs no synchronisation. Every rank must call with the same request.
/// Throws UsageError for a request that the scheme does not take, CudaError and NcclError.
void combine(const CombineRequest& request, const void* partial, void* result, void* workspace, PeerMemory* peers,
             const Communicator& comm, cudaStream_t stream);

}  // namespace samesum::gpu
