// samesum order paths: a custom collective, and the batch sizes at which its order changes.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/commands/commands.hpp"
#include "model/input/custom_collective.hpp"
#include "model/sum/draw_tree.hpp"
#include "model/support/files.hpp"
#include "model/support/options.hpp"
#include "model/support/output.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;

Options paths_options() {
    Options options(
        "order paths FILE --row BYTES [flags]",
        "For a collective that switches between several algorithms by size or alignment, described in FILE (JSON): "
        "the\n"
        "numbers of rows at which a row's order or rounding changes, and what each path depends on.\n"
        "Exit 1 when rows of one batch size and of another are summed differently.\n\n"
        "FILE: {\"ranks\": 4, \"paths\": [{\"name\": \"one stage\", \"below_bytes\": 524288, \"multiple_of_bytes\": "
        "16,\n"
        "\"order\": \"rank_order\", \"rounding\": \"fp32_once\"}, {\"name\": \"two stages\", \"order\": "
        "\"from_owner\"}]}\n"
        "order: rank_order; from_owner (one equal part a rank, summed from that rank on); a tree; a list of trees.",
        {"samesum order paths custom.json --row 10240 --rows 4096",
         "samesum order paths custom.json --row 4 --rows 64"});
    options.with_json().positional("FILE", 1);
    options.add()("row", po::value<std::uint64_t>()->value_name("BYTES"), "bytes of one row (one token)")(
        "rows", po::value<std::uint64_t>()->default_value(4096)->value_name("N"), "examine 1 to N rows");
    return options;
}

/// Numbers of rows [first, last] that take one path.
struct RowRange {
    std::uint64_t first, last;
    std::size_t path;
};

std::vector<RowRange> ranges_of(const CustomCollective& custom, const std::string& file, std::uint64_t row,
                                std::uint64_t max) {
    std::vector<RowRange> ranges;
    for (std::uint64_t rows = 1; rows <= max; ++rows) {
        const auto path = custom.path(rows * row);
        if (!path) throw UsageError(fmt::format("{}: no path takes {} rows ({} bytes)", file, rows, rows * row));
        if (ranges.empty() || ranges.back().path != *path) ranges.push_back({rows, rows, *path});
        ranges.back().last = rows;
    }
    return ranges;
}

/// Each path in use, in the order of its first range.
std::vector<const CustomPath*> used_paths(const CustomCollective& custom, const std::vector<RowRange>& ranges) {
    std::vector<const CustomPath*> used;
    for (const RowRange& range : ranges)
        if (const CustomPath* path = &custom.paths[range.path]; std::find(used.begin(), used.end(), path) == used.end())
            used.push_back(path);
    return used;
}

/// Do the parts of a buffer have different orders?
bool by_part(const CustomPath& path) {
    return std::any_of(path.trees.begin(), path.trees.end(), [&](const auto& tree) { return tree != path.trees[0]; });
}

std::string_view dependence(const CustomPath& path) {
    return by_part(path) ? "depends on the row's place among the rows: owner, position and count"
                         : "depends on nothing: owner-, position- and count-free";
}

std::string_view conclusion(bool invariant) {
    return invariant ? "every row is summed the same way in every batch"
                     : "a row's bits depend on how many rows are in the batch";
}

std::string text_of(const CustomCollective& custom, const std::vector<RowRange>& ranges,
                    const std::vector<const CustomPath*>& used) {
    std::string text = fmt::format("{:>10} {:>10}  path\n", "rows from", "to");
    constexpr std::size_t max_shown = 24;
    for (std::size_t i = 0; i < std::min(ranges.size(), max_shown); ++i)
        text += fmt::format("{:>10} {:>10}  {}\n", ranges[i].first, ranges[i].last, custom.paths[ranges[i].path].name);
    if (ranges.size() > max_shown) text += fmt::format("{:>10} {} ranges in all\n", "...", ranges.size());
    text += "\n";
    for (const CustomPath* path : used)
        text += fmt::format("{}: {}, {}; {}\n", path->name, shortened(path->trees[0], 60), name(path->accumulation),
                            dependence(*path));
    return text;
}

}  // namespace

Exit order_paths(std::span<const std::string> arguments) {
    Options options = paths_options();
    if (!options.parse(arguments)) return Exit::as_claimed;
    if (options.words().empty()) throw UsageError("expected the file that describes the collective; see --help");
    const std::string file = options.words().front();
    const CustomCollective custom = parse_custom(read_file(file), file);
    const auto row = options.get<std::uint64_t>("row"), max = options.get<std::uint64_t>("rows");
    if (row == 0 || row > (1u << 30)) throw UsageError(fmt::format("--row {}: expected 1 to 2^30 bytes", row));
    if (max == 0 || max > (1u << 24)) throw UsageError(fmt::format("--rows {}: expected 1 to 2^24", max));
    const std::vector<RowRange> ranges = ranges_of(custom, file, row, max);
    const std::vector<const CustomPath*> used = used_paths(custom, ranges);
    bool invariant = true;
    Json json{
        {"name", custom.name}, {"row_bytes", row}, {"rows", max}, {"ranges", Json::array()}, {"paths", Json::array()}};
    for (const RowRange& range : ranges)
        json["ranges"].push_back({range.first, range.last, custom.paths[range.path].name});
    for (const CustomPath* path : used) {
        invariant = invariant && !by_part(*path) && same_class(*path, *used.front());
        json["paths"].push_back({{"name", path->name},
                                 {"rounding", name(path->accumulation)},
                                 {"by_part", by_part(*path)},
                                 {"depends", dependence(*path)},
                                 {"tree", path->trees[0].str()}});
    }
    json["invariant"] = invariant;
    json["conclusion"] = conclusion(invariant);
    return emit(options, fmt::format("{}\n{}\n", text_of(custom, ranges, used), conclusion(invariant)), json,
                invariant ? Exit::as_claimed : Exit::not_as_claimed);
}

}  // namespace samesum
