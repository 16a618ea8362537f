// The thin layer between a campaign and what really runs: NCCL on this machine's GPUs, or somebody's library.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <numeric>

#include "fuzz/live.hpp"
#include "impl/check/compare_with_model.hpp"
#include "impl/check/plugin.hpp"
#include "model/support/error.hpp"
#include "model/support/options.hpp"

namespace samesum::fuzz {
namespace {

/// Processes are started anew when another number of them is asked for.
class NcclRanks : public Ranks {
public:
    explicit NcclRanks(const LiveOptions& options) : options_(options), hardware_(gpu::probe_hardware()) {}

    std::string description() const override {
        return fmt::format("NCCL {}, {} x {} sm_{}", str(hardware_.nccl), hardware_.gpus.size(), hardware_.gpus.front(),
                           hardware_.compute_capability);
    }
    Communicator open(const World& world) override {
        if (!ranks_ || ranks_->ranks() != world.ranks || ranks_->placement().ranks_per_node != world.ranks_per_node) {
            ranks_.reset();
            gpu::LiveRanks::Options options;
            options.ranks = world.ranks;
            options.ranks_per_node = world.ranks_per_node;
            options.mps = options_.mps == "on"    ? gpu::MpsUse::on
                          : options_.mps == "off" ? gpu::MpsUse::off
                                                  : gpu::MpsUse::automatic;
            options.timeout_s = options_.timeout_s;
            ranks_ = std::make_unique<gpu::LiveRanks>(options, hardware_);
        }
        gpu::NcclEnvironment environment;
        // PAT is a reduce-scatter's alone; the reduces beside it are rings.
        environment.algorithms = world.algorithm == Algorithm::pat ? "reducescatter:pat;reduce:ring" : "ring";
        environment.protocols = name(world.protocol);
        environment.graph_file = world.graph_file;
        ranks_->open(environment);
        return gpu::described_communicator(*ranks_);
    }
    std::span<std::byte> input(int rank, std::uint64_t bytes) override { return ranks_->input(rank, bytes); }
    std::string combine(const gpu::CombineRun& run) override { return ranks_->combine(run).said; }
    std::span<const std::byte> result(std::uint64_t bytes) const override { return ranks_->result(bytes); }

    [[nodiscard]] const gpu::Hardware& hardware() const { return hardware_; }

private:
    LiveOptions options_;
    gpu::Hardware hardware_;
    std::unique_ptr<gpu::LiveRanks> ranks_;
};

/// A library adds whole buffers and knows neither routing nor communicator.
class LibraryRanks : public Ranks {
public:
    explicit LibraryRanks(const std::string& file) : file_(file), plugin_(file) {}

    std::string description() const override { return fmt::format("plug-in {}", file_); }
    Communicator open(const World& world) override {
        inputs_.assign(static_cast<std::size_t>(world.ranks), {});
        return {.topology = Topology::one_rank_per_node(world.ranks)};
    }
    std::span<std::byte> input(int rank, std::uint64_t bytes) override {
        auto& buffer = inputs_.at(static_cast<std::size_t>(rank));
        buffer.resize(bytes);
        return buffer;
    }
    std::string combine(const gpu::CombineRun& run) override {
        const SumUnderTest sum = plugin_.sum(run.format, static_cast<int>(inputs_.size()), run.routing.elements());
        result_ = sum.run_data([&](int rank, std::span<std::byte> buffer) {
            const auto& from = inputs_[static_cast<std::size_t>(rank)];
            std::copy_n(from.begin(), buffer.size(), buffer.begin());
        });
        return {};
    }
    std::span<const std::byte> result(std::uint64_t bytes) const override { return result_.first(bytes); }

private:
    std::string file_;
    gpu::Plugin plugin_;
    std::vector<std::vector<std::byte>> inputs_;
    std::span<const std::byte> result_;
};

}  // namespace

std::shared_ptr<Backend> nccl_backend(const LiveOptions& options) {
    auto ranks = std::make_unique<NcclRanks>(options);
    std::string flags = "--backend nccl ";
    if (options.ranks_per_node > 0) flags += fmt::format("--ranks-per-node {} ", options.ranks_per_node);
    std::vector<std::string> graphs{""};
    for (const std::string& file : options.graph_files) {
        if (!std::filesystem::is_regular_file(file))
            throw UsageError(fmt::format("--graph-file {}: there is no such file", file));
        graphs.push_back(std::filesystem::absolute(file).string());
        flags += fmt::format("--graph-file {} ", graphs.back());
    }
    std::vector<World> worlds;
    for (const int count : options.ranks) {
        World world;
        world.ranks = count;
        world.ranks_per_node = gpu::place_ranks(count, options.ranks_per_node, ranks->hardware()).ranks_per_node;
        for (const std::string& graph : graphs) {
            world.graph_file = graph;
            world.algorithm = Algorithm::ring;
            for (const Protocol protocol : all_protocols) {
                world.protocol = protocol;
                worlds.push_back(world);
            }
            // NCCL has PAT for one rank a node only, and in Simple.
            if (world.ranks_per_node > 1 || !graph.empty()) continue;
            world.algorithm = Algorithm::pat;
            world.protocol = Protocol::simple;
            worlds.push_back(world);
        }
    }
    return std::make_shared<LiveBackend>(std::move(ranks), std::move(worlds), std::move(flags), options.fault);
}

std::shared_ptr<Backend> plugin_backend(const std::string& file, const std::vector<int>& ranks) {
    auto library = std::make_unique<LibraryRanks>(file);
    std::vector<World> worlds;
    for (const int count : ranks) {
        World world;
        world.ranks = count;
        world.manners = false;
        worlds.push_back(world);
    }
    return std::make_shared<LiveBackend>(std::move(library), std::move(worlds),
                                         fmt::format("--backend plugin --plugin {} ", file));
}

}  // namespace samesum::fuzz
