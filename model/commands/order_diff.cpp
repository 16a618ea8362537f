// samesum order diff: which elements change their order between two calls, or between two recordings.
// SPDX-License-Identifier: Apache-2.0
#include "model/analysis/order_diff.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/analysis/recording_diff.hpp"
#include "model/commands/call_flags.hpp"
#include "model/commands/commands.hpp"
#include "model/commands/order_text.hpp"
#include "model/commands/record_file.hpp"
#include "model/input/call_description.hpp"
#include "model/support/output.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;

Options diff_options() {
    Options options("order diff [flags] --with 'FLAGS' | order diff FILE FILE",
                    "Lists the elements whose order differs between two calls: the call that the flags describe, and "
                    "the same call\n"
                    "with the flags of --with replaced. Or between two files that reveal --save wrote, e.g. on two "
                    "NCCL versions.\n"
                    "Exit 1 when an element changes, as diff does.",
                    {"samesum order diff nccl-2.27.jsonl nccl-2.28.jsonl",
                     "samesum order diff --collective all_reduce --ranks 8 --ranks-per-node 1 --algo ring --proto ll "
                     "--count 4096 --with "
                     "'--count 8192'",
                     "samesum order diff --collective all_reduce --ranks 8 --ranks-per-node 8 --channels 16 --algo "
                     "tree --proto simple "
                     "--count 64x4096 --with '--channels 24'",
                     "samesum order diff ... --count 3000 --with '--count 8000' --offset 5000    (a tensor alone, or "
                     "fused behind another)"});
    add_communicator_flags(options);
    add_call_flags(options);
    options.with_json().positional("FILE", 2);
    options.add()("with", po::value<std::string>()->value_name("FLAGS"), "flags of the second call that differ")(
        "offset", po::value<std::string>()->default_value("0")->value_name("N"),
        "element i of the first call is element i + N of the second (of each rank's block, for reduce_scatter)")(
        "limit", po::value<std::size_t>()->default_value(32)->value_name("N"), "maximum number of ranges to list");
    return options;
}

// Two recordings

std::vector<Record> records_in(const std::string& file) {
    std::vector<Record> records;
    for_each_record(file, [&](const Record& record, std::size_t) { records.push_back(record); });
    if (records.empty()) throw UsageError(fmt::format("{}: no record: expected one JSON object a line", file));
    return records;
}

std::string gpu_of(const Record& record) { return record.gpu.empty() ? "unknown GPU" : record.gpu; }

Json json_of(const RecordingDiff& diff, const Record& before, const Record& after) {
    Json changes = Json::array();
    for (const RecordingChange& change : diff.changes)
        changes.push_back({{"what", change.what},
                           {"min_bytes", change.min_bytes},
                           {"max_bytes", change.max_bytes},
                           {"before", change.before},
                           {"now", change.after},
                           {"calls", change.calls},
                           {"share_in_another_order", change.share},
                           {"example", change.example}});
    const auto side = [](const Record& first) {
        return Json{{"nccl_version", str(first.version)}, {"gpu", gpu_of(first)}};
    };
    return {{"before", side(before)},      {"now", side(after)}, {"compared", diff.compared},
            {"unchanged", diff.unchanged}, {"changes", changes}, {"only_before", diff.only_before},
            {"only_now", diff.only_after}};
}

std::string text_of(const RecordingDiff& diff, const Record& before, const Record& after) {
    std::string text;
    for (const auto& [side, first] : {std::pair{"before", &before}, std::pair{"now", &after}})
        text += fmt::format("# {}: NCCL {}, {}\n", side, str(first->version), gpu_of(*first));
    for (const RecordingChange& change : diff.changes) text += change.str() + "\n";
    for (const auto& [calls, where] : {std::pair{&diff.only_before, "before"}, std::pair{&diff.only_after, "now"}})
        if (!calls->empty())
            text += fmt::format("only {}: {} calls, the first: {}\n", where, calls->size(), calls->front());
    return text + fmt::format("{} of {} calls as before\n", diff.unchanged, diff.compared);
}

/// What changed between two files that reveal --save wrote.
Exit diff_files(const Options& options, const std::string& before, const std::string& after) {
    const std::vector<Record> old_records = records_in(before), new_records = records_in(after);
    const RecordingDiff diff = diff_recordings(old_records, new_records);
    if (diff.compared == 0) throw UsageError(fmt::format("{} and {} have no call in common", before, after));
    bool changed = false;
    for (const RecordingChange& change : diff.changes) changed = changed || change.orders();
    return emit(options, text_of(diff, old_records.front(), new_records.front()),
                json_of(diff, old_records.front(), new_records.front()),
                changed ? Exit::not_as_claimed : Exit::as_claimed);
}

// Two calls

struct TwoCalls {
    std::array<ResolvedCall, 2> calls;
    std::array<Plan, 2> plans;
};

Json json_of(const TwoCalls& two, const OrderChanges& found, const OrderTable& table) {
    Json json{{"before", describe(two.calls[0])},
              {"before_ran", describe(two.plans[0])},
              {"after", describe(two.calls[1])},
              {"after_ran", describe(two.plans[1])},
              {"assumptions", two.calls[0].assumptions},
              {"compared", found.compared},
              {"changed", found.changed},
              {"ranges_total", found.ranges},
              {"orders", orders_json(table)},
              {"trees", Json::array()},
              {"changes", Json::array()}};
    for (std::size_t i = 0; i < table.size(); ++i) json["trees"].push_back(tree_json(table.order(i)));
    for (const OrderChange& change : found.changes)
        json["changes"].push_back({change.begin, change.end, change.old_order, change.new_order});
    return json;
}

std::string text_of(const TwoCalls& two, const OrderChanges& found, const OrderTable& table) {
    std::string text =
        fmt::format("before  {}: {}\nafter   {}: {}\n{}", describe(two.calls[0]), describe(two.plans[0]),
                    describe(two.calls[1]), describe(two.plans[1]), assumptions_text(two.calls[0].assumptions));
    if (found.changed > 0) {
        text += fmt::format("\n{:>14} {:>14} {:>14}  order\n", "begin", "end", "elements");
        std::vector<bool> used(table.size());
        for (const OrderChange& change : found.changes) {
            text += fmt::format("{:>14} {:>14} {:>14}  {} -> {}\n", change.begin, change.end, change.end - change.begin,
                                letters(change.old_order), letters(change.new_order));
            used[change.old_order] = used[change.new_order] = true;
        }
        if (found.ranges > found.changes.size())
            text += fmt::format("{:>14} {} ranges in all; --limit N lists more\n", "...", found.ranges);
        text += "\n";
        for (std::size_t i = 0; i < table.size(); ++i)
            if (used[i]) text += fmt::format("{}  {}\n", letters(i), expression(table.order(i)));
    }
    return text + fmt::format("\n{} of {} elements change their order\n", found.changed, found.compared);
}

}  // namespace

Exit order_diff(std::span<const std::string> arguments) {
    Options first = diff_options(), second = diff_options();
    if (!first.parse(arguments)) return Exit::as_claimed;
    if (const auto files = first.words(); files.size() == 2)
        return diff_files(first, files[0], files[1]);
    else if (files.size() == 1)
        throw UsageError(fmt::format("{} alone: expected two files that reveal --save wrote", files[0]));
    if (!second.parse(with_changes(arguments, po::split_unix(first.get<std::string>("with"))))) return Exit::as_claimed;
    const std::array calls{resolve(call_from(first)), resolve(call_from(second))};
    const TwoCalls two{calls, {calls[0].plan(), calls[1].plan()}};
    OrderTable table;
    const OrderChanges found =
        order_changes(two.plans[0], two.plans[1], parse_count(first.get<std::string>("offset"), "offset"),
                      first.get<std::size_t>("limit"), table);
    return emit(first, text_of(two, found, table), json_of(two, found, table),
                found.changed > 0 ? Exit::not_as_claimed : Exit::as_claimed);
}

}  // namespace samesum
