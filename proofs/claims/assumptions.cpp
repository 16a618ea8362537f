// The table, joined with results on a live machine.
// SPDX-License-Identifier: Apache-2.0
#include "proofs/claims/assumptions.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace samesum {
namespace {

bool matches(const std::vector<std::string>& globs, const std::string& name) {
    return std::any_of(globs.begin(), globs.end(),
                       [&](const std::string& glob) { return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0; });
}

bool depends_on(const Obligation& obligation, const NcclAssumption& assumption) {
    const auto& names = obligation.assumes_of_nccl;
    return std::find(names.begin(), names.end(), assumption.name) != names.end();
}

/// Results on real NCCL of the claims that would fail without the assumption.
struct LiveResult {
    std::size_t lines = 0, refuted = 0, open = 0;

    [[nodiscard]] bool holds() const { return lines > 0 && refuted == 0 && open == 0; }
    [[nodiscard]] std::string words() const {
        if (lines == 0) return "not tested";
        if (refuted > 0) return fmt::format("does not hold: refuted by {} of {} lines of this ledger", refuted, lines);
        if (open > 0) return fmt::format("open: {} of {} lines of this ledger are inconclusive", open, lines);
        return fmt::format("holds in {} lines of this ledger", lines);
    }
};

LiveResult seen(const NcclAssumption& assumption, std::span<const Evidence> ledger) {
    LiveResult here;
    for (const Evidence& line : ledger) {
        if (!matches(assumption.tested, line.claim)) continue;
        ++here.lines;
        here.refuted += line.verdict == Verdict::refuted ? 1 : 0;
        here.open += line.verdict == Verdict::inconclusive ? 1 : 0;
    }
    return here;
}

std::vector<std::string> names_of(std::span<const Obligation> obligations, auto&& wanted) {
    std::vector<std::string> names;
    for (const Obligation& each : obligations)
        if (wanted(each) && std::find(names.begin(), names.end(), each.name) == names.end()) names.push_back(each.name);
    return names;
}

}  // namespace

const std::vector<NcclAssumption>& nccl_assumptions() {
    static const std::vector<NcclAssumption> table{
        {"adds_as_modelled",
         "one addition rounds once to nearest even; float8 saturates; NaNs come out as measured",
         "samesum reveal --arithmetic",
         {"*_on_nccl_equals_model"}},
        {"one_ring",
         "all channels that a call uses have one ring, walked from the root, up to its first two members",
         "samesum reveal --calls reduce:0:1048576",
         {"fixed_root_on_nccl_is_*"}},
        {"reduce_is_a_ring",
         "ncclReduce adds along each channel's ring, from the root's successor to the root",
         "samesum reveal --calls reduce:0:4096,reduce:1:4096",
         {"fixed_root_on_nccl_equals_model", "reduce_per_owner_on_nccl_equals_model"}},
        {"trees_are_nccls",
         "the tree algorithms link ranks as NCCL 2.28.9 does",
         "samesum reveal --algo tree --calls ar:4096",
         {}},
        {"channel_split_is_nccls",
         "elements are split over channels and chunks as in NCCL 2.28.9",
         "samesum reveal --calls reduce:0:300001,rs:300001,ar:300001",
         {"reduce_scatter_on_nccl_equals_model", "reduce_per_owner_on_nccl_equals_model"}},
        {"delivers_bytes",
         "send, receive, all-gather and broadcast move bytes and change none",
         "samesum run --scheme exchange_ordered",
         {"exchange_ordered_on_nccl_equals_model", "gather_ordered_on_nccl_equals_model"}}};
    return table;
}

std::string assumption_ledger(std::span<const Obligation> obligations, std::span<const Evidence> ledger) {
    std::size_t width = 0;
    for (const NcclAssumption& each : nccl_assumptions()) width = std::max(width, each.name.size());
    std::string text;
    std::vector<const NcclAssumption*> failing;
    bool live = false;
    for (const NcclAssumption& each : nccl_assumptions()) {
        const auto claims = names_of(obligations, [&](const Obligation& o) { return depends_on(o, each); });
        if (claims.empty()) continue;
        if (text.empty()) text = "assumptions about NCCL, each with a command that checks it on a live machine:\n";
        const auto line = [&](std::string_view name, const std::string& what) {
            text += fmt::format("  {:<{}}  {}\n", name, width, what);
        };
        line(each.name, each.sentence);
        line("", "checked by: " + each.probe);
        line("", fmt::format("used by: {}", fmt::join(claims, ", ")));
        const LiveResult here = seen(each, ledger);
        if (here.lines > 0) line("", "on this machine: " + here.words());
        live = live || here.lines > 0;
        if (!here.holds()) failing.push_back(&each);
    }
    if (!live) return text;
    const auto applies = [&](const Obligation& obligation) {
        return std::none_of(failing.begin(), failing.end(),
                            [&](const NcclAssumption* each) { return depends_on(obligation, *each); });
    };
    const auto list = [&](std::string_view what, const std::vector<std::string>& names) {
        if (!names.empty()) text += fmt::format("{}: {}\n", what, fmt::join(names, ", "));
    };
    list("theorems that apply to this communicator", names_of(obligations, applies));
    list("theorems whose assumptions do not hold here or were not tested",
         names_of(obligations, [&](const Obligation& o) { return !applies(o); }));
    return text;
}

nlohmann::ordered_json assumptions_as_json() {
    nlohmann::ordered_json table = nlohmann::ordered_json::array();
    for (const NcclAssumption& each : nccl_assumptions())
        table.push_back({{"name", each.name}, {"sentence", each.sentence}, {"probe", each.probe}});
    return table;
}

}  // namespace samesum
