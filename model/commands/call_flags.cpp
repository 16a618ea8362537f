// Flags to a scenario. The closed forms of rings and trees hold for two layouts only (reduction-order rules of
// NCCL 2.28.9, graph/connect.cc and graph/search.cc): one rank a node, and one NVSwitch node; everything else must be
// given.
// SPDX-License-Identifier: Apache-2.0
#include "model/commands/call_flags.hpp"

#include <fmt/format.h>

#include "model/input/environment_file.hpp"
#include "model/input/graph_file.hpp"
#include "model/input/nccl_log.hpp"
#include "model/input/recording.hpp"
#include "model/nccl/settings.hpp"
#include "model/support/files.hpp"
#include "model/support/text.hpp"

namespace samesum {
namespace {

int checked(const Options& options, const char* flag, int min, int max) {
    const int value = options.get<int>(flag);
    if (value < min || value > max)
        throw UsageError(fmt::format("--{} {}: {} to {} would be right", flag, value, min, max));
    return value;
}

void check_ranks(const Options& options, int ranks, std::string_view source) {
    if (options.has("ranks") && options.get<int>("ranks") != ranks)
        throw UsageError(fmt::format("--ranks {}, but {} has {}", options.get<int>("ranks"), source, ranks));
}

Communicator from_log(const Options& options, std::vector<std::string>& assumptions) {
    const std::string file = options.get<std::string>("log");
    const NcclLog log = parse_nccl_log(read_file(file), file);
    const LogCommunicator& found = log.communicator(options.find<std::string>("communicator").value_or(""));
    std::optional<NcclVersion> version;
    if (const auto text = options.find<std::string>("nccl-version")) version = parse_nccl_version(*text);
    Communicator comm = found.communicator(version, options.find<int>("sm"));
    check_ranks(options, comm.ranks(), file);
    assumptions.insert(assumptions.end(), found.assumptions.begin(), found.assumptions.end());
    return comm;
}

Communicator from_graph(const Options& options, std::vector<std::string>& assumptions) {
    const std::string file = options.get<std::string>("graph");
    const GraphFile graph = parse_graph_file(read_file(file), file);
    const int per_node = options.has("ranks-per-node") ? checked(options, "ranks-per-node", 1, 1 << 20) : graph.gpus;
    const int ranks = options.has("ranks") ? checked(options, "ranks", 1, 1 << 20) : per_node;
    if (ranks % per_node != 0)
        throw UsageError(fmt::format("--ranks {} are no whole nodes of {} ranks", ranks, per_node));
    Communicator comm = communicator_from_graph(graph, ranks / per_node, per_node);
    const auto given = graph_assumptions(graph, ranks / per_node);
    assumptions.insert(assumptions.end(), given.begin(), given.end());
    return comm;
}

Communicator from_rings(const Options& options) {
    std::vector<Ring> rings;
    const std::string text = options.get<std::string>("rings");
    for (const std::string_view ring : split(text, ';')) rings.push_back(parse_ring(ring));
    Communicator comm{Topology::from_rings(
        rings, options.has("ranks-per-node") ? checked(options, "ranks-per-node", 1, 1 << 20) : 1)};
    check_ranks(options, comm.ranks(), "--rings");
    return comm;
}

/// The layouts whose rings have a closed form.
Communicator from_layout(const Options& options, std::vector<std::string>& assumptions) {
    if (!options.has("ranks")) throw UsageError("--ranks is missing (or --rings, --log, --graph); see --help");
    const int ranks = checked(options, "ranks", 1, 1 << 20);
    const int channels = options.has("channels") ? checked(options, "channels", 1, 64) : 2;
    if (ranks == 1) return {Topology::one_rank_per_node(1, channels)};
    if (!options.has("ranks-per-node"))
        throw UsageError(fmt::format(
            "the rings are not known: --ranks-per-node 1 (each rank its own node: rank order), --ranks-per-node "
            "{} (one NVSwitch node), --rings, --log or --graph would say",
            ranks));
    const int per_node = checked(options, "ranks-per-node", 1, ranks);
    if (per_node == 1) {
        if (!options.has("channels"))
            assumptions.emplace_back("2 channels, as with one NIC a node (NCCL's log: 'coll channels'; --channels)");
        return {Topology::one_rank_per_node(ranks, channels)};
    }
    if (per_node != ranks)
        throw UsageError(fmt::format(
            "{} nodes of {} ranks: their rings differ from machine to machine; give --log, --graph or --rings",
            (ranks + per_node - 1) / per_node, per_node));
    if (!options.has("channels"))
        throw UsageError(
            "--channels is missing: their number depends on the machine (NCCL's log: 'coll channels', 24 on "
            "many 8-GPU Hopper nodes)");
    assumptions.emplace_back(
        "one NVSwitch node, ranks in GPU order: every ring 0..n-1, every tree a chain ('samesum reveal')");
    return {Topology::one_node(ranks, channels)};
}

Communicator communicator_from(const Options& options, std::vector<std::string>& assumptions) {
    const int sources = options.has("log") + options.has("graph") + options.has("rings");
    if (sources > 1) throw UsageError("--log, --graph and --rings each give the rings; one of them");
    Communicator comm = options.has("log")     ? from_log(options, assumptions)
                        : options.has("graph") ? from_graph(options, assumptions)
                        : options.has("rings") ? from_rings(options)
                                               : from_layout(options, assumptions);
    if (const auto version = options.find<std::string>("nccl-version")) comm.version = parse_nccl_version(*version);
    if (const auto file = options.find<std::string>("env"))
        apply_environment(parse_environment(read_file(*file), *file), comm.settings);
    if (const auto machine = options.find<std::string>("machine")) comm.machine = parse_machine(*machine);
    const int channels = options.has("channels") ? checked(options, "channels", 1, 64) : 0;
    if (!options.has("log")) {  // a log shows the channels after the limits
        comm.topology = comm.topology.with_channels(channels, channels);
        comm.topology = comm.topology.with_channels(comm.settings.min_channels, comm.settings.max_channels);
    }
    return comm;
}

}  // namespace

void add_communicator_flags(Options& options) {
    options.add()("ranks", po::value<int>()->value_name("N"), "ranks of the communicator")(
        "ranks-per-node", po::value<int>()->value_name("N"), "consecutive ranks that share a node")(
        "rings", po::value<std::string>()->value_name("R;R"), "each channel's ring, e.g. '0,1,2,3;0,3,2,1'")(
        "channels", po::value<int>()->value_name("N"), "collective channels of the communicator")(
        "log", po::value<std::string>()->value_name("FILE"), "an NCCL_DEBUG=INFO log: rings, trees, version, choices")(
        "communicator", po::value<std::string>()->value_name("ID"), "which communicator of the log")(
        "sm", po::value<int>()->value_name("CC"), "compute capability for the log's cost model, e.g. 90")(
        "graph", po::value<std::string>()->value_name("FILE"), "an NCCL_GRAPH_FILE or dump: each channel's GPU lists")(
        "env", po::value<std::string>()->value_name("FILE"), "NCCL_* settings, KEY=VALUE lines")(
        "nccl-version", po::value<std::string>()->value_name("V"), "2.27 to 2.30; default 2.28.9")(
        "machine", po::value<std::string>()->value_name("M"),
        "speeds for NCCL's cost model, e.g. sm=90,cpu=intel,ring=1:1.2:1.2,tree=1:1.2:1.2,ll128=0,nvlink=1\n"
        "(graph=channels:GB/s inside:GB/s between nodes)")("algo", po::value<std::string>()->value_name("A"),
                                                           "algorithm, or NCCL's choice: ring, tree, pat, nvls")(
        "proto", po::value<std::string>()->value_name("P"), "protocol, or NCCL's choice: ll, ll128, simple");
}

void add_call_flags(Options& options) {
    options.add()("collective", po::value<std::string>()->value_name("C"), "reduce, reduce_scatter, all_reduce")(
        "count", po::value<std::string>()->value_name("N"),
        "NCCL's count, e.g. 4096 or 64x2048 (reduce_scatter: of each rank)")(
        "root", po::value<int>()->default_value(0)->value_name("R"), "root of a reduce")(
        "dtype", po::value<std::string>()->default_value("float32")->value_name("T"), "data type")(
        "op", po::value<std::string>()->default_value("sum")->value_name("OP"), "sum, prod, min, max, avg, premulsum")(
        "calls", po::value<std::string>()->value_name("LIST"),
        "a whole group instead, e.g. 'ar:1000;rs:500;reduce:0:64'")(
        "index", po::value<int>()->default_value(0)->value_name("I"), "which call of --calls is asked about")(
        "in-place", "sendbuff is recvbuff")("registered", "registered buffers, or captured in a CUDA graph")(
        "symmetric", po::value<std::string>()->value_name("KERNEL"),
        "both buffers in symmetric windows: the kernel of NCCL's log line '[Symmetric]', e.g. AllReduce_AGxLL_R")(
        "blocks", po::value<int>()->default_value(1)->value_name("B"), "'nchannels' of that line");
}

Scenario scenario_from(const Options& options, bool with_call) {
    std::vector<std::string> assumptions;
    Communicator comm = communicator_from(options, assumptions);
    Scenario scenario{.comm = std::move(comm), .assumptions = std::move(assumptions)};
    if (const auto algorithm = options.find<std::string>("algo"))
        scenario.forced.algorithm = parse_algorithm(*algorithm);
    if (const auto protocol = options.find<std::string>("proto")) scenario.forced.protocol = parse_protocol(*protocol);
    if (!with_call) return scenario;

    const Format format = parse_format(options.get<std::string>("dtype"));
    if (const auto calls = options.find<std::string>("calls")) {
        scenario.group = parse_calls(*calls, format);
        const int index = checked(options, "index", 0, static_cast<int>(scenario.group.size()) - 1);
        scenario.index = static_cast<std::size_t>(index);
    } else {
        scenario.group = {{.collective = parse_collective(options.get<std::string>("collective")),
                           .count = parse_count(options.get<std::string>("count"), "count"),
                           .format = format,
                           .root = options.get<int>("root")}};
    }
    scenario.symmetric_kernel = options.find<std::string>("symmetric").value_or("");
    scenario.symmetric_blocks = options.get<int>("blocks");
    if (options.has("root") && scenario.call().collective != Collective::reduce)
        throw UsageError(
            fmt::format("--root goes with --collective reduce; {} has none", name(scenario.call().collective)));
    for (Call& call : scenario.group) {
        call.operation = parse_operation(options.get<std::string>("op"));
        call.in_place = options.has("in-place");
        call.registered = options.has("registered");
        if (call.collective == Collective::reduce && (call.root < 0 || call.root >= scenario.comm.ranks()))
            throw UsageError(fmt::format("root {} is not a rank; 0 to {}", call.root, scenario.comm.ranks() - 1));
    }
    return scenario;
}

}  // namespace samesum
