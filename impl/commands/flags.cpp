// A wrong value is answered with the flag's name and what was expected.
// SPDX-License-Identifier: Apache-2.0
#include "impl/commands/flags.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "impl/ranks/launched_job.hpp"
#include "model/support/numbers.hpp"
#include "model/support/output.hpp"
#include "model/support/text.hpp"

extern char** environ;

namespace samesum::gpu {
namespace {

constexpr std::int64_t max_ranks_flag = 1 << 20;

}  // namespace

void add_rank_flags(Options& options, const char* default_ranks) {
    add_launcher_flag(options);
    options.add()("ranks", po::value<std::string>()->default_value(default_ranks),
                  "processes, one for each rank; under a launcher as many as it started")(
        "ranks-per-node", po::value<int>()->default_value(0),
        "ranks of one node to NCCL; a node needs as many GPUs (0: all ranks if there are enough GPUs, else 1)")(
        "mps", po::value<std::string>()->default_value("auto"),
        "auto, on, off: a private MPS daemon, so that ranks run on one GPU at the same time")(
        "timeout", po::value<double>()->default_value(60), "seconds after which a silent rank counts as hung")(
        "algo", po::value<std::string>()->default_value(""), "NCCL_ALGO: ring, tree, pat")(
        "proto", po::value<std::string>()->default_value(""), "NCCL_PROTO: ll, ll128, simple")(
        "graph-file", po::value<std::string>()->default_value(""), "NCCL_GRAPH_FILE: rings and trees of a node")(
        "min-channels", po::value<std::string>()->default_value(""), "NCCL_MIN_NCHANNELS");
}

void add_launcher_flag(Options& options) {
    options.add()("launcher", po::value<std::string>()->default_value("auto"),
                  "each process of this launcher is one rank: torchrun, mpi (Open MPI, MPICH), slurm, recognised by "
                  "their environment variables; none: start own ranks; auto: the launcher that started this process");
}

std::string ranks_flag(const Options& options) {
    return launched_job() != nullptr && !options.has("ranks") ? std::to_string(launched_job()->ranks())
                                                              : options.get<std::string>("ranks");
}

LiveRanks::Options rank_options(const Options& options, const std::string& number) {
    LiveRanks::Options ranks;
    ranks.ranks = static_cast<int>(whole_number(number, "--ranks", 1, max_ranks_flag));
    if (launched_job() != nullptr && ranks.ranks > launched_job()->ranks())
        throw UsageError(fmt::format("--ranks {}: expected at most {}, which {} started", number,
                                     launched_job()->ranks(), launched_job()->launch().launcher));
    ranks.ranks_per_node = options.get<int>("ranks-per-node");
    if (ranks.ranks_per_node < 0)
        throw UsageError(fmt::format("--ranks-per-node {}: expected 0 or more", ranks.ranks_per_node));
    ranks.timeout_s = options.get<double>("timeout");
    if (!(ranks.timeout_s > 0))
        throw UsageError(fmt::format("--timeout {:g}: expected seconds, more than 0", ranks.timeout_s));
    const auto mps = options.get<std::string>("mps");
    if (mps != "auto" && mps != "on" && mps != "off")
        throw UsageError(fmt::format("--mps '{}': expected auto, on or off", mps));
    ranks.mps = mps == "on" ? MpsUse::on : mps == "off" ? MpsUse::off : MpsUse::automatic;
    return ranks;
}

NcclEnvironment nccl_environment(const Options& options) {
    NcclEnvironment environment{options.get<std::string>("algo"), options.get<std::string>("proto"),
                                options.get<std::string>("graph-file"), options.get<std::string>("min-channels")};
    if (!environment.graph_file.empty()) {
        if (!std::filesystem::exists(environment.graph_file))
            throw UsageError(fmt::format("--graph-file {}: there is no such file", environment.graph_file));
        environment.graph_file = std::filesystem::absolute(environment.graph_file).string();
    }
    return environment;
}

std::vector<std::string> list_of(std::string_view text, const char* flag) {
    std::vector<std::string> parts;
    for (const std::string_view part : split(text, ','))
        if (!part.empty()) parts.emplace_back(part);
    if (parts.empty()) throw UsageError(fmt::format("--{} is empty: expected a,b,c", flag));
    return parts;
}

std::vector<Format> formats_flag(const Options& options) {
    std::vector<Format> formats;
    for (const std::string& word : list_of(options.get<std::string>("dtype"), "dtype"))
        formats.push_back(parse_format(word));
    return formats;
}

std::vector<std::string> nccl_variables() {
    std::vector<std::string> variables;
    for (char** variable = environ; *variable != nullptr; ++variable)
        if (std::string_view(*variable).starts_with("NCCL_")) variables.emplace_back(*variable);
    std::sort(variables.begin(), variables.end());
    return variables;
}

std::string describe_run(const LiveRanks& ranks) {
    const Hardware& hardware = ranks.hardware();
    const Placement& placement = ranks.placement();
    std::string text = fmt::format("# NCCL {}, CUDA {}, driver for CUDA {}, {} x {} sm_{}\n# {} ranks, {} per node{}",
                                   str(hardware.nccl), hardware.runtime, hardware.driver, hardware.gpus.size(),
                                   hardware.gpus.front(), hardware.compute_capability, ranks.ranks(),
                                   placement.ranks_per_node, ranks.uses_mps() ? ", sharing GPUs by MPS" : "");
    if (launched_job() != nullptr)
        text += fmt::format(", by {} on {} host{}", launched_job()->launch().launcher, placement.hosts,
                            placement.hosts > 1 ? "s" : "");
    text += "\n";
    for (const std::string& variable : nccl_variables()) text += "# " + variable + "\n";
    return text;
}

nlohmann::ordered_json run_json(const LiveRanks& ranks) {
    const Hardware& hardware = ranks.hardware();
    return {{"nccl", str(hardware.nccl)},
            {"cuda", hardware.runtime},
            {"driver", hardware.driver},
            {"gpu", hardware.gpus.front()},
            {"gpus", hardware.gpus.size()},
            {"compute_capability", hardware.compute_capability},
            {"ranks", ranks.ranks()},
            {"ranks_per_node", ranks.placement().ranks_per_node},
            {"mps", ranks.uses_mps()},
            {"launcher", launched_job() != nullptr ? launched_job()->launch().launcher : "none"},
            {"hosts", ranks.placement().hosts},
            {"environment", nccl_variables()}};
}

LiveText::LiveText(const Options& options) : silent_(json_alone(options)) {}

void LiveText::print(std::string_view text) const {
    if (silent_) return;
    fmt::print("{}", text);
    std::fflush(stdout);
}

}  // namespace samesum::gpu
