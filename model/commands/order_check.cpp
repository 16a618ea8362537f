// samesum order check: recorded orders of real NCCL against the prediction.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "model/analysis/record_check.hpp"
#include "model/commands/commands.hpp"
#include "model/commands/record_file.hpp"
#include "model/support/options.hpp"
#include "model/support/output.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;

std::string_view name(Match::Outcome outcome) {
    constexpr std::array<std::string_view, 3> names{"matched", "differs", "not modelled yet"};
    return names.at(static_cast<std::size_t>(outcome));
}

}  // namespace

Exit order_check(std::span<const std::string> arguments) {
    Options options(
        "order check FILE... [flags]",
        "Predicts the order of every element of each recorded call and compares it with the order that was\n"
        "revealed on real NCCL. A record that the model does not cover is counted as such, never as matched.",
        {"samesum order check tests/golden/observed/h200x1-one-rank-per-node.jsonl"});
    options.with_json().positional("FILE", -1);
    options.add()("verbose", "also list the records that match");
    if (!options.parse(arguments)) return Exit::as_claimed;
    if (options.words().empty()) throw UsageError("expected a file of records, one JSON object a line; see --help");

    std::size_t matched = 0, differing = 0, total = 0;
    std::string text;
    Json lines = Json::array();
    for (const std::string& file : options.words())
        for_each_record(file, [&](const Record& record, std::size_t line) {
            const Match match = check_record(record);
            ++total;
            matched += match.outcome == Match::Outcome::matched ? 1 : 0;
            differing += match.outcome == Match::Outcome::differs ? 1 : 0;
            if (match.outcome != Match::Outcome::matched || options.has("verbose"))
                text += fmt::format("{}:{}: {}{}{}\n", file, line, name(match.outcome), match.why.empty() ? "" : ": ",
                                    match.why);
            lines.push_back({{"file", file}, {"line", line}, {"outcome", name(match.outcome)}, {"why", match.why}});
        });
    text += fmt::format("matched {} of {} records\n", matched, total);
    return emit(options, text, {{"matched", matched}, {"differs", differing}, {"records", total}, {"lines", lines}},
                differing > 0                   ? Exit::not_as_claimed
                : matched == total && total > 0 ? Exit::as_claimed
                                                : Exit::inconclusive);
}

}  // namespace samesum
