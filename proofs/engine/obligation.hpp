// What decides a claim: statements for the solver, finite enumerations, and how both become evidence.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/support/ledger.hpp"
#include "proofs/engine/smt.hpp"
#include "proofs/engine/solver.hpp"

namespace samesum {

/// A formula assumed to hold.
struct Assumption {
    std::string name;
    Term formula;
};

/// "The assumptions imply the goal, whatever the declared constants are."
struct Statement {
    std::string name;  ///< names the query's SMT-LIB file, beside the obligation's
    std::string logic;
    std::string declarations{};
    std::vector<Assumption> assumptions{};
    Term goal;
    std::vector<std::string> constants{};  ///< what a counterexample consists of
    /// Evaluates a counterexample in the model: its text, small and readable, or nothing when the model does not
    /// confirm it. Without this function no counterexample is accepted.
    std::function<std::string(const Assignment&)> confirm{};
    SatResult expected = SatResult::unsat;  ///< of "assumptions and not goal"
    SatResult expected_of_assumptions = SatResult::sat;
    double seconds = 0;  ///< a limit of its own, when positive

    /// "assumptions", or "assumptions and not goal", without check-sat.
    [[nodiscard]] Query assumptions_query() const;
    [[nodiscard]] Query goal_query() const;
};

/// A finite set of cases, all evaluated in the model.
struct Enumeration {
    std::uint64_t cases = 0;
    std::string counterexample;  ///< the first, as text
};

/// One row of the ledger: a claim for one scope.
struct Obligation {
    /// What settles it: no counterexample to its statements and enumerations, one counterexample, or a counterexample
    /// to each of its statements.
    enum class Settled : std::uint8_t { by_proof, by_example, by_every_example };

    std::string name;      ///< "fixed_root_is_routing_invariant"; shared with fuzz properties and README
    std::string sentence;  ///< one plain sentence
    std::string scope;     ///< "bfloat16", "all world sizes"
    std::vector<Statement> statements{};
    std::function<Enumeration()> enumerate{};
    std::string coq{};  ///< a file of proofs/ that Coq checks
    Settled settled = Settled::by_proof;
    Verdict expected = Verdict::upheld;
    std::vector<std::string> assumes_of_nccl{};  ///< names in nccl_assumptions(): assumptions.hpp

    bool slow = false;  ///< skipped unless named or requested with --all

    /// The assumptions of its statements, each once.
    [[nodiscard]] std::vector<std::string> assumes() const;
    /// Are its external programs (coqc) installed? If named without them: inconclusive.
    [[nodiscard]] bool can_run() const;
    [[nodiscard]] bool is_canary() const { return name.starts_with("canary_"); }
};

/// Every obligation, canaries last.
[[nodiscard]] const std::vector<Obligation>& obligations();
/// Those whose names match one of the globs; when there are none, all that can run, slow ones on request.
/// Throws UsageError for a glob that matches none.
[[nodiscard]] std::vector<Obligation> selected(std::span<const std::string> globs, bool slow_too = false);

/// Checks that the assumptions are satisfiable, then searches for a counterexample, which counts only if the model
/// confirms it. Each query gets `limit` seconds. Unknown, out of time and unsatisfiable assumptions are inconclusive.
[[nodiscard]] Evidence discharge(const Obligation& obligation, double limit);

/// Work that makes lines of the ledger, in a child process.
struct LedgerJob {
    Evidence if_lost;  ///< the line to use if the child gives no answer; its detail is filled in
    std::function<std::vector<Evidence>()> work;
    double limit = 0;  ///< seconds, 0: none
};
[[nodiscard]] LedgerJob ledger_job(const Obligation& obligation, double limit);

/// Runs the jobs, `parallel` at a time; returns their lines in the jobs' order. `finished` is told how many are done.
[[nodiscard]] std::vector<Evidence> run_ledger_jobs(std::span<const LedgerJob> jobs, int parallel,
                                                    const std::function<void(std::size_t done)>& finished = {});

/// One SMT-LIB 2.6 script with its expected status, complete with check-sat.
struct Script {
    std::string name;  ///< "addition_commutes.float16.goal"
    std::string logic;
    std::string text;
    SatResult expected;
};
[[nodiscard]] std::vector<Script> scripts(const Obligation& obligation);

}  // namespace samesum
