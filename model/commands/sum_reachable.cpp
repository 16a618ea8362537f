// samesum sum reachable: can any order of additions give a result?
// SPDX-License-Identifier: Apache-2.0
#include "model/sum/reachable.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "model/arithmetic/hex_lines.hpp"
#include "model/commands/commands.hpp"
#include "model/commands/sum_values.hpp"
#include "model/support/output.hpp"
#include "model/support/progress.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;

Options reachable_options() {
    Options options(
        "sum reachable [flags]",
        "Can any order of additions turn these values into this result? If not, the result is a defect, not "
        "rounding: exit 1.\nTries every tree, up to about 16 values within seconds; beyond, a bound that "
        "holds for all orders (exit 3 when the bound\ndoes not decide). Without --values: one element a "
        "line on stdin, the ranks' bit patterns, then the result's.",
        {"samesum sum reachable --dtype float16 --values '0.5 512 512.5' --result 1025",
         "samesum sum reachable --dtype bfloat16 --values '256 1 1 1' --result 260 --rounding per_hop",
         "samesum sum reachable --dtype bfloat16 <elements.txt"});
    options.add()("dtype", word("float32", "T"), "data type")("values", word("LIST"),
                                                              "the ranks' values: decimals or 0x patterns")(
        "result", word("V"), "the observed result")("shape", word("any", "S"),
                                                    "any tree, or chain: one value after another")(
        "rounding", word("any", "R"), "per_hop, fp32_once, exact, or any: one after the other")(
        "seconds", po::value<double>()->default_value(10)->value_name("S"), "for all orders of one element")(
        "list", "print all results that can be reached");
    options.with_json();
    return options;
}

/// The roundings to try, in this order.
std::vector<SumRule> rules_in(const Options& options) {
    const Format format = parse_format(options.get<std::string>("dtype"));
    const std::string rounding = options.get<std::string>("rounding");
    std::vector<SumRule> rules;
    for (const Accumulation each : {Accumulation::per_hop, Accumulation::fp32_once, Accumulation::exact})
        if (rounding == "any"
                ? each != Accumulation::fp32_once || (traits(format).is_float && traits(format).width < 32)
                : each == parse_accumulation(rounding))
            rules.push_back({.format = format, .accumulation = each});
    return rules;
}

/// Whether the values can give the result under one rounding.
struct Attempt {
    SumRule rule;
    Reach reach;
};

/// The attempts up to the first that reaches the result, and what they say together.
struct Assessment {
    std::vector<Attempt> attempts{};
    Reach::Verdict verdict = Reach::Verdict::unreachable;
};

Assessment assess(const std::vector<SumRule>& rules, std::span<const Bits> leaves, Bits result,
                  const ReachableOptions& limits) {
    Assessment found;
    for (const SumRule& rule : rules) {
        found.attempts.push_back({rule, reach(rule, leaves, result, limits)});
        const Reach::Verdict each = found.attempts.back().reach.verdict;
        if (each == Reach::Verdict::undecided) found.verdict = each;
        if (each != Reach::Verdict::reachable) continue;
        found.verdict = each;
        break;
    }
    return found;
}

std::string describe(const Attempt& attempt, Bits result) {
    const Format format = attempt.rule.format;
    const Reach& reach = attempt.reach;
    const std::string head = fmt::format("{:<10} ", name(attempt.rule.accumulation));
    if (reach.tree && attempt.rule.accumulation == Accumulation::exact)
        return head + "is the exact sum, rounded once: any order";
    if (reach.tree) return head + "by " + reach.tree->str();
    if (reach.verdict == Reach::Verdict::undecided)
        return head + fmt::format("not decided: {}; any result between {:g} and {:g} is possible", reach.why,
                                  reach.bound->low, reach.bound->high);
    if (reach.bound)
        return head + fmt::format("by no order: every result lies between {:.9g} and {:.9g}{}", reach.bound->low,
                                  reach.bound->high, reach.bound->finite ? ", finite" : "");
    std::string text = head + fmt::format("by no order; {} result{}", reach.results, reach.results == 1 ? "" : "s");
    std::optional<std::uint64_t> margin;
    for (const auto& near : {reach.below, reach.above}) {
        if (!near) continue;
        text += fmt::format("{} {}", margin ? " and" : ", nearest", value_text(format, *near));
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

const char* name(Reach::Verdict verdict) {
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

Json json_of(const SumBound& bound) { return {{"low", bound.low}, {"high", bound.high}, {"finite", bound.finite}}; }

Json json_of(const Assessment& found, Bits result) {
    Json json{{"verdict", name(found.verdict)}, {"attempts", Json::array()}};
    for (const Attempt& attempt : found.attempts) {
        const Format format = attempt.rule.format;
        Json each{{"rounding", name(attempt.rule.accumulation)}, {"verdict", name(attempt.reach.verdict)}};
        if (attempt.reach.tree) each["tree"] = attempt.reach.tree->str();
        if (attempt.reach.results) each["results"] = attempt.reach.results;
        if (attempt.reach.below) each["below"] = value_json(format, *attempt.reach.below);
        if (attempt.reach.above) each["above"] = value_json(format, *attempt.reach.above);
        if (attempt.reach.bound) each["bound"] = {attempt.reach.bound->low, attempt.reach.bound->high};
        if (!attempt.reach.why.empty()) each["why"] = attempt.reach.why;
        each["says"] = describe(attempt, result);
        json["attempts"].push_back(each);
    }
    return json;
}

// A stream of elements

/// What came of all elements of a stream.
struct Tally {
    std::uint64_t elements = 0;
    std::array<std::uint64_t, 3> counts{};  ///< by Reach::Verdict
    std::vector<std::uint64_t> defects{};   ///< elements
    Json first = nullptr;                   ///< the first defect
    std::string first_text{};

    void add(const Assessment& found, Format format, Bits result) {
        ++counts[static_cast<std::size_t>(found.verdict)];
        if (found.verdict == Reach::Verdict::unreachable) {
            if (defects.empty()) {
                first = json_of(found, result);
                first_text = fmt::format("first: element {}, result {}\n", elements, value_text(format, result));
                for (const Attempt& attempt : found.attempts) first_text += "  " + describe(attempt, result) + "\n";
            }
            defects.push_back(elements);
        }
        ++elements;
    }
    /// A regular spacing is a symptom by itself: rows, tiles, a lost flag in every so many. 0 without two defects.
    [[nodiscard]] std::uint64_t stride() const {
        std::uint64_t divisor = 0;
        for (std::size_t i = 1; i < defects.size(); ++i) divisor = std::gcd(divisor, defects[i] - defects[i - 1]);
        return divisor;
    }
};

Tally tally_of(HexLines& lines, const std::vector<SumRule>& rules, const ReachableOptions& limits) {
    const Format format = rules.front().format;
    Tally tally;
    Progress progress("sum reachable");
    for (;;) {
        std::vector<std::vector<std::byte>> buffers(lines.columns());
        const std::size_t count = lines.read(buffers, 256);
        if (count == 0) return tally;
        for (std::size_t i = 0; i < count; ++i) {
            std::vector<Bits> leaves;
            for (const auto& buffer : buffers) leaves.push_back(load(format, buffer, i));
            const Bits result = leaves.back();
            leaves.pop_back();
            tally.add(assess(rules, leaves, result, limits), format, result);
        }
        progress.update(fmt::format("{} elements", tally.elements));
    }
}

std::string text_of(const Tally& tally) {
    std::string text;
    if (!tally.defects.empty()) {
        text += tally.first_text + "elements:";
        for (std::size_t i = 0; i < std::min<std::size_t>(tally.defects.size(), 12); ++i)
            text += fmt::format(" {}", tally.defects[i]);
        text += tally.defects.size() > 12 ? " ...\n" : "\n";
        if (tally.defects.size() > 2 && tally.stride() > 1)
            text += fmt::format("all {} apart, or multiples of it\n", tally.stride());
    }
    return text + fmt::format("{} elements: {} reachable, {} by no order (defects), {} undecided\n", tally.elements,
                              tally.counts[0], tally.counts[1], tally.counts[2]);
}

/// Elements of stdin: the leaves, then the observed result.
Exit reachable_lines(const Options& options, const std::vector<SumRule>& rules, const ReachableOptions& limits) {
    HexLines lines(STDIN_FILENO, rules.front().format, 0);
    if (lines.columns() < 2)
        throw UsageError(
            "each line on stdin: expected the ranks' bit patterns, then the result's; or give --values and --result");
    const Tally tally = tally_of(lines, rules, limits);
    const Exit exit = !tally.defects.empty()                                                  ? Exit::not_as_claimed
                      : tally.counts[static_cast<std::size_t>(Reach::Verdict::undecided)] > 0 ? Exit::inconclusive
                                                                                              : Exit::as_claimed;
    return emit(options, text_of(tally),
                {{"elements", tally.elements},
                 {"reachable", tally.counts[0]},
                 {"defects", tally.counts[1]},
                 {"undecided", tally.counts[2]},
                 {"defect_elements", tally.defects},
                 {"stride", tally.stride()},
                 {"first", tally.first}},
                exit);
}

// One element

Exit list_results(const Options& options, const SumRule& rule, std::span<const Bits> leaves,
                  const ReachableOptions& limits) {
    const ReachableSums sums(rule, leaves, limits);
    const SumBound bound = any_order_bound(rule, leaves);
    Json json{{"rounding", name(rule.accumulation)}, {"results", Json::array()}};
    if (bound.finite) json["bound"] = {bound.low, bound.high};
    std::string text;
    for (const Bits bits : sums.results()) {
        const std::string tree = sums.tree_for(bits)->str();
        json["results"].push_back(value_json(rule.format, bits));
        json["results"].back()["tree"] = tree;
        text += fmt::format("{}  {:<24} {}\n", hex(rule.format, bits), decimal(rule.format, bits), tree);
    }
    text += fmt::format("{} results, {}\n{}", sums.results().size(), name(rule.accumulation), describe(bound));
    return emit(options, text, json, Exit::as_claimed);
}

std::string text_of(const Assessment& found, Format format, Bits result, const SumBound& bound) {
    std::string text = fmt::format("{:<10} {}\n{}", "result", value_text(format, result), describe(bound));
    for (const Attempt& attempt : found.attempts) text += describe(attempt, result) + "\n";
    const Attempt& last = found.attempts.back();
    if (found.verdict == Reach::Verdict::reachable && last.reach.tree)
        return text + fmt::format("reachable: by {} ({})\n", last.reach.tree->str(), name(last.rule.accumulation));
    return text + fmt::format("{}\n", name(found.verdict));
}

}  // namespace

Exit sum_reachable(std::span<const std::string> arguments) {
    Options options = reachable_options();
    if (!options.parse(arguments)) return Exit::as_claimed;
    const std::vector<SumRule> rules = rules_in(options);
    const Format format = rules.front().format;
    const ReachableOptions limits = limits_in(options);
    const auto text = options.find<std::string>("values");
    if (!text) return reachable_lines(options, rules, limits);
    const std::vector<Bits> leaves = values_in(format, *text);
    if (options.has("list")) return list_results(options, rules.front(), leaves, limits);
    const Bits result = parse_value(format, options.get<std::string>("result"));
    const Assessment found = assess(rules, leaves, result, limits);
    const SumBound bound = any_order_bound(rules.front(), leaves);
    Json json = json_of(found, result);
    json["result"] = value_json(format, result);
    json["bound"] = json_of(bound);
    return emit(options, text_of(found, format, result, bound), json, exit_of(found.verdict));
}

}  // namespace samesum
