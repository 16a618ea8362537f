// One node's search result as NCCL writes and reads it (2.28.9 graph/search.cc, ncclTopoGetGraphFromXmlSub), and what
// NCCL makes of it when every node has the same one (graph/connect.cc).
// SPDX-License-Identifier: Apache-2.0
#include "model/input/graph_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <type_traits>
#include <utility>

#include "model/support/error.hpp"
#include "model/support/input_names.hpp"
#include "model/support/numbers.hpp"

namespace samesum {
namespace {

using Tree = boost::property_tree::ptree;

constexpr std::size_t max_bytes = std::size_t{64} << 20;
constexpr int max_depth = 200;
constexpr int max_channels = 64;
constexpr std::size_t max_gpus = 4096;

/// The parser recurses into elements; deep nesting must not exhaust the stack.
bool nested_too_deep(std::string_view text) {
    int depth = 0;
    for (std::size_t i = 0; i + 1 < text.size(); ++i) {
        if (text[i] == '<' && text[i + 1] == '/')
            --depth;
        else if (text[i] == '<' && text[i + 1] != '!' && text[i + 1] != '?')
            ++depth;
        else if (text[i] == '/' && text[i + 1] == '>')
            --depth;
        if (depth > max_depth) return true;
    }
    return false;
}

struct Reader {
    const std::string& file;

    /// The message quotes the file, so it is kept to one readable line.
    [[noreturn]] void refuse(std::string why) const {
        if (why.size() > 300) why = why.substr(0, 300) + "...";
        for (char& c : why)
            if (static_cast<unsigned char>(c) < 0x20) c = ' ';
        throw UsageError(fmt::format("{}: {}", file, why));
    }

    template <class Number>
    Number attribute(const Tree& element, const char* name, const std::string& where, Number min, Number max,
                     std::optional<Number> otherwise = {}) const {
        const auto text = element.get_optional<std::string>(fmt::format("<xmlattr>.{}", name));
        if (!text) {
            if (otherwise) return *otherwise;
            refuse(fmt::format("{} has no attribute {}", where, name));
        }
        const auto number = [&] {
            if constexpr (std::is_floating_point_v<Number>)
                return real_in(*text);
            else
                return integer_in<Number>(*text);
        }();
        if (!number || *number < min || *number > max)
            refuse(fmt::format("{}: {}=\"{}\": expected a number from {} to {}", where, name, *text, min, max));
        return *number;
    }
    std::string word(const Tree& element, const char* name) const {
        return element.get<std::string>(fmt::format("<xmlattr>.{}", name), "");
    }
};

/// A GPU of a list as written: its rank where there is one (2.30), else its NVML index.
struct Gpu {
    std::uint64_t dev = 0;
    std::optional<std::uint64_t> rank;
    bool prefixed = false;  ///< dev began with 0x

    [[nodiscard]] std::uint64_t name(bool ranked) const { return ranked ? *rank : dev; }
};

Gpu gpu_of(const Reader& reader, const Tree& element, const std::string& where) {
    Gpu gpu;
    const auto read = [&](std::string text, const char* name, bool* prefixed) {
        const std::string whole = text;
        const bool hex = text.starts_with("0x") || text.starts_with("0X");
        if (hex) text.erase(0, 2);
        if (prefixed != nullptr) *prefixed = hex;
        const auto number = integer_in<std::uint64_t>(text, hex ? 16 : 10);
        if (!number) reader.refuse(fmt::format("{}: {}=\"{}\": expected a number like 3 or 0x3", where, name, whole));
        return *number;
    };
    const std::string dev = reader.word(element, "dev"), rank = reader.word(element, "rank");
    if (dev.empty() && rank.empty()) reader.refuse(fmt::format("{} has a <gpu> without dev", where));
    if (!dev.empty()) gpu.dev = read(dev, "dev", &gpu.prefixed);
    if (!rank.empty()) gpu.rank = read(rank, "rank", nullptr);
    return gpu;
}

/// A graph as written, its lists not yet mapped to places.
struct WrittenGraph {
    SearchGraph graph;
    std::vector<std::vector<Gpu>> lists;
};

Tree xml_of(const Reader& reader, std::string_view text) {
    if (text.size() > max_bytes) reader.refuse("larger than 64 MiB; expected a few KiB");
    if (nested_too_deep(text))
        reader.refuse("elements nested more than 200 deep; expected <graphs><graph><channel><gpu>");
    Tree document;
    try {
        std::istringstream stream{std::string(text)};
        read_xml(stream, document, boost::property_tree::xml_parser::no_comments);
    } catch (const boost::property_tree::xml_parser_error& error) {
        reader.refuse(fmt::format("line {}: not XML: {}", error.line(), error.message()));
    }
    if (document.count("system") > 0 && document.count("graphs") == 0)
        reader.refuse("this is a topology (NCCL_TOPO_DUMP_FILE); expected a file of NCCL_GRAPH_DUMP_FILE");
    const auto root = document.get_child_optional("graphs");
    if (!root) reader.refuse("no <graphs> element; expected a file of NCCL_GRAPH_DUMP_FILE");
    if (const int version = reader.attribute<int>(*root, "version", "<graphs>", 0, 1000, 1); version != 1)
        reader.refuse(fmt::format("<graphs version=\"{}\">; expected version 1", version));
    return document;
}

std::vector<Gpu> read_channel(const Reader& reader, const Tree& channel, const std::string& where) {
    std::vector<Gpu> list;
    for (const auto& [tag, child] : channel) {
        if (tag == "gpu") list.push_back(gpu_of(reader, child, where));
        if (list.size() > max_gpus) reader.refuse(where + " lists more than 4096 GPUs");
    }
    if (list.empty()) reader.refuse(where + " lists no <gpu>");
    return list;
}

WrittenGraph read_graph(const Reader& reader, const Tree& element) {
    WrittenGraph written;
    SearchGraph& graph = written.graph;
    graph.id = reader.attribute<int>(element, "id", "a <graph>", 0, 100);
    const std::string where = fmt::format("graph {}", graph.id);
    graph.pattern = reader.attribute<int>(element, "pattern", where, 1, 6);
    graph.cross_nic = reader.attribute<int>(element, "crossnic", where, 0, 2, 0);
    graph.speed.channels = reader.attribute<int>(element, "nchannels", where, 0, max_channels);
    graph.speed.bw_intra = reader.attribute<double>(element, "speedintra", where, 0, 1e6);
    graph.speed.bw_inter = reader.attribute<double>(element, "speedinter", where, 0, 1e6);
    graph.speed.latency_inter = reader.attribute<double>(element, "latencyinter", where, 0, 1e6, 0.0);
    graph.type_intra = reader.word(element, "typeintra");
    graph.type_inter = reader.word(element, "typeinter");
    graph.speed.nvlink = graph.type_intra == "NVL";
    graph.speed.same_channels = reader.attribute<int>(element, "samechannels", where, 0, 1, 1) == 1;
    for (const auto& [tag, channel] : element)
        if (tag == "channel")
            written.lists.push_back(
                read_channel(reader, channel, fmt::format("{}, channel {}", where, written.lists.size())));
    if (static_cast<int>(written.lists.size()) != graph.speed.channels)
        reader.refuse(
            fmt::format("{} says nchannels=\"{}\" and lists {}", where, graph.speed.channels, written.lists.size()));
    return written;
}

/// GPUs are named by rank where every <gpu> has one, else by NVML index.
bool gpus_have_ranks(const Reader& reader, const std::vector<WrittenGraph>& written,
                     std::vector<std::string>& assumptions) {
    bool ranked = true, unranked = true, any_prefix = false, large_decimal = false;
    for (const WrittenGraph& each : written)
        for (const auto& list : each.lists)
            for (const Gpu& gpu : list) {
                (gpu.rank ? unranked : ranked) = false;
                any_prefix = any_prefix || gpu.prefixed;
                large_decimal = large_decimal || (!gpu.prefixed && gpu.dev >= 10);
            }
    if (!ranked && !unranked) reader.refuse("some <gpu> have a rank and some have none; expected all or none");
    if (!ranked && large_decimal && any_prefix)
        reader.refuse(
            "dev is sometimes 0x and sometimes 10 or more without it, which NCCL since 2.22 reads as hexadecimal; "
            "expected 0x everywhere");
    if (!ranked && large_decimal)
        assumptions.emplace_back(
            "dev is decimal, as NCCL before 2.22 wrote it (since then NCCL reads it as hexadecimal)");
    return ranked;
}

/// A channel's list as places among the node's GPUs, which are sorted.
std::vector<int> places_of(const Reader& reader, const WrittenGraph& written, std::size_t channel,
                           const std::set<std::uint64_t>& gpus, bool ranked) {
    const std::string where = fmt::format("graph {}, channel {}", written.graph.id, channel);
    const char* kind = ranked ? "rank" : "dev";
    std::vector<int> places;
    std::set<std::uint64_t> seen;
    for (const Gpu& gpu : written.lists[channel]) {
        const std::uint64_t name = gpu.name(ranked);
        const auto place = gpus.find(name);
        if (place == gpus.end())
            reader.refuse(fmt::format("{}: {} {} is not among the ring's {} GPUs", where, kind, name, gpus.size()));
        if (!seen.insert(name).second) reader.refuse(fmt::format("{}: {} {} is listed twice", where, kind, name));
        places.push_back(static_cast<int>(std::distance(gpus.begin(), place)));
    }
    // NVLS graphs (id 3) name the head only.
    if (written.graph.id != 3 && places.size() != gpus.size())
        reader.refuse(fmt::format("{}: {} of {} GPUs are listed", where, places.size(), gpus.size()));
    return places;
}

/// The channels of which ring and tree are both known.
std::size_t searched_channels(const GraphFile& graph) {
    const SearchGraph *ring = graph.find(0), *tree = graph.find(1);
    return tree == nullptr ? ring->channels.size() : std::min(ring->channels.size(), tree->channels.size());
}

}  // namespace

const SearchGraph* GraphFile::find(int id) const {
    for (const SearchGraph& graph : graphs)
        if (graph.id == id && !graph.channels.empty()) return &graph;
    return nullptr;
}

GraphFile parse_graph_file(std::string_view text, const std::string& file) {
    const Reader reader{file};
    const Tree document = xml_of(reader, text);
    std::vector<WrittenGraph> written;
    for (const auto& [name, element] : document.get_child("graphs"))
        if (name == "graph") {
            WrittenGraph graph = read_graph(reader, element);
            for (const WrittenGraph& other : written)
                if (other.graph.id == graph.graph.id)
                    reader.refuse(fmt::format("graph {} appears twice", other.graph.id));
            written.push_back(std::move(graph));
        }
    const auto ring =
        std::find_if(written.begin(), written.end(), [](const WrittenGraph& each) { return each.graph.id == 0; });
    if (ring == written.end() || ring->lists.empty())
        reader.refuse("no ring graph (id 0) with channels: NCCL searches it itself");

    GraphFile result;
    result.file = file;
    const bool ranked = gpus_have_ranks(reader, written, result.assumptions);
    std::set<std::uint64_t> gpus;
    for (const Gpu& gpu : ring->lists.front()) gpus.insert(gpu.name(ranked));
    result.gpus = static_cast<int>(gpus.size());
    for (WrittenGraph& each : written) {
        for (std::size_t c = 0; c < each.lists.size(); ++c)
            each.graph.channels.push_back(places_of(reader, each, c, gpus, ranked));
        result.graphs.push_back(std::move(each.graph));
    }
    if (const SearchGraph* tree = result.find(1); tree != nullptr && (tree->pattern < 1 || tree->pattern > 3))
        reader.refuse(fmt::format("the tree graph (id 1) has pattern {}; expected 1, 2 or 3", tree->pattern));
    return result;
}

Communicator communicator_from_graph(const GraphFile& graph, int nodes, int ranks_per_node) {
    if (ranks_per_node != graph.gpus)
        throw UsageError(fmt::format("{} {}: expected {}, the GPUs that {} lists", input_name("ranks-per-node"),
                                     ranks_per_node, graph.gpus, graph.file));
    if (nodes < 1 || nodes > (1 << 20) / ranks_per_node)
        throw UsageError(fmt::format("{} nodes of {} ranks: expected 1 to {} nodes", nodes, ranks_per_node,
                                     (1 << 20) / ranks_per_node));
    const SearchGraph* ring = graph.find(0);
    ensure(ring != nullptr, "a graph file has a ring graph");
    const SearchGraph* tree = graph.find(1);
    const std::size_t searched = searched_channels(graph);
    std::vector<std::vector<NodeLists>> lists(static_cast<std::size_t>(nodes));
    for (int node = 0; node < nodes; ++node) {
        // connect.cc, ncclTopoPostset: with crossNic 2 odd nodes swap the rings of neighbouring channels, so that rails
        // meet; trees stay.
        const auto source = [&](std::size_t c) {
            return ring->cross_nic == 2 && searched % 2 == 0 && node % 2 == 1 ? c ^ 1u : c;
        };
        for (std::size_t c = 0; c < searched; ++c) {
            NodeLists own;
            for (const int place : ring->channels[source(c)]) own.ring.push_back(node * ranks_per_node + place);
            own.tree = own.ring;
            if (tree != nullptr) {
                own.tree.clear();
                for (const int place : tree->channels[c]) own.tree.push_back(node * ranks_per_node + place);
                own.pattern = static_cast<TreePattern>(tree->pattern);
            }
            if (ranks_per_node == 1) own.pattern = TreePattern::tree;
            lists[static_cast<std::size_t>(node)].push_back(std::move(own));
        }
    }
    Topology topology = Topology::from_node_lists(lists);
    if (topology.channels().size() > static_cast<std::size_t>(max_channels))
        topology = topology.with_channels(0, max_channels);
    if (tree == nullptr) {
        std::vector<Channel> rings;
        for (const Channel& channel : topology.channels()) rings.push_back({channel.ring, nullptr});
        std::vector<int> node_of;
        for (int rank = 0; rank < nodes * ranks_per_node; ++rank) node_of.push_back(rank / ranks_per_node);
        topology = Topology(std::move(node_of), std::move(rings));
    }
    return {std::move(topology)};
}

std::vector<std::string> graph_assumptions(const GraphFile& graph, int nodes) {
    std::vector<std::string> result = graph.assumptions;
    const SearchGraph* ring = graph.find(0);
    const SearchGraph* tree = graph.find(1);
    result.emplace_back("rank i of a node uses its i-th GPU by NVML index (NCCL's log: 'rank .. nvmlDev ..')");
    if (nodes > 1)
        result.push_back(fmt::format("all {} nodes have this graph (each rank's log: 'Pattern' lines)", nodes));
    if (tree == nullptr)
        result.emplace_back("no tree graph (id 1): NCCL searches the trees itself; they are not known here");
    if (ring != nullptr) {
        const std::size_t searched = searched_channels(graph);
        if (nodes > 1 && ring->speed.bw_intra > 45 && 2 * searched < 16)
            result.push_back(fmt::format(
                "{} channels, as before Hopper; sm_90 and later double them (NCCL's log: 'coll channels'; {})",
                2 * searched, input_name("channels")));
        else
            result.push_back(
                fmt::format("{} channels: each of the {} in the file twice (NCCL's log: 'coll channels'; {})",
                            2 * searched, searched, input_name("channels")));
    }
    return result;
}

}  // namespace samesum
