// direct_ordered's kernel: all ranks of one NVLink domain run it together, without calling NCCL.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "impl/kernels/indexing.hpp"
#include "model/arithmetic/format.hpp"
#include "model/combine/scheme.hpp"

namespace samesum::gpu {

/// The largest NVLink domain has 72 GPUs (GB200 NVL72).
inline constexpr int max_direct_ranks = 72;

/// Data travels in lines of 128 bytes. The last 8 are a flag: the step of the warp that the other 120 bytes belong to.
/// NVLink delivers a line's 128 bytes together when a warp stores them together, so a reader that sees the flag has the
/// data: one hop, no barrier, no fence. The protocol is NCCL's LL128 (2.28.9, device/prims_ll128.h).
/// A warp's lines of one step are a tile. Each warp exchanges tiles with the warps of the same number on the other
/// ranks only.
namespace direct {
inline constexpr int line = 128;                                    ///< bytes
inline constexpr int tile_lines = 8;                                ///< two 16-byte stores of each lane
inline constexpr int tile_bytes = tile_lines * line;                ///< as sent
inline constexpr int tile_data = tile_lines * indexing::line_data;  ///< of the buffer's data
inline constexpr int warps = 16;                                    ///< in a block
/// Resident at once. With more ranks each warp has more loads in flight, in more registers.
constexpr int blocks_per_sm(int ranks) { return ranks > 2 ? 1 : 2; }
/// Twice as many blocks as are resident were 3 % faster from 8 MiB on. Blocks start in the order of their numbers, so
/// the earliest unfinished block runs on every rank, and the blocks that it waits for run too.
inline constexpr int waves = 2;
/// Slots for each sender. A sender writes tile n + 2 only after it has received the reader's tile n + 1, which the
/// reader sends after it has read tile n.
inline constexpr int depth = 2;
}  // namespace direct

/// One rank's receive slots, and the addresses of the other ranks' slots.
struct ReceiveSlots {
    std::byte* inbox[max_direct_ranks] = {};  ///< inbox[q]: rank q's, [blocks * warps, depth, ranks, tile_bytes]
    std::uint64_t* steps = nullptr;           ///< own, [blocks * warps]: steps of each warp so far, over all calls
    std::uint32_t* expired = nullptr;         ///< own, 1 word: set when a peer did not send in time
    std::uint64_t timeout_ns = 0;
    int rank = 0;
    int ranks = 0;
    int blocks = 0;             ///< at most; the same on all ranks. Those of all ranks on one GPU must fit on it
    bool early_launch = false;  ///< sm_90 and later, no other rank on the GPU
};
[[nodiscard]] constexpr std::size_t inbox_bytes(int ranks, int blocks) {
    return static_cast<std::size_t>(blocks) * direct::warps * direct::depth * static_cast<std::size_t>(ranks) *
           direct::tile_bytes;
}

/// One call; the same on all ranks but for the buffers.
struct DirectSum {
    const std::byte* partial = nullptr;
    std::byte* result = nullptr;
    indexing::Range<std::uint64_t> chunks[max_direct_ranks] = {};  ///< of the partial, in bytes
    int first = 0;                                                 ///< the rank whose value the sum begins with: 0
};

/// result[i] = ((partial of rank 0 + partial of rank 1) + ...), each partial's element i of the own chunk, rounded as
/// launch_sum() does. Every rank launches it with the same chunks on its own stream, calls in the same order; one set
/// of receive slots serves one stream. The kernel ends when all ranks have run it, or sets `expired`. Only its own rank
/// reads a partial. `result` may be the own chunk of the partial. Any alignment that the format allows.
void launch_direct_sum(const ReceiveSlots& receive_slots, const DirectSum& sum, Format format,
                       Accumulation accumulation, cudaStream_t stream);

}  // namespace samesum::gpu
