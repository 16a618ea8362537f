// Every replaced call is a combine; an all-reduce is a combine and an all-gather.
// SPDX-License-Identifier: Apache-2.0
#include "impl/dropin/replacement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "impl/dropin/policy.hpp"
#include "impl/dropin/real_nccl.hpp"
#include "impl/dropin/thread_state.hpp"
#include "impl/kernels/ordered_sum.hpp"
#include "model/support/error.hpp"

namespace samesum::dropin {
namespace {

/// Replaced calls on one communicator.
class Replacement {
public:
    explicit Replacement(CommunicatorState& state) : state_(state), comm_(state.comm()) {}

    void run(std::span<const DataCall> calls) {
        while (!calls.empty()) {
            const std::size_t joined = calls[0].function == Function::reduce ? increasing_roots(calls) : 1;
            if (calls[0].function == Function::reduce)
                reduce(calls.first(joined));
            else if (calls[0].function == Function::reduce_scatter)
                reduce_scatter(calls[0]);
            else
                all_reduce(calls[0]);
            calls = calls.subspan(joined);
        }
    }

private:
    /// How many reduces at the front have one type and increasing roots.
    [[nodiscard]] static std::size_t increasing_roots(std::span<const DataCall> calls) {
        std::size_t n = 1;
        while (n < calls.size() && calls[n].function == Function::reduce && calls[n].type == calls[0].type &&
               calls[n].root > calls[n - 1].root)
            ++n;
        return n;
    }

    [[nodiscard]] gpu::CombineRequest request(ncclDataType_t type, std::vector<std::uint64_t> sizes) const {
        gpu::CombineRequest request;
        request.routing.sizes = std::move(sizes);
        request.format = format_of(type);
        request.accumulation = configuration().accumulation;
        return request;
    }
    [[nodiscard]] std::vector<std::uint64_t> zero_sizes() const {
        return std::vector<std::uint64_t>(static_cast<std::size_t>(comm_.ranks()));
    }
    void combine(const gpu::CombineRequest& request, const void* partial, void* result, cudaStream_t stream) {
        Scheme scheme = Scheme::fixed_root;
        if (configuration().policy == Policy::direct) scheme = Scheme::direct_ordered;
        if (configuration().policy == Policy::ordered)
            scheme = gpu::fastest_ordered(false, request.routing, request.format);
        state_.combine(scheme, request, partial, result, stream);
    }

    void reduce_scatter(const DataCall& call) {
        std::vector<std::uint64_t> sizes = zero_sizes();
        std::fill(sizes.begin(), sizes.end(), call.count);
        combine(request(call.type, std::move(sizes)), call.input, call.output, call.stream);
    }

    void reduce(std::span<const DataCall> calls) {
        // A single reduce to root 0 is already what fixed_root would run.
        if (configuration().policy == Policy::fixed_root && calls.size() == 1 && calls[0].root == 0)
            return forward_part(calls[0]);
        const auto width = static_cast<std::size_t>(bytes_of(calls[0].type));
        std::vector<std::uint64_t> sizes = zero_sizes();
        std::size_t all = 0;
        void* result = nullptr;
        for (const DataCall& call : calls) {
            sizes[static_cast<std::size_t>(call.root)] = call.count;
            all += call.count * width;
            if (call.root == comm_.rank()) result = call.output;
        }
        const cudaStream_t stream = calls[0].stream;
        for (const DataCall& call : calls) order_after(stream, call.stream);
        const void* partial = calls[0].input;
        if (!adjacent(calls, width)) {
            std::byte* target = state_.packing_buffer(all, stream);
            partial = target;
            for (const DataCall& call : calls) {
                gpu::check(cudaMemcpyAsync(target, call.input, call.count * width, cudaMemcpyDeviceToDevice, stream),
                           "cudaMemcpyAsync");
                target += call.count * width;
            }
        }
        combine(request(calls[0].type, std::move(sizes)), partial, result, stream);
        for (const DataCall& call : calls) order_after(call.stream, stream);
    }
    [[nodiscard]] static bool adjacent(std::span<const DataCall> calls, std::size_t width) {
        for (std::size_t i = 1; i < calls.size(); ++i)
            if (calls[i].input != static_cast<const std::byte*>(calls[i - 1].input) + calls[i - 1].count * width)
                return false;
        return true;
    }
    /// Work put on `later` from now on waits for the work that is now on `earlier`, as between calls of one NCCL group.
    static void order_after(cudaStream_t later, cudaStream_t earlier) {
        if (later == earlier) return;
        const OrderEvent event;
        event.record(earlier);
        event.hold(later);
    }

    void all_reduce(const DataCall& call) {
        if (configuration().policy == Policy::fixed_root) {
            DataCall part = call;
            part.function = Function::reduce;
            part.root = 0;
            forward_part(part);
            part.function = Function::broadcast;
            part.input = part.output;
            return forward_part(part);
        }
        const auto ranks = static_cast<std::size_t>(comm_.ranks());
        const auto width = static_cast<std::size_t>(bytes_of(call.type));
        // Equal parts are exchanged by one all-gather. Else all parts but the last are multiples of 16 bytes.
        std::size_t max = (call.count + ranks - 1) / ranks;
        if (call.count % ranks != 0) max = (max * width + 15) / 16 * 16 / width;
        std::vector<std::uint64_t> sizes = zero_sizes();
        std::size_t rest = call.count;
        for (std::uint64_t& size : sizes) {
            size = std::min(rest, max);
            rest -= size;
        }
        std::byte* const out = static_cast<std::byte*>(call.output);
        const auto offset = [&](int rank) {
            return std::min(static_cast<std::size_t>(rank) * max, call.count) * width;
        };
        const gpu::CombineRequest parted = request(call.type, sizes);
        if (configuration().policy == Policy::ordered && comm_.ranks() <= gpu::max_ranks &&
            gpu::fastest_ordered(false, parted.routing, parted.format) == Scheme::gather_ordered)
            return gather_all(call, parted);
        std::byte* const own = out + offset(comm_.rank());
        combine(parted, call.input, own, call.stream);
        if (call.count % ranks == 0)
            return comm_.check(ncclAllGather(own, out, max, call.type, call.comm, call.stream), "ncclAllGather");
        comm_.group([&] {
            for (int peer = 0; peer < comm_.ranks(); ++peer) {
                const std::uint64_t mine = sizes[static_cast<std::size_t>(comm_.rank())];
                const std::uint64_t theirs = sizes[static_cast<std::size_t>(peer)];
                if (peer == comm_.rank()) continue;
                if (mine > 0) comm_.check(ncclSend(own, mine, call.type, peer, call.comm, call.stream), "ncclSend");
                if (theirs > 0)
                    comm_.check(ncclRecv(out + offset(peer), theirs, call.type, peer, call.comm, call.stream),
                                "ncclRecv");
            }
        });
    }
    /// For a small all-reduce: every rank gathers and adds the whole buffer, which saves the all-gather of the sums.
    void gather_all(const DataCall& call, const gpu::CombineRequest& request) {
        const auto all = call.count * static_cast<std::size_t>(bytes_of(call.type));
        std::byte* const gathered = state_.packing_buffer(all * static_cast<std::size_t>(comm_.ranks()), call.stream);
        comm_.check(ncclAllGather(call.input, gathered, call.count, call.type, call.comm, call.stream),
                    "ncclAllGather");
        gpu::Sources in;
        in.count = comm_.ranks();
        for (int rank = 0; rank < in.count; ++rank) in.values[rank] = gathered + static_cast<std::size_t>(rank) * all;
        gpu::launch_sum(in, static_cast<std::byte*>(call.output), call.count, request.format, request.accumulation,
                        call.stream);
    }

    /// By our own exports, which wait for nonblocking communicators.
    void forward_part(const DataCall& call) {
        if (call.function == Function::broadcast)
            return comm_.check(
                ncclBroadcast(call.input, call.output, call.count, call.type, call.root, call.comm, call.stream),
                "ncclBroadcast");
        comm_.check(ncclReduce(call.input, call.output, call.count, call.type, call.operation, call.root, call.comm,
                               call.stream),
                    "ncclReduce");
    }

    CommunicatorState& state_;
    const gpu::Communicator& comm_;
};

}  // namespace

ncclResult_t result_code(const std::exception& error) {
    if (dynamic_cast<const gpu::CudaError*>(&error) != nullptr) return ncclUnhandledCudaError;
    if (const auto* nccl = dynamic_cast<const gpu::NcclError*>(&error)) return nccl->code;
    return dynamic_cast<const UsageError*>(&error) != nullptr ? ncclInvalidUsage : ncclInternalError;
}

ncclResult_t run_replaced(std::span<const DataCall> calls, ncclResult_t group) {
    if (calls.empty()) return ncclSuccess;
    std::shared_ptr<CommunicatorState> state;
    try {
        state = state_of(calls[0].comm);
        const StateUse use(*state);
        state->comm().check(wait_until_ready(calls[0].comm, group), "ncclGroupEnd");
        Replacement(*state).run(calls);
        return ncclSuccess;
    } catch (const std::exception& error) {
        // What fails during an abort fails for another reason than it says.
        if (state && state->gate().is_closed())
            return report_error(ncclInvalidUsage, fmt::format("nccl{} on rank {}: the communicator was aborted",
                                                              name(calls[0].function), state->rank()));
        return report_error(result_code(error), error.what());
    }
}

}  // namespace samesum::dropin
