// The description is JSON; every field is checked before it is used.
// SPDX-License-Identifier: Apache-2.0
#include "model/input/custom_collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "model/support/error.hpp"
#include "model/support/json_fields.hpp"

namespace samesum {
namespace {

using Json = nlohmann::json;

/// A tree that adds each rank once.
ReductionTree tree_of(const std::string& text, int ranks) {
    const ReductionTree parsed = ReductionTree::parse(text);
    std::vector<int> leaves = parsed.leaves();
    std::sort(leaves.begin(), leaves.end());
    std::vector<int> expected(static_cast<std::size_t>(ranks));
    std::iota(expected.begin(), expected.end(), 0);
    if (leaves != expected)
        throw UsageError(fmt::format("tree {}: expected each of the ranks 0 to {} once", text, ranks - 1));
    return parsed.canonical();
}

std::vector<ReductionTree> trees_of(const Json& order, int ranks) {
    std::vector<ReductionTree> trees;
    if (order == "rank_order") return {Order::rank_order(ranks).as_tree().canonical()};
    if (order == "from_owner") {
        for (int rank = 0; rank < ranks; ++rank) trees.push_back(Order::from_owner(ranks, rank).as_tree().canonical());
        return trees;
    }
    if (order.is_string()) return {tree_of(order.get<std::string>(), ranks)};
    const bool list = order.is_array() && order.size() == static_cast<std::size_t>(ranks) &&
                      std::all_of(order.begin(), order.end(), [](const Json& each) { return each.is_string(); });
    if (!list)
        throw UsageError(fmt::format(
            "field 'order': expected \"rank_order\", \"from_owner\", a tree, or a list of {} trees", ranks));
    for (const Json& each : order) trees.push_back(tree_of(each.get<std::string>(), ranks));
    return trees;
}

CustomPath parse_path(const Json& json, int ranks, std::size_t index) {
    if (!json.is_object()) throw UsageError("not a JSON object");
    CustomPath path;
    path.name = fmt::format("path {}", index);
    path.trees = trees_of(json_field(json, "order"), ranks);
    for (const auto& [key, value] : json.items()) {
        const auto bytes = [&, &own = key] {
            return static_cast<std::uint64_t>(whole_field(json, own.c_str(), 1, std::int64_t{1} << 62));
        };
        if (key == "name")
            path.name = text_field(json, "name");
        else if (key == "below_bytes")
            path.below_bytes = bytes();
        else if (key == "multiple_of_bytes")
            path.multiple_of_bytes = bytes();
        else if (key == "rounding")
            path.accumulation = parse_accumulation(text_field(json, "rounding"));
        else if (key != "order")
            throw UsageError(
                fmt::format("field '{}': expected name, below_bytes, multiple_of_bytes, rounding or order", key));
    }
    return path;
}

/// Puts the place in front of an error.
template <class Read>
auto at(const std::string& where, Read&& read) {
    try {
        return read();
    } catch (const UsageError& error) {
        throw UsageError(fmt::format("{}: {}", where, error.what()));
    }
}

}  // namespace

std::optional<std::size_t> CustomCollective::path(std::uint64_t bytes) const {
    for (std::size_t i = 0; i < paths.size(); ++i)
        if (paths[i].takes(bytes)) return i;
    return std::nullopt;
}

CustomCollective parse_custom(std::string_view text, const std::string& file) {
    const Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded() || !json.is_object()) throw UsageError(fmt::format("{}: not a JSON object", file));
    return at(file, [&] {
        CustomCollective custom;
        if (json.contains("name")) custom.name = text_field(json, "name");
        custom.ranks = static_cast<int>(whole_field(json, "ranks", 1, 1024));
        const Json& paths = json_field(json, "paths");
        if (!paths.is_array() || paths.empty()) throw UsageError("field 'paths': expected a list of at least one path");
        for (std::size_t i = 0; i < paths.size(); ++i)
            custom.paths.push_back(
                at(fmt::format("path {}", i), [&] { return parse_path(paths[i], custom.ranks, i); }));
        return custom;
    });
}

bool same_class(const CustomPath& a, const CustomPath& b) {
    if (a.accumulation != b.accumulation) return false;
    // A list of equal trees is one tree.
    const auto one_order = [](const CustomPath& path) {
        return std::all_of(path.trees.begin(), path.trees.end(),
                           [&](const auto& tree) { return tree == path.trees[0]; });
    };
    if (one_order(a) && one_order(b)) return a.trees[0] == b.trees[0];
    return a.trees == b.trees;
}

}  // namespace samesum
