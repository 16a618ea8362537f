// Values are parsed by NCCL's rules (2.28.9 misc/param.cc, graph/tuning.cc, graph/connect.cc, init.cc), except that a
// typo, which NCCL silently reads as 0, is an error.
// SPDX-License-Identifier: Apache-2.0
#include "model/nccl/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>

#include "model/support/error.hpp"
#include "model/support/text.hpp"

namespace samesum {
namespace {

constexpr int max_channels = 64;  // MAXCHANNELS, device.h

/// NCCL's list syntax (2.28.9 graph/tuning.cc, parseList): `functions:list;...` after an optional general list; ^
/// negates.
template <class Enum, std::size_t N>
std::map<Collective, std::vector<Enum>> parse_list(std::string_view value, const std::array<Enum, N>& all,
                                                   Enum (*parse_one)(std::string_view)) {
    std::map<Collective, std::vector<Enum>> result;
    for (const std::string_view section : split(value, ';')) {
        if (section.empty()) continue;
        std::string_view list = section;
        std::vector<Collective> collectives(all_collectives.begin(), all_collectives.end());
        if (const std::size_t colon = section.find(':'); colon != std::string_view::npos) {
            list = section.substr(colon + 1);
            collectives.clear();
            for (const std::string_view word : split(section.substr(0, colon), ',')) {
                // Functions without additions: valid in NCCL, not modelled.
                if (const std::string function = folded(word); function == "allgather" || function == "broadcast")
                    continue;
                collectives.push_back(parse_collective(word));
            }
        }
        const bool negated = list.starts_with('^');
        if (negated) list.remove_prefix(1);
        std::vector<Enum> named;
        for (const std::string_view word : split(list, ',')) named.push_back(parse_one(word));
        std::vector<Enum> allowed;
        for (const Enum candidate : all)
            if ((std::find(named.begin(), named.end(), candidate) != named.end()) != negated)
                allowed.push_back(candidate);
        for (const Collective collective : collectives) result[collective] = allowed;
    }
    return result;
}

struct Number {
    std::string_view key;
    long long min, max;
    std::string_view values;
};

/// As in NCCL (strtoll, base 0), but the whole word must be a number; std::nullopt if unset or empty.
std::optional<long long> number(const Environment& environment, const Number& expected) {
    const auto place = environment.find(std::string(expected.key));
    if (place == environment.end() || place->second.empty()) return std::nullopt;
    errno = 0;
    char* end = nullptr;
    const long long value = std::strtoll(place->second.c_str(), &end, 0);
    if (errno != 0 || end == place->second.c_str() || !trimmed(end).empty() || value < expected.min ||
        value > expected.max)
        throw UsageError(fmt::format("{}={}: expected {}", expected.key, place->second, expected.values));
    return value;
}

}  // namespace

void set_algorithms(Settings& settings, std::string_view value) {
    settings.algorithms = parse_list(value, all_algorithms, parse_algorithm);
}

void set_protocols(Settings& settings, std::string_view value) {
    settings.protocols = parse_list(value, all_protocols, parse_protocol);
}

int clamp_threads(int wanted, int min, int max, int otherwise) {
    if (wanted <= 0) return otherwise;
    if (wanted % 32 != 0 || wanted > max) return max;
    return std::max(wanted, min);
}

void check_list_syntax(std::string_view key, std::string_view value) {
    const auto equal = [](std::string_view a, std::string_view b) {
        return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
                   return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
               });
    };
    constexpr std::array<std::string_view, 5> functions{"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                                        "AllReduce"};
    constexpr std::array<std::string_view, 7> algorithms{"Tree",     "Ring", "CollNetDirect", "CollNetChain", "NVLS",
                                                         "NVLSTree", "PAT"};
    constexpr std::array<std::string_view, 3> protocols{"LL", "LL128", "Simple"};
    const bool protocol = key == "NCCL_PROTO";
    const auto known = [&](std::string_view word, const auto& words) {
        return std::any_of(words.begin(), words.end(), [&](std::string_view each) { return equal(word, each); });
    };
    const auto refuse = [&](std::string_view why, std::string_view expected) {
        throw UsageError(
            fmt::format("{}={}: {}; expected {} (NCCL fails the communicator)", key, value, why, expected));
    };
    bool first = true;
    for (std::string_view rest = value; !rest.empty();) {
        const std::size_t end = std::min(rest.find(';'), rest.size());
        std::string_view section = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        if (section.empty()) continue;
        if (const std::size_t colon = section.find(':'); colon != std::string_view::npos) {
            const std::string_view function = section.substr(0, colon);
            if (!known(function, functions))
                refuse(fmt::format("'{}' is not a function", function),
                       "one of Broadcast, Reduce, AllGather, ReduceScatter, AllReduce before each ':'");
            section.remove_prefix(colon + 1);
        } else if (!first) {
            refuse("only the first list may lack a function", protocol ? "LL;allreduce:Simple" : "ring;allreduce:tree");
        }
        first = false;
        if (section.starts_with('^')) section.remove_prefix(1);
        if (section.empty()) refuse("an empty list", protocol ? "LL, LL128 or Simple" : "Ring or Tree");
        while (!section.empty()) {
            const std::size_t comma = std::min(section.find(','), section.size());
            const std::string_view word = section.substr(0, comma);
            section.remove_prefix(std::min(comma + 1, section.size()));
            if (word.empty()) continue;
            if (protocol ? !known(word, protocols) : !known(word, algorithms))
                refuse(fmt::format("'{}' is not {}", word, protocol ? "a protocol" : "an algorithm"),
                       protocol ? "LL, LL128 or Simple"
                                : "Tree, Ring, CollNetDirect, CollNetChain, NVLS, NVLSTree or PAT");
        }
    }
}

void apply_environment(const Environment& environment, Settings& settings) {
    const auto text = [&](const char* key) {
        const auto place = environment.find(key);
        return place == environment.end() ? std::string() : place->second;
    };
    if (const std::string value = text("NCCL_ALGO"); !value.empty()) {
        check_list_syntax("NCCL_ALGO", value);
        set_algorithms(settings, value);
    }
    if (const std::string value = text("NCCL_PROTO"); !value.empty()) {
        check_list_syntax("NCCL_PROTO", value);
        set_protocols(settings, value);
    }
    // connect.cc, ncclMinNchannels and ncclMaxNchannels: the old names apply if the new ones are not set.
    const auto channels = [&](const char* old_key, const char* key) {
        constexpr std::string_view expected = "a whole number of channels, 1 to 64";
        const auto old_value = number(environment, {old_key, -2, 1 << 20, expected});
        auto value = number(environment, {key, -2, 1 << 20, expected});
        if (!value || *value == -2) value = old_value;
        return value && *value != -2 ? value : std::nullopt;
    };
    const auto within = [](long long value) { return static_cast<int>(std::clamp<long long>(value, 1, max_channels)); };
    const auto min = channels("NCCL_MIN_NRINGS", "NCCL_MIN_NCHANNELS");
    const auto max = channels("NCCL_MAX_NRINGS", "NCCL_MAX_NCHANNELS");
    auto min_ctas =
        number(environment, {"NCCL_MIN_CTAS", -(1LL << 31), 1 << 20, "a whole number of channels, 1 to 64"});
    const auto max_ctas =
        number(environment, {"NCCL_MAX_CTAS", -(1LL << 31), 1 << 20, "a whole number of channels, 1 to 64"});
    if (min && *min > 0) settings.min_channels = within(*min);
    if (max) settings.max_channels = within(*max);
    if (max_ctas && *max_ctas > 0) {  // zero and less are "too low" and ignored (init.cc)
        settings.max_channels =
            settings.max_channels == 0 ? within(*max_ctas) : std::min(settings.max_channels, within(*max_ctas));
        if (min_ctas && *min_ctas > *max_ctas) min_ctas = max_ctas;
    }
    if (min_ctas && *min_ctas > 0) settings.min_channels = std::max(settings.min_channels, within(*min_ctas));

    constexpr std::string_view threads = "a multiple of 32";
    if (const auto value = number(environment, {"NCCL_NTHREADS", -2, 1 << 20, threads}); value && *value > 0)
        settings.threads = clamp_threads(static_cast<int>(*value), 64, 512, 512);
    if (const auto value = number(environment, {"NCCL_LL128_NTHREADS", -2, 1 << 20, threads}); value && *value > 0)
        settings.ll128_threads = clamp_threads(static_cast<int>(*value), 160, 640, 640);

    const auto buffer = [&](const char* key, std::uint64_t& bytes) {
        const auto value = number(environment, {key, -2, 1LL << 31, "a number of bytes from 4096 to 2147483648"});
        if (!value || *value == -2) return;
        if (*value < 4096)
            throw UsageError(fmt::format("{}={}: expected a number of bytes from 4096 to 2147483648", key, *value));
        bytes = static_cast<std::uint64_t>(*value);
    };
    buffer("NCCL_BUFFSIZE", settings.simple_buffer);
    buffer("NCCL_LL_BUFFSIZE", settings.ll_buffer);
    buffer("NCCL_LL128_BUFFSIZE", settings.ll128_buffer);

    constexpr std::string_view three = "0 (off), 1 (on) or 2 (automatic)";
    constexpr std::string_view two = "0 or 1";
    if (const auto value = number(environment, {"NCCL_PAT_ENABLE", 0, 2, three})) {
        settings.pat_enabled = *value != 0;
        settings.pat_forced = *value == 1;
    }
    if (const auto value = number(environment, {"NCCL_NVLS_ENABLE", 0, 2, three})) settings.nvls_enabled = *value != 0;
    if (const auto value = number(environment, {"NCCL_WIN_ENABLE", 0, 1, two}))
        settings.symmetric_enabled = *value != 0;
    (void)number(environment, {"NCCL_COLLNET_ENABLE", 0, 1, two});
    if (const auto value = number(environment, {"NCCL_NET_OVERHEAD", -2, 1000000000, "a number of nanoseconds"});
        value && *value >= 0)
        settings.net_overhead = static_cast<double>(*value) / 1000;
}

}  // namespace samesum
