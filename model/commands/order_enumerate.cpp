// samesum order enumerate: all orders of a few values, NCCL's among them, and the results that they reach.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "model/commands/commands.hpp"
#include "model/nccl/order.hpp"
#include "model/nccl/topology.hpp"
#include "model/sum/element_sum.hpp"
#include "model/support/options.hpp"
#include "model/support/output.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;

Options enumerate_options() {
    Options options(
        "order enumerate --ranks N [flags]",
        "Counts and lists the orders of N values: all trees, all chains, and those that NCCL uses; with --values,\n"
        "the results that they reach, each with one order.",
        {"samesum order enumerate --ranks 4", "samesum order enumerate --ranks 4 --values '1e8 1 -1e8 1'",
         "samesum order enumerate --ranks 5 --list nccl"});
    options.with_json();
    options.add()("ranks", po::value<int>()->value_name("N"), "number of values")(
        "list", po::value<std::string>()->value_name("WHICH"), "list the trees: all, nccl")(
        "dtype", po::value<std::string>()->default_value("float32")->value_name("T"), "data type of --values")(
        "values", po::value<std::string>()->value_name("V"), "N values, decimal or 0x bit patterns");
    return options;
}

struct Family {
    std::string what;
    std::vector<ReductionTree> trees;
};

/// The orders in which NCCL may add n ranks on the layouts whose rings are known in closed form.
std::vector<Family> nccl_families(int n) {
    const auto distinct = [](std::vector<ReductionTree> trees) {
        std::sort(trees.begin(), trees.end());
        trees.erase(std::unique(trees.begin(), trees.end()), trees.end());
        return trees;
    };
    const Topology apart = Topology::one_rank_per_node(n, 2), together = Topology::one_node(n, 2);
    std::vector<ReductionTree> ring, pat, cyclic;
    for (int rank = 0; rank < n; ++rank) {
        ring.push_back(Order::ring(apart.channels()[0].ring, rank).as_tree().canonical());
        pat.push_back(Order::pat(n, rank, pat_dimensions(n, 65536, 65536)).as_tree().canonical());
        cyclic.push_back(Order::from_owner(n, rank).as_tree().canonical());
    }
    std::vector<ReductionTree> trees;
    for (const Channel& channel : apart.channels()) trees.push_back(Order::tree(channel.tree).as_tree().canonical());
    return {{"ring 0..n-1 (one for each root, owner or chunk)", distinct(ring)},
            {"double binary tree, one rank a node", distinct(trees)},
            {"tree inside one node (a chain)", {Order::tree(together.channels()[0].tree).as_tree().canonical()}},
            {"PAT (one for each destination)", distinct(pat)},
            {"symmetric kernels: rank order", {Order::rank_order(n).as_tree().canonical()}},
            {"symmetric kernels: from the owner on", distinct(cyclic)}};
}

/// How many trees give a result, and one of them.
struct Reached {
    std::uint64_t trees = 0;
    std::string example{};
};

struct Enumeration {
    int ranks;
    std::uint64_t trees = 1, chains = 1;
    std::vector<Family> families{};
    std::vector<ReductionTree> listed{};  ///< by --list all
    bool list_families = false;           ///< by --list nccl
    Format format = Format::float32;
    std::optional<std::map<Bits, Reached>> results{};
};

Enumeration enumerate(const Options& options) {
    Enumeration found{.ranks = options.get<int>("ranks")};
    const int n = found.ranks;
    if (n < 1 || n > 10) throw UsageError(fmt::format("--ranks {}: expected 1 to 10", n));
    const auto list = options.find<std::string>("list");
    if (list && *list != "all" && *list != "nccl")
        throw UsageError(fmt::format("--list '{}': expected all or nccl", *list));
    found.format = parse_format(options.get<std::string>("dtype"));
    std::vector<Bits> values;
    if (const auto text = options.find<std::string>("values"))
        values = parse_values(found.format, *text, static_cast<std::size_t>(n));
    for (int k = 2; k <= n; ++k) {
        found.trees *= static_cast<std::uint64_t>(2 * k - 3);
        found.chains *= static_cast<std::uint64_t>(k);
    }
    if (n >= 2) found.chains /= 2;
    found.families = nccl_families(n);
    found.list_families = list == "nccl";
    if (list == "all") found.listed = all_trees(n);
    if (values.empty()) return found;
    found.results.emplace();
    for (const ReductionTree& tree : all_trees(n)) {
        Reached& reached = (*found.results)[sum_element({.format = found.format}, tree, values)];
        if (reached.trees++ == 0) reached.example = tree.str();
    }
    return found;
}

Json json_of(const Enumeration& found) {
    Json json{{"ranks", found.ranks}, {"trees", found.trees}, {"chains", found.chains}, {"nccl", Json::array()}};
    for (const Family& family : found.families) {
        Json entry{{"family", family.what}, {"trees", Json::array()}};
        for (const ReductionTree& tree : family.trees) entry["trees"].push_back(tree.str());
        json["nccl"].push_back(entry);
    }
    for (const ReductionTree& tree : found.listed) json["all"].push_back(tree.str());
    if (!found.results) return json;
    json["dtype"] = name(found.format);
    json["results"] = Json::array();
    for (const auto& [bits, reached] : *found.results)
        json["results"].push_back({{"bits", hex(found.format, bits)},
                                   {"value", decimal(found.format, bits)},
                                   {"trees", reached.trees},
                                   {"example", reached.example}});
    return json;
}

std::string text_of(const Enumeration& found) {
    std::string text =
        fmt::format("{:>10}  trees, operands unordered: (2n-3)!!\n{:>10}  chains: n!/2\n", found.trees, found.chains);
    for (const Family& family : found.families) {
        text += fmt::format("{:>10}  NCCL: {}\n", family.trees.size(), family.what);
        if (found.list_families)
            for (const ReductionTree& tree : family.trees) text += fmt::format("{:>12}{}\n", "", tree.str());
    }
    for (const ReductionTree& tree : found.listed) text += tree.str() + "\n";
    if (!found.results) return text;
    text += fmt::format("\n{} results on these values\n", found.results->size());
    for (const auto& [bits, reached] : *found.results)
        text += fmt::format("{:>10}  {}  {:<12} e.g. {}\n", reached.trees, hex(found.format, bits),
                            decimal(found.format, bits), reached.example);
    return text;
}

}  // namespace

Exit order_enumerate(std::span<const std::string> arguments) {
    Options options = enumerate_options();
    if (!options.parse(arguments)) return Exit::as_claimed;
    const Enumeration found = enumerate(options);
    return emit(options, text_of(found), json_of(found), Exit::as_claimed);
}

}  // namespace samesum
