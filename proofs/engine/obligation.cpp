// Three rules: contradictory assumptions prove nothing, unconfirmed counterexamples do not count, unknown is never
// upheld.
// SPDX-License-Identifier: Apache-2.0
#include "proofs/engine/obligation.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/support/error.hpp"
#include "model/support/progress.hpp"
#include "model/support/subprocess.hpp"

namespace samesum {
namespace {

/// The result of one statement or one enumeration.
struct Outcome {
    Verdict verdict = Verdict::inconclusive;
    std::string decided_by;
    std::string detail;
    std::string witness;
};

std::string open(const Answer& answer) {
    return answer.why.starts_with("no answer within") ? "out of time" : "unknown to the solver";
}

Outcome settle(const Statement& statement, double limit) {
    if (statement.seconds > 0) limit = statement.seconds;
    // An expected example itself shows that the assumptions are satisfiable.
    if (!statement.assumptions.empty() && statement.expected != SatResult::sat) {
        const Answer possible = check(statement.assumptions_query(), limit);
        if (possible.result == SatResult::unsat)
            return {Verdict::inconclusive,
                    "contradictory assumptions",
                    fmt::format("{}: its assumptions cannot all hold, so nothing is shown", statement.name),
                    {}};
        if (possible.result == SatResult::unknown)
            return {Verdict::inconclusive,
                    open(possible),
                    fmt::format("{}: whether its assumptions can hold: {}", statement.name, possible.why),
                    {}};
    }
    const Answer answer = check(statement.goal_query(), limit);
    switch (answer.result) {
        case SatResult::unsat:
            return {Verdict::upheld, "proved", {}, {}};
        case SatResult::unknown:
            return {Verdict::inconclusive, open(answer), fmt::format("{}: {}", statement.name, answer.why), {}};
        case SatResult::sat:
            break;
    }
    const std::string witness = statement.confirm ? statement.confirm(answer.values) : std::string();
    if (witness.empty())
        return {Verdict::inconclusive,
                "not confirmed by model",
                fmt::format("{}: the solver has a counterexample that the model does not confirm", statement.name),
                {}};
    return {Verdict::refuted, "counterexample", {}, witness};
}

Outcome settle(const std::function<Enumeration()>& enumerate) {
    const Enumeration cases = enumerate();
    if (cases.cases == 0) return {Verdict::inconclusive, "not decided", "no case was tried", {}};
    return {cases.counterexample.empty() ? Verdict::upheld : Verdict::refuted,
            cases.counterexample.empty() ? fmt::format("exhausted {}", cases.cases) : "counterexample",
            {},
            cases.counterexample};
}

Outcome settle_by_coq(const std::string& file, double limit) {
    const std::string refusal = refused_by_coq(file, limit);
    if (refusal.empty()) return {Verdict::upheld, "checked by Coq", {}, {}};
    return {Verdict::inconclusive, "not decided", fmt::format("{}: {}", file, refusal), {}};
}

Verdict opposite(Verdict verdict) {
    if (verdict == Verdict::inconclusive) return verdict;
    return verdict == Verdict::upheld ? Verdict::refuted : Verdict::upheld;
}

std::string list(std::span<const std::string> words) { return fmt::format("{}", fmt::join(words, ", ")); }

Evidence blank(const Obligation& obligation) {
    return {.claim = obligation.name,
            .sentence = obligation.sentence,
            .scope = obligation.scope,
            .expected = obligation.expected,
            .verdict = Verdict::inconclusive,
            .decided_by = "not decided",
            .detail = {},
            .witness = {},
            .replay = fmt::format("samesum prove {}", obligation.name),
            .seconds = 0};
}

std::string header(const Obligation& obligation, const Statement& statement, SatResult expected) {
    std::string source = fmt::format("{} ({}): {}", obligation.name, obligation.scope, obligation.sentence);
    std::replace(source.begin(), source.end(), '|', '/');
    return fmt::format(
        "(set-info :smt-lib-version 2.6)\n(set-logic {})\n(set-info :source |{}|)\n(set-info :status {})\n",
        statement.logic, source, name(expected));
}

}  // namespace

Query Statement::assumptions_query() const {
    Query query{declarations, {}, logic};
    for (const Assumption& assumption : assumptions)
        query.script += fmt::format("; assumed: {}\n(assert {})\n", assumption.name, assumption.formula.text);
    return query;
}

Query Statement::goal_query() const {
    Query query = assumptions_query();
    query.script += fmt::format("; a counterexample\n(assert {})\n", negation(goal).text);
    query.constants = constants;
    return query;
}

bool Obligation::can_run() const { return coq.empty() || coq_is_installed(); }

std::vector<std::string> Obligation::assumes() const {
    std::vector<std::string> names;
    for (const Statement& statement : statements)
        for (const Assumption& assumption : statement.assumptions)
            if (std::find(names.begin(), names.end(), assumption.name) == names.end()) names.push_back(assumption.name);
    return names;
}

std::vector<Obligation> selected(std::span<const std::string> globs, bool slow_too) {
    std::vector<bool> chosen(obligations().size());
    for (std::size_t i = 0; i < chosen.size(); ++i)
        chosen[i] = globs.empty() && (slow_too || !obligations()[i].slow) && obligations()[i].can_run();
    for (const std::string& glob : globs) {
        bool matches = false;
        for (std::size_t i = 0; i < chosen.size(); ++i)
            if (::fnmatch(glob.c_str(), obligations()[i].name.c_str(), 0) == 0) chosen[i] = matches = true;
        if (!matches)
            throw UsageError(fmt::format("no obligation is called '{}'; samesum prove --list names all", glob));
    }
    std::vector<Obligation> result;
    for (std::size_t i = 0; i < chosen.size(); ++i)
        if (chosen[i]) result.push_back(obligations()[i]);
    return result;
}

Evidence discharge(const Obligation& obligation, double limit) {
    const double started = monotonic_seconds();
    std::vector<Outcome> outcomes;
    for (const Statement& statement : obligation.statements) outcomes.push_back(settle(statement, limit));
    if (!obligation.coq.empty()) outcomes.push_back(settle_by_coq(obligation.coq, limit));
    if (obligation.enumerate) outcomes.push_back(settle(obligation.enumerate));
    Evidence evidence = blank(obligation);
    if (outcomes.empty()) {
        evidence.detail = "no statement and no enumeration";
        return evidence;
    }

    // The worst outcome decides: a counterexample, else an undecided one, else all hold. If every statement must have
    // an example, a statement without one is the worst.
    const bool all_refuted = obligation.settled == Obligation::Settled::by_every_example;
    const auto rank = [&](const Outcome& o) {
        if (o.verdict == Verdict::inconclusive) return 1;
        return (o.verdict == Verdict::refuted) != all_refuted ? 0 : 2;
    };
    const Outcome& worst = *std::min_element(outcomes.begin(), outcomes.end(),
                                             [&](const Outcome& a, const Outcome& b) { return rank(a) < rank(b); });
    evidence.verdict = obligation.settled == Obligation::Settled::by_proof ? worst.verdict : opposite(worst.verdict);
    evidence.decided_by = worst.decided_by;
    if (worst.verdict == Verdict::refuted && obligation.settled == Obligation::Settled::by_example)
        evidence.decided_by = "example";
    if (all_refuted) {
        const auto refuted = std::count_if(outcomes.begin(), outcomes.end(),
                                           [](const Outcome& o) { return o.verdict == Verdict::refuted; });
        evidence.decided_by = fmt::format("{} of {} refuted", refuted, outcomes.size());
    }
    if (worst.verdict == Verdict::upheld && !all_refuted) {
        std::vector<std::string> ways;
        for (const Outcome& outcome : outcomes)
            if (std::find(ways.begin(), ways.end(), outcome.decided_by) == ways.end())
                ways.push_back(outcome.decided_by);
        evidence.decided_by = list(ways);
    }
    evidence.witness = worst.witness;

    std::vector<std::string> details;
    if (!worst.detail.empty()) details.push_back(worst.detail);
    if (all_refuted && worst.verdict == Verdict::upheld)
        for (std::size_t i = 0; i < obligation.statements.size(); ++i)
            if (outcomes[i].verdict == Verdict::upheld)
                details.push_back(fmt::format("{} changes nothing", obligation.statements[i].name));
    const std::vector<std::string> assumed = obligation.assumes();
    if (!assumed.empty()) details.push_back("assumes " + list(assumed));
    if (!obligation.assumes_of_nccl.empty()) details.push_back("of NCCL: " + list(obligation.assumes_of_nccl));
    if (!obligation.statements.empty()) details.push_back(solver_version());
    evidence.detail = fmt::format("{}", fmt::join(details, "; "));
    evidence.seconds = monotonic_seconds() - started;
    return evidence;
}

LedgerJob ledger_job(const Obligation& obligation, double limit) {
    // Queries have their own limits; this one is for enumerations.
    double all = obligation.coq.empty() ? limit : 2 * limit;
    for (const Statement& statement : obligation.statements) all += 2 * std::max(limit, statement.seconds);
    return {blank(obligation), [obligation, limit] { return std::vector{discharge(obligation, limit)}; }, all};
}

std::vector<Evidence> run_ledger_jobs(std::span<const LedgerJob> jobs, int parallel,
                                      const std::function<void(std::size_t done)>& finished) {
    std::vector<Job> children;
    for (const LedgerJob& each : jobs)
        children.push_back({each.if_lost.claim,
                            [&each] {
                                nlohmann::ordered_json lines = nlohmann::ordered_json::array();
                                for (const Evidence& evidence : each.work()) lines.push_back(evidence);
                                return lines.dump();
                            },
                            each.limit});
    std::size_t done = 0;
    const auto results = run_jobs(children, parallel, [&](std::size_t, const ChildResult&) {
        if (finished) finished(++done);
    });
    std::vector<Evidence> ledger;
    for (std::size_t i = 0; i < results.size(); ++i) {
        if (results[i].output) {
            for (const auto& line : nlohmann::ordered_json::parse(*results[i].output))
                ledger.push_back(evidence_from_json(line));
            continue;
        }
        ledger.push_back(jobs[i].if_lost);
        ledger.back().detail = results[i].why;
        ledger.back().seconds = results[i].seconds;
    }
    return ledger;
}

std::vector<Script> scripts(const Obligation& obligation) {
    std::vector<Script> all;
    for (const Statement& statement : obligation.statements) {
        const auto add = [&](std::string_view part, const Query& query, SatResult expected) {
            all.push_back({fmt::format("{}.{}.{}", obligation.name, statement.name, part), statement.logic,
                           header(obligation, statement, expected) + query.script + "(check-sat)\n", expected});
        };
        if (!statement.assumptions.empty() && statement.expected != SatResult::sat)
            add("assumptions", statement.assumptions_query(), statement.expected_of_assumptions);
        add("goal", statement.goal_query(), statement.expected);
    }
    return all;
}

}  // namespace samesum
