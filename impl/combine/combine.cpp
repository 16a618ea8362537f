// Each scheme as a few NCCL calls and kernels. Chunks are byte ranges of the [rows, hidden] buffer.
// SPDX-License-Identifier: Apache-2.0
#include "impl/combine/combine.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "impl/device/cuda.hpp"
#include "impl/kernels/indexing.hpp"
#include "impl/kernels/ordered_sum.hpp"
#include "model/support/error.hpp"

namespace samesum::gpu {
namespace {

#ifdef SAMESUM_FAULTS
constexpr bool faults_are_built = true;
#else
constexpr bool faults_are_built = false;
#endif

/// Not the model's own dispatch: the code under test shares none with the model that checks it.
Scheme dispatched_here(Scheme scheme, const Routing& routing) {
    return indexing::dispatch(scheme == Scheme::vllm_default, routing.equal_sizes(), scheme, Scheme::reduce_scatter,
                              Scheme::reduce_per_owner);
}

using Range = indexing::Range<std::uint64_t>;

/// Aligned bytes of the largest chunk.
std::uint64_t largest_spaced(const CombineRequest& request) {
    const auto rows = std::max_element(request.routing.sizes.begin(), request.routing.sizes.end());
    return indexing::spaced(*rows * request.routing.hidden *
                            static_cast<std::uint64_t>(traits(request.format).bytes()));
}

/// One rank's side of one combine.
class Combine {
public:
    Combine(const CombineRequest& request, const void* partial, void* result, void* workspace, PeerMemory* peers,
            const Communicator& comm, cudaStream_t stream)
        : request_(request),
          routing_(request.routing),
          partial_(static_cast<const std::byte*>(partial)),
          result_(static_cast<std::byte*>(result)),
          workspace_(static_cast<std::byte*>(workspace)),
          peers_(peers),
          comm_(comm),
          stream_(stream) {
        if (has(Fault::sizes_rotated))
            std::rotate(routing_.sizes.begin(), routing_.sizes.begin() + 1, routing_.sizes.end());
    }

    void run() {
        switch (dispatched_here(request_.scheme, routing_)) {
            case Scheme::reduce_scatter:
                return reduce_scatter();
            case Scheme::reduce_per_owner:
                return reduce_per_owner();
            case Scheme::fixed_root:
                return has(Fault::root_is_owner) ? reduce_per_owner() : fixed_root();
            case Scheme::reduce_broadcast:
                return reduce_broadcast();
            case Scheme::gather_ordered:
                return gather_ordered();
            case Scheme::exchange_ordered:
                return by_node() ? ordered_by_node() : exchange();
            case Scheme::exact:
                return exchange();
            case Scheme::direct_ordered:
                return by_node() ? ordered_by_node() : direct_ordered();
            case Scheme::vllm_default:
                ensure(false, "vllm_default stands for another scheme");
        }
    }

private:
    [[nodiscard]] bool has(Fault fault) const { return faults_are_built && request_.fault == fault; }
    [[nodiscard]] static std::uint64_t number(int rank) { return static_cast<std::uint64_t>(rank); }
    [[nodiscard]] std::uint64_t self() const { return number(comm_.rank()); }
    [[nodiscard]] std::uint64_t row_bytes() const {
        return routing_.hidden * static_cast<std::uint64_t>(traits(request_.format).bytes());
    }
    /// A rank's part of the buffer, in bytes or in elements.
    [[nodiscard]] Range chunk(int rank, std::uint64_t row) const {
        std::uint64_t first = 0;
        for (int before = 0; before < rank; ++before) first = indexing::next_first_row(first, size(before));
        return indexing::chunk(first > 0 && has(Fault::offset_by_one_row) ? first - 1 : first, size(rank), row);
    }
    [[nodiscard]] std::uint64_t size(int rank) const { return routing_.sizes[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] Range bytes(int rank) const { return chunk(rank, row_bytes()); }
    [[nodiscard]] std::uint64_t offset(int rank) const { return bytes(rank).offset; }
    [[nodiscard]] std::uint64_t elements(int rank) const { return chunk(rank, routing_.hidden).count; }
    [[nodiscard]] Range own() const { return bytes(comm_.rank()); }
    [[nodiscard]] std::uint64_t own_bytes() const { return own().count; }

    void move(const indexing::Move<std::uint64_t>& what, const std::byte* from, std::byte* to, int peer) {
        const auto [sent, received] = what;
        if (sent.count > 0)
            comm_.check(ncclSend(from + sent.offset, sent.count, ncclUint8, peer, comm_.get(), stream_), "ncclSend");
        if (received.count > 0)
            comm_.check(ncclRecv(to + received.offset, received.count, ncclUint8, peer, comm_.get(), stream_),
                        "ncclRecv");
    }
    void copy(std::byte* to, const std::byte* from, std::uint64_t count, cudaStream_t stream) {
        if (count > 0 && to != from)
            check(cudaMemcpyAsync(to, from, count, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
    }
    void reduce(const std::byte* from, std::byte* to, std::uint64_t count, int root) {
        if (count > 0)
            comm_.check(ncclReduce(from, to, count, nccl_type(request_.format), ncclSum, root, comm_.get(), stream_),
                        "ncclReduce");
    }

    void reduce_scatter() {
        if (!routing_.equal_sizes())
            throw UsageError(fmt::format("reduce_scatter: sizes {}: expected equal sizes", str_sizes(routing_.sizes)));
        const std::uint64_t count = elements(comm_.rank());
        if (count > 0)
            comm_.check(
                ncclReduceScatter(partial_, result_, count, nccl_type(request_.format), ncclSum, comm_.get(), stream_),
                "ncclReduceScatter");
    }

    /// As vLLM's reduce_scatterv: one group, so that NCCL runs the reduces together.
    void reduce_per_owner() {
        comm_.group([&] {
            for (int owner = 0; owner < comm_.ranks(); ++owner)
                reduce(partial_ + offset(owner), result_, elements(owner), owner);
        });
    }

    void fixed_root() {
        reduce(partial_, workspace_, routing_.elements(), request_.root);
        const bool is_root = comm_.rank() == request_.root;
        comm_.group([&] {
            for (int peer = 0; peer < comm_.ranks(); ++peer)
                move(indexing::scatter(number(request_.root), self(), number(peer), own(), bytes(peer)), workspace_,
                     result_, peer);
        });
        // The root copies its own chunk instead of sending it; on the same stream, so the copy waits for the reduce.
        if (is_root)
            copy(result_, workspace_ + offset(request_.root), own_bytes(),
                 has(Fault::root_copy_on_other_stream) ? fault_stream() : stream_);
    }

    void reduce_broadcast() {
        reduce(partial_, workspace_, routing_.elements(), request_.root);
        const std::uint64_t all = routing_.elements() * static_cast<std::uint64_t>(traits(request_.format).bytes());
        if (all > 0)
            comm_.check(ncclBroadcast(workspace_, workspace_, all, ncclUint8, request_.root, comm_.get(), stream_),
                        "ncclBroadcast");
        copy(result_, workspace_ + offset(comm_.rank()), own_bytes(), stream_);
    }

    void gather_ordered() {
        const std::uint64_t all = routing_.rows() * row_bytes();
        if (all > 0 && !has(Fault::stale_receive_buffer))
            comm_.check(ncclAllGather(partial_, workspace_, all, ncclUint8, comm_.get(), stream_), "ncclAllGather");
        add([&](int rank) { return workspace_ + indexing::gathered_at(number(rank), all, own().offset); });
    }

    void exchange() {
        if (!has(Fault::stale_receive_buffer)) {
            comm_.group([&] {
                for (int peer = 0; peer < comm_.ranks(); ++peer)
                    move(indexing::exchange(self(), number(peer), own(), bytes(peer)), partial_, workspace_, peer);
            });
        }
        add([&](int rank) {
            return rank == comm_.rank() ? partial_ + offset(rank)
                                        : workspace_ + indexing::received_at(number(rank), own_bytes());
        });
    }

    [[nodiscard]] Accumulation accumulation() const {
        if (request_.scheme == Scheme::exact) return Accumulation::exact;
        return has(Fault::fp32_instead_of_per_hop) ? Accumulation::fp32_once : request_.accumulation;
    }
    [[nodiscard]] Sources sources(int count, auto&& values_of) const {
        if (count > max_ranks)
            throw UsageError(fmt::format("{} ranks: ordered sums expect at most {}", count, max_ranks));
        Sources in;
        in.count = count;
        const int first = has(Fault::ring_order) ? comm_.rank() + 1 : 0;
        for (int i = 0; i < in.count; ++i) in.values[i] = values_of((first + i) % in.count);
        return in;
    }
    void add(auto&& values_of) {
        launch_sum(sources(comm_.ranks(), values_of), result_, elements(comm_.rank()), request_.format, accumulation(),
                   has(Fault::missing_wait) ? fault_stream() : stream_);
    }

    /// First sums within each node, in rank order: this rank sums every chunk whose owner has the same place in its
    /// node. Then, in node order, the sums of the own chunk, which the ranks of that place in the other nodes hold. One
    /// chunk for each node crosses the network, not one for each rank.
    void ordered_by_node() {
        const std::uint64_t in_node = number(request_.ranks_per_node), nodes = number(comm_.ranks()) / in_node;
        const std::uint64_t node = self() / in_node, place = self() % in_node;
        const auto owner = [&](std::uint64_t of_node, std::uint64_t at) {
            return static_cast<int>(indexing::rank_at(of_node, at, in_node));
        };
        const std::uint64_t piece = largest_spaced(request_), senders = direct() ? 0 : in_node;
        std::byte* const sums = workspace_ + indexing::node_sums_at(senders, piece);
        std::byte* const others = workspace_ + indexing::other_sums_at(senders, nodes, piece);
        for (std::uint64_t of_node = 0; of_node < nodes; ++of_node) {
            std::byte* const sum = sums + indexing::piece_at(of_node, piece);
            if (direct()) {
                DirectSum node_sum{.partial = partial_, .result = sum};
                for (std::uint64_t at = 0; at < in_node; ++at) node_sum.chunks[at] = bytes(owner(of_node, at));
                launch_direct_sum(peers_->receive_slots(), node_sum, request_.format, accumulation(), stream_);
                continue;
            }
            const Range mine = bytes(owner(of_node, place));
            comm_.group([&] {
                for (std::uint64_t at = 0; at < in_node; ++at)
                    move(indexing::within_node(place, at, mine, bytes(owner(of_node, at)), piece), partial_, workspace_,
                         owner(node, at));
            });
            const auto value_of = [&](int at) {
                return number(at) == place ? partial_ + mine.offset
                                           : workspace_ + indexing::piece_at(number(at), piece);
            };
            launch_sum(sources(request_.ranks_per_node, value_of), sum, elements(owner(of_node, place)),
                       request_.format, accumulation(), stream_);
        }
        comm_.group([&] {
            for (std::uint64_t of_node = 0; of_node < nodes; ++of_node)
                move(indexing::across_nodes(node, of_node, own_bytes(), bytes(owner(of_node, place)).count, piece),
                     sums, others, owner(of_node, place));
        });
        const auto sum_of = [&](int of_node) {
            return (number(of_node) == node ? sums : others) + indexing::piece_at(number(of_node), piece);
        };
        launch_sum(sources(static_cast<int>(nodes), sum_of), result_, elements(comm_.rank()), request_.format,
                   accumulation(), stream_);
    }
    [[nodiscard]] bool by_node() const { return request_.ranks_per_node > 0; }
    [[nodiscard]] bool direct() const { return request_.scheme == Scheme::direct_ordered; }

    void direct_ordered() {
        DirectSum sum{.partial = partial_, .result = result_};
        for (int rank = 0; rank < comm_.ranks(); ++rank) sum.chunks[rank] = bytes(rank);
        if (has(Fault::ring_order)) sum.first = (comm_.rank() + 1) % comm_.ranks();
        launch_direct_sum(peers_->receive_slots(), sum, request_.format, accumulation(),
                          has(Fault::missing_wait) ? fault_stream() : stream_);
    }

    static cudaStream_t fault_stream() {
        static const Stream other([] {
            int device = 0;
            check(cudaGetDevice(&device), "cudaGetDevice");
            return device;
        }());
        return other.get();
    }

    const CombineRequest& request_;
    Routing routing_;
    const std::byte* partial_;
    std::byte* result_;
    std::byte* workspace_;
    PeerMemory* peers_;
    const Communicator& comm_;
    cudaStream_t stream_;
};

}  // namespace

Scheme fastest_ordered(bool one_nvlink_domain, const Routing& routing, Format format) {
    // Two ranks, whole buffers: of 64 KiB 8.5 us gathered, 9.8 exchanged; of 512 KiB 12.7 and 11.8.
    constexpr std::uint64_t small = std::uint64_t{128} << 10;
    if (one_nvlink_domain) return Scheme::direct_ordered;
    const std::uint64_t all = routing.elements() * static_cast<std::uint64_t>(traits(format).bytes());
    return all <= small ? Scheme::gather_ordered : Scheme::exchange_ordered;
}

std::size_t workspace_bytes(const CombineRequest& request, int rank) {
    const auto width = static_cast<std::uint64_t>(traits(request.format).bytes());
    const std::uint64_t all = request.routing.elements() * width;
    const auto ranks = static_cast<std::uint64_t>(request.routing.ranks());
    const std::uint64_t own = request.routing.sizes.at(static_cast<std::size_t>(rank)) * request.routing.hidden * width;
    if (request.ranks_per_node > 0) {
        const auto in_node = static_cast<std::uint64_t>(request.ranks_per_node);
        const std::uint64_t senders = request.scheme == Scheme::direct_ordered ? 0 : in_node;
        return indexing::by_node_workspace(senders, ranks / in_node, largest_spaced(request));
    }
    switch (dispatched_here(request.scheme, request.routing)) {
        case Scheme::fixed_root:
            return indexing::fixed_root_workspace(static_cast<std::uint64_t>(request.root),
                                                  static_cast<std::uint64_t>(rank), all);
        case Scheme::reduce_broadcast:
            return all;
        case Scheme::gather_ordered:
            return indexing::gather_workspace(ranks, all);
        case Scheme::exchange_ordered:
        case Scheme::exact:
            return indexing::exchange_workspace(ranks, own);
        default:
            return 0;
    }
}

void combine(const CombineRequest& request, const void* partial, void* result, void* workspace, PeerMemory* peers,
             const Communicator& comm, cudaStream_t stream) {
    if (request.routing.ranks() != comm.ranks())
        throw UsageError(fmt::format("sizes of {} ranks: expected {}, as the communicator has", request.routing.ranks(),
                                     comm.ranks()));
    if (request.root < 0 || request.root >= comm.ranks())
        throw UsageError(fmt::format("root {}: expected 0 to {}", request.root, comm.ranks() - 1));
    if (!traits(request.format).is_float)
        throw UsageError(
            fmt::format("{} sums have no order: expected a floating-point format", samesum::name(request.format)));
    if (request.fault != Fault::none && !faults_are_built)
        throw UsageError("this build has no planted faults: expected samesum-impl-faulty of a test build");
    if (request.ranks_per_node != 0) {
        if (request.ranks_per_node < 0 || comm.ranks() % request.ranks_per_node != 0)
            throw UsageError(
                fmt::format("{} ranks are not a multiple of {} ranks per node", comm.ranks(), request.ranks_per_node));
        if (request.scheme != Scheme::exchange_ordered && request.scheme != Scheme::direct_ordered)
            throw UsageError(fmt::format("{} cannot sum by node: expected exchange_ordered or direct_ordered",
                                         samesum::name(request.scheme)));
        if (request.accumulation != Accumulation::per_hop)
            throw UsageError("a node's sum is rounded when it leaves the node: expected per_hop");
    }
    if (request.scheme == Scheme::direct_ordered) {
        if (peers == nullptr) throw UsageError("direct_ordered needs peer memory");
        const int together = request.ranks_per_node > 0 ? request.ranks_per_node : comm.ranks();
        if (peers->receive_slots().ranks != together)
            throw UsageError(
                fmt::format("peer memory of {} ranks: expected that of {}", peers->receive_slots().ranks, together));
    }
    Combine(request, partial, result, workspace, peers, comm, stream).run();
}

}  // namespace samesum::gpu
