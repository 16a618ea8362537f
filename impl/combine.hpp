// The ways to combine MoE partials on real NCCL: the library's door.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "impl/nccl.hpp"
#include "impl/peer_memory.hpp"
#include "model/combine.hpp"
#include "model/routing.hpp"

namespace samesum::gpu {

/// Mistakes that a combine can be told to make, so that tests can show that they would be caught. Only builds with
/// SAMESUM_FAULTS obey; others throw UsageError.
enum class Fault : std::uint8_t {
    none,
    root_is_owner,              ///< fixed_root reduces each chunk to its owner
    offset_by_one_row,          ///< chunks are taken one row too early
    root_copy_on_other_stream,  ///< fixed_root's root copies its own chunk without waiting for the reduce
    missing_wait,               ///< the ordered sum does not wait for what it adds
    ring_order,                 ///< ordered sums begin with the owner's successor, as rings do
    fp32_instead_of_per_hop,    ///< ordered sums round once
    stale_receive_buffer,       ///< gather and exchange add what the last call received
    sizes_rotated,              ///< rank r takes rank r + 1's size
};
inline constexpr std::array all_faults{
    Fault::root_is_owner, Fault::offset_by_one_row,       Fault::root_copy_on_other_stream, Fault::missing_wait,
    Fault::ring_order,    Fault::fp32_instead_of_per_hop, Fault::stale_receive_buffer,      Fault::sizes_rotated};
[[nodiscard]] std::string_view name(Fault fault);
[[nodiscard]] Fault parse_fault(std::string_view word);

/// What every rank must say alike.
struct CombineRequest {
    Scheme scheme = Scheme::fixed_root;
    Routing routing;
    Format format = Format::bfloat16;
    int root = 0;                                       ///< of fixed_root and reduce_broadcast
    Accumulation accumulation = Accumulation::per_hop;  ///< of the ordered schemes
    Fault fault = Fault::none;
};

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
