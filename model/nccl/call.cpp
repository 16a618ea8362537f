// Names of NCCL's collectives, algorithms, protocols and releases.
// SPDX-License-Identifier: Apache-2.0
#include "model/nccl/call.hpp"

#include <fmt/format.h>

#include <cctype>

#include "model/support/error.hpp"
#include "model/support/numbers.hpp"
#include "model/support/text.hpp"

namespace samesum {
namespace {

template <class Enum, std::size_t N>
Enum parse(std::string_view what, std::string_view word, const std::array<Enum, N>& all) {
    for (const Enum value : all)
        if (folded(word) == folded(name(value))) return value;
    std::string choices;
    for (const Enum value : all) choices += fmt::format("{}{}", choices.empty() ? "" : ", ", name(value));
    throw UsageError(fmt::format("unknown {} '{}': expected one of: {}", what, word, choices));
}

}  // namespace

std::string folded(std::string_view word) {
    std::string result;
    for (const char c : word)
        if (c != '_' && c != '-') result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return result;
}

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
        const auto number = integer_in<int>(parts[i]);
        good = number.has_value();
        numbers[i] = number.value_or(0);
    }
    if (!good) throw UsageError(fmt::format("'{}' is not an NCCL version: expected e.g. 2.28.9", text));
    // 2.29.0 and 2.29.1 were never released, nor were lower patches of 2.30: a bare "2.29" means the released line.
    const NcclVersion version{numbers[0], numbers[1], numbers[2] < 0 ? 99 : numbers[2]};
    if (version < NcclVersion{2, 27, 0} || version >= NcclVersion{2, 31, 0})
        throw UsageError(fmt::format("NCCL {} is not modelled: expected 2.27 to 2.30", text));
    return version;
}

std::string str(NcclVersion version) {
    return version.patch == 99 ? fmt::format("{}.{}", version.major, version.minor)
                               : fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

}  // namespace samesum
