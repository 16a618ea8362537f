// Rank 0 prints the rings of all channels; each rank prints its own tree links. Where ranks are not logged, the
// nodes' search graphs are joined as NCCL joins them, if that fits all lines in the log.
// SPDX-License-Identifier: Apache-2.0
#include "model/input/log_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "model/nccl/settings.hpp"
#include "model/support/error.hpp"
#include "model/support/input_names.hpp"
#include "model/support/numbers.hpp"

namespace samesum {
namespace {

std::string every_rank() {
    return "give the log of every rank (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,TUNING,COLL, "
           "NCCL_DEBUG_FILE=nccl.%h.%p) or " +
           input_name("graph");
}

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// "0 to 3, 5"
std::string listed(const std::vector<int>& numbers) {
    std::string text;
    for (std::size_t i = 0; i < numbers.size();) {
        std::size_t j = i;
        while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
        if (!text.empty()) text += ", ";
        if (text.size() > 60) return fmt::format("{}and {} more", text, numbers.size() - i);
        text += j == i ? fmt::format("{}", numbers[i]) : fmt::format("{} to {}", numbers[i], numbers[j]);
        i = j + 1;
    }
    return text;
}

std::vector<int> all_but(int count, const std::set<int>& present) {
    std::vector<int> result;
    for (int i = 0; i < count; ++i)
        if (present.count(i) == 0) result.push_back(i);
    return result;
}

using RankLogs = std::vector<const RankLog*>;

/// A channel's ring as its ranks' lines give it: each rank's next, with its source.
class RingLinks {
public:
    RingLinks(int ranks, int channel) : ranks_(ranks), channel_(channel) {}

    void add(const RankLog& rank) {
        if (const auto line = rank.channel_lines.find(channel_); line != rank.channel_lines.end()) {
            const auto& ring = line->second.ranks;
            for (std::size_t i = 0; i + 1 < ring.size(); ++i) add(ring[i], ring[i + 1], "rank 0's 'Channel' line");
            if (!line->second.cut && !ring.empty()) add(ring.back(), ring.front(), "rank 0's 'Channel' line");
        }
        if (const auto ring = rank.ring.find(channel_); ring != rank.ring.end()) {
            const std::string source = fmt::format("rank {}'s 'Ring' line", rank.rank);
            add(ring->second.first, rank.rank, source);
            add(rank.rank, ring->second.second, source);
        }
    }

    /// Nothing where links are missing or contradict each other.
    std::optional<Ring> ring() {
        if (!contradiction_.empty()) return std::nullopt;
        Ring ring;
        int rank = 0;
        do {
            ring.push_back(rank);
            const auto step = next_.find(rank);
            if (step == next_.end()) return std::nullopt;
            rank = step->second.first;
        } while (rank != 0 && static_cast<int>(ring.size()) <= ranks_);
        const bool once = std::set<int>(ring.begin(), ring.end()).size() == ring.size();
        if (static_cast<int>(ring.size()) == ranks_ && once) return ring;
        contradiction_ = fmt::format("channel {}: the ring closes after {} of {} ranks", channel_, ring.size(), ranks_);
        return std::nullopt;
    }
    [[nodiscard]] const std::string& contradiction() const { return contradiction_; }

private:
    void add(int from, int to, const std::string& source) {
        for (const int rank : {from, to})
            if (rank < 0 || rank >= ranks_) {
                contradiction_ =
                    fmt::format("channel {}: {} names rank {} of {} ranks", channel_, source, rank, ranks_);
                return;
            }
        const auto [place, is_new] = next_.emplace(from, std::pair(to, source));
        if (!is_new && place->second.first != to)
            contradiction_ = fmt::format("channel {}: after rank {} comes {} by {}, but {} by {}", channel_, from,
                                         place->second.first, place->second.second, to, source);
    }

    int ranks_, channel_;
    std::map<int, std::pair<int, std::string>> next_;
    std::string contradiction_;
};

/// Links of all ranks must point at each other and form one tree.
bool is_one_tree(const TreeLinks& tree) {
    const int ranks = static_cast<int>(tree.up.size());
    int roots = 0;
    std::size_t edges = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        const int up = tree.up[at(rank)];
        if (up < -1 || up >= ranks) return false;
        roots += up == -1 ? 1 : 0;
        if (up >= 0) {
            const auto& siblings = tree.down[at(up)];
            if (std::count(siblings.begin(), siblings.end(), rank) != 1) return false;
        }
        for (const int child : tree.down[at(rank)]) {
            if (child < -1 || child >= ranks) return false;
            edges += child >= 0 ? 1u : 0u;
        }
    }
    if (roots != 1 || edges + 1 != at(ranks)) return false;
    std::vector<int> todo{tree.root};
    std::size_t seen = 0;
    while (!todo.empty() && seen <= at(ranks)) {
        const int rank = todo.back();
        todo.pop_back();
        ++seen;
        for (const int child : tree.down[at(rank)])
            if (child >= 0) todo.push_back(child);
    }
    return seen == at(ranks);
}

/// The ranks of GPUs as one rank's graph lines print them.
class GpuRanks {
public:
    GpuRanks(const RankLog& printer, const RankLogs& ranks, int count)
        : rank_of_(printer.gpu_rank), by_rank_(printer.gpu_rank.empty()), count_(count) {
        for (const RankLog* other : ranks)
            if (other->host == printer.host && !other->bus.empty()) {
                rank_of_.emplace(other->bus, other->rank);
                rank_of_.emplace("0-" + other->bus, other->rank);
            }
    }

    /// Empty where one of the GPUs is unknown.
    [[nodiscard]] std::vector<int> of(const std::vector<std::string>& gpus) const {
        std::vector<int> ranks;
        for (const std::string& gpu : gpus) {
            int rank = -1;
            if (const auto place = rank_of_.find(gpu); place != rank_of_.end())
                rank = place->second;
            else if (by_rank_)  // up to 2.27 the graph prints ranks: "GPU/3"; later "GPU/system-bus"
                rank = integer_in<int>(gpu).value_or(-1);
            if (rank < 0 || rank >= count_) return {};
            ranks.push_back(rank);
        }
        return ranks;
    }

private:
    std::map<std::string, int> rank_of_;
    bool by_rank_;
    int count_;
};

/// The lists of the node of one rank, by search channel; empty where a list is not a permutation of the node's ranks.
std::vector<NodeLists> lists_of_node(const RankLog& printer, const GpuRanks& gpus) {
    const LoggedGraph &ring = *printer.ring_graph, &tree = *printer.tree_graph;
    const std::size_t channels = std::min(ring.lists.size(), tree.lists.size());
    std::vector<NodeLists> lists;
    for (std::size_t c = 0; c < channels; ++c) {
        NodeLists own{gpus.of(ring.lists[c]), gpus.of(tree.lists[c]), static_cast<TreePattern>(tree.pattern)};
        std::vector<int> a = own.ring, b = own.tree;
        std::sort(a.begin(), a.end());
        std::sort(b.begin(), b.end());
        if (a.empty() || a != b || std::adjacent_find(a.begin(), a.end()) != a.end()) return {};
        if (own.ring.size() == 1) own.pattern = TreePattern::tree;
        lists.push_back(std::move(own));
    }
    return lists;
}

/// Each node's own lists, if a rank of every node printed its graphs and their GPUs have ranks.
std::optional<std::vector<std::vector<NodeLists>>> node_lists(const RankLogs& ranks, int count) {
    struct Node {
        std::vector<NodeLists> lists;
        bool crosses = false;
    };
    std::map<int, Node> by_lowest;  // nodes are numbered by their lowest rank
    for (const RankLog* rank : ranks) {
        if (!rank->ring_graph || !rank->tree_graph) continue;
        std::vector<NodeLists> lists = lists_of_node(*rank, GpuRanks(*rank, ranks, count));
        if (lists.empty()) return std::nullopt;
        const int lowest = *std::min_element(lists[0].ring.begin(), lists[0].ring.end());
        by_lowest.emplace(lowest, Node{std::move(lists), rank->ring_graph->cross_nic == 2});
    }
    std::size_t listed_ranks = 0, channels = at(max_logged_channels);
    for (const auto& [lowest, node] : by_lowest) {
        listed_ranks += node.lists[0].ring.size();
        channels = std::min(channels, node.lists.size());
    }
    if (listed_ranks != at(count) || by_lowest.empty()) return std::nullopt;
    std::vector<std::vector<NodeLists>> nodes;
    for (auto& [lowest, node] : by_lowest) {
        node.lists.resize(channels);
        // connect.cc, ncclTopoPostset: with crossNic 2 odd nodes swap the rings of neighbouring channels.
        if (node.crosses && channels % 2 == 0 && nodes.size() % 2 == 1)
            for (std::size_t c = 0; c < channels; c += 2) std::swap(node.lists[c].ring, node.lists[c + 1].ring);
        nodes.push_back(std::move(node.lists));
    }
    return nodes;
}

/// Puts a communicator together, each step with what the steps before it found.
class Assembly {
public:
    Assembly(const LogRanks& log, const std::vector<std::size_t>& members, const std::string& file) : log_(log) {
        for (const std::size_t i : members) ranks_.push_back(&log.ranks[i]);
        comm_.file = file;
    }

    LogCommunicator communicator() {
        for (const RankLog* rank : ranks_) add_rank(*rank);
        comm_.logged_ranks.assign(logged_.begin(), logged_.end());
        if (comm_.id.empty()) comm_.id = fmt::format("line {}", ranks_.front()->first_line);
        find_version();
        find_ranks();
        if (comm_.ranks == 0) return std::move(comm_);
        find_channels();
        find_rings();
        for (int c = 0; c < comm_.channels; ++c) find_tree(c);
        if (!open_trees_.empty() || !open_rings_.empty()) complete_from_graphs();
        report_open_links();
        find_nodes();
        if (!comm_.ring_graph || !comm_.tree_graph)
            comm_.missing.emplace_back(
                "the speeds of the search graphs, which NCCL's cost model needs: add GRAPH to NCCL_DEBUG_SUBSYS, or "
                "give " +
                input_name("machine"));
        return std::move(comm_);
    }

private:
    void agree(int& known, int said, const char* what, const RankLog& rank);
    void add_rank(const RankLog& rank);
    void add_features(const RankLog& rank);
    void add_process(const RankLog& rank);
    void find_version();
    void find_ranks();
    void find_channels();
    void find_rings();
    void find_tree(int channel);
    [[nodiscard]] bool fits(const Topology& topology) const;
    void complete_from_graphs();
    void report_open_links();
    [[nodiscard]] std::vector<std::string> hosts_by_rank() const;
    void find_nodes();

    const LogRanks& log_;
    RankLogs ranks_;
    LogCommunicator comm_;
    std::set<int> logged_;
    int local_ranks_ = 0;
    bool same_local_ranks_ = true;
    std::set<NcclVersion> versions_;
    std::vector<int> open_rings_;                              ///< channels
    std::map<std::vector<int>, std::vector<int>> open_trees_;  ///< ranks without links: channels
};

void Assembly::agree(int& known, int said, const char* what, const RankLog& rank) {
    if (said == 0) return;
    if (known == 0) known = said;
    if (known != said)
        comm_.contradictions.push_back(
            fmt::format("rank {} says {} {}, another rank {}", rank.rank, said, what, known));
}

void Assembly::add_rank(const RankLog& rank) {
    if (comm_.id.empty()) comm_.id = rank.comm_id.empty() ? rank.pointer : rank.comm_id;
    logged_.insert(rank.rank);
    agree(comm_.ranks, rank.ranks, "ranks", rank);
    agree(comm_.nodes, rank.nodes, "nodes", rank);
    agree(comm_.channels, rank.channels, "channels", rank);
    if (rank.local_ranks != 0) {
        if (local_ranks_ != 0 && local_ranks_ != rank.local_ranks) same_local_ranks_ = false;
        local_ranks_ = rank.local_ranks;
    }
    add_features(rank);
    add_process(rank);
}

void Assembly::add_features(const RankLog& rank) {
    if (rank.nvls) comm_.nvls = comm_.nvls.value_or(false) || *rank.nvls;
    if (rank.cpu && comm_.cpu && *rank.cpu != *comm_.cpu) comm_.cpu = CpuVendor::other;
    if (rank.cpu && !comm_.cpu) comm_.cpu = rank.cpu;
    if (rank.net_offload) comm_.net_offload = true;
    if (rank.collnet) comm_.collnet = true;
    if (comm_.thread_thresholds.empty()) comm_.thread_thresholds = rank.thread_thresholds;
    const auto add_graph = [&](std::optional<LoggedGraph>& known, const std::optional<LoggedGraph>& graph) {
        if (graph && (!known || rank.rank == 0)) known = graph;
    };
    add_graph(comm_.ring_graph, rank.ring_graph);
    add_graph(comm_.tree_graph, rank.tree_graph);
    add_graph(comm_.nvls_graph, rank.nvls_graph);
}

void Assembly::add_process(const RankLog& rank) {
    const auto process = log_.processes.find(rank.process);
    if (process == log_.processes.end()) return;
    if (const auto& version = process->second.version) versions_.insert(*version);
    for (const auto& [key, value] : process->second.environment) {
        const auto [place, is_new] = comm_.environment.emplace(key, value);
        if (!is_new && place->second != value && (key == "NCCL_ALGO" || key == "NCCL_PROTO"))
            comm_.contradictions.push_back(
                fmt::format("{} is '{}' for rank {} and '{}' for another", key, value, rank.rank, place->second));
    }
}

/// Only rank 0 prints the release, and some launchers lose the prefix of that line.
void Assembly::find_version() {
    if (versions_.empty()) versions_ = log_.versions;
    if (versions_.size() == 1)
        comm_.version = *versions_.begin();
    else if (versions_.size() > 1)
        comm_.contradictions.emplace_back("several NCCL versions are in use; cut the log to one job");
    if (!comm_.version)
        comm_.missing.emplace_back("the NCCL version: keep the line 'NCCL version 2.x.y', or give " +
                                   input_name("nccl-version"));
    if (log_.rccl) comm_.contradictions.emplace_back("this is a log of RCCL; only NCCL is modelled");
}

void Assembly::find_ranks() {
    for (const RankLog* rank : ranks_)
        for (const auto& [channel, line] : rank->channel_lines)
            if (!line.cut && comm_.ranks == 0) comm_.ranks = static_cast<int>(line.ranks.size());
    if (comm_.ranks == 0)
        comm_.missing.emplace_back("the number of ranks: keep the 'Init COMPLETE' lines or rank 0's 'Channel' lines");
}

void Assembly::find_channels() {
    for (const RankLog* rank : ranks_) {
        if (comm_.channels > 0) break;
        int max = -1;
        if (!rank->ring.empty()) max = std::max(max, rank->ring.rbegin()->first);
        if (!rank->trees.empty() && !rank->trees_cut) max = std::max(max, rank->trees.rbegin()->first);
        comm_.channels = max + 1;
    }
    if (comm_.channels == 0)
        comm_.missing.emplace_back(
            "the channels: keep the lines 'Channel 00/..', 'Trees' and 'N coll channels' (subsystem INIT)");
}

void Assembly::find_rings() {
    for (int c = 0; c < comm_.channels; ++c) {
        RingLinks links(comm_.ranks, c);
        for (const RankLog* rank : ranks_)
            if (links.contradiction().empty()) links.add(*rank);
        comm_.rings.push_back(links.ring());
        if (!links.contradiction().empty())
            comm_.contradictions.push_back(links.contradiction());
        else if (!comm_.rings.back())
            open_rings_.push_back(c);
    }
}

void Assembly::find_tree(int channel) {
    TreeLinks tree;
    tree.root = -1;
    tree.up.assign(at(comm_.ranks), -1);
    tree.down.assign(at(comm_.ranks), {-1, -1, -1});
    std::set<int> known;
    bool same = true;
    for (const RankLog* rank : ranks_) {
        const auto place = rank->trees.find(channel);
        if (place == rank->trees.end() || rank->rank < 0 || rank->rank >= comm_.ranks) continue;
        const auto& [up, down] = place->second;
        const std::size_t own = at(rank->rank);
        if (!known.insert(rank->rank).second && (tree.up[own] != up || tree.down[own] != down)) same = false;
        tree.up[own] = up;
        tree.down[own] = down;
        if (up < 0) tree.root = rank->rank;
    }
    comm_.trees.emplace_back();
    if (const std::vector<int> without = all_but(comm_.ranks, known); !without.empty())
        open_trees_[without].push_back(channel);
    else if (!same || tree.root < 0 || !is_one_tree(tree))
        comm_.contradictions.push_back(
            fmt::format("channel {}: the ranks' 'Trees' lines do not form one tree", channel));
    else
        comm_.trees.back() = std::move(tree);
}

/// Whether the topology has the rings and links of all lines in the log.
bool Assembly::fits(const Topology& topology) const {
    for (int c = 0; c < comm_.channels; ++c) {
        const Channel& channel = topology.channels()[at(c)];
        if (comm_.rings[at(c)] && rotated(*channel.ring, 0) != *comm_.rings[at(c)]) return false;
        for (const RankLog* rank : ranks_) {
            const auto place = rank->trees.find(c);
            if (place == rank->trees.end() || rank->rank >= comm_.ranks) continue;
            const std::size_t own = at(rank->rank);
            if (channel.tree->up[own] != place->second.up || channel.tree->down[own] != place->second.down)
                return false;
        }
    }
    return true;
}

/// What the nodes' graphs say about ranks that were not logged.
void Assembly::complete_from_graphs() {
    const auto lists = node_lists(ranks_, comm_.ranks);
    if (!lists || (comm_.nodes != 0 && static_cast<int>(lists->size()) != comm_.nodes)) return;
    const auto topology = Topology::from_node_lists(*lists).with_channels(comm_.channels, comm_.channels);
    if (!fits(topology)) return;
    for (int c = 0; c < comm_.channels; ++c) {
        const Channel& channel = topology.channels()[at(c)];
        if (!comm_.rings[at(c)]) comm_.rings[at(c)] = rotated(*channel.ring, 0);
        if (!comm_.trees[at(c)]) comm_.trees[at(c)] = *channel.tree;
    }
    open_rings_.clear();
    open_trees_.clear();
    comm_.assumptions.emplace_back(
        "links of ranks that were not logged follow from the nodes' graphs ('Pattern' lines), joined as NCCL joins "
        "them; they fit all lines in the log (to verify: 'Ring' and 'Trees' lines of every rank)");
    if (comm_.node_of.empty())
        for (int rank = 0; rank < comm_.ranks; ++rank) comm_.node_of.push_back(topology.node_of(rank));
    comm_.nodes = topology.nodes();
}

void Assembly::report_open_links() {
    if (!open_rings_.empty()) {
        const bool cut = std::any_of(ranks_.begin(), ranks_.end(), [](const RankLog* rank) {
            return std::any_of(rank->channel_lines.begin(), rank->channel_lines.end(),
                               [](const auto& line) { return line.second.cut; });
        });
        comm_.missing.push_back(fmt::format(
            "rings of channels {}: {}; {}", listed(open_rings_),
            cut ? "rank 0's 'Channel' lines are cut at 127 characters, and 'Ring' lines of some ranks are missing"
            : logged_.count(0) == 0 ? "rank 0, which prints them, is not in the log"
                                    : "rank 0's 'Channel' lines are missing",
            every_rank()));
    }
    const bool cut = std::any_of(ranks_.begin(), ranks_.end(), [](const RankLog* rank) { return rank->trees_cut; });
    for (const auto& [without, channels] : open_trees_)
        comm_.missing.push_back(fmt::format("tree links of ranks {} on channels {}{}; {}", listed(without),
                                            listed(channels), cut ? " ('Trees' lines are cut at 1023 characters)" : "",
                                            every_rank()));
}

/// Empty where one of the ranks' hosts is not known.
std::vector<std::string> Assembly::hosts_by_rank() const {
    std::vector<std::string> hosts(at(comm_.ranks));
    for (const RankLog* rank : ranks_)
        if (!rank->host.empty() && rank->rank >= 0 && rank->rank < comm_.ranks) hosts[at(rank->rank)] = rank->host;
    const bool all = std::none_of(hosts.begin(), hosts.end(), [](const auto& host) { return host.empty(); });
    return all ? hosts : std::vector<std::string>();
}

void Assembly::find_nodes() {
    const std::vector<std::string> hosts = hosts_by_rank();
    const auto distinct = static_cast<int>(std::set<std::string>(hosts.begin(), hosts.end()).size());
    if (comm_.nodes == 0 && !hosts.empty()) {
        comm_.nodes = distinct;
        comm_.assumptions.push_back(
            fmt::format("each of the {} hosts is one node (logs since 2.20 say 'nNodes')", distinct));
    }
    if (comm_.nodes == 0 && comm_.ranks == 1) comm_.nodes = 1;
    if (!comm_.node_of.empty()) return;
    if (comm_.nodes == comm_.ranks) {
        comm_.node_of.resize(at(comm_.ranks));
        std::iota(comm_.node_of.begin(), comm_.node_of.end(), 0);
    } else if (comm_.nodes == 1) {
        comm_.node_of.assign(at(comm_.ranks), 0);
    } else if (!hosts.empty() && distinct == comm_.nodes) {
        std::map<std::string, int> number;  // nodes are numbered by their lowest rank
        for (const std::string& host : hosts)
            comm_.node_of.push_back(number.emplace(host, static_cast<int>(number.size())).first->second);
    } else if (comm_.nodes > 1 && same_local_ranks_ && local_ranks_ > 0 &&
               static_cast<long long>(local_ranks_) * comm_.nodes == comm_.ranks) {
        for (int rank = 0; rank < comm_.ranks; ++rank) comm_.node_of.push_back(rank / local_ranks_);
        comm_.assumptions.push_back(fmt::format(
            "{} consecutive ranks share a node (to verify: the log of every rank, with its host name)", local_ranks_));
    } else {
        comm_.missing.push_back(fmt::format("which ranks share a node; {}", every_rank()));
    }
}

/// graph/tuning.cc: LL128 by default only over links that keep 128-byte stores whole.
bool keeps_ll128(const LoggedGraph& graph, int compute_capability) {
    const auto distance = [](std::string_view type) {
        constexpr std::array<std::string_view, 10> types{"LOC", "NVL", "NVB", "C2C", "PIX",
                                                         "PXB", "P2C", "PXN", "PHB", "SYS"};
        return std::find(types.begin(), types.end(), type) - types.begin();
    };
    return distance(graph.type_inter) <= distance(compute_capability >= 90 ? "PXN" : "PXB") &&
           distance(graph.type_intra) <= distance("NVB");
}

Machine machine_of(const LogCommunicator& log, int compute_capability) {
    Machine machine;
    machine.compute_capability = compute_capability;
    machine.cpu = log.cpu.value_or(CpuVendor::intel);
    machine.ring = log.ring_graph->speed;
    machine.tree = log.tree_graph->speed;
    if (log.nvls_graph) machine.nvls_graph = log.nvls_graph->speed;
    machine.nvls = log.nvls.value_or(false) && log.nvls_graph && log.nvls_graph->speed.channels > 1;
    machine.pat_network = !log.net_offload.value_or(false);
    machine.ll128 = compute_capability >= 70 && keeps_ll128(*log.ring_graph, compute_capability) &&
                    keeps_ll128(*log.tree_graph, compute_capability);
    return machine;
}

}  // namespace

LogCommunicator assemble_communicator(const LogRanks& log, const std::vector<std::size_t>& members,
                                      const std::string& file) {
    return Assembly(log, members, file).communicator();
}

const LoggedChoice* LogCommunicator::choice(Collective collective, std::uint64_t bytes) const {
    for (const LoggedChoice& each : choices)
        if (each.collective == collective && each.bytes == bytes) return &each;
    return nullptr;
}

std::string LogCommunicator::str() const {
    return fmt::format("{} ranks on {} nodes, {} channels, NCCL {}, {} logged",
                       ranks == 0 ? "?" : std::to_string(ranks), nodes == 0 ? "?" : std::to_string(nodes),
                       channels == 0 ? "?" : std::to_string(channels), version ? samesum::str(*version) : "?",
                       logged_ranks.size() == 1 ? fmt::format("rank {}", logged_ranks.front())
                                                : fmt::format("ranks {}", listed(logged_ranks)));
}

Communicator LogCommunicator::communicator(std::optional<NcclVersion> as_if,
                                           std::optional<int> compute_capability) const {
    const auto refuse = [&](std::string_view why) {
        throw UsageError(fmt::format("{}: communicator {}: {}", file, id, why));
    };
    if (!contradictions.empty()) refuse(contradictions.front());
    const bool rings_known =
        !rings.empty() && std::all_of(rings.begin(), rings.end(), [](const auto& ring) { return ring.has_value(); });
    if (ranks == 0 || !rings_known || node_of.empty())
        refuse(fmt::format("the log does not say: {}", missing.empty() ? "its rings" : missing.front()));
    const std::optional<NcclVersion> release = as_if ? as_if : version;
    if (!release) refuse("the log does not say its NCCL version; give " + input_name("nccl-version"));
    if (*release < NcclVersion{2, 27, 0} || *release >= NcclVersion{2, 31, 0})
        refuse(fmt::format("NCCL {} is not modelled; expected 2.27 to 2.30 ({} answers as if)", samesum::str(*release),
                           input_name("nccl-version")));

    std::vector<Channel> links;
    for (std::size_t c = 0; c < rings.size(); ++c) {
        Channel channel;
        // Equal rings share one: they repeat often and can be long.
        for (std::size_t earlier = 0; earlier < c; ++earlier) {
            if (!channel.ring && rings[earlier] == rings[c]) channel.ring = links[earlier].ring;
            if (!channel.tree && trees[c] && trees[earlier] == trees[c]) channel.tree = links[earlier].tree;
        }
        if (!channel.ring) channel.ring = std::make_shared<const Ring>(*rings[c]);
        if (!channel.tree && trees[c]) channel.tree = std::make_shared<const TreeLinks>(*trees[c]);
        links.push_back(std::move(channel));
    }
    Communicator comm{Topology(node_of, std::move(links)), *release};
    apply_environment(environment, comm.settings);
    if (compute_capability && ring_graph && tree_graph) comm.machine = machine_of(*this, *compute_capability);
    return comm;
}

}  // namespace samesum
