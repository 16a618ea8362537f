// The solver behind a wall: scripts in, one of three answers out, and a time limit that really holds.
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
    std::vector<std::string> constants;  ///< whose values are wanted when the answer is yes
    std::string logic{};                 ///< what the script is written in, if known
};
struct Answer {
    SatResult satisfiable = SatResult::unknown;
    std::string why;  ///< of unknown
    Assignment values;
    double seconds = 0;
};

/// Asks Z3 in a child process, which is killed after `limit` seconds whatever it is doing. Throws UsageError when the
/// script is no SMT-LIB.
[[nodiscard]] Answer check(const Query& question, double limit);

/// A command line that answers a file of SMT-LIB, whose name is to be appended: of "cvc5" or "bitwuzla", from their
/// Python wheels in samesum's private environment, or of a program given by its path. Throws UsageError when there is
/// none.
[[nodiscard]] std::vector<std::string> second_solver(const std::string& name);
/// Does that solver know the logic? Bitwuzla knows bit vectors and floats, but no integers, reals and quantifiers.
[[nodiscard]] bool second_solver_reads(const std::string& name, std::string_view logic);
/// Asks a second solver; no values.
[[nodiscard]] Answer check_with_second(std::vector<std::string> command, const std::string& file, double limit);

[[nodiscard]] bool coq_is_installed();
/// Lets Coq check a file of proofs/, which ends by asking for the axioms that it used. Empty when Coq accepts it and
/// there are none, else why not.
[[nodiscard]] std::string refused_by_coq(const std::string& file, double limit);

/// "Z3 5.4.1".
[[nodiscard]] std::string solver_version();

}  // namespace samesum
