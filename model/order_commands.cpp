// samesum order: which order NCCL adds in.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "model/cli.hpp"
#include "model/commands.hpp"
#include "model/records.hpp"

namespace samesum {
namespace {

Exit order_check(std::span<const std::string> arguments) {
    Options options(
        "order check FILE... [flags]",
        "Predicts the order of every element of each recorded call and compares it with the order that was\n"
        "revealed on real NCCL. A record that the model does not cover is counted as such, never as matched.",
        {"samesum order check tests/golden/observed/h200x1-one-rank-per-node.jsonl"});
    options.with_json().positional("FILE", -1);
    options.add()("verbose", "also list the records that match");
    if (!options.parse(arguments)) return Exit::as_claimed;
    if (options.words().empty()) throw UsageError("needs a file of records, one JSON object a line");

    std::size_t matched = 0, differing = 0, total = 0;
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const std::string& file : options.words()) {
        const std::string text = read_file(file);
        std::size_t line_number = 0;
        for (std::size_t begin = 0; begin < text.size();) {
            const std::size_t end = std::min(text.find('\n', begin), text.size());
            const std::string_view line = std::string_view(text).substr(begin, end - begin);
            begin = end + 1;
            ++line_number;
            if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
            Match match;
            try {
                match = check_record(parse_record(line));
            } catch (const UsageError& error) {
                throw UsageError(fmt::format("{}:{}: {}", file, line_number, error.what()));
            }
            ++total;
            matched += match.outcome == Match::Outcome::matched ? 1 : 0;
            differing += match.outcome == Match::Outcome::differs ? 1 : 0;
            constexpr std::array<std::string_view, 3> outcomes{"matched", "differs", "not modelled yet"};
            const std::string_view outcome = outcomes.at(static_cast<std::size_t>(match.outcome));
            if (match.outcome != Match::Outcome::matched || options.has("verbose"))
                fmt::print("{}:{}: {}{}{}\n", file, line_number, outcome, match.why.empty() ? "" : ": ", match.why);
            rows.push_back({{"file", file}, {"line", line_number}, {"outcome", outcome}, {"why", match.why}});
        }
    }
    if (const auto json = options.find<std::string>("json"))
        write_json(*json, {{"matched", matched}, {"differs", differing}, {"records", total}, {"lines", rows}});
    fmt::print("matched {} of {} records\n", matched, total);
    if (differing > 0) return Exit::not_as_claimed;
    return matched == total && total > 0 ? Exit::as_claimed : Exit::inconclusive;
}

}  // namespace

Exit order_command(std::span<const std::string> arguments) {
    const std::array commands{
        Command{"check", "recorded orders of real NCCL against the prediction", order_check},
    };
    return dispatch("order", arguments, commands);
}

}  // namespace samesum
