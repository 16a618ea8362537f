// A record says what ran and what came out; nothing of what came out is used to predict it.
// SPDX-License-Identifier: Apache-2.0
#include "model/input/recording.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <regex>

#include "model/support/error.hpp"

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

std::int64_t whole(const Json& value, const char* key, std::int64_t min, std::int64_t max) {
    if (!value.is_number_integer()) throw UsageError(fmt::format("field '{}' is not a whole number", key));
    const auto number = value.get<std::int64_t>();
    if (number < min || number > max)
        throw UsageError(fmt::format("field '{}' is {}; {} to {} would be right", key, number, min, max));
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
        constexpr std::int64_t max = std::int64_t{1} << 60;
        const Record::Range range{static_cast<std::uint64_t>(whole(segment[0], "segments", 0, max)),
                                  static_cast<std::uint64_t>(whole(segment[1], "segments", 0, max)),
                                  static_cast<std::size_t>(whole(segment[2], "segments", 0, max))};
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

}  // namespace samesum
