// The ledger's text and JSON.
// SPDX-License-Identifier: Apache-2.0
#include "model/support/ledger.hpp"

#include <fmt/color.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "model/support/text.hpp"

namespace samesum {

std::string_view name(Verdict verdict) {
    constexpr std::array<std::string_view, 3> names{"upheld", "refuted", "inconclusive"};
    return names.at(static_cast<std::size_t>(verdict));
}

Verdict parse_verdict(std::string_view word) {
    for (const Verdict verdict : {Verdict::upheld, Verdict::refuted, Verdict::inconclusive})
        if (word == name(verdict)) return verdict;
    throw UsageError(fmt::format("unknown verdict '{}': expected one of: upheld, refuted, inconclusive", word));
}

void to_json(nlohmann::ordered_json& json, const Evidence& e) {
    json = {{"claim", e.claim},           {"sentence", e.sentence},
            {"scope", e.scope},           {"expected", name(e.expected)},
            {"verdict", name(e.verdict)}, {"as_claimed", e.as_claimed()},
            {"decided_by", e.decided_by}, {"detail", e.detail},
            {"witness", e.witness},       {"replay", e.replay},
            {"seconds", e.seconds}};
}

Evidence evidence_from_json(const nlohmann::ordered_json& json) {
    const auto text = [&](const char* field) -> std::string {
        if (!json.is_object() || !json.contains(field) || !json.at(field).is_string())
            throw UsageError(fmt::format("a ledger line: expected a text field '{}'", field));
        return json.at(field).get<std::string>();
    };
    const auto verdict = [&](const char* field) {
        const std::string word = text(field);
        if (word.find_first_of("\n\r") != std::string::npos)
            throw UsageError(fmt::format("a ledger line: '{}' has a line break: expected one line", field));
        return parse_verdict(word);
    };
    Evidence e{text("claim"),      text("sentence"), text("scope"),   verdict("expected"), verdict("verdict"),
               text("decided_by"), text("detail"),   text("witness"), text("replay"),      0};
    if (json.contains("seconds") && json.at("seconds").is_number()) e.seconds = json.at("seconds").get<double>();
    return e;
}

Exit exit_code(std::span<const Evidence> ledger) {
    const auto differs = [](const Evidence& e) { return !e.as_claimed() && e.verdict != Verdict::inconclusive; };
    const auto open = [](const Evidence& e) { return !e.as_claimed() && e.verdict == Verdict::inconclusive; };
    if (std::any_of(ledger.begin(), ledger.end(), differs)) return Exit::not_as_claimed;
    if (ledger.empty() || std::any_of(ledger.begin(), ledger.end(), open)) return Exit::inconclusive;
    return Exit::as_claimed;
}

std::string format_ledger(std::span<const Evidence> ledger, bool colour, std::string_view notes) {
    constexpr std::array<std::string_view, 4> headings{"claim", "for", "decided by", "verdict"};
    std::vector<std::array<std::string, 4>> rows;
    for (const Evidence& e : ledger) {
        std::string verdict(name(e.verdict));
        if (e.as_claimed() && e.expected != Verdict::upheld) verdict += ", as claimed";
        if (!e.as_claimed()) verdict += fmt::format(", claimed {}", name(e.expected));
        rows.push_back({e.claim, e.scope, e.decided_by, verdict});
    }
    std::array<std::size_t, 4> width{};
    for (std::size_t c = 0; c < 4; ++c) {
        width[c] = headings[c].size();
        for (const auto& row : rows) width[c] = std::max(width[c], row[c].size());
    }
    std::string text = fmt::format("{:<{}}  {:<{}}  {:<{}}  {}\n", headings[0], width[0], headings[1], width[1],
                                   headings[2], width[2], headings[3]);
    std::size_t agreeing = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const Evidence& e = ledger[i];
        agreeing += e.as_claimed() ? 1 : 0;
        const auto style = !colour                              ? fmt::text_style{}
                           : e.as_claimed()                     ? fmt::fg(fmt::terminal_color::green)
                           : e.verdict == Verdict::inconclusive ? fmt::fg(fmt::terminal_color::yellow)
                                                                : fmt::fg(fmt::terminal_color::red);
        text += fmt::format("{:<{}}  {:<{}}  {:<{}}  {}\n", rows[i][0], width[0], rows[i][1], width[1], rows[i][2],
                            width[2], fmt::format(style, "{}", rows[i][3]));
    }
    for (const Evidence& e : ledger) {
        const bool unclear = !e.as_claimed() && !e.detail.empty();
        if (e.witness.empty() && !unclear) continue;
        text += fmt::format("\n{}: {}\n", e.claim, e.sentence);
        if (unclear) text += fmt::format("  {}\n", e.detail);
        for (const std::string_view line : lines_of(e.witness)) text += fmt::format("  {}\n", line);
        if (!e.replay.empty()) text += fmt::format("  replay: {}\n", e.replay);
    }
    if (!notes.empty()) text += fmt::format("\n{}", notes);
    text += fmt::format("\n{} of {} claims came out as stated\n", agreeing, ledger.size());
    return text;
}

}  // namespace samesum
