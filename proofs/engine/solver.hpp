// The SMT solver in a child process: a script in, sat, unsat or unknown out, and a hard time limit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace samesum {

/// The answer to "can these assertions hold together?".
enum class SatResult : std::uint8_t { sat, unsat, unknown };
/// "sat", "unsat", "unknown": SMT-LIB's words, in which expectations are stated too.
[[nodiscard]] std::string_view name(SatResult answer);

/// Constants' values in a model: bit vectors and non-negative integers as they are, truth values as 0 and 1. Constants
/// that do not matter are 0.
using Assignment = std::map<std::string, std::uint64_t>;

struct Query {
    std::string script;                  ///< SMT-LIB 2.6: declarations and assertions, no check-sat
    std::vector<std::string> constants;  ///< whose values are wanted if the result is sat
    std::string logic{};                 ///< what the script is written in, if known
};
struct Answer {
    SatResult result = SatResult::unknown;
    std::string why;  ///< for unknown
    Assignment values;
    double seconds = 0;
};

/// Runs Z3 in a child process, which is killed after `limit` seconds. Throws UsageError when the script is not
/// SMT-LIB.
[[nodiscard]] Answer check(const Query& query, double limit);

/// A command line that checks an SMT-LIB file, whose name is to be appended: "cvc5" or "bitwuzla", from their Python
/// wheels in samesum's private environment, or a program given by its path. Throws UsageError when there is none.
[[nodiscard]] std::vector<std::string> second_solver(const std::string& name);
/// Does that solver support the logic? Bitwuzla has bit vectors and floats, but no integers, reals or quantifiers.
[[nodiscard]] bool second_solver_reads(const std::string& name, std::string_view logic);
/// Runs a second solver; no values.
[[nodiscard]] Answer check_with_second(std::vector<std::string> command, const std::string& file, double limit);

[[nodiscard]] bool coq_is_installed();
/// Checks a file of proofs/ with Coq; the file ends by printing the axioms that it uses. Empty when Coq accepts it and
/// it uses none, else why not.
[[nodiscard]] std::string refused_by_coq(const std::string& file, double limit);

/// "Z3 5.4.1".
[[nodiscard]] std::string solver_version();

}  // namespace samesum
