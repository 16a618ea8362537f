// Every field is checked before it is used.
// SPDX-License-Identifier: Apache-2.0
#include "model/input/recording.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "model/support/error.hpp"
#include "model/support/json_fields.hpp"
#include "model/support/numbers.hpp"
#include "model/support/text.hpp"

namespace samesum {
namespace {

using Json = nlohmann::json;

int whole_int(const Json& object, const char* key, int min, int max) {
    return static_cast<int>(whole_field(object, key, min, max));
}

/// The texts of a list.
std::vector<std::string> texts_field(const Json& object, const char* key) {
    std::vector<std::string> texts;
    for (const Json& each : json_field(object, key)) {
        if (!each.is_string()) throw UsageError(fmt::format("field '{}': expected a list of texts", key));
        texts.push_back(each.get<std::string>());
    }
    return texts;
}

/// "Channel 00/02 : 0 1 2 3"
Ring ring_of_line(const std::string& line) {
    const std::size_t colon = line.find(" : ");
    if (!line.starts_with("Channel ") || colon == std::string::npos)
        throw UsageError(fmt::format("ring '{}': expected a line like 'Channel 00/02 : 0 1 2 3'", line));
    return parse_ring(std::string_view(line).substr(colon + 3));
}

/// "AllReduce: 64 Bytes -> Algo ... | Reduce: ...": the calls of a group, as NCCL's log says them.
std::vector<LoggedChoice> choices_in(std::string_view said) {
    std::vector<LoggedChoice> choices;
    while (!said.empty()) {
        const std::size_t end = std::min(said.find(" | "), said.size());
        if (auto choice = parse_choice_line(said.substr(0, end)); choice && choice->last_channel) {
            choice->collective = parse_collective(choice->function);
            choices.push_back(*choice);
        }
        said.remove_prefix(std::min(end + 3, said.size()));
    }
    return choices;
}

/// The ranges cover all elements in turn.
std::vector<RevealedRange> segments_in(const Json& json, std::size_t trees, std::uint64_t elements) {
    std::vector<RevealedRange> ranges;
    std::uint64_t covered = 0;
    for (const Json& segment : json_field(json, "segments")) {
        if (!segment.is_array() || segment.size() != 3)
            throw UsageError("field 'segments': expected a list of [begin, end, tree]");
        const auto number = [&](std::size_t i) {
            return static_cast<std::uint64_t>(whole_value(segment[i], "segments", 0, std::int64_t{1} << 60));
        };
        const RevealedRange range{number(0), number(1), static_cast<std::size_t>(number(2))};
        if (range.begin != covered || range.end <= range.begin || range.tree >= trees)
            throw UsageError(fmt::format("segment [{}, {}, {}]: expected one that begins at {}, with one of {} trees",
                                         range.begin, range.end, range.tree, covered, trees));
        covered = range.end;
        ranges.push_back(range);
    }
    if (covered != elements) throw UsageError(fmt::format("the segments cover {} of {} elements", covered, elements));
    return ranges;
}

Call parse_call(std::string_view text, Format format) {
    const auto parts = split(text, ':');
    const auto refuse = [&] {
        throw UsageError(fmt::format("call '{}': expected e.g. ar:1000, rs:1000 or reduce:ROOT:1000", text));
    };
    if (parts.size() < 2) refuse();
    Call call{.collective = parse_collective(parts.front()), .format = format};
    if (parts.size() != (call.collective == Collective::reduce ? 3 : 2)) refuse();
    const auto count = integer_in<std::uint64_t>(parts.back());
    const auto root = parts.size() == 3 ? integer_in<int>(parts[1]) : std::optional(0);
    if (!count || !root) refuse();
    call.count = *count;
    call.root = *root;
    return call;
}

}  // namespace

std::vector<Call> parse_calls(std::string_view text, Format format) {
    std::vector<Call> calls;
    for (const std::string_view item : split(text, ';')) calls.push_back(parse_call(item, format));
    return calls;
}

Record parse_record(std::string_view line) {
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_discarded() || !json.is_object()) throw UsageError("not a JSON object");
    Record record;
    record.ranks = whole_int(json, "nranks", 1, 1 << 20);
    record.ranks_per_node = whole_int(json, "ranks_per_node", 1, record.ranks);
    const Format format = parse_format(text_field(json, "dtype"));
    record.call = {.collective = parse_collective(text_field(json, "collective")),
                   .count = static_cast<std::uint64_t>(whole_field(json, "count", 0, std::int64_t{1} << 40)),
                   .format = format};
    if (record.call.collective == Collective::reduce) record.call.root = whole_int(json, "root", 0, record.ranks - 1);
    if (json.contains("group")) {
        record.group = parse_calls(text_field(json, "group"), format);
        record.index =
            static_cast<std::size_t>(whole_field(json, "index", 0, static_cast<std::int64_t>(record.group.size()) - 1));
    }
    record.algorithms = text_field(json, "env_algo");
    record.protocols = text_field(json, "env_proto");
    record.min_channels = text_field(json, "env_nch");
    record.graph = text_field(json, "graph_file");
    record.rank0_trees = text_field(json, "rank0_trees");
    record.gpu = json.contains("gpu") ? text_field(json, "gpu") : "";
    record.version =
        json.contains("nccl_version") ? parse_nccl_version(text_field(json, "nccl_version")) : NcclVersion{};
    record.choices = choices_in(text_field(json, "nccl_says"));
    for (const std::string& ring : texts_field(json, "rings")) record.rings.push_back(ring_of_line(ring));
    for (const std::string& tree : texts_field(json, "trees"))
        record.trees.push_back(ReductionTree::parse(tree).canonical());
    record.segments = segments_in(json, record.trees.size(), record.call.total(record.ranks));
    return record;
}

}  // namespace samesum
