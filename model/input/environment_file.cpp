// One reader for lines, one for JSON.
// SPDX-License-Identifier: Apache-2.0
#include "model/input/environment_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "model/support/error.hpp"
#include "model/support/text.hpp"

namespace samesum {
namespace {

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

    [[noreturn]] void refuse(std::string_view what, std::string_view expected) const {
        std::string shown;
        for (const char c : what.substr(0, 60)) shown += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
        throw UsageError(fmt::format("{}: line {}: '{}'{} is not a setting; expected {}", file, line_number, shown,
                                     what.size() > 60 ? "..." : "", expected));
    }

    /// A quoted or bare value, which is removed from `rest`.
    std::string value(std::string_view& rest) const {
        if (!rest.empty() && (rest.front() == '"' || rest.front() == '\'')) {
            const std::size_t end = rest.find(rest.front(), 1);
            if (end == std::string_view::npos) refuse(rest, "a closing quote");
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
    if (!assigned || !is_key(*key)) refuse(text, "os.environ[\"NCCL_ALGO\"] = \"Ring\"");
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
                refuse(whole, "NCCL_ALGO=Ring");
            result[inside.substr(0, equals)] = inside.substr(equals + 1);
            any = true;
            rest = trimmed(rest);
            continue;
        }
        const std::size_t equals = rest.find('=');
        const std::string_view key = rest.substr(0, std::min(equals, rest.size()));
        if (equals == std::string_view::npos || !is_key(key)) {
            if (any) return;  // the command after its settings: NCCL_ALGO=Ring python train.py
            refuse(whole, "NCCL_ALGO=Ring");
        }
        rest.remove_prefix(equals + 1);
        const bool quoted = !rest.empty() && (rest.front() == '"' || rest.front() == '\'');
        std::string assigned = value(rest);
        rest = trimmed(rest);
        // `env` prints values with blanks unquoted. NCCL's values have no blanks, except lists of numbers.
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
        if (!is_key(key)) refuse(text, "setenv NCCL_ALGO Ring");
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
            throw UsageError(fmt::format("{}: '{}': expected the name of a setting", file, key.substr(0, 60)));
        if (value.is_string())
            result[key] = value.get<std::string>();
        else if (value.is_boolean())
            result[key] = value.get<bool>() ? "1" : "0";
        else if (value.is_number())
            result[key] = value.dump();
        else if (!value.is_null())
            throw UsageError(fmt::format("{}: {}: expected text or a number", file, key));
    };
    // [{"name": "NCCL_ALGO", "value": "Ring"}], or ["NCCL_ALGO=Ring"] as `docker inspect` prints
    if (document.is_array()) {
        for (const auto& each : document) {
            if (each.is_object() && each.contains("name") && each["name"].is_string()) {
                scalar(each["name"].get<std::string>(), each.value("value", nlohmann::json()));
            } else if (each.is_string() && each.get<std::string>().find('=') != std::string::npos) {
                const auto text = each.get<std::string>();
                const std::size_t equals = text.find('=');
                scalar(text.substr(0, equals), text.substr(equals + 1));
            } else {
                throw UsageError(
                    fmt::format("{}: expected a list of \"KEY=VALUE\" or {{\"name\": ..., \"value\": ...}}", file));
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

}  // namespace

Environment parse_environment(std::string_view text, const std::string& file) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    std::size_t first = 0;
    while (first < text.size() && (is_space(text[first]) || text[first] == '\n')) ++first;
    if (first < text.size() && (text[first] == '{' || text[first] == '[')) {
        // The parser is recursive; deep nesting must not exhaust the stack.
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
                fmt::format("{}: begins like JSON but is not; expected e.g. {{\"NCCL_ALGO\": \"Ring\"}}", file));
        Environment result;
        add_json(result, document, file, 0);
        return result;
    }
    Parser parser{file};
    bool in_function = false;  // `env` prints exported shell functions over several lines
    for (const std::string_view line : lines_of(text)) {
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

}  // namespace samesum
