// samesum order show: the orders of one call, as a table, a document or a picture.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/analysis/order_diff.hpp"
#include "model/commands/call_flags.hpp"
#include "model/commands/commands.hpp"
#include "model/commands/order_text.hpp"
#include "model/input/call_description.hpp"
#include "model/sum/draw_tree.hpp"
#include "model/support/files.hpp"
#include "model/support/output.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;

Options show_options() {
    Options options(
        "order show [flags]", "Shows which order makes which elements of a call: segments and their trees.",
        {"samesum order show --collective reduce --count 262144 --ranks 8 --ranks-per-node 1 --proto simple",
         "samesum order show --collective all_reduce --count 4096 --dtype bfloat16 --ranks 8 --ranks-per-node 8 "
         "--channels 24 --algo ring --proto ll",
         "samesum order show --calls 'ar:1000;ar:9000' --index 1 --ranks 4 --ranks-per-node 1 --algo ring --proto ll",
         "samesum order show --collective reduce --count 64x2048 --dtype bfloat16 --log nccl.log --format svg > "
         "order.svg"});
    add_communicator_flags(options);
    add_call_flags(options);
    options.with_json();
    options.add()("format", po::value<std::string>()->default_value("text")->value_name("F"), "text, json, dot, svg")(
        "element", po::value<std::string>()->value_name("E"), "only the order of this element")(
        "limit", po::value<std::size_t>()->default_value(32)->value_name("N"), "maximum number of segments to list");
    return options;
}

/// What is shown of a call: the segments of elements [from, to), as many as the limit allows.
struct Shown {
    const ResolvedCall& resolved;
    const Plan& plan;
    std::uint64_t from, to;
    OrderTable table{};
    std::vector<OrderRow> rows{};

    [[nodiscard]] bool complete() const { return rows.empty() || rows.back().end == to; }
};

/// Where averages are scaled, in words; empty for other operations. The rule itself: element_sum.hpp, SumRule.
std::string scaling_note(const Plan& plan) {
    const Call& call = plan.task.call;
    if (call.operation != Operation::avg && call.operation != Operation::premulsum) return {};
    if (!traits(call.format).is_float)
        return "none on the way; the wrapped sum is divided by the number of ranks at the end";
    const std::string_view factor =
        call.operation == Operation::avg ? "1/n, rounded to the format," : "the given scalar";
    std::string_view hop = "multiplied and added by one fma";
    if (traits(call.format).width == 8)
        hop = "multiplied and rounded, then added and rounded";
    else if (plan.task.choice.protocol == Protocol::ll128)
        hop = traits(call.format).width == 16 ? "multiplied and rounded, then added and rounded"
                                              : "fused or not by the element's position in 1920-byte slices";
    return fmt::format("each rank's own value times {} as it enters; {}", factor, hop);
}

Json json_of(const Shown& shown) {
    Json json{{"call", describe(shown.resolved)},
              {"ran", describe(shown.plan)},
              {"nccl_version", str(shown.resolved.comm.version)},
              {"assumptions", shown.resolved.assumptions}};
    if (const std::string note = scaling_note(shown.plan); !note.empty()) json["scaling"] = note;
    json["elements"] = shown.plan.schedule.size();
    json["segments_total"] = shown.plan.schedule.segment_count();
    json["complete"] = shown.complete();
    json["orders"] = orders_json(shown.table);
    json["trees"] = Json::array();
    json["segments"] = Json::array();
    for (std::size_t i = 0; i < shown.table.size(); ++i) json["trees"].push_back(tree_json(shown.table.order(i)));
    for (const OrderRow& row : shown.rows) json["segments"].push_back({row.begin, row.end, row.order, row.channel});
    return json;
}

std::string text_of(const Shown& shown) {
    std::string text = fmt::format("{}: {} (NCCL {})\n{}", describe(shown.resolved), describe(shown.plan),
                                   str(shown.resolved.comm.version), assumptions_text(shown.resolved.assumptions));
    if (const std::string note = scaling_note(shown.plan); !note.empty()) text += fmt::format("scaling: {}\n", note);
    text += fmt::format("\n{:>14} {:>14} {:>14}  {:>7}  order\n", "begin", "end", "elements", "channel");
    for (const OrderRow& row : shown.rows)
        text += fmt::format("{:>14} {:>14} {:>14}  {:>7}  {}\n", row.begin, row.end, row.end - row.begin, row.channel,
                            letters(row.order));
    if (!shown.complete())
        text += fmt::format("{:>14} {} segments in all; --limit N lists more, --element E one\n", "...",
                            shown.plan.schedule.segment_count());
    for (std::size_t i = 0; i < shown.table.size(); ++i) {
        const Order& order = shown.table.order(i);
        text += fmt::format("\n{}  {}\n", letters(i), expression(order));
        if (i < 4 && order.observable() && order.ranks() <= 64) text += "\n" + draw_text(order.as_tree());
    }
    return text;
}

std::string dot_of(const Shown& shown) {
    std::string text;
    for (std::size_t i = 0; i < shown.table.size(); ++i) {
        const Order& order = shown.table.order(i);
        text +=
            order.observable() ? draw_dot(order.as_tree()) : fmt::format("// {}: {}\n", letters(i), expression(order));
    }
    return text;
}

std::string svg_of(const Shown& shown) {
    Picture picture{describe(shown.resolved), {}, {}, shown.from};
    for (std::size_t i = 0; i < std::min<std::size_t>(shown.table.size(), 12); ++i) {
        const Order& order = shown.table.order(i);
        if (!order.observable())
            picture.title += fmt::format("; {}: {}", letters(i), expression(order));
        else if (order.ranks() <= 128)
            picture.trees.push_back({letters(i), order.as_tree()});
    }
    for (const OrderRow& row : shown.rows) picture.bar.push_back({row.end, row.order});
    return draw_svg(picture);
}

}  // namespace

Exit order_show(std::span<const std::string> arguments) {
    Options options = show_options();
    if (!options.parse(arguments)) return Exit::as_claimed;
    const std::string format = options.get<std::string>("format");
    if (format != "text" && format != "json" && format != "dot" && format != "svg")
        throw UsageError(fmt::format("--format '{}': expected text, json, dot or svg", format));
    const ResolvedCall resolved = resolve(call_from(options));
    const Plan plan = resolved.plan();
    Shown shown{resolved, plan, 0, plan.schedule.size()};
    if (const auto element = options.find<std::string>("element")) {
        shown.from = parse_count(*element, "element");
        if (shown.from >= shown.to)
            throw UsageError(fmt::format("--element {}: the call has {} elements", shown.from, shown.to));
        shown.to = shown.from + 1;
    }
    shown.rows = rows_of(plan.schedule, shown.table, shown.from, shown.to, options.get<std::size_t>("limit"));
    Exit exit = Exit::as_claimed;
    for (std::size_t i = 0; i < shown.table.size(); ++i)
        if (!shown.table.order(i).observable()) exit = Exit::inconclusive;
    const Json json = json_of(shown);
    return emit(options,
                format == "json"  ? json_text(json)
                : format == "dot" ? dot_of(shown)
                : format == "svg" ? svg_of(shown)
                                  : text_of(shown),
                json, exit);
}

}  // namespace samesum
