// Runs one of our programs as a user does and keeps what it said.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

namespace samesum::testing {

struct Outcome {
    int exit = -1;  ///< -1: ended by a signal
    std::string out, err;

    [[nodiscard]] bool says(std::string_view text) const { return out.find(text) != std::string::npos; }
    [[nodiscard]] bool complains(std::string_view text) const { return err.find(text) != std::string::npos; }
};

/// Runs a line of shell words in the source folder. `input` becomes standard input.
inline Outcome run_line(const std::string& line, const std::string& input = {}) {
    const std::filesystem::path folder = std::filesystem::temp_directory_path() / "samesum-XXXXXX";
    std::string made = folder.string();
    if (::mkdtemp(made.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder");
    const std::filesystem::path scratch = made;
    std::ofstream(scratch / "in", std::ios::binary) << input;
    const std::string command = "cd '" + std::string(SAMESUM_SOURCE_DIR) + "' && " + line + " <'" + made + "/in' >'" +
                                made + "/out' 2>'" + made + "/err'";
    const int status = std::system(command.c_str());
    const auto text = [&](const char* name) {
        std::ifstream stream(scratch / name, std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(stream), {});
    };
    Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -1, text("out"), text("err")};
    std::filesystem::remove_all(scratch);
    return outcome;
}

/// Runs "samesum ARGUMENTS" by way of the program that answers the first word.
inline Outcome run(const std::string& arguments, const std::string& input = {}) {
    struct Route {
        std::string_view word, program;
    };
    constexpr std::array routes{Route{"order", "model"},  Route{"sum", "model"},     Route{"teach", "model"},
                                Route{"prove", "proofs"}, Route{"verify", "proofs"}, Route{"fuzz", "fuzz"},
                                Route{"run", "impl"},     Route{"reveal", "impl"},   Route{"bench", "impl"}};
    const std::string first = arguments.substr(0, arguments.find(' '));
    for (const Route& route : routes)
        if (route.word == first)
            return run_line(
                "'" + std::string(SAMESUM_BINARY_DIR) + "/samesum-" + std::string(route.program) + "' " + arguments,
                input);
    throw std::logic_error("no program answers '" + first + "'");
}

}  // namespace samesum::testing
