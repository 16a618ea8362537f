// The thin layer between a campaign and what runs: NCCL on this machine's GPUs, or a user's library.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <numeric>

#include "fuzz/live_backend.hpp"
#include "impl/check/compare_with_model.hpp"
#include "impl/check/plugin.hpp"
#include "model/support/error.hpp"
#include "model/support/options.hpp"

namespace samesum::fuzz {
namespace {

/// Processes are restarted when their number changes.
class NcclRanks : public Ranks {
public:
    explicit NcclRanks(const LiveOptions& options) : options_(options), hardware_(gpu::probe_hardware()) {}

    std::string description() const override {
        return fmt::format("NCCL {}, {} x {} sm_{}", str(hardware_.nccl), hardware_.gpus.size(), hardware_.gpus.front(),
                           hardware_.compute_capability);
    }
    Communicator open(const CommunicatorSetup& setup) override {
        if (!ranks_ || ranks_->ranks() != setup.ranks || ranks_->placement().ranks_per_node != setup.ranks_per_node) {
            ranks_.reset();
            gpu::LiveRanks::Options options;
            options.ranks = setup.ranks;
            options.ranks_per_node = setup.ranks_per_node;
            options.mps = options_.mps == "on"    ? gpu::MpsUse::on
                          : options_.mps == "off" ? gpu::MpsUse::off
                                                  : gpu::MpsUse::automatic;
            options.timeout_s = options_.timeout_s;
            ranks_ = std::make_unique<gpu::LiveRanks>(options, hardware_);
        }
        gpu::NcclEnvironment environment;
        // Only reduce-scatters can be PAT; reduces are rings.
        environment.algorithms = setup.algorithm == Algorithm::pat ? "reducescatter:pat;reduce:ring" : "ring";
        environment.protocols = name(setup.protocol);
        environment.graph_file = setup.graph_file;
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

/// A library adds whole buffers; it has neither routing nor communicator.
class LibraryRanks : public Ranks {
public:
    explicit LibraryRanks(const std::string& file) : file_(file), plugin_(file) {}

    std::string description() const override { return fmt::format("plug-in {}", file_); }
    Communicator open(const CommunicatorSetup& setup) override {
        inputs_.assign(static_cast<std::size_t>(setup.ranks), {});
        return {.topology = Topology::one_rank_per_node(setup.ranks)};
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
            throw UsageError(fmt::format("--graph-file {}: no such file", file));
        graphs.push_back(std::filesystem::absolute(file).string());
        flags += fmt::format("--graph-file {} ", graphs.back());
    }
    std::vector<CommunicatorSetup> setups;
    for (const int count : options.ranks) {
        CommunicatorSetup setup;
        setup.ranks = count;
        setup.ranks_per_node = gpu::place_ranks(count, options.ranks_per_node, ranks->hardware()).ranks_per_node;
        for (const std::string& graph : graphs) {
            setup.graph_file = graph;
            setup.algorithm = Algorithm::ring;
            for (const Protocol protocol : all_protocols) {
                setup.protocol = protocol;
                setups.push_back(setup);
            }
            // NCCL has PAT only for one rank per node, and only in Simple.
            if (setup.ranks_per_node > 1 || !graph.empty()) continue;
            setup.algorithm = Algorithm::pat;
            setup.protocol = Protocol::simple;
            setups.push_back(setup);
        }
    }
    return std::make_shared<LiveBackend>(std::move(ranks), std::move(setups), std::move(flags), options.fault);
}

std::shared_ptr<Backend> plugin_backend(const std::string& file, const std::vector<int>& ranks) {
    auto library = std::make_unique<LibraryRanks>(file);
    std::vector<CommunicatorSetup> setups;
    for (const int count : ranks) {
        CommunicatorSetup setup;
        setup.ranks = count;
        setup.launch_modes = false;
        setups.push_back(setup);
    }
    return std::make_shared<LiveBackend>(std::move(library), std::move(setups),
                                         fmt::format("--backend plugin --plugin {} ", file));
}

}  // namespace samesum::fuzz
