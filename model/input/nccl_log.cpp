// Lines to ranks, ranks to communicators. NCCL writes most lines without saying which communicator they belong to: they
// belong to the one that the printing thread is initialising, between its "Init START" and "Init COMPLETE" lines.
//
//   host:pid:tid [dev] NCCL INFO <message>    ->  thread  ->  the rank it initialises  ->  ranks of one commId
//
// The messages are those of NCCL 2.18 to 2.30: init.cc, graph/{search,connect,rings,tuning}.cc, enqueue.cc,
// misc/param.cc, scheduler/symmetric_sched.cc.
// SPDX-License-Identifier: Apache-2.0
#include "model/input/nccl_log.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <set>
#include <tuple>
#include <variant>

#include "model/nccl/settings.hpp"
#include "model/support/error.hpp"
#include "model/support/text.hpp"

namespace samesum {
namespace {

// The longest communicator that a log is believed about; a garbled line must not make us allocate without bound.
constexpr int max_ranks = 1 << 20;
constexpr int max_channels = 64;

constexpr std::string_view every_rank =
    "give the log of every rank (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,TUNING,COLL, "
    "NCCL_DEBUG_FILE=nccl.%h.%p) or --graph";

std::size_t at(int i) { return static_cast<std::size_t>(i); }

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || c == '\t'; }

/// Reads a message from left to right; each step says whether it was there.
struct Cursor {
    std::string_view rest;

    bool skip(std::string_view literal) {
        if (!rest.starts_with(literal)) return false;
        rest.remove_prefix(literal.size());
        return true;
    }
    void spaces() {
        while (!rest.empty() && is_space(rest.front())) rest.remove_prefix(1);
    }
    /// Goes behind the next occurrence.
    bool behind(std::string_view literal) {
        const std::size_t place = rest.find(literal);
        if (place == std::string_view::npos) return false;
        rest.remove_prefix(place + literal.size());
        return true;
    }
    template <class Number>
    bool number(Number& value) {
        spaces();
        const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
        if (error != std::errc{}) return false;
        rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
        return true;
    }
    std::string_view word() {
        spaces();
        const std::size_t end = std::min(rest.find_first_of(" \t,]"), rest.size());
        const std::string_view result = rest.substr(0, end);
        rest.remove_prefix(end);
        return result;
    }
};

/// The value behind "key " anywhere in the message.
template <class Number>
std::optional<Number> value_of(std::string_view message, std::string_view key) {
    Cursor cursor{message};
    Number value{};
    if (!cursor.behind(fmt::format("{} ", key)) || !cursor.number(value)) return std::nullopt;
    return value;
}
std::string word_of(std::string_view message, std::string_view key) {
    Cursor cursor{message};
    return cursor.behind(fmt::format("{} ", key)) ? std::string(cursor.word()) : "";
}

/// Without colours (ESC [ ... letter) and other control characters, tabs aside.
std::string without_control(std::string_view line) {
    std::string result;
    result.reserve(line.size());
    for (std::size_t i = 0; i < line.size(); ++i) {
        if (line[i] == '\x1b' && i + 1 < line.size() && line[i + 1] == '[') {
            i += 2;
            while (i < line.size() && !(line[i] >= '@' && line[i] <= '~')) ++i;
        } else if (static_cast<unsigned char>(line[i]) >= 0x20 || line[i] == '\t') {
            result += line[i];
        }
    }
    return result;
}

/// Who printed: "host:pid:tid [dev]" in front of "NCCL INFO", or whatever a launcher put there instead.
struct Speaker {
    std::string host, process, thread;  ///< process and thread include what is before them
    std::size_t begin = 0;              ///< where it begins in the text it was found in
};

Speaker speaker_of(std::string_view prefix) {
    std::string_view rest = prefix;
    const auto trim = [&] {
        while (!rest.empty() && is_space(rest.back())) rest.remove_suffix(1);
    };
    trim();
    std::string_view device;
    if (!rest.empty() && rest.back() == ']') {
        const std::size_t open = rest.rfind('[');
        if (open != std::string_view::npos && rest.size() - open <= 6 &&
            std::all_of(rest.begin() + static_cast<std::ptrdiff_t>(open) + 1, rest.end() - 1, is_digit)) {
            device = rest.substr(open);
            rest = rest.substr(0, open);
            trim();
        }
    }
    const auto digits_behind_colon = [&](std::string_view& text) -> std::string_view {
        std::size_t begin = text.size();
        while (begin > 0 && is_digit(text[begin - 1])) --begin;
        if (begin == text.size() || begin == 0 || text[begin - 1] != ':') return {};
        const std::string_view digits = text.substr(begin);
        text = text.substr(0, begin - 1);
        return digits;
    };
    std::string_view name = rest;
    const std::string_view thread = digits_behind_colon(name);
    const std::string_view process = thread.empty() ? thread : digits_behind_colon(name);
    if (!process.empty()) {
        const std::size_t end = name.find_last_of(" \t:>]|)");
        const std::string_view host = end == std::string_view::npos ? name : name.substr(end + 1);
        Speaker speaker;
        speaker.begin = static_cast<std::size_t>(host.data() - prefix.data());
        speaker.host = host;
        speaker.process = fmt::format("{}:{}", host, process);
        speaker.thread = fmt::format("{}:{}{}", speaker.process, thread, device);
        return speaker;
    }
    // No host:pid:tid. A launcher's rank tag still tells ranks apart: "[rank3]:", "[1,3]<stdout>:", "3:".
    std::string tag(device);
    for (const std::string_view begin : {"[rank", "[1,", "rank "}) {
        Cursor cursor{prefix};
        int rank = 0;
        if (cursor.behind(begin) && cursor.number(rank)) tag = fmt::format("tag {}{}", rank, device);
    }
    Cursor cursor{prefix};
    int rank = 0;
    if (cursor.number(rank) && cursor.skip(":")) tag = fmt::format("tag {}{}", rank, device);
    return {"", tag, tag, prefix.size()};
}

struct Links {
    int up = -1;
    std::array<int, 3> down{-1, -1, -1};
    friend bool operator==(const Links&, const Links&) = default;
};

/// What one rank said about one communicator.
struct RankView {
    std::string host, process, thread;
    std::string pointer, comm_id, parent;
    std::string split;  ///< "splitCount 0 color 1"
    std::size_t first_line = 0;
    bool started = false, complete = false;
    int rank = -1, ranks = 0, nodes = 0, local_ranks = 0, channels = 0;
    struct Line {
        std::vector<int> ranks;
        bool cut = false;
    };
    std::map<int, Line> channel_lines;
    std::map<int, std::pair<int, int>> ring;  ///< channel: previous, next
    std::map<int, Links> trees;
    bool trees_cut = false;
    std::map<int, LoggedGraph> graphs;  ///< by pattern: 4 ring, 0 tree (1, 2, 3), 5 NVLS
    std::map<std::string, int> gpu_rank;
    std::string bus;
    std::optional<CpuVendor> cpu;
    std::optional<bool> nvls, net_offload, collnet;
    std::string thread_thresholds;
};

struct Process {
    std::optional<NcclVersion> version;
    std::map<std::string, std::string> environment;
};

struct Thread {
    std::optional<std::size_t> current;            ///< the view that is being initialised
    LoggedGraph* graph = nullptr;                  ///< whose lists follow
    std::map<std::string, std::string> last_call;  ///< function: comm pointer of its latest COLL line
    std::string last_pointer;
};

class Reader {
public:
    explicit Reader(NcclLog& log) : log_(log) {}

    void read(std::string_view text);
    void finish();

private:
    Speaker speaker(std::string_view prefix);
    void message(const Speaker& speaker, std::string_view text);
    bool initialisation(const Speaker& speaker, Thread& thread, std::string_view text);
    bool links(const Speaker& speaker, Thread& thread, std::string_view text);
    bool graphs(const Speaker& speaker, Thread& thread, std::string_view text);
    bool choices(const Speaker& speaker, Thread& thread, std::string_view text);
    bool settings(const Speaker& speaker, std::string_view text);

    RankView& new_view(const Speaker& speaker, Thread& thread);
    RankView& view(const Speaker& speaker, Thread& thread);
    RankView& view_of_rank(const Speaker& speaker, Thread& thread, int rank);
    RankView* view_of_pointer(const std::string& process, const std::string& pointer);
    void identify(const Speaker& speaker, Thread& thread, std::string_view text, bool start, bool complete);

    std::vector<std::vector<std::size_t>> groups();
    LogCommunicator assemble(const std::vector<std::size_t>& members);

    struct Pending {
        std::variant<LoggedChoice, LoggedSymmetric> said;
        std::string process;
        std::optional<std::size_t> view;  ///< by the COLL line before it
    };

    NcclLog& log_;
    std::size_t line_ = 0;
    std::vector<RankView> views_;
    std::map<std::string, Process> processes_;
    std::set<std::string, std::less<>> known_;  ///< processes that have spoken
    std::map<std::string, Thread> threads_;
    std::map<std::pair<std::string, std::string>, std::size_t> by_pointer_;  ///< process, comm pointer: latest view
    std::vector<Pending> pending_;
    std::set<std::tuple<int, int, int>> versions_;
    bool rccl_ = false;
    std::size_t cut_lines_ = 0, garbled_lines_ = 0;
};

std::optional<NcclVersion> version_in(std::string_view text) {
    Cursor cursor{text};
    NcclVersion version;
    version.patch = 0;
    if (!cursor.behind("NCCL version ") || !cursor.number(version.major) || !cursor.skip(".") ||
        !cursor.number(version.minor))
        return std::nullopt;
    if (cursor.skip(".")) (void)cursor.number(version.patch);
    if (version.major < 1 || version.major > 9 || version.minor < 0 || version.patch < 0) return std::nullopt;
    return version;
}

/// Where a torn line stands right before the host's name, "busId a8host:1:2 [0]", a process that has spoken before
/// wins.
Speaker Reader::speaker(std::string_view prefix) {
    Speaker speaker = speaker_of(prefix);
    if (speaker.host.empty() || known_.find(speaker.process) != known_.end()) return speaker;
    for (std::size_t cut = 1; cut < speaker.host.size(); ++cut) {
        if (known_.find(std::string_view(speaker.process).substr(cut)) == known_.end()) continue;
        speaker.host.erase(0, cut);
        speaker.process.erase(0, cut);
        speaker.thread.erase(0, cut);
        speaker.begin += cut;
        return speaker;
    }
    known_.insert(speaker.process);
    return speaker;
}

void Reader::read(std::string_view text) {
    constexpr std::string_view info = "NCCL INFO ";
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view raw = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        ++line_;
        const bool plain = raw.find("NCCL") == std::string_view::npos;
        if (plain) continue;
        const std::string line = without_control(raw);
        // Processes that share a pipe can write into each other's lines: each message ends where the next speaker
        // begins.
        std::string_view rest = line;
        std::size_t marker = rest.find(info);
        if (marker == std::string_view::npos) {
            if (const auto version = version_in(rest)) {
                ++log_.nccl_lines;
                processes_[speaker_of("").process].version = version;
                versions_.insert({version->major, version->minor, version->patch});
            }
            continue;
        }
        while (marker != std::string_view::npos) {
            const Speaker who = speaker(rest.substr(0, marker));
            rest.remove_prefix(marker + info.size());
            marker = rest.find(info);
            std::string_view body = rest;
            if (marker != std::string_view::npos) body = rest.substr(0, speaker(rest.substr(0, marker)).begin);
            ++log_.nccl_lines;
            message(who, trimmed(body));
        }
    }
    log_.lines = line_;
}

void Reader::message(const Speaker& speaker, std::string_view text) {
    if (text.find("RCCL version") != std::string_view::npos) rccl_ = true;
    if (const auto version = version_in(text); version && text.starts_with("NCCL version ")) {
        processes_[speaker.process].version = version;
        versions_.insert({version->major, version->minor, version->patch});
        return;
    }
    Thread& thread = threads_[speaker.thread];
    if (graphs(speaker, thread, text)) return;
    thread.graph = nullptr;
    if (initialisation(speaker, thread, text) || links(speaker, thread, text) || choices(speaker, thread, text)) return;
    (void)settings(speaker, text);
}

RankView& Reader::new_view(const Speaker& speaker, Thread& thread) {
    thread.current = views_.size();
    thread.graph = nullptr;
    RankView& view = views_.emplace_back();
    view.host = speaker.host;
    view.process = speaker.process;
    view.thread = speaker.thread;
    view.first_line = line_;
    return view;
}

RankView& Reader::view(const Speaker& speaker, Thread& thread) {
    return thread.current ? views_[*thread.current] : new_view(speaker, thread);
}

/// The view of this rank in this thread. Where nothing tells threads apart, several ranks share one.
RankView& Reader::view_of_rank(const Speaker& speaker, Thread& thread, int rank) {
    RankView& current = view(speaker, thread);
    if (current.rank == rank || (current.rank < 0 && !current.complete)) return current;
    for (std::size_t i = views_.size(); i-- > 0;)
        if (views_[i].thread == speaker.thread && views_[i].rank == rank && !views_[i].complete) return views_[i];
    return new_view(speaker, thread);
}

RankView* Reader::view_of_pointer(const std::string& process, const std::string& pointer) {
    const auto place = by_pointer_.find({process, pointer});
    return place == by_pointer_.end() ? nullptr : &views_[place->second];
}

/// "... comm 0x5581 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1000 commId 0xd1 - Init START"
void Reader::identify(const Speaker& speaker, Thread& thread, std::string_view text, bool start, bool complete) {
    const std::string pointer = word_of(text, "comm");
    const auto rank = value_of<int>(text, " rank");
    const auto lower = value_of<int>(text, "nranks");
    const auto ranks = lower ? lower : value_of<int>(text, "nRanks");
    if (!rank || !ranks || *ranks < 1 || *ranks > max_ranks || *rank < 0 || *rank >= *ranks) {
        ++garbled_lines_;
        return;
    }
    RankView* known = start ? nullptr : view_of_pointer(speaker.process, pointer);
    if (!known || known->rank != *rank || (known->ranks != 0 && known->ranks != *ranks)) known = nullptr;
    if (!known && !start && thread.current) {
        RankView& current = views_[*thread.current];
        if (current.pointer.empty() && (current.rank < 0 || current.rank == *rank) && !current.complete)
            known = &current;
    }
    RankView& view = known ? *known : new_view(speaker, thread);
    if (!complete && !view.complete) thread.current = static_cast<std::size_t>(&view - views_.data());
    view.pointer = pointer;
    by_pointer_[{speaker.process, pointer}] = static_cast<std::size_t>(&view - views_.data());
    view.rank = *rank;
    view.ranks = *ranks;
    view.started = view.started || start;
    if (const std::string id = word_of(text, "commId"); !id.empty() && id != "0x0") view.comm_id = id;
    if (const std::string bus = word_of(text, "busId"); !bus.empty()) view.bus = bus;
    if (const std::string parent = word_of(text, "parent"); !parent.empty() && parent != "(nil)") {
        view.parent = parent;
        auto count = value_of<int>(text, "splitCount");
        if (!count) count = value_of<int>(text, "childCount");
        view.split = fmt::format("split {} color {}", count.value_or(-1), value_of<int>(text, "color").value_or(-1));
    }
    if (const auto nodes = value_of<int>(text, "nNodes"); nodes && *nodes >= 1 && *nodes <= *ranks) view.nodes = *nodes;
    if (const auto local = value_of<int>(text, "localRanks"); local && *local >= 1) view.local_ranks = *local;
    if (complete) {
        view.complete = true;
        if (thread.current == static_cast<std::size_t>(&view - views_.data())) thread.current.reset();
    }
}

bool Reader::initialisation(const Speaker& speaker, Thread& thread, std::string_view text) {
    if (text.find("comm 0x") != std::string_view::npos) {
        if (text.find("Init START") != std::string_view::npos)
            return identify(speaker, thread, text, true, false), true;
        if (text.find("Init COMPLETE") != std::string_view::npos)
            return identify(speaker, thread, text, false, true), true;
        if (text.find(" nNodes ") != std::string_view::npos && text.find(" localRanks ") != std::string_view::npos)
            return identify(speaker, thread, text, false, false), true;
        if (text.find("Destroy COMPLETE") != std::string_view::npos ||
            text.find("Abort COMPLETE") != std::string_view::npos) {
            by_pointer_.erase({speaker.process, word_of(text, "comm")});  // the address may be used again
            return true;
        }
        // A COMPLETE line whose end another process has written over still says who the rank is.
        if (thread.current && text.find(" rank ") != std::string_view::npos &&
            text.find(" nranks ") != std::string_view::npos && text.find(" cudaDev ") != std::string_view::npos)
            return identify(speaker, thread, text, false, false), true;
    }
    if (const std::size_t place = text.find(" coll channels, "); place != std::string_view::npos) {
        std::size_t begin = place;
        while (begin > 0 && is_digit(text[begin - 1])) --begin;
        Cursor cursor{text.substr(begin)};
        int channels = 0;
        if (cursor.number(channels) && channels >= 1 && channels <= max_channels) {
            RankView* named = view_of_pointer(speaker.process, word_of(text, "comm"));
            RankView& owner = named ? *named : view(speaker, thread);
            owner.channels = channels;
        } else {
            ++garbled_lines_;
        }
        return true;
    }
    if (text.starts_with("threadThresholds ")) {
        view(speaker, thread).thread_thresholds = text.substr(std::string_view("threadThresholds ").size());
        return true;
    }
    if (text.starts_with("NVLS multicast support is ")) {
        view(speaker, thread).nvls = text.find("not available") == std::string_view::npos;
        return true;
    }
    if (text.starts_with("NVLS Head ") || text.starts_with("Connected NVLS tree")) {
        view(speaker, thread).nvls = true;
        return true;
    }
    if (text.starts_with("Connected CollNet") || text.starts_with("Connected Collnet") ||
        text.find("Connected CollNet") != std::string_view::npos || text.starts_with("CollNetDirect channel")) {
        view(speaker, thread).collnet = true;
        return true;
    }
    if (text.find("NCCL_NET_DEVICE_UNPACK net plugin") != std::string_view::npos) {
        view(speaker, thread).net_offload = true;
        return true;
    }
    return false;
}

/// Rings and trees: "Channel 00/02 : 0 1 2", "Ring 00 : 2 -> 0 -> 1", "Trees [0] 1/-1/-1->0->-1 ...", "Tree 0 : ...".
bool Reader::links(const Speaker& speaker, Thread& thread, std::string_view text) {
    const auto sane = [](int channel, std::initializer_list<int> ranks) {
        return channel >= 0 && channel < max_channels &&
               std::all_of(ranks.begin(), ranks.end(), [](int r) { return r >= -1 && r < max_ranks; });
    };
    Cursor cursor{text};
    int channel = 0;
    if (cursor.skip("Channel ")) {
        int channels = 0;
        if (!cursor.number(channel) || !cursor.skip("/") || !cursor.number(channels)) return false;
        cursor.spaces();
        if (!cursor.skip(":") || cursor.rest.find("->") != std::string_view::npos ||
            cursor.rest.find('[') != std::string_view::npos)
            return false;  // a connection, "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"
        RankView::Line line;
        int rank = 0;
        while (cursor.number(rank)) line.ranks.push_back(rank);
        cursor.spaces();
        // graph/rings.cc, dumpLine: a line of 127 characters ends in "..." written over its last digits.
        line.cut = cursor.skip("...") || (!cursor.rest.empty() && cursor.rest.front() == '.');
        if (line.cut && !line.ranks.empty()) line.ranks.pop_back();
        if (!sane(channel, {}) || channels < 1 || channels > max_channels || (line.ranks.empty() && !line.cut) ||
            line.ranks.size() > at(max_ranks)) {
            ++garbled_lines_;
            return true;
        }
        if (line.cut) ++cut_lines_;
        RankView* owner = &view_of_rank(speaker, thread, 0);
        const auto known = owner->channel_lines.find(channel);
        if (known != owner->channel_lines.end() && !owner->started && known->second.ranks != line.ranks)
            owner = &new_view(speaker, thread);  // the next communicator of this thread, in a log without "Init START"
        owner->rank = 0;
        if (owner->channels == 0) owner->channels = channels;
        owner->channel_lines[channel] = std::move(line);
        return true;
    }
    if (cursor.skip("Ring ")) {
        int before = 0, me = 0, after = 0;
        if (!cursor.number(channel)) return false;
        cursor.spaces();
        if (!cursor.skip(":") || !cursor.number(before)) return false;
        cursor.spaces();
        if (!cursor.skip("->") || !cursor.number(me)) return false;
        cursor.spaces();
        if (!cursor.skip("->") || !cursor.number(after)) return false;
        if (!sane(channel, {before, me, after}) || before < 0 || me < 0 || after < 0) {
            ++garbled_lines_;
            return true;
        }
        RankView* owner = &view_of_rank(speaker, thread, me);
        const auto known = owner->ring.find(channel);
        if (known != owner->ring.end() && !owner->started && known->second != std::pair(before, after))
            owner = &new_view(speaker, thread);
        owner->rank = me;
        owner->ring[channel] = {before, after};
        return true;
    }
    const bool plural = cursor.skip("Trees");
    if (plural) {
        RankView* owner = nullptr;
        std::size_t items = 0;
        while (true) {
            cursor.spaces();
            if (!cursor.skip("[")) break;
            Links links;
            int me = 0;
            const bool whole = cursor.number(channel) && cursor.skip("]") && cursor.number(links.down[0]) &&
                               cursor.skip("/") && cursor.number(links.down[1]) && cursor.skip("/") &&
                               cursor.number(links.down[2]) && cursor.skip("->") && cursor.number(me) &&
                               cursor.skip("->") && cursor.number(links.up);
            // init.cc prints into 1023 characters: whatever touches that end may have lost digits.
            const bool at_the_end = cursor.rest.empty() && text.size() >= 1020;
            if (!whole || at_the_end) {
                if (owner != nullptr) owner->trees_cut = true;
                ++cut_lines_;
                return true;
            }
            if (!sane(channel, {links.down[0], links.down[1], links.down[2], me, links.up}) || me < 0) {
                ++garbled_lines_;
                return true;
            }
            if (owner == nullptr) {
                owner = &view_of_rank(speaker, thread, me);
                if (!owner->started && !owner->trees.empty() && owner->trees.count(channel) > 0 &&
                    owner->trees[channel] != links)
                    owner = &new_view(speaker, thread);
                owner->rank = me;
            }
            owner->trees[channel] = links;
            ++items;
        }
        return items > 0;
    }
    if (cursor.skip("Tree ")) {
        Links links;
        int me = 0;
        if (!cursor.number(channel)) return false;
        cursor.spaces();
        if (!cursor.skip(":") || !cursor.number(links.up)) return false;
        cursor.spaces();
        if (!cursor.skip("->") || !cursor.number(me)) return false;
        cursor.spaces();
        if (!cursor.skip("->") || !cursor.number(links.down[0]) || !cursor.skip("/") || !cursor.number(links.down[1]) ||
            !cursor.skip("/") || !cursor.number(links.down[2]))
            return false;
        if (!sane(channel, {links.up, me, links.down[0], links.down[1], links.down[2]}) || me < 0) {
            ++garbled_lines_;
            return true;
        }
        RankView& owner = view_of_rank(speaker, thread, me);
        if (owner.rank < 0) owner.rank = me;
        owner.trees.emplace(channel, links);
        return true;
    }
    return false;
}

bool Reader::graphs(const Speaker& speaker, Thread& thread, std::string_view text) {
    if (text.starts_with("Pattern ")) {
        LoggedGraph graph;
        Cursor cursor{text};
        const bool good = cursor.skip("Pattern ") && cursor.number(graph.pattern) && cursor.behind("crossNic ") &&
                          cursor.number(graph.cross_nic) && cursor.behind("nChannels ") &&
                          cursor.number(graph.speed.channels) && cursor.behind("bw ") &&
                          cursor.number(graph.speed.bw_intra) && cursor.skip("/") &&
                          cursor.number(graph.speed.bw_inter);
        int same = 1;
        if (!good || graph.speed.channels < 0 || graph.speed.channels > max_channels || graph.pattern < 1 ||
            graph.pattern > 6) {
            ++garbled_lines_;
            return true;
        }
        if (cursor.behind("type ")) {
            const std::string_view types = cursor.word();
            const std::size_t slash = types.find('/');
            graph.type_intra = types.substr(0, slash);
            if (slash != std::string_view::npos) graph.type_inter = types.substr(slash + 1);
        }
        if (cursor.behind("sameChannels ") && cursor.number(same)) graph.speed.same_channels = same != 0;
        graph.speed.nvlink = graph.type_intra == "NVL";
        RankView& owner = view(speaker, thread);
        const int key = graph.pattern >= 1 && graph.pattern <= 3 ? 0 : graph.pattern;
        // Ring, tree, then CollNet chain, whose pattern is "tree" again: the first of each kind counts.
        const auto [place, fresh] = owner.graphs.emplace(key, std::move(graph));
        thread.graph = fresh ? &place->second : nullptr;
        return true;
    }
    Cursor cursor{text};
    int channel = 0;
    if (thread.graph != nullptr && cursor.number(channel)) {
        cursor.spaces();
        if (cursor.skip(":") && channel == static_cast<int>(thread.graph->lists.size())) {
            std::vector<std::string> list;
            for (std::string_view word = cursor.word(); !word.empty(); word = cursor.word()) {
                if (word.starts_with("GPU/")) list.emplace_back(word.substr(4));
                if (cursor.rest.starts_with(",") || cursor.rest.starts_with("]")) break;
            }
            thread.graph->lists.push_back(std::move(list));
            return true;
        }
    }
    // graph/topo.cc: "GPU/0-47000 (3)" gives the rank of a GPU, "CPU/0-0 (1/2/-1)" architecture and vendor.
    if (text.find("GPU/") == std::string_view::npos && text.find("CPU/") == std::string_view::npos) return false;
    Cursor tree{text};
    if (tree.behind("- GPU/") || tree.skip("GPU/")) {
        const std::string name(tree.word());
        int rank = 0;
        tree.spaces();
        if (tree.skip("(") && tree.number(rank) && tree.skip(")") && rank >= 0 && rank < max_ranks)
            view(speaker, thread).gpu_rank[name] = rank;
        return false;
    }
    Cursor cpu{text};
    if (cpu.skip("CPU/")) {
        (void)cpu.word();
        cpu.spaces();
        int architecture = 0, vendor = 0;
        if (cpu.skip("(") && cpu.number(architecture) && cpu.skip("/") && cpu.number(vendor) && cpu.skip("/"))
            view(speaker, thread).cpu = architecture == 1 && vendor == 1   ? CpuVendor::intel
                                        : architecture == 1 && vendor == 2 ? CpuVendor::amd
                                                                           : CpuVendor::other;
    }
    return false;
}

bool Reader::choices(const Speaker& speaker, Thread& thread, std::string_view text) {
    // "AllReduce: opCount 1f sendbuff ... comm 0x55 [nranks=4] stream 0x66"
    if (const std::size_t place = text.find(": opCount "); place != std::string_view::npos) {
        thread.last_pointer = word_of(text, " comm");
        thread.last_call[std::string(text.substr(0, place))] = thread.last_pointer;
        return true;
    }
    const std::size_t arrow = text.find(" Bytes -> ");
    if (arrow == std::string_view::npos) return false;
    std::size_t begin = arrow;
    while (begin > 0 && is_digit(text[begin - 1])) --begin;
    std::uint64_t bytes = 0;
    Cursor number{text.substr(begin, arrow - begin)};
    if (!number.number(bytes)) return false;
    std::string_view function = trimmed(text.substr(0, begin));
    if (!function.empty() && function.back() == ':') function.remove_suffix(1);
    Cursor cursor{text.substr(arrow + std::string_view(" Bytes -> ").size())};
    const auto remember = [&](auto said) {
        const auto call = thread.last_call.find(said.function);
        const auto place =
            by_pointer_.find({speaker.process, call != thread.last_call.end() ? call->second : thread.last_pointer});
        std::optional<std::size_t> owner;
        if (place != by_pointer_.end()) owner = place->second;
        pending_.push_back({std::move(said), speaker.process, owner});
    };
    if (cursor.skip("Kernel ")) {
        LoggedSymmetric said;
        said.function = function.substr(0, function.find(" ["));
        said.bytes = bytes;
        said.kernel = cursor.word();
        said.blocks = value_of<int>(cursor.rest, "nchannels").value_or(0);
        said.line = line_;
        remember(std::move(said));
        return true;
    }
    if (!cursor.skip("Algo ")) return true;  // "cudaMemcpy", "RMA proxy + CE": movement, nothing is added
    LoggedChoice said;
    said.function = function;
    said.bytes = bytes;
    said.line = line_;
    const std::string algorithm(cursor.word());
    cursor.spaces();
    const std::string protocol = cursor.skip("proto ") ? std::string(cursor.word()) : "";
    try {
        int code = 0;
        Cursor numeric{algorithm};
        if (numeric.number(code)) {  // before 2.24: NCCL's numbers
            Cursor second{protocol};
            int proto = 0;
            if (code < 0 || code >= static_cast<int>(all_algorithms.size()) || !second.number(proto) || proto < 0 ||
                proto >= static_cast<int>(all_protocols.size()))
                throw UsageError("no such algorithm");
            said.algorithm = static_cast<Algorithm>(code);
            said.protocol = static_cast<Protocol>(proto);
        } else {
            said.algorithm = parse_algorithm(algorithm);
            said.protocol = parse_protocol(protocol);
        }
    } catch (const UsageError&) {
        ++garbled_lines_;
        return true;
    }
    for (const Collective collective : all_collectives)
        if (name(collective) == said.function) said.collective = collective;
    int first = 0, last = 0;
    if (cursor.behind("={") && cursor.number(first) && cursor.skip("..") && cursor.number(last) && first >= 0 &&
        last >= first && last < max_channels) {
        said.first_channel = first;
        said.last_channel = last;
    }
    remember(std::move(said));
    return true;
}

bool Reader::settings(const Speaker& speaker, std::string_view text) {
    constexpr std::string_view by = " set by environment to ";
    std::string key, value;
    if (const std::size_t place = text.find(by); place != std::string_view::npos) {
        key = text.substr(0, place);
        value = text.substr(place + by.size());
        if (value.ends_with('.')) value.pop_back();
    } else if (const std::size_t reset = text.find(" reset to NCCL_");
               text.starts_with("Comm config ") && reset != std::string_view::npos) {
        const std::string_view pair = text.substr(reset + std::string_view(" reset to ").size());
        const std::size_t equals = pair.find('=');
        if (equals == std::string_view::npos) return false;
        key = pair.substr(0, equals);
        value = pair.substr(equals + 1);
    }
    if (!key.starts_with("NCCL_") || key.find(' ') != std::string::npos || value.empty()) return false;
    processes_[speaker.process].environment[key] = value;
    return true;
}

/// Views of one communicator together: by commId; for splits by parent, count and colour; else by order of appearance.
std::vector<std::vector<std::size_t>> Reader::groups() {
    std::vector<std::vector<std::size_t>> result;
    std::map<std::string, std::size_t> by_key;
    std::map<std::size_t, std::size_t> group_of;
    const auto join = [&](const std::string& key, std::size_t i) {
        const auto [place, fresh] = by_key.emplace(key, result.size());
        if (fresh) result.emplace_back();
        result[place->second].push_back(i);
        group_of[i] = place->second;
    };
    std::vector<std::size_t> anonymous;
    for (std::size_t i = 0; i < views_.size(); ++i) {
        const RankView& view = views_[i];
        if (!view.comm_id.empty()) {
            join(fmt::format("{} of {}", view.comm_id, view.ranks), i);
        } else if (!view.parent.empty()) {
            std::optional<std::size_t> parent;
            for (std::size_t j = i; j-- > 0 && !parent;)
                if (views_[j].process == view.process && views_[j].pointer == view.parent && group_of.count(j) > 0)
                    parent = group_of[j];
            join(fmt::format("{} of {}, {}", view.split, view.ranks,
                             parent ? fmt::format("parent {}", *parent) : std::string("unknown parent")),
                 i);
        } else if (view.rank >= 0) {
            anonymous.push_back(i);
        }
    }
    const std::size_t identified = result.size();
    // Nothing but order: a rank goes to the first communicator of its size that does not have it yet.
    struct Open {
        std::size_t group;
        int ranks;
        std::set<int> has;
    };
    std::vector<Open> open;
    for (const std::size_t i : anonymous) {
        const RankView& view = views_[i];
        // Where one identified communicator of its size lacks this rank, it is that one's.
        std::optional<std::size_t> lacking;
        std::size_t candidates = 0;
        for (std::size_t g = 0; g < identified; ++g) {
            const auto& members = result[g];
            const bool same_size = views_[members.front()].ranks == view.ranks && view.ranks != 0;
            const bool has =
                std::any_of(members.begin(), members.end(), [&](std::size_t j) { return views_[j].rank == view.rank; });
            if (!same_size || has) continue;
            lacking = g;
            ++candidates;
        }
        if (candidates == 1) {
            result[*lacking].push_back(i);
            continue;
        }
        auto place = std::find_if(open.begin(), open.end(), [&](const Open& o) {
            return o.has.count(view.rank) == 0 && (o.ranks == view.ranks || o.ranks == 0 || view.ranks == 0);
        });
        if (place == open.end()) {
            open.push_back({result.size(), view.ranks, {}});
            result.emplace_back();
            place = open.end() - 1;
        }
        if (place->ranks == 0) place->ranks = view.ranks;
        place->has.insert(view.rank);
        result[place->group].push_back(i);
    }
    return result;
}

std::string listed(const std::vector<int>& numbers) {
    // "0 to 3, 5"
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

/// A channel's ring from what its ranks said; `why` is set where lines contradict.
std::optional<Ring> ring_of(const LogCommunicator& comm, int channel, const std::vector<const RankView*>& views,
                            std::string& why) {
    std::map<int, std::pair<int, std::string>> next;  // rank: the rank after it, and who says so
    const auto say = [&](int from, int to, const std::string& who) {
        for (const int rank : {from, to})
            if (rank < 0 || rank >= comm.ranks) {
                why = fmt::format("channel {}: {} names rank {} of {} ranks", channel, who, rank, comm.ranks);
                return;
            }
        const auto [place, fresh] = next.emplace(from, std::pair(to, who));
        if (!fresh && place->second.first != to)
            why = fmt::format("channel {}: after rank {} comes {} by {}, but {} by {}", channel, from,
                              place->second.first, place->second.second, to, who);
    };
    for (const RankView* view : views) {
        if (const auto line = view->channel_lines.find(channel); line != view->channel_lines.end()) {
            const auto& ranks = line->second.ranks;
            for (std::size_t i = 0; i + 1 < ranks.size(); ++i) say(ranks[i], ranks[i + 1], "rank 0's 'Channel' line");
            if (!line->second.cut && !ranks.empty()) say(ranks.back(), ranks.front(), "rank 0's 'Channel' line");
        }
        if (const auto ring = view->ring.find(channel); ring != view->ring.end()) {
            const std::string who = fmt::format("rank {}'s 'Ring' line", view->rank);
            say(ring->second.first, view->rank, who);
            say(view->rank, ring->second.second, who);
        }
        if (!why.empty()) return std::nullopt;
    }
    Ring ring;
    int rank = 0;
    do {
        ring.push_back(rank);
        const auto step = next.find(rank);
        if (step == next.end()) return std::nullopt;
        rank = step->second.first;
    } while (rank != 0 && static_cast<int>(ring.size()) <= comm.ranks);
    if (static_cast<int>(ring.size()) != comm.ranks || std::set<int>(ring.begin(), ring.end()).size() != ring.size()) {
        why = fmt::format("channel {}: the ring closes after {} of {} ranks", channel, ring.size(), comm.ranks);
        return std::nullopt;
    }
    return ring;
}

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

/// Each node's own lists as NodeLists, if a rank of every node printed its graphs and their GPUs have ranks.
std::optional<std::vector<std::vector<NodeLists>>> node_lists(const LogCommunicator& comm,
                                                              const std::vector<const RankView*>& views) {
    std::map<int, std::vector<NodeLists>> by_lowest;  // nodes are numbered by their lowest rank
    std::map<int, bool> crossing;
    for (const RankView* view : views) {
        const auto ring = view->graphs.find(4), tree = view->graphs.find(0);
        if (ring == view->graphs.end() || tree == view->graphs.end()) continue;
        std::map<std::string, int> rank_of = view->gpu_rank;
        for (const RankView* other : views)
            if (other->host == view->host && !other->bus.empty()) {
                rank_of.emplace(other->bus, other->rank);
                rank_of.emplace("0-" + other->bus, other->rank);
            }
        const auto ranks_of = [&](const std::vector<std::string>& list) {
            std::vector<int> ranks;
            for (const std::string& gpu : list) {
                int rank = -1;
                if (const auto place = rank_of.find(gpu); place != rank_of.end()) rank = place->second;
                // Up to 2.27 the graph prints ranks: "GPU/3". Later "GPU/system-bus".
                else if (gpu.find('-') == std::string::npos && view->gpu_rank.empty())
                    (void)std::from_chars(gpu.data(), gpu.data() + gpu.size(), rank);
                if (rank < 0 || rank >= comm.ranks) return std::vector<int>{};
                ranks.push_back(rank);
            }
            return ranks;
        };
        const std::size_t channels = std::min(ring->second.lists.size(), tree->second.lists.size());
        std::vector<NodeLists> lists;
        for (std::size_t c = 0; c < channels; ++c) {
            NodeLists own{ranks_of(ring->second.lists[c]), ranks_of(tree->second.lists[c]),
                          static_cast<TreePattern>(tree->second.pattern)};
            std::vector<int> a = own.ring, b = own.tree;
            std::sort(a.begin(), a.end());
            std::sort(b.begin(), b.end());
            if (a.empty() || a != b || std::adjacent_find(a.begin(), a.end()) != a.end()) return std::nullopt;
            if (own.ring.size() == 1) own.pattern = TreePattern::tree;
            lists.push_back(std::move(own));
        }
        if (lists.empty()) return std::nullopt;
        crossing.emplace(*std::min_element(lists[0].ring.begin(), lists[0].ring.end()), ring->second.cross_nic == 2);
        by_lowest.emplace(*std::min_element(lists[0].ring.begin(), lists[0].ring.end()), std::move(lists));
    }
    std::vector<std::vector<NodeLists>> nodes;
    std::size_t ranks = 0, channels = at(max_channels);
    for (auto& [lowest, lists] : by_lowest) {
        ranks += lists[0].ring.size();
        channels = std::min(channels, lists.size());
        nodes.push_back(std::move(lists));
    }
    if (ranks != at(comm.ranks) || nodes.empty()) return std::nullopt;
    auto crosses = crossing.begin();
    for (std::size_t v = 0; v < nodes.size(); ++v, ++crosses) {
        nodes[v].resize(channels);
        // connect.cc, ncclTopoPostset: with crossNic 2 odd nodes swap the rings of neighbouring channels.
        if (crosses->second && channels % 2 == 0 && v % 2 == 1)
            for (std::size_t c = 0; c < channels; c += 2) std::swap(nodes[v][c].ring, nodes[v][c + 1].ring);
    }
    return nodes;
}

LogCommunicator Reader::assemble(const std::vector<std::size_t>& members) {
    LogCommunicator comm;
    comm.file = log_.file;
    std::vector<const RankView*> views;
    for (const std::size_t i : members) views.push_back(&views_[i]);
    const auto agree = [&](int& known, int said, const char* what, const RankView& view) {
        if (said == 0) return;
        if (known == 0) known = said;
        if (known != said)
            comm.contradictions.push_back(
                fmt::format("rank {} says {} {}, another rank {}", view.rank, said, what, known));
    };
    std::set<int> logged;
    int local_ranks = 0;
    bool same_local_ranks = true;
    std::set<std::tuple<int, int, int>> versions;
    for (const RankView* view : views) {
        if (comm.id.empty()) comm.id = view->comm_id.empty() ? view->pointer : view->comm_id;
        logged.insert(view->rank);
        agree(comm.ranks, view->ranks, "ranks", *view);
        agree(comm.nodes, view->nodes, "nodes", *view);
        agree(comm.channels, view->channels, "channels", *view);
        if (view->local_ranks != 0) {
            if (local_ranks != 0 && local_ranks != view->local_ranks) same_local_ranks = false;
            local_ranks = view->local_ranks;
        }
        if (view->nvls) comm.nvls = comm.nvls.value_or(false) || *view->nvls;
        if (view->cpu && comm.cpu && *view->cpu != *comm.cpu) comm.cpu = CpuVendor::other;
        if (view->cpu && !comm.cpu) comm.cpu = view->cpu;
        if (view->net_offload) comm.net_offload = true;
        if (view->collnet) comm.collnet = true;
        if (comm.thread_thresholds.empty()) comm.thread_thresholds = view->thread_thresholds;
        for (const auto& [kind, graph] : view->graphs) {
            auto& place = kind == 4 ? comm.ring_graph : kind == 0 ? comm.tree_graph : comm.nvls_graph;
            if (kind <= 5 && (!place || view->rank == 0)) place = graph;
        }
        if (const auto process = processes_.find(view->process); process != processes_.end()) {
            if (const auto& version = process->second.version)
                versions.insert({version->major, version->minor, version->patch});
            for (const auto& [key, value] : process->second.environment) {
                const auto [place, fresh] = comm.environment.emplace(key, value);
                if (!fresh && place->second != value && (key == "NCCL_ALGO" || key == "NCCL_PROTO"))
                    comm.contradictions.push_back(fmt::format("{} is '{}' for rank {} and '{}' for another", key, value,
                                                              view->rank, place->second));
            }
        }
    }
    comm.logged_ranks.assign(logged.begin(), logged.end());
    if (comm.id.empty()) comm.id = fmt::format("line {}", views.front()->first_line);

    // Only rank 0 prints the release, and some launchers lose the prefix of that line.
    if (versions.empty()) versions = versions_;
    if (versions.size() == 1) {
        const auto& [major, minor, patch] = *versions.begin();
        comm.version = NcclVersion{major, minor, patch};
    } else if (versions.size() > 1) {
        comm.contradictions.emplace_back("several NCCL versions are in use; cut the log to one job");
    }
    if (!comm.version)
        comm.missing.emplace_back("the NCCL version: keep the line 'NCCL version 2.x.y', or --nccl-version");
    if (rccl_) comm.contradictions.emplace_back("this is a log of RCCL; only NCCL is modelled");

    if (comm.ranks == 0)
        for (const RankView* view : views)
            for (const auto& [channel, line] : view->channel_lines)
                if (!line.cut && comm.ranks == 0) comm.ranks = static_cast<int>(line.ranks.size());
    if (comm.ranks == 0) {
        comm.missing.emplace_back("the number of ranks: keep the 'Init COMPLETE' lines or rank 0's 'Channel' lines");
        return comm;
    }
    for (const RankView* view : views) {
        if (comm.channels > 0) break;
        int max = -1;
        if (!view->ring.empty()) max = std::max(max, view->ring.rbegin()->first);
        if (!view->trees.empty() && !view->trees_cut) max = std::max(max, view->trees.rbegin()->first);
        comm.channels = max + 1;
    }
    if (comm.channels == 0)
        comm.missing.emplace_back(
            "the channels: keep the lines 'Channel 00/..', 'Trees' and 'N coll channels' (subsystem INIT)");

    // Rings.
    std::vector<int> open_rings;
    for (int c = 0; c < comm.channels; ++c) {
        std::string why;
        comm.rings.push_back(ring_of(comm, c, views, why));
        if (!why.empty())
            comm.contradictions.push_back(why);
        else if (!comm.rings.back())
            open_rings.push_back(c);
    }

    // Trees.
    std::map<std::vector<int>, std::vector<int>> open_trees;  // ranks without links: channels
    for (int c = 0; c < comm.channels; ++c) {
        TreeLinks tree;
        tree.root = -1;
        tree.up.assign(at(comm.ranks), -1);
        tree.down.assign(at(comm.ranks), {-1, -1, -1});
        std::set<int> known;
        bool sane = true;
        for (const RankView* view : views) {
            const auto place = view->trees.find(c);
            if (place == view->trees.end() || view->rank < 0 || view->rank >= comm.ranks) continue;
            if (!known.insert(view->rank).second &&
                (tree.up[at(view->rank)] != place->second.up || tree.down[at(view->rank)] != place->second.down))
                sane = false;
            tree.up[at(view->rank)] = place->second.up;
            tree.down[at(view->rank)] = place->second.down;
            if (place->second.up < 0) tree.root = view->rank;
        }
        const std::vector<int> without = all_but(comm.ranks, known);
        if (!without.empty()) {
            open_trees[without].push_back(c);
            comm.trees.emplace_back();
        } else if (!sane || tree.root < 0 || !is_one_tree(tree)) {
            comm.contradictions.push_back(fmt::format("channel {}: the ranks' 'Trees' lines do not form one tree", c));
            comm.trees.emplace_back();
        } else {
            comm.trees.emplace_back(std::move(tree));
        }
    }
    // What the nodes' graphs tell about ranks that were not logged.
    const auto lists = open_trees.empty() && open_rings.empty() ? std::nullopt : node_lists(comm, views);
    if (lists && (comm.nodes == 0 || static_cast<int>(lists->size()) == comm.nodes)) {
        const auto topology = Topology::from_node_lists(*lists).with_channels(comm.channels, comm.channels);
        bool fits = true;
        for (int c = 0; c < comm.channels && fits; ++c) {
            const Channel& channel = topology.channels()[at(c)];
            if (comm.rings[at(c)]) fits = rotated(*channel.ring, 0) == *comm.rings[at(c)];
            for (const RankView* view : views)
                if (const auto place = view->trees.find(c); place != view->trees.end() && view->rank < comm.ranks)
                    fits = fits && channel.tree->up[at(view->rank)] == place->second.up &&
                           channel.tree->down[at(view->rank)] == place->second.down;
        }
        if (fits) {
            for (int c = 0; c < comm.channels; ++c) {
                const Channel& channel = topology.channels()[at(c)];
                if (!comm.rings[at(c)]) comm.rings[at(c)] = rotated(*channel.ring, 0);
                if (!comm.trees[at(c)]) comm.trees[at(c)] = *channel.tree;
            }
            open_rings.clear();
            open_trees.clear();
            comm.assumptions.emplace_back(
                "links of ranks that were not logged follow from the nodes' graphs ('Pattern' lines), joined as NCCL "
                "joins "
                "them; they fit every line that is there ('Ring' and 'Trees' lines of every rank would check it)");
            if (comm.node_of.empty())
                for (int rank = 0; rank < comm.ranks; ++rank) comm.node_of.push_back(topology.node_of(rank));
            comm.nodes = topology.nodes();
        }
    }
    const std::vector<int> absent = all_but(comm.ranks, logged);
    if (!open_rings.empty()) {
        const bool cut = std::any_of(views.begin(), views.end(), [](const RankView* view) {
            return std::any_of(view->channel_lines.begin(), view->channel_lines.end(),
                               [](const auto& line) { return line.second.cut; });
        });
        comm.missing.push_back(fmt::format(
            "rings of channels {}: {}; {}", listed(open_rings),
            cut ? "rank 0's 'Channel' lines are cut at 127 characters, and 'Ring' lines of some ranks are not here"
            : logged.count(0) == 0 ? "rank 0, which prints them, is not in the log"
                                   : "rank 0's 'Channel' lines are not here",
            every_rank));
    }
    for (const auto& [without, channels] : open_trees) {
        const bool cut = std::any_of(views.begin(), views.end(), [](const RankView* view) { return view->trees_cut; });
        comm.missing.push_back(fmt::format("tree links of ranks {} on channels {}{}; {}", listed(without),
                                           listed(channels), cut ? " ('Trees' lines are cut at 1023 characters)" : "",
                                           every_rank));
    }

    // Nodes.
    std::vector<std::string> host(at(comm.ranks));
    std::set<std::string> hosts;
    for (const RankView* view : views)
        if (!view->host.empty() && view->rank >= 0 && view->rank < comm.ranks) {
            host[at(view->rank)] = view->host;
            hosts.insert(view->host);
        }
    const bool all_hosts =
        absent.empty() && std::none_of(host.begin(), host.end(), [](const auto& h) { return h.empty(); });
    if (comm.nodes == 0 && all_hosts) {
        comm.nodes = static_cast<int>(hosts.size());
        comm.assumptions.push_back(
            fmt::format("{} hosts are as many nodes (logs since 2.20 say 'nNodes')", hosts.size()));
    }
    if (comm.nodes == 0 && comm.ranks == 1) comm.nodes = 1;
    if (comm.node_of.empty()) {
        if (comm.nodes == comm.ranks) {
            comm.node_of.resize(at(comm.ranks));
            std::iota(comm.node_of.begin(), comm.node_of.end(), 0);
        } else if (comm.nodes == 1) {
            comm.node_of.assign(at(comm.ranks), 0);
        } else if (all_hosts && static_cast<int>(hosts.size()) == comm.nodes) {
            std::map<std::string, int> number;  // nodes are numbered by their lowest rank
            for (const std::string& name : host)
                comm.node_of.push_back(number.emplace(name, static_cast<int>(number.size())).first->second);
        } else if (comm.nodes > 1 && same_local_ranks && local_ranks > 0 &&
                   static_cast<long long>(local_ranks) * comm.nodes == comm.ranks) {
            for (int rank = 0; rank < comm.ranks; ++rank) comm.node_of.push_back(rank / local_ranks);
            comm.assumptions.push_back(fmt::format(
                "{} consecutive ranks share a node (the log of every rank, with its host name, would check it)",
                local_ranks));
        } else {
            comm.missing.push_back(fmt::format("which ranks share a node; {}", every_rank));
        }
    }
    if (!comm.ring_graph || !comm.tree_graph)
        comm.missing.emplace_back(
            "the speeds of the search graphs, which NCCL's choice needs: add GRAPH to NCCL_DEBUG_SUBSYS, or --machine");
    return comm;
}

void Reader::finish() {
    std::vector<std::vector<std::size_t>> grouped = groups();
    std::sort(grouped.begin(), grouped.end(), [&](const auto& a, const auto& b) {
        return views_[a.front()].first_line < views_[b.front()].first_line;
    });
    std::map<std::size_t, std::size_t> group_of;
    std::size_t anonymous = 0;
    for (const auto& members : grouped) {
        for (const std::size_t i : members) group_of[i] = log_.communicators.size();
        if (views_[members.front()].comm_id.empty() && views_[members.front()].parent.empty()) ++anonymous;
        log_.communicators.push_back(assemble(members));
    }
    std::size_t homeless = 0;
    for (const Pending& each : pending_) {
        std::optional<std::size_t> owner;
        if (each.view && group_of.count(*each.view) > 0) owner = group_of[*each.view];
        if (!owner) {
            // Choices are printed by rank 0 alone: the only communicator of which this process is rank 0.
            std::set<std::size_t> candidates;
            for (const auto& [i, group] : group_of)
                if (views_[i].process == each.process && views_[i].rank == 0) candidates.insert(group);
            if (candidates.size() == 1) owner = *candidates.begin();
            if (candidates.empty() && log_.communicators.size() == 1) owner = 0;
        }
        if (!owner) {
            ++homeless;
            continue;
        }
        LogCommunicator& comm = log_.communicators[*owner];
        if (const auto* choice = std::get_if<LoggedChoice>(&each.said))
            comm.choices.push_back(*choice);
        else
            comm.symmetric.push_back(std::get<LoggedSymmetric>(each.said));
    }
    if (homeless > 0)
        log_.notes.push_back(
            fmt::format("{} lines of choices ('-> Algo') fit several communicators and were left out; add COLL to "
                        "NCCL_DEBUG_SUBSYS",
                        homeless));
    if (cut_lines_ > 0)
        log_.notes.push_back(fmt::format(
            "{} lines were cut by NCCL ('Channel' at 127 characters, 'Trees' at 1023); the cut part was not used",
            cut_lines_));
    if (garbled_lines_ > 0) log_.notes.push_back(fmt::format("{} garbled lines were left out", garbled_lines_));
    if (anonymous > 1)
        log_.notes.emplace_back("no commId in the log: communicators were told apart by the order of their lines");
}

}  // namespace

NcclLog parse_nccl_log(std::string_view text, const std::string& file) {
    NcclLog log;
    log.file = file;
    Reader reader(log);
    reader.read(text);
    if (log.nccl_lines == 0)
        throw UsageError(
            fmt::format("{}: no 'NCCL INFO' line in {} lines; run with NCCL_DEBUG=INFO "
                        "NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,TUNING,COLL",
                        file, log.lines));
    reader.finish();
    return log;
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
    if (!release) refuse("the log does not say its NCCL version; give --nccl-version");
    if (*release < NcclVersion{2, 27, 0} || *release >= NcclVersion{2, 31, 0})
        refuse(fmt::format("NCCL {} is not modelled; 2.27 to 2.30 are (--nccl-version answers as if)",
                           samesum::str(*release)));

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
    if (compute_capability && ring_graph && tree_graph) {
        Machine machine;
        machine.compute_capability = *compute_capability;
        machine.cpu = cpu.value_or(CpuVendor::intel);
        machine.ring = ring_graph->speed;
        machine.tree = tree_graph->speed;
        if (nvls_graph) machine.nvls_graph = nvls_graph->speed;
        machine.nvls = nvls.value_or(false) && nvls_graph && nvls_graph->speed.channels > 1;
        machine.pat_network = !net_offload.value_or(false);
        // graph/tuning.cc: LL128 by default only over links that keep 128-byte stores whole.
        const auto rank_of_type = [](const std::string& type) {
            constexpr std::array<std::string_view, 10> types{"LOC", "NVL", "NVB", "C2C", "PIX",
                                                             "PXB", "P2C", "PXN", "PHB", "SYS"};
            return std::find(types.begin(), types.end(), type) - types.begin();
        };
        const auto far = rank_of_type(*compute_capability >= 90 ? "PXN" : "PXB");
        const auto holds = [&](const LoggedGraph& graph) {
            return rank_of_type(graph.type_inter) <= far && rank_of_type(graph.type_intra) <= rank_of_type("NVB");
        };
        machine.ll128 = *compute_capability >= 70 && holds(*ring_graph) && holds(*tree_graph);
        comm.machine = machine;
    }
    return comm;
}

const LogCommunicator& NcclLog::communicator(std::string_view pick) const {
    std::string list;
    for (std::size_t i = 0; i < communicators.size() && i < 8; ++i)
        list += fmt::format("{}{} ({}: {})", i == 0 ? "" : "; ", i, communicators[i].id, communicators[i].str());
    if (communicators.size() > 8) list += fmt::format("; and {} more", communicators.size() - 8);
    if (communicators.empty())
        throw UsageError(
            fmt::format("{}: no communicator in {} NCCL lines; keep the subsystems INIT and GRAPH", file, nccl_lines));
    if (!pick.empty()) {
        const LogCommunicator* found = nullptr;
        for (std::size_t i = 0; i < communicators.size(); ++i)
            if (pick == communicators[i].id || pick == std::to_string(i)) found = &communicators[i];
        if (found == nullptr) throw UsageError(fmt::format("{}: no communicator '{}'; one of: {}", file, pick, list));
        return *found;
    }
    const auto max = std::max_element(communicators.begin(), communicators.end(),
                                      [](const auto& a, const auto& b) { return a.ranks < b.ranks; });
    const auto as_large = std::count_if(communicators.begin(), communicators.end(),
                                        [&](const auto& comm) { return comm.ranks == max->ranks; });
    if (as_large > 1)
        throw UsageError(fmt::format("{}: {} communicators; say which: {}", file, communicators.size(), list));
    return *max;
}

}  // namespace samesum
