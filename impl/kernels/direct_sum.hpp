// direct_ordered's kernel: all ranks of one NVLink domain run it together, and no call of NCCL is needed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "impl/kernels/indexing.hpp"
#include "model/arithmetic/format.hpp"
#include "model/combine/scheme.hpp"

namespace samesum::gpu {

/// An NVLink domain of today has at most 72 GPUs.
inline constexpr int max_direct_ranks = 72;

/// How data travels: in lines of 128 bytes, the last 8 of which are a flag that says which step of its warp the other
/// 120 belong to. NVLink delivers a line's 128 bytes together when a warp stores them together, so who sees the flag
/// has the data: one hop, no barrier, no fence. The protocol is NCCL's LL128 (2.28.9, device/prims_ll128.h).
/// A warp's lines of one step are a tile. Each warp meets the warps of the same number on the other ranks and no
/// others.
namespace direct {
inline constexpr int line = 128;                                    ///< bytes
inline constexpr int tile_lines = 8;                                ///< two 16-byte stores of each lane
inline constexpr int tile_bytes = tile_lines * line;                ///< as it travels
inline constexpr int tile_data = tile_lines * indexing::line_data;  ///< of the buffer
inline constexpr int warps = 16;                                    ///< of a block
/// Resident at once. With more ranks each warp has more under way, in more registers.
constexpr int blocks_per_sm(int ranks) { return ranks > 2 ? 1 : 2; }
/// Twice as many blocks as are resident were 3 % faster from 8 MiB on. Blocks begin in the order of their numbers, so
/// the earliest that is not done is running on every rank and finds the one that it waits for.
inline constexpr int waves = 2;
/// A tile is read before the sender may write the next but one: then it has heard of the next one from the reader.
inline constexpr int depth = 2;
}  // namespace direct

/// One rank's letterboxes and its doors to those of the others.
struct ReceiveSlots {
    std::byte* inbox[max_direct_ranks] = {};  ///< inbox[q]: rank q's, [blocks * warps, depth, ranks, tile_bytes]
    std::uint64_t* steps = nullptr;           ///< own, [blocks * warps]: steps that each warp has made in its life
    std::uint32_t* expired = nullptr;         ///< own, 1 word: set when a peer did not come in time
    std::uint64_t timeout_ns = 0;
    int rank = 0;
    int ranks = 0;
    int blocks = 0;             ///< at most, alike on all ranks; all ranks' must fit on a GPU that they share
    bool early_launch = false;  ///< sm_90 and later
};
[[nodiscard]] constexpr std::size_t inbox_bytes(int ranks, int blocks) {
    return static_cast<std::size_t>(blocks) * direct::warps * direct::depth * static_cast<std::size_t>(ranks) *
           direct::tile_bytes;
}

/// What one call adds; alike on all ranks but for the buffers.
struct DirectSum {
    const std::byte* partial = nullptr;
    std::byte* result = nullptr;
    indexing::Range<std::uint64_t> chunks[max_direct_ranks] = {};  ///< of the partial, in bytes
    int first = 0;                                                 ///< whose value the sum begins with: 0
};

/// result[i] = ((partial of rank 0 + partial of rank 1) + ...), each partial's element i of the own chunk, rounded as
/// launch_sum does. Every rank launches it with the same chunks on a stream of its own, calls in the same order; the
/// mailboxes serve one stream. It ends when all ranks have run it, or sets `expired`. Nobody reads a partial but its
/// own rank. `result` may be the own chunk of the partial. Any alignment that the format allows.
void launch_direct_sum(const ReceiveSlots& receive_slots, const DirectSum& sum, Format format,
                       Accumulation accumulation, cudaStream_t stream);

}  // namespace samesum::gpu
