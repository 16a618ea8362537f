// The messages are those of NCCL 2.18 to 2.30: init.cc, graph/{search,connect,rings,tuning}.cc, enqueue.cc,
// misc/param.cc, scheduler/symmetric_sched.cc.
// SPDX-License-Identifier: Apache-2.0
#include "model/input/log_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <system_error>
#include <utility>

#include "model/support/error.hpp"
#include "model/support/text.hpp"

namespace samesum {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || c == '\t'; }
bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// Reads a message from left to right; each step returns whether it was there.
struct Cursor {
    std::string_view rest;

    bool skip(std::string_view literal) {
        if (!rest.starts_with(literal)) return false;
        rest.remove_prefix(literal.size());
        return true;
    }
    /// Skips the literal and blanks before it.
    bool skip_spaced(std::string_view literal) {
        spaces();
        return skip(literal);
    }
    void spaces() {
        while (!rest.empty() && is_space(rest.front())) rest.remove_prefix(1);
    }
    /// Skips everything up to and including the next occurrence.
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
std::optional<int> value_of(std::string_view message, std::string_view key) {
    Cursor cursor{message};
    int value = 0;
    if (!cursor.behind(fmt::format("{} ", key)) || !cursor.number(value)) return std::nullopt;
    return value;
}
std::string word_of(std::string_view message, std::string_view key) {
    Cursor cursor{message};
    return cursor.behind(fmt::format("{} ", key)) ? std::string(cursor.word()) : "";
}

/// Where the digits begin that end right before `end`.
std::size_t digits_before(std::string_view text, std::size_t end) {
    while (end > 0 && is_digit(text[end - 1])) --end;
    return end;
}

/// Takes ":123" off the end of the text and returns the digits; empty where it does not end so.
std::string_view take_number_behind_colon(std::string_view& text) {
    const std::size_t begin = digits_before(text, text.size());
    if (begin == text.size() || begin == 0 || text[begin - 1] != ':') return {};
    const std::string_view digits = text.substr(begin);
    text = text.substr(0, begin - 1);
    return digits;
}

/// Takes " [3]", the device, off the end of the text and returns "[3]"; empty where it does not end so.
std::string_view take_device(std::string_view& text) {
    text = text.substr(0, text.find_last_not_of(" \t") + 1);
    if (text.empty() || text.back() != ']') return {};
    const std::size_t open = text.rfind('[');
    if (open == std::string_view::npos || text.size() - open > 6) return {};
    const std::string_view device = text.substr(open), digits = device.substr(1, device.size() - 2);
    if (!std::all_of(digits.begin(), digits.end(), is_digit)) return {};
    text = text.substr(0, open);
    text = text.substr(0, text.find_last_not_of(" \t") + 1);
    return device;
}

/// A launcher's rank tag: "[rank3]:", "[1,3]<stdout>:", "3:".
std::string launcher_tag(std::string_view prefix, std::string_view device) {
    std::string tag(device);
    int rank = 0;
    for (const std::string_view begin : {"[rank", "[1,", "rank "}) {
        Cursor cursor{prefix};
        if (cursor.behind(begin) && cursor.number(rank)) tag = fmt::format("tag {}{}", rank, device);
    }
    Cursor cursor{prefix};
    if (cursor.number(rank) && cursor.skip(":")) tag = fmt::format("tag {}{}", rank, device);
    return tag;
}

LogLine version_line(std::string_view text) {
    if (!text.starts_with("NCCL version ")) return {};
    const auto version = version_in(text);
    return version ? LogLine(VersionLine{*version}) : LogLine();
}

LogLine graph_line(std::string_view text) {
    Cursor cursor{text};
    if (!cursor.skip("Pattern ")) return {};
    LoggedGraph graph;
    const bool good = cursor.number(graph.pattern) && cursor.behind("crossNic ") && cursor.number(graph.cross_nic) &&
                      cursor.behind("nChannels ") && cursor.number(graph.speed.channels) && cursor.behind("bw ") &&
                      cursor.number(graph.speed.bw_intra) && cursor.skip("/") && cursor.number(graph.speed.bw_inter);
    if (!good || graph.speed.channels < 0 || graph.speed.channels > max_logged_channels || graph.pattern < 1 ||
        graph.pattern > 6)
        return GarbledLine{};
    if (cursor.behind("type ")) {
        const std::string_view types = cursor.word();
        const std::size_t slash = types.find('/');
        graph.type_intra = types.substr(0, slash);
        if (slash != std::string_view::npos) graph.type_inter = types.substr(slash + 1);
    }
    int same = 1;
    if (cursor.behind("sameChannels ") && cursor.number(same)) graph.speed.same_channels = same != 0;
    graph.speed.nvlink = graph.type_intra == "NVL";
    return graph;
}

LogLine graph_list_line(std::string_view text) {
    Cursor cursor{text};
    GraphListLine line;
    if (!cursor.number(line.channel) || !cursor.skip_spaced(":")) return {};
    for (std::string_view word = cursor.word(); !word.empty(); word = cursor.word()) {
        if (word.starts_with("GPU/")) line.gpus.emplace_back(word.substr(4));
        if (cursor.rest.starts_with(",") || cursor.rest.starts_with("]")) break;
    }
    return line;
}

LogLine topology_line(std::string_view text) {
    Cursor gpu{text};
    if (gpu.behind("- GPU/") || gpu.skip("GPU/")) {
        GpuLine line{std::string(gpu.word())};
        const bool good = gpu.skip_spaced("(") && gpu.number(line.rank) && gpu.skip(")") && line.rank >= 0 &&
                          line.rank < max_logged_ranks;
        return good ? LogLine(line) : LogLine();
    }
    Cursor cpu{text};
    if (!cpu.skip("CPU/")) return {};
    (void)cpu.word();
    int architecture = 0, vendor = 0;
    if (!cpu.skip_spaced("(") || !cpu.number(architecture) || !cpu.skip("/") || !cpu.number(vendor) || !cpu.skip("/"))
        return {};
    return CpuLine{architecture == 1 && vendor == 1   ? CpuVendor::intel
                   : architecture == 1 && vendor == 2 ? CpuVendor::amd
                                                      : CpuVendor::other};
}

LogLine identity(std::string_view text, InitLine::Stage stage) {
    const auto rank = value_of(text, " rank");
    const auto lower = value_of(text, "nranks");
    const auto ranks = lower ? lower : value_of(text, "nRanks");
    if (!rank || !ranks || *ranks < 1 || *ranks > max_logged_ranks || *rank < 0 || *rank >= *ranks)
        return GarbledLine{};
    InitLine line{.stage = stage, .pointer = word_of(text, "comm"), .rank = *rank, .ranks = *ranks};
    line.bus = word_of(text, "busId");
    if (std::string id = word_of(text, "commId"); id != "0x0") line.comm_id = std::move(id);
    if (std::string parent = word_of(text, "parent"); !parent.empty() && parent != "(nil)") {
        line.parent = std::move(parent);
        auto count = value_of(text, "splitCount");
        if (!count) count = value_of(text, "childCount");
        line.split = fmt::format("split {} color {}", count.value_or(-1), value_of(text, "color").value_or(-1));
    }
    if (const auto nodes = value_of(text, "nNodes"); nodes && *nodes >= 1 && *nodes <= *ranks) line.nodes = *nodes;
    if (const auto local = value_of(text, "localRanks"); local && *local >= 1) line.local_ranks = *local;
    return line;
}

LogLine init_line(std::string_view text) {
    using enum InitLine::Stage;
    if (!contains(text, "comm 0x")) return {};
    if (contains(text, "Init START")) return identity(text, start);
    if (contains(text, "Init COMPLETE")) return identity(text, complete);
    if (contains(text, " nNodes ") && contains(text, " localRanks ")) return identity(text, during);
    if (contains(text, "Destroy COMPLETE") || contains(text, "Abort COMPLETE"))
        return DestroyLine{word_of(text, "comm")};
    // A COMPLETE line whose end another process has written over still says which rank it is.
    if (contains(text, " rank ") && contains(text, " nranks ") && contains(text, " cudaDev "))
        return identity(text, torn);
    return {};
}

LogLine channel_count_line(std::string_view text) {
    const std::size_t place = text.find(" coll channels, ");
    if (place == std::string_view::npos) return {};
    Cursor cursor{text.substr(digits_before(text, place))};
    int channels = 0;
    if (!cursor.number(channels) || channels < 1 || channels > max_logged_channels) return GarbledLine{};
    return ChannelCountLine{channels, word_of(text, "comm")};
}

LogLine feature_line(std::string_view text) {
    FeatureLine line;
    if (Cursor cursor{text}; cursor.skip("threadThresholds "))
        line.thread_thresholds = cursor.rest;
    else if (text.starts_with("NVLS multicast support is "))
        line.nvls = !contains(text, "not available");
    else if (text.starts_with("NVLS Head ") || text.starts_with("Connected NVLS tree"))
        line.nvls = true;
    else if (contains(text, "Connected CollNet") || text.starts_with("Connected Collnet") ||
             text.starts_with("CollNetDirect channel"))
        line.collnet = true;
    else if (contains(text, "NCCL_NET_DEVICE_UNPACK net plugin"))
        line.net_offload = true;
    else
        return {};
    return line;
}

bool in_range(int channel, std::initializer_list<int> ranks) {
    return channel >= 0 && channel < max_logged_channels &&
           std::all_of(ranks.begin(), ranks.end(), [](int rank) { return rank >= -1 && rank < max_logged_ranks; });
}

LogLine channel_line(std::string_view text) {
    Cursor cursor{text};
    ChannelLine line;
    if (!cursor.skip("Channel ") || !cursor.number(line.channel) || !cursor.skip("/") || !cursor.number(line.channels))
        return {};
    if (!cursor.skip_spaced(":") || contains(cursor.rest, "->") || contains(cursor.rest, "["))
        return {};  // a connection, "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"
    for (int rank = 0; cursor.number(rank);) line.ranks.push_back(rank);
    cursor.spaces();
    // graph/rings.cc, dumpLine: a line of 127 characters ends in "..." written over its last digits.
    line.cut = cursor.skip("...") || (!cursor.rest.empty() && cursor.rest.front() == '.');
    if (line.cut && !line.ranks.empty()) line.ranks.pop_back();
    if (!in_range(line.channel, {}) || line.channels < 1 || line.channels > max_logged_channels ||
        (line.ranks.empty() && !line.cut) || line.ranks.size() > static_cast<std::size_t>(max_logged_ranks))
        return GarbledLine{};
    return line;
}

LogLine ring_line(std::string_view text) {
    Cursor cursor{text};
    RingLine line;
    if (!cursor.skip("Ring ") || !cursor.number(line.channel) || !cursor.skip_spaced(":") ||
        !cursor.number(line.previous) || !cursor.skip_spaced("->") || !cursor.number(line.rank) ||
        !cursor.skip_spaced("->") || !cursor.number(line.next))
        return {};
    if (!in_range(line.channel, {line.previous, line.rank, line.next}) || line.previous < 0 || line.rank < 0 ||
        line.next < 0)
        return GarbledLine{};
    return line;
}

bool in_range(const TreeLine& line) {
    const auto& [up, down] = line.links;
    return in_range(line.channel, {down[0], down[1], down[2], line.rank, up}) && line.rank >= 0;
}

LogLine trees_line(std::string_view text) {
    Cursor cursor{text};
    if (!cursor.skip("Trees")) return {};
    TreesLine line;
    while (cursor.skip_spaced("[")) {
        TreeLine item;
        auto& [up, down] = item.links;
        const bool whole = cursor.number(item.channel) && cursor.skip("]") && cursor.number(down[0]) &&
                           cursor.skip("/") && cursor.number(down[1]) && cursor.skip("/") && cursor.number(down[2]) &&
                           cursor.skip("->") && cursor.number(item.rank) && cursor.skip("->") && cursor.number(up);
        // init.cc prints into 1023 characters: a number that touches that end may have lost digits.
        line.cut = !whole || (cursor.rest.empty() && text.size() >= 1020);
        line.garbled = !line.cut && !in_range(item);
        if (line.cut || line.garbled) return line;
        line.items.push_back(item);
    }
    return line.items.empty() ? LogLine() : LogLine(line);
}

LogLine tree_line(std::string_view text) {
    Cursor cursor{text};
    TreeLine line;
    auto& [up, down] = line.links;
    if (!cursor.skip("Tree ") || !cursor.number(line.channel) || !cursor.skip_spaced(":") || !cursor.number(up) ||
        !cursor.skip_spaced("->") || !cursor.number(line.rank) || !cursor.skip_spaced("->") ||
        !cursor.number(down[0]) || !cursor.skip("/") || !cursor.number(down[1]) || !cursor.skip("/") ||
        !cursor.number(down[2]))
        return {};
    return in_range(line) ? LogLine(line) : LogLine(GarbledLine{});
}

LogLine coll_line(std::string_view text) {
    const std::size_t place = text.find(": opCount ");
    if (place == std::string_view::npos) return {};
    return CollLine{std::string(text.substr(0, place)), word_of(text, " comm")};
}

/// "AllReduce [Symmetric]: 4096 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 nthreads 512"
LogLine symmetric_line(std::string_view text) {
    constexpr std::string_view arrow = " Bytes -> Kernel ";
    const std::size_t place = text.find(arrow);
    if (place == std::string_view::npos) return {};
    const std::size_t begin = digits_before(text, place);
    LoggedSymmetric line;
    if (Cursor bytes{text.substr(begin, place - begin)}; !bytes.number(line.bytes)) return {};
    const std::string_view function = trimmed(text.substr(0, begin));
    line.function = function.substr(0, std::min(function.find(" ["), function.rfind(':')));
    Cursor cursor{text.substr(place + arrow.size())};
    line.kernel = cursor.word();
    line.blocks = value_of(cursor.rest, "nchannels").value_or(0);
    return line;
}

LogLine choice_line(std::string_view text) {
    try {
        const auto choice = parse_choice_line(text);
        return choice ? LogLine(*choice) : LogLine();
    } catch (const UsageError&) {
        return GarbledLine{};
    }
}

LogLine setting_line(std::string_view text) {
    SettingLine line;
    Cursor reset{text};
    if (constexpr std::string_view by = " set by environment to "; contains(text, by)) {
        const std::size_t place = text.find(by);
        line.key = text.substr(0, place);
        line.value = text.substr(place + by.size());
        if (line.value.ends_with('.')) line.value.pop_back();
    } else if (reset.skip("Comm config ") && reset.behind(" reset to ")) {
        const std::size_t equals = reset.rest.find('=');
        if (equals == std::string_view::npos) return {};
        line.key = reset.rest.substr(0, equals);
        line.value = reset.rest.substr(equals + 1);
    }
    if (!line.key.starts_with("NCCL_") || line.key.find(' ') != std::string::npos || line.value.empty()) return {};
    return line;
}

/// NCCL's names, or its numbers, which it printed before 2.24.
void read_names(LoggedChoice& choice, std::string_view algorithm, std::string_view protocol) {
    int first = 0, second = 0;
    if (Cursor number{algorithm}; !number.number(first)) {
        choice.algorithm = parse_algorithm(algorithm);
        choice.protocol = parse_protocol(protocol);
        return;
    }
    Cursor number{protocol};
    if (first < 0 || first >= static_cast<int>(all_algorithms.size()) || !number.number(second) || second < 0 ||
        second >= static_cast<int>(all_protocols.size()))
        throw UsageError(fmt::format("NCCL has no algorithm {} with protocol {}", algorithm, protocol));
    choice.algorithm = static_cast<Algorithm>(first);
    choice.protocol = static_cast<Protocol>(second);
}

}  // namespace

LogSource log_source(std::string_view prefix) {
    std::string_view name = prefix;
    const std::string_view device = take_device(name);
    const std::string_view thread = take_number_behind_colon(name);
    const std::string_view process = thread.empty() ? thread : take_number_behind_colon(name);
    if (process.empty()) {  // no host:pid:tid; a launcher's tag still distinguishes ranks
        const std::string tag = launcher_tag(prefix, device);
        return {"", tag, tag, prefix.size()};
    }
    const std::size_t end = name.find_last_of(" \t:>]|)");
    const std::string_view host = end == std::string_view::npos ? name : name.substr(end + 1);
    LogSource source;
    source.begin = static_cast<std::size_t>(host.data() - prefix.data());
    source.host = host;
    source.process = fmt::format("{}:{}", host, process);
    source.thread = fmt::format("{}:{}{}", source.process, thread, device);
    return source;
}

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

std::optional<LoggedChoice> parse_choice_line(std::string_view text) {
    constexpr std::string_view arrow = " Bytes -> Algo ";
    const std::size_t place = text.find(arrow);
    if (place == std::string_view::npos) return std::nullopt;
    const std::size_t begin = digits_before(text, place);
    LoggedChoice choice;
    if (Cursor bytes{text.substr(begin, place - begin)}; !bytes.number(choice.bytes)) return std::nullopt;
    std::string_view function = trimmed(text.substr(0, begin));
    if (function.ends_with(':')) {
        function.remove_suffix(1);
        std::size_t first = function.size();
        while (first > 0 && is_word(function[first - 1])) --first;
        choice.function = function.substr(first);
    }
    for (const Collective collective : all_collectives)
        if (name(collective) == choice.function) choice.collective = collective;
    text.remove_prefix(place + arrow.size());
    Cursor cursor{text.substr(0, text.find(" | "))};  // recordings join the lines of a group so
    const std::string_view algorithm = cursor.word();
    const std::string_view protocol = cursor.skip_spaced("proto ") ? cursor.word() : std::string_view();
    read_names(choice, algorithm, protocol);
    int first = 0, last = 0;
    if (cursor.behind("={") && cursor.number(first) && cursor.skip("..") && cursor.number(last) && first >= 0 &&
        last >= first && last < max_logged_channels) {
        choice.first_channel = first;
        choice.last_channel = last;
    }
    return choice;
}

LogLine parse_log_line(std::string_view text) {
    for (const auto parse :
         {version_line, graph_line, topology_line, init_line, channel_count_line, feature_line, channel_line, ring_line,
          trees_line, tree_line, coll_line, symmetric_line, choice_line, setting_line, graph_list_line})
        if (LogLine line = parse(text); !std::holds_alternative<std::monostate>(line)) return line;
    return {};
}

}  // namespace samesum
