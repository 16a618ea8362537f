// The cost model: time = latency + bytes / bandwidth for every algorithm and protocol; the smallest time wins.
// All constants are NCCL 2.28.9's, graph/tuning.cc; differences of other releases are noted where they apply.
// SPDX-License-Identifier: Apache-2.0
#include "model/nccl/tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>
#include <utility>

#include "model/support/error.hpp"
#include "model/support/input_names.hpp"

namespace samesum {
namespace {

using ByProtocol = std::array<double, 3>;  // LL, LL128, Simple

enum class Generation : std::size_t { volta, ampere, hopper, blackwell };

Generation generation(int compute_capability) {
    if (compute_capability >= 100) return Generation::blackwell;
    if (compute_capability >= 90) return Generation::hopper;
    return compute_capability >= 80 ? Generation::ampere : Generation::volta;
}

/// Limits in GB/s per channel, by generation and by number of nodes (1, 2, more).
using Caps = std::array<std::array<double, 3>, 4>;
constexpr Caps ring_ll128_caps{{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {73.4, 34.6, 73.4}}};
constexpr Caps tree_ll128_caps{{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
constexpr Caps tree_caps{{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
constexpr Caps nvls_tree_caps{{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96, 43.8}}};

constexpr std::array<ByProtocol, 7> base_latency{
    {{6.8, 14, 8.4}, {6.6, 14, 8.4}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {8, 8, 8}}};

enum class Link : std::size_t { nvlink, pci, net };
constexpr std::array<std::array<ByProtocol, 3>, 7> link_latency{{
    {{{.6, 1.25, 4}, {1, 1.9, 4}, {5, 8.5, 14}}},     // tree
    {{{.6, 1.9, 3.4}, {1, 2.5, 5.7}, {2.7, 4, 14}}},  // ring
    {{{0, 0, 3.7}, {0, 0, 3.7}, {0, 0, 31}}},         // collnet direct
    {{{0, 0, 2.8}, {0, 0, 2.8}, {0, 0, 30}}},         // collnet chain
    {{{0, 0, 25}, {0, 0, 25}, {0, 0, 18}}},           // nvls
    {{{0, 0, 25}, {0, 0, 25}, {0, 0, 20.9}}},         // nvls tree
    {{{0, 0, 4}, {0, 0, 4}, {0, 0, 14}}},             // pat
}};

/// Bandwidth of small tree all-reduces, by log2(bytes / 64).
constexpr std::array<std::array<double, 23>, 3> tree_correction{{
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9},
}};

std::size_t index(Protocol protocol) { return static_cast<std::size_t>(protocol); }
std::size_t index(Algorithm algorithm) { return static_cast<std::size_t>(algorithm); }

double capped(const Caps& caps, const Communicator& comm) {
    const std::size_t column = std::min(comm.nodes(), 3) - 1u;
    const Generation gen = generation(comm.machine->compute_capability);
    if (gen == Generation::blackwell && &caps == &ring_ll128_caps && comm.version >= NcclVersion{2, 29, 0}) return 40;
    if (gen == Generation::blackwell && &caps == &nvls_tree_caps && column > 0 && comm.version >= NcclVersion{2, 30, 0})
        return 80;
    return caps[static_cast<std::size_t>(gen)][column];
}

double ll_cap(const Communicator& comm) {
    if (comm.nodes() == 1) {
        constexpr std::array<double, 4> by_generation{39, 87.7, 141, 282};
        return by_generation[static_cast<std::size_t>(generation(comm.machine->compute_capability))];
    }
    const bool amd = comm.machine->cpu != CpuVendor::intel;
    return comm.nodes() == 2 ? (amd ? 22.5 : 39) : (amd ? 19 : 20.4);
}

const GraphSpeed& graph(const Machine& machine, Algorithm algorithm) {
    if (algorithm == Algorithm::ring) return machine.ring;
    if (is_nvls(algorithm)) return machine.nvls_graph;
    return machine.tree;
}

/// Whether a node has the tree pattern "tree". Forced where a node has one GPU.
bool has_tree_pattern(const Communicator& comm) { return comm.ranks() < 2 * comm.nodes(); }

bool allowed(const Communicator& comm, const Call& call, Algorithm algorithm, Protocol protocol) {
    const auto contains = [&](const auto& lists, auto value) {
        const auto list = lists.find(call.collective);
        return list == lists.end() || std::find(list->second.begin(), list->second.end(), value) != list->second.end();
    };
    return contains(comm.settings.algorithms, algorithm) && contains(comm.settings.protocols, protocol);
}

/// Whether NCCL has a kernel for a combination (device/generate.py; enqueue.cc, updateCollCostTable).
bool has_kernel(const Call& call, Algorithm algorithm, Protocol protocol) {
    const bool scaled = call.operation == Operation::avg || call.operation == Operation::premulsum;
    switch (algorithm) {
        case Algorithm::ring:
            return true;
        case Algorithm::tree:
            return call.collective == Collective::all_reduce;
        case Algorithm::pat:
            return protocol == Protocol::simple && call.collective == Collective::reduce_scatter && !scaled;
        case Algorithm::nvls_tree:
            if (call.collective != Collective::all_reduce) return false;
            [[fallthrough]];
        case Algorithm::nvls: {
            // include/device.h, ncclNvlsSupported.
            const bool wide = traits(call.format).width > 8;
            const bool extremes = call.operation == Operation::min || call.operation == Operation::max;
            const bool types = call.operation == Operation::sum ? wide
                                                                : extremes && wide && call.format != Format::float32 &&
                                                                      call.format != Format::float64;
            return protocol == Protocol::simple && call.collective != Collective::reduce && types;
        }
        default:
            return protocol == Protocol::simple && call.collective != Collective::reduce;
    }
}

/// Whether this communicator enables a combination by default.
bool available(const Communicator& comm, const Call& call, Algorithm algorithm, Protocol protocol) {
    if (!has_kernel(call, algorithm, protocol)) return false;
    switch (algorithm) {
        case Algorithm::ring:
        case Algorithm::tree:
            return true;
        case Algorithm::pat:
            return comm.settings.pat_enabled &&
                   (comm.settings.pat_forced ||
                    (comm.nodes() == comm.ranks() && (!comm.machine || comm.machine->pat_network)));
        case Algorithm::nvls:
        case Algorithm::nvls_tree:
            return comm.machine && comm.machine->nvls && comm.settings.nvls_enabled &&
                   (algorithm == Algorithm::nvls) == (comm.nodes() == 1);
        default:
            return false;  // CollNet is off by default
    }
}

double bandwidth(const Communicator& comm, const Call& call, Algorithm algorithm, Protocol protocol) {
    const Machine& machine = *comm.machine;
    const GraphSpeed& speed = graph(machine, algorithm);
    const double n = comm.ranks();
    const double channels = speed.channels;
    const bool inside = comm.nodes() <= 2;
    double bus = channels * (inside ? speed.bw_intra : speed.bw_inter);
    const double steps = call.collective == Collective::all_reduce ? 2 * (n - 1)
                         : call.collective == Collective::reduce   ? n
                                                                   : n - 1;
    switch (algorithm) {
        case Algorithm::ring:
            if (protocol == Protocol::ll) bus = std::min(ll_cap(comm), bus * 0.5);
            if (protocol == Protocol::ll128) bus = std::min(bus * 0.92, channels * capped(ring_ll128_caps, comm));
            return bus * n / steps;
        case Algorithm::tree:
            bus = std::min(bus * 0.92, channels * capped(tree_caps, comm));
            if (protocol == Protocol::ll) bus = std::min(bus / 3.8, ll_cap(comm));
            if (protocol == Protocol::ll128)
                bus = std::min(bus * (comm.nodes() == 1 ? 7.0 / 9.0 : 120.0 / 128.0),
                               channels * capped(tree_ll128_caps, comm));
            if (has_tree_pattern(comm)) bus *= 0.85;
            return bus * 0.5;
        case Algorithm::pat:
            return bus * 0.75;
        case Algorithm::nvls:
        case Algorithm::nvls_tree: {
            if (channels < 2) return 0;
            const double per_node = n / comm.nodes();
            const double efficiency = generation(machine.compute_capability) == Generation::blackwell ? 0.74 : 0.85;
            double b = speed.bw_intra * efficiency * (channels - 1) / channels *
                       (call.collective == Collective::all_reduce ? 2 : (per_node - 1) / per_node);
            if (algorithm == Algorithm::nvls_tree)
                b = std::min({b, speed.bw_inter * (inside ? 2 : 1), capped(nvls_tree_caps, comm)});
            return b * channels * n / steps;
        }
        default:
            return 0;
    }
}

double latency(const Communicator& comm, const Call& call, Algorithm algorithm, Protocol protocol,
               std::uint64_t bytes) {
    const Machine& machine = *comm.machine;
    const GraphSpeed& speed = graph(machine, algorithm);
    const std::size_t a = index(algorithm), p = index(protocol);
    const double base = base_latency[a][p];
    const double n = comm.ranks(), nodes = comm.nodes();
    const auto link = [&](Algorithm which, Link kind) {
        return link_latency[index(which)][static_cast<std::size_t>(kind)][p];
    };
    const Link inside = speed.nvlink ? Link::nvlink : Link::pci;
    const double intra = link(algorithm, inside);
    const bool one_each = comm.ranks() == comm.nodes();
    double inter = link(one_each ? Algorithm::tree : algorithm, Link::net) + speed.latency_inter;
    if (protocol == Protocol::simple) inter += speed.latency_inter;
    const double depth = std::floor(std::log2(nodes));
    switch (algorithm) {
        case Algorithm::ring: {
            if (call.collective == Collective::reduce) {
                const double hop = nodes > 1 ? link(Algorithm::ring, Link::net) : intra;
                if (speed.same_channels) return base + hop;
                const Algorithm which = protocol == Protocol::simple ? Algorithm::tree : Algorithm::ring;
                return base + n * link(which, nodes > 1 ? Link::net : inside);
            }
            const bool all = call.collective == Collective::all_reduce;
            const double steps = all ? 2 * (n - 1) : n - 1;
            const double inter_steps = nodes == 1 ? 0 : all ? 2 * (nodes - 1) : nodes - 1;
            double overhead = 0;
            if (nodes > 1) {
                overhead = comm.settings.net_overhead >= 0 ? comm.settings.net_overhead
                           : machine.cpu == CpuVendor::amd ? 2
                                                           : 1;
                if (protocol == Protocol::simple) overhead *= 3;
            }
            double time = base + (steps - inter_steps) * std::max(intra, overhead) + inter_steps * inter;
            const auto share = bytes / (static_cast<std::uint64_t>(comm.channels()) * static_cast<std::uint64_t>(n));
            if (all && protocol == Protocol::simple && nodes > 1 && share >= 64)
                time *= machine.compute_capability < 80 ? 1.9 : 1.4;
            return time;
        }
        case Algorithm::tree:
            return base + 2 * ((n / nodes - 1) * intra + depth * inter);
        case Algorithm::pat:
            return base + depth * inter / 3.5 + 2.8 * n;
        case Algorithm::nvls:
            return intra + (nodes > 1 ? inter : 0);
        case Algorithm::nvls_tree:
            return base + intra + 2 * depth * inter;
        default:
            return 0;
    }
}

std::uint64_t bytes_of(const Communicator& comm, const Call& call) {
    return call.total(comm.ranks()) * static_cast<std::uint64_t>(traits(call.format).bytes());
}

}  // namespace

std::optional<double> modelled_time(const Communicator& comm, const Call& call, Algorithm algorithm, Protocol protocol,
                                    std::uint64_t bytes, int pipelined_calls) {
    ensure(comm.machine.has_value(), "the cost model needs a machine");
    if (!available(comm, call, algorithm, protocol) || !allowed(comm, call, algorithm, protocol)) return std::nullopt;
    const bool asked_for_ll128 = comm.settings.protocols.contains(call.collective);
    if (protocol == Protocol::ll128 && !comm.machine->ll128 && !asked_for_ll128) return std::nullopt;
    double rate = bandwidth(comm, call, algorithm, protocol);
    if (rate <= 0) return std::nullopt;
    if (algorithm == Algorithm::tree) {
        const std::uint64_t sixty_fourths = bytes / 64;
        if (sixty_fourths > 0) {
            const auto power = static_cast<std::size_t>(std::bit_width(sixty_fourths) - 1);
            if (power < tree_correction[0].size()) rate *= tree_correction[index(protocol)][power];
        } else {
            rate *= tree_correction[index(protocol)][0];
        }
    }
    const int latencies = algorithm == Algorithm::ring ? pipelined_calls : (pipelined_calls + 9) / 10;
    double time =
        latency(comm, call, algorithm, protocol, bytes) * latencies + static_cast<double>(bytes) / (1000 * rate);
    if (algorithm == Algorithm::ring && traits(call.format).width == 8 && traits(call.format).is_float &&
        comm.ranks() > 8)
        time *= 1024;
    return time;
}

int max_channels(const Communicator& comm, const Call& call, Algorithm algorithm, Protocol protocol,
                 std::uint64_t bytes) {
    const int all = comm.channels();
    if (algorithm == Algorithm::pat) return all;
    if (is_nvls(algorithm)) return nvls_channels;
    std::uint64_t threads = 512, threshold = 64;
    if (protocol == Protocol::ll) {
        threshold = algorithm == Algorithm::ring ? 8 * static_cast<std::uint64_t>(comm.ranks()) : 8;
        threads = static_cast<std::uint64_t>(comm.settings.threads.value_or(512));
    } else if (protocol == Protocol::ll128) {
        threads = static_cast<std::uint64_t>(comm.settings.ll128_threads.value_or(640));
        threshold = 8;
    } else {
        const bool slow = algorithm == Algorithm::ring && comm.machine &&
                          comm.machine->ring.bw_intra * comm.machine->ring.channels <= 12;
        threads = static_cast<std::uint64_t>(comm.settings.threads.value_or(slow ? 256 : 512));
    }
    int channels = all;
    while (channels >= 2 && bytes < static_cast<std::uint64_t>(channels) * threads * threshold) --channels;
    // register/coll_reg.cc, ncclRegisterCollBuffers: peers read registered buffers with 16 channels.
    const bool ring_or_tree = algorithm == Algorithm::ring || algorithm == Algorithm::tree;
    if (call.registered && !call.in_place && call.collective == Collective::all_reduce && ring_or_tree &&
        protocol == Protocol::simple && comm.nodes() == 1 && channels > 16 && channels <= 24)
        channels = 16;
    return channels;
}

Choice choose(const Communicator& comm, const Call& call, Forced forced, int pipelined_calls) {
    const std::uint64_t bytes = bytes_of(comm, call);
    if (call.collective == Collective::reduce && !forced.algorithm) forced.algorithm = Algorithm::ring;  // the only one
    std::optional<std::pair<Algorithm, Protocol>> best;
    if (forced.algorithm && forced.protocol) {
        if (!has_kernel(call, *forced.algorithm, *forced.protocol))
            throw UsageError(fmt::format("NCCL has no {} {} kernel for {} ({} of {})", name(*forced.algorithm),
                                         name(*forced.protocol), name(call.collective), name(call.operation),
                                         name(call.format)));
        best = {*forced.algorithm, *forced.protocol};
    } else {
        double min = 0;
        std::vector<std::pair<Algorithm, Protocol>> open;
        for (const Algorithm algorithm : all_algorithms)
            for (const Protocol protocol : all_protocols) {
                if ((forced.algorithm && *forced.algorithm != algorithm) ||
                    (forced.protocol && *forced.protocol != protocol))
                    continue;
                if (!available(comm, call, algorithm, protocol) || !allowed(comm, call, algorithm, protocol)) continue;
                open.emplace_back(algorithm, protocol);
                if (!comm.machine) continue;
                const auto time = modelled_time(comm, call, algorithm, protocol, bytes, pipelined_calls);
                if (time && (!best || *time < min)) {
                    best = {algorithm, protocol};
                    min = *time;
                }
            }
        if (open.empty())
            throw UsageError(fmt::format("no algorithm and protocol are left for {}; NCCL would fail the call",
                                         name(call.collective)));
        if (open.size() == 1) best = open.front();
        if (!best)
            throw UsageError(
                fmt::format("NCCL's choice for {} needs the machine: expected {} and {}, {} with its '-> Algo' lines, "
                            "or {}",
                            name(call.collective), input_name("algo"), input_name("proto"), input_name("log"),
                            input_name("machine")));
    }
    return {best->first, best->second, max_channels(comm, call, best->first, best->second, bytes)};
}

std::vector<GroupedTask> prepare_group(const Communicator& comm, std::span<const Call> calls, Forced forced) {
    const auto traffic = [&](const Call& call) {
        return call.count * static_cast<std::uint64_t>(traits(call.format).bytes()) *
               traffic_per_byte(call.collective, comm.ranks());
    };
    // include/comm.h, ncclTaskCollSorter: bins of traffic, four for each power of two, the largest first.
    const auto bin = [&](const Call& call) -> std::uint64_t {
        const std::uint64_t kib = std::min<std::uint64_t>(traffic(call), 1u << 30) / 1024;
        if (kib < 4) return kib;
        const auto power = static_cast<std::uint64_t>(std::bit_width(kib) - 1);
        return 4 * power - 4 + (kib >> (power - 2)) % 4;
    };
    std::vector<std::size_t> sorted(calls.size());
    for (std::size_t i = 0; i < calls.size(); ++i) sorted[i] = i;
    std::stable_sort(sorted.begin(), sorted.end(), [&](auto a, auto b) { return bin(calls[a]) > bin(calls[b]); });

    // Bins of (function, operation, type), in order of first appearance.
    using Kind = std::tuple<Collective, Operation, Format>;
    std::vector<std::pair<Kind, std::vector<std::size_t>>> kinds;
    for (const std::size_t i : sorted) {
        if (calls[i].count == 0) continue;  // dropped (enqueue.cc, taskAppend)
        const Kind kind{calls[i].collective, calls[i].operation, calls[i].format};
        auto place = std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.first == kind; });
        if (place == kinds.end()) place = kinds.insert(kinds.end(), {kind, {}});
        place->second.push_back(i);
    }
    std::size_t live = 0;
    for (const auto& kind : kinds) live += kind.second.size();
    const int pipelined = static_cast<int>((live + static_cast<std::size_t>(comm.channels()) - 1) /
                                           static_cast<std::size_t>(comm.channels()));

    std::vector<GroupedTask> tasks;
    for (auto& [kind, members] : kinds) {
        // Ascending traffic bins; within a bin, program order.
        std::stable_sort(members.begin(), members.end(), [&](auto a, auto b) {
            return bin(calls[a]) != bin(calls[b]) ? bin(calls[a]) < bin(calls[b]) : a < b;
        });
        for (std::size_t first = 0; first < members.size();) {
            Call aggregate = calls[members[first]];
            std::size_t last = first + 1;
            const std::uint64_t smallest = traffic(aggregate);
            for (; last < members.size() && traffic(calls[members[last]]) < 4 * smallest; ++last)
                aggregate.count += calls[members[last]].count;
            const Choice choice = choose(comm, aggregate, forced, pipelined);
            for (; first < last; ++first) tasks.push_back({{calls[members[first]], choice}, members[first]});
        }
    }
    // NVLS kernels are scheduled after all others.
    std::stable_sort(tasks.begin(), tasks.end(), [](const GroupedTask& a, const GroupedTask& b) {
        return is_nvls(a.task.choice.algorithm) < is_nvls(b.task.choice.algorithm);
    });
    return tasks;
}

}  // namespace samesum
