// samesum sum expect: the predicted share of elements that change between two orders or calls.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/analysis/changed_share.hpp"
#include "model/commands/call_flags.hpp"
#include "model/commands/commands.hpp"
#include "model/commands/order_text.hpp"
#include "model/commands/sum_values.hpp"
#include "model/input/call_description.hpp"
#include "model/support/output.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;

Options expect_options() {
    Options options(
        "sum expect [flags]",
        "Predicts which share of a result's elements has other bits when the order changes, for numbers "
        "drawn at random.\nTwo orders (--before, --after), or two calls: the NCCL flags of `order show`, and "
        "--with for the flags of the second that differ.",
        {"samesum sum expect --ranks 8 --before ring:0 --after ring:4 --dtype bfloat16",
         "samesum sum expect --ranks 8 --before chain --after chain --rounding-after fp32_once --dtype "
         "bfloat16",
         "samesum sum expect --collective all_reduce --ranks 8 --ranks-per-node 1 --algo ring --proto ll "
         "--count 4096 --with '--algo tree'"});
    add_communicator_flags(options);
    add_call_flags(options);
    options.add()("before", word("ORDER"), order_help)("after", word("ORDER"), "the order to compare with")(
        "with", word("FLAGS"), "two calls: the flags of the second that differ, e.g. '--count 8192'")(
        "rounding", word("per_hop", "R"), "per_hop, fp32_once or exact, of both orders")(
        "rounding-after", word("R"), "of the second order, where it differs")(
        "data", word("normal", "MODEL"),
        "normal[:DEVIATION], uniform[:LIMIT], spread[:EXPONENTS] (any exponent from -E to E), integer[:LARGEST]")(
        "samples", po::value<std::uint64_t>()->default_value(200000)->value_name("N"), "elements drawn in all")(
        "seed", po::value<std::uint64_t>()->default_value(1)->value_name("S"), "of the random numbers");
    options.with_json();
    return options;
}

/// Two ways to add, element by element.
struct Comparison {
    std::vector<OrderPair> pairs{};
    SumRule before{}, after{};
    std::vector<std::string> assumptions{};
};

/// `others`: the flags of the second call.
Comparison comparison_in(const Options& options, const Options& others) {
    Comparison compared;
    compared.before = {.format = parse_format(options.get<std::string>("dtype")),
                       .accumulation = parse_accumulation(options.get<std::string>("rounding"))};
    compared.after = compared.before;
    if (const auto rounding = options.find<std::string>("rounding-after"))
        compared.after.accumulation = parse_accumulation(*rounding);
    if (options.get<std::string>("op") != "sum") throw UsageError("--op: shares are predicted for sums");
    if (options.has("before") || options.has("after")) {
        const int ranks = options.find<int>("ranks").value_or(0);
        const ReductionTree first = parse_order(options.get<std::string>("before"), ranks);
        const ReductionTree second =
            parse_order(options.find<std::string>("after").value_or(first.str()), first.leaf_count());
        compared.pairs.push_back({first, second, 1});
        return compared;
    }
    if (!options.has("with"))
        throw UsageError("expected two orders, --before and --after, or a call and --with what changes; see --help");
    const std::array calls{resolve(call_from(options)), resolve(call_from(others))};
    const std::array plans{calls[0].plan(), calls[1].plan()};
    if (calls[0].call().format != calls[1].call().format)
        throw UsageError("--with changes the data type: every element's bits change");
    compared.assumptions = calls[0].assumptions;
    compared.pairs = order_pairs(plans[0].schedule, plans[1].schedule);
    compared.before.accumulation = plans[0].accumulation;
    compared.after.accumulation = plans[1].accumulation;
    return compared;
}

/// The share of one pair of orders.
struct Row {
    const OrderPair& pair;
    Share share{};
    double error = 0;  ///< one standard error
};

struct Prediction {
    std::vector<Row> rows{};
    double share = 0, error = 0;  ///< of all elements
    std::uint64_t drawn = 0;
};

Prediction predict(const Comparison& compared, const DataModel& data, std::uint64_t samples, std::uint64_t seed) {
    Prediction found;
    std::uint64_t elements = 0;
    for (const OrderPair& pair : compared.pairs) elements += pair.elements;
    double variance = 0;
    for (std::size_t i = 0; i < compared.pairs.size(); ++i) {
        const OrderPair& pair = compared.pairs[i];
        const double weight = static_cast<double>(pair.elements) / static_cast<double>(elements);
        Row row{pair};
        // Of equal orders no element changes: nothing is drawn.
        if (compared.before.accumulation != compared.after.accumulation || !same_order(pair.before, pair.after)) {
            const auto part =
                std::max<std::uint64_t>(1000, static_cast<std::uint64_t>(static_cast<double>(samples) * weight));
            row.share =
                changed_share({pair.before, compared.before}, {pair.after, compared.after}, data, part, seed + i);
            row.error = row.share.error();
            found.share += weight * row.share.value();
            variance += weight * weight * row.error * row.error;
            found.drawn += part;
        }
        found.rows.push_back(row);
    }
    found.error = std::sqrt(variance);
    return found;
}

Json json_of(const Comparison& compared, const Prediction& found, const DataModel& data, std::uint64_t seed) {
    Json rows = Json::array();
    for (const Row& row : found.rows)
        rows.push_back({{"before", row.pair.before.str()},
                        {"after", row.pair.after.str()},
                        {"elements", row.pair.elements},
                        {"share", row.share.value()},
                        {"error", row.error}});
    return {{"share", found.share},
            {"standard_error", found.error},
            {"samples", found.drawn},
            {"seed", seed},
            {"dtype", name(compared.before.format)},
            {"data", str(data)},
            {"rounding_before", name(compared.before.accumulation)},
            {"rounding_after", name(compared.after.accumulation)},
            {"assumptions", compared.assumptions},
            {"orders", rows}};
}

std::string text_of(const Comparison& compared, const Prediction& found, const DataModel& data, std::uint64_t seed) {
    std::string text = assumptions_text(compared.assumptions) +
                       fmt::format("{:>9} {:>12}  {} -> {}\n", "changed", "elements",
                                   name(compared.before.accumulation), name(compared.after.accumulation));
    constexpr std::size_t max_rows = 16;
    for (std::size_t i = 0; i < std::min(found.rows.size(), max_rows); ++i) {
        const Row& row = found.rows[i];
        text += fmt::format("{:>8.2f}% {:>12}  {} -> {}\n", 100 * row.share.value(), row.pair.elements,
                            row.pair.before.str(), row.pair.after.str());
    }
    if (found.rows.size() > max_rows)
        text += fmt::format("{:>9} {} pairs of orders in all; --json lists them\n", "...", found.rows.size());
    return text + fmt::format("\n{:.2f} % +- {:.2f} % of the elements change bits ({}, {}, {} samples, seed {})\n",
                              100 * found.share, 100 * found.error, name(compared.before.format), str(data),
                              found.drawn, seed);
}

}  // namespace

Exit sum_expect(std::span<const std::string> arguments) {
    Options options = expect_options(), others = expect_options();
    if (!options.parse(arguments)) return Exit::as_claimed;
    const auto changes = options.find<std::string>("with").value_or("");
    if (!others.parse(with_changes(arguments, po::split_unix(changes)))) return Exit::as_claimed;
    const DataModel data = parse_data_model(options.get<std::string>("data"));
    const std::uint64_t samples = options.get<std::uint64_t>("samples"), seed = options.get<std::uint64_t>("seed");
    if (samples == 0) throw UsageError("--samples 0: expected 1 or more, e.g. 200000");
    const Comparison compared = comparison_in(options, others);
    const Prediction found = predict(compared, data, samples, seed);
    return emit(options, text_of(compared, found, data, seed), json_of(compared, found, data, seed), Exit::as_claimed);
}

}  // namespace samesum
