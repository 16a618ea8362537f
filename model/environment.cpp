// Settings from whatever a user pastes. The rules of reading a value are NCCL's (2.28.9 misc/param.cc, graph/tuning.cc,
// graph/connect.cc, init.cc); where NCCL would silently read a typo as 0, we refuse instead.
// SPDX-License-Identifier: Apache-2.0
#include "model/environment.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "model/error.hpp"
#include "model/text.hpp"

namespace samesum {
namespace {

constexpr int most_channels = 64;  // MAXCHANNELS, device.h

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

bool is_key(std::string_view word) {
    return !word.empty() && std::isdigit(static_cast<unsigned char>(word.front())) == 0 &&
           std::all_of(word.begin(), word.end(),
                       [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; });
}

/// Takes a prefix word off the line when it is followed by a space.
bool take(std::string_view& line, std::string_view word) {
    if (!line.starts_with(word) || line.size() <= word.size() || !is_space(line[word.size()])) return false;
    line = trimmed(line.substr(word.size()));
    return true;
}

struct Parser {
    const std::string& file;
    Environment result{};
    std::size_t line_number = 0;

    [[noreturn]] void refuse(std::string_view what, std::string_view right) const {
        std::string shown;
        for (const char c : what.substr(0, 60)) shown += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
        throw UsageError(fmt::format("{}: line {}: '{}'{} is not a setting; {}", file, line_number, shown,
                                     what.size() > 60 ? "..." : "", right));
    }

    /// A quoted or bare value; what it took is removed from `rest`.
    std::string value(std::string_view& rest) const {
        if (!rest.empty() && (rest.front() == '"' || rest.front() == '\'')) {
            const std::size_t end = rest.find(rest.front(), 1);
            if (end == std::string_view::npos) refuse(rest, "its quote is not closed");
            std::string result_value(rest.substr(1, end - 1));
            rest.remove_prefix(end + 1);
            return result_value;
        }
        std::size_t end = 0;
        while (end < rest.size() && !is_space(rest[end])) ++end;
        std::string result_value(rest.substr(0, end));
        rest.remove_prefix(end);
        return result_value;
    }

    void line(std::string_view text);
    void assignments(std::string_view text);
    bool python(std::string_view text);
    bool mapping(std::string_view text);
};

/// os.environ["KEY"] = "VALUE", os.environ.setdefault("KEY", "VALUE")
bool Parser::python(std::string_view text) {
    if (!text.starts_with("os.environ") && !text.starts_with("environ[") && !text.starts_with("os.putenv"))
        return false;
    const auto quoted = [&](std::string_view& rest) -> std::optional<std::string> {
        const std::size_t begin = rest.find_first_of("\"'");
        if (begin == std::string_view::npos) return std::nullopt;
        rest.remove_prefix(begin);
        return value(rest);
    };
    std::string_view rest = text;
    const auto key = quoted(rest);
    const auto assigned = key ? quoted(rest) : std::nullopt;
    if (!assigned || !is_key(*key)) refuse(text, "it would read like os.environ[\"NCCL_ALGO\"] = \"Ring\"");
    result[*key] = *assigned;
    return true;
}

/// KEY: value of YAML, "KEY": "value", of a Python or JSON fragment.
bool Parser::mapping(std::string_view text) {
    std::string_view rest = text;
    std::string key;
    if (rest.front() == '"' || rest.front() == '\'') {
        key = value(rest);
    } else {
        const std::size_t end = std::min(rest.find_first_of(": \t="), rest.size());
        key = rest.substr(0, end);
        rest.remove_prefix(end);
    }
    rest = trimmed(rest);
    if (!is_key(key) || rest.empty() || rest.front() != ':') return false;
    rest = trimmed(rest.substr(1));
    if (rest.ends_with(',')) rest = trimmed(rest.substr(0, rest.size() - 1));
    if (rest.empty()) return true;  // the head of a YAML block, "environment:"
    result[key] = value(rest);
    return true;
}

void Parser::assignments(std::string_view rest) {
    const std::string_view whole = rest;
    bool any = false;
    while (!rest.empty() && rest.front() != '#' && rest.front() != ';' && rest.front() != '&') {
        while (take(rest, "-e") || take(rest, "--env") || take(rest, "-x") || take(rest, "env")) {
        }
        if (rest.starts_with("--env=")) rest.remove_prefix(6);
        // docker -e 'KEY=VALUE'
        if (!rest.empty() && (rest.front() == '"' || rest.front() == '\'') &&
            rest.find('=') != std::string_view::npos) {
            const std::string inside = value(rest);
            const std::size_t equals = inside.find('=');
            if (equals == std::string::npos || !is_key(std::string_view(inside).substr(0, equals)))
                refuse(whole, "it would read like NCCL_ALGO=Ring");
            result[inside.substr(0, equals)] = inside.substr(equals + 1);
            any = true;
            rest = trimmed(rest);
            continue;
        }
        const std::size_t equals = rest.find('=');
        const std::string_view key = rest.substr(0, std::min(equals, rest.size()));
        if (equals == std::string_view::npos || !is_key(key)) {
            if (any) return;  // the command behind its settings: NCCL_ALGO=Ring python train.py
            refuse(whole, "it would read like NCCL_ALGO=Ring");
        }
        rest.remove_prefix(equals + 1);
        const bool quoted = !rest.empty() && (rest.front() == '"' || rest.front() == '\'');
        std::string assigned = value(rest);
        rest = trimmed(rest);
        // `env` prints values with blanks as they are. NCCL's own have none, but for lists of numbers.
        if (!any && !quoted && !rest.empty() && rest.front() != '#' && rest.find('=') == std::string_view::npos &&
            (!key.starts_with("NCCL_") || std::isdigit(static_cast<unsigned char>(rest.front())) != 0)) {
            assigned += fmt::format(" {}", rest);
            rest = {};
        }
        while (assigned.ends_with(';') && !quoted) assigned.pop_back();
        result[std::string(key)] = assigned;
        any = true;
    }
}

void Parser::line(std::string_view text) {
    ++line_number;
    text = trimmed(text);
    if (text.ends_with('\\')) text = trimmed(text.substr(0, text.size() - 1));
    if (text.starts_with("$ ") || text.starts_with("> ") || text.starts_with("- ")) text = trimmed(text.substr(2));
    if (text.empty() || text.front() == '#' || text.starts_with("//")) return;
    if (text == "{" || text == "}" || text == "}," || text == "})") return;
    while (take(text, "export") || take(text, "declare -x") || take(text, "ENV") || take(text, "set")) {
    }
    if (take(text, "setenv")) {
        std::string_view rest = text;
        const std::string key = value(rest);
        rest = trimmed(rest);
        if (!is_key(key)) refuse(text, "it would read like setenv NCCL_ALGO Ring");
        result[key] = value(rest);
        return;
    }
    if (take(text, "unset")) {
        result.erase(std::string(text));
        return;
    }
    if (text.empty() || python(text)) return;
    const std::size_t equals = text.find('='), colon = text.find(':');
    if (colon != std::string_view::npos && colon < equals && mapping(text)) return;
    assignments(text);
}

void add_json(Environment& result, const nlohmann::json& document, const std::string& file, int depth) {
    const auto scalar = [&](const std::string& key, const nlohmann::json& value) {
        if (!is_key(key))
            throw UsageError(fmt::format("{}: '{}' is not the name of a setting", file, key.substr(0, 60)));
        if (value.is_string())
            result[key] = value.get<std::string>();
        else if (value.is_boolean())
            result[key] = value.get<bool>() ? "1" : "0";
        else if (value.is_number())
            result[key] = value.dump();
        else if (!value.is_null())
            throw UsageError(fmt::format("{}: {} is neither text nor a number", file, key));
    };
    if (document
            .is_array()) {  // [{"name": "NCCL_ALGO", "value": "Ring"}], or ["NCCL_ALGO=Ring"] as `docker inspect` shows
        for (const auto& each : document) {
            if (each.is_object() && each.contains("name") && each["name"].is_string()) {
                scalar(each["name"].get<std::string>(), each.value("value", nlohmann::json()));
            } else if (each.is_string() && each.get<std::string>().find('=') != std::string::npos) {
                const auto text = each.get<std::string>();
                const std::size_t equals = text.find('=');
                scalar(text.substr(0, equals), text.substr(equals + 1));
            } else {
                throw UsageError(
                    fmt::format("{}: a list holds \"KEY=VALUE\" or {{\"name\": ..., \"value\": ...}}", file));
            }
        }
        return;
    }
    for (const auto& [key, value] : document.items()) {
        const bool nested = key == "env" || key == "Env" || key == "environment";
        if ((value.is_object() || value.is_array()) && nested && depth == 0)
            add_json(result, value, file, 1);
        else
            scalar(key, value);
    }
}

struct Number {
    std::string_view key;
    long long least, most;
    std::string_view right;
};

/// As NCCL (strtoll, base 0), but the whole word must be a number; nothing when unset or empty.
std::optional<long long> number(const Environment& environment, const Number& expected) {
    const auto place = environment.find(std::string(expected.key));
    if (place == environment.end() || place->second.empty()) return std::nullopt;
    errno = 0;
    char* end = nullptr;
    const long long value = std::strtoll(place->second.c_str(), &end, 0);
    if (errno != 0 || end == place->second.c_str() || !trimmed(end).empty() || value < expected.least ||
        value > expected.most)
        throw UsageError(fmt::format("{}={}: {} would be right", expected.key, place->second, expected.right));
    return value;
}

}  // namespace

Environment parse_environment(std::string_view text, const std::string& file) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    std::size_t first = 0;
    while (first < text.size() && (is_space(text[first]) || text[first] == '\n')) ++first;
    if (first < text.size() && (text[first] == '{' || text[first] == '[')) {
        // The parser is recursive; a file nested beyond reason must not use up the stack.
        std::size_t depth = 0, deepest = 0;
        for (const char c : text) {
            if (c == '{' || c == '[')
                deepest = std::max(deepest, ++depth);
            else if ((c == '}' || c == ']') && depth > 0)
                --depth;
        }
        const nlohmann::json document = deepest > 50 ? nlohmann::json(nlohmann::json::value_t::discarded)
                                                     : nlohmann::json::parse(text, nullptr, false);
        if (document.is_discarded())
            throw UsageError(
                fmt::format("{}: begins like JSON but is not; {{\"NCCL_ALGO\": \"Ring\"}} would be right", file));
        Environment result;
        add_json(result, document, file, 0);
        return result;
    }
    Parser parser{file};
    bool in_function = false;  // `env` prints exported shell functions over several lines
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (in_function) {
            ++parser.line_number;
            in_function = !line.starts_with("}");
        } else if (line.starts_with("BASH_FUNC_")) {
            ++parser.line_number;
            in_function = line.find("() {") != std::string_view::npos && trimmed(line).back() != '}';
        } else {
            parser.line(line);
        }
    }
    return std::move(parser.result);
}

Environment process_environment() {
    Environment result;
    for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view text(*entry);
        const std::size_t equals = text.find('=');
        if (equals != std::string_view::npos) result[std::string(text.substr(0, equals))] = text.substr(equals + 1);
    }
    return result;
}

int clamp_threads(int wanted, int least, int most, int otherwise) {
    if (wanted <= 0) return otherwise;
    if (wanted % 32 != 0 || wanted > most) return most;
    return std::max(wanted, least);
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
    const auto refuse = [&](std::string_view why, std::string_view right) {
        throw UsageError(
            fmt::format("{}={}: {}; {} would be right (NCCL fails the communicator)", key, value, why, right));
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
                refuse(fmt::format("'{}' is no function", function),
                       "one of Broadcast, Reduce, AllGather, ReduceScatter, AllReduce before each ':'");
            section.remove_prefix(colon + 1);
        } else if (!first) {
            refuse("every list but the first needs a function before it",
                   protocol ? "LL;allreduce:Simple" : "ring;allreduce:tree");
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
                refuse(fmt::format("'{}' is no {}", word, protocol ? "protocol" : "algorithm"),
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
    // connect.cc, ncclMinNchannels and ncclMaxNchannels: the old names count when the new ones are not set.
    const auto channels = [&](const char* old_key, const char* key) {
        constexpr std::string_view right = "a whole number of channels, 1 to 64,";
        const auto old_value = number(environment, {old_key, -2, 1 << 20, right});
        auto value = number(environment, {key, -2, 1 << 20, right});
        if (!value || *value == -2) value = old_value;
        return value && *value != -2 ? value : std::nullopt;
    };
    const auto within = [](long long value) {
        return static_cast<int>(std::clamp<long long>(value, 1, most_channels));
    };
    const auto least = channels("NCCL_MIN_NRINGS", "NCCL_MIN_NCHANNELS");
    const auto most = channels("NCCL_MAX_NRINGS", "NCCL_MAX_NCHANNELS");
    auto least_ctas =
        number(environment, {"NCCL_MIN_CTAS", -(1LL << 31), 1 << 20, "a whole number of channels, 1 to 64,"});
    const auto most_ctas =
        number(environment, {"NCCL_MAX_CTAS", -(1LL << 31), 1 << 20, "a whole number of channels, 1 to 64,"});
    if (least && *least > 0) settings.min_channels = within(*least);
    if (most) settings.max_channels = within(*most);
    if (most_ctas && *most_ctas > 0) {  // zero and less are "too low" and ignored (init.cc)
        settings.max_channels =
            settings.max_channels == 0 ? within(*most_ctas) : std::min(settings.max_channels, within(*most_ctas));
        if (least_ctas && *least_ctas > *most_ctas) least_ctas = most_ctas;
    }
    if (least_ctas && *least_ctas > 0) settings.min_channels = std::max(settings.min_channels, within(*least_ctas));

    constexpr std::string_view threads = "a multiple of 32";
    if (const auto value = number(environment, {"NCCL_NTHREADS", -2, 1 << 20, threads}); value && *value > 0)
        settings.threads = clamp_threads(static_cast<int>(*value), 64, 512, 512);
    if (const auto value = number(environment, {"NCCL_LL128_NTHREADS", -2, 1 << 20, threads}); value && *value > 0)
        settings.ll128_threads = clamp_threads(static_cast<int>(*value), 160, 640, 640);

    const auto buffer = [&](const char* key, std::uint64_t& bytes) {
        const auto value = number(environment, {key, -2, 1LL << 31, "a number of bytes from 4096 to 2147483648"});
        if (!value || *value == -2) return;
        if (*value < 4096)
            throw UsageError(
                fmt::format("{}={}: a number of bytes from 4096 to 2147483648 would be right", key, *value));
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
