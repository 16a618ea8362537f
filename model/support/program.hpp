// The body of every main(): a table of commands, errors in one line, exit codes, versions.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "model/support/error.hpp"

namespace samesum {

/// One command of a program: `samesum NAME ARGUMENTS`.
struct Command {
    std::string_view name;
    std::string_view summary;
    std::function<Exit(std::span<const std::string>)> run;
};

/// The body of main: picks the command, turns errors into one line on stderr and the right exit code.
/// Groups nest: a command may call dispatch() with its own table.
/// `--version` prints the versions of the libraries that every program is built with, then `more`: name and version.
[[nodiscard]] int run_program(int argc, char** argv, std::span<const Command> commands,
                              std::span<const std::pair<std::string, std::string>> more = {});
[[nodiscard]] Exit dispatch(std::string_view group, std::span<const std::string> arguments,
                            std::span<const Command> commands);

/// The version of samesum: "1.2.3".
[[nodiscard]] std::string_view version();

}  // namespace samesum
