// Every wrong value is answered with the flag's name and what would be right.
// SPDX-License-Identifier: Apache-2.0
#include "impl/commands/flags.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <sstream>

extern char** environ;

namespace samesum::gpu {

void add_rank_flags(Options& options, const char* default_ranks) {
    add_launcher_flag(options);
    options.add()("ranks", po::value<std::string>()->default_value(default_ranks),
                  "processes, one a rank; under a launcher as many as it started")(
        "ranks-per-node", po::value<int>()->default_value(0),
        "ranks that NCCL takes for one node; they need as many GPUs (0: all ranks if the GPUs suffice, else 1)")(
        "mps", po::value<std::string>()->default_value("auto"),
        "auto, on, off: a private MPS daemon, so that ranks share a GPU without taking turns")(
        "patience", po::value<double>()->default_value(60), "seconds after which a silent rank counts as hung")(
        "algo", po::value<std::string>()->default_value(""), "NCCL_ALGO: ring, tree, pat")(
        "proto", po::value<std::string>()->default_value(""), "NCCL_PROTO: ll, ll128, simple")(
        "graph-file", po::value<std::string>()->default_value(""), "NCCL_GRAPH_FILE: rings and trees of a node")(
        "min-channels", po::value<std::string>()->default_value(""), "NCCL_MIN_NCHANNELS");
}

void add_launcher_flag(Options& options) {
    options.add()("launcher", po::value<std::string>()->default_value("auto"),
                  "whose processes are the ranks: torchrun, mpi, slurm (by their environment variables; mpi: Open MPI, "
                  "MPICH); none: own ones; auto: the launcher's if one started this");
}

std::string ranks_flag(const Options& options) {
    return launched_job() != nullptr && !options.has("ranks") ? std::to_string(launched_job()->ranks())
                                                              : options.get<std::string>("ranks");
}

LiveRanks::Options rank_options(const Options& options, const std::string& number) {
    LiveRanks::Options ranks;
    ranks.ranks = static_cast<int>(whole_number(number, "ranks"));
    if (launched_job() != nullptr && ranks.ranks > launched_job()->ranks())
        throw UsageError(fmt::format("--ranks {}; {} started {}: no more would be right", number,
                                     launched_job()->launch().launcher, launched_job()->ranks()));
    ranks.ranks_per_node = options.get<int>("ranks-per-node");
    ranks.timeout_s = options.get<double>("patience");
    const auto mps = options.get<std::string>("mps");
    if (mps != "auto" && mps != "on" && mps != "off")
        throw UsageError(fmt::format("--mps '{}'; auto, on or off would be right", mps));
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

std::vector<std::string> list_of(const std::string& text, const char* flag) {
    std::vector<std::string> parts;
    std::stringstream stream(text);
    for (std::string part; std::getline(stream, part, ',');)
        if (!part.empty()) parts.push_back(part);
    if (parts.empty()) throw UsageError(fmt::format("--{} names nothing; a,b,c would be right", flag));
    return parts;
}

std::uint64_t whole_number(const std::string& text, const char* flag) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || error != std::errc{} || end != text.data() + text.size())
        throw UsageError(fmt::format("--{} '{}' is no whole number", flag, text));
    return number;
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
    std::string text = fmt::format("# NCCL {}, CUDA {}, driver for CUDA {}, {} x {} sm_{}\n# {} ranks, {} a node{}\n",
                                   str(hardware.nccl), hardware.runtime, hardware.driver, hardware.gpus.size(),
                                   hardware.gpus.front(), hardware.compute_capability, ranks.ranks(),
                                   ranks.placement().ranks_per_node, ranks.uses_mps() ? ", sharing GPUs by MPS" : "");
    if (launched_job() != nullptr)
        text.insert(text.size() - 1, fmt::format(", by {} on {} host{}", launched_job()->launch().launcher,
                                                 ranks.placement().hosts, ranks.placement().hosts > 1 ? "s" : ""));
    for (const std::string& variable : nccl_variables()) text += "# " + variable + "\n";
    return text;
}

}  // namespace samesum::gpu
