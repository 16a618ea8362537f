// Cases as lines, and the buffers that they stand for.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/case.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "model/nccl/topology.hpp"
#include "model/support/error.hpp"
#include "model/support/numbers.hpp"
#include "model/support/text.hpp"

namespace samesum::fuzz {
namespace {

// A made-up line must not cause huge allocations or hours of work.
constexpr std::size_t max_ranks = 64, max_channels = 64;
constexpr std::uint64_t max_hidden = std::uint64_t{1} << 20, max_elements = std::uint64_t{1} << 32;

constexpr std::array<std::string_view, 4> maker_names{"combine", "prediction", "movement", "tree"};

std::uint64_t number(std::string_view text, std::string_view key) {
    if (const auto value = integer_in<std::uint64_t>(text)) return *value;
    throw UsageError(fmt::format("case: {}={}: expected a whole number", key, text));
}

int small_number(std::string_view text, std::string_view key, std::uint64_t max = max_ranks - 1) {
    const std::uint64_t value = number(text, key);
    if (value > max) throw UsageError(fmt::format("case: {}={}: expected at most {}", key, text, max));
    return static_cast<int>(value);
}

std::string str_rings(const Rings& rings) {
    std::string text;
    for (std::size_t i = 0; i < rings.size();) {
        std::size_t same = 1;
        while (i + same < rings.size() && rings[i + same] == rings[i]) ++same;
        if (!text.empty()) text += ';';
        if (same > 1) text += fmt::format("{}*", same);
        text += fmt::format("{}", fmt::join(rings[i], ","));
        i += same;
    }
    return text;
}

std::vector<Ring> parse_rings(std::string_view text) {
    std::vector<Ring> rings;
    for (std::string_view word : split(text, ';')) {
        std::uint64_t times = 1;
        if (const std::size_t star = word.find('*'); star != std::string_view::npos) {
            times = number(word.substr(0, star), "rings");
            word.remove_prefix(star + 1);
        }
        if (times < 1 || times + rings.size() > max_channels)
            throw UsageError(fmt::format("case: rings={}: 1 to {} channels", text, max_channels));
        Ring ring;
        for (const std::string_view rank : split(word, ',')) ring.push_back(small_number(rank, "rings"));
        rings.insert(rings.end(), times, ring);
    }
    return rings;
}

LaunchMode parse_launch_mode(std::string_view text) {
    LaunchMode launch_mode;
    for (const std::string_view word : split(text, '+')) {
        if (word == "captured")
            launch_mode.captured = true;
        else if (word == "in_place")
            launch_mode.in_place = true;
        else if (word == "fresh")
            launch_mode.fresh = true;
        else if (word == "delayed")
            launch_mode.delayed = true;
        else if (word.starts_with("shift"))
            launch_mode.shift = small_number(word.substr(5), "launch");
        else if (word != "plain")
            throw UsageError(fmt::format(
                "case: launch={}: expected plain, or some of captured, in_place, fresh, delayed and shiftN, "
                "joined by +",
                text));
    }
    return launch_mode;
}

/// The fields of a side that differ from `other`, which holds the defaults.
std::string str_side(const Side& side, const Side& other) {
    std::string text;
    const auto say = [&](bool differs, std::string_view key, const auto& value) {
        if (differs) text += fmt::format(" {}={}", key, value);
    };
    say(side.maker != other.maker, "by", maker_names.at(static_cast<std::size_t>(side.maker)));
    say(side.scheme != other.scheme, "scheme", name(side.scheme));
    say(side.rings != other.rings, "rings", str_rings(side.rings));
    say(side.algorithm != other.algorithm, "algo", name(side.algorithm));
    say(side.protocol != other.protocol, "proto", name(side.protocol));
    say(side.root != other.root, "root", side.root);
    say(side.accumulation != other.accumulation, "accumulation", name(side.accumulation));
    say(side.sizes != other.sizes, "sizes", str_sizes(side.sizes));
    say(side.row != other.row, "row", side.row);
    say(side.ranks_per_node != other.ranks_per_node, "ranks_per_node", side.ranks_per_node);
    say(side.nccl != other.nccl, "nccl", str(side.nccl));
    say(side.threads != other.threads, "threads", side.threads);
    say(side.launch_mode != other.launch_mode, "launch", str(side.launch_mode));
    if (side.contributors != other.contributors)
        text += side.contributors.empty() ? " contributors=all"
                                          : fmt::format(" contributors={}", fmt::join(side.contributors, ","));
    if (side.tree != other.tree) {
        std::string tree = side.tree ? side.tree->str() : "none";
        std::replace(tree.begin(), tree.end(), ' ', '+');
        text += fmt::format(" tree={}", tree);
    }
    return text;
}

void set(Side& side, std::string_view key, std::string_view value) {
    if (key == "by") {
        const auto found = std::find(maker_names.begin(), maker_names.end(), value);
        if (found == maker_names.end())
            throw UsageError(fmt::format("case: by={}: expected one of: {}", value, fmt::join(maker_names, ", ")));
        side.maker = static_cast<Maker>(found - maker_names.begin());
    } else if (key == "scheme") {
        side.scheme = parse_scheme(value);
    } else if (key == "rings") {
        side.rings = parse_rings(value);
    } else if (key == "algo") {
        side.algorithm = parse_algorithm(value);
    } else if (key == "proto") {
        side.protocol = parse_protocol(value);
    } else if (key == "root") {
        side.root = small_number(value, key);
    } else if (key == "accumulation") {
        side.accumulation = parse_accumulation(value);
    } else if (key == "sizes") {
        side.sizes.clear();
        for (const std::string_view word : split(value, ',')) side.sizes.push_back(number(word, key));
    } else if (key == "row") {
        side.row = number(value, key);
    } else if (key == "ranks_per_node") {
        side.ranks_per_node = small_number(value, key);
    } else if (key == "nccl") {
        side.nccl = parse_nccl_version(value);
    } else if (key == "threads") {
        side.threads = small_number(value, key, 1024);
    } else if (key == "launch" || key == "manner") {  // its name in corpora before December 2026
        side.launch_mode = parse_launch_mode(value);
    } else if (key == "contributors" || key == "seats") {
        side.contributors.clear();
        if (value != "all")
            for (const std::string_view word : split(value, ',')) side.contributors.push_back(small_number(word, key));
    } else if (key == "tree") {
        std::string text(value);
        // Nested brackets are read by recursion or with a stack; the limit keeps both shallow.
        if (text.size() > 8 * max_ranks) throw UsageError("case: tree: more than 64 leaves");
        std::replace(text.begin(), text.end(), '+', ' ');
        side.tree = value == "none" ? std::nullopt : std::optional(ReductionTree::parse(text));
    } else {
        throw UsageError(
            fmt::format("case: unknown field '{}' of a side; expected one of: by, scheme, rings, algo, proto, root, "
                        "accumulation, sizes, row, "
                        "ranks_per_node, nccl, threads, launch, contributors, tree",
                        key));
    }
}

void set(Case& c, std::string_view key, std::string_view value) {
    if (key == "dtype") {
        c.format = parse_format(value);
    } else if (key == "hidden") {
        c.hidden = number(value, key);
    } else if (key == "column") {
        c.column = number(value, key);
    } else if (key == "fill") {
        c.fill = number(value, key);
    } else if (key == "x") {
        c.x.clear();
        // dtype stands before x in a line that we printed; hex of another width is an error either way.
        for (const std::string_view word : split(value, ',')) c.x.push_back(parse_hex(c.format, word));
    } else {
        throw UsageError(
            fmt::format("case: unknown field '{}'; expected before 'a:' one of: dtype, x, hidden, column, fill", key));
    }
}

std::string objection(const Case& c, const Side& side) {
    if (side.maker == Maker::tree) {
        if (!side.tree) return "by=tree needs a tree";
        const std::vector<int> leaves = side.tree->leaves();
        const auto highest = *std::max_element(leaves.begin(), leaves.end());
        if (highest >= static_cast<int>(c.x.size()))
            return fmt::format("tree {} needs x{}, which is not given", side.tree->str(), highest);
        return {};
    }
    const std::size_t n = side.sizes.size();
    if (n < 1 || n > max_ranks) return fmt::format("sizes of {} ranks: expected 1 to {}", n, max_ranks);
    if (side.rings.empty() || side.rings.size() > max_channels)
        return fmt::format("{} rings: expected 1 to {}", side.rings.size(), max_channels);
    for (const Ring& ring : side.rings) {
        std::uint64_t visited = 0;  // no more than 64 ranks
        bool permutation = ring.size() == n;
        for (const int rank : ring) {
            permutation = permutation && rank >= 0 && rank < static_cast<int>(n) && (visited >> rank & 1) == 0;
            if (permutation) visited |= std::uint64_t{1} << rank;
        }
        if (!permutation) return fmt::format("ring {} does not visit each of {} ranks once", fmt::join(ring, ","), n);
    }
    std::uint64_t rows = 0;
    for (const std::uint64_t size : side.sizes) {
        if (size > max_elements) return fmt::format("size {} is too large", size);
        rows += size;
    }
    if (rows > max_elements / c.hidden)
        return fmt::format("{} rows of {}: at most {} elements", rows, c.hidden, max_elements);
    if (side.row >= rows) return fmt::format("row {} is outside of the {} rows", side.row, rows);
    if (side.ranks_per_node < 1 || n % static_cast<std::size_t>(side.ranks_per_node) != 0)
        return fmt::format("{} ranks: not a multiple of ranks_per_node {}", n, side.ranks_per_node);
    if (side.root >= static_cast<int>(n)) return fmt::format("root {}: expected 0 to {}", side.root, n - 1);
    if (side.algorithm != Algorithm::ring && side.algorithm != Algorithm::pat) return "algo: expected Ring or PAT";
    if (side.algorithm == Algorithm::pat && side.protocol != Protocol::simple)
        return "NCCL has PAT with proto=Simple only";
    if (side.accumulation == Accumulation::exact)
        return "accumulation=exact: expected per_hop or fp32_once; exact is a scheme";
    if (side.scheme == Scheme::reduce_scatter && !Routing{side.sizes, 1}.equal_sizes())
        return fmt::format("reduce_scatter needs equal sizes; these are {}", str_sizes(side.sizes));
    if (side.contributors.empty()) {
        if (c.x.size() != n) return fmt::format("{} partials in x for {} ranks: expected contributors", c.x.size(), n);
    } else {
        if (side.contributors.size() != c.x.size())
            return fmt::format("{} contributors for {} partials in x", side.contributors.size(), c.x.size());
        std::vector<int> sorted = side.contributors;
        std::sort(sorted.begin(), sorted.end());
        if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return "a rank contributes two partials";
        if (sorted.back() >= static_cast<int>(n)) return fmt::format("contributor {} is not a rank", sorted.back());
    }
    if (side.maker == Maker::movement && c.x.size() != 1) return "by=movement needs one contributor, so one x";
    return {};
}

}  // namespace

std::string str(const LaunchMode& launch_mode) {
    std::string text;
    const auto say = [&](bool holds, const std::string& word) {
        if (holds) text += (text.empty() ? "" : "+") + word;
    };
    say(launch_mode.captured, "captured");
    say(launch_mode.in_place, "in_place");
    say(launch_mode.fresh, "fresh");
    say(launch_mode.delayed, "delayed");
    say(launch_mode.shift != 0, fmt::format("shift{}", launch_mode.shift));
    return text.empty() ? "plain" : text;
}

bool one_ring(const Rings& rings) {
    return std::adjacent_find(rings.begin(), rings.end(), std::not_equal_to<>()) == rings.end();
}

std::string str(const CommunicatorSetup& setup) {
    return fmt::format("{} ranks {} {}{}{}", setup.ranks, name(setup.algorithm), name(setup.protocol),
                       setup.ranks_per_node > 1 ? fmt::format(" in nodes of {}", setup.ranks_per_node) : "",
                       setup.graph_file.empty() ? "" : " " + setup.graph_file);
}

std::string str(const Case& c) {
    std::vector<std::string> x;
    for (const Bits bits : c.x) x.push_back(hex(c.format, bits).substr(2));
    std::string text = fmt::format("{} dtype={} x={}", c.property, name(c.format), fmt::join(x, ","));
    if (c.hidden != 1) text += fmt::format(" hidden={}", c.hidden);
    if (c.column != 0) text += fmt::format(" column={}", c.column);
    if (c.fill != 0) text += fmt::format(" fill={}", c.fill);
    // The scheme is always printed: readers need not know the default.
    std::string a = str_side(c.a, {});
    if (c.a.maker != Maker::tree && c.a.scheme == Side{}.scheme) a = fmt::format(" scheme={}{}", name(c.a.scheme), a);
    return fmt::format("{} a:{} b:{}", text, a, str_side(c.b, c.a));
}

Case parse_case(std::string_view line) {
    Case c;
    enum class Place { name, common, a, b } place = Place::name;
    for (const std::string_view word : split(line, ' ')) {
        if (word.empty()) continue;
        if (place == Place::name) {
            c.property = word;
            place = Place::common;
            continue;
        }
        if (word == "a:" && place == Place::common) {
            place = Place::a;
            continue;
        }
        if (word == "b:" && place == Place::a) {
            c.b = c.a;
            place = Place::b;
            continue;
        }
        const std::size_t equals = word.find('=');
        if (equals == std::string_view::npos)
            throw UsageError(
                fmt::format("case: '{}' is not KEY=VALUE; a case reads like: NAME dtype=bfloat16 x=3f80 "
                            "a: scheme=fixed_root rings=0 sizes=1 b:",
                            word));
        const std::string_view key = word.substr(0, equals), value = word.substr(equals + 1);
        if (place == Place::common)
            set(c, key, value);
        else
            set(place == Place::a ? c.a : c.b, key, value);
    }
    if (place != Place::b) throw UsageError("case: expected a name, then fields, then 'a:' and then 'b:'");
    if (const std::string why = objection(c); !why.empty()) throw UsageError("case: " + why);
    return c;
}

std::string objection(const Case& c) {
    if (!traits(c.format).is_float) return fmt::format("{} is not a float format", name(c.format));
    if (c.hidden < 1 || c.hidden > max_hidden) return fmt::format("hidden {}: expected 1 to {}", c.hidden, max_hidden);
    if (c.column >= c.hidden) return fmt::format("column {} is outside of hidden {}", c.column, c.hidden);
    if (c.x.empty() || c.x.size() > max_ranks)
        return fmt::format("{} partials in x: expected 1 to {}", c.x.size(), max_ranks);
    for (const Bits bits : c.x)
        if ((bits & ~traits(c.format).mask()) != 0) return "a partial is wider than the format";
    for (const auto& [side, letter] : {std::pair{&c.a, 'a'}, std::pair{&c.b, 'b'}})
        if (std::string why = objection(c, *side); !why.empty()) return fmt::format("{}: {}", letter, why);
    return {};
}

namespace {

std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/// Depends on the element's place alone; few operations, since millions are needed per second.
std::uint64_t noise(std::uint64_t fill, std::uint64_t place, std::uint64_t column) {
    return mixed(mixed(fill ^ (place * 0x9e3779b97f4a7c15)) + column * 0xd1b54a32d192ed03);
}

/// A finite number within 2^-6 .. 2^7.
Bits ordinary(const FormatTraits& t, std::uint64_t noise) {
    const auto exponent = static_cast<Bits>(t.bias()) - 6 + (((noise >> 56) * 13) >> 8);
    return (noise & t.sign()) | exponent << t.fraction_bits | ((noise >> 1) & ((Bits{1} << t.fraction_bits) - 1));
}

/// Never NaN or infinity, which additions change: those are for x alone.
Bits finite_edge(const FormatTraits& t, std::uint64_t noise) {
    const Bits smallest_normal = Bits{1} << t.fraction_bits;
    const std::array edges{Bits{0},     Bits{1}, smallest_normal - 1, smallest_normal, t.largest(), t.largest() - 1,
                           t.one() - 1, t.one(), t.one() + 1};
    return (noise & t.sign()) | edges[((noise >> 40 & 0xffff) * edges.size()) >> 16];
}

}  // namespace

Routing routing_of(const Case& c, const Side& side) { return {side.sizes, c.hidden}; }

Partials::Partials(const Case& c, const Side& side)
    : routing_(routing_of(c, side)),
      format_(c.format),
      row_(side.row),
      column_(c.column),
      fill_(c.fill),
      salt_(0),
      x_(c.x),
      contribution_(side.sizes.size(), -1) {
    for (const Bits bits : x_) salt_ = (salt_ ^ bits) * 0x9e3779b97f4a7c15;
    for (std::size_t i = 0; i < x_.size(); ++i)
        contribution_.at(side.contributors.empty() ? i : static_cast<std::size_t>(side.contributors[i])) =
            static_cast<int>(i);
}

Bits Partials::at(int rank, std::uint64_t row, std::uint64_t column) const {
    if (row != row_) return filler(format_, fill_, rank, row, column);
    const int contribution = contribution_[static_cast<std::size_t>(rank)];
    if (contribution < 0) return traits(format_).sign();
    if (column == column_) return x_[static_cast<std::size_t>(contribution)];
    // The token has the same numbers wherever it lies: they depend on neither row nor rank.
    if (fill_ == 0) return 0;
    const std::uint64_t place = salt_ ^ static_cast<std::uint64_t>(contribution) ^ std::uint64_t{1} << 32;
    const std::uint64_t drawn = noise(fill_, place, column);
    return column % 8 == 7 ? finite_edge(traits(format_), drawn) : ordinary(traits(format_), drawn);
}

Bits Partials::filler(Format format, std::uint64_t fill, int rank, std::uint64_t row, std::uint64_t column) {
    const std::uint64_t place = static_cast<std::uint64_t>(rank) | (row % filler_rows + 1) << 33;
    return fill == 0 ? 0 : ordinary(traits(format), noise(fill, place, column));
}

std::vector<std::vector<Bits>> Partials::whole() const {
    std::vector<std::vector<Bits>> buffers(static_cast<std::size_t>(ranks()));
    for (int rank = 0; rank < ranks(); ++rank) {
        auto& buffer = buffers[static_cast<std::size_t>(rank)];
        buffer.reserve(routing_.elements());
        for (std::uint64_t row = 0; row < routing_.rows(); ++row)
            for (std::uint64_t column = 0; column < routing_.hidden; ++column) buffer.push_back(at(rank, row, column));
    }
    return buffers;
}

}  // namespace samesum::fuzz
