// A command's flags: long names, help with examples, one-line errors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/program_options.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/support/error.hpp"

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
    /// Words that are not flags; at most `max` of them (-1: any number).
    Options& positional(const char* what, int max);

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

/// The arguments with each flag that `changes` names replaced by its value there: a second call, described by its
/// differences.
[[nodiscard]] std::vector<std::string> with_changes(std::span<const std::string> arguments,
                                                    const std::vector<std::string>& changes);

}  // namespace samesum
