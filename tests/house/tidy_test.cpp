// How every file looks: its first lines, layout, names, and where it stands.
// SPDX-License-Identifier: Apache-2.0
//
// Each rule takes a file's path and text and returns what is wrong. A planted violation for each shows that the rule
// can fail; then all tracked files are read. tidy_rooms_test.cpp has who may include whom; the target `headers` shows
// that each header compiles alone.
#define BOOST_TEST_MODULE tidy
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cctype>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/repository.hpp"

namespace samesum::testing {
namespace {

namespace fs = std::filesystem;

/// Columns are characters: continuation bytes of UTF-8 take none.
std::ptrdiff_t columns_of(std::string_view text) {
    return std::count_if(text.begin(), text.end(),
                         [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
}

bool is_code(std::string_view path) {
    return is_cpp(path) || ends_with_any(path, {".sh", "CMakeLists.txt"}) || path == "samesum" || path == ".ci/run";
}

Violations includes_own_header_first(std::string_view path, std::string_view text) {
    const std::string own = std::string(path.substr(0, path.rfind('.'))) + ".hpp";
    if (!path.ends_with(".cpp") || !fs::exists(fs::path(SAMESUM_SOURCE_DIR) / own)) return {};
    for (const std::string_view line : lines_of(text)) {
        const std::string_view what = included(line);
        if (what.empty()) continue;
        if (what == fmt::format("\"{}\"", own)) return {};
        return {fmt::format("{} includes {} first; its own header comes first", path, what)};
    }
    return {fmt::format("{} does not include its own header", path)};
}

// --- How a file looks ---

Violations says_what_it_is_for(std::string_view path, std::string_view text) {
    if (!is_code(path)) return {};
    std::vector<std::string_view> lines = lines_of(text);
    if (!lines.empty() && lines.front().starts_with("#!")) lines.erase(lines.begin());
    const std::string_view comment = is_cpp(path) ? "// " : "# ";
    Violations found;
    if (lines.empty() || !lines.front().starts_with(comment) ||
        std::count(lines.front().begin(), lines.front().end(), ' ') < 3)
        found.push_back(fmt::format("{}: the first line does not say what the file is for", path));
    const std::string licence = std::string(comment) + "SPDX-License-Identifier: Apache-2.0";
    bool licensed = false;
    for (const std::string_view line : lines) {
        if (!line.starts_with(comment.substr(0, comment.size() - 1))) break;
        licensed = licensed || line == licence;
    }
    if (!licensed) found.push_back(fmt::format("{}: its opening comment has no line '{}'", path, licence));
    return found;
}

Violations fits_120_columns(std::string_view path, std::string_view text) {
    if (!is_code(path)) return {};
    Violations found;
    std::size_t number = 0;
    for (const std::string_view line : lines_of(text)) {
        ++number;
        const std::ptrdiff_t columns = columns_of(line);
        // A word that no break can shorten may stick out.
        std::ptrdiff_t longest = 0;
        for (std::string_view rest = line; !rest.empty();
             rest.remove_prefix(std::min(rest.size(), before(rest, ' ').size() + 1)))
            longest = std::max(longest, columns_of(before(rest, ' ')));
        if (columns > 120 && longest <= 100)
            found.push_back(fmt::format("{}:{} has {} columns, 120 at most", path, number, columns));
    }
    return found;
}

Violations has_no_stray_blanks(std::string_view path, std::string_view text) {
    if (!is_code(path)) return {};
    Violations found;
    std::size_t number = 0;
    for (const std::string_view line : lines_of(text)) {
        ++number;
        if (line.ends_with(' ') || line.ends_with('\t') || line.ends_with('\r') ||
            line.find('\t') != std::string_view::npos)
            found.push_back(fmt::format("{}:{} has a tab or ends in a blank", path, number));
    }
    if (!text.ends_with('\n')) found.push_back(fmt::format("{} does not end with a newline", path));
    return found;
}

Violations names_no_machine(std::string_view path, std::string_view text) {
    // Spelled in halves, lest this file break its own rule.
    static const std::vector<std::string> roots{std::string("/wo") + "rk/", std::string("/ro") + "ot/",
                                                std::string("/ho") + "me/", std::string("/Us") + "ers/"};
    Violations found;
    for (const std::string& root : roots) {
        const std::size_t at = text.find(root);
        // Such a folder in the middle of a longer path is no path of a machine: it must begin there.
        if (at != std::string_view::npos && (at == 0 || !std::isalnum(static_cast<unsigned char>(text[at - 1]))))
            found.push_back(
                fmt::format("{} names a folder of one machine: {}", path, before(text.substr(at, 40), '\n')));
    }
    return found;
}

Violations stands_where_it_may(std::string_view path, std::string_view) {
    static const Names top{
        ".ci",     ".clang-format", ".clang-tidy",    ".github", ".gitignore", "CMakeLists.txt", "CMakePresets.json",
        "LICENSE", "README.md",     "pyproject.toml", "samesum", "model",      "impl",           "proofs",
        "fuzz",    "tests"};
    if (!contains(top, before(path, '/')))
        return {fmt::format("{}: the top level holds only {}", path, fmt::join(top, ", "))};
    return {};
}

Violations is_snake_case(std::string_view path, std::string_view) {
    if (!is_cpp(path)) return {};
    const std::string stem = fs::path(path).stem().string();
    if (std::any_of(stem.begin(), stem.end(),
                    [](char c) { return std::isupper(static_cast<unsigned char>(c)) || c == '-'; }))
        return {fmt::format("{}: names of files are snake_case", path)};
    return {};
}

/// Words that the field does not use, or that a reader would have to look up; each with what to say instead. Case does
/// not count.
Violations says_it_plainly(std::string_view path, std::string_view text) {
    static const std::vector<std::pair<std::string_view, std::string_view>> table{
        {"would be right", "expected ..."},
        {"letterbox", "receive slot"},
        {"whereabouts", "current call"},
        {"patience", "timeout"},
        {"swallowing", "absorption"},
        {"mailbox", "receive slot"},
        {"is no one", "means none"},
        {"by its own hand", "itself"},
        {"should others be in the way", "if this one is taken"},
        {"cannot be seen into", "not observable"},
        {"planted change", "mutation"},
        {"no word of nccl", "not logged by NCCL"},
        {"was not introduced", "unknown"},
        {"the world is", "the environment is"},
    };
    if (path.starts_with("tests/golden/") || path == "tests/house/tidy_test.cpp") return {};
    Violations found;
    std::size_t number = 0;
    for (const std::string_view line : lines_of(text)) {
        ++number;
        std::string lower(line);
        std::transform(lower.begin(), lower.end(), lower.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        for (const auto& [words, better] : table)
            if (lower.find(words) != std::string::npos)
                found.push_back(fmt::format("{}:{} says '{}'; expected: {}", path, number, words, better));
    }
    return found;
}

/// A definition at the left margin: from the line that opens its brace to the brace that closes it.
Violations is_short_enough(std::string_view path, std::string_view text) {
    constexpr std::size_t max_file_lines = 600, max_function_lines = 70;
    if (!is_cpp(path)) return {};
    const std::vector<std::string_view> lines = lines_of(text);
    Violations found;
    if (lines.size() > max_file_lines)
        found.push_back(fmt::format("{} has {} lines, {} at most", path, lines.size(), max_file_lines));
    std::size_t begin = 0;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const std::string_view line = lines[i];
        const bool at_margin = !line.empty() && line.front() != ' ' && line.front() != '#' && line.front() != '/';
        if (at_margin && line.front() != '}') begin = i;
        const bool is_function = lines[begin].find('(') != std::string_view::npos;
        if (line == "}" && is_function && i + 1 - begin > max_function_lines)
            found.push_back(fmt::format("{}:{} a function of {} lines, {} at most", path, begin + 1, i + 1 - begin,
                                        max_function_lines));
    }
    return found;
}

struct Rule {
    std::string_view name;
    Violations (*check)(std::string_view path, std::string_view text);
};

constexpr std::array rules{
    Rule{"includes its own header first", includes_own_header_first},
    Rule{"says what it is for", says_what_it_is_for},
    Rule{"fits 120 columns", fits_120_columns},
    Rule{"has no stray blanks", has_no_stray_blanks},
    Rule{"names no machine", names_no_machine},
    Rule{"stands where it may", stands_where_it_may},
    Rule{"is named in snake case", is_snake_case},
    Rule{"says it plainly", says_it_plainly},
    Rule{"is short enough", is_short_enough},
};

/// For what cannot be checked here: says why, and fails where nothing may be skipped.
void skip(std::string_view why) {
    BOOST_TEST_MESSAGE("skipped: " << why);
    fmt::print("skipped: {}\n", why);
    BOOST_TEST(!strict(), why);
}

// --- The tests ---

struct Planted {
    std::string_view path, text;
    std::string_view complaint;  ///< part of what the rules must say; empty: they must be content
};

std::string blank_lines(std::size_t count) { return std::string(count, '\n'); }

constexpr std::string_view head = "// What this file is for.\n// SPDX-License-Identifier: Apache-2.0\n";

BOOST_AUTO_TEST_CASE(each_rule_can_fail) {
    const std::string long_line = "// " + std::string(60, 'x') + " " + std::string(57, 'x');
    const std::string long_word = "// " + std::string(121, 'x');
    const std::string wide_letters = "// \u00e9" + std::string(60, 'x') + " " + std::string(55, 'x');
    const std::string home = std::string("/ho") + "me/someone/samesum";
    const std::vector<std::pair<Planted, std::string>> table{
        // Bodies are given after the head.
        {{"model/support/error.cpp", "", "its own header comes first"},
         "#include <fmt/format.h>\n#include \"model/support/error.hpp\"\n"},
        {{"model/support/error.cpp", "", "does not include its own header"}, "int x;\n"},
        {{"model/a.cpp", "", "a.cpp:3 has 121 columns"}, long_line + "\n"},
        {{"model/a.cpp", "", ""}, wide_letters + "\n" + long_word + "\n"},
        {{"model/a.cpp", "", "a.cpp:4 has a tab"}, "int x;\n\tint y;\n"},
        {{"model/a.cpp", "", "ends in a blank"}, "int x; \n"},
        {{"model/a.cpp", "", "does not end with a newline"}, "int x;"},
        {{"model/a.cpp", "", "names a folder of one machine"}, "// see " + home + "\n"},
        {{"tests/golden/notes.md", "", "names a folder of one machine"}, home + "\n"},
        {{"tests/golden/notes.md", "", ""}, "net" + home + long_line + "\n"},
        {{"notes/a.md", "", "the top level holds only"}, ""},
        {{"build.sh", "", "the top level holds only"}, ""},
        {{"model/ModelError.cpp", "", "snake_case"}, ""},
        {{"model/a.cpp", "", "says 'would be right'"}, "// 1 to 3 Would be right.\n"},
        {{"README.md", "x's letterboxes\n", "expected: receive slot"}, ""},
        {{"model/a.cpp", "", "a function of 71 lines"}, "int f() {\n" + blank_lines(69) + "}\n"},
        {{"model/a.cpp", "", ""}, "int f() {\n" + blank_lines(68) + "}\n"},
        {{"model/a.cpp", "", "has 601 lines"}, blank_lines(599)},
        // These come without the head.
        {{"model/a.cpp", "int x;\n", "does not say what the file is for"}, ""},
        {{"model/a.cpp", "// Errors\n// SPDX-License-Identifier: Apache-2.0\n", "does not say what the file is for"},
         ""},
        {{"model/a.cpp", "// What this file is for.\nint x;\n", "no line '// SPDX"}, ""},
        {{"model/a.cpp", "// What this file is for. SPDX-License-Identifier: Apache-2.0\n", "no line '// SPDX"}, ""},
        {{"tests/a.sh", "#!/bin/bash\n# What this file is for.\n# SPDX-License-Identifier: Apache-2.0\n", ""}, ""},
        {{"tests/a.sh", "#!/bin/bash\necho\n", "does not say what the file is for"}, ""},
    };
    for (const auto& [planted, body] : table) {
        const std::string text = planted.text.empty() ? std::string(planted.path.ends_with(".sh") ? "" : head) + body
                                                      : std::string(planted.text);
        Violations found;
        for (const Rule& rule : rules)
            for (std::string& violation : rule.check(planted.path, text)) found.push_back(std::move(violation));
        const std::string all = fmt::format("{}", fmt::join(found, "\n"));
        BOOST_TEST_CONTEXT(planted.path << ": " << body << planted.text) {
            if (planted.complaint.empty())
                BOOST_TEST(all == "");
            else
                BOOST_TEST(all.find(planted.complaint) != std::string::npos, "rules said: '" << all << "'");
        }
    }
}

BOOST_AUTO_TEST_CASE(all_tracked_files_keep_the_rules) {
    const Repository files = tracked_files();
    if (files.empty()) return skip("no git, or not its checkout: there is no list of tracked files");
    for (const auto& [file, text] : files)
        for (const Rule& rule : rules)
            for (const std::string& violation : rule.check(file, text)) BOOST_ERROR(rule.name << ": " << violation);
}

/// The one version whose layout counts: the wheel's, or Debian's package of the same.
std::string clang_format() {
    for (const std::string& candidate :
         {std::string("$(ls " SAMESUM_ENV
                      "/lib/python3*/site-packages/clang_format/data/bin/clang-format 2>/dev/null)"),
          std::string("clang-format-14")})
        if (run_line(candidate + " --version").says("version 14.")) return candidate;
    return {};
}

BOOST_AUTO_TEST_CASE(code_is_laid_out_by_clang_format) {
    const std::string program = clang_format();
    const Repository files = tracked_files();
    if (program.empty() || files.empty()) return skip("no clang-format of version 14, or no list of tracked files");
    BOOST_TEST(run_line(fmt::format("{} --assume-filename=a.cpp", program), "int  x;\n").out == "int x;\n");

    std::string names;
    for (const auto& [file, text] : files)
        if (is_cpp(file) && !text.empty()) names += " " + file;
    const Outcome answer = run_line(fmt::format("{} --dry-run --Werror --ferror-limit=1 {}", program, names));
    BOOST_TEST(answer.exit == 0, "clang-format 14 would change:\n" << answer.err);
}

}  // namespace
}  // namespace samesum::testing
