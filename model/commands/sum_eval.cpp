// samesum sum eval: one order of additions, on given values or on a stream of elements.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "model/arithmetic/hex_lines.hpp"
#include "model/commands/commands.hpp"
#include "model/commands/sum_values.hpp"
#include "model/nccl/buffer_sum.hpp"
#include "model/sum/draw_tree.hpp"
#include "model/sum/rounding_steps.hpp"
#include "model/support/output.hpp"
#include "model/support/text.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;

Options eval_options() {
    Options options("sum eval [flags]",
                    "Adds numbers in a given order and prints the bits. Without --values: one element a line on stdin, "
                    "the ranks' bit\npatterns in hex, separated by spaces; the results' patterns are printed, one a "
                    "line.",
                    {"samesum sum eval --dtype float16 --tree '((0 1) 2)' --values '0.5 512 512.5' --explain",
                     "samesum sum eval --dtype bfloat16 --rounding fp32_once --values '256 1 1'",
                     "printf '0x3f80 0x3b80 0xbf80\\n' | samesum sum eval --dtype bfloat16 --tree '(0 (1 2))'"});
    options.add()("tree", word("ORDER"), (std::string(order_help) + "; default: chain").c_str())(
        "dtype", word("float32", "T"), "data type")("op", word("sum", "OP"), "sum, prod, min, max, avg, premulsum")(
        "rounding", word("per_hop", "R"), "per_hop, fp32_once (added in float32) or exact; the last two round once")(
        "values", word("LIST"), "the ranks' values of one element: decimals or 0x patterns")(
        "scale", word("S"), "premulsum: the factor of each value")(
        "unfused", "avg, premulsum: multiply, round, add, round; default: one fma a hop")(
        "own-is-left", "avg, premulsum: a rank's own value is the left operand, as in NCCL's trees")(
        "explain", "show each rounding (with --values)");
    options.with_json();
    return options;
}

SumRule rule_in(const Options& options) {
    SumRule rule{.format = parse_format(options.get<std::string>("dtype")),
                 .operation = parse_operation(options.get<std::string>("op")),
                 .accumulation = parse_accumulation(options.get<std::string>("rounding"))};
    if (rule.accumulation != Accumulation::per_hop && rule.operation != Operation::sum)
        throw UsageError(fmt::format("--rounding {} is for sums; --op {} rounds at every hop", name(rule.accumulation),
                                     name(rule.operation)));
    rule.fused = !options.has("unfused");
    rule.own_is_left = options.has("own-is-left");
    if (rule.operation == Operation::premulsum)
        rule.scale = parse_value(rule.format, options.get<std::string>("scale"));
    return rule;
}

Json json_of(const SumRule& rule) {
    return {{"dtype", name(rule.format)}, {"op", name(rule.operation)}, {"rounding", name(rule.accumulation)}};
}

// A stream of elements

/// What came of a stream; `results` only where they are kept for JSON.
struct Stream {
    std::uint64_t elements = 0;
    std::string tree{};
    Json results = Json::array();
};

/// Prints one block of results and keeps them, as far as wanted.
void take_results(Stream& stream, const SumRule& rule, std::span<const std::byte> output, bool print, bool keep) {
    std::string text;
    append_hex_lines(rule.format, output, text);
    if (print && std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
        throw Inconclusive("cannot write the bits: the reader of the output is gone");
    const auto bytes = static_cast<std::size_t>(traits(rule.format).bytes());
    for (std::size_t i = 0; keep && i < output.size() / bytes; ++i)
        stream.results.push_back(hex(rule.format, load(rule.format, output, i)));
    stream.elements += output.size() / bytes;
}

/// Sums stdin's lines to stdout. An error in a line is reported after the results of all lines before it.
Stream sum_stdin(SumRule rule, const std::optional<std::string>& order, bool print, bool keep) {
    std::optional<ReductionTree> tree;
    if (order && order->find_first_of("(0") == 0) tree = parse_order(*order, 0);
    HexLines lines(STDIN_FILENO, rule.format, tree ? static_cast<std::size_t>(tree->leaf_count()) : 0);
    const std::size_t columns = lines.columns();
    if (columns == 0)
        throw UsageError("no element on stdin: expected a line of bit patterns each, e.g. 0x3f80 0x3b80 0xbf80");
    if (!tree) tree = parse_order(order.value_or("chain"), static_cast<int>(columns));
    if (rule.operation == Operation::avg) rule.scale = average_scale(rule.format, static_cast<int>(columns));
    std::vector<std::vector<std::byte>> inputs(columns);
    std::vector<std::byte> output;
    Stream stream{.tree = tree->str()};
    for (;;) {
        for (auto& input : inputs) input.clear();
        std::size_t count = 0;
        try {
            count = lines.read(inputs, 8192);
        } catch (const UsageError& error) {
            throw UsageError(
                print ? fmt::format("{} (the {} elements before it are written)", error.what(), stream.elements)
                      : error.what());
        }
        if (count == 0) return stream;
        output.resize(inputs.front().size());
        sum_buffers(rule, *tree, std::vector<ConstBytes>(inputs.begin(), inputs.end()), output, 1);
        take_results(stream, rule, output, print, keep);
    }
}

// One element

std::string indented(const std::string& text) {
    std::string result;
    for (const std::string_view line : split(text, '\n'))
        if (!line.empty()) result += fmt::format("    {}\n", line);
    return result;
}

std::string explanation_text(const SumRule& rule, const ReductionTree& tree, const Explanation& explanation) {
    std::size_t what = 0, expression = 0, result = 0;
    for (const RoundingStep& step : explanation.steps) {
        what = std::max(what, step.what.size());
        expression = std::max(expression, step.expression.size());
        result = std::max(result, value_text(step.format, step.result).size());
    }
    std::string text =
        fmt::format("{} in {}, {}, {}\n", tree.str(), name(rule.format), name(rule.operation), name(rule.accumulation));
    // Under `exact` there is no order to draw.
    if (rule.accumulation != Accumulation::exact && tree.leaf_count() > 2)
        text += fmt::format("\n{}\n", indented(draw_text(tree)));
    for (const RoundingStep& step : explanation.steps) {
        text += fmt::format("  {:<{}}  {:<{}} -> {:<{}}  {}\n", step.what, what, step.expression, expression,
                            value_text(step.format, step.result), result, step.rounding);
        if (const std::string bits = draw_bits(step); !bits.empty()) {
            text += indented(bits);
            continue;
        }
        const std::string exact = step.rounded && !step.exact.empty() ? " = " + step.exact + " exactly" : "";
        text += fmt::format("  {:<{}}  {}{}\n", "", what, step.values, exact);
    }
    return text + "= ";
}

Json steps_json(const Explanation& explanation) {
    Json steps = Json::array();
    for (const RoundingStep& step : explanation.steps)
        steps.push_back({{"what", step.what},
                         {"operands", step.expression},
                         {"values", step.values},
                         {"exact", step.exact},
                         {"format", name(step.format)},
                         {"result", value_json(step.format, step.result)},
                         {"rounded", step.rounded},
                         {"rounding", step.rounding}});
    return steps;
}

Exit eval_element(const Options& options, SumRule rule, const std::string& order, const std::vector<Bits>& leaves) {
    const ReductionTree tree = parse_order(order, static_cast<int>(leaves.size()));
    if (rule.operation == Operation::avg) rule.scale = average_scale(rule.format, static_cast<int>(leaves.size()));
    const Explanation explanation = explain(rule, tree, leaves);
    Json json{{"tree", tree.str()}};
    json.update(json_of(rule));
    json["result"] = value_json(rule.format, explanation.result);
    json["steps"] = steps_json(explanation);
    const std::string text =
        options.has("explain") ? explanation_text(rule, tree, explanation) + value_text(rule.format, explanation.result)
                               : hex(rule.format, explanation.result);
    return emit(options, text + "\n", json, Exit::as_claimed);
}

}  // namespace

Exit sum_eval(std::span<const std::string> arguments) {
    Options options = eval_options();
    if (!options.parse(arguments)) return Exit::as_claimed;
    const SumRule rule = rule_in(options);
    const auto order = options.find<std::string>("tree");
    if (const auto text = options.find<std::string>("values"))
        return eval_element(options, rule, order.value_or("chain"), values_in(rule.format, *text));
    if (options.has("explain")) throw UsageError("--explain shows one element: expected it in --values");
    const Stream stream = sum_stdin(rule, order, !json_alone(options), options.has("json"));
    Json json{{"elements", stream.elements}, {"tree", stream.tree}};
    json.update(json_of(rule));
    json["results"] = stream.results;
    return emit(options, "", json, Exit::as_claimed);
}

}  // namespace samesum
