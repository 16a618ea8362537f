// The combines of MoE partials on real NCCL: the library's entry point.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "impl/combine/planted_fault.hpp"
#include "impl/device/nccl.hpp"
#include "impl/kernels/peer_memory.hpp"
#include "model/combine/routing.hpp"
#include "model/combine/scheme.hpp"

namespace samesum::gpu {

/// One combine; the same on every rank.
struct CombineRequest {
    Scheme scheme = Scheme::fixed_root;
    Routing routing;
    Format format = Format::bfloat16;
    int root = 0;                                       ///< of fixed_root and reduce_broadcast
    Accumulation accumulation = Accumulation::per_hop;  ///< of the ordered schemes
    /// Of the ordered schemes: 0 for one sum over all ranks; else sum first over this many ranks of each node, then
    /// over the nodes, as CombineOptions::ranks_per_node says. direct_ordered's `peers` are then those of the node.
    int ranks_per_node = 0;
    Fault fault = Fault::none;
};

/// The fastest scheme that adds in rank order, by the tables in tests/golden/observed (two H200s): direct_ordered at
/// every size where NVLink joins all ranks. Elsewhere, for small buffers, an all-gather: an exchange sends a message
/// for each pair of ranks. For larger buffers an exchange: an all-gather moves `ranks` times the data. Every choice
/// gives the same bits.
[[nodiscard]] Scheme fastest_ordered(bool one_nvlink_domain, const Routing& routing, Format format);

/// Bytes of device memory that rank `rank` needs as workspace; may be 0. direct_ordered uses the peers' memory instead.
[[nodiscard]] std::size_t workspace_bytes(const CombineRequest& request, int rank);

/// Adds the ranks' partials and gives each rank its own rows.
///
/// partial: this rank's [rows, hidden] buffer. result: [sizes[rank], hidden]; may be those rows of `partial`, else must
/// not overlap it. workspace: workspace_bytes() of device memory, not used otherwise until the combine has finished on
/// the stream. peers: for direct_ordered only. Pointers need the format's alignment; the workspace needs 256 bytes, as
/// cudaMalloc gives.
///
/// Enqueues all work on `stream` and does not wait; can be captured into a CUDA graph (but not the first call of a
/// communicator). Only result, workspace and peers are written. A producer of the partials on the same stream needs no
/// synchronisation. Every rank must call with the same request. Throws UsageError for a request that the scheme cannot
/// run, CudaError and NcclError.
void combine(const CombineRequest& request, const void* partial, void* result, void* workspace, PeerMemory* peers,
             const Communicator& comm, cudaStream_t stream);

}  // namespace samesum::gpu
