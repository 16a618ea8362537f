// samesum reveal: the orders of live NCCL, every element at once, as records that `samesum order check` reads.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "impl/check/compare_with_model.hpp"
#include "impl/check/plugin.hpp"
#include "impl/check/probe_arithmetic.hpp"
#include "impl/commands/commands.hpp"
#include "impl/commands/flags.hpp"
#include "model/analysis/record_check.hpp"
#include "model/sum/reveal.hpp"
#include "model/support/files.hpp"
#include "model/support/progress.hpp"

namespace samesum::gpu {
namespace {

/// What became of all the groups that were tried.
struct Tally {
    std::uint64_t groups = 0, refused = 0, not_one_order = 0, not_observable = 0;
    std::uint64_t records = 0, predicted = 0, differing = 0;
    std::string lines;  ///< JSON, one record a line
};

SumUnderTest on_real_ranks(LiveRanks& ranks, const ReduceGroup& group, std::string& said, double& seconds) {
    SumUnderTest sum;
    sum.elements = group.total(ranks.ranks());
    const Format format = group.calls.front().format;
    sum.run_masks = [&ranks, &group, &said, &seconds](std::span<const std::vector<Bits>> masks) {
        const double begin = monotonic_seconds();
        auto results = ranks.run_masks(group, masks, said);
        seconds += monotonic_seconds() - begin;
        return results;
    };
    sum.run_data = [&ranks, &group, &said, format,
                    elements = sum.elements](const std::function<void(int, std::span<std::byte>)>& fill) {
        for (int rank = 0; rank < ranks.ranks(); ++rank)
            fill(rank, ranks.input(rank, elements * static_cast<std::uint64_t>(traits(format).bytes())));
        return ranks.run_data(group, said);
    };
    return sum;
}

/// NCCL may run something else than what was forced; then nothing was tested, and its own word tells.
std::string not_engaged(const NcclEnvironment& forced, const std::string& said) {
    const auto choice = parse_choice_line(said);
    if (!choice) return said.empty() ? "NCCL did not say what it ran" : "NCCL said: " + said;
    const auto listed = [](const std::string& setting, std::string_view taken, auto parse) {
        if (setting.empty() || setting.find_first_of("^;:,") != std::string::npos) return true;
        return name(parse(setting)) == taken;
    };
    if (!listed(forced.algorithms, name(choice->algorithm), parse_algorithm) ||
        !listed(forced.protocols, name(choice->protocol), parse_protocol))
        return "NCCL ran " + said;
    return "";
}

void reveal_group(LiveRanks& ranks, const ReduceGroup& group, const RevealOptions& options,
                  const std::string& graph_label, Tally& tally) {
    ++tally.groups;
    std::string what = fmt::format("{} ranks", ranks.ranks());
    for (const Call& call : group.calls)
        what += fmt::format(", {}{} x {} {}", name(call.collective),
                            call.collective == Collective::reduce ? fmt::format(" to {}", call.root) : "", call.count,
                            name(call.format));
    const NcclEnvironment& forced = ranks.environment();
    if (!forced.algorithms.empty() || !forced.protocols.empty())
        what += fmt::format(", {}/{}", forced.algorithms.empty() ? "any" : forced.algorithms,
                            forced.protocols.empty() ? "any" : forced.protocols);
    if (group.captured) what += ", captured";
    std::string said;
    double seconds = 0;
    Revealed revealed;
    try {
        const SumUnderTest sum = on_real_ranks(ranks, group, said, seconds);
        revealed = reveal(group.calls.front().format, ranks.ranks(), sum, options);
    } catch (const Refusal& refusal) {
        ++tally.refused;
        fmt::print("skipped: {}: {}\n", what, refusal.what());
        return;
    }
    if (const std::string other = not_engaged(forced, said); !other.empty()) {
        ++tally.refused;
        fmt::print("skipped: {}: {}\n", what, other);
        return;
    }
    if (revealed.answer != Revealed::Answer::order) {
        ++(revealed.answer == Revealed::Answer::not_one_order ? tally.not_one_order : tally.not_observable);
        fmt::print("{}: {}: {} ({})\n", name(revealed.answer), what, revealed.why, said);
        return;
    }
    const std::uint64_t pairs =
        static_cast<std::uint64_t>(ranks.ranks()) * static_cast<std::uint64_t>(ranks.ranks() - 1) / 2;
    for (std::size_t index = 0; index < group.calls.size(); ++index) {
        const std::string line = record_line(ranks, group, index, said, revealed, graph_label);
        tally.lines += line + "\n";
        ++tally.records;
        const Record record = parse_record(line);
        const Match match = check_record(record);
        const bool same = match.outcome == Match::Outcome::matched;
        tally.predicted += same ? 1 : 0;
        tally.differing += match.outcome == Match::Outcome::differs ? 1 : 0;
        const std::uint64_t total = record.call.total(ranks.ranks());
        fmt::print("{}: {}{}: {} orders in {} segments, {}; {} masked calls in {:.3f} s; {}\n",
                   same ? "revealed" : "differs", what, group.calls.size() > 1 ? fmt::format(", call {}", index) : "",
                   record.trees.size(), record.segments.size(), said, pairs, seconds,
                   same ? fmt::format("predicted = revealed for {} of {} elements", total, total)
                        : "prediction: " + match.why);
    }
}

/// "reduce:0:4096", "rs:1000", "ar:5;ar:7": a group of calls.
ReduceGroup parse_group(const std::string& text, Format format, bool captured, int ranks) {
    ReduceGroup group{parse_calls(text, format), captured};
    for (const Call& call : group.calls)
        if (call.root >= ranks)
            throw UsageError(fmt::format("--calls '{}': root {} of {} ranks", text, call.root, ranks));
    return group;
}

/// The order of a sum that is not NCCL's: trees and where they hold, nothing to compare them with.
Exit reveal_plugin(const std::string& file, const std::vector<Format>& formats,
                   std::span<const std::string> rank_counts, std::uint64_t elements, const RevealOptions& how) {
    Plugin plugin(file);
    std::uint64_t unordered = 0;
    for (const std::string& many : rank_counts)
        for (const Format format : formats) {
            const int ranks = static_cast<int>(whole_number(many, "ranks"));
            const Revealed revealed = reveal(format, ranks, plugin.sum(format, ranks, elements), how);
            fmt::print("{} ranks, {} x {}: {}", ranks, elements, name(format), name(revealed.answer));
            if (revealed.answer != Revealed::Answer::order) {
                ++unordered;
                fmt::print(": {}\n", revealed.why);
                continue;
            }
            fmt::print("\n");
            for (const RevealedRange& range : revealed.segments)
                fmt::print("  [{}, {}): {}\n", range.begin, range.end, revealed.trees[range.tree].str());
        }
    return unordered == 0 ? Exit::as_claimed : Exit::inconclusive;
}

}  // namespace

Exit reveal_command(std::span<const std::string> arguments) {
    Options options(
        "reveal [flags]",
        "Finds the order of additions of every element of NCCL's calls on this machine: n(n-1)/2 masked\n"
        "calls for n ranks, confirmed on random data bit for bit, compared with the prediction, and recorded\n"
        "in the format that `samesum order check` reads.",
        {"samesum reveal --ranks 8 --calls 'reduce:0:4096,ar:32768' --dtype float32,bfloat16",
         "samesum reveal --ranks 4 --algo ring,tree --proto ll,simple --calls 'ar:1000;ar:3000;ar:9000'",
         "samesum reveal --arithmetic --dtype float8_e4m3"});
    options.with_json();
    add_rank_flags(options, "4");
    options.add()("calls", po::value<std::string>()->default_value("reduce:0:4096,rs:4096,ar:4096"),
                  "reduce:ROOT:COUNT, rs:COUNT, ar:COUNT, separated by commas; calls joined by ; form one group")(
        "dtype", po::value<std::string>()->default_value("float32"), "formats, separated by commas")(
        "captured", "run each call from a CUDA graph")("graph-label", po::value<std::string>()->default_value(""),
                                                       "what records call the graph file")(
        "records", po::value<std::string>(), "write the records to this file, one JSON object a line")(
        "save", po::value<std::string>(), "the same: for order diff after an upgrade")(
        "repeats", po::value<int>()->default_value(2), "runs of the same random data, which must agree")(
        "seed", po::value<std::uint64_t>()->default_value(1), "of the random data")(
        "arithmetic", "instead: the bits of one addition, minimum and maximum of two ranks against the model")(
        "pairs", po::value<std::uint64_t>()->default_value(65536), "operand pairs a format, with --arithmetic")(
        "plugin", po::value<std::string>(), "instead: the order of a shared library's samesum_sum; needs no GPU")(
        "elements", po::value<std::uint64_t>()->default_value(1024), "of each call, with --plugin");
    if (!options.parse(arguments)) return Exit::as_claimed;

    std::vector<Format> formats;
    for (const std::string& word : list_of(options.get<std::string>("dtype"), "dtype"))
        formats.push_back(parse_format(word));
    const auto rank_counts = list_of(ranks_flag(options), "ranks");
    for (const std::string& many : rank_counts) {
        const int count = rank_options(options, many).ranks;
        for (const Format format : formats) (void)mask_values(format, count);
        for (const std::string& calls : list_of(options.get<std::string>("calls"), "calls"))
            (void)parse_group(calls, formats.front(), false, count);
    }
    RevealOptions how;
    how.seed = options.get<std::uint64_t>("seed");
    how.repeats = options.get<int>("repeats");
    if (how.repeats < 1) throw UsageError("--repeats is less than 1; then nothing would be confirmed");
    if (const auto file = options.find<std::string>("plugin"))
        return reveal_plugin(*file, formats, rank_counts, options.get<std::uint64_t>("elements"), how);
    const Hardware hardware = probe_hardware();
    if (options.has("arithmetic"))
        return probe_arithmetic(hardware, formats, options.get<std::uint64_t>("pairs"),
                                options.get<std::uint64_t>("seed"), options.find<std::string>("json"));

    const auto either = [&](const char* flag) {
        const auto text = options.get<std::string>(flag);
        return text.empty() ? std::vector<std::string>{""} : list_of(text, flag);
    };
    NcclEnvironment environment = nccl_environment(options);
    std::string graph_label = options.get<std::string>("graph-label");
    if (graph_label.empty() && !environment.graph_file.empty())
        graph_label = std::filesystem::path(environment.graph_file).stem().string();

    Tally tally;
    for (const std::string& many : rank_counts) {
        LiveRanks ranks(rank_options(options, many), hardware);
        fmt::print("{}", describe_run(ranks));
        for (const std::string& algorithm : either("algo"))
            for (const std::string& protocol : either("proto")) {
                environment.algorithms = algorithm;
                environment.protocols = protocol;
                const double begin = monotonic_seconds();
                ranks.open(environment);
                fmt::print("# communicator of {} ranks open after {:.2f} s\n", ranks.ranks(),
                           monotonic_seconds() - begin);
                for (const Format format : formats)
                    for (const std::string& calls : list_of(options.get<std::string>("calls"), "calls"))
                        reveal_group(ranks, parse_group(calls, format, options.has("captured"), ranks.ranks()), how,
                                     graph_label, tally);
                std::fflush(stdout);
            }
    }
    for (const char* flag : {"records", "save"})
        if (const auto file = options.find<std::string>(flag)) write_file(*file, tally.lines);
    if (const auto file = options.find<std::string>("json"))
        write_json(*file, {{"groups", tally.groups},
                           {"skipped", tally.refused},
                           {"not_one_order", tally.not_one_order},
                           {"not_observable", tally.not_observable},
                           {"records", tally.records},
                           {"predicted", tally.predicted}});
    fmt::print("predicted {} of {} records; {} of {} groups skipped, {} not observable, {} not one order\n",
               tally.predicted, tally.records, tally.refused, tally.groups, tally.not_observable, tally.not_one_order);
    if (tally.differing + tally.not_one_order > 0) return Exit::not_as_claimed;
    return tally.records > 0 && tally.predicted == tally.records && tally.not_observable == 0 ? Exit::as_claimed
                                                                                              : Exit::inconclusive;
}

}  // namespace samesum::gpu
