// Commands are JSON; inputs and results lie in the group's memory at offsets that the commands give.
// SPDX-License-Identifier: Apache-2.0
#include "impl/ranks/gpu_worker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "impl/combine/combine.hpp"
#include "impl/device/cuda.hpp"
#include "impl/device/nccl.hpp"
#include "impl/kernels/ordered_sum.hpp"
#include "impl/kernels/peer_memory.hpp"
#include "impl/ranks/timing.hpp"
#include "model/nccl/call.hpp"
#include "model/support/hash.hpp"

namespace samesum::gpu {
namespace {

using Json = nlohmann::json;

/// Bytes of poison on each side of a result; they must not change.
constexpr std::size_t guard = 4096;

std::uint64_t digest_of(std::span<const std::byte> bytes) {
    Fnv1a hash;
    hash.add(bytes);
    return hash.value();
}

/// A device buffer with a guard on both sides.
class GuardedBuffer {
public:
    void prepare(std::size_t bytes, std::size_t shift, cudaStream_t stream) {
        buffer_.reserve(bytes + shift + 2 * guard);
        begin_ = guard + shift;
        bytes_ = bytes;
        buffer_.poison_all(stream);
    }
    [[nodiscard]] std::byte* data() const { return buffer_.data() + begin_; }
    [[nodiscard]] bool intact() const {
        std::vector<unsigned char> outside(begin_ + buffer_.size() - begin_ - bytes_);
        check(cudaMemcpy(outside.data(), buffer_.data(), begin_, cudaMemcpyDeviceToHost), "cudaMemcpy");
        check(cudaMemcpy(outside.data() + begin_, buffer_.data() + begin_ + bytes_, buffer_.size() - begin_ - bytes_,
                         cudaMemcpyDeviceToHost),
              "cudaMemcpy");
        return std::all_of(outside.begin(), outside.end(),
                           [](unsigned char byte) { return byte == DeviceBuffer::poison; });
    }

private:
    DeviceBuffer buffer_;
    std::size_t begin_ = 0, bytes_ = 0;
};

/// One reducing call of a group, and the offsets of its data.
struct GroupCall {
    Call call;
    std::uint64_t input = 0, output = 0;  ///< in this rank's device buffers, in bytes
    std::uint64_t shared_output = 0;      ///< in one result of the whole group, in bytes
};

class GpuWorker : public Worker {
public:
    explicit GpuWorker(const RankContext& context) : context_(context) {
        ::setenv("NCCL_DEBUG_FILE", context.log_file().c_str(), 1);
    }

    std::string answer(std::string_view text) override {
        const Json command = Json::parse(text);
        const std::string what = command.at("do");
        context_.set_current_call(what);
        if (what == "probe") return probe().dump();
        if (what == "id") return context_.rank() == 0 ? fresh_unique_id() : "";
        if (what == "open") return open(command).dump();
        if (what == "close") return close().dump();
        ensure(comm_ != nullptr, "a communicator is open");
        if (what == "reduce") return reduce(command).dump();
        if (what == "combine") return run_combine(command).dump();
        if (what == "bench") return bench(command).dump();
        throw std::logic_error("unknown command of a rank: " + what);
    }

private:
    static Json probe() {
        Json gpus = Json::array();
        for (int device = 0; device < device_count(); ++device) {
            const DeviceTraits traits = device_traits(device);
            gpus.push_back({{"name", traits.name},
                            {"compute_capability", traits.compute_capability},
                            {"bus", device_bus(device)}});
        }
        return {{"gpus", gpus},
                {"driver", gpus.empty() ? "none" : cuda_driver_version()},
                {"runtime", cuda_runtime_version()},
                {"nccl", str(nccl_version())}};
    }

    Json open(const Json& command) {
        ensure(!comm_, "one communicator at a time");
        for (const auto& [name, value] : command.at("environment").items()) {
            if (value.is_null())
                ::unsetenv(name.c_str());
            else
                ::setenv(name.c_str(), value.get<std::string>().c_str(), 1);
        }
        if (!stream_) stream_.emplace(command.at("device").get<int>());
        context_.set_current_call("ncclCommInitRank");
        comm_ = std::make_unique<Communicator>(context_.ranks(), context_.rank(), command.at("id").get<std::string>());
        return Json::object();
    }

    Json close() {
        for (auto* peers : {&node_peers_, &peers_}) {
            if (*peers) (*peers)->close();
            peers->reset();
        }
        if (node_) node_->close();
        node_.reset();
        nvlink_joins_all_.reset();
        if (comm_) comm_->close();
        comm_.reset();
        return Json::object();
    }

    /// NCCL may refuse what the environment forces: the refusal is the answer. It ends the communicator.
    Json refused(const NcclError& error) {
        node_peers_.reset();
        peers_.reset();
        if (node_) node_->abort();
        node_.reset();
        comm_->abort();
        comm_.reset();
        return {{"refused", error.what()}};
    }
    static bool is_refusal(const NcclError& error) {
        return error.code == ncclInvalidUsage || error.code == ncclInvalidArgument || error.code == ncclInternalError;
    }

    void to_device(std::byte* to, std::span<const std::byte> from) {
        if (!from.empty())
            check(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream_->get()),
                  "cudaMemcpyAsync");
    }
    void to_host(std::span<std::byte> to, const std::byte* from) {
        if (!to.empty())
            check(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, stream_->get()),
                  "cudaMemcpyAsync");
    }

    void enqueue(const GroupCall& each, const std::byte* in, std::byte* out) {
        const Call& call = each.call;
        const ncclDataType_t type = nccl_type(call.format);
        const ncclRedOp_t op = nccl_operation(call.operation);
        in += each.input;
        out += each.output;
        switch (call.collective) {
            case Collective::reduce:
                return comm_->check(ncclReduce(in, out, call.count, type, op, call.root, comm_->get(), stream_->get()),
                                    "ncclReduce");
            case Collective::reduce_scatter:
                return comm_->check(ncclReduceScatter(in, out, call.count, type, op, comm_->get(), stream_->get()),
                                    "ncclReduceScatter");
            case Collective::all_reduce:
                return comm_->check(ncclAllReduce(in, out, call.count, type, op, comm_->get(), stream_->get()),
                                    "ncclAllReduce");
        }
    }

    /// A command to run a group of reducing calls.
    struct ReduceCommand {
        std::vector<GroupCall> calls;
        Format format = Format::float32;
        std::uint64_t width = 0;  ///< bytes of an element
        /// Bytes of the device buffers, and of one result of the whole group.
        std::uint64_t input_bytes = 0, output_bytes = 0, shared_bytes = 0;
        std::uint64_t input = 0, output = 0;  ///< offsets in the group's memory
        std::vector<std::uint64_t> fills;     ///< run once for each value of this rank; empty: once on the input
        bool captured = false;

        [[nodiscard]] std::string str() const {
            return fmt::format("{} x{}", samesum::name(calls.front().call.collective), calls.size());
        }
    };

    [[nodiscard]] ReduceCommand parse_reduce(const Json& command) const {
        ReduceCommand reduce;
        reduce.format = parse_format(command.at("format").get<std::string>());
        reduce.width = static_cast<std::uint64_t>(traits(reduce.format).bytes());
        for (const Json& each : command.at("calls")) {
            const Call call{.collective = parse_collective(each.at("collective").get<std::string>()),
                            .count = each.at("count"),
                            .format = reduce.format,
                            .operation = parse_operation(command.at("operation").get<std::string>()),
                            .root = each.at("root")};
            reduce.calls.push_back({call, reduce.input_bytes, reduce.output_bytes, reduce.shared_bytes});
            // 256 bytes apart, as separate buffers of a caller would be.
            reduce.input_bytes += (call.total(context_.ranks()) * reduce.width + 255) / 256 * 256;
            reduce.output_bytes += (call.count * reduce.width + 255) / 256 * 256;
            reduce.shared_bytes += call.total(context_.ranks()) * reduce.width;
        }
        reduce.input = command.at("input");
        reduce.output = command.at("output");
        reduce.fills = command.at("fills").get<std::vector<std::uint64_t>>();
        reduce.captured = command.at("captured");
        return reduce;
    }

    /// Fills the device's inputs: from the group's memory, or with this rank's value of the round.
    void prepare_inputs(const ReduceCommand& reduce, std::size_t round) {
        if (!reduce.fills.empty())
            return launch_fill(input_.data(), reduce.input_bytes / reduce.width, static_cast<int>(reduce.width),
                               reduce.fills[round], stream_->get());
        std::uint64_t from = reduce.input;
        for (const GroupCall& each : reduce.calls) {
            const std::uint64_t bytes = each.call.total(context_.ranks()) * reduce.width;
            to_device(input_.data() + each.input, context_.input(from, bytes));
            from += bytes;
        }
    }

    /// Writes this rank's part of the round's result to the group's memory: a root's whole result, an owner's chunk.
    /// After an all-reduce on data every rank adds its result to `digest`, since all ranks must hold the same bits.
    void store_results(const ReduceCommand& reduce, std::size_t round, std::uint64_t& digest) {
        for (const GroupCall& each : reduce.calls) {
            const std::uint64_t bytes = each.call.count * reduce.width;
            const std::uint64_t to = reduce.output + round * reduce.shared_bytes + each.shared_output;
            const bool scatter = each.call.collective == Collective::reduce_scatter;
            const int writer = each.call.collective == Collective::reduce ? each.call.root : 0;
            if (scatter || context_.rank() == writer)
                to_host(
                    context_.result(to + (scatter ? static_cast<std::uint64_t>(context_.rank()) * bytes : 0), bytes),
                    result_.data() + each.output);
            if (each.call.collective == Collective::all_reduce && reduce.fills.empty()) {
                std::vector<std::byte> own(bytes);
                to_host(own, result_.data() + each.output);
                stream_->synchronize();
                digest = (digest * 31) ^ digest_of(own);
            }
        }
    }

    Json reduce(const Json& command) {
        const ReduceCommand reduce = parse_reduce(command);
        input_.reserve(reduce.input_bytes);
        try {
            std::unique_ptr<Graph> graph;
            const auto work = [&] {
                comm_->group([&] {
                    for (const GroupCall& each : reduce.calls) enqueue(each, input_.data(), result_.data());
                });
            };
            result_.prepare(reduce.output_bytes, 0, stream_->get());
            const std::size_t rounds = reduce.fills.empty() ? 1 : reduce.fills.size();
            std::uint64_t digest = 0;
            for (std::size_t round = 0; round < rounds; ++round) {
                context_.set_current_call(fmt::format("round {} of {} of {}: enqueueing", round, rounds, reduce.str()));
                prepare_inputs(reduce, round);
                result_.prepare(reduce.output_bytes, 0, stream_->get());
                if (reduce.captured && !graph) graph = std::make_unique<Graph>(stream_->get(), work);
                if (graph)
                    graph->launch(stream_->get());
                else
                    work();
                store_results(reduce, round, digest);
            }
            context_.set_current_call(fmt::format("{}: waiting for the stream", reduce.str()));
            stream_->synchronize();
            comm_->check_async();
            return {{"digest", digest}};
        } catch (const NcclError& error) {
            if (is_refusal(error)) return refused(error);
            throw;
        }
    }

    /// "auto" means the fastest ordered scheme for the request's routing and format.
    Scheme scheme_of(const std::string& word, const CombineRequest& request) {
        if (word != "auto") return parse_scheme(word);
        if (!nvlink_joins_all_) nvlink_joins_all_ = one_nvlink_domain(*comm_);
        return fastest_ordered(*nvlink_joins_all_, request.routing, request.format);
    }

    /// direct_ordered's receive slots: of all ranks, or of the node's.
    PeerMemory* peers_of(const CombineRequest& request) {
        if (request.scheme != Scheme::direct_ordered) return nullptr;
        context_.set_current_call("setting up the peers' memory");
        if (request.ranks_per_node == 0) {
            if (!peers_) peers_ = std::make_unique<PeerMemory>(*comm_);
            return peers_.get();
        }
        if (!node_) {
            node_ = std::make_unique<Communicator>(*comm_, context_.rank() / request.ranks_per_node);
            node_peers_ = std::make_unique<PeerMemory>(*node_, 10, comm_.get());
        }
        return node_peers_.get();
    }

    /// Copies the input to the GPU; of an input that is there already only the rows that have changed.
    void upload(const Json& command, std::span<const std::byte> from, std::uint64_t row_bytes) {
        real_.reserve(from.size());
        const Json& changed = command.at("changed");
        if (changed.is_null() || uploaded_.data() != from.data() || uploaded_.size() != from.size()) {
            to_device(real_.data(), from);
        } else {
            for (const std::uint64_t row : changed)
                to_device(real_.data() + row * row_bytes, from.subspan(row * row_bytes, row_bytes));
        }
        uploaded_ = from;
    }

    CombineRequest parse_combine(const Json& command) {
        CombineRequest request;
        request.routing.sizes = command.at("sizes").get<std::vector<std::uint64_t>>();
        request.routing.hidden = command.at("hidden");
        request.format = parse_format(command.at("format").get<std::string>());
        request.scheme = scheme_of(command.at("scheme"), request);
        request.root = command.at("root");
        request.accumulation = parse_accumulation(command.at("accumulation").get<std::string>());
        request.ranks_per_node = command.at("ranks_per_node");
        request.fault = parse_fault(command.at("fault").get<std::string>());
        return request;
    }

    /// Puts `work` on the stream, by itself or as a CUDA graph.
    void enqueue_or_capture(const std::function<void()>& work, bool captured, std::string_view scheme) {
        context_.set_current_call(fmt::format("{}: enqueueing", scheme));
        if (!captured) return work();
        stream_->synchronize();
        const Graph graph(stream_->get(), work);
        graph.launch(stream_->get());
        context_.set_current_call(fmt::format("{}: waiting for the captured stream", scheme));
        stream_->synchronize();
    }

    /// Adds to the answer whether the bytes around the buffers and the partial are as they were.
    void check_guards(Json& answer, std::span<const std::byte> from, bool in_place, std::uint64_t first,
                      std::uint64_t own) {
        answer["guards_intact"] = partial_.intact() && (in_place || result_.intact());
        std::vector<std::byte> after(from.size());
        to_host(after, partial_.data());
        stream_->synchronize();
        if (in_place) std::memcpy(after.data() + first, from.data() + first, own);
        answer["partial_intact"] = from.empty() || std::memcmp(after.data(), from.data(), from.size()) == 0;
    }

    Json run_combine(const Json& command) {
        const CombineRequest request = parse_combine(command);
        const std::string_view scheme = samesum::name(request.scheme);
        const bool in_place = command.at("in_place"), has_fault = request.fault != Fault::none;
        const std::size_t shift = command.at("shift");
        const std::uint64_t delay_ns = command.at("delay_ns");

        const auto width = static_cast<std::uint64_t>(traits(request.format).bytes());
        const std::uint64_t all = request.routing.elements() * width;
        const std::uint64_t row = request.routing.hidden * width;
        const std::uint64_t first = request.routing.first_row(context_.rank()) * row;
        const std::uint64_t own = request.routing.sizes.at(static_cast<std::size_t>(context_.rank())) * row;
        const cudaStream_t stream = stream_->get();
        PeerMemory* const peers = peers_of(request);
        const auto from = context_.input(command.at("input"), all);
        const auto to = context_.result(command.at("output").get<std::uint64_t>() + first, own);
        upload(command, from, row);
        // A planted fault may write more than the rank's rows.
        const std::size_t room = has_fault ? all : own;
        partial_.prepare(all, shift, stream);
        if (!in_place) result_.prepare(room, shift, stream);
        workspace_.reserve(gpu::workspace_bytes(request, context_.rank()));
        if (has_fault) workspace_.reserve(static_cast<std::size_t>(context_.ranks()) * (all + 256));
        workspace_.poison_all(stream);
        std::byte* const result = in_place ? partial_.data() + first : result_.data();
        const auto work = [&] {
            // The producer may still run when the combine is enqueued.
            if (delay_ns > 0) launch_delay(delay_ns, stream);
            if (all > 0)
                check(cudaMemcpyAsync(partial_.data(), real_.data(), all, cudaMemcpyDeviceToDevice, stream),
                      "cudaMemcpyAsync");
            gpu::combine(request, partial_.data(), result, workspace_.data(), peers, *comm_, stream);
        };
        try {
            enqueue_or_capture(work, command.at("captured"), scheme);
        } catch (const NcclError& error) {
            if (is_refusal(error)) return refused(error);
            throw;
        }
        context_.set_current_call(fmt::format("{}: waiting for the stream", scheme));
        to_host(to, result);
        stream_->synchronize();
        if (has_fault) check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        comm_->check_async();
        if (peers) peers->check_delivery();
        Json answer{{"ran", scheme}};
        if (command.at("digest").get<bool>()) answer["digest"] = digest_of(to);
        if (command.at("guards").get<bool>()) check_guards(answer, from, in_place, first, own);
        return answer;
    }

    /// Times the schemes on equal chunks, and the hardware's limits.
    Json bench(const Json& command) {
        CombineRequest request;
        request.format = parse_format(command.at("format").get<std::string>());
        request.accumulation = parse_accumulation(command.at("accumulation").get<std::string>());
        request.routing.sizes.assign(static_cast<std::size_t>(context_.ranks()), 1);
        request.routing.hidden = command.at("hidden");
        const auto width = static_cast<std::uint64_t>(traits(request.format).bytes());
        const std::uint64_t own = request.routing.hidden * width, all = request.routing.elements() * width;
        const DeviceBuffer input(all), result(own);
        launch_fill(input.data(), all / width, static_cast<int>(width), command.at("value"), stream_->get());

        std::vector<BenchItem> items;
        std::size_t scratch = 0;
        std::vector<CombineRequest> requests;
        for (const Json& word : command.at("schemes")) {
            requests.push_back(request);
            requests.back().scheme = scheme_of(word, request);
            scratch = std::max(scratch, gpu::workspace_bytes(requests.back(), context_.rank()));
        }
        const DeviceBuffer workspace(scratch);
        for (std::size_t i = 0; i < requests.size(); ++i) {
            const CombineRequest& each = requests[i];
            PeerMemory* const peers = peers_of(each);
            items.push_back({command.at("schemes")[i].get<std::string>(), [&, peers, this](cudaStream_t stream) {
                                 gpu::combine(each, input.data(), result.data(), workspace.data(), peers, *comm_,
                                              stream);
                             }});
        }
        std::unique_ptr<PeerMappedBuffer> mapped;
        if (command.at("limits").get<bool>()) {
            (void)discover_peers(*comm_);
            mapped = std::make_unique<PeerMappedBuffer>(*comm_, own + 16);
            for (BenchItem& limit : limits(*mapped, result.data(), own, *comm_)) items.push_back(std::move(limit));
        }
        const Repetitions repetitions{command.at("iterations"), command.at("repetitions"), command.at("captured")};
        context_.set_current_call(fmt::format("timing {} items of {} bytes", items.size(), all));
        const auto times = time_all(items, repetitions, *comm_, stream_->get());
        if (mapped) mapped->close();
        if (peers_) peers_->check_delivery();
        Json answer = Json::object();
        for (std::size_t i = 0; i < items.size(); ++i) answer[items[i].name] = times[i];
        return answer;
    }

    RankContext context_;
    std::optional<Stream> stream_;
    std::unique_ptr<Communicator> comm_;
    std::unique_ptr<Communicator> node_;  ///< of this rank's node; created when first needed
    std::unique_ptr<PeerMemory> peers_, node_peers_;
    std::optional<bool> nvlink_joins_all_;
    DeviceBuffer input_, real_, workspace_;
    std::span<const std::byte> uploaded_;  ///< what real_ holds
    GuardedBuffer partial_, result_;
};

}  // namespace

WorkerFactory gpu_workers() {
    return [](const RankContext& context) { return std::make_unique<GpuWorker>(context); };
}

}  // namespace samesum::gpu
