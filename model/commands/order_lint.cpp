// samesum order lint: what an environment's settings do for the order of sums.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/analysis/lint.hpp"
#include "model/commands/commands.hpp"
#include "model/input/environment_file.hpp"
#include "model/support/files.hpp"
#include "model/support/options.hpp"
#include "model/support/output.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;
using Holds = CollectiveAnswer::Holds;

constexpr std::string_view assumption = "ncclSum, buffers outside symmetric windows";

/// What of the report is asked for.
struct Selection {
    std::optional<Invariance> invariance;
    std::optional<Collective> collective;

    [[nodiscard]] bool takes(const auto& each) const {
        return (!invariance || each.invariance == *invariance) && (!collective || each.collective == *collective);
    }
};

std::string settings_text(const Recipe& recipe) {
    std::string text;
    for (const auto& [key, value] : recipe.settings)
        text += fmt::format("{}{}={}", text.empty() ? "" : " ", key,
                            value.find(';') == std::string::npos ? value : "'" + value + "'");
    if (!text.empty()) return text;
    return recipe.confirmed == Holds::yes ? "no setting needed" : "no setting";
}

Json as_json(const LintReport& report, const LintScope& scope, const Selection& selection) {
    Json json;
    json["nccl_version"] = str(scope.version);
    json["ranks"] = scope.ranks;
    json["ranks_per_node"] = scope.ranks_per_node;
    json["assumptions"] = {assumption};
    json["settings"] = Json::array();
    for (const LintRow& row : report.rows)
        json["settings"].push_back(
            {{"effect", name(row.effect)}, {"key", row.key}, {"value", row.value}, {"what", row.what}});
    json["blocks"] = report.blocks;
    if (selection.invariance) json["wanted"] = name(*selection.invariance);
    json["answers"] = Json::array();
    for (const CollectiveAnswer& answer : report.answers)
        if (selection.takes(answer))
            json["answers"].push_back({{"collective", name(answer.collective)},
                                       {"invariance", name(answer.invariance)},
                                       {"verdict", name(answer.holds)},
                                       {"why", answer.why}});
    json["recipes"] = Json::array();
    for (const Recipe& recipe : report.recipes) {
        if (!selection.takes(recipe)) continue;
        Json settings = Json::object();
        for (const auto& [key, value] : recipe.settings) settings[key] = value;
        json["recipes"].push_back({{"collective", name(recipe.collective)},
                                   {"invariance", name(recipe.invariance)},
                                   {"settings", settings},
                                   {"model_says", name(recipe.confirmed)},
                                   {"cost", recipe.cost}});
    }
    return json;
}

std::string rows_as_text(const LintReport& report) {
    const auto setting = [](const LintRow& row) {
        return row.value.empty() ? row.key : fmt::format("{}={}", row.key, row.value);
    };
    std::size_t width = 0;
    for (const LintRow& row : report.rows) width = std::max(width, std::min<std::size_t>(setting(row).size(), 48));
    std::string text;
    for (const LintRow& row : report.rows)
        text += fmt::format("{:<13}  {:<{}}  {}\n", name(row.effect), setting(row), width, row.what);
    if (report.rows.empty()) text += "no setting that concerns NCCL\n";
    for (const std::string& block : report.blocks) text += fmt::format("\nknown block: {}\n", block);
    return text;
}

std::string table_as_text(const LintReport& report, const Selection& selection) {
    std::string text = fmt::format("\n{:<14}", "");
    for (const Invariance invariance : all_invariances) text += fmt::format("  {:<10}", name(invariance));
    for (const CollectiveAnswer& answer : report.answers) {
        if (!selection.takes(answer)) continue;
        if (answer.invariance == all_invariances.front()) text += fmt::format("\n{:<14}", name(answer.collective));
        text += fmt::format("  {:<10}", name(answer.holds));
    }
    return text + "\n\n--want W explains one invariance, and lists settings that achieve it.\n";
}

std::string explanation_as_text(const LintReport& report, const Selection& selection) {
    std::string text = fmt::format("\nwanted: {}\n", name(*selection.invariance));
    for (const CollectiveAnswer& answer : report.answers)
        if (selection.takes(answer))
            text += fmt::format("  {:<14}  {:<8}  {}\n", name(answer.collective), name(answer.holds), answer.why);
    text += "\nsettings that achieve it\n";
    for (const Recipe& recipe : report.recipes)
        if (selection.takes(recipe))
            text += fmt::format("  {:<14}  {}\n  {:<14}  the model says {}; cost: {}\n", name(recipe.collective),
                                settings_text(recipe), "", name(recipe.confirmed), recipe.cost);
    return text;
}

}  // namespace

Exit order_lint(std::span<const std::string> arguments) {
    Options options("order lint [flags]",
                    "What an environment's settings do for the order of sums on one NCCL version.",
                    {"samesum order lint                                  # of this shell",
                     "samesum order lint --env block.sh --want count --collective all_reduce",
                     "docker inspect C --format '{{json .Config.Env}}' | samesum order lint --env - --ranks 16 "
                     "--ranks-per-node 8"});
    options.add()("env", po::value<std::string>()->value_name("FILE"),
                  "KEY=VALUE lines, export, docker -e, JSON ('-': stdin); default: this process's environment")(
        "ranks", po::value<int>()->default_value(8)->value_name("N"), "ranks of the communicator")(
        "ranks-per-node", po::value<int>()->value_name("N"), "ranks that share a node; default: all")(
        "nccl-version", po::value<std::string>()->default_value("2.28.9")->value_name("V"), "2.27 to 2.30")(
        "want", po::value<std::string>()->value_name("W"),
        "the invariance that must hold: run-to-run, rank-equal, owner, position, count, routing")(
        "collective", po::value<std::string>()->value_name("C"),
        "answer for this collective only: reduce, reduce_scatter, all_reduce");
    options.with_json();
    if (!options.parse(arguments)) return Exit::as_claimed;

    LintScope scope;
    scope.version = parse_nccl_version(options.get<std::string>("nccl-version"));
    scope.ranks = options.get<int>("ranks");
    scope.ranks_per_node = options.find<int>("ranks-per-node").value_or(scope.ranks);
    Selection selection;
    if (const auto word = options.find<std::string>("want")) selection.invariance = parse_invariance(*word);
    if (const auto word = options.find<std::string>("collective")) selection.collective = parse_collective(*word);
    Environment environment;
    if (const auto file = options.find<std::string>("env"))
        environment = parse_environment(read_file(*file), *file == "-" ? "stdin" : *file);
    else
        environment = process_environment();

    const LintReport report = lint(environment, scope);
    const bool achieved =
        !selection.invariance || std::all_of(report.answers.begin(), report.answers.end(), [&](const auto& answer) {
            return !selection.takes(answer) || answer.holds == Holds::yes;
        });
    Json json = as_json(report, scope, selection);
    if (selection.invariance) json["achieved"] = achieved;
    std::string text = fmt::format("NCCL {}, {} ranks, {} per node; {}\n\n", str(scope.version), scope.ranks,
                                   scope.ranks_per_node, assumption);
    text += rows_as_text(report);
    text += selection.invariance ? explanation_as_text(report, selection) : table_as_text(report, selection);
    return emit(options, text, json, achieved ? Exit::as_claimed : Exit::not_as_claimed);
}

}  // namespace samesum
