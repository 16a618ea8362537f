// What all commands share: long flags with help and examples, one-line errors, exit codes, JSON files.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/program_options.hpp>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/error.hpp"

namespace samesum {

namespace po = boost::program_options;

/// A command's flags. Every command also takes --help; `with_json` adds --json FILE.
class Options {
public:
    /// usage: what follows "samesum ", e.g. "order show [flags]". Examples are whole lines.
    Options(std::string usage, std::string summary, std::vector<std::string> examples);

    /// add()("ranks", po::value<int>(), "number of ranks")(...);
    po::options_description_easy_init add() { return flags_.add_options(); }
    Options& with_json();
    /// Words that are no flags; at most `most` of them (-1: any number).
    Options& positional(const char* what, int most);

    /// False when --help was printed and nothing is left to do. Throws UsageError for a wrong flag or value.
    [[nodiscard]] bool parse(std::span<const std::string> arguments);

    [[nodiscard]] bool has(const char* flag) const { return values_.count(flag) > 0 && !values_[flag].defaulted(); }
    template <class T>
    [[nodiscard]] T get(const char* flag) const {
        if (values_.count(flag) == 0) throw UsageError(std::string("--") + flag + " is missing; see --help");
        return values_[flag].as<T>();
    }
    template <class T>
    [[nodiscard]] std::optional<T> find(const char* flag) const {
        return values_.count(flag) > 0 ? std::optional<T>(values_[flag].as<T>()) : std::nullopt;
    }
    [[nodiscard]] std::vector<std::string> words() const;

private:
    std::string usage_, summary_;
    std::vector<std::string> examples_;
    po::options_description flags_{"flags"};
    po::options_description hidden_;
    po::positional_options_description positional_;
    std::string positional_name_;
    po::variables_map values_;
};

/// The arguments with every flag that `changes` names replaced by its value there: a second call described by what is
/// different about it.
[[nodiscard]] std::vector<std::string> with_changes(std::span<const std::string> arguments,
                                                    const std::vector<std::string>& changes);

/// One command of a program: `samesum NAME ARGUMENTS`.
struct Command {
    std::string_view name;
    std::string_view summary;
    std::function<Exit(std::span<const std::string>)> run;
};

/// The body of main: picks the command, turns errors into one line on stderr and the right exit code.
/// Groups nest: a command may call dispatch() with its own table.
/// `--version` prints the versions of what every program is built with, and `more`: name and version.
[[nodiscard]] int run_program(int argc, char** argv, std::span<const Command> commands,
                              std::span<const std::pair<std::string, std::string>> more = {});
[[nodiscard]] Exit dispatch(std::string_view group, std::span<const std::string> arguments,
                            std::span<const Command> commands);

/// Of samesum: "1.2.3".
[[nodiscard]] std::string_view version();

/// Writes the document to a file, complete or not at all ("-": to stdout). Throws UsageError when that cannot be done.
void write_json(const std::string& file, const nlohmann::ordered_json& document);
/// The same for any text.
void write_file(const std::string& file, std::string_view text);
/// Whole file as text ("-": stdin); throws UsageError naming the file.
[[nodiscard]] std::string read_file(const std::string& file);

/// Is this stream a terminal, and has the user not asked for no colour (NO_COLOR)?
[[nodiscard]] bool colourful(int file_descriptor);

/// A status line on stderr for long work: rewritten in place on a terminal, one plain line every 30 s elsewhere.
class Progress {
public:
    explicit Progress(std::string what);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    void update(std::string_view status);

private:
    std::string what_;
    bool terminal_;
    double shown_;
    bool visible_ = false;
};

/// Seconds since some fixed point, for durations.
[[nodiscard]] double monotonic_seconds();

}  // namespace samesum
