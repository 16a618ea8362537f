// samesum order calls: which of a job's recorded calls depend on owner, position or count.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "model/analysis/call_classes.hpp"
#include "model/commands/call_flags.hpp"
#include "model/commands/commands.hpp"
#include "model/commands/order_text.hpp"
#include "model/input/call_description.hpp"
#include "model/input/call_stream.hpp"
#include "model/support/files.hpp"
#include "model/support/output.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;

Options calls_options() {
    Options options(
        "order calls FILE... [flags]",
        "Which calls of a job depend on owner, position or count? FILE is what the job's processes wrote under\n"
        "libsamesum-nccl.so.2 with SAMESUM_POLICY=observe. Equal calls are counted together; algorithm and protocol\n"
        "are the model's prediction, and its assumptions are printed first.\n"
        "Exit 0 when the question is answered; with --expect invariant 1 when some sum depends on something.",
        {"LD_PRELOAD=libsamesum-nccl.so.2 SAMESUM_POLICY=observe torchrun --nproc-per-node 8 job.py",
         "samesum order calls samesum-calls.*.jsonl",
         "samesum order calls calls.jsonl --ranks-per-node 8 --channels 24 --expect invariant"});
    add_communicator_flags(options);
    options.with_json().positional("FILE", -1);
    options.add()("expect", po::value<std::string>()->value_name("WHAT"),
                  "invariant: exit 1 when a sum depends on owner, position or count");
    return options;
}

/// A communicator of a recorded job: what the flags say about it, else what its process recorded.
CommunicatorDescription described(CommunicatorDescription given, const CallStream& stream,
                                  const RecordedCommunicator& recorded) {
    given.ranks = recorded.ranks;
    if (!given.log) {
        if (!given.version) given.version = stream.version;
        if (!given.environment) given.environment = stream.environment;
    }
    if (given.ranks_per_node || given.log || given.graph || given.rings) return given;
    const bool together = recorded.ranks <= recorded.gpus_seen.value_or(8);
    given.ranks_per_node = together ? recorded.ranks : 1;
    if (together && !given.channels) given.channels = 24;
    given.assumptions.push_back(
        together ? fmt::format("{} ranks on one node with {} channels, as on many 8-GPU Hopper nodes (NCCL's log: "
                               "'nNodes', 'coll channels'; --ranks-per-node, --channels, --log)",
                               recorded.ranks, *given.channels)
                 : fmt::format("each of {} ranks on a node of its own (NCCL's log: 'nNodes'; --ranks-per-node, "
                               "--rings, --log)",
                               recorded.ranks));
    return given;
}

/// Settings or policies under which a call of this class depends on nothing.
std::string_view remedy(OrderClass order_class) {
    switch (order_class) {
        case OrderClass::owner_dependent:
            return "SAMESUM_POLICY=ordered, or direct where NVLink joins the ranks; fixed_root while all channels "
                   "share one ring";
        case OrderClass::position_dependent:
        case OrderClass::count_dependent:
            return "SAMESUM_POLICY=ordered or direct; for averages ncclSum, then a division";
        case OrderClass::not_observable:
            return "NCCL_NVLS_ENABLE=0 and NCCL_COLLNET_ENABLE=0, or SAMESUM_POLICY=ordered or direct";
        default:
            return {};
    }
}

struct Count {
    std::size_t kinds = 0, calls = 0;
};

/// The calls counted by class, and what follows from the counts.
struct Totals {
    std::map<OrderClass, Count> classes{};
    std::size_t sums = 0, dependent = 0, not_observable = 0;

    explicit Totals(const std::vector<ClassifiedCalls>& all) {
        for (const ClassifiedCalls& each : all) {
            ++classes[each.order_class].kinds;
            classes[each.order_class].calls += each.times;
            if (each.order_class != OrderClass::nothing_added) sums += each.times;
            if (depends(each.order_class)) dependent += each.times;
            if (each.order_class == OrderClass::not_observable) not_observable += each.times;
        }
    }
};

/// "RING, SIMPLE, channels 0..3, captured, grouped".
std::string how_it_ran(const ClassifiedCalls& each) {
    std::string how = each.prediction;
    if (each.call.did != "forwarded") how = how.empty() ? each.call.did : fmt::format("{}, {}", each.call.did, how);
    if (each.call.captured) how += how.empty() ? "captured" : ", captured";
    if (each.call.group != 0) how += how.empty() ? "grouped" : ", grouped";
    return how;
}

std::string text_of(const std::vector<ClassifiedCalls>& all, const Totals& totals) {
    std::string text = fmt::format("{:>9}  {:<13} {:>12} {:<11} {:<9} {:>5} {:>5}  {:<18} {}\n", "times", "collective",
                                   "count", "dtype", "op", "root", "ranks", "order", "why");
    for (const ClassifiedCalls& each : all) {
        const RecordedCall& call = each.call;
        const std::string how = how_it_ran(each);
        text += fmt::format("{:>9}  {:<13} {:>12} {:<11} {:<9} {:>5} {:>5}  {:<18} {}{}{}\n", each.times,
                            call.collective, call.count, call.format ? name(*call.format) : "no type",
                            call.reducing ? name(call.operation) : "",
                            call.reducing == Collective::reduce ? std::to_string(call.root) : "", each.ranks,
                            name(each.order_class), each.why, each.why.empty() || how.empty() ? "" : "; ", how);
    }
    text += "\n";
    for (const auto& [order_class, count] : totals.classes) {
        const std::string_view better = remedy(order_class);
        text += fmt::format("{} {}, {} {}: {}{}{}\n", count.calls, count.calls == 1 ? "call" : "calls", count.kinds,
                            count.kinds == 1 ? "kind" : "kinds", name(order_class),
                            better.empty() ? "" : "; remedy: ", better);
    }
    return text + fmt::format("{} of {} sums depend on owner, position or count\n", totals.dependent, totals.sums);
}

Json json_of(const std::vector<ClassifiedCalls>& all, const Totals& totals, std::size_t calls,
             const std::vector<std::string>& assumptions) {
    Json kinds = Json::array(), classes = Json::object();
    for (const ClassifiedCalls& each : all)
        kinds.push_back({{"times", each.times},
                         {"collective", each.call.collective},
                         {"count", each.call.count},
                         {"dtype", each.call.format ? name(*each.call.format) : "no type"},
                         {"op", each.call.reducing ? name(each.call.operation) : ""},
                         {"root", each.call.root},
                         {"ranks", each.ranks},
                         {"captured", each.call.captured},
                         {"in_place", each.call.in_place},
                         {"grouped", each.call.group != 0},
                         {"did", each.call.did},
                         {"prediction", each.prediction},
                         {"order", name(each.order_class)},
                         {"why", each.why},
                         {"remedy", remedy(each.order_class)}});
    for (const auto& [order_class, count] : totals.classes)
        classes[std::string(name(order_class))] = {{"calls", count.calls}, {"kinds", count.kinds}};
    return {{"assumptions", assumptions},    {"calls", calls},     {"sums", totals.sums},
            {"dependent", totals.dependent}, {"classes", classes}, {"kinds", kinds}};
}

}  // namespace

Exit order_calls(std::span<const std::string> arguments) {
    Options options = calls_options();
    if (!options.parse(arguments)) return Exit::as_claimed;
    const auto expected = options.find<std::string>("expect");
    if (expected && *expected != "invariant")
        throw UsageError(fmt::format("--expect '{}': expected invariant", *expected));
    if (options.words().empty())
        throw UsageError("expected a file of calls, as SAMESUM_POLICY=observe writes it; see --help");
    const CommunicatorDescription given = communicator_from(options);
    std::vector<CallStream> streams;
    std::size_t calls = 0;
    for (const std::string& file : options.words()) {
        streams.push_back(parse_call_stream(read_file(file), file));
        calls += streams.back().calls.size();
    }
    std::vector<std::string> assumptions;
    const std::vector<ClassifiedCalls> all = classify_calls(
        streams,
        [&](const CallStream& stream, const RecordedCommunicator& recorded) {
            return resolve(described(given, stream, recorded));
        },
        assumptions);
    const Totals totals(all);
    Exit exit = Exit::as_claimed;
    if (totals.sums == 0)
        exit = Exit::inconclusive;
    else if (expected && totals.dependent > 0)
        exit = Exit::not_as_claimed;
    else if (expected && totals.not_observable > 0)
        exit = Exit::inconclusive;
    return emit(options, assumptions_text(assumptions) + text_of(all, totals), json_of(all, totals, calls, assumptions),
                exit);
}

}  // namespace samesum
