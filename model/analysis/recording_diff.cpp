// Calls are paired by their arguments and settings; what NCCL logged about them and the revealed orders are compared.
// SPDX-License-Identifier: Apache-2.0
#include "model/analysis/recording_diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

namespace samesum {
namespace {

std::string str_bytes(std::uint64_t bytes) {
    if (bytes >= std::uint64_t{1} << 20) return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / (1 << 20));
    if (bytes >= 1024) return fmt::format("{:.4g} KiB", static_cast<double>(bytes) / 1024);
    return fmt::format("{} B", bytes);
}

/// Arguments and settings, without the count.
std::string kind_of(const Record& record) {
    std::string text = fmt::format("{} ranks", record.ranks);
    if (record.ranks_per_node > 1) text += fmt::format(" in nodes of {}", record.ranks_per_node);
    text += fmt::format(", {} of {}", name(record.call.collective), name(record.call.format));
    if (record.call.collective == Collective::reduce) text += fmt::format(" to {}", record.call.root);
    if (record.call.operation != Operation::sum) text += fmt::format(" by {}", name(record.call.operation));
    for (const auto& [variable, value] :
         {std::pair{"NCCL_ALGO", &record.algorithms}, std::pair{"NCCL_PROTO", &record.protocols},
          std::pair{"NCCL_MIN_NCHANNELS", &record.min_channels}, std::pair{"NCCL_GRAPH_FILE", &record.graph}})
        if (!value->empty()) text += fmt::format(", {}={}", variable, *value);
    if (!record.group.empty()) {
        text += fmt::format(", call {} of a group of", record.index);
        for (const Call& call : record.group) text += fmt::format(" {}:{}", name(call.collective), call.count);
    }
    return text;
}

std::string choice_of(const Record& record) {
    for (const LoggedChoice& choice : record.choices)
        if (choice.collective == record.call.collective) {
            const int channels = *choice.last_channel - *choice.first_channel + 1;
            return fmt::format("{} {}, {} channel{}", name(choice.algorithm), name(choice.protocol), channels,
                               channels == 1 ? "" : "s");
        }
    return "not logged by NCCL";
}

/// Walks both records' segments; returns how many elements are added in another order, and describes the first.
std::uint64_t count_changes(const Record& before, const Record& after, std::string& example) {
    std::uint64_t changed = 0, at = 0;
    for (std::size_t a = 0, b = 0; a < before.segments.size() && b < after.segments.size();) {
        const auto& old_range = before.segments[a];
        const auto& new_range = after.segments[b];
        const std::uint64_t end = std::min(old_range.end, new_range.end);
        const ReductionTree &old_tree = before.trees.at(old_range.tree), &new_tree = after.trees.at(new_range.tree);
        if (!same_order(old_tree, new_tree)) {
            if (changed == 0)
                example = fmt::format("element {}: {} before, {} now", at, old_tree.str(), new_tree.str());
            changed += end - at;
        }
        at = end;
        if (old_range.end == end) ++a;
        if (new_range.end == end) ++b;
    }
    return changed;
}

}  // namespace

std::string RecordingChange::str() const {
    const std::string sizes =
        min_bytes == max_bytes ? str_bytes(min_bytes) : str_bytes(min_bytes) + " to " + str_bytes(max_bytes);
    const std::string choice = before == after ? "still " + after : before + " before, " + after + " now";
    if (!orders()) return fmt::format("{}, {}: {}; every element in the same order", what, sizes, choice);
    return fmt::format("{}, {}: {}; {}{:.3g} % of the elements in another order\n  {}", what, sizes, choice,
                       calls > 1 ? "up to " : "", 100 * share, example);
}

RecordingDiff diff_recordings(std::span<const Record> before, std::span<const Record> after) {
    // By kind and count; of calls that were recorded twice the first is paired with the first.
    using Key = std::pair<std::string, std::uint64_t>;
    std::map<Key, std::vector<const Record*>> left;
    const auto key_of = [](const Record& record) { return Key{kind_of(record), record.call.count}; };
    for (const Record& record : after) left[key_of(record)].push_back(&record);
    RecordingDiff diff;
    struct Pair {
        Key key;
        const Record *before, *after;
    };
    std::vector<Pair> pairs;
    for (const Record& record : before) {
        auto& same = left[key_of(record)];
        if (same.empty()) {
            diff.only_before.push_back(fmt::format("{}, {} elements", kind_of(record), record.call.count));
            continue;
        }
        pairs.push_back({key_of(record), &record, same.front()});
        same.erase(same.begin());
    }
    for (const auto& [key, records] : left)
        for (std::size_t i = 0; i < records.size(); ++i)
            diff.only_after.push_back(fmt::format("{}, {} elements", key.first, key.second));
    std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) { return a.key < b.key; });

    const RecordingChange* last = nullptr;  // the change of the previous pair, which may include the next size
    for (const Pair& pair : pairs) {
        ++diff.compared;
        RecordingChange change;
        const std::uint64_t changed = count_changes(*pair.before, *pair.after, change.example);
        const std::uint64_t total = pair.before->segments.empty() ? 0 : pair.before->segments.back().end;
        change.what = pair.key.first;
        change.min_bytes = change.max_bytes =
            pair.key.second * static_cast<std::uint64_t>(traits(pair.before->call.format).bytes());
        change.before = choice_of(*pair.before);
        change.after = choice_of(*pair.after);
        change.calls = 1;
        change.share = total == 0 ? 0 : static_cast<double>(changed) / static_cast<double>(total);
        if (changed == 0 && change.before == change.after) {
            ++diff.unchanged;
            last = nullptr;
            continue;
        }
        if (last != nullptr && last->what == change.what && last->before == change.before &&
            last->after == change.after && last->orders() == change.orders()) {
            RecordingChange& run = diff.changes.back();
            run.max_bytes = change.max_bytes;
            run.share = std::max(run.share, change.share);
            ++run.calls;
        } else {
            diff.changes.push_back(std::move(change));
        }
        last = &diff.changes.back();
    }
    return diff;
}

}  // namespace samesum
