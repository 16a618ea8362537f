// Most of NCCL's lines do not name their communicator: they belong to the one that the printing thread is
// initialising, between its "Init START" and "Init COMPLETE" lines.
//
//   host:pid:tid [dev] NCCL INFO <message>    ->  thread  ->  the rank it initialises  ->  ranks of one commId
//
// SPDX-License-Identifier: Apache-2.0
#include "model/input/log_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "model/support/text.hpp"

namespace samesum {
namespace {

struct OpenGraph {
    std::size_t rank;  ///< index of its rank
    std::optional<LoggedGraph> RankLog::*kind;
};

struct ThreadLog {
    std::optional<std::size_t> current;            ///< the rank that is being initialised
    std::optional<OpenGraph> graph;                ///< whose lists follow
    std::map<std::string, std::string> last_call;  ///< function: comm pointer of its latest COLL line
    std::string last_pointer;
};

class LogReader {
public:
    LogRanks read(std::string_view text);

private:
    LogSource source_before(std::string_view prefix);
    void read_line(std::string_view line);
    void read_message(std::string_view text);

    void take(const std::monostate&) {}
    void take(const GarbledLine&) { ++log_.garbled_lines; }
    void take(const VersionLine& line) { set_version(line.version); }
    void take(const InitLine& line);
    void take(const DestroyLine& line) { by_pointer_.erase({source_.process, line.pointer}); }
    void take(const ChannelCountLine& line);
    void take(const FeatureLine& line);
    void take(const ChannelLine& line);
    void take(const RingLine& line);
    void take(const TreeLine& line);
    void take(const TreesLine& line);
    void take(const LoggedGraph& graph);
    void take(const GraphListLine&) {}  // taken in read_message, below the graph it belongs to
    void take(const GpuLine& line) { current().gpu_rank[line.gpu] = line.rank; }
    void take(const CpuLine& line) { current().cpu = line.vendor; }
    void take(const CollLine& line);
    void take(LoggedChoice choice) { take_call(std::move(choice)); }
    void take(LoggedSymmetric call) { take_call(std::move(call)); }
    void take(const SettingLine& line) { log_.processes[source_.process].environment[line.key] = line.value; }

    template <class Choice>
    void take_call(Choice choice);
    void set_version(NcclVersion version);
    [[nodiscard]] bool took_graph_list(const LogLine& line);

    RankLog& new_rank();
    RankLog& current() { return thread_->current ? log_.ranks[*thread_->current] : new_rank(); }
    RankLog& current_of(int rank);
    std::size_t index_of(const RankLog& rank) const { return static_cast<std::size_t>(&rank - log_.ranks.data()); }
    RankLog* rank_of_pointer(const std::string& pointer);
    RankLog* rank_of(const InitLine& line);

    LogRanks log_;
    std::map<std::string, ThreadLog> threads_;
    std::set<std::string, std::less<>> known_;                               ///< processes that have written a line
    std::map<std::pair<std::string, std::string>, std::size_t> by_pointer_;  ///< process, comm pointer: latest rank
    LogSource source_;                                                       ///< of the line that is being read
    ThreadLog* thread_ = nullptr;                                            ///< of that line
};

/// Where a torn line stands right before the host's name, "busId a8host:1:2 [0]", a process that has written before
/// is preferred.
LogSource LogReader::source_before(std::string_view prefix) {
    LogSource source = log_source(prefix);
    if (source.host.empty() || known_.find(source.process) != known_.end()) return source;
    for (std::size_t cut = 1; cut < source.host.size(); ++cut) {
        if (known_.find(std::string_view(source.process).substr(cut)) == known_.end()) continue;
        source.host.erase(0, cut);
        source.process.erase(0, cut);
        source.thread.erase(0, cut);
        source.begin += cut;
        return source;
    }
    known_.insert(source.process);
    return source;
}

LogRanks LogReader::read(std::string_view text) {
    for (const std::string_view line : lines_of(text)) {
        ++log_.lines;
        if (line.find("NCCL") != std::string_view::npos) read_line(without_control(line));
    }
    return std::move(log_);
}

/// Processes that share a pipe can write into each other's lines: each message ends where the next source begins.
void LogReader::read_line(std::string_view line) {
    constexpr std::string_view info = "NCCL INFO ";
    std::size_t marker = line.find(info);
    if (marker == std::string_view::npos) {
        if (const auto version = version_in(line)) {
            ++log_.nccl_lines;
            source_ = log_source("");
            set_version(*version);
        }
        return;
    }
    while (marker != std::string_view::npos) {
        const LogSource source = source_before(line.substr(0, marker));
        line.remove_prefix(marker + info.size());
        marker = line.find(info);
        std::string_view message = line;
        if (marker != std::string_view::npos) message = line.substr(0, source_before(line.substr(0, marker)).begin);
        ++log_.nccl_lines;
        source_ = source;
        read_message(trimmed(message));
    }
}

void LogReader::read_message(std::string_view text) {
    if (text.find("RCCL version") != std::string_view::npos) log_.rccl = true;
    LogLine line = parse_log_line(text);
    thread_ = &threads_[source_.thread];
    if (took_graph_list(line)) return;
    thread_->graph.reset();
    std::visit([&](auto&& said) { take(std::forward<decltype(said)>(said)); }, std::move(line));
}

bool LogReader::took_graph_list(const LogLine& line) {
    const auto* list = std::get_if<GraphListLine>(&line);
    if (list == nullptr || !thread_->graph) return false;
    std::vector<std::vector<std::string>>& lists = (log_.ranks[thread_->graph->rank].*thread_->graph->kind)->lists;
    if (list->channel != static_cast<int>(lists.size())) return false;
    lists.push_back(list->gpus);
    return true;
}

void LogReader::set_version(NcclVersion version) {
    log_.processes[source_.process].version = version;
    log_.versions.insert(version);
}

RankLog& LogReader::new_rank() {
    thread_->current = log_.ranks.size();
    thread_->graph.reset();
    RankLog& rank = log_.ranks.emplace_back();
    rank.host = source_.host;
    rank.process = source_.process;
    rank.thread = source_.thread;
    rank.first_line = log_.lines;
    return rank;
}

/// The log of this rank in this thread. Where the lines do not name threads, several ranks share one.
RankLog& LogReader::current_of(int rank) {
    RankLog& latest = current();
    if (latest.rank == rank || (latest.rank < 0 && !latest.complete)) return latest;
    for (std::size_t i = log_.ranks.size(); i-- > 0;)
        if (log_.ranks[i].thread == source_.thread && log_.ranks[i].rank == rank && !log_.ranks[i].complete)
            return log_.ranks[i];
    return new_rank();
}

RankLog* LogReader::rank_of_pointer(const std::string& pointer) {
    const auto place = by_pointer_.find({source_.process, pointer});
    return place == by_pointer_.end() ? nullptr : &log_.ranks[place->second];
}

/// The rank that the line is about, if it is known already.
RankLog* LogReader::rank_of(const InitLine& line) {
    if (line.stage == InitLine::Stage::start) return nullptr;
    RankLog* known = rank_of_pointer(line.pointer);
    if (known != nullptr && known->rank == line.rank && (known->ranks == 0 || known->ranks == line.ranks)) return known;
    if (!thread_->current) return nullptr;
    RankLog& latest = log_.ranks[*thread_->current];
    const bool fits = latest.pointer.empty() && (latest.rank < 0 || latest.rank == line.rank) && !latest.complete;
    return fits ? &latest : nullptr;
}

void LogReader::take(const InitLine& line) {
    if (line.stage == InitLine::Stage::torn && !thread_->current) return;
    const bool complete = line.stage == InitLine::Stage::complete;
    RankLog* known = rank_of(line);
    RankLog& rank = known != nullptr ? *known : new_rank();
    if (!complete && !rank.complete) thread_->current = index_of(rank);
    rank.pointer = line.pointer;
    by_pointer_[{source_.process, line.pointer}] = index_of(rank);
    rank.rank = line.rank;
    rank.ranks = line.ranks;
    rank.started = rank.started || line.stage == InitLine::Stage::start;
    if (!line.comm_id.empty()) rank.comm_id = line.comm_id;
    if (!line.bus.empty()) rank.bus = line.bus;
    if (!line.parent.empty()) {
        rank.parent = line.parent;
        rank.split = line.split;
    }
    if (line.nodes > 0) rank.nodes = line.nodes;
    if (line.local_ranks > 0) rank.local_ranks = line.local_ranks;
    if (!complete) return;
    rank.complete = true;
    if (thread_->current == index_of(rank)) thread_->current.reset();
}

void LogReader::take(const ChannelCountLine& line) {
    RankLog* named = rank_of_pointer(line.pointer);
    (named != nullptr ? *named : current()).channels = line.channels;
}

void LogReader::take(const FeatureLine& line) {
    RankLog& rank = current();
    if (line.nvls) rank.nvls = line.nvls;
    if (line.collnet) rank.collnet = line.collnet;
    if (line.net_offload) rank.net_offload = line.net_offload;
    if (!line.thread_thresholds.empty()) rank.thread_thresholds = line.thread_thresholds;
}

// In a log without "Init START" a second, different line for the same channel begins the thread's next communicator.

void LogReader::take(const ChannelLine& line) {
    if (line.cut) ++log_.cut_lines;
    RankLog* rank = &current_of(0);
    const auto known = rank->channel_lines.find(line.channel);
    if (known != rank->channel_lines.end() && !rank->started && known->second.ranks != line.ranks) rank = &new_rank();
    rank->rank = 0;
    if (rank->channels == 0) rank->channels = line.channels;
    rank->channel_lines[line.channel] = line;
}

void LogReader::take(const RingLine& line) {
    const std::pair neighbours(line.previous, line.next);
    RankLog* rank = &current_of(line.rank);
    const auto known = rank->ring.find(line.channel);
    if (known != rank->ring.end() && !rank->started && known->second != neighbours) rank = &new_rank();
    rank->rank = line.rank;
    rank->ring[line.channel] = neighbours;
}

void LogReader::take(const TreesLine& line) {
    RankLog* rank = nullptr;
    for (const TreeLine& item : line.items) {
        if (rank == nullptr) {
            rank = &current_of(item.rank);
            const auto known = rank->trees.find(item.channel);
            if (known != rank->trees.end() && !rank->started && known->second != item.links) rank = &new_rank();
            rank->rank = item.rank;
        }
        rank->trees[item.channel] = item.links;
    }
    if (rank != nullptr && line.cut) rank->trees_cut = true;
    if (line.cut) ++log_.cut_lines;
    if (line.garbled) ++log_.garbled_lines;
}

void LogReader::take(const TreeLine& line) {
    RankLog& rank = current_of(line.rank);
    if (rank.rank < 0) rank.rank = line.rank;
    rank.trees.emplace(line.channel, line.links);
}

void LogReader::take(const LoggedGraph& graph) {
    if (graph.pattern > 5) return;  // CollNet direct, whose order is not observable
    const auto kind = graph.pattern == 4   ? &RankLog::ring_graph
                      : graph.pattern == 5 ? &RankLog::nvls_graph
                                           : &RankLog::tree_graph;
    RankLog& rank = current();
    // Ring, tree, then CollNet chain, whose pattern is "tree" again: the first of each kind counts.
    if (rank.*kind) return;
    rank.*kind = graph;
    thread_->graph = OpenGraph{index_of(rank), kind};
}

void LogReader::take(const CollLine& line) {
    thread_->last_pointer = line.pointer;
    thread_->last_call[line.function] = line.pointer;
}

template <class Choice>
void LogReader::take_call(Choice choice) {
    choice.line = log_.lines;
    const auto call = thread_->last_call.find(choice.function);
    const RankLog* rank = rank_of_pointer(call != thread_->last_call.end() ? call->second : thread_->last_pointer);
    const auto index = rank == nullptr ? std::nullopt : std::optional(index_of(*rank));
    log_.calls.push_back({std::move(choice), source_.process, index});
}

/// Groups ranks by communicator: first those that a commId or a split identifies, then the others.
class Grouping {
public:
    explicit Grouping(const std::vector<RankLog>& ranks) : ranks_(ranks) {}

    std::vector<std::vector<std::size_t>> groups() {
        std::vector<std::size_t> anonymous;
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
            const RankLog& rank = ranks_[i];
            if (!rank.comm_id.empty())
                join(fmt::format("{} of {}", rank.comm_id, rank.ranks), i);
            else if (!rank.parent.empty())
                join(fmt::format("{} of {}, {}", rank.split, rank.ranks, parent_of(i)), i);
            else if (rank.rank >= 0)
                anonymous.push_back(i);
        }
        identified_ = groups_.size();
        for (const std::size_t i : anonymous) join_by_order(i);
        std::sort(groups_.begin(), groups_.end(), [&](const auto& a, const auto& b) {
            return ranks_[a.front()].first_line < ranks_[b.front()].first_line;
        });
        return std::move(groups_);
    }

private:
    /// A communicator of anonymous ranks.
    struct Open {
        std::size_t group;
        int ranks;
        std::set<int> has;
    };

    void join(const std::string& key, std::size_t i) {
        const auto [place, is_new] = by_key_.emplace(key, groups_.size());
        if (is_new) groups_.emplace_back();
        groups_[place->second].push_back(i);
        group_of_[i] = place->second;
    }

    [[nodiscard]] std::string parent_of(std::size_t i) const {
        for (std::size_t j = i; j-- > 0;)
            if (ranks_[j].process == ranks_[i].process && ranks_[j].pointer == ranks_[i].parent)
                if (const auto group = group_of_.find(j); group != group_of_.end())
                    return fmt::format("parent {}", group->second);
        return "unknown parent";
    }

    /// The only identified communicator of the rank's size that lacks this rank.
    [[nodiscard]] std::optional<std::size_t> only_one_without(const RankLog& rank) const {
        std::optional<std::size_t> found;
        for (std::size_t g = 0; g < identified_; ++g) {
            const auto& members = groups_[g];
            const bool same_size = ranks_[members.front()].ranks == rank.ranks && rank.ranks != 0;
            const bool has =
                std::any_of(members.begin(), members.end(), [&](std::size_t j) { return ranks_[j].rank == rank.rank; });
            if (!same_size || has) continue;
            if (found) return std::nullopt;
            found = g;
        }
        return found;
    }

    /// By order alone: a rank goes to the first communicator of its size that does not have it yet.
    void join_by_order(std::size_t i) {
        const RankLog& rank = ranks_[i];
        if (const auto group = only_one_without(rank)) {
            groups_[*group].push_back(i);
            return;
        }
        auto place = std::find_if(open_.begin(), open_.end(), [&](const Open& o) {
            return o.has.count(rank.rank) == 0 && (o.ranks == rank.ranks || o.ranks == 0 || rank.ranks == 0);
        });
        if (place == open_.end()) {
            open_.push_back({groups_.size(), rank.ranks, {}});
            groups_.emplace_back();
            place = open_.end() - 1;
        }
        if (place->ranks == 0) place->ranks = rank.ranks;
        place->has.insert(rank.rank);
        groups_[place->group].push_back(i);
    }

    const std::vector<RankLog>& ranks_;
    std::vector<std::vector<std::size_t>> groups_;
    std::size_t identified_ = 0;
    std::map<std::string, std::size_t> by_key_;
    std::map<std::size_t, std::size_t> group_of_;
    std::vector<Open> open_;
};

}  // namespace

LogRanks read_log_ranks(std::string_view text) { return LogReader().read(text); }

std::vector<std::vector<std::size_t>> ranks_by_communicator(const std::vector<RankLog>& ranks) {
    return Grouping(ranks).groups();
}

}  // namespace samesum
