// The house rules as a test: who may include whom, how a file begins, what stands at the top, how code is laid out.
// SPDX-License-Identifier: Apache-2.0
//
// Each rule takes a file's path and text and returns what is wrong. A planted violation for each shows that the rule
// can fail; then all tracked files are read. Headers compiling alone is the business of the target `headers`.
#define BOOST_TEST_MODULE tidy
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/support/error.hpp"
#include "model/support/files.hpp"

namespace samesum {
namespace {

namespace fs = std::filesystem;
using Violations = std::vector<std::string>;
using Names = std::vector<std::string_view>;

bool contains(const Names& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

/// Columns are characters: continuation bytes of UTF-8 take none.
std::ptrdiff_t columns_of(std::string_view text) {
    return std::count_if(text.begin(), text.end(),
                         [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
}

std::string_view before(std::string_view text, char mark) { return text.substr(0, text.find(mark)); }

bool ends_with_any(std::string_view path, const Names& endings) {
    return std::any_of(endings.begin(), endings.end(), [&](std::string_view end) { return path.ends_with(end); });
}

bool is_cpp(std::string_view path) { return ends_with_any(path, {".cpp", ".hpp", ".cu"}); }

bool is_code(std::string_view path) {
    return is_cpp(path) || ends_with_any(path, {".sh", "CMakeLists.txt"}) || path == "samesum" || path == ".ci/run";
}

std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        lines.push_back(before(text, '\n'));
        text.remove_prefix(std::min(text.size(), lines.back().size() + 1));
    }
    return lines;
}

/// What a line includes, with its quotes or brackets; empty if it includes nothing.
std::string_view included(std::string_view line) {
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

// --- Who may include whom ---

struct Folder {
    std::string_view name;
    Names folders, packages;
};

/// Packages by the first part of their headers' names; the standard library and POSIX are free to all.
const std::vector<Folder> house{
    {"model", {"model"}, {"fmt", "nlohmann", "boost", "hwy", "nanobind"}},
    {"proofs", {"model", "proofs"}, {"fmt", "nlohmann", "z3"}},
    {"impl", {"model", "impl"}, {"fmt", "nlohmann", "cuda", "nccl"}},
    {"fuzz", {"model", "impl", "fuzz"}, {"fmt", "nlohmann", "boost", "rapidcheck"}},
    {"tests",
     {"model", "impl", "proofs", "fuzz", "tests"},
     {"fmt", "nlohmann", "boost", "hwy", "z3", "cuda", "nccl", "rapidcheck", "benchmark"}},
};

const Names all_packages{"fmt",  "nlohmann", "boost",      "hwy",       "z3",
                         "cuda", "nccl",     "rapidcheck", "benchmark", "nanobind"};

/// The files of impl/ that compare what ranks did with what the model says. They may know the model's sums; the files
/// that make ranks add may know neither those nor the judges, lest judge and judged share code.
const Names judges{"judge",       "probe_arithmetic", "plugin",        "properties",
                   "run_command", "reveal_command",   "bench_command", "main"};
const Names open_to_the_judged{"format",   "nccl",  "topology", "routing", "combine",
                               "evidence", "error", "cli",      "random",  "launch"};

/// What proofs/ executes over a solver's integers is what impl/ runs; of impl/ it may know nothing else.
const Names open_to_proofs{"impl/kernels/indexing.hpp"};

Violations includes_only_downwards(std::string_view path, std::string_view text) {
    const auto folder =
        std::find_if(house.begin(), house.end(), [&](const Folder& each) { return each.name == before(path, '/'); });
    if (folder == house.end() || !is_cpp(path)) return {};
    const bool judged = folder->name == "impl" && !contains(judges, fs::path(path).stem().string());
    Violations found;
    for (const std::string_view line : lines_of(text)) {
        const std::string_view what = included(line);
        if (what.size() < 3) continue;
        const std::string_view name = what.substr(1, what.size() - 2);
        if (what.front() == '<') {
            for (const std::string_view package : all_packages)
                if (name.starts_with(package) && !contains(folder->packages, package))
                    found.push_back(
                        fmt::format("{} includes {}: {}/ may not use {}", path, what, folder->name, package));
            continue;
        }
        const std::string_view from = before(name, '/');
        const std::string stem = fs::path(name).stem().string();
        if (folder->name == "proofs" && contains(open_to_proofs, name)) continue;
        if (!contains(folder->folders, from))
            found.push_back(fmt::format("{} includes {}: {}/ may include only {}", path, what, folder->name,
                                        fmt::join(folder->folders, ", ")));
        else if (contains(open_to_proofs, path))
            found.push_back(fmt::format("{} includes {}: what runs in a solver's terms stands alone", path, what));
        else if (judged && from == "model" && !contains(open_to_the_judged, stem))
            found.push_back(fmt::format("{} includes {}: what is judged may not share the model's sums", path, what));
        else if (judged && from == "impl" && contains(judges, stem))
            found.push_back(fmt::format("{} includes {}: what is judged may not know its judge", path, what));
    }
    return found;
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
        ".ci",     ".clang-format", ".clang-tidy",    ".gitignore", "CMakeLists.txt", "CMakePresets.json",
        "LICENSE", "README.md",     "pyproject.toml", "samesum",    "model",          "impl",
        "proofs",  "fuzz",          "tests"};
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

struct Rule {
    std::string_view name;
    Violations (*check)(std::string_view path, std::string_view text);
};

constexpr std::array rules{
    Rule{"includes only downwards", includes_only_downwards},
    Rule{"includes its own header first", includes_own_header_first},
    Rule{"says what it is for", says_what_it_is_for},
    Rule{"fits 120 columns", fits_120_columns},
    Rule{"has no stray blanks", has_no_stray_blanks},
    Rule{"names no machine", names_no_machine},
    Rule{"stands where it may", stands_where_it_may},
    Rule{"is named in snake case", is_snake_case},
};

// --- Reading the repository ---

struct Answer {
    int exit = -1;
    std::string text;
};

Answer ask(const std::string& command) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"),
                                                               [](std::FILE*) { return 0; });
    Answer answer;
    std::array<char, 4096> buffer{};
    while (const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), pipe.get()))
        answer.text.append(buffer.data(), size);
    const int status = ::pclose(pipe.get());
    if (WIFEXITED(status)) answer.exit = WEXITSTATUS(status);
    return answer;
}

/// All tracked files. A copy without git's records has none to check, which is an error where nothing may be skipped.
std::vector<std::string> tracked_files() {
    const Answer answer = ask(fmt::format("git -C '{}' ls-files 2>/dev/null", SAMESUM_SOURCE_DIR));
    std::vector<std::string> files;
    if (answer.exit == 0)
        for (const std::string_view file : lines_of(answer.text))
            if (fs::exists(fs::path(SAMESUM_SOURCE_DIR) / file)) files.emplace_back(file);
    return files;
}

bool strict() { return std::getenv("SAMESUM_STRICT") != nullptr; }

/// For what cannot be checked here: says why, and fails where nothing may be skipped.
void skip(std::string_view why) {
    BOOST_TEST_MESSAGE("skipped: " << why);
    fmt::print("skipped: {}\n", why);
    BOOST_TEST(!strict(), why);
}

std::string text_of(const std::string& file) { return read_file((fs::path(SAMESUM_SOURCE_DIR) / file).string()); }

// --- The tests ---

struct Planted {
    std::string_view path, text;
    std::string_view complaint;  ///< part of what the rules must say; empty: they must be content
};

constexpr std::string_view head = "// What this file is for.\n// SPDX-License-Identifier: Apache-2.0\n";

BOOST_AUTO_TEST_CASE(each_rule_can_fail) {
    const std::string long_line = "// " + std::string(60, 'x') + " " + std::string(57, 'x');
    const std::string long_word = "// " + std::string(121, 'x');
    const std::string wide_letters = "// \u00e9" + std::string(60, 'x') + " " + std::string(55, 'x');
    const std::string home = std::string("/ho") + "me/someone/samesum";
    const std::vector<std::pair<Planted, std::string>> table{
        // Bodies are given after the head.
        {{"model/a.cpp", "", ""}, "#include <fmt/format.h>\n#include <vector>\n#include \"model/support/error.hpp\"\n"},
        {{"model/a.cpp", "", "may include only model"}, "#include \"proofs/engine/obligation.hpp\"\n"},
        {{"model/a.cpp", "", "may include only model"}, "  #  include \"impl/device/nccl.hpp\"\n"},
        {{"model/a.cpp", "", "may not use z3"}, "#include <z3++.h>\n"},
        {{"impl/a.cpp", "", "may not use nanobind"}, "#include <nanobind/nanobind.h>\n"},
        {{"proofs/a.cpp", "", "may include only model, proofs"}, "#include \"impl/device/nccl.hpp\"\n"},
        {{"proofs/a.cpp", "", ""}, "#include \"impl/kernels/indexing.hpp\"\n"},
        {{"proofs/a.cpp", "", ""}, "#include <z3++.h>\n#include \"model/sum/element_sum.hpp\"\n"},
        {{"proofs/a.cpp", "", "may not use cuda"}, "#include <cuda_runtime_api.h>\n"},
        {{"impl/a.cpp", "", "may not use rapidcheck"}, "#include <rapidcheck/Gen.h>\n"},
        {{"impl/ranks/gpu_worker.cpp", "", "may not share the model's sums"},
         "#include \"model/arithmetic/hop_arithmetic.hpp\"\n"},
        {{"impl/kernels/ordered_sum.cu", "", "may not share the model's sums"},
         "#include \"model/nccl/schedule.hpp\"\n"},
        {{"impl/combine/combine.cpp", "", "may not know its judge"},
         "#include \"impl/check/compare_with_model.hpp\"\n"},
        {{"impl/kernels/indexing.hpp", "", "what runs in a solver's terms stands alone"},
         "#include \"model/combine/routing.hpp\"\n"},
        {{"impl/check/compare_with_model.hpp", "", ""}, "#include \"model/input/recording.hpp\"\n"},
        {{"fuzz/a.cpp", "", ""}, "#include <rapidcheck.h>\n#include \"impl/combine/combine.hpp\"\n"},
        {{"fuzz/a.cpp", "", "may include only model, impl, fuzz"}, "#include \"tests/support/program.hpp\"\n"},
        {{"tests/a_test.cpp", "", ""}, "#include \"fuzz/case.hpp\"\n#include \"proofs/engine/solver.hpp\"\n"},
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
    const std::vector<std::string> files = tracked_files();
    if (files.empty()) return skip("no git, or not its checkout: there is no list of tracked files");
    std::size_t code = 0;
    for (const std::string& file : files) {
        const std::string text = text_of(file);
        code += is_cpp(file) ? 1 : 0;
        for (const Rule& rule : rules)
            for (const std::string& violation : rule.check(file, text)) BOOST_ERROR(rule.name << ": " << violation);
    }
    BOOST_TEST(code > 50, "only " << code << " C++ files among " << files.size());
}

/// The one version whose layout counts: the wheel's, or Debian's package of the same.
std::string clang_format() {
    for (const std::string& candidate :
         {std::string("$(ls " SAMESUM_ENV
                      "/lib/python3*/site-packages/clang_format/data/bin/clang-format 2>/dev/null)"),
          std::string("clang-format-14")})
        if (ask(candidate + " --version 2>/dev/null").text.find("version 14.") != std::string::npos) return candidate;
    return {};
}

BOOST_AUTO_TEST_CASE(code_is_laid_out_by_clang_format) {
    const std::string program = clang_format();
    const std::vector<std::string> files = tracked_files();
    if (program.empty() || files.empty()) return skip("no clang-format of version 14, or no list of tracked files");
    const std::string to_source = fmt::format("cd '{}' && ", SAMESUM_SOURCE_DIR);

    const Answer planted = ask(fmt::format("{}echo 'int  x;' | {} --assume-filename=a.cpp", to_source, program));
    BOOST_TEST(planted.text == "int x;\n");

    std::string names;
    for (const std::string& file : files)
        if (is_cpp(file)) names += " " + file;
    const Answer answer =
        ask(fmt::format("{}{} --dry-run --Werror --ferror-limit=1 {} 2>&1", to_source, program, names));
    BOOST_TEST(answer.exit == 0, "clang-format 14 would change:\n" << answer.text);
}

}  // namespace
}  // namespace samesum
