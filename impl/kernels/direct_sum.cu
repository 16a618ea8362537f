// Push, poll, add: every rank stores its values into the owner's receive slots; the owner adds them in rank order.
// SPDX-License-Identifier: Apache-2.0
//
// Pushing is faster than pulling: NVLink carries 363 GB/s of stores but 330 GB/s of loads in both directions at once
// between two H200s. It also needs no registration of the caller's buffers and no barrier after the sum. Flags are part
// of the data, not stores after it: a fence that waits for earlier stores costs 2 to 3 us for each message, the flags
// cost 1/16 of the bandwidth.
#include <algorithm>

#include "impl/kernels/addition.cuh"
#include "impl/kernels/clock.cuh"
#include "impl/kernels/direct_sum.hpp"

namespace samesum::gpu {
namespace {

using namespace direct;
constexpr int threads = 32 * warps;
/// A warp stores four lines at a time, eight lanes for each line.
constexpr int rounds = tile_lines / 4;
constexpr int round_bytes = 4 * line, round_data = 4 * indexing::line_data;

/// The 16 bytes of a line that one lane moves: two words of data, or one and the flag.
struct Share {
    std::uint64_t first, second;
};

__device__ void store_share(std::byte* to, const Share& share) {
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(share.first), "l"(share.second) : "memory");
}
__device__ Share load_share(const std::byte* from) {
    Share share;
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(share.first), "=l"(share.second)
                 : "l"(from)
                 : "memory");
    return share;
}
/// Lets the next kernel of the stream get ready while this one runs, and waits for the one before (sm_90's
/// programmatic dependent launch): hides 0.5 us of each launch.
__device__ void begin_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// The word at `from`; `left` bytes of it belong to the chunk, the others are 0. Where chunks do not begin and end at
/// whole words, words are assembled element by element.
template <class Stored, bool aligned>
__device__ std::uint64_t load_word(const std::byte* from, std::int64_t left) {
    if constexpr (aligned) {
        return left > 0 ? *reinterpret_cast<const std::uint64_t*>(from) : 0;
    } else {
        std::uint64_t word = 0;
#pragma unroll 1
        for (int e = 0; e < 8 && e < left; e += static_cast<int>(sizeof(Stored))) {
            std::uint64_t bits = 0;
            memcpy(&bits, reinterpret_cast<const Stored*>(from + e), sizeof(Stored));
            word |= bits << (8 * e);
        }
        return word;
    }
}
template <class Stored, bool aligned>
__device__ void store_word(std::byte* to, std::int64_t left, std::uint64_t word) {
    if constexpr (aligned) {
        if (left > 0) *reinterpret_cast<std::uint64_t*>(to) = word;
    } else {
#pragma unroll 1
        for (int e = 0; e < 8 && e < left; e += static_cast<int>(sizeof(Stored))) {
            const std::uint64_t bits = word >> (8 * e);
            memcpy(reinterpret_cast<Stored*>(to + e), &bits, sizeof(Stored));
        }
    }
}

/// One warp's part of a sum. The values of `in_flight` ranks are loaded before the first is sent or added. A rank
/// writes to itself as well: treating all ranks alike is faster than an exception.
template <class Rule, int in_flight, bool aligned>
class WarpTile {
    using Stored = typename Rule::Stored;

public:
    __device__ WarpTile(const ReceiveSlots& receive_slots, const DirectSum& sum) : slots_(receive_slots), sum_(sum) {}

    __device__ void send(std::uint64_t tile, std::uint64_t flag) const {
        const std::uint64_t offset = offset_in_chunk(tile);
        const std::size_t slot = slot_offset(flag) + static_cast<std::size_t>(slots_.rank) * tile_bytes + lane_ * 16;
        // Every rank starts with its successor, so that not all write to one rank at once.
        int to = slots_.rank;
        for (int sent = 0; sent < slots_.ranks; sent += in_flight) {
            Share shares[in_flight][rounds];
            int rank = to;
#pragma unroll
            for (int k = 0; k < in_flight; ++k) {
                rank = successor(rank);
                const auto& chunk = sum_.chunks[rank];
                const std::byte* const from = sum_.partial + chunk.offset + offset;
                const auto left = sent + k < slots_.ranks ? static_cast<std::int64_t>(chunk.count - offset) : 0;
#pragma unroll
                for (int u = 0; u < rounds; ++u)
                    shares[k][u] = {
                        load_word<Stored, aligned>(from + u * round_data, left - u * round_data),
                        has_flag_ ? flag
                                  : load_word<Stored, aligned>(from + u * round_data + 8, left - u * round_data - 8)};
            }
            // The loads may have parted the lanes; a line's eight lanes must store together.
            __syncwarp();
#pragma unroll
            for (int k = 0; k < in_flight; ++k) {
                to = successor(to);
                if (sent + k >= slots_.ranks) break;
                const unsigned lines = lines_of(to, tile);
#pragma unroll
                for (int u = 0; u < rounds; ++u)
                    if (line_of(u) < lines) store_share(slots_.inbox[to] + slot + u * round_bytes, shares[k][u]);
            }
        }
    }

    /// False when a peer's lines did not arrive in time.
    __device__ bool add(std::uint64_t tile, std::uint64_t flag) {
        const unsigned lines = lines_of(slots_.rank, tile);
        const std::byte* const slot = slots_.inbox[slots_.rank] + slot_offset(flag) + lane_ * 16;
        typename Rule::WordSum sums[rounds][2];
        int from = sum_.first;
        for (int added = 0; added < slots_.ranks; added += in_flight) {
            Share shares[in_flight][rounds];
            const auto load = [&] {
                bool late = false;
                int rank = from;
#pragma unroll
                for (int k = 0; k < in_flight; ++k) {
#pragma unroll
                    for (int u = 0; u < rounds; ++u) {
                        if (added + k >= slots_.ranks || line_of(u) >= lines) continue;
                        shares[k][u] = load_share(slot + rank * tile_bytes + u * round_bytes);
                        late = late || (has_flag_ && shares[k][u].second != flag);
                    }
                    rank = successor(rank);
                }
                return __any_sync(~0u, late) != 0;
            };
            for (int turn = 0; load(); ++turn)
                if (turn % 1024 == 1023 && out_of_time()) return false;
            // A line arrives as a whole, but nothing says that eight lanes load it as a whole: what was loaded before
            // the flag was seen may be older. NCCL loads again, too (2.28.9, device/prims_ll128.h).
            (void)load();
#pragma unroll
            for (int k = 0; k < in_flight; ++k) {
                if (added + k >= slots_.ranks) break;
                from = successor(from);
#pragma unroll
                for (int u = 0; u < rounds; ++u) {
                    accumulate(sums[u][0], shares[k][u].first, added + k == 0);
                    accumulate(sums[u][1], shares[k][u].second, added + k == 0);
                }
            }
        }
        const std::uint64_t offset = offset_in_chunk(tile);
        const auto left = static_cast<std::int64_t>(sum_.chunks[slots_.rank].count - offset);
#pragma unroll
        for (int u = 0; u < rounds; ++u) {
            std::byte* const to = sum_.result + offset + u * round_data;
            store_word<Stored, aligned>(to, left - u * round_data, Rule::last_word(sums[u][0]));
            if (!has_flag_) store_word<Stored, aligned>(to + 8, left - u * round_data - 8, Rule::last_word(sums[u][1]));
        }
        return true;
    }

private:
    [[nodiscard]] __device__ int successor(int rank) const { return rank + 1 < slots_.ranks ? rank + 1 : 0; }
    /// Which of the round's four lines this lane moves a part of.
    [[nodiscard]] __device__ unsigned line_of(int round) const { return round * 4 + lane_ / 8; }
    [[nodiscard]] __device__ unsigned lines_of(int owner, std::uint64_t tile) const {
        return static_cast<unsigned>(
            indexing::tile_lines_of<std::uint64_t>(sum_.chunks[owner].count, tile, tile_lines));
    }
    /// The offset of this warp's slots of a step in every inbox; rank 0's slot is first.
    [[nodiscard]] __device__ std::size_t slot_offset(std::uint64_t flag) const {
        return (warp_ * depth + flag % depth) * static_cast<unsigned>(slots_.ranks) * tile_bytes;
    }
    /// The offset of the lane's first word of a tile in a chunk, in bytes.
    [[nodiscard]] __device__ std::uint64_t offset_in_chunk(std::uint64_t tile) const {
        return indexing::word_at<std::uint64_t>(tile * tile_lines + lane_ / 8, lane_ % 8 * 2);
    }
    static __device__ void accumulate(typename Rule::WordSum& sum, std::uint64_t word, bool is_first) {
        is_first ? Rule::first_word(sum, word) : Rule::add_word(sum, word);
    }
    /// A timeout is an error instead of a hung GPU; one warp's timeout ends all. The same answer on all lanes.
    __device__ bool out_of_time() {
        if (began_ == 0) began_ = nanoseconds_now();
        if (nanoseconds_now() - began_ > slots_.timeout_ns) *slots_.expired = 1;
        return __any_sync(~0u, *static_cast<volatile std::uint32_t*>(slots_.expired) != 0) != 0;
    }

    const ReceiveSlots& slots_;
    const DirectSum& sum_;
    const unsigned lane_ = threadIdx.x % 32;
    const bool has_flag_ = lane_ % 8 == 7;
    const std::size_t warp_ = std::size_t{blockIdx.x} * warps + threadIdx.x / 32;
    std::uint64_t began_ = 0;
};

template <class Rule, int in_flight, bool aligned>
__global__ __launch_bounds__(threads, blocks_per_sm(in_flight)) void direct_sum_kernel(
    const __grid_constant__ ReceiveSlots receive_slots, const __grid_constant__ DirectSum sum, std::uint64_t tiles) {
    begin_kernel();
    const std::uint64_t warp = std::uint64_t{blockIdx.x} * warps + threadIdx.x / 32;
    std::uint64_t flag = receive_slots.steps[warp];
    WarpTile<Rule, in_flight, aligned> warp_tile(receive_slots, sum);
    for (std::uint64_t tile = warp; tile < tiles; tile += std::uint64_t{gridDim.x} * warps) {
        warp_tile.send(tile, ++flag);
        if (!warp_tile.add(tile, flag)) break;
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) receive_slots.steps[warp] = flag;
}

bool whole_words(const ReceiveSlots& receive_slots, const DirectSum& sum) {
    auto bits = reinterpret_cast<std::uintptr_t>(sum.result) | reinterpret_cast<std::uintptr_t>(sum.partial);
    for (int q = 0; q < receive_slots.ranks; ++q) bits |= sum.chunks[q].offset | sum.chunks[q].count;
    return bits % 8 == 0;
}

template <class Rule>
void launch(const ReceiveSlots& receive_slots, const DirectSum& sum, std::uint64_t tiles, cudaStream_t stream) {
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(
        std::clamp<std::uint64_t>((tiles + warps - 1) / warps, 1, static_cast<std::uint64_t>(receive_slots.blocks))));
    config.blockDim = dim3(threads);
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = receive_slots.early_launch ? 1 : 0;
    const auto kernel = !whole_words(receive_slots, sum) ? direct_sum_kernel<Rule, 2, false>
                        : receive_slots.ranks > 2        ? direct_sum_kernel<Rule, 4, true>
                                                         : direct_sum_kernel<Rule, 2, true>;
    check(cudaLaunchKernelEx(&config, kernel, receive_slots, sum, tiles), "launch of direct_ordered");
}

}  // namespace

void launch_direct_sum(const ReceiveSlots& receive_slots, const DirectSum& sum, Format format,
                       Accumulation accumulation, cudaStream_t stream) {
    std::uint64_t max = 0;
    for (int q = 0; q < receive_slots.ranks; ++q) max = std::max(max, sum.chunks[q].count);
    with_rule(format, accumulation, [&]<class Rule>(Rule) {
        const std::uint64_t tiles = indexing::tiles_of<std::uint64_t>(max, tile_data);
        if (tiles > 0) launch<Rule>(receive_slots, sum, tiles, stream);
    });
}

}  // namespace samesum::gpu
