// The repository's own files, for tests of how the house is kept.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/support/text.hpp"
#include "tests/support/program.hpp"

namespace samesum::testing {

/// Text by path, from the root of the repository.
using Repository = std::map<std::string, std::string>;
using Names = std::vector<std::string_view>;
using Violations = std::vector<std::string>;

[[nodiscard]] inline std::string_view before(std::string_view text, char mark) {
    return text.substr(0, text.find(mark));
}

[[nodiscard]] inline bool ends_with_any(std::string_view path, const Names& endings) {
    for (const std::string_view ending : endings)
        if (path.ends_with(ending)) return true;
    return false;
}

[[nodiscard]] inline bool is_cpp(std::string_view path) { return ends_with_any(path, {".cpp", ".hpp", ".cu", ".cuh"}); }

[[nodiscard]] inline bool contains(const Names& names, std::string_view name) {
    for (const std::string_view each : names)
        if (each == name) return true;
    return false;
}

using samesum::lines_of;

/// What a line includes, with its quotes or brackets; empty if it includes nothing.
[[nodiscard]] inline std::string_view included(std::string_view line) {
    constexpr std::string_view word = "include";
    const auto skip_blanks = [&] {
        while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
    };
    skip_blanks();
    if (!line.starts_with('#')) return {};
    line.remove_prefix(1);
    skip_blanks();
    if (!line.starts_with(word)) return {};
    line.remove_prefix(word.size());
    skip_blanks();
    return line.substr(0, line.find_last_of("\">") + 1);
}

/// The files of the repository that a file includes, in its order.
[[nodiscard]] inline std::vector<std::string> own_includes(std::string_view text) {
    std::vector<std::string> found;
    for (const std::string_view line : lines_of(text)) {
        const std::string_view what = included(line);
        if (what.size() > 2 && what.front() == '"') found.emplace_back(what.substr(1, what.size() - 2));
    }
    return found;
}

/// All tracked files with their texts; empty where git does not know them (a copy without git's records).
[[nodiscard]] inline Repository tracked_files() {
    const std::filesystem::path root = SAMESUM_SOURCE_DIR;
    const Outcome answer = run_line("git ls-files");
    Repository files;
    if (answer.exit != 0) return files;
    for (const std::string_view name : lines_of(answer.out)) {
        std::ifstream stream(root / name, std::ios::binary);
        if (stream) files[std::string(name)] = std::string(std::istreambuf_iterator<char>(stream), {});
    }
    return files;
}

/// Must a test fail where it cannot be made (in CI)?
[[nodiscard]] inline bool strict() { return std::getenv("SAMESUM_STRICT") != nullptr; }

}  // namespace samesum::testing
