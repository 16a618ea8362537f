// From a description to what is planned. The closed forms of rings and trees hold for two layouts only
// (reduction-order rules of NCCL 2.28.9, graph/connect.cc and graph/search.cc): one rank a node, and one NVSwitch node;
// the rings of every other layout must be given.
// SPDX-License-Identifier: Apache-2.0
#include "model/input/call_description.hpp"

#include <fmt/format.h>

#include <utility>

#include "model/nccl/settings.hpp"
#include "model/nccl/symmetric_kernels.hpp"
#include "model/support/error.hpp"
#include "model/support/input_names.hpp"
#include "model/support/numbers.hpp"
#include "model/support/text.hpp"

namespace samesum {
namespace {

constexpr int max_ranks = 1 << 20;

void check_range(const char* flag, int value, int min, int max) {
    if (value < min || value > max)
        throw UsageError(fmt::format("{} {}: expected {} to {}", input_name(flag), value, min, max));
}

/// A given value, checked, else `otherwise`.
int checked(const char* flag, std::optional<int> value, int min, int max, int otherwise) {
    if (!value) return otherwise;
    check_range(flag, *value, min, max);
    return *value;
}

void check_ranks(const CommunicatorDescription& description, int ranks, std::string_view source) {
    if (description.ranks && *description.ranks != ranks)
        throw UsageError(fmt::format("{} {}, but {} has {}", input_name("ranks"), *description.ranks, source, ranks));
}

Communicator from_log(const CommunicatorDescription& description, std::vector<std::string>& assumptions) {
    const LogCommunicator& found = description.log->communicator(description.log_communicator);
    Communicator comm = found.communicator(description.version, description.compute_capability);
    check_ranks(description, comm.ranks(), description.log->file);
    assumptions.insert(assumptions.end(), found.assumptions.begin(), found.assumptions.end());
    return comm;
}

Communicator from_graph(const CommunicatorDescription& description, std::vector<std::string>& assumptions) {
    const GraphFile& graph = *description.graph;
    const int per_node = checked("ranks-per-node", description.ranks_per_node, 1, max_ranks, graph.gpus);
    const int ranks = checked("ranks", description.ranks, 1, max_ranks, per_node);
    if (ranks % per_node != 0)
        throw UsageError(fmt::format("{} {}: expected a multiple of {} {}", input_name("ranks"), ranks,
                                     input_name("ranks-per-node"), per_node));
    Communicator comm = communicator_from_graph(graph, ranks / per_node, per_node);
    const auto given = graph_assumptions(graph, ranks / per_node);
    assumptions.insert(assumptions.end(), given.begin(), given.end());
    return comm;
}

Communicator from_rings(const CommunicatorDescription& description) {
    if (description.rings->empty())
        throw UsageError(fmt::format("{}: expected a ring for each channel, e.g. 0,1,2,3", input_name("rings")));
    const int per_node = checked("ranks-per-node", description.ranks_per_node, 1, max_ranks, 1);
    Communicator comm{Topology::from_rings(*description.rings, per_node)};
    check_ranks(description, comm.ranks(), input_name("rings"));
    return comm;
}

/// The layouts whose rings have a closed form.
Communicator from_layout(const CommunicatorDescription& description, std::vector<std::string>& assumptions) {
    const auto called = [](const char* flag) { return input_name(flag); };
    if (!description.ranks)
        throw missing_input("ranks", fmt::format(" (or {}, {}, {})", called("rings"), called("log"), called("graph")));
    const int ranks = checked("ranks", description.ranks, 1, max_ranks, 1);
    const int channels = checked("channels", description.channels, 1, 64, 2);
    if (ranks == 1) return {Topology::one_rank_per_node(1, channels)};
    if (!description.ranks_per_node)
        throw UsageError(
            fmt::format("the rings are not known: expected {0} 1 (each rank its own node: rank order), {0} {1} (one "
                        "NVSwitch node), {2}, {3} or {4}",
                        called("ranks-per-node"), ranks, called("rings"), called("log"), called("graph")));
    const int per_node = checked("ranks-per-node", description.ranks_per_node, 1, ranks, 1);
    if (per_node == 1) {
        if (!description.channels)
            assumptions.push_back(fmt::format("2 channels, as with one NIC a node (NCCL's log: 'coll channels'; {})",
                                              called("channels")));
        return {Topology::one_rank_per_node(ranks, channels)};
    }
    if (per_node != ranks)
        throw UsageError(
            fmt::format("{} nodes of {} ranks: their rings differ from machine to machine; expected {}, "
                        "{} or {}",
                        (ranks + per_node - 1) / per_node, per_node, called("log"), called("graph"), called("rings")));
    if (!description.channels)
        throw UsageError(
            fmt::format("{} is missing: their number depends on the machine (NCCL's log: 'coll channels', 24 on many "
                        "8-GPU Hopper nodes)",
                        called("channels")));
    assumptions.emplace_back(
        "one NVSwitch node, ranks in GPU order: every ring 0..n-1, every tree a chain ('samesum reveal')");
    return {Topology::one_node(ranks, channels)};
}

Communicator communicator_of(const CommunicatorDescription& description, std::vector<std::string>& assumptions) {
    const int sources = description.log.has_value() + description.graph.has_value() + description.rings.has_value();
    if (sources > 1)
        throw UsageError(fmt::format("{}, {} and {} each give the rings: expected one of them", input_name("log"),
                                     input_name("graph"), input_name("rings")));
    Communicator comm = description.log     ? from_log(description, assumptions)
                        : description.graph ? from_graph(description, assumptions)
                        : description.rings ? from_rings(description)
                                            : from_layout(description, assumptions);
    if (description.version) comm.version = *description.version;
    if (description.environment) apply_environment(*description.environment, comm.settings);
    if (description.machine) comm.machine = description.machine;
    const int channels = checked("channels", description.channels, 1, 64, 0);
    if (!description.log) {  // a log shows the channels after the limits
        comm.topology = comm.topology.with_channels(channels, channels);
        comm.topology = comm.topology.with_channels(comm.settings.min_channels, comm.settings.max_channels);
    }
    return comm;
}

double real_number(std::string_view word, std::string_view where) {
    const auto number = real_in(word);
    if (!number || *number < 0 || *number >= 1e6)
        throw UsageError(
            fmt::format("{} {}: '{}': expected a number from 0 to 1e6", input_name("machine"), where, word));
    return *number;
}

GraphSpeed graph_speed(std::string_view key, std::string_view value) {
    const auto parts = split(value, ':');
    if (parts.size() != 3)
        throw UsageError(fmt::format("{}: '{}={}': expected channels:inside:between, e.g. {}=1:1.2:1.2",
                                     input_name("machine"), key, value, key));
    GraphSpeed speed;
    speed.channels = static_cast<int>(real_number(parts[0], key));
    speed.bw_intra = real_number(parts[1], key);
    speed.bw_inter = real_number(parts[2], key);
    return speed;
}

}  // namespace

ResolvedCommunicator resolve(const CommunicatorDescription& description) {
    std::vector<std::string> assumptions = description.assumptions;
    Communicator comm = communicator_of(description, assumptions);
    return {std::move(comm), description.forced, std::move(assumptions)};
}

ResolvedCall resolve(const CallDescription& description) {
    ResolvedCall resolved{resolve(description.communicator)};
    if (!description.group.empty()) {
        check_range("index", description.index, 0, static_cast<int>(description.group.size()) - 1);
        resolved.group = description.group;
        resolved.index = static_cast<std::size_t>(description.index);
    } else {
        if (!description.collective) throw missing_input("collective");
        if (!description.count) throw missing_input("count");
        resolved.group = {
            {.collective = *description.collective, .count = *description.count, .root = description.root.value_or(0)}};
    }
    resolved.symmetric_kernel = description.symmetric_kernel;
    resolved.symmetric_blocks = description.symmetric_blocks;
    if (description.root && resolved.call().collective != Collective::reduce)
        throw UsageError(fmt::format("{} goes with {} reduce; {} has none", input_name("root"),
                                     input_name("collective"), name(resolved.call().collective)));
    for (Call& call : resolved.group) {
        call.format = description.format;
        call.operation = description.operation;
        call.in_place = description.in_place;
        call.registered = description.registered;
        if (call.collective == Collective::reduce && (call.root < 0 || call.root >= resolved.comm.ranks()))
            throw UsageError(fmt::format("{} {} is not a rank: expected 0 to {}",
                                         description.group.empty() ? input_name("root") : "root", call.root,
                                         resolved.comm.ranks() - 1));
    }
    return resolved;
}

void assume_ring_and_simple(ResolvedCommunicator& resolved) {
    if (resolved.comm.machine) return;
    if (!resolved.forced.algorithm) {
        resolved.forced.algorithm = Algorithm::ring;
        resolved.assumptions.push_back(fmt::format("ring for every collective (NCCL's log: '-> Algo'; {}, {})",
                                                   input_name("algo"), input_name("machine")));
    }
    if (!resolved.forced.protocol) {
        resolved.forced.protocol = Protocol::simple;
        resolved.assumptions.push_back(fmt::format("Simple for every call (NCCL's log: 'proto'; {}, {})",
                                                   input_name("proto"), input_name("machine")));
    }
}

Plan ResolvedCall::plan() const {
    if (!symmetric_kernel.empty()) return plan_symmetric(comm, call(), {symmetric_kernel, symmetric_blocks});
    if (call().count == 0) return plan_call(comm, call(), forced);
    for (Plan& plan : plan_group(comm, group, forced))
        if (plan.index == index) return std::move(plan);
    throw UsageError("the call is not one of its group");
}

std::uint64_t parse_count(std::string_view text, std::string_view flag) {
    std::uint64_t product = 1;
    for (const std::string_view factor : split(text, 'x')) {
        const auto number = integer_in<std::uint64_t>(factor);
        constexpr std::uint64_t max = std::uint64_t{1} << 44;
        if (!number || *number > max || (*number != 0 && product > max / *number))
            throw UsageError(fmt::format("{} '{}': expected a number up to 2^44, or a product like 64x2048",
                                         input_name(flag), text));
        product *= *number;
    }
    return product;
}

std::vector<Ring> parse_rings(std::string_view text) {
    std::vector<Ring> rings;
    for (const std::string_view ring : split(text, ';')) rings.push_back(parse_ring(ring));
    return rings;
}

Machine parse_machine(std::string_view text) {
    Machine machine;
    bool nvlink = true, same_channels = true;
    for (const std::string_view item : split(text, ',')) {
        const std::size_t equals = item.find('=');
        const std::string_view key = item.substr(0, equals);
        const std::string_view value = equals == std::string_view::npos ? "" : item.substr(equals + 1);
        if (key == "sm")
            machine.compute_capability = static_cast<int>(real_number(value, "sm"));
        else if (key == "cpu" && (value == "intel" || value == "amd" || value == "other"))
            machine.cpu = value == "intel" ? CpuVendor::intel : value == "amd" ? CpuVendor::amd : CpuVendor::other;
        else if (key == "ring")
            machine.ring = graph_speed(key, value);
        else if (key == "tree")
            machine.tree = graph_speed(key, value);
        else if (key == "ll128")
            machine.ll128 = real_number(value, "ll128") != 0;
        else if (key == "nvlink")
            nvlink = real_number(value, "nvlink") != 0;
        else if (key == "same_channels")
            same_channels = real_number(value, "same_channels") != 0;
        else
            throw UsageError(
                fmt::format("{}: '{}': expected one of sm=90, cpu=intel|amd|other, ring=C:I:B, tree=C:I:B, ll128=0|1, "
                            "nvlink=0|1, same_channels=0|1",
                            input_name("machine"), item));
    }
    if (machine.ring.channels == 0)
        throw UsageError(fmt::format("{}: ring=channels:inside:between is missing", input_name("machine")));
    for (GraphSpeed* speed : {&machine.ring, &machine.tree}) {
        speed->nvlink = nvlink;
        speed->same_channels = same_channels;
    }
    return machine;
}

std::string describe(const Call& call, int ranks) {
    const std::string what = fmt::format("{} of {} {}", name(call.collective), call.count, name(call.format));
    switch (call.collective) {
        case Collective::reduce:
            return fmt::format("{} to root {} over {} ranks", what, call.root, ranks);
        case Collective::reduce_scatter:
            return fmt::format("{} a rank over {} ranks", what, ranks);
        default:
            return fmt::format("{} over {} ranks", what, ranks);
    }
}

std::string describe(const ResolvedCall& resolved) { return describe(resolved.call(), resolved.comm.ranks()); }

std::string describe(const Plan& plan) {
    if (plan.accumulation == Accumulation::fp32_once) return "symmetric kernel, float32 sums rounded once";
    if (plan.parts.empty()) return "nothing to do";
    return fmt::format("{}, {}, channels {}..{}", name(plan.task.choice.algorithm), name(plan.task.choice.protocol),
                       plan.parts.front().channel, plan.parts.back().channel);
}

}  // namespace samesum
