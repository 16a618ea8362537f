// samesum sum: what an order makes of numbers.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "model/analysis/changed_share.hpp"
#include "model/arithmetic/hex_lines.hpp"
#include "model/commands/call_flags.hpp"
#include "model/commands/commands.hpp"
#include "model/input/call_description.hpp"
#include "model/nccl/buffer_sum.hpp"
#include "model/sum/draw_tree.hpp"
#include "model/sum/reachable.hpp"
#include "model/sum/rounding_steps.hpp"
#include "model/sum/witness.hpp"
#include "model/support/files.hpp"
#include "model/support/options.hpp"
#include "model/support/program.hpp"
#include "model/support/progress.hpp"
#include "model/support/text.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Bits> values_of(Format format, std::string_view text) {
    std::vector<Bits> values;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t end = std::min(text.find_first_of(" ,\t\n", i), text.size());
        if (end > i) values.push_back(parse_value(format, text.substr(i, end - i)));
        i = end + 1;
    }
    if (values.empty()) throw UsageError("--values holds no value, e.g. --values '1 0.5 0x3f80'");
    return values;
}

std::string shown(Format format, Bits bits) { return fmt::format("{} ({})", hex(format, bits), decimal(format, bits)); }

Json as_json(Format format, Bits bits) { return {{"bits", hex(format, bits)}, {"value", decimal(format, bits)}}; }

/// Also writes the document where --json says; true when that was stdout and nothing else is to be printed.
bool json_only(const Options& options, const Json& json) {
    const auto file = options.find<std::string>("json");
    if (file) write_json(*file, json);
    return file == "-";
}

SumRule rule_from(const Options& options) {
    SumRule rule{.format = parse_format(options.get<std::string>("dtype")),
                 .operation = parse_operation(options.get<std::string>("op")),
                 .accumulation = parse_accumulation(options.get<std::string>("rounding"))};
    if (rule.accumulation != Accumulation::per_hop && rule.operation != Operation::sum)
        throw UsageError(fmt::format("--rounding {} is for sums; --op {} rounds at every hop", name(rule.accumulation),
                                     name(rule.operation)));
    return rule;
}

po::typed_value<std::string>* word(const char* fallback, const char* shown_as) {
    return po::value<std::string>()->default_value(fallback)->value_name(shown_as);
}
po::typed_value<std::string>* word(const char* shown_as) { return po::value<std::string>()->value_name(shown_as); }

// sum eval

std::string indented(const std::string& text) {
    std::string result;
    for (const std::string_view line : split(text, '\n'))
        if (!line.empty()) result += fmt::format("    {}\n", line);
    return result;
}

void print_explanation(const SumRule& rule, const ReductionTree& tree, const Explanation& explanation) {
    std::size_t what = 0, expression = 0, result = 0;
    for (const RoundingStep& step : explanation.steps) {
        what = std::max(what, step.what.size());
        expression = std::max(expression, step.expression.size());
        result = std::max(result, shown(step.format, step.result).size());
    }
    fmt::print("{} in {}, {}, {}\n", tree.str(), name(rule.format), name(rule.operation), name(rule.accumulation));
    // Under `exact` there is no order to draw.
    if (rule.accumulation != Accumulation::exact && tree.leaf_count() > 2)
        fmt::print("\n{}\n", indented(draw_text(tree)));
    for (const RoundingStep& step : explanation.steps) {
        fmt::print("  {:<{}}  {:<{}} -> {:<{}}  {}\n", step.what, what, step.expression, expression,
                   shown(step.format, step.result), result, step.rounding);
        if (const std::string bits = draw_bits(step); !bits.empty()) {
            fmt::print("{}", indented(bits));
            continue;
        }
        const std::string exact = step.rounded && !step.exact.empty() ? " = " + step.exact + " exactly" : "";
        fmt::print("  {:<{}}  {}{}\n", "", what, step.values, exact);
    }
}

Json as_json(const Explanation& explanation) {
    Json steps = Json::array();
    for (const RoundingStep& step : explanation.steps)
        steps.push_back({{"what", step.what},
                         {"operands", step.expression},
                         {"values", step.values},
                         {"exact", step.exact},
                         {"format", name(step.format)},
                         {"result", as_json(step.format, step.result)},
                         {"rounded", step.rounded},
                         {"rounding", step.rounding}});
    return steps;
}

/// Sums stdin's lines to stdout; returns how many. A bad line is complained about after the bits of all before it.
std::uint64_t evaluate_stream(SumRule rule, const std::optional<std::string>& order) {
    std::optional<ReductionTree> tree;
    if (order && order->find_first_of("(0") == 0) tree = parse_order(*order, 0);
    HexLines lines(STDIN_FILENO, rule.format, tree ? static_cast<std::size_t>(tree->leaf_count()) : 0);
    const std::size_t columns = lines.columns();
    if (columns == 0) throw UsageError("no element on stdin; a line of bit patterns each, e.g. 0x3f80 0x3b80 0xbf80");
    if (!tree) tree = parse_order(order.value_or("chain"), static_cast<int>(columns));
    if (rule.operation == Operation::avg) rule.scale = average_scale(rule.format, static_cast<int>(columns));
    std::vector<std::vector<std::byte>> inputs(columns);
    std::vector<std::byte> output;
    std::string text;
    std::uint64_t elements = 0;
    for (;;) {
        for (auto& input : inputs) input.clear();
        std::size_t count = 0;
        try {
            count = lines.read(inputs, 8192);
        } catch (const UsageError& error) {
            throw UsageError(fmt::format("{} (the {} elements before it are written)", error.what(), elements));
        }
        if (count == 0) return elements;
        output.resize(inputs.front().size());
        sum_buffers(rule, *tree, std::vector<ConstBytes>(inputs.begin(), inputs.end()), output, 1);
        text.clear();
        append_hex_lines(rule.format, output, text);
        if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
            throw Inconclusive("cannot write the bits: the reader of the output is gone");
        elements += count;
    }
}

Exit sum_eval(std::span<const std::string> arguments) {
    Options options("sum eval [flags]",
                    "Adds numbers in a given order and prints the bits. Without --values: one element a line on stdin, "
                    "the ranks' bit\npatterns in hex, separated by spaces; the results' patterns come out, one a line.",
                    {"samesum sum eval --dtype float16 --tree '((0 1) 2)' --values '0.5 512 512.5' --explain",
                     "samesum sum eval --dtype bfloat16 --rounding fp32_once --values '256 1 1'",
                     "printf '0x3f80 0x3b80 0xbf80\\n' | samesum sum eval --dtype bfloat16 --tree '(0 (1 2))'"});
    options.add()("tree", word("ORDER"), (std::string(order_help) + "; default: chain").c_str())(
        "dtype", word("float32", "T"), "data type")("op", word("sum", "OP"), "sum, prod, min, max, avg, premulsum")(
        "rounding", word("per_hop", "R"), "per_hop, fp32_once (added in float32) or exact; the last two round once")(
        "values", word("LIST"), "the ranks' values of one element: decimals or 0x patterns")(
        "scale", word("S"), "premulsum: what each value is multiplied by")(
        "unfused", "avg, premulsum: multiply, round, add, round; default: one fma a hop")(
        "own-is-left", "avg, premulsum: a rank's own value is the left operand, as in NCCL's trees")(
        "explain", "show each rounding (with --values)");
    options.with_json();
    if (!options.parse(arguments)) return Exit::as_claimed;
    SumRule rule = rule_from(options);
    rule.fused = !options.has("unfused");
    rule.own_is_left = options.has("own-is-left");
    if (rule.operation == Operation::premulsum)
        rule.scale = parse_value(rule.format, options.get<std::string>("scale"));
    const auto order = options.find<std::string>("tree");
    const auto text = options.find<std::string>("values");
    if (!text) {
        if (options.has("explain")) throw UsageError("--explain shows one element: give it with --values");
        const auto file = options.find<std::string>("json");
        if (file == "-") throw UsageError("--json -: stdout carries the bits; name a file");
        const std::uint64_t elements = evaluate_stream(rule, order);
        if (file)
            write_json(*file, {{"elements", elements},
                               {"tree", order.value_or("chain")},
                               {"dtype", name(rule.format)},
                               {"op", name(rule.operation)},
                               {"rounding", name(rule.accumulation)}});
        return Exit::as_claimed;
    }
    const std::vector<Bits> leaves = values_of(rule.format, *text);
    const ReductionTree tree = parse_order(order.value_or("chain"), static_cast<int>(leaves.size()));
    if (rule.operation == Operation::avg) rule.scale = average_scale(rule.format, static_cast<int>(leaves.size()));
    const Explanation explanation = explain(rule, tree, leaves);
    Json json{{"tree", tree.str()},
              {"dtype", name(rule.format)},
              {"op", name(rule.operation)},
              {"rounding", name(rule.accumulation)},
              {"result", as_json(rule.format, explanation.result)},
              {"steps", as_json(explanation)}};
    if (json_only(options, json)) return Exit::as_claimed;
    if (options.has("explain")) print_explanation(rule, tree, explanation);
    fmt::print("{}{}\n", options.has("explain") ? "= " : "",
               options.has("explain") ? shown(rule.format, explanation.result) : hex(rule.format, explanation.result));
    return Exit::as_claimed;
}

// sum witness

Exit sum_witness(std::span<const std::string> arguments) {
    Options options("sum witness [flags]",
                    "Small readable numbers that two orders add to different bits: M, -M and 1, zeros elsewhere. With "
                    "--leaves: for every\npair of orders of so many values. Exit 1 when the orders are the same.",
                    {"samesum sum witness --tree '((0 1) 2)' --other '(0 (1 2))'",
                     "samesum sum witness --ranks 8 --tree ring:0 --other ring:3 --dtype bfloat16",
                     "samesum sum witness --leaves 4 --dtype float8_e5m2"});
    options.add()("tree", word("ORDER"), order_help)("other", word("ORDER"), "the order to tell it from")(
        "ranks", po::value<int>()->default_value(0)->value_name("N"), "for orders that are named, not written out")(
        "leaves", po::value<int>()->value_name("N"), "every pair of orders of N values, 3 to 6")(
        "dtype", word("T"), "data type; default: every float format")(
        "limit", po::value<std::size_t>()->default_value(20)->value_name("N"), "pairs to print");
    options.with_json();
    if (!options.parse(arguments)) return Exit::as_claimed;
    std::vector<Format> formats(float_formats.begin(), float_formats.end());
    if (const auto dtype = options.find<std::string>("dtype")) {
        formats = {parse_format(*dtype)};
        if (!traits(formats[0]).is_float)
            throw UsageError(fmt::format("--dtype {}: integers add to the same bits in every order", *dtype));
    }
    std::vector<ReductionTree> trees;
    if (const auto leaves = options.find<int>("leaves")) {
        if (*leaves < 3 || *leaves > 6) throw UsageError("--leaves takes 3 to 6; name two orders for more");
        if (options.has("tree") || options.has("other")) throw UsageError("--leaves or --tree and --other, not both");
        trees = all_trees(*leaves);
    } else {
        for (const char* flag : {"tree", "other"})
            trees.push_back(parse_order(options.get<std::string>(flag), options.get<int>("ranks")));
        if (trees[0].leaf_count() != trees[1].leaf_count())
            throw UsageError(fmt::format("--tree adds {} values, --other {}: no values fit both", trees[0].leaf_count(),
                                         trees[1].leaf_count()));
    }
    Json json{{"witnesses", Json::array()}};
    const std::size_t limit = options.get<std::size_t>("limit");
    std::size_t pairs = 0, told_apart = 0;
    std::string text;
    for (const Format format : formats)
        for (std::size_t i = 0; i < trees.size(); ++i)
            for (std::size_t k = i + 1; k < trees.size(); ++k) {
                ++pairs;
                const auto witness = separating_witness(trees[i], trees[k], format);
                if (!witness) continue;
                ++told_apart;
                if (told_apart > limit) continue;
                Json values = Json::array();
                for (const Bits leaf : witness->leaves) values.push_back(as_json(format, leaf));
                json["witnesses"].push_back({{"dtype", name(format)},
                                             {"leaves", values},
                                             {"tree", trees[i].str()},
                                             {"gives", as_json(format, witness->left)},
                                             {"other", trees[k].str()},
                                             {"other_gives", as_json(format, witness->right)}});
                const std::string first = trees[i].str(), second = trees[k].str();
                const std::size_t width = std::max(first.size(), second.size());
                text += fmt::format("{}: {}\n  {:<{}}  {}\n  {:<{}}  {}\n", name(format),
                                    str_leaves(format, witness->leaves), first, width, shown(format, witness->left),
                                    second, width, shown(format, witness->right));
            }
    json["pairs"] = pairs;
    json["told_apart"] = told_apart;
    const Exit exit = told_apart == pairs ? Exit::as_claimed : Exit::not_as_claimed;
    if (json_only(options, json)) return exit;
    fmt::print("{}", text);
    if (told_apart > limit) fmt::print("... --limit N prints more\n");
    if (told_apart == 0)
        fmt::print("the same order, up to swapping operands: no values tell them apart\n");
    else
        fmt::print("{} of {} pairs of orders told apart\n", told_apart, pairs);
    return exit;
}

// sum expect

Options expect_options() {
    Options options(
        "sum expect [flags]",
        "Predicts which share of a result's elements has other bits when the order changes, for numbers "
        "drawn at random.\nTwo orders (--before, --after), or two calls: the NCCL flags of `order show` and "
        "--with for what the second has otherwise.",
        {"samesum sum expect --ranks 8 --before ring:0 --after ring:4 --dtype bfloat16",
         "samesum sum expect --ranks 8 --before chain --after chain --rounding-after fp32_once --dtype "
         "bfloat16",
         "samesum sum expect --collective all_reduce --ranks 8 --ranks-per-node 1 --algo ring --proto ll "
         "--count 4096 --with '--algo tree'"});
    add_communicator_flags(options);
    add_call_flags(options);
    options.add()("before", word("ORDER"), order_help)("after", word("ORDER"), "the order to compare with")(
        "with", word("FLAGS"), "two calls: what the second one has otherwise, e.g. '--count 8192'")(
        "rounding", word("per_hop", "R"), "per_hop, fp32_once or exact, of both orders")(
        "rounding-after", word("R"), "of the second order, where it differs")(
        "data", word("normal", "MODEL"),
        "normal[:DEVIATION], uniform[:LIMIT], spread[:EXPONENTS] (any exponent from -E to E), integer[:LARGEST]")(
        "samples", po::value<std::uint64_t>()->default_value(200000)->value_name("N"), "elements drawn in all")(
        "seed", po::value<std::uint64_t>()->default_value(1)->value_name("S"), "of the random numbers");
    options.with_json();
    return options;
}

Exit sum_expect(std::span<const std::string> arguments) {
    Options options = expect_options();
    if (!options.parse(arguments)) return Exit::as_claimed;
    const DataModel data = parse_data_model(options.get<std::string>("data"));
    const std::uint64_t samples = options.get<std::uint64_t>("samples"), seed = options.get<std::uint64_t>("seed");
    if (samples == 0) throw UsageError("--samples 0 shows nothing; 200000 is usual");
    const Format format = parse_format(options.get<std::string>("dtype"));
    SumRule before{.format = format, .accumulation = parse_accumulation(options.get<std::string>("rounding"))};
    SumRule after = before;
    after.accumulation = parse_accumulation(
        options.find<std::string>("rounding-after").value_or(std::string(name(before.accumulation))));
    if (options.get<std::string>("op") != "sum") throw UsageError("--op: shares are predicted for sums");

    std::vector<OrderPair> pairs;
    std::vector<std::string> assumptions;
    if (options.has("before") || options.has("after")) {
        const int ranks = options.find<int>("ranks").value_or(0);
        const ReductionTree first = parse_order(options.get<std::string>("before"), ranks);
        const ReductionTree second =
            parse_order(options.find<std::string>("after").value_or(first.str()), first.leaf_count());
        pairs.push_back({first, second, 1});
    } else if (options.has("with")) {
        Options others = expect_options();
        if (!others.parse(with_changes(arguments, po::split_unix(options.get<std::string>("with")))))
            return Exit::as_claimed;
        const std::array scenarios{scenario_from(options), scenario_from(others)};
        const std::array plans{scenarios[0].plan(), scenarios[1].plan()};
        if (scenarios[0].call().format != scenarios[1].call().format)
            throw UsageError("--with changes the data type: every element's bits change");
        assumptions = scenarios[0].assumptions;
        pairs = order_pairs(plans[0].schedule, plans[1].schedule);
        before.accumulation = plans[0].accumulation;
        after.accumulation = plans[1].accumulation;
    } else {
        throw UsageError("give two orders, --before and --after, or a call and --with what changes; see --help");
    }

    std::uint64_t elements = 0;
    for (const OrderPair& pair : pairs) elements += pair.elements;
    double share = 0, variance = 0;
    std::uint64_t drawn = 0;
    Json rows = Json::array();
    struct Row {
        std::string before, after;
        std::uint64_t elements;
        Share share;
    };
    std::vector<Row> shown_rows;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        const OrderPair& pair = pairs[i];
        const double weight = static_cast<double>(pair.elements) / static_cast<double>(elements);
        const bool same = before.accumulation == after.accumulation && same_order(pair.before, pair.after);
        Share each;  // of equal orders nothing changes, and nothing need be drawn
        if (!same) {
            const auto part =
                std::max<std::uint64_t>(1000, static_cast<std::uint64_t>(static_cast<double>(samples) * weight));
            each = changed_share({pair.before, before}, {pair.after, after}, data, part, seed + i);
            share += weight * each.value();
            variance += weight * weight * each.error() * each.error();
            drawn += part;
        }
        rows.push_back({{"before", pair.before.str()},
                        {"after", pair.after.str()},
                        {"elements", pair.elements},
                        {"share", each.value()},
                        {"error", same ? 0.0 : each.error()}});
        shown_rows.push_back({pair.before.str(), pair.after.str(), pair.elements, each});
    }
    const double error = std::sqrt(variance);
    const Json json{{"share", share},
                    {"standard_error", error},
                    {"samples", drawn},
                    {"seed", seed},
                    {"dtype", name(format)},
                    {"data", str(data)},
                    {"rounding_before", name(before.accumulation)},
                    {"rounding_after", name(after.accumulation)},
                    {"assumptions", assumptions},
                    {"orders", rows}};
    if (json_only(options, json)) return Exit::as_claimed;
    for (const std::string& assumption : assumptions) fmt::print("assumes {}\n", assumption);
    fmt::print("{:>9} {:>12}  {} -> {}\n", "changed", "elements", name(before.accumulation), name(after.accumulation));
    constexpr std::size_t max_rows = 16;
    for (std::size_t i = 0; i < std::min(shown_rows.size(), max_rows); ++i)
        fmt::print("{:>8.2f}% {:>12}  {} -> {}\n", 100 * shown_rows[i].share.value(), shown_rows[i].elements,
                   shown_rows[i].before, shown_rows[i].after);
    if (shown_rows.size() > max_rows)
        fmt::print("{:>9} {} pairs of orders in all; --json lists them\n", "...", shown_rows.size());
    fmt::print("\n{:.2f} % +- {:.2f} % of the elements change bits ({}, {}, {} samples, seed {})\n", 100 * share,
               100 * error, name(format), str(data), drawn, seed);
    return Exit::as_claimed;
}

// sum reachable

Shapes parse_shapes(const std::string& text) {
    if (text == "any") return Shapes::trees;
    if (text == "chain") return Shapes::chains;
    throw UsageError(fmt::format("--shape '{}'; one of: any, chain", text));
}

/// One rounding's answer to whether the values can give the result.
struct Attempt {
    SumRule rule;
    Reach reach;
};

struct Verdict {
    std::vector<Attempt> attempts;  // up to the first that reaches it
    Reach::Verdict verdict = Reach::Verdict::unreachable;
};

Verdict judge(const std::vector<SumRule>& rules, std::span<const Bits> leaves, Bits result,
              const ReachableOptions& limits) {
    Verdict verdict;
    for (const SumRule& rule : rules) {
        verdict.attempts.push_back({rule, reach(rule, leaves, result, limits)});
        const Reach::Verdict each = verdict.attempts.back().reach.verdict;
        if (each == Reach::Verdict::undecided) verdict.verdict = each;
        if (each != Reach::Verdict::reachable) continue;
        verdict.verdict = each;
        break;
    }
    return verdict;
}

std::string describe(const Attempt& attempt, Bits result) {
    const Format format = attempt.rule.format;
    const Reach& reach = attempt.reach;
    const std::string head = fmt::format("{:<10} ", name(attempt.rule.accumulation));
    if (reach.tree && attempt.rule.accumulation == Accumulation::exact)
        return head + "is the exact sum, rounded once: any order";
    if (reach.tree) return head + "by " + reach.tree->str();
    if (reach.verdict == Reach::Verdict::undecided)
        return head + fmt::format("not decided: {}; between {:g} and {:g} anything may come out", reach.why,
                                  reach.bound->low, reach.bound->high);
    if (reach.bound)
        return head + fmt::format("by no order: every result lies between {:.9g} and {:.9g}{}", reach.bound->low,
                                  reach.bound->high, reach.bound->finite ? ", finite" : "");
    std::string text = head + fmt::format("by no order; {} result{}", reach.results, reach.results == 1 ? "" : "s");
    std::optional<std::uint64_t> margin;
    for (const auto& near : {reach.below, reach.above}) {
        if (!near) continue;
        text += fmt::format("{} {}", text.find("nearest") == std::string::npos ? ", nearest" : " and",
                            shown(format, *near));
        margin = std::min(margin.value_or(~std::uint64_t{0}), ulp_distance(format, *near, result));
    }
    if (margin) text += fmt::format("; {} step{} of the format away", *margin, *margin == 1 ? "" : "s");
    return text;
}

/// What is proved of every order of any number of values: `error_is_bounded_in_every_order`.
std::string describe(const SumBound& bound) {
    return fmt::format("{:<10} {}\n", "bound",
                       bound.finite ? fmt::format("every order lies between {:.9g} and {:.9g}", bound.low, bound.high)
                                    : "none: partial sums may overflow");
}

const char* word_of(Reach::Verdict verdict) {
    switch (verdict) {
        case Reach::Verdict::reachable:
            return "reachable";
        case Reach::Verdict::unreachable:
            return "not by any order: defect";
        default:
            return "undecided";
    }
}

Exit exit_of(Reach::Verdict verdict) {
    return verdict == Reach::Verdict::reachable     ? Exit::as_claimed
           : verdict == Reach::Verdict::unreachable ? Exit::not_as_claimed
                                                    : Exit::inconclusive;
}

Json as_json(const Verdict& verdict, Bits result) {
    Json json{{"verdict", word_of(verdict.verdict)}, {"attempts", Json::array()}};
    for (const Attempt& attempt : verdict.attempts) {
        const Format format = attempt.rule.format;
        Json each{{"rounding", name(attempt.rule.accumulation)}, {"verdict", word_of(attempt.reach.verdict)}};
        if (attempt.reach.tree) each["tree"] = attempt.reach.tree->str();
        if (attempt.reach.results) each["results"] = attempt.reach.results;
        if (attempt.reach.below) each["below"] = as_json(format, *attempt.reach.below);
        if (attempt.reach.above) each["above"] = as_json(format, *attempt.reach.above);
        if (attempt.reach.bound) each["bound"] = {attempt.reach.bound->low, attempt.reach.bound->high};
        if (!attempt.reach.why.empty()) each["why"] = attempt.reach.why;
        each["says"] = describe(attempt, result);
        json["attempts"].push_back(each);
    }
    return json;
}

/// Elements of stdin: the leaves, then the result that came out.
Exit reachable_lines(const Options& options, const std::vector<SumRule>& rules, const ReachableOptions& limits) {
    const Format format = rules.front().format;
    HexLines lines(STDIN_FILENO, format, 0);
    const std::size_t columns = lines.columns();
    if (columns < 2)
        throw UsageError(
            "each line on stdin: the ranks' bit patterns, then the result's; or give --values and --result");
    std::array<std::uint64_t, 3> counts{};
    std::vector<std::uint64_t> defects;
    Json first = nullptr;
    std::string first_text;
    std::uint64_t element = 0;
    Progress progress("sum reachable");
    for (;;) {
        std::vector<std::vector<std::byte>> buffers(columns);
        const std::size_t count = lines.read(buffers, 256);
        if (count == 0) break;
        for (std::size_t i = 0; i < count; ++i, ++element) {
            std::vector<Bits> leaves;
            for (const auto& buffer : buffers) leaves.push_back(load(format, buffer, i));
            const Bits result = leaves.back();
            leaves.pop_back();
            const Verdict verdict = judge(rules, leaves, result, limits);
            ++counts[static_cast<std::size_t>(verdict.verdict)];
            if (verdict.verdict != Reach::Verdict::unreachable) continue;
            if (defects.empty()) {
                first = as_json(verdict, result);
                first_text = fmt::format("first: element {}, result {}\n", element, shown(format, result));
                for (const Attempt& attempt : verdict.attempts) first_text += "  " + describe(attempt, result) + "\n";
            }
            defects.push_back(element);
        }
        progress.update(fmt::format("{} elements", element));
    }
    // A regular spacing is a symptom by itself: rows, tiles, a lost flag in every so many.
    std::uint64_t stride = 0;
    for (std::size_t i = 1; i < defects.size(); ++i) stride = std::gcd(stride, defects[i] - defects[i - 1]);
    const Exit exit = !defects.empty()                                                  ? Exit::not_as_claimed
                      : counts[static_cast<std::size_t>(Reach::Verdict::undecided)] > 0 ? Exit::inconclusive
                                                                                        : Exit::as_claimed;
    Json json{{"elements", element},        {"reachable", counts[0]}, {"defects", counts[1]}, {"undecided", counts[2]},
              {"defect_elements", defects}, {"stride", stride},       {"first", first}};
    if (json_only(options, json)) return exit;
    if (!defects.empty()) {
        fmt::print("{}elements:", first_text);
        for (std::size_t i = 0; i < std::min<std::size_t>(defects.size(), 12); ++i) fmt::print(" {}", defects[i]);
        fmt::print("{}", defects.size() > 12 ? " ...\n" : "\n");
        if (defects.size() > 2 && stride > 1) fmt::print("all {} apart, or multiples of it\n", stride);
    }
    fmt::print("{} elements: {} reachable, {} by no order (defects), {} undecided\n", element, counts[0], counts[1],
               counts[2]);
    return exit;
}

Exit sum_reachable(std::span<const std::string> arguments) {
    Options options("sum reachable [flags]",
                    "Can any order of additions turn these values into this result? If not, it is no rounding but a "
                    "defect: exit 1.\nTries every tree, up to 16 values or so in seconds; beyond, a bound that holds "
                    "for all orders (exit 3 when it cannot tell).\nWithout --values: one element a line on stdin, the "
                    "ranks' bit patterns, then the result's.",
                    {"samesum sum reachable --dtype float16 --values '0.5 512 512.5' --result 1025",
                     "samesum sum reachable --dtype bfloat16 --values '256 1 1 1' --result 260 --rounding per_hop",
                     "samesum sum reachable --dtype bfloat16 <elements.txt"});
    options.add()("dtype", word("float32", "T"), "data type")(
        "values", word("LIST"), "the ranks' values: decimals or 0x patterns")("result", word("V"), "what came out")(
        "shape", word("any", "S"), "any tree, or chain: one value after another")(
        "rounding", word("any", "R"), "per_hop, fp32_once, exact, or any: one after the other")(
        "seconds", po::value<double>()->default_value(10)->value_name("S"), "for all orders of one element")(
        "list", "print all results that can be reached");
    options.with_json();
    if (!options.parse(arguments)) return Exit::as_claimed;
    const Format format = parse_format(options.get<std::string>("dtype"));
    const std::string rounding = options.get<std::string>("rounding");
    std::vector<SumRule> rules;
    for (const Accumulation each : {Accumulation::per_hop, Accumulation::fp32_once, Accumulation::exact})
        if (rounding == "any"
                ? each != Accumulation::fp32_once || (traits(format).is_float && traits(format).width < 32)
                : each == parse_accumulation(rounding))
            rules.push_back({.format = format, .accumulation = each});
    const ReachableOptions limits{.shapes = parse_shapes(options.get<std::string>("shape")),
                                  .seconds = options.get<double>("seconds")};
    const auto text = options.find<std::string>("values");
    if (!text) return reachable_lines(options, rules, limits);
    const std::vector<Bits> leaves = values_of(format, *text);
    if (options.has("list")) {
        const ReachableSums sums(rules.front(), leaves, limits);
        const SumBound bound = any_order_bound(rules.front(), leaves);
        Json json{{"rounding", name(rules.front().accumulation)}, {"results", Json::array()}};
        if (bound.finite) json["bound"] = {bound.low, bound.high};
        for (const Bits bits : sums.results()) {
            Json each = as_json(format, bits);
            each["tree"] = sums.tree_for(bits)->str();
            json["results"].push_back(each);
        }
        if (json_only(options, json)) return Exit::as_claimed;
        for (const Json& each : json["results"])
            fmt::print("{}  {:<24} {}\n", each["bits"].get<std::string>(), each["value"].get<std::string>(),
                       each["tree"].get<std::string>());
        fmt::print("{} results, {}\n{}", sums.results().size(), name(rules.front().accumulation), describe(bound));
        return Exit::as_claimed;
    }
    const Bits result = parse_value(format, options.get<std::string>("result"));
    const Verdict verdict = judge(rules, leaves, result, limits);
    if (json_only(options, as_json(verdict, result))) return exit_of(verdict.verdict);
    fmt::print("{:<10} {}\n{}", "result", shown(format, result), describe(any_order_bound(rules.front(), leaves)));
    for (const Attempt& attempt : verdict.attempts) fmt::print("{}\n", describe(attempt, result));
    if (verdict.verdict == Reach::Verdict::reachable && verdict.attempts.back().reach.tree)
        fmt::print("reachable: by {} ({})\n", verdict.attempts.back().reach.tree->str(),
                   name(verdict.attempts.back().rule.accumulation));
    else
        fmt::print("{}\n", word_of(verdict.verdict));
    return exit_of(verdict.verdict);
}

// sum mask

Exit sum_mask(std::span<const std::string> arguments) {
    Options options(
        "sum mask [flags] [FILES]",
        "Which elements of these tensors can reveal an order at all: those that two orders add to different "
        "bits. Their share is\nhow far a test on this data means anything; exit 1 when it is below "
        "--least. FILES: one raw little-endian file a rank;\nwithout them one element a line on stdin, the "
        "ranks' bit patterns.",
        {"samesum sum mask --dtype bfloat16 rank0.bin rank1.bin rank2.bin rank3.bin",
         "samesum sum mask --dtype bfloat16 --before ring:0 --after ring:2 --list <elements.txt"});
    options.positional("FILES", -1);
    options.add()("dtype", word("float32", "T"), "data type")(
        "before", word("ORDER"), (std::string("two given orders instead of all: ") + order_help).c_str())(
        "after", word("ORDER"), "the other one")("shape", word("any", "S"), "any tree, or chain")(
        "rounding", word("per_hop", "R"), "per_hop, fp32_once or exact")(
        "least", po::value<double>()->default_value(0.10, "0.10")->value_name("SHARE"), "the share that is enough")(
        "seconds", po::value<double>()->default_value(10)->value_name("S"), "for all orders of one element")(
        "list", "print 1 or 0 (or ? where all orders are too many) for each element");
    options.with_json();
    if (!options.parse(arguments)) return Exit::as_claimed;
    const SumRule rule{.format = parse_format(options.get<std::string>("dtype")),
                       .accumulation = parse_accumulation(options.get<std::string>("rounding"))};
    const double min = options.get<double>("least");
    if (!(min >= 0 && min <= 1)) throw UsageError("--least is a share from 0 to 1, e.g. 0.10");
    const ReachableOptions limits{.shapes = parse_shapes(options.get<std::string>("shape")),
                                  .seconds = options.get<double>("seconds")};

    std::vector<std::vector<std::byte>> inputs;
    for (const std::string& file : options.words()) {
        const std::string text = read_file(file);
        const auto bytes = std::as_bytes(std::span(text));
        inputs.emplace_back(bytes.begin(), bytes.end());
        if (inputs.back().size() != inputs.front().size() ||
            inputs.back().size() % static_cast<std::size_t>(traits(rule.format).bytes()) != 0)
            throw UsageError(
                fmt::format("{} has {} bytes; as many as the first file, {}, and a multiple of {} would "
                            "be right",
                            file, inputs.back().size(), inputs.front().size(), traits(rule.format).bytes()));
    }
    if (inputs.empty()) {
        HexLines lines(STDIN_FILENO, rule.format, 0);
        inputs.resize(lines.columns());
        while (!inputs.empty() && lines.read(inputs, 65536) > 0) continue;
    }
    const int ranks = static_cast<int>(inputs.size());
    const std::size_t elements =
        inputs.empty() ? 0 : inputs.front().size() / static_cast<std::size_t>(traits(rule.format).bytes());
    if (elements == 0) throw UsageError("no element: give a file a rank, or lines of bit patterns on stdin");

    std::string mask(elements, '0');
    if (options.has("before") || options.has("after")) {
        const std::vector<ConstBytes> views(inputs.begin(), inputs.end());
        std::array<std::vector<std::byte>, 2> sums;
        for (std::size_t i = 0; i < 2; ++i) {
            sums[i].resize(inputs.front().size());
            sum_buffers(rule, parse_order(options.get<std::string>(i ? "after" : "before"), ranks), views, sums[i]);
        }
        for (std::size_t i = 0; i < elements; ++i)
            if (load(rule.format, sums[0], i) != load(rule.format, sums[1], i)) mask[i] = '1';
    } else {
        Progress progress("sum mask");
        for (std::size_t i = 0; i < elements; ++i) {
            std::vector<Bits> leaves;
            for (const auto& input : inputs) leaves.push_back(load(rule.format, input, i));
            try {
                if (order_matters(rule, leaves, limits)) mask[i] = '1';
            } catch (const Inconclusive&) {
                mask[i] = '?';
            }
            if (i % 1024 == 0) progress.update(fmt::format("{} of {} elements", i, elements));
        }
    }
    const auto count = [&](char c) { return static_cast<std::size_t>(std::count(mask.begin(), mask.end(), c)); };
    const std::size_t able = count('1'), unknown = count('?');
    const double share = static_cast<double>(able) / static_cast<double>(elements);
    const double possible = static_cast<double>(able + unknown) / static_cast<double>(elements);
    const Exit exit = share >= min ? Exit::as_claimed : possible >= min ? Exit::inconclusive : Exit::not_as_claimed;
    const Json json{{"elements", elements},
                    {"able", able},
                    {"unknown", unknown},
                    {"share", share},
                    {"least", min},
                    {"ranks", ranks},
                    {"mask", options.has("list") ? Json(mask) : Json(nullptr)}};
    if (json_only(options, json)) return exit;
    if (options.has("list"))
        for (const char c : mask) fmt::print("{}\n", c);
    fmt::print("{} of {} elements can reveal an order: {:.2f} %{}\n", able, elements, 100 * share,
               unknown ? fmt::format(" ({} more are not known)", unknown) : "");
    if (exit != Exit::as_claimed)
        fmt::print("{}: below {:.2f} %, a test on this data can hardly fail\n",
                   exit == Exit::inconclusive ? "not known" : "vacuous", 100 * min);
    return exit;
}

}  // namespace

Exit sum_command(std::span<const std::string> arguments) {
    const std::array commands{
        Command{"eval", "add numbers in a given order; --explain shows each rounding", sum_eval},
        Command{"witness", "small numbers that two orders add to different bits", sum_witness},
        Command{"expect", "which share of elements changes between two orders or calls", sum_expect},
        Command{"reachable", "can any order give this result? no: a defect", sum_reachable},
        Command{"mask", "which elements of given tensors can reveal an order at all", sum_mask},
    };
    return dispatch("sum", arguments, commands);
}

}  // namespace samesum
