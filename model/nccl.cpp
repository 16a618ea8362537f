// Names of NCCL's collectives, algorithms and protocols, and the grammar of NCCL_ALGO and NCCL_PROTO.
// SPDX-License-Identifier: Apache-2.0
#include "model/nccl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "model/error.hpp"
#include "model/text.hpp"

namespace samesum {
namespace {

/// Lower case without '_' and '-', so that "ReduceScatter", "reduce_scatter" and "REDUCESCATTER" are one word.
std::string folded(std::string_view word) {
    std::string result;
    for (const char c : word)
        if (c != '_' && c != '-') result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return result;
}

template <class Enum, std::size_t N>
Enum parse(std::string_view what, std::string_view word, const std::array<Enum, N>& all) {
    for (const Enum value : all)
        if (folded(word) == folded(name(value))) return value;
    std::string choices;
    for (const Enum value : all) choices += fmt::format("{}{}", choices.empty() ? "" : ", ", name(value));
    throw UsageError(fmt::format("unknown {} '{}'; one of: {}", what, word, choices));
}

/// NCCL's list syntax (2.28.9 graph/tuning.cc, parseList): `functions:list;...` after an optional general list; ^
/// negates.
template <class Enum, std::size_t N>
std::map<Collective, std::vector<Enum>> parse_list(std::string_view variable, std::string_view value,
                                                   const std::array<Enum, N>& all) {
    std::map<Collective, std::vector<Enum>> result;
    for (const std::string_view section : split(value, ';')) {
        if (section.empty()) continue;
        std::string_view list = section;
        std::vector<Collective> collectives(all_collectives.begin(), all_collectives.end());
        if (const std::size_t colon = section.find(':'); colon != std::string_view::npos) {
            list = section.substr(colon + 1);
            collectives.clear();
            for (const std::string_view word : split(section.substr(0, colon), ',')) {
                // Functions that add nothing are NCCL's, but not ours.
                if (folded(word) == "allgather" || folded(word) == "broadcast") continue;
                collectives.push_back(parse_collective(word));
            }
        }
        const bool negated = list.starts_with('^');
        if (negated) list.remove_prefix(1);
        std::vector<Enum> named;
        for (const std::string_view word : split(list, ',')) named.push_back(parse(variable, word, all));
        std::vector<Enum> allowed;
        for (const Enum candidate : all)
            if ((std::find(named.begin(), named.end(), candidate) != named.end()) != negated)
                allowed.push_back(candidate);
        for (const Collective collective : collectives) result[collective] = allowed;
    }
    return result;
}

}  // namespace

std::string_view name(Collective collective) {
    constexpr std::array<std::string_view, 3> names{"Reduce", "ReduceScatter", "AllReduce"};
    return names.at(static_cast<std::size_t>(collective));
}

std::string_view name(Algorithm algorithm) {
    constexpr std::array<std::string_view, 7> names{"TREE",      "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS",
                                                    "NVLS_TREE", "PAT"};
    return names.at(static_cast<std::size_t>(algorithm));
}

std::string_view name(Protocol protocol) {
    constexpr std::array<std::string_view, 3> names{"LL", "LL128", "SIMPLE"};
    return names.at(static_cast<std::size_t>(protocol));
}

Collective parse_collective(std::string_view word) {
    if (word == "rs") return Collective::reduce_scatter;  // as records of revealed orders write them
    if (word == "ar") return Collective::all_reduce;
    return parse("collective", word, all_collectives);
}

Algorithm parse_algorithm(std::string_view word) { return parse("algorithm", word, all_algorithms); }
Protocol parse_protocol(std::string_view word) { return parse("protocol", word, all_protocols); }

NcclVersion parse_nccl_version(std::string_view text) {
    std::array<int, 3> numbers{0, 0, -1};
    const auto parts = split(text, '.');
    bool good = parts.size() == 2 || parts.size() == 3;
    for (std::size_t i = 0; good && i < parts.size(); ++i) {
        const auto [end, error] = std::from_chars(parts[i].data(), parts[i].data() + parts[i].size(), numbers[i]);
        good = error == std::errc{} && end == parts[i].data() + parts[i].size();
    }
    if (!good) throw UsageError(fmt::format("'{}' is not an NCCL version; it reads like 2.28.9", text));
    // 2.29.0 and 2.29.1 were never released, nor were lower patches of 2.30: a bare "2.29" means the released line.
    const NcclVersion version{numbers[0], numbers[1], numbers[2] < 0 ? 99 : numbers[2]};
    if (version < NcclVersion{2, 27, 0} || version >= NcclVersion{2, 31, 0})
        throw UsageError(fmt::format("NCCL {} is not modelled; 2.27 to 2.30 are", text));
    return version;
}

std::string str(NcclVersion version) {
    return version.patch == 99 ? fmt::format("{}.{}", version.major, version.minor)
                               : fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

void set_algorithms(Settings& settings, std::string_view value) {
    settings.algorithms = parse_list("algorithm", value, all_algorithms);
}

void set_protocols(Settings& settings, std::string_view value) {
    settings.protocols = parse_list("protocol", value, all_protocols);
}

}  // namespace samesum
