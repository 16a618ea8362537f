// samesum sum witness: small numbers that two orders add to different bits.
// SPDX-License-Identifier: Apache-2.0
#include "model/sum/witness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/commands/commands.hpp"
#include "model/commands/sum_values.hpp"
#include "model/support/output.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;

Options witness_options() {
    Options options("sum witness [flags]",
                    "Small readable numbers that two orders add to different bits: M, -M and 1, zeros elsewhere. With "
                    "--leaves: for every\npair of orders of N values. Exit 1 when the orders are the same.",
                    {"samesum sum witness --tree '((0 1) 2)' --other '(0 (1 2))'",
                     "samesum sum witness --ranks 8 --tree ring:0 --other ring:3 --dtype bfloat16",
                     "samesum sum witness --leaves 4 --dtype float8_e5m2"});
    options.add()("tree", word("ORDER"), order_help)("other", word("ORDER"), "the order to distinguish it from")(
        "ranks", po::value<int>()->default_value(0)->value_name("N"), "for orders that are named, not written out")(
        "leaves", po::value<int>()->value_name("N"), "every pair of orders of N values, 3 to 6")(
        "dtype", word("T"), "data type; default: every float format")(
        "limit", po::value<std::size_t>()->default_value(20)->value_name("N"), "maximum number of pairs to print");
    options.with_json();
    return options;
}

std::vector<Format> formats_in(const Options& options) {
    const auto dtype = options.find<std::string>("dtype");
    if (!dtype) return {float_formats.begin(), float_formats.end()};
    const Format format = parse_format(*dtype);
    if (!traits(format).is_float)
        throw UsageError(fmt::format("--dtype {}: integers add to the same bits in every order", *dtype));
    return {format};
}

std::vector<ReductionTree> trees_in(const Options& options) {
    if (const auto leaves = options.find<int>("leaves")) {
        if (*leaves < 3 || *leaves > 6)
            throw UsageError(fmt::format("--leaves {}: expected 3 to 6; for more, --tree and --other", *leaves));
        if (options.has("tree") || options.has("other")) throw UsageError("--leaves or --tree and --other, not both");
        return all_trees(*leaves);
    }
    std::vector<ReductionTree> trees;
    for (const char* flag : {"tree", "other"})
        trees.push_back(parse_order(options.get<std::string>(flag), options.get<int>("ranks")));
    if (trees[0].leaf_count() != trees[1].leaf_count())
        throw UsageError(fmt::format("--tree adds {} values, --other {}: no values fit both", trees[0].leaf_count(),
                                     trees[1].leaf_count()));
    return trees;
}

struct Pair {
    Format format;
    const ReductionTree &tree, &other;
    SeparatingWitness witness;
};

struct Witnesses {
    std::size_t pairs = 0, told_apart = 0;
    std::vector<Pair> shown{};  ///< the first `limit` that are told apart
};

Witnesses find_witnesses(const std::vector<Format>& formats, const std::vector<ReductionTree>& trees,
                         std::size_t limit) {
    Witnesses found;
    for (const Format format : formats)
        for (std::size_t i = 0; i < trees.size(); ++i)
            for (std::size_t k = i + 1; k < trees.size(); ++k) {
                ++found.pairs;
                const auto witness = separating_witness(trees[i], trees[k], format);
                if (!witness) continue;
                if (++found.told_apart <= limit) found.shown.push_back({format, trees[i], trees[k], *witness});
            }
    return found;
}

constexpr std::string_view same_orders = "the same order, up to swapping operands: no values tell them apart";

Json json_of(const Witnesses& found) {
    Json json{{"witnesses", Json::array()}, {"pairs", found.pairs}, {"told_apart", found.told_apart}};
    for (const Pair& pair : found.shown) {
        Json values = Json::array();
        for (const Bits leaf : pair.witness.leaves) values.push_back(value_json(pair.format, leaf));
        json["witnesses"].push_back({{"dtype", name(pair.format)},
                                     {"leaves", values},
                                     {"tree", pair.tree.str()},
                                     {"gives", value_json(pair.format, pair.witness.left)},
                                     {"other", pair.other.str()},
                                     {"other_gives", value_json(pair.format, pair.witness.right)}});
    }
    if (found.told_apart == 0) json["why"] = same_orders;
    return json;
}

std::string text_of(const Witnesses& found) {
    std::string text;
    for (const Pair& pair : found.shown) {
        const std::string first = pair.tree.str(), second = pair.other.str();
        const std::size_t width = std::max(first.size(), second.size());
        text += fmt::format("{}: {}\n  {:<{}}  {}\n  {:<{}}  {}\n", name(pair.format),
                            str_leaves(pair.format, pair.witness.leaves), first, width,
                            value_text(pair.format, pair.witness.left), second, width,
                            value_text(pair.format, pair.witness.right));
    }
    if (found.told_apart > found.shown.size()) text += "... --limit N prints more\n";
    return text + (found.told_apart == 0
                       ? fmt::format("{}\n", same_orders)
                       : fmt::format("{} of {} pairs of orders told apart\n", found.told_apart, found.pairs));
}

}  // namespace

Exit sum_witness(std::span<const std::string> arguments) {
    Options options = witness_options();
    if (!options.parse(arguments)) return Exit::as_claimed;
    const std::vector<Format> formats = formats_in(options);
    const std::vector<ReductionTree> trees = trees_in(options);
    const Witnesses found = find_witnesses(formats, trees, options.get<std::size_t>("limit"));
    return emit(options, text_of(found), json_of(found),
                found.told_apart == found.pairs ? Exit::as_claimed : Exit::not_as_claimed);
}

}  // namespace samesum
