// Errors reach the user here: one line on stderr, and an exit code.
// SPDX-License-Identifier: Apache-2.0
#include "model/support/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/version.hpp>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <nlohmann/json.hpp>
#include <vector>

#ifdef __clang__
#define COMPILER "Clang " __clang_version__
#else
#define COMPILER "GCC " __VERSION__
#endif

namespace samesum {
namespace {

void print_commands(std::string_view group, std::span<const Command> commands) {
    std::size_t width = 0;
    for (const Command& command : commands) width = std::max(width, command.name.size());
    fmt::print("samesum {} COMMAND [flags]\n\n", group);
    for (const Command& command : commands) fmt::print("  {:<{}}  {}\n", command.name, width, command.summary);
    fmt::print("\nsamesum {} COMMAND --help shows a command's flags and examples.\n", group);
}

}  // namespace

Exit dispatch(std::string_view group, std::span<const std::string> arguments, std::span<const Command> commands) {
    if (arguments.empty() || arguments.front() == "--help" || arguments.front() == "help") {
        print_commands(group, commands);
        if (!arguments.empty()) return Exit::as_claimed;
        throw UsageError(fmt::format("samesum {}: expected a command from the list above", group));
    }
    for (const Command& command : commands)
        if (command.name == arguments.front()) return command.run(arguments.subspan(1));
    std::string choices;
    for (const Command& command : commands) choices += fmt::format("{}{}", choices.empty() ? "" : ", ", command.name);
    throw UsageError(fmt::format("unknown command '{}'; one of: {}", arguments.front(), choices));
}

std::string_view version() { return SAMESUM_VERSION; }

int run_program(int argc, char** argv, std::span<const Command> commands,
                std::span<const std::pair<std::string, std::string>> more) {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (!arguments.empty() && arguments.front() == "--version") {
        const std::vector<std::pair<std::string, std::string>> common{
            {"samesum", std::string(version())},
            {"NCCL model", "2.27 to 2.30"},
            {"compiler", COMPILER},
            {"Boost", BOOST_LIB_VERSION},
            {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
            {"JSON", fmt::format("nlohmann {}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                                 NLOHMANN_JSON_VERSION_PATCH)}};
        for (const auto& [what, version] : common) fmt::print("{:<12} {}\n", what, version);
        for (const auto& [what, version] : more) fmt::print("{:<12} {}\n", what, version);
        return 0;
    }
    std::string command = "samesum";
    for (const std::string& word : arguments) {
        if (word.empty() || !std::isalpha(static_cast<unsigned char>(word.front())) || command.size() > 24) break;
        if (std::count(command.begin(), command.end(), ' ') == 2) break;
        command += " " + word;
    }
    const auto report = [&](const char* what, Exit code) {
        std::fflush(stdout);
        fmt::print(stderr, "{}: {}\n", command, what);
        return static_cast<int>(code);
    };
    try {
        const Exit code = dispatch("", arguments, commands);
        std::cout.flush();
        // An earlier write may have failed and left nothing to flush now.
        if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
            throw Inconclusive(fmt::format("cannot write the answer: {}", std::strerror(errno)));
        return static_cast<int>(code);
    } catch (const UsageError& error) {
        return report(error.what(), Exit::usage);
    } catch (const Inconclusive& error) {
        return report(error.what(), Exit::inconclusive);
    } catch (const std::bad_alloc&) {
        return report("out of memory", Exit::inconclusive);
    } catch (const std::exception& error) {
        return report(error.what(), Exit::not_as_claimed);
    }
}

}  // namespace samesum
