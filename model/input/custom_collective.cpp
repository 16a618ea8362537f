// The description is JSON; every field is checked before it is believed.
// SPDX-License-Identifier: Apache-2.0
#include "model/input/custom_collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/support/error.hpp"

namespace samesum {
namespace {

using Json = nlohmann::json;

std::vector<ReductionTree> trees_of(const Json& order, int ranks, const std::string& where) {
    const auto tree = [&](const std::string& text) {
        ReductionTree parsed = ReductionTree::parse(text);
        std::vector<int> leaves = parsed.leaves();
        std::sort(leaves.begin(), leaves.end());
        for (int rank = 0; rank < ranks; ++rank)
            if (leaves.size() != static_cast<std::size_t>(ranks) || leaves[static_cast<std::size_t>(rank)] != rank)
                throw UsageError(
                    fmt::format("{}: tree {} does not add each of the ranks 0 to {} once", where, text, ranks - 1));
        return parsed.canonical();
    };
    std::vector<ReductionTree> trees;
    if (order.is_string() && order == "rank_order") return {Order::rank_order(ranks).as_tree().canonical()};
    if (order.is_string() && order == "from_owner") {
        for (int rank = 0; rank < ranks; ++rank) trees.push_back(Order::from_owner(ranks, rank).as_tree().canonical());
        return trees;
    }
    if (order.is_string()) return {tree(order.get<std::string>())};
    if (order.is_array() && order.size() == static_cast<std::size_t>(ranks)) {
        for (const Json& each : order) {
            if (!each.is_string()) break;
            trees.push_back(tree(each.get<std::string>()));
        }
        if (trees.size() == order.size()) return trees;
    }
    throw UsageError(
        fmt::format("{}: 'order' is \"rank_order\", \"from_owner\", a tree, or a list of {} trees", where, ranks));
}

std::uint64_t bytes_of(const Json& json, const char* key, std::uint64_t min, const std::string& where) {
    if (!json.is_number_unsigned() || json.get<std::uint64_t>() < min)
        throw UsageError(fmt::format("{}: '{}' is a number of bytes, at least {}", where, key, min));
    return json.get<std::uint64_t>();
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
    CustomCollective custom;
    if (const auto name = json.find("name"); name != json.end() && name->is_string())
        custom.name = name->get<std::string>();
    const auto ranks = json.find("ranks");
    if (ranks == json.end() || !ranks->is_number_integer() || *ranks < 1 || *ranks > 1024)
        throw UsageError(fmt::format("{}: 'ranks' is a number from 1 to 1024", file));
    custom.ranks = ranks->get<int>();
    const auto paths = json.find("paths");
    if (paths == json.end() || !paths->is_array() || paths->empty())
        throw UsageError(fmt::format("{}: 'paths' is a list of at least one path", file));
    for (const Json& path : *paths) {
        const std::string where = fmt::format("{}: path {}", file, custom.paths.size());
        if (!path.is_object() || !path.contains("order"))
            throw UsageError(fmt::format("{}: 'order' is missing", where));
        CustomPath parsed;
        parsed.name = fmt::format("path {}", custom.paths.size());
        for (const auto& [key, value] : path.items()) {
            if (key == "name" && value.is_string())
                parsed.name = value.get<std::string>();
            else if (key == "below_bytes")
                parsed.below_bytes = bytes_of(value, "below_bytes", 1, where);
            else if (key == "multiple_of_bytes")
                parsed.multiple_of_bytes = bytes_of(value, "multiple_of_bytes", 1, where);
            else if (key == "rounding" && value.is_string())
                parsed.accumulation = parse_accumulation(value.get<std::string>());
            else if (key != "order")
                throw UsageError(
                    fmt::format("{}: '{}' is not name, below_bytes, multiple_of_bytes, rounding or order", where, key));
        }
        parsed.trees = trees_of(path.at("order"), custom.ranks, where);
        custom.paths.push_back(std::move(parsed));
    }
    return custom;
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
