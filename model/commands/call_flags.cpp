// Flags to descriptions: each is read by its own grammar, files are read here.
// SPDX-License-Identifier: Apache-2.0
#include "model/commands/call_flags.hpp"

#include "model/input/environment_file.hpp"
#include "model/input/recording.hpp"
#include "model/support/files.hpp"

namespace samesum {

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
        "(ring, tree: channels:GB/s inside a node:GB/s between nodes)")(
        "algo", po::value<std::string>()->value_name("A"), "algorithm: ring, tree, pat, nvls; default: NCCL's choice")(
        "proto", po::value<std::string>()->value_name("P"), "protocol: ll, ll128, simple; default: NCCL's choice");
}

void add_call_flags(Options& options) {
    options.add()("collective", po::value<std::string>()->value_name("C"), "reduce, reduce_scatter, all_reduce")(
        "count", po::value<std::string>()->value_name("N"),
        "NCCL's count, e.g. 4096 or 64x2048 (reduce_scatter: of each rank)")(
        "root", po::value<int>()->default_value(0)->value_name("R"), "root of a reduce")(
        "dtype", po::value<std::string>()->default_value("float32")->value_name("T"), "data type")(
        "op", po::value<std::string>()->default_value("sum")->value_name("OP"), "sum, prod, min, max, avg, premulsum")(
        "calls", po::value<std::string>()->value_name("LIST"),
        "a group of calls instead of one, e.g. 'ar:1000;rs:500;reduce:0:64'")(
        "index", po::value<int>()->default_value(0)->value_name("I"), "which call of --calls is shown")(
        "in-place", "sendbuff is recvbuff")("registered", "registered buffers, or captured in a CUDA graph")(
        "symmetric", po::value<std::string>()->value_name("KERNEL"),
        "both buffers in symmetric windows: the kernel of NCCL's log line '[Symmetric]', e.g. AllReduce_AGxLL_R")(
        "blocks", po::value<int>()->default_value(1)->value_name("B"), "'nchannels' of that line");
}

CommunicatorDescription communicator_from(const Options& options) {
    CommunicatorDescription description{.ranks = options.find<int>("ranks"),
                                        .ranks_per_node = options.find<int>("ranks-per-node"),
                                        .channels = options.find<int>("channels"),
                                        .log_communicator = options.find<std::string>("communicator").value_or(""),
                                        .compute_capability = options.find<int>("sm")};
    if (const auto rings = options.find<std::string>("rings")) description.rings = parse_rings(*rings);
    if (const auto file = options.find<std::string>("log")) description.log = parse_nccl_log(read_file(*file), *file);
    if (const auto file = options.find<std::string>("graph"))
        description.graph = parse_graph_file(read_file(*file), *file);
    if (const auto file = options.find<std::string>("env"))
        description.environment = parse_environment(read_file(*file), *file);
    if (const auto text = options.find<std::string>("nccl-version")) description.version = parse_nccl_version(*text);
    if (const auto text = options.find<std::string>("machine")) description.machine = parse_machine(*text);
    if (const auto text = options.find<std::string>("algo")) description.forced.algorithm = parse_algorithm(*text);
    if (const auto text = options.find<std::string>("proto")) description.forced.protocol = parse_protocol(*text);
    return description;
}

CallDescription call_from(const Options& options) {
    CallDescription description{.communicator = communicator_from(options),
                                .format = parse_format(options.get<std::string>("dtype")),
                                .operation = parse_operation(options.get<std::string>("op")),
                                .index = options.get<int>("index"),
                                .in_place = options.has("in-place"),
                                .registered = options.has("registered"),
                                .symmetric_kernel = options.find<std::string>("symmetric").value_or(""),
                                .symmetric_blocks = options.get<int>("blocks")};
    if (const auto calls = options.find<std::string>("calls")) {
        description.group = parse_calls(*calls, description.format);
    } else {
        if (const auto text = options.find<std::string>("collective")) description.collective = parse_collective(*text);
        if (const auto text = options.find<std::string>("count")) description.count = parse_count(*text, "count");
    }
    if (options.has("root")) description.root = options.get<int>("root");
    return description;
}

}  // namespace samesum
