// Flags by Boost.Program_options.
// SPDX-License-Identifier: Apache-2.0
#include "model/support/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <utility>

namespace samesum {
namespace {

/// An error of Boost.Program_options in one line.
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
          "also write the answer as JSON ('-': on stdout, in place of the text)");
    return *this;
}

Options& Options::positional(const char* what, int max) {
    positional_name_ = what;
    hidden_.add_options()(what, po::value<std::vector<std::string>>());
    positional_.add(what, max);
    return *this;
}

bool Options::parse(std::span<const std::string> arguments) {
    po::options_description all;
    all.add(flags_).add(hidden_);
    try {
        // Abbreviations are off: "--rank" must not silently mean "--ranks".
        const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
        const po::parsed_options parsed =
            po::command_line_parser(std::vector<std::string>(arguments.begin(), arguments.end()))
                .options(all)
                .positional(positional_)
                .style(style)
                .run();
        // Boost would read -1 as the largest unsigned number.
        for (const po::option& option : parsed.options) {
            if (option.string_key.empty() || option.value.empty() || !option.value.front().starts_with('-')) continue;
            const po::value_semantic* semantic = all.find(option.string_key, false).semantic().get();
            if (dynamic_cast<const po::typed_value<std::uint64_t>*>(semantic) != nullptr)
                throw UsageError(
                    fmt::format("--{} {}: expected a number of 0 or more", option.string_key, option.value.front()));
        }
        po::store(parsed, values_);
        po::notify(values_);
    } catch (const po::too_many_positional_options_error&) {
        throw UsageError(positional_name_.empty()
                             ? "expected flags only, e.g. --ranks 4; see --help"
                             : fmt::format("too many words: expected {}; see --help", positional_name_));
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

}  // namespace samesum
