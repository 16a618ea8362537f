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
#include "model/support/numbers.hpp"
#include "model/support/output.hpp"
#include "model/support/progress.hpp"

namespace samesum::gpu {
namespace {

using Json = nlohmann::ordered_json;

/// The results of all groups that were tried.
struct Tally {
    std::uint64_t groups = 0, refused = 0, not_one_order = 0, not_observable = 0;
    std::uint64_t records = 0, predicted = 0, differing = 0;
    std::string lines;  ///< JSON, one record on each line
    Json communicators = Json::array(), results = Json::array();
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

/// Why the forced algorithm and protocol were not tested: NCCL's log names others. Empty where they were.
std::string not_engaged(const NcclEnvironment& forced, const std::string& said) {
    const auto choice = parse_choice_line(said);
    if (!choice) return said.empty() ? "NCCL did not log what it ran" : "NCCL logged: " + said;
    const auto listed = [](const std::string& setting, std::string_view taken, auto parse) {
        if (setting.empty() || setting.find_first_of("^;:,") != std::string::npos) return true;
        return name(parse(setting)) == taken;
    };
    if (!listed(forced.algorithms, name(choice->algorithm), parse_algorithm) ||
        !listed(forced.protocols, name(choice->protocol), parse_protocol))
        return "NCCL ran " + said;
    return "";
}

/// "4 ranks, Reduce to 0 x 4096 float32, ring/LL, captured".
std::string describe_group(const LiveRanks& ranks, const ReduceGroup& group) {
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
    return what;
}

/// Reveals groups of calls, prints a line for each call, and counts.
class GroupRevealer {
public:
    GroupRevealer(LiveRanks& ranks, const RevealOptions& how, std::string graph_label, const LiveText& text,
                  Tally& tally)
        : ranks_(ranks), how_(how), graph_label_(std::move(graph_label)), text_(text), tally_(tally) {}

    void reveal_group(const ReduceGroup& group) {
        ++tally_.groups;
        const std::string what = describe_group(ranks_, group);
        std::string said;
        double seconds = 0;
        Revealed revealed;
        try {
            const SumUnderTest sum = on_real_ranks(ranks_, group, said, seconds);
            revealed = reveal(group.calls.front().format, ranks_.ranks(), sum, how_);
        } catch (const Refusal& refusal) {
            return skip(what, refusal.what());
        }
        if (const std::string other = not_engaged(ranks_.environment(), said); !other.empty()) return skip(what, other);
        if (revealed.answer != Revealed::Answer::order) {
            ++(revealed.answer == Revealed::Answer::not_one_order ? tally_.not_one_order : tally_.not_observable);
            text_.print(fmt::format("{}: {}: {} ({})\n", name(revealed.answer), what, revealed.why, said));
            tally_.results.push_back(
                {{"call", what}, {"answer", name(revealed.answer)}, {"why", revealed.why}, {"nccl_says", said}});
            return;
        }
        for (std::size_t index = 0; index < group.calls.size(); ++index)
            compare_call(group, index, what, said, seconds, revealed);
    }

private:
    void skip(const std::string& what, const std::string& why) {
        ++tally_.refused;
        text_.print(fmt::format("skipped: {}: {}\n", what, why));
        tally_.results.push_back({{"call", what}, {"answer", "skipped"}, {"why", why}});
    }

    /// Records one call of a revealed group, and compares the record with the prediction.
    void compare_call(const ReduceGroup& group, std::size_t index, const std::string& what, const std::string& said,
                      double seconds, const Revealed& revealed) {
        const std::string line = record_line(ranks_, group, index, said, revealed, graph_label_);
        tally_.lines += line + "\n";
        ++tally_.records;
        const Record record = parse_record(line);
        const Match match = check_record(record);
        const bool same = match.outcome == Match::Outcome::matched;
        tally_.predicted += same ? 1 : 0;
        tally_.differing += match.outcome == Match::Outcome::differs ? 1 : 0;
        const std::uint64_t total = record.call.total(ranks_.ranks());
        const auto ranks = static_cast<std::uint64_t>(ranks_.ranks());
        const std::string call = what + (group.calls.size() > 1 ? fmt::format(", call {}", index) : "");
        text_.print(fmt::format("{}: {}: {} orders in {} segments, {}; {} masked calls in {:.3f} s; {}\n",
                                same ? "revealed" : "differs", call, record.trees.size(), record.segments.size(), said,
                                ranks * (ranks - 1) / 2, seconds,
                                same ? fmt::format("predicted = revealed for {} of {} elements", total, total)
                                     : "prediction: " + match.why));
        tally_.results.push_back({{"call", call},
                                  {"answer", name(revealed.answer)},
                                  {"predicted", same},
                                  {"why", match.why},
                                  {"elements", total},
                                  {"masked_calls", ranks * (ranks - 1) / 2},
                                  {"seconds", seconds},
                                  {"record", Json::parse(line)}});
    }

    LiveRanks& ranks_;
    const RevealOptions& how_;
    std::string graph_label_;
    const LiveText& text_;
    Tally& tally_;
};

/// "reduce:0:4096", "rs:1000", "ar:5;ar:7": a group of calls.
ReduceGroup parse_group(const std::string& text, Format format, bool captured, int ranks) {
    ReduceGroup group{parse_calls(text, format), captured};
    for (const Call& call : group.calls)
        if (call.root >= ranks)
            throw UsageError(fmt::format("--calls '{}': root {}: expected 0 to {}", text, call.root, ranks - 1));
    return group;
}

/// The order of a shared library's sum: its trees and their segments. There is no prediction to compare with.
Exit reveal_plugin(const Options& options, const std::string& file, const std::vector<Format>& formats,
                   std::span<const std::string> rank_counts, const RevealOptions& how) {
    const auto elements = options.get<std::uint64_t>("elements");
    const LiveText text(options);
    Plugin plugin(file);
    std::uint64_t unordered = 0;
    Json sums = Json::array();
    for (const std::string& count : rank_counts)
        for (const Format format : formats) {
            const int ranks = rank_options(options, count).ranks;
            const Revealed revealed = reveal(format, ranks, plugin.sum(format, ranks, elements), how);
            text.print(fmt::format("{} ranks, {} x {}: {}", ranks, elements, name(format), name(revealed.answer)));
            Json segments = Json::array();
            if (revealed.answer != Revealed::Answer::order) {
                ++unordered;
                text.print(fmt::format(": {}\n", revealed.why));
            } else {
                text.print("\n");
                for (const RevealedRange& range : revealed.segments) {
                    const std::string tree = revealed.trees[range.tree].str();
                    text.print(fmt::format("  [{}, {}): {}\n", range.begin, range.end, tree));
                    segments.push_back({{"begin", range.begin}, {"end", range.end}, {"tree", tree}});
                }
            }
            sums.push_back({{"ranks", ranks},
                            {"elements", elements},
                            {"dtype", name(format)},
                            {"answer", name(revealed.answer)},
                            {"why", revealed.why},
                            {"segments", segments}});
        }
    return emit(options, "", {{"plugin", file}, {"sums", sums}},
                unordered == 0 ? Exit::as_claimed : Exit::inconclusive);
}

/// One addition, minimum and maximum of two ranks against the model.
Exit reveal_arithmetic(const Options& options, const Hardware& hardware, const std::vector<Format>& formats) {
    const LiveText text(options);
    const ArithmeticProbe probe =
        probe_arithmetic(hardware, formats, options.get<std::uint64_t>("pairs"), options.get<std::uint64_t>("seed"),
                         [&](const ArithmeticRow& row) { text.print(row.str() + "\n"); });
    return emit(options,
                fmt::format("{} of {} results as modelled\n", probe.compared - probe.differing, probe.compared),
                to_json(probe),
                probe.compared == 0    ? Exit::inconclusive
                : probe.differing == 0 ? Exit::as_claimed
                                       : Exit::not_as_claimed);
}

/// The parts of a list, or one empty text, which forces nothing.
std::vector<std::string> list_or_any(const Options& options, const char* flag) {
    const auto text = options.get<std::string>(flag);
    return text.empty() ? std::vector<std::string>{""} : list_of(text, flag);
}

void reveal_on(LiveRanks& ranks, const Options& options, const std::vector<Format>& formats, const RevealOptions& how,
               const LiveText& text, Tally& tally) {
    NcclEnvironment environment = nccl_environment(options);
    std::string graph_label = options.get<std::string>("graph-label");
    if (graph_label.empty() && !environment.graph_file.empty())
        graph_label = std::filesystem::path(environment.graph_file).stem().string();
    GroupRevealer revealer(ranks, how, graph_label, text, tally);
    text.print(describe_run(ranks));
    for (const std::string& algorithm : list_or_any(options, "algo"))
        for (const std::string& protocol : list_or_any(options, "proto")) {
            environment.algorithms = algorithm;
            environment.protocols = protocol;
            const double begin = monotonic_seconds();
            ranks.open(environment);
            const double seconds = monotonic_seconds() - begin;
            text.print(fmt::format("# communicator of {} ranks open after {:.2f} s\n", ranks.ranks(), seconds));
            Json communicator = run_json(ranks);
            communicator["algorithms"] = algorithm;
            communicator["protocols"] = protocol;
            communicator["open_seconds"] = seconds;
            tally.communicators.push_back(std::move(communicator));
            for (const Format format : formats)
                for (const std::string& calls : list_of(options.get<std::string>("calls"), "calls"))
                    revealer.reveal_group(parse_group(calls, format, options.has("captured"), ranks.ranks()));
        }
}

Exit finish(const Options& options, const Tally& tally) {
    for (const char* flag : {"records", "save"})
        if (const auto file = options.find<std::string>(flag)) write_file(*file, tally.lines);
    const bool all_predicted = tally.records > 0 && tally.predicted == tally.records && tally.not_observable == 0;
    const Exit exit = tally.differing + tally.not_one_order > 0 ? Exit::not_as_claimed
                      : all_predicted                           ? Exit::as_claimed
                                                                : Exit::inconclusive;
    return emit(
        options,
        fmt::format("predicted {} of {} records; {} of {} groups skipped, {} not observable, {} not one order\n",
                    tally.predicted, tally.records, tally.refused, tally.groups, tally.not_observable,
                    tally.not_one_order),
        {{"groups", tally.groups},
         {"skipped", tally.refused},
         {"not_one_order", tally.not_one_order},
         {"not_observable", tally.not_observable},
         {"records", tally.records},
         {"predicted", tally.predicted},
         {"differing", tally.differing},
         {"communicators", tally.communicators},
         {"calls", tally.results}},
        exit);
}

Options reveal_options() {
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
                                                       "the graph file's name in the records")(
        "records", po::value<std::string>(), "write the records to this file, one JSON object on each line")(
        "save", po::value<std::string>(), "the same: for order diff after an upgrade")(
        "repeats", po::value<int>()->default_value(2), "runs of the same random data, which must agree")(
        "seed", po::value<std::uint64_t>()->default_value(1), "of the random data")(
        "arithmetic", "instead: the bits of one addition, minimum and maximum of two ranks against the model")(
        "pairs", po::value<std::uint64_t>()->default_value(65536), "operand pairs of each format, with --arithmetic")(
        "plugin", po::value<std::string>(), "instead: the order of a shared library's samesum_sum; needs no GPU")(
        "elements", po::value<std::uint64_t>()->default_value(1024), "of each call, with --plugin");
    return options;
}

}  // namespace

Exit reveal_command(std::span<const std::string> arguments) {
    Options options = reveal_options();
    if (!options.parse(arguments)) return Exit::as_claimed;

    const std::vector<Format> formats = formats_flag(options);
    const auto rank_counts = list_of(ranks_flag(options), "ranks");
    for (const std::string& count : rank_counts) {
        const int ranks = rank_options(options, count).ranks;
        for (const Format format : formats) (void)mask_values(format, ranks);
        for (const std::string& calls : list_of(options.get<std::string>("calls"), "calls"))
            (void)parse_group(calls, formats.front(), false, ranks);
    }
    RevealOptions how;
    how.seed = options.get<std::uint64_t>("seed");
    how.repeats = options.get<int>("repeats");
    if (how.repeats < 1) throw UsageError(fmt::format("--repeats {}: expected 1 or more", how.repeats));
    if (const auto file = options.find<std::string>("plugin"))
        return reveal_plugin(options, *file, formats, rank_counts, how);
    (void)nccl_environment(options);
    const Hardware hardware = probe_hardware();
    if (options.has("arithmetic")) return reveal_arithmetic(options, hardware, formats);

    const LiveText text(options);
    Tally tally;
    for (const std::string& count : rank_counts) {
        LiveRanks ranks(rank_options(options, count), hardware);
        reveal_on(ranks, options, formats, how, text, tally);
    }
    return finish(options, tally);
}

}  // namespace samesum::gpu
