// Bits are compared, element by element; the model is used through its public interface only.
// SPDX-License-Identifier: Apache-2.0
#include "impl/check/compare_with_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "model/analysis/record_check.hpp"
#include "model/arithmetic/random.hpp"
#include "model/input/nccl_log.hpp"
#include "model/support/error.hpp"

namespace samesum::gpu {
namespace {

const char* record_name(Collective collective) {
    switch (collective) {
        case Collective::reduce:
            return "reduce";
        case Collective::reduce_scatter:
            return "rs";
        case Collective::all_reduce:
            return "ar";
    }
    return "";
}

/// NCCL's choice for the first reducing call in its log; gathers and broadcasts have no order.
Forced choice_said(std::string_view said) {
    const std::size_t begin = said.find("Reduce");
    const auto choice = begin == std::string_view::npos ? std::nullopt : parse_choice_line(said.substr(begin));
    return choice ? Forced{choice->algorithm, choice->protocol} : Forced{};
}

CombinePlan plan_of(const samesum::Communicator& comm, const CombineRun& run, std::string_view said) {
    CombineOptions options{
        .root = run.root, .accumulation = run.accumulation, .ranks_per_node = run.ranks_per_node, .forced = {}};
    if (!comm.machine) options.forced = choice_said(said);
    return plan_combine(run.scheme, comm, run.routing, run.format, options);
}

}  // namespace

samesum::Communicator described_communicator(const LiveRanks& ranks) {
    Record record;
    record.ranks = ranks.ranks();
    record.ranks_per_node = ranks.placement().ranks_per_node;
    record.algorithms = ranks.environment().algorithms;
    record.protocols = ranks.environment().protocols;
    record.graph = ranks.environment().graph_file;
    record.rank0_trees = ranks.start_log().rank0_trees;
    record.version = ranks.hardware().nccl;
    for (const std::string& line : ranks.start_log().rings)
        record.rings.push_back(parse_ring(std::string_view(line).substr(line.find(" : ") + 3)));
    if (ranks.ranks() == 1 && record.rings.empty()) return {Topology::one_rank_per_node(1), record.version};
    try {
        return communicator_of(record);
    } catch (const UsageError&) {
        // The links are not those of nodes that NCCL_HOSTID makes: use the log's own description.
    }
    try {
        const samesum::NcclLog log = parse_nccl_log(ranks.start_log().text, "rank 0's log");
        samesum::Communicator comm =
            log.communicator().communicator(record.version, ranks.hardware().compute_capability);
        if (!record.algorithms.empty()) set_algorithms(comm.settings, record.algorithms);
        if (!record.protocols.empty()) set_protocols(comm.settings, record.protocols);
        return comm;
    } catch (const UsageError& error) {
        throw Inconclusive(fmt::format("NCCL's description of its communicator is not modelled: {}", error.what()));
    }
}

std::string Difference::str(Format format) const {
    std::string text =
        fmt::format("{} elements differ; element {}: real {} ({}), modelled {} ({}) by {}; partials", elements, first,
                    hex(format, real), decimal(format, real), hex(format, modelled), decimal(format, modelled), tree);
    for (const Bits each : partials) text += " " + hex(format, each);
    return text;
}

RowOrders::RowOrders(const samesum::Communicator& comm, const CombineRun& a, std::string_view said_of_a,
                     const CombineRun& b, std::string_view said_of_b)
    : a_(plan_of(comm, a, said_of_a)), b_(plan_of(comm, b, said_of_b)), hidden_(a.routing.hidden) {}

bool RowOrders::differ(std::uint64_t row_of_a, std::uint64_t row_of_b) const {
    for (std::uint64_t done = 0; done < hidden_;) {
        const Segment a = a_.schedule.segment_at(row_of_a * hidden_ + done);
        const Segment b = b_.schedule.segment_at(row_of_b * hidden_ + done);
        if (!(a.order == b.order) && !same_order(a.order, b.order)) return true;
        done = std::min(a.end - row_of_a * hidden_, b.end - row_of_b * hidden_);
    }
    return false;
}

std::vector<std::span<const std::byte>> draw_partials(LiveRanks& ranks, const CombineRun& run, std::uint64_t seed) {
    std::vector<std::span<const std::byte>> partials;
    const std::uint64_t elements = run.routing.elements();
    for (int rank = 0; rank < ranks.ranks(); ++rank) {
        const auto buffer = ranks.input(rank, elements * static_cast<std::uint64_t>(traits(run.format).bytes()));
        // Large buffers repeat a block; its odd length keeps rows from being equal.
        const std::uint64_t block = std::min<std::uint64_t>(elements, (1 << 22) + 3);
        Random random = Random::of(seed, static_cast<std::uint64_t>(rank));
        for (std::uint64_t i = 0; i < block; ++i) store(run.format, buffer, i, random.spread(run.format, 6));
        for (std::size_t done = block * static_cast<std::size_t>(traits(run.format).bytes()); done < buffer.size();) {
            const std::size_t more = std::min(done, buffer.size() - done);
            std::memcpy(buffer.data() + done, buffer.data(), more);
            done += more;
        }
        partials.push_back(buffer);
    }
    return partials;
}

namespace {

std::uint64_t stride_of(std::uint64_t elements) {
    constexpr std::uint64_t max = std::uint64_t{1} << 24;
    // An odd stride reaches every position within a pack and within a chunk.
    return elements <= max ? 1 : elements / max * 2 + 1;
}

}  // namespace

std::uint64_t compared_elements(std::uint64_t elements) {
    const std::uint64_t stride = stride_of(elements);
    return (elements + stride - 1) / stride;
}

std::optional<Difference> first_difference(const samesum::Communicator& comm, const CombineRun& run,
                                           std::span<const std::span<const std::byte>> partials,
                                           std::span<const std::byte> result, std::string_view said) {
    const CombinePlan plan = plan_of(comm, run, said);
    const std::uint64_t stride = stride_of(run.routing.elements());
    std::optional<Difference> difference;
    std::vector<Bits> column(partials.size());
    plan.schedule.visit(0, run.routing.elements(), [&](const Segment& segment) {
        const ReductionTree tree = segment.order.as_tree();
        const SumRule rule = rule_for(segment, run.format, plan.accumulation);
        for (std::uint64_t element = (segment.begin + stride - 1) / stride * stride; element < segment.end;
             element += stride) {
            for (std::size_t rank = 0; rank < partials.size(); ++rank)
                column[rank] = load(run.format, partials[rank], element);
            const Bits modelled = sum_element(rule, tree, column), real = load(run.format, result, element);
            if (modelled == real) continue;
            if (!difference) difference = Difference{0, element, real, modelled, tree.str(), column};
            ++difference->elements;
        }
        return true;
    });
    return difference;
}

std::string record_line(const LiveRanks& ranks, const ReduceGroup& group, std::size_t index, const std::string& said,
                        const Revealed& revealed, std::string_view graph_label) {
    const Call& call = group.calls[index];
    nlohmann::ordered_json record{{"nranks", ranks.ranks()}, {"ranks_per_node", ranks.placement().ranks_per_node}};
    if (group.calls.size() > 1) {
        std::string calls;
        for (const Call& each : group.calls)
            calls +=
                fmt::format("{}{}{}:{}", calls.empty() ? "" : ";", record_name(each.collective),
                            each.collective == Collective::reduce ? fmt::format(":{}", each.root) : "", each.count);
        record["group"] = calls;
        record["index"] = index;
    }
    // This call's part of the whole group's elements.
    std::uint64_t begin = 0;
    for (std::size_t i = 0; i < index; ++i) begin += group.calls[i].total(ranks.ranks());
    const std::uint64_t end = begin + call.total(ranks.ranks());
    std::vector<std::size_t> place(revealed.trees.size(), revealed.trees.size());
    auto trees = nlohmann::ordered_json::array(), segments = nlohmann::ordered_json::array();
    for (const RevealedRange& range : revealed.segments) {
        if (range.end <= begin || range.begin >= end) continue;
        if (place[range.tree] == revealed.trees.size()) {
            place[range.tree] = trees.size();
            trees.push_back(revealed.trees[range.tree].str());
        }
        segments.push_back({std::max(range.begin, begin) - begin, std::min(range.end, end) - begin, place[range.tree]});
    }
    record.update({{"collective", record_name(call.collective)},
                   {"root", call.collective == Collective::reduce ? call.root : -1},
                   {"count", call.count},
                   {"total", call.total(ranks.ranks())},
                   {"dtype", traits(call.format).short_name},
                   {"env_algo", ranks.environment().algorithms},
                   {"env_proto", ranks.environment().protocols},
                   {"graph_file", graph_label},
                   {"env_nch", ranks.environment().min_channels},
                   {"nccl_says", said},
                   {"rings", ranks.start_log().rings},
                   {"rank0_trees", ranks.start_log().rank0_trees},
                   {"random_mismatches", revealed.mismatches},
                   {"trees", trees},
                   {"segments", segments},
                   {"nccl_version", str(ranks.hardware().nccl)},
                   {"gpu", fmt::format("{} sm_{}", ranks.hardware().gpus.front(), ranks.hardware().compute_capability)},
                   {"gpus", ranks.hardware().gpus.size()},
                   {"graphs", ranks.start_log().graphs},
                   {"captured", group.captured}});
    return record.dump();
}

}  // namespace samesum::gpu
