// A record says what ran and what came out; nothing of what came out is used to predict it.
// SPDX-License-Identifier: Apache-2.0
#include "model/records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "model/error.hpp"

namespace samesum {
namespace {

using Json = nlohmann::json;

const Json& field(const Json& json, const char* key) {
    const auto place = json.find(key);
    if (place == json.end()) throw UsageError(fmt::format("the record has no field '{}'", key));
    return *place;
}

std::string text(const Json& json, const char* key) {
    const Json& value = field(json, key);
    if (!value.is_string()) throw UsageError(fmt::format("field '{}' is not text", key));
    return value.get<std::string>();
}

std::int64_t whole(const Json& value, const char* key, std::int64_t least, std::int64_t most) {
    if (!value.is_number_integer()) throw UsageError(fmt::format("field '{}' is not a whole number", key));
    const auto number = value.get<std::int64_t>();
    if (number < least || number > most)
        throw UsageError(fmt::format("field '{}' is {}; {} to {} would be right", key, number, least, most));
    return number;
}

std::uint64_t number_in(std::string_view word, std::string_view what) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (word.empty() || error != std::errc{} || end != word.data() + word.size())
        throw UsageError(fmt::format("'{}' is no {}", word, what));
    return number;
}

/// "Channel 00/02 : 0 1 2 3"
Ring ring_of_line(const std::string& line) {
    const std::size_t colon = line.find(" : ");
    if (!line.starts_with("Channel ") || colon == std::string::npos)
        throw UsageError(fmt::format("'{}' is no ring; it reads like 'Channel 00/02 : 0 1 2 3'", line));
    return parse_ring(std::string_view(line).substr(colon + 3));
}

/// Rank 0's links of one channel as NCCL prints them: " [0] 2/-1/-1->0->-1".
std::string links_of_rank0(const Topology& topology, std::size_t channel) {
    const TreeLinks& links = *topology.channels()[channel].tree;
    const auto& down = links.down[0];
    return fmt::format(" [{}] {}/{}/{}->0->{}", channel, down[0], down[1], down[2], links.up[0]);
}

std::string links_of_rank0(const Topology& topology) {
    std::string line = "Trees";
    for (std::size_t channel = 0; channel < topology.channels().size(); ++channel)
        line += links_of_rank0(topology, channel);
    return line;
}

/// Each node's ranks in the order in which a ring visits them.
std::vector<std::vector<int>> by_node(const Ring& ring, int ranks_per_node) {
    std::vector<std::vector<int>> nodes((ring.size() + static_cast<std::size_t>(ranks_per_node) - 1) /
                                        static_cast<std::size_t>(ranks_per_node));
    // Start at the node's entry: a ring written from rank 0 may begin in the middle of node 0.
    std::size_t start = 0;
    for (std::size_t i = 0; i < ring.size(); ++i)
        if (ring[i] / ranks_per_node != ring[(i + ring.size() - 1) % ring.size()] / ranks_per_node &&
            ring[i] / ranks_per_node == 0)
            start = i;
    for (std::size_t i = 0; i < ring.size(); ++i) {
        const int rank = ring[(start + i) % ring.size()];
        nodes[static_cast<std::size_t>(rank / ranks_per_node)].push_back(rank);
    }
    return nodes;
}

/// The machine on which the recordings of this kind are made: several "nodes" on one or two GPUs, joined by sockets of
/// which NCCL's search reports 1.2 GB/s a channel, and 2.4 GB/s inside a node for trees ("bw 2.400000/1.200000"). With
/// two nodes that is what PAT goes by.
Machine recording_machine(int search_channels, bool graph_file) {
    Machine machine;
    machine.ring = {search_channels, 1.2, 1.2, 0, true, !graph_file};
    machine.tree = {search_channels, 2.4, 1.2, 0, true, !graph_file};
    return machine;
}

/// The record's rings, joined from as many search channels as `reversed` has; a node's tree list is its part of the
/// ring, or that read backwards.
Topology joined(const Record& record, TreePattern pattern, const std::vector<bool>& reversed) {
    std::vector<std::vector<NodeLists>> lists;
    for (std::size_t c = 0; c < reversed.size(); ++c) {
        const auto nodes = by_node(record.rings[c], record.ranks_per_node);
        lists.resize(nodes.size());
        for (std::size_t node = 0; node < nodes.size(); ++node) {
            std::vector<int> tree = nodes[node];
            if (reversed[c]) std::reverse(tree.begin(), tree.end());
            lists[node].push_back({nodes[node], tree, tree.size() == 1 ? TreePattern::tree : pattern});
        }
    }
    const int channels = static_cast<int>(record.rings.size());
    return Topology::from_node_lists(lists).with_channels(channels, channels);
}

}  // namespace

std::optional<SaidByNccl> parse_choice_line(std::string_view line) {
    static const std::regex form(
        R"((\w+): (\d+) Bytes -> Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\})");
    std::match_results<std::string_view::const_iterator> found;
    if (!std::regex_search(line.begin(), line.end(), found, form)) return std::nullopt;
    const auto word = [&](int i) {
        const auto& sub = found[static_cast<std::size_t>(i)];
        return std::string_view(&*sub.first, static_cast<std::size_t>(sub.length()));
    };
    return SaidByNccl{parse_collective(word(1)),
                      number_in(word(2), "byte count"),
                      parse_algorithm(word(3)),
                      parse_protocol(word(4)),
                      static_cast<int>(number_in(word(5), "channel")),
                      static_cast<int>(number_in(word(6), "channel"))};
}

std::vector<Call> parse_calls(std::string_view text, Format format) {
    std::vector<Call> calls;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(';', begin), text.size());
        const std::string_view item = text.substr(begin, end - begin);
        begin = end + 1;
        const std::size_t first = item.find(':'), last = item.rfind(':');
        Call call{.format = format};
        if (first == std::string_view::npos)
            throw UsageError(fmt::format("'{}' is no call; it reads like ar:1000, rs:1000 or reduce:ROOT:1000", item));
        call.collective = parse_collective(item.substr(0, first));
        if ((call.collective == Collective::reduce) != (first != last))
            throw UsageError(fmt::format("'{}' is no call; it reads like ar:1000, rs:1000 or reduce:ROOT:1000", item));
        call.count = number_in(item.substr(last + 1), "count");
        if (first != last) call.root = static_cast<int>(number_in(item.substr(first + 1, last - first - 1), "root"));
        calls.push_back(call);
    }
    return calls;
}

Record parse_record(std::string_view line) {
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_discarded() || !json.is_object()) throw UsageError("not a JSON object");
    Record record;
    record.ranks = static_cast<int>(whole(field(json, "nranks"), "nranks", 1, 1 << 20));
    record.ranks_per_node = static_cast<int>(whole(field(json, "ranks_per_node"), "ranks_per_node", 1, record.ranks));
    const Format format = parse_format(text(json, "dtype"));
    record.call = {.collective = parse_collective(text(json, "collective")),
                   .count = static_cast<std::uint64_t>(whole(field(json, "count"), "count", 0, std::int64_t{1} << 40)),
                   .format = format};
    if (record.call.collective == Collective::reduce)
        record.call.root = static_cast<int>(whole(field(json, "root"), "root", 0, record.ranks - 1));
    if (const auto group = json.find("group"); group != json.end()) {
        record.group = parse_calls(text(json, "group"), format);
        record.index = static_cast<std::size_t>(
            whole(field(json, "index"), "index", 0, static_cast<std::int64_t>(record.group.size()) - 1));
    }
    record.algorithms = text(json, "env_algo");
    record.protocols = text(json, "env_proto");
    record.min_channels = text(json, "env_nch");
    record.graph = text(json, "graph_file");
    record.rank0_trees = text(json, "rank0_trees");
    record.gpu = json.contains("gpu") ? text(json, "gpu") : "";
    record.version = json.contains("nccl_version") ? parse_nccl_version(text(json, "nccl_version")) : NcclVersion{};
    const std::string said = text(json, "nccl_says");
    for (std::size_t begin = 0; begin < said.size();) {
        const std::size_t end = std::min(said.find(" | ", begin), said.size());
        if (const auto choice = parse_choice_line(std::string_view(said).substr(begin, end - begin)))
            record.said.push_back(*choice);
        begin = end + 3;
    }
    for (const Json& ring : field(json, "rings")) {
        if (!ring.is_string()) throw UsageError("field 'rings' holds something else than text");
        record.rings.push_back(ring_of_line(ring.get<std::string>()));
    }
    for (const Json& tree : field(json, "trees")) {
        if (!tree.is_string()) throw UsageError("field 'trees' holds something else than text");
        record.trees.push_back(ReductionTree::parse(tree.get<std::string>()).canonical());
    }
    std::uint64_t covered = 0;
    for (const Json& segment : field(json, "segments")) {
        if (!segment.is_array() || segment.size() != 3) throw UsageError("a segment is not [begin, end, tree]");
        constexpr std::int64_t most = std::int64_t{1} << 60;
        const Record::Range range{static_cast<std::uint64_t>(whole(segment[0], "segments", 0, most)),
                                  static_cast<std::uint64_t>(whole(segment[1], "segments", 0, most)),
                                  static_cast<std::size_t>(whole(segment[2], "segments", 0, most))};
        if (range.begin != covered || range.end <= range.begin || range.tree >= record.trees.size())
            throw UsageError(fmt::format("segment [{}, {}, {}] does not continue at {} with one of {} trees",
                                         range.begin, range.end, range.tree, covered, record.trees.size()));
        covered = range.end;
        record.segments.push_back(range);
    }
    if (covered != record.call.total(record.ranks))
        throw UsageError(fmt::format("the segments cover {} of {} elements", covered, record.call.total(record.ranks)));
    return record;
}

Communicator communicator_of(const Record& record) {
    const std::size_t channels = record.rings.size();
    if (channels == 0) throw UsageError("the record names no rings");
    // The nodes' own lists are not in a record; they are the ones whose links NCCL printed for rank 0.
    for (std::size_t searched = 1; searched <= std::max<std::size_t>(1, channels / 2); ++searched)
        for (const TreePattern pattern : {TreePattern::balanced, TreePattern::split, TreePattern::tree}) {
            std::vector<bool> reversed(searched);
            const Topology straight = joined(record, pattern, reversed);
            for (std::size_t c = 0; c < std::min(searched, channels); ++c)
                reversed[c] = !record.rank0_trees.empty() &&
                              (record.rank0_trees + " ").find(links_of_rank0(straight, c) + " ") == std::string::npos;
            const Topology topology = joined(record, pattern, reversed);
            bool same = record.rank0_trees.empty() || links_of_rank0(topology) == record.rank0_trees;
            for (std::size_t c = 0; same && c < channels; ++c)
                same = rotated(topology.ring(static_cast<int>(c)), 0) == rotated(record.rings[c], 0);
            if (!same) continue;
            Communicator comm{topology, record.version};
            // Inside one node the ranks talk over NVLink, of whose speed a record says nothing.
            if (topology.nodes() > 1)
                comm.machine = recording_machine(static_cast<int>(searched), !record.graph.empty());
            if (!record.algorithms.empty()) set_algorithms(comm.settings, record.algorithms);
            if (!record.protocols.empty()) set_protocols(comm.settings, record.protocols);
            return comm;
        }
    throw UsageError(fmt::format("rank 0's links '{}' fit no known way of joining the nodes", record.rank0_trees));
}

Match check_record(const Record& record) {
    using enum Match::Outcome;
    std::optional<Communicator> comm;
    try {
        comm = communicator_of(record);
    } catch (const UsageError& error) {
        return {not_modelled, error.what()};
    }
    const std::vector<Call> calls = record.group.empty() ? std::vector{record.call} : record.group;
    Forced forced;
    if (!comm->machine && !record.said.empty()) forced = {record.said.front().algorithm, record.said.front().protocol};
    const std::vector<Plan> plans = plan_group(*comm, calls, forced);
    if (plans.size() != record.said.size())
        return {differs, fmt::format("NCCL reports {} calls, predicted are {}", record.said.size(), plans.size())};
    std::size_t own = plans.size();
    for (std::size_t i = 0; i < plans.size(); ++i) {
        const Plan& plan = plans[i];
        const SaidByNccl& said = record.said[i];
        if (plan.index == record.index) own = i;
        const auto show = [](Collective collective, std::uint64_t bytes, Algorithm algorithm, Protocol protocol,
                             int first, int last) {
            return fmt::format("{}: {} Bytes {} {} channels {}..{}", name(collective), bytes, name(algorithm),
                               name(protocol), first, last);
        };
        const std::string reported =
            show(said.collective, said.bytes, said.algorithm, said.protocol, said.first_channel, said.last_channel);
        const Call& call = plan.task.call;
        const std::string predicted =
            show(call.collective, call.count * static_cast<std::uint64_t>(traits(call.format).bytes()),
                 plan.task.choice.algorithm, plan.task.choice.protocol, plan.parts.front().channel,
                 plan.parts.back().channel);
        if (reported != predicted) return {differs, fmt::format("NCCL ran {}; predicted {}", reported, predicted)};
    }
    ensure(own < plans.size(), "the record's call is one of its group");
    const Schedule& schedule = plans[own].schedule;

    std::vector<std::pair<Order, ReductionTree>> unfolded;  // few orders, many segments
    const auto canonical = [&](const Order& order) -> const ReductionTree& {
        for (const auto& [known, tree] : unfolded)
            if (known == order) return tree;
        return unfolded.emplace_back(order, order.as_tree().canonical()).second;
    };
    for (const Record::Range& range : record.segments) {
        std::string why;
        schedule.visit(range.begin, range.end, [&](const Segment& segment) {
            if (!segment.order.observable()) {
                why = "not observable: " + segment.order.why_not();
                return false;
            }
            const ReductionTree& predicted = canonical(segment.order);
            if (predicted == record.trees[range.tree]) return true;
            why = fmt::format("elements [{}, {}): revealed {}, predicted {}", segment.begin, segment.end,
                              record.trees[range.tree].str(), predicted.str());
            return false;
        });
        if (!why.empty()) return {differs, why};
    }
    return {};
}

}  // namespace samesum
