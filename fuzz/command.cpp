// samesum fuzz: lists, replays or runs a campaign, and turns what came out into an exit code.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "fuzz/campaign_flags.hpp"
#include "fuzz/commands.hpp"
#include "fuzz/fault_search.hpp"
#include "fuzz/replay.hpp"
#include "fuzz/report.hpp"
#include "model/support/files.hpp"
#include "model/support/output.hpp"
#include "model/support/progress.hpp"

namespace samesum {
namespace {

using namespace fuzz;
using Json = nlohmann::ordered_json;

Exit list_properties(const Options& options) {
    std::size_t width = 0;
    for (const Property& property : properties()) width = std::max(width, property.name.size());
    std::string text;
    Json rows = Json::array();
    for (const Property& property : properties()) {
        text += fmt::format("{:<{}}  {:<7}  {}\n", property.name, width, name(property.expected), property.sentence);
        rows.push_back({{"property", property.name},
                        {"sentence", property.sentence},
                        {"scope", property.scope},
                        {"expected", name(property.expected)}});
    }
    return emit(options, text, {{"properties", rows}}, Exit::as_claimed);
}

Exit replay_lines(const Options& options, const std::string& word, Backend& backend) {
    std::error_code ignored;
    const bool file = word == "-" || std::filesystem::is_regular_file(word, ignored);
    const std::vector<std::string> lines = file ? case_lines(word) : std::vector{word};
    if (lines.empty()) throw UsageError(fmt::format("--replay {}: no case in the file", word));
    bool as_claimed = true;
    std::string text;
    Json rows = Json::array();
    for (const std::string& line : lines) {
        const Replay result = replay(line, backend);
        const std::string description = describe(result.at_difference, backend);
        as_claimed = result.as_claimed() && as_claimed;
        text +=
            fmt::format("{}\n{}: {}; the sides {}, {}\n", description, result.property->name, result.property->sentence,
                        result.agree ? "agree" : "differ", result.as_claimed() ? "as claimed" : "not as claimed");
        rows.push_back({{"case", line},
                        {"property", result.property->name},
                        {"sentence", result.property->sentence},
                        {"text", description},
                        {"sides_agree", result.agree},
                        {"as_claimed", result.as_claimed()}});
    }
    return emit(options, text, {{"replayed", rows}}, as_claimed ? Exit::as_claimed : Exit::not_as_claimed);
}

/// "# seed ..." and so on: what it takes to repeat the run.
std::string head_of(const RunInfo& run) {
    return fmt::format("# seed {}\n# commit {}\n# backend {}{}\n# {}\n", run.seed, run.commit, run.backend,
                       run.backend_note.empty() ? "" : fmt::format(" (nccl not used: {})", run.backend_note),
                       run.versions);
}

Exit self_test(const Options& options, const RunInfo& run, std::vector<FaultSearch> searches, Backend& backend) {
    std::string none_on_ranks;
    if (backend.setups() > 0) {
        try {
            for (FaultSearch& search : search_faults_of_ranks(backend, run.seed, 2000))
                searches.push_back(std::move(search));
        } catch (const UsageError& error) {
            none_on_ranks = error.what();
        }
    }
    std::string text;
    std::size_t caught = 0;
    for (const FaultSearch& search : searches) {
        caught += search.caught;
        text += fmt::format("{:<28} {:<9} {:>5} cases of {}\n    {}\n", search.fault->name,
                            search.caught ? "caught" : "SURVIVED", search.cases, search.fault->property,
                            search.fault->sentence);
    }
    text += fmt::format("{} of {} planted faults caught{}\n", caught, searches.size(),
                        none_on_ranks.empty() ? "" : "; none on the ranks: " + none_on_ranks);
    Json document = json_of(run);
    document["faults"] = json_of(searches);
    if (!none_on_ranks.empty()) document["no_faults_on_ranks"] = none_on_ranks;
    return emit(options, text, document, caught == searches.size() ? Exit::as_claimed : Exit::not_as_claimed);
}

std::string status_of(const CampaignOptions& campaign, std::span<const Tally> tallies, double seconds) {
    std::uint64_t cases = 0, findings = 0;
    std::set<Combination> reached;
    for (const Tally& tally : tallies) {
        for (const auto& [combination, count] : tally.combinations) reached.insert(combination);
        cases += tally.cases;
        findings += tally.finding && tally.property->expected == Verdict::upheld;
    }
    std::string left;
    if (campaign.seconds) left = fmt::format(", {:.0f} s left", std::max(0.0, *campaign.seconds - seconds));
    if (campaign.cases)
        left = fmt::format(", {:.0f} %", 100.0 * static_cast<double>(cases * campaign.shards) /
                                             static_cast<double>(*campaign.cases * tallies.size()));
    return fmt::format("{} cases, {:.0f} per second, {} NCCL combinations, {} findings{}", cases,
                       static_cast<double>(cases) / std::max(seconds, 1e-3), reached.size(), findings, left);
}

/// 1 for what came out otherwise, for planted faults that survive and for data that shows nothing; 3 for what was not
/// decided.
Exit exit_of(std::span<const Evidence> evidence) {
    const bool hollow = std::any_of(evidence.begin(), evidence.end(), [](const Evidence& line) {
        return line.detail.starts_with("vacuous") || line.detail.starts_with("empty");
    });
    return evidence.empty() || hollow ? Exit::not_as_claimed : exit_code(evidence);
}

/// What the user reads after the head.
std::string text_of(const Options& options, std::span<const Tally> tallies, std::span<const Evidence> evidence,
                    const std::vector<std::string>& left_out, double seconds) {
    std::string text;
    if (!left_out.empty())
        text += fmt::format("\nleft out, not possible on these ranks: {}\n", fmt::join(left_out, ", "));
    if (!options.has("ledger"))
        text += fmt::format("\nwhat the cases were:\n{}\nNCCL combinations reached:\n{}\n", histogram_of(tallies),
                            coverage_of(tallies));
    std::uint64_t cases = 0;
    for (const Tally& tally : tallies) cases += tally.cases;
    text += format_ledger(evidence, colourful(STDOUT_FILENO));
    text += fmt::format("{} cases in {:.1f} s, {:.0f} per second, digest {:016x}\n", cases, seconds,
                        static_cast<double>(cases) / std::max(seconds, 1e-3), digest_of(tallies));
    return text;
}

Exit run(const Options& options, CampaignOptions campaign, const RunInfo& info, Backend& backend,
         std::vector<FaultSearch> searches, std::vector<Evidence> evidence) {
    const Enumeration enumeration = enumeration_flag(options, campaign, backend.setups() > 0);
    Progress progress("fuzz");
    const double began = monotonic_seconds();
    double shown = 0;
    campaign.progress = [&](std::span<const Tally> tallies) {
        if (monotonic_seconds() - shown < 0.1) return;
        shown = monotonic_seconds();
        progress.update(status_of(campaign, tallies, monotonic_seconds() - began));
    };
    const std::vector<Tally> tallies = run_campaign(campaign);
    const double seconds = monotonic_seconds() - began;

    std::vector<std::string> left_out;
    for (const Tally& tally : tallies)
        if (tally.cases == 0 && tally.why_undecided.empty() && tally.unavailable > 0)
            left_out.push_back(tally.property->name);
        else
            evidence.push_back(evidence_of(tally, info.backend));
    evidence.push_back(evidence_of(searches));
    for (Evidence& line : enumerate(backend, enumeration)) evidence.push_back(std::move(line));
    if (const auto corpus = options.find<std::string>("corpus")) keep_findings(*corpus, tallies, info);
    Json document = json_of(info, tallies, searches, evidence);
    document["left_out"] = left_out;
    document["seconds"] = seconds;
    if (const auto bundles = options.find<std::string>("bundle"))
        for (const std::string& bundle : write_bundles(*bundles, info, tallies, document))
            fmt::print(stderr, "samesum fuzz: {}: attach this folder to a report\n", bundle);
    if (const auto junit = options.find<std::string>("junit")) write_file(*junit, junit_of(info, evidence));
    return emit(options, text_of(options, tallies, evidence, left_out, seconds), document, exit_of(evidence));
}

}  // namespace

Exit fuzz_command(std::span<const std::string> arguments) {
    Options options = fuzz_flags();
    if (!options.parse(arguments)) return Exit::as_claimed;
    if (options.has("list")) return list_properties(options);
    Limits limits = limits_flags(options);
    const ChosenBackend chosen = backend_flags(options, limits);
    Backend& backend = *chosen.backend;
    if (const auto word = options.find<std::string>("replay")) return replay_lines(options, *word, backend);
    const CampaignOptions campaign = campaign_flags(options, limits, chosen.backend);
    (void)enumeration_flag(options, campaign, backend.setups() > 0);  // wrong values are reported first

    const RunInfo info{campaign.seed, commit(), backend.description(), chosen.note, versions()};
    // Printed at once, so that a campaign that is stopped can be repeated.
    if (!json_alone(options)) fmt::print("{}", head_of(info));
    std::vector<Evidence> evidence;
    if (const auto corpus = options.find<std::string>("corpus")) replay_corpus(*corpus, backend, evidence);
    std::vector<FaultSearch> searches = search_faults(campaign.seed, 2000);
    if (options.has("self-test")) return self_test(options, info, std::move(searches), backend);
    return run(options, campaign, info, backend, std::move(searches), std::move(evidence));
}

}  // namespace samesum
