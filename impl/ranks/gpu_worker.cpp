// Commands are JSON; bulk data lies in the group's memory at offsets that the commands name.
// SPDX-License-Identifier: Apache-2.0
#include "impl/ranks/gpu_worker.hpp"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "impl/combine/combine.hpp"
#include "impl/device/cuda.hpp"
#include "impl/device/nccl.hpp"
#include "impl/kernels/ordered_sum.hpp"
#include "impl/kernels/peer_memory.hpp"
#include "impl/ranks/timing.hpp"
#include "model/nccl/call.hpp"

namespace samesum::gpu {
namespace {

using Json = nlohmann::json;

/// Room around a result, of poison that must stay.
constexpr std::size_t guard = 4096;
std::uint64_t fnv1a(std::span<const std::byte> bytes) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const std::byte byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
    return hash;
}

/// A device buffer with a guard on both sides.
class Guarded {
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

/// One reducing call of a group and where its data lies in the rank's buffers.
struct GroupCall {
    Call call;
    std::uint64_t input = 0, output = 0;  ///< bytes into this rank's buffers
    std::uint64_t shared_output = 0;      ///< bytes into one result of the whole group
};

class GpuWorker : public Worker {
public:
    explicit GpuWorker(const RankContext& context) : context_(context) {
        ::setenv("NCCL_DEBUG_FILE", context.log_file().c_str(), 1);
    }

    std::string answer(std::string_view text) override {
        const Json command = Json::parse(text);
        const std::string what = command.at("do");
        context_.at(what);
        if (what == "probe") return probe().dump();
        if (what == "id") return context_.rank() == 0 ? fresh_unique_id() : "";
        if (what == "open") return open(command).dump();
        if (what == "close") return close().dump();
        ensure(comm_ != nullptr, "a communicator is open");
        if (what == "reduce") return reduce(command).dump();
        if (what == "combine") return run_combine(command).dump();
        if (what == "bench") return bench(command).dump();
        throw std::logic_error("a rank was told to " + what);
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
        context_.at("ncclCommInitRank");
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

    /// NCCL may refuse what the environment forces; that is an answer. The communicator is gone afterwards.
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

    void put(const GroupCall& each, const std::byte* in, std::byte* out) {
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

    /// A group of reducing calls, once on data or once for each value that this rank is to fill its input with.
    Json reduce(const Json& command) {
        std::vector<GroupCall> calls;
        std::uint64_t input_bytes = 0, output_bytes = 0, shared_bytes = 0;
        const Format format = parse_format(command.at("format").get<std::string>());
        const auto width = static_cast<std::uint64_t>(traits(format).bytes());
        for (const Json& each : command.at("calls")) {
            const Call call{.collective = parse_collective(each.at("collective").get<std::string>()),
                            .count = each.at("count"),
                            .format = format,
                            .operation = parse_operation(command.at("operation").get<std::string>()),
                            .root = each.at("root")};
            calls.push_back({call, input_bytes, output_bytes, shared_bytes});
            // 256 bytes apart, as separate buffers of a caller would be.
            input_bytes += (call.total(context_.ranks()) * width + 255) / 256 * 256;
            output_bytes += (call.count * width + 255) / 256 * 256;
            shared_bytes += call.total(context_.ranks()) * width;
        }
        const std::uint64_t input = command.at("input"), output = command.at("output");
        const Json& fills = command.at("fills");
        const bool captured = command.at("captured");
        DeviceBuffer& in = input_;
        in.reserve(input_bytes);
        try {
            std::unique_ptr<Graph> graph;
            const auto work = [&] {
                comm_->group([&] {
                    for (const GroupCall& each : calls) put(each, in.data(), result_.data());
                });
            };
            result_.prepare(output_bytes, 0, stream_->get());
            const std::size_t rounds = fills.empty() ? 1 : fills.size();
            std::uint64_t digest = 0;
            for (std::size_t round = 0; round < rounds; ++round) {
                context_.at(fmt::format("round {} of {} of {} x{}: enqueueing", round, rounds,
                                        samesum::name(calls.front().call.collective), calls.size()));
                if (fills.empty()) {
                    std::uint64_t from = input;
                    for (const GroupCall& each : calls) {
                        const std::uint64_t bytes = each.call.total(context_.ranks()) * width;
                        to_device(in.data() + each.input, context_.input(from, bytes));
                        from += bytes;
                    }
                } else {
                    launch_fill(in.data(), input_bytes / width, static_cast<int>(width),
                                fills[round].get<std::uint64_t>(), stream_->get());
                }
                result_.prepare(output_bytes, 0, stream_->get());
                if (captured && !graph) graph = std::make_unique<Graph>(stream_->get(), work);
                if (graph)
                    graph->launch(stream_->get());
                else
                    work();
                for (const GroupCall& each : calls) {
                    const std::uint64_t bytes = each.call.count * width;
                    const std::uint64_t to = output + round * shared_bytes + each.shared_output;
                    const bool scatter = each.call.collective == Collective::reduce_scatter;
                    const int writer = each.call.collective == Collective::reduce ? each.call.root : 0;
                    if (scatter || context_.rank() == writer)
                        to_host(context_.result(
                                    to + (scatter ? static_cast<std::uint64_t>(context_.rank()) * bytes : 0), bytes),
                                result_.data() + each.output);
                    if (each.call.collective == Collective::all_reduce && fills.empty()) {
                        // All ranks must hold the same bits; a digest is enough to tell.
                        std::vector<std::byte> own(bytes);
                        to_host(own, result_.data() + each.output);
                        stream_->synchronize();
                        digest = (digest * 31) ^ fnv1a(own);
                    }
                }
            }
            context_.at(fmt::format("{} x{}: waiting for the stream", samesum::name(calls.front().call.collective),
                                    calls.size()));
            stream_->synchronize();
            comm_->check_async();
            return {{"digest", digest}};
        } catch (const NcclError& error) {
            if (is_refusal(error)) return refused(error);
            throw;
        }
    }

    /// "auto" stands for the fastest ordered scheme; the routing and the format are known by then.
    Scheme scheme_of(const std::string& word, const CombineRequest& request) {
        if (word != "auto") return parse_scheme(word);
        if (!nvlink_joins_all_) nvlink_joins_all_ = one_nvlink_domain(*comm_);
        return fastest_ordered(*nvlink_joins_all_, request.routing, request.format);
    }

    /// direct_ordered's letterboxes: of all ranks, or of the node's.
    PeerMemory* peers_of(const CombineRequest& request) {
        if (request.scheme != Scheme::direct_ordered) return nullptr;
        context_.at("setting up the peers' memory");
        if (request.ranks_per_node == 0) {
            if (!peers_) peers_ = std::make_unique<PeerMemory>(*comm_);
            return peers_.get();
        }
        if (!node_) {
            node_ = std::make_unique<Communicator>(*comm_, context_.rank() / request.ranks_per_node);
            node_peers_ = std::make_unique<PeerMemory>(*node_);
        }
        return node_peers_.get();
    }

    /// Brings the inputs to the GPU; of those that are there already only the rows that have changed.
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

    Json run_combine(const Json& command) {
        CombineRequest request;
        request.routing.sizes = command.at("sizes").get<std::vector<std::uint64_t>>();
        request.routing.hidden = command.at("hidden");
        request.format = parse_format(command.at("format").get<std::string>());
        request.scheme = scheme_of(command.at("scheme"), request);
        request.root = command.at("root");
        request.accumulation = parse_accumulation(command.at("accumulation").get<std::string>());
        request.ranks_per_node = command.at("ranks_per_node");
        request.fault = parse_fault(command.at("fault").get<std::string>());
        const bool captured = command.at("captured"), in_place = command.at("in_place");
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
        // A planted fault may write more than its own rows.
        const std::size_t room = request.fault == Fault::none ? own : all;
        partial_.prepare(all, shift, stream);
        if (!in_place) result_.prepare(room, shift, stream);
        workspace_.reserve(gpu::workspace_bytes(request, context_.rank()));
        if (request.fault != Fault::none) workspace_.reserve(static_cast<std::size_t>(context_.ranks()) * (all + 256));
        workspace_.poison_all(stream);
        std::byte* const result = in_place ? partial_.data() + first : result_.data();
        const auto work = [&] {
            // The partials come from a kernel that may still be running when the combine is put on the stream.
            if (delay_ns > 0) launch_delay(delay_ns, stream);
            if (all > 0)
                check(cudaMemcpyAsync(partial_.data(), real_.data(), all, cudaMemcpyDeviceToDevice, stream),
                      "cudaMemcpyAsync");
            gpu::combine(request, partial_.data(), result, workspace_.data(), peers, *comm_, stream);
        };
        context_.at(fmt::format("{}: enqueueing", samesum::name(request.scheme)));
        try {
            if (captured) {
                stream_->synchronize();
                const Graph graph(stream, work);
                graph.launch(stream);
                context_.at(fmt::format("{}: waiting for the captured stream", samesum::name(request.scheme)));
                stream_->synchronize();
            } else {
                work();
            }
        } catch (const NcclError& error) {
            if (is_refusal(error)) return refused(error);
            throw;
        }
        context_.at(fmt::format("{}: waiting for the stream", samesum::name(request.scheme)));
        to_host(to, result);
        stream_->synchronize();
        if (request.fault != Fault::none) check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        comm_->check_async();
        if (peers) peers->check_delivery();
        Json answer{{"ran", samesum::name(request.scheme)}};
        if (command.at("digest").get<bool>()) answer["digest"] = fnv1a(to);
        if (command.at("guards").get<bool>()) {
            answer["guards_intact"] = partial_.intact() && (in_place || result_.intact());
            std::vector<std::byte> after(all);
            to_host(after, partial_.data());
            stream_->synchronize();
            if (in_place) std::memcpy(after.data() + first, from.data() + first, own);
            answer["partial_intact"] = all == 0 || std::memcmp(after.data(), from.data(), all) == 0;
        }
        return answer;
    }

    /// Times the schemes on equal chunks, and the limits beside them.
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
        std::unique_ptr<PeerMappedBuffer> lent;
        if (command.at("limits").get<bool>()) {
            (void)discover_peers(*comm_);
            lent = std::make_unique<PeerMappedBuffer>(*comm_, own + 16);
            for (BenchItem& limit : limits(*lent, result.data(), own, *comm_)) items.push_back(std::move(limit));
        }
        const Repetitions pace{command.at("iterations"), command.at("repetitions"), command.at("captured")};
        context_.at(fmt::format("timing {} items of {} bytes", items.size(), all));
        const auto times = time_all(items, pace, *comm_, stream_->get());
        if (lent) lent->close();
        if (peers_) peers_->check_delivery();
        Json answer = Json::object();
        for (std::size_t i = 0; i < items.size(); ++i) answer[items[i].name] = times[i];
        return answer;
    }

    RankContext context_;
    std::optional<Stream> stream_;
    std::unique_ptr<Communicator> comm_;
    std::unique_ptr<Communicator> node_;  ///< the ranks of this rank's node, once they are asked for
    std::unique_ptr<PeerMemory> peers_, node_peers_;
    std::optional<bool> nvlink_joins_all_;
    DeviceBuffer input_, real_, workspace_;
    std::span<const std::byte> uploaded_;  ///< what real_ holds
    Guarded partial_, result_;
};

}  // namespace

WorkerFactory gpu_workers() {
    return [](const RankContext& context) { return std::make_unique<GpuWorker>(context); };
}

}  // namespace samesum::gpu
