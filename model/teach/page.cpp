// The data of the page. The selectable values bound its sums: a sum of k values adds a sum of i and one of k - i
// values, for the splits that occur in the page's trees. So all possible pairs are found by size and added here, once.
// SPDX-License-Identifier: Apache-2.0
#include "model/teach/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "model/arithmetic/hop_arithmetic.hpp"
#include "model/combine/combine.hpp"
#include "model/sum/reachable.hpp"
#include "model/sum/rounding_steps.hpp"
#include "model/sum/witness.hpp"
#include "model/support/error.hpp"

namespace samesum {

/// model/teach/page.html, which the build turns into a string.
extern const char* const teach_template;

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t max_pairs = 40'000;
constexpr std::size_t max_bytes = 1 << 20;

std::string base64(std::span<const std::uint8_t> bytes) {
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    text.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        std::uint32_t group = 0;
        for (std::size_t k = i; k < i + 3; ++k) group = group << 8 | (k < bytes.size() ? bytes[k] : 0u);
        for (std::size_t k = 0; k < 4; ++k) text += i + k <= bytes.size() ? digits[group >> (18 - 6 * k) & 63] : '=';
    }
    return text;
}

// Schemes

struct PageScheme {
    std::string_view name, picture, description;
    /// The tree that sums the token of an owner.
    ReductionTree (*tree)(int ranks, int owner);
    bool delivers = false;  ///< rank 0 computes the sum and sends it to the owner
};

ReductionTree combined(Scheme scheme, Algorithm algorithm, int ranks, int owner) {
    const Communicator comm{.topology = Topology::one_rank_per_node(ranks)};
    const Routing one_each{.sizes = std::vector<std::uint64_t>(static_cast<std::size_t>(ranks), 1)};
    const CombineOptions options{.forced = {algorithm, Protocol::simple}};
    return plan_combine(scheme, comm, one_each, Format::bfloat16, options)
        .schedule.segment_at(static_cast<std::uint64_t>(owner))
        .order.as_tree();
}

constexpr std::array page_schemes{
    PageScheme{"reduce_scatter, ring", "ring",
               "ncclReduceScatter along a ring. The sum starts at the owner's successor; the owner adds last. "
               "vLLM's default if all ranks own equally many tokens.",
               [](int ranks, int owner) { return combined(Scheme::reduce_scatter, Algorithm::ring, ranks, owner); }},
    PageScheme{"reduce_scatter, PAT", "tree",
               "ncclReduceScatter by PAT, NCCL's parallel aggregated trees for one rank per node. Each owner has its "
               "own tree.",
               [](int ranks, int owner) { return combined(Scheme::reduce_scatter, Algorithm::pat, ranks, owner); }},
    PageScheme{"reduce_per_owner, ring", "ring",
               "One ncclReduce for each owner, root = owner. vLLM's default if ranks own unequal numbers of tokens. "
               "Each owner has the same order as with the ring reduce_scatter.",
               [](int ranks, int owner) { return combined(Scheme::reduce_per_owner, Algorithm::ring, ranks, owner); }},
    PageScheme{"all_reduce, tree", "tree",
               "ncclAllReduce along NCCL's tree of one channel: each rank adds its children's sums to its own value. "
               "Every rank gets the same result, so it depends on the channel, not on the owner.",
               [](int ranks, int) {
                   const Communicator comm{.topology = Topology::one_rank_per_node(ranks)};
                   return plan_call(comm, {.collective = Collective::all_reduce, .count = 1},
                                    {Algorithm::tree, Protocol::simple})
                       .schedule.segment_at(0)
                       .order.as_tree();
               }},
    PageScheme{"fixed_root", "ring",
               "One ncclReduce to rank 0, then a scatter that only moves bits. One order for every owner, as long as "
               "all channels share one ring.",
               [](int ranks, int owner) { return combined(Scheme::fixed_root, Algorithm::ring, ranks, owner); }, true},
    PageScheme{"gather_ordered", "tree",
               "Every owner gathers the partials and adds them in rank order; so do exchange_ordered and "
               "direct_ordered. One order for every owner, independent of NCCL.",
               [](int ranks, int owner) { return combined(Scheme::gather_ordered, Algorithm::ring, ranks, owner); }}};

/// The numbers of leaves of the two operands of each addition, over all trees of the page.
std::set<std::pair<int, int>> splits_of(int ranks) {
    std::set<std::pair<int, int>> splits;
    for (const PageScheme& scheme : page_schemes)
        for (int n = 2; n <= ranks; ++n)
            for (int owner = 0; owner < n; ++owner) {
                const std::vector<int> ones(static_cast<std::size_t>(n), 1);
                const int leaves = evaluate<int>(scheme.tree(n, owner), ones, [&](int a, int b) {
                    splits.insert({a, b});
                    return a + b;
                });
                ensure(leaves == n, "each tree of the page adds every rank");
            }
    return splits;
}

Json schemes(int ranks) {
    Json list = Json::array();
    for (const PageScheme& scheme : page_schemes) {
        Json trees = Json::object();
        for (int n = 2; n <= ranks; ++n) {
            Json owners = Json::array();
            for (int owner = 0; owner < n; ++owner) {
                const ReductionTree tree = scheme.tree(n, owner);
                owners.push_back({{"postfix", std::vector<int>(tree.postfix().begin(), tree.postfix().end())},
                                  {"tree", tree.str()}});
            }
            trees[std::to_string(n)] = owners;
        }
        list.push_back({{"name", scheme.name},
                        {"picture", scheme.picture},
                        {"description", scheme.description},
                        {"delivers", scheme.delivers},
                        {"trees", trees}});
    }
    return list;
}

// Formats

/// Rounding::Kind by name, for the page's script.
constexpr std::array kind_names{"exact",     "truncated", "truncated_at_tie", "incremented", "incremented_at_tie",
                                "saturated", "overflowed"};

/// The roundings of the page's sums: a short list of (kind, lost bits), and an index into it for each sum.
class RoundingTable {
public:
    std::size_t index_of(Format format, Bits left, Bits right) {
        Entry entry{"special", ""};
        if (is_finite(format, left) && is_finite(format, right)) {
            const Rounding rounding = rounding_of_sum(format, left, right);
            // As in draw_bits(); a longer tail is shown as "..".
            constexpr std::size_t max = 12;
            std::string lost = rounding.lost;
            if (lost.size() > max) lost = lost.substr(0, max) + "..";
            entry = {kind_names[static_cast<std::size_t>(rounding.kind)], lost};
        }
        const auto found = std::find(entries_.begin(), entries_.end(), entry);
        const auto index = static_cast<std::size_t>(found - entries_.begin());
        if (found == entries_.end()) entries_.push_back(entry);
        return index;
    }
    [[nodiscard]] Json as_json() const {
        Json list = Json::array();
        for (const Entry& entry : entries_) list.push_back({entry.first, entry.second});
        return list;
    }

private:
    using Entry = std::pair<std::string, std::string>;
    std::vector<Entry> entries_;
};

struct Preset {
    std::string name;
    std::vector<Bits> values;  ///< of ranks 0, 1, ...
};

/// 2^p for p significant bits: it absorbs a 1 by a tie. absorption_threshold(), 2^(p+1), absorbs 1 and -1 without a
/// tie.
Bits tie_power(Format format) { return absorption_threshold(format) - (Bits{1} << traits(format).fraction_bits); }

/// The default values of a format on the page, arranged as in the lessons.
std::vector<Preset> default_presets(Format format) {
    const FormatTraits& t = traits(format);
    const Bits one = t.one(), two = one + (Bits{1} << t.fraction_bits);
    const Bits tie = tie_power(format), large = absorption_threshold(format);
    const std::vector<Bits> small{one, two, one | t.sign(), one, 0, two, one, one | t.sign()};
    ensure(!order_matters({.format = format}, small), "all orders of the small numbers give the same bits");
    std::vector<Preset> presets{
        {"a large value and its negative", {one, large, large | t.sign(), one, one, 0, one, one}},
        {"one large value and ones", {tie, one, one, one, one, one, one, one}},
        {"small numbers: all orders agree", small}};
    // A quarter of the largest value, added to the largest, saturates and is lost.
    const Bits quarter = t.largest() - (Bits{2} << t.fraction_bits);
    if (t.width == 8)
        presets.push_back(
            {"fp8 that saturates", {t.largest(), quarter, t.largest() | t.sign(), one, quarter, one, 0, 0}});
    return presets;
}

Json as_json(const std::vector<Preset>& presets) {
    Json list = Json::array();
    for (const Preset& each : presets) list.push_back({{"name", each.name}, {"values", each.values}});
    return list;
}

Json format_json(Format format, const std::vector<Preset>& presets) {
    const FormatTraits& t = traits(format);
    return {{"name", t.name},
            {"presets", as_json(presets)},
            {"width", t.width},
            {"exponent_bits", t.exponent_bits},
            {"fraction_bits", t.fraction_bits},
            {"bias", t.bias()}};
}

/// All values and all sums: entry b (b + 1) / 2 + a for a <= b, since addition commutes.
Json all_sums(Format format) {
    const HopArithmetic hop(format);
    std::vector<std::uint8_t> sums, roundings;
    RoundingTable kinds;
    Json decimals = Json::array();
    std::vector<Bits> by_value;
    for (Bits b = 0; b < 256; ++b) {
        decimals.push_back(exact_decimal(format, b));
        if (is_finite(format, b)) by_value.push_back(b);
        for (Bits a = 0; a <= b; ++a) {
            ensure(hop.add(a, b) == hop.add(b, a), "addition commutes");
            sums.push_back(static_cast<std::uint8_t>(hop.add(a, b)));
            const std::size_t index = kinds.index_of(format, a, b);
            ensure(index < 256, "one byte holds the index of a rounding of float8 sums");
            roundings.push_back(static_cast<std::uint8_t>(index));
        }
    }
    std::stable_sort(by_value.begin(), by_value.end(),
                     [&](Bits a, Bits b) { return to_double(format, a) < to_double(format, b); });
    Json json = format_json(format, default_presets(format));
    json["choices"] = by_value;
    json["decimals"] = decimals;
    json["sums"] = base64(sums);
    json["roundings"] = base64(roundings);
    json["rounding_table"] = kinds.as_json();
    return json;
}

/// All sums that are possible with the values of the presets and the other choices.
Json sums_among(Format format, const std::vector<Preset>& presets, std::vector<Bits> choices,
                const std::set<std::pair<int, int>>& splits, int ranks) {
    const HopArithmetic hop(format);
    for (const Preset& preset : presets) choices.insert(choices.end(), preset.values.begin(), preset.values.end());
    // By value, -0 before +0.
    std::sort(choices.begin(), choices.end(),
              [&](Bits a, Bits b) { return std::pair(to_double(format, a), b) < std::pair(to_double(format, b), a); });
    choices.erase(std::unique(choices.begin(), choices.end()), choices.end());
    std::vector<std::set<Bits>> of_size(static_cast<std::size_t>(ranks) + 1);
    of_size[1].insert(choices.begin(), choices.end());
    std::map<std::pair<Bits, Bits>, Bits> sums;
    for (int size = 2; size <= ranks; ++size)
        for (const auto& [i, j] : splits) {
            if (i + j != size) continue;
            for (const Bits a : of_size[static_cast<std::size_t>(i)]) {
                for (const Bits b : of_size[static_cast<std::size_t>(j)]) {
                    const Bits sum = hop.add(a, b);
                    ensure(sum == hop.add(b, a), "addition commutes");
                    of_size[static_cast<std::size_t>(size)].insert(sum);
                    sums.emplace(std::minmax(a, b), sum);
                }
                if (sums.size() > max_pairs)
                    throw UsageError(
                        fmt::format("--values: {} values of {} on {} ranks have more than {} sums; expected fewer "
                                    "--values or a smaller --ranks",
                                    choices.size(), name(format), ranks, max_pairs));
            }
        }
    std::vector<Bits> patterns;
    for (const std::set<Bits>& set : of_size) patterns.insert(patterns.end(), set.begin(), set.end());
    std::sort(patterns.begin(), patterns.end());
    patterns.erase(std::unique(patterns.begin(), patterns.end()), patterns.end());
    const auto index_of = [&](Bits bits) {
        return static_cast<std::size_t>(std::lower_bound(patterns.begin(), patterns.end(), bits) - patterns.begin());
    };
    Json json = format_json(format, presets), decimals = Json::array();
    for (const Bits bits : patterns) decimals.push_back(exact_decimal(format, bits));
    // left, right, sum, rounding: two bytes each.
    std::vector<std::uint8_t> bytes;
    RoundingTable kinds;
    for (const auto& [pair, sum] : sums)
        for (const std::size_t word : {index_of(pair.first), index_of(pair.second), index_of(sum),
                                       kinds.index_of(format, pair.first, pair.second)}) {
            ensure(word < 65536, "two bytes hold the index of a value or of a rounding");
            bytes.push_back(static_cast<std::uint8_t>(word >> 8));
            bytes.push_back(static_cast<std::uint8_t>(word & 255));
        }
    json["choices"] = choices;
    json["patterns"] = patterns;
    json["decimals"] = decimals;
    json["pairs"] = base64(bytes);
    json["rounding_table"] = kinds.as_json();
    return json;
}

}  // namespace

Json as_json(const Lesson& lesson) {
    const auto passages = [](const std::vector<Passage>& list) {
        Json json = Json::array();
        for (const Passage& each : list) json.push_back({{"figure", each.is_figure}, {"text", each.text}});
        return json;
    };
    Json demonstration = nullptr;
    if (const auto& shown = lesson.demonstration)
        demonstration = {{"format", name(shown->format)},
                         {"scheme", shown->scheme},
                         {"values", shown->values},
                         {"before", shown->before},
                         {"after", shown->after}};
    return {{"name", lesson.name},
            {"title", lesson.title},
            {"minutes", lesson.minutes},
            {"text", passages(lesson.text)},
            {"question", lesson.question},
            {"answer", passages(lesson.answer)},
            {"command", lesson.command},
            {"result", lesson.result},
            {"demonstration", demonstration},
            {"exercise",
             {{"task", lesson.exercise.task}, {"form", lesson.exercise.form}, {"solution", lesson.exercise.solution}}}};
}

Json teach_data(std::span<const Lesson> lessons, const PageOptions& options) {
    const auto splits = splits_of(options.ranks);
    Json formats = Json::array();
    for (const Format format : {Format::bfloat16, Format::float16, Format::float32}) {
        const auto given = options.values.find(format);
        if (given != options.values.end()) {
            formats.push_back(sums_among(format, {{"given values", given->second}}, {}, splits, options.ranks));
            continue;
        }
        std::vector<Bits> more{tie_power(format) | traits(format).sign(), parse_value(format, "0.5"),
                               parse_value(format, "3")};
        for (const Lesson& lesson : lessons)
            if (lesson.demonstration && lesson.demonstration->format == format)
                more.insert(more.end(), lesson.demonstration->values.begin(), lesson.demonstration->values.end());
        formats.push_back(sums_among(format, default_presets(format), more, splits, options.ranks));
    }
    for (const Format format : {Format::float8_e4m3, Format::float8_e5m2}) formats.push_back(all_sums(format));
    Json list = Json::array();
    for (const Lesson& lesson : lessons) list.push_back(as_json(lesson));
    Json kind_texts = Json::object();
    for (std::size_t kind = 0; kind < kind_names.size(); ++kind)
        kind_texts[kind_names[kind]] = str(static_cast<Rounding::Kind>(kind));
    return {{"ranks", options.ranks},
            {"rounding_texts", kind_texts},
            {"formats", formats},
            {"schemes", schemes(options.ranks)},
            {"lessons", list}};
}

std::string teach_page(std::span<const Lesson> lessons, const PageOptions& options) {
    // "</script>" inside a string must not end the script element.
    std::string data;
    for (const char c : teach_data(lessons, options).dump())
        data += c == '<' ? std::string("\\u003c") : std::string(1, c);
    constexpr std::string_view mark = "PAGE_DATA";
    std::string page = teach_template;
    const std::size_t at = page.find(mark);
    ensure(at != std::string::npos, "the page has a place for its data");
    page.replace(at, mark.size(), data);
    if (page.size() >= max_bytes)
        throw UsageError(fmt::format(
            "the page would have {} KiB, at most {} are allowed: expected fewer --values or a smaller --ranks",
            page.size() / 1024, max_bytes / 1024));
    return page;
}

}  // namespace samesum
