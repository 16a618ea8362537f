// Flags by Boost.Program_options; everything a user sees of an error is made here.
// SPDX-License-Identifier: Apache-2.0
#include "model/cli.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/version.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

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

/// One line for what Boost.Program_options found wrong.
std::string one_line(const po::error& error) {
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
}

}  // namespace

Options::Options(std::string usage, std::string summary, std::vector<std::string> examples)
    : usage_(std::move(usage)), summary_(std::move(summary)), examples_(std::move(examples)) {
    add()("help", "show this");
}

Options& Options::with_json() {
    add()("json", po::value<std::string>()->value_name("FILE"),
          "also write the answer as JSON ('-': to stdout instead)");
    return *this;
}

Options& Options::positional(const char* what, int most) {
    positional_name_ = what;
    hidden_.add_options()(what, po::value<std::vector<std::string>>());
    positional_.add(what, most);
    return *this;
}

bool Options::parse(std::span<const std::string> arguments) {
    po::options_description all;
    all.add(flags_).add(hidden_);
    try {
        // No guessing: "--rank" must not silently mean "--ranks".
        const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
        const po::parsed_options parsed =
            po::command_line_parser(std::vector<std::string>(arguments.begin(), arguments.end()))
                .options(all)
                .positional(positional_)
                .style(style)
                .run();
        // Boost reads -1 as the largest unsigned number.
        for (const po::option& option : parsed.options) {
            if (option.string_key.empty() || option.value.empty() || !option.value.front().starts_with('-')) continue;
            const po::value_semantic* semantic = all.find(option.string_key, false).semantic().get();
            if (dynamic_cast<const po::typed_value<std::uint64_t>*>(semantic) != nullptr)
                throw UsageError(fmt::format("--{} {}: a number of 0 or more would be right", option.string_key,
                                             option.value.front()));
        }
        po::store(parsed, values_);
        po::notify(values_);
    } catch (const po::too_many_positional_options_error&) {
        throw UsageError(positional_name_.empty()
                             ? "takes flags only, e.g. --ranks 4; see --help"
                             : fmt::format("too many words; it takes {}; see --help", positional_name_));
    } catch (const po::error& error) {
        throw UsageError(one_line(error) + "; see --help");
    }
    if (values_.count("help") == 0) return true;
    std::ostringstream flags;
    flags << flags_;
    fmt::print("samesum {}\n\n{}\n\n{}", usage_, summary_, flags.str());
    if (!examples_.empty()) fmt::print("\nexamples:\n");
    for (const std::string& example : examples_) fmt::print("  {}\n", example);
    return false;
}

std::vector<std::string> Options::words() const {
    return find<std::vector<std::string>>(positional_name_.c_str()).value_or(std::vector<std::string>{});
}

std::vector<std::string> with_changes(std::span<const std::string> arguments, const std::vector<std::string>& changes) {
    const auto flag = [](const std::string& word) { return word.substr(0, word.find('=')); };
    std::vector<std::string> merged;
    bool skipping = false;
    for (const std::string& word : arguments) {
        if (word.starts_with("--"))
            skipping = std::any_of(changes.begin(), changes.end(), [&](const std::string& change) {
                return change.starts_with("--") && flag(change) == flag(word);
            });
        if (!skipping) merged.push_back(word);
    }
    merged.insert(merged.end(), changes.begin(), changes.end());
    return merged;
}

Exit dispatch(std::string_view group, std::span<const std::string> arguments, std::span<const Command> commands) {
    if (arguments.empty() || arguments.front() == "--help" || arguments.front() == "help") {
        print_commands(group, commands);
        if (!arguments.empty()) return Exit::as_claimed;
        throw UsageError(fmt::format("samesum {} needs a command from the list above", group));
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
    const auto complain = [&](const char* what, Exit code) {
        std::fflush(stdout);
        fmt::print(stderr, "{}: {}\n", command, what);
        return static_cast<int>(code);
    };
    try {
        const Exit code = dispatch("", arguments, commands);
        std::cout.flush();
        // An earlier write may have failed, too, and left nothing for this one to flush.
        if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
            throw Inconclusive(fmt::format("cannot write the answer: {}", std::strerror(errno)));
        return static_cast<int>(code);
    } catch (const UsageError& error) {
        return complain(error.what(), Exit::usage);
    } catch (const Inconclusive& error) {
        return complain(error.what(), Exit::inconclusive);
    } catch (const std::bad_alloc&) {
        return complain("out of memory", Exit::inconclusive);
    } catch (const std::exception& error) {
        return complain(error.what(), Exit::not_as_claimed);
    }
}

void write_file(const std::string& file, std::string_view text) {
    if (file == "-") {
        std::fwrite(text.data(), 1, text.size(), stdout);
        return;
    }
    // A neighbour first, then renamed: a reader sees the old file or the new one, never half of it.
    const std::string fresh = fmt::format("{}.{}.tmp", file, ::getpid());
    std::ofstream stream(fresh, std::ios::binary);
    stream << text;
    stream.close();
    std::error_code error;
    if (stream) std::filesystem::rename(fresh, file, error);
    if (!stream || error) {
        const std::string why = error ? error.message() : std::strerror(errno);
        std::filesystem::remove(fresh, error);
        throw UsageError(fmt::format("cannot write {}: {}", file, why));
    }
}

void write_json(const std::string& file, const nlohmann::ordered_json& document) {
    write_file(file, document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

std::string read_file(const std::string& file) {
    if (file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
    std::error_code error;
    if (std::filesystem::is_directory(file, error)) throw UsageError(fmt::format("{} is a folder, not a file", file));
    std::ifstream stream(file, std::ios::binary);
    if (!stream) throw UsageError(fmt::format("cannot read {}: {}", file, std::strerror(errno)));
    return {std::istreambuf_iterator<char>(stream), {}};
}

bool colourful(int file_descriptor) { return ::isatty(file_descriptor) == 1 && std::getenv("NO_COLOR") == nullptr; }

double monotonic_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Progress::Progress(std::string what)
    : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) == 1), shown_(monotonic_seconds()) {}

Progress::~Progress() {
    if (visible_) fmt::print(stderr, "\r\x1b[K");
}

void Progress::update(std::string_view status) {
    const double now = monotonic_seconds();
    if (now - shown_ < (terminal_ ? 0.1 : 30)) return;
    shown_ = now;
    if (terminal_) {
        fmt::print(stderr, "\r\x1b[K{}: {}", what_, status);
        visible_ = true;
    } else {
        fmt::print(stderr, "{}: {}\n", what_, status);
    }
}

}  // namespace samesum
