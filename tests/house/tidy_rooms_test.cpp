// Who may include whom: rooms point downwards only, directly and through other headers; and the wall around what is
// checked. Planted violations show that each rule can fail.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE tidy_rooms
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cctype>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/repository.hpp"

namespace samesum::testing {
namespace {

namespace fs = std::filesystem;

// --- The house ---

/// A top folder. A room may include itself and the rooms before it; files beside the rooms (main.cpp and the like) may
/// include all of them. `folders`: the other top folders that it may include. `packages`: by the first part of their
/// headers' names; the standard library and POSIX are free to all.
struct Folder {
    std::string_view name;
    Names rooms, folders, packages;
};

const std::vector<Folder> house{
    {"model",
     {"support", "arithmetic", "sum", "nccl", "combine", "input", "analysis", "teach", "commands", "python"},
     {},
     {"fmt", "nlohmann", "boost", "hwy", "nanobind"}},
    {"impl",
     {"device", "kernels", "combine", "dropin", "ranks", "check", "commands"},
     {"model"},
     {"fmt", "nlohmann", "cuda", "nccl"}},
    {"proofs", {"engine", "claims"}, {"model", "impl"}, {"fmt", "nlohmann", "z3"}},
    {"fuzz", {}, {"model", "impl"}, {"fmt", "nlohmann", "boost", "rapidcheck"}},
    {"tests",
     {"support", "model", "proofs", "impl", "fuzz", "house"},
     {"model", "impl", "proofs", "fuzz"},
     {"fmt", "nlohmann", "boost", "hwy", "z3", "cuda", "nccl", "rapidcheck", "benchmark"}},
};

const Names all_packages{"fmt",  "nlohmann", "boost",      "hwy",       "z3",
                         "cuda", "nccl",     "rapidcheck", "benchmark", "nanobind"};

/// The wall: what computes a result may know the words in which it was asked for, never the sums by which it is
/// checked.
const Names behind_the_wall{"impl/device/", "impl/kernels/", "impl/combine/", "impl/dropin/", "impl/ranks/"};
const Names words_of_the_model{"model/support/",
                               "model/arithmetic/format.hpp",
                               "model/arithmetic/operation.hpp",
                               "model/arithmetic/random.hpp",
                               "model/arithmetic/hex_lines.hpp",
                               "model/nccl/call.hpp",
                               "model/combine/scheme.hpp",
                               "model/combine/routing.hpp"};

/// What proofs/ executes over a solver's integers is what impl/ runs. It includes nothing of ours, and proofs/ knows
/// nothing else of impl/.
const std::string_view shared_with_proofs = "impl/kernels/indexing.hpp";

const Folder* folder_of(std::string_view path) {
    for (const Folder& folder : house)
        if (folder.name == before(path, '/')) return &folder;
    return nullptr;
}

/// The number of a file's room; nothing for files beside the rooms, which stand above all of them.
std::optional<std::size_t> room_of(const Folder& folder, std::string_view path) {
    path.remove_prefix(std::min(path.size(), folder.name.size() + 1));
    const std::string_view room = path.find('/') == std::string_view::npos ? "" : before(path, '/');
    for (std::size_t i = 0; i < folder.rooms.size(); ++i)
        if (folder.rooms[i] == room) return i;
    return std::nullopt;
}

bool begins_with_any(std::string_view path, const Names& beginnings) {
    return std::any_of(beginnings.begin(), beginnings.end(), [&](auto begin) { return path.starts_with(begin); });
}

// --- The rules ---

Violations includes_no_room_above(const Repository& files) {
    Violations found;
    for (const auto& [path, text] : files) {
        const Folder* folder = is_cpp(path) ? folder_of(path) : nullptr;
        if (folder == nullptr) continue;
        const auto own = room_of(*folder, path);
        for (const std::string& name : own_includes(text)) {
            const Folder* other = folder_of(name);
            if (other != folder) {
                if (other == nullptr || !contains(folder->folders, other->name))
                    found.push_back(fmt::format("{} includes {}: {}/ may include only {}", path, name, folder->name,
                                                fmt::join(folder->folders, ", ")));
                continue;
            }
            const auto theirs = room_of(*folder, name);
            if (own && (!theirs || *theirs > *own))
                found.push_back(fmt::format("{} includes {}: a room includes only rooms below it", path, name));
        }
    }
    return found;
}

Violations uses_its_packages_only(const Repository& files) {
    Violations found;
    for (const auto& [path, text] : files) {
        const Folder* folder = is_cpp(path) ? folder_of(path) : nullptr;
        if (folder == nullptr) continue;
        for (const std::string_view line : lines_of(text)) {
            const std::string_view what = included(line);
            if (what.size() < 3 || what.front() != '<') continue;
            for (const std::string_view package : all_packages)
                if (what.substr(1).starts_with(package) && !contains(folder->packages, package))
                    found.push_back(
                        fmt::format("{} includes {}: {}/ may not use {}", path, what, folder->name, package));
        }
    }
    return found;
}

/// The shortest chain of includes from a file to one that `forbidden` names; empty where there is none.
std::vector<std::string> chain_to(const Repository& files, const std::string& from,
                                  const std::function<bool(const std::string&)>& forbidden) {
    std::map<std::string, std::string> reached_by{{from, ""}};
    std::vector<std::string> queue{from};
    for (std::size_t next = 0; next < queue.size(); ++next) {
        const auto file = files.find(queue[next]);
        if (file == files.end()) continue;
        for (const std::string& name : own_includes(file->second)) {
            if (!forbidden(name)) {
                if (reached_by.emplace(name, queue[next]).second) queue.push_back(name);
                continue;
            }
            std::vector<std::string> chain{name};
            for (std::string step = queue[next]; !step.empty(); step = reached_by.at(step)) chain.push_back(step);
            std::reverse(chain.begin(), chain.end());
            return chain;
        }
    }
    return {};
}

Violations keeps_the_wall(const Repository& files) {
    Violations found;
    for (const auto& [path, text] : files) {
        if (!is_cpp(path) || !begins_with_any(path, behind_the_wall)) continue;
        const auto chain = chain_to(files, path, [](const std::string& name) {
            return name.starts_with("model/") && !begins_with_any(name, words_of_the_model);
        });
        if (!chain.empty())
            found.push_back(
                fmt::format("{}: what is checked may not reach the model's sums", fmt::join(chain, " -> ")));
    }
    return found;
}

Violations shares_indexing_alone(const Repository& files) {
    Violations found;
    for (const auto& [path, text] : files) {
        if (!is_cpp(path)) continue;
        for (const std::string& name : own_includes(text)) {
            if (path == shared_with_proofs)
                found.push_back(fmt::format("{} includes {}: what a solver executes stands alone", path, name));
            else if (path.starts_with("proofs/") && name.starts_with("impl/") && name != shared_with_proofs)
                found.push_back(
                    fmt::format("{} includes {}: of impl/ proofs/ may know only {}", path, name, shared_with_proofs));
        }
    }
    return found;
}

Violations has_no_circles(const Repository& files) {
    Violations found;
    for (const auto& [path, text] : files) {
        if (!is_cpp(path)) continue;
        const auto chain = chain_to(files, path, [&](const std::string& name) { return name == path; });
        (void)text;
        if (chain.size() > 1) found.push_back(fmt::format("{}: a circle of includes", fmt::join(chain, " -> ")));
    }
    return found;
}

/// Every source is named by a CMakeLists.txt of a folder that it stands in; sources of tests by their name alone.
Violations is_built(const Repository& files) {
    Violations found;
    for (const auto& [path, text] : files) {
        if (!ends_with_any(path, {".cpp", ".cu"}) || folder_of(path) == nullptr) continue;
        (void)text;
        bool named = false;
        for (fs::path folder = fs::path(path).parent_path(); !folder.empty() && !named; folder = folder.parent_path()) {
            const auto list = files.find((folder / "CMakeLists.txt").string());
            if (list == files.end()) continue;
            const bool test = path.starts_with("tests/") && path.ends_with("_test.cpp");
            const std::string name = test ? fs::path(path).stem().string() : fs::relative(path, folder).string();
            named = list->second.find(name) != std::string::npos || fs::path(path).filename() == "main.cpp";
        }
        if (!named) found.push_back(fmt::format("{}: no CMakeLists.txt names it", path));
    }
    return found;
}

/// README's map of the house shows each room, and no other.
Violations is_on_the_map(const Repository& files) {
    const auto readme = files.find("README.md");
    if (readme == files.end()) return {};
    const std::size_t begin = readme->second.find("```house\n");
    const std::size_t end = begin == std::string::npos ? begin : readme->second.find("\n```", begin + 9);
    if (end == std::string::npos) return {"README.md has no map of the house: a block ```house"};
    const std::string map = readme->second.substr(begin, end - begin);
    Violations found;
    std::set<std::string> rooms;
    for (const auto& [path, text] : files) {
        (void)text;
        const Folder* folder = folder_of(path);
        if (folder == nullptr || folder->name == "tests") continue;
        const std::string inside = path.substr(folder->name.size() + 1);
        if (inside.find('/') != std::string::npos) rooms.insert(std::string(before(inside, '/')) + "/");
    }
    for (const std::string& room : rooms)
        if (map.find(room) == std::string::npos)
            found.push_back(fmt::format("README.md's map lacks the room {}", room));
    for (std::size_t slash = map.find('/'); slash != std::string::npos; slash = map.find('/', slash + 1)) {
        std::size_t start = slash;
        while (start > 0 && (std::islower(static_cast<unsigned char>(map[start - 1])) != 0)) --start;
        const std::string name = map.substr(start, slash - start + 1);
        if (name.size() > 1 && rooms.count(name) == 0 && folder_of(name) == nullptr)
            found.push_back(fmt::format("README.md's map shows {}, which is no room", name));
    }
    return found;
}

struct Rule {
    std::string_view name;
    Violations (*check)(const Repository& files);
};

const std::vector<Rule> rules{
    {"includes no room above", includes_no_room_above},
    {"uses its packages only", uses_its_packages_only},
    {"keeps the wall", keeps_the_wall},
    {"shares indexing alone", shares_indexing_alone},
    {"has no circles", has_no_circles},
    {"is built", is_built},
    {"is on the map", is_on_the_map},
};

Violations all_violations(const Repository& files) {
    Violations all;
    for (const Rule& rule : rules)
        for (const std::string& violation : rule.check(files))
            all.push_back(fmt::format("{}: {}", rule.name, violation));
    return all;
}

// --- The tests ---

/// Files with the lines that they include, and a list that builds them; `complaint` is part of what must be said, empty
/// if nothing may be.
struct Planted {
    std::vector<std::pair<std::string, std::vector<std::string>>> files;
    std::string_view complaint;
};

Repository repository(const Planted& planted) {
    Repository files;
    for (const auto& [path, includes] : planted.files) {
        std::string text;
        for (const std::string& name : includes)
            text += name.front() == '<' ? "#include " + name + "\n" : "#include \"" + name + "\"\n";
        files[path] = text;
        const std::string folder(before(path, '/'));
        files[folder + "/CMakeLists.txt"] +=
            path.substr(folder.size() + 1) + " " + fs::path(path).stem().string() + "\n";
    }
    return files;
}

BOOST_AUTO_TEST_CASE(each_rule_can_fail) {
    const std::vector<Planted> table{
        {{{"model/sum/a.cpp", {"<fmt/format.h>", "<vector>", "model/sum/a.hpp", "model/support/error.hpp"}}}, ""},
        {{{"model/main.cpp", {"model/commands/commands.hpp"}}}, ""},
        {{{"model/sum/a.cpp", {"model/nccl/call.hpp"}}}, "a room includes only rooms below it"},
        {{{"model/nccl/a.hpp", {"model/commands/commands.hpp"}}}, "a room includes only rooms below it"},
        {{{"impl/kernels/a.cuh", {"impl/combine/combine.hpp"}}}, "a room includes only rooms below it"},
        {{{"impl/dropin/a.cpp", {"impl/ranks/rank_group.hpp"}}}, "a room includes only rooms below it"},
        {{{"model/sum/a.cpp", {"proofs/engine/obligation.hpp"}}}, "model/ may include only"},
        {{{"fuzz/a.cpp", {"tests/support/program.hpp"}}}, "fuzz/ may include only model, impl"},
        {{{"fuzz/a.cpp", {"<rapidcheck.h>", "impl/combine/combine.hpp"}}}, ""},
        {{{"tests/fuzz/a_test.cpp", {"fuzz/case.hpp", "proofs/engine/solver.hpp"}}}, ""},
        {{{"model/sum/a.cpp", {"<z3++.h>"}}}, "may not use z3"},
        {{{"impl/device/a.cpp", {"<nanobind/nanobind.h>"}}}, "may not use nanobind"},
        {{{"proofs/engine/a.cpp", {"<cuda_runtime_api.h>"}}}, "may not use cuda"},
        {{{"proofs/engine/a.cpp", {"<z3++.h>", "model/sum/element_sum.hpp"}}}, ""},
        // The wall: directly, through one header, through two, in every kind of file.
        {{{"impl/ranks/a.cpp", {"model/sum/element_sum.hpp"}}}, "may not reach the model's sums"},
        {{{"impl/kernels/a.cuh", {"model/nccl/schedule.hpp"}}}, "may not reach the model's sums"},
        {{{"impl/kernels/a.cu", {"model/combine/scheme.hpp"}},
          {"model/combine/scheme.hpp", {"model/nccl/schedule.hpp"}}},
         "impl/kernels/a.cu -> model/combine/scheme.hpp -> model/nccl/schedule.hpp"},
        {{{"impl/combine/a.cpp", {"impl/device/b.hpp"}},
          {"impl/device/b.hpp", {"model/combine/scheme.hpp"}},
          {"model/combine/scheme.hpp", {"model/sum/exact.hpp"}}},
         "impl/combine/a.cpp -> impl/device/b.hpp -> model/combine/scheme.hpp -> model/sum/exact.hpp"},
        {{{"impl/dropin/a.cpp", {"model/arithmetic/hop_arithmetic.hpp"}}}, "may not reach the model's sums"},
        {{{"impl/combine/a.cpp", {"model/combine/scheme.hpp"}}, {"model/combine/scheme.hpp", {"model/nccl/call.hpp"}}},
         ""},
        {{{"impl/check/a.cpp", {"model/sum/element_sum.hpp"}}}, ""},
        {{{"proofs/claims/a.cpp", {"impl/kernels/indexing.hpp"}}}, ""},
        {{{"proofs/claims/a.cpp", {"impl/device/nccl.hpp"}}}, "of impl/ proofs/ may know only"},
        {{{"impl/kernels/indexing.hpp", {"model/combine/routing.hpp"}}}, "what a solver executes stands alone"},
        {{{"model/sum/a.hpp", {"model/sum/b.hpp"}}, {"model/sum/b.hpp", {"model/sum/a.hpp"}}}, "a circle of includes"},
    };
    for (const Planted& planted : table) {
        const std::string all = fmt::format("{}", fmt::join(all_violations(repository(planted)), "\n"));
        BOOST_TEST_CONTEXT(planted.files.front().first << ", expected: " << planted.complaint) {
            if (planted.complaint.empty())
                BOOST_TEST(all == "");
            else
                BOOST_TEST(all.find(planted.complaint) != std::string::npos, "the rules said: '" << all << "'");
        }
    }
    const auto complaint = [](const Repository& files) {
        return fmt::format("{}", fmt::join(all_violations(files), "\n"));
    };
    BOOST_TEST(complaint({{"model/CMakeLists.txt", "sum/b.cpp"}, {"model/sum/a.cpp", ""}}).find("names it") !=
               std::string::npos);
    BOOST_TEST(complaint({{"README.md", "```house\nmodel/ sum/\n```\n"}, {"model/nccl/a.hpp", ""}}) ==
               "is on the map: README.md's map lacks the room nccl/\n"
               "is on the map: README.md's map shows sum/, which is no room");
}

BOOST_AUTO_TEST_CASE(the_house_keeps_the_rules) {
    const Repository files = tracked_files();
    if (files.empty()) {
        fmt::print("skipped: no git, or not its checkout: there is no list of tracked files\n");
        BOOST_TEST(!strict());
        return;
    }
    std::size_t code = 0;
    for (const auto& [path, text] : files) code += is_cpp(path) && !text.empty() ? 1 : 0;
    BOOST_TEST(code > 150u, "only " << code << " C++ files among " << files.size());
    for (const std::string& violation : all_violations(files)) BOOST_ERROR(violation);
}

}  // namespace
}  // namespace samesum::testing
