// samesum prove: lists, discharges or exports obligations, or cross-checks them with a second solver.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "model/support/files.hpp"
#include "model/support/options.hpp"
#include "model/support/output.hpp"
#include "model/support/progress.hpp"
#include "model/support/subprocess.hpp"
#include "model/support/temporary_folder.hpp"
#include "proofs/claims/assumptions.hpp"
#include "proofs/commands.hpp"
#include "proofs/engine/obligation.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;

std::string table_of(std::span<const Obligation> chosen) {
    std::size_t name = 0, scope = 0;
    for (const Obligation& each : chosen) {
        name = std::max(name, each.name.size());
        scope = std::max(scope, each.scope.size());
    }
    std::string text;
    for (const Obligation& each : chosen)
        text += fmt::format("{:<{}}  {:<{}}  {}\n", each.name, name, each.scope, scope, each.sentence);
    return text + "\n" + assumption_ledger(chosen, {});
}

Json as_json(const Obligation& obligation) {
    Json statements = Json::array();
    for (const Script& script : scripts(obligation)) statements.push_back(script.name);
    return {{"claim", obligation.name},        {"sentence", obligation.sentence},
            {"scope", obligation.scope},       {"expected", name(obligation.expected)},
            {"assumes", obligation.assumes()}, {"assumes_of_nccl", obligation.assumes_of_nccl},
            {"queries", statements},           {"enumerates", static_cast<bool>(obligation.enumerate)},
            {"slow", obligation.slow}};
}

std::vector<Script> scripts_of(std::span<const Obligation> chosen) {
    std::vector<Script> all;
    for (const Obligation& each : chosen)
        for (Script& script : scripts(each)) all.push_back(std::move(script));
    return all;
}

void export_to(const std::string& folder, std::span<const Script> all) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) throw UsageError(fmt::format("--export {}: cannot make the folder: {}", folder, error.message()));
    for (const Script& script : all) write_file(fmt::format("{}/{}.smt2", folder, script.name), script.text);
}

/// Runs every query through a second solver. Only sat against unsat is a disagreement; queries without an answer are
/// counted.
Exit cross_check(const Options& options, const std::string& solver, std::vector<Script> all, double limit,
                 int parallel) {
    const std::size_t unread =
        std::erase_if(all, [&](const Script& script) { return !second_solver_reads(solver, script.logic); });
    const std::vector<std::string> command = second_solver(solver);
    const TemporaryFolder folder("samesum-cross-check");
    export_to(folder.path().string(), all);
    std::vector<Job> jobs;
    for (const Script& script : all)
        jobs.push_back({script.name,
                        [&script, &command, &folder, limit] {
                            const Answer answer = check_with_second(command, folder.file(script.name + ".smt2"), limit);
                            return fmt::format("{} {}", name(answer.result), answer.why);
                        },
                        0});
    Progress progress("cross-check");
    std::size_t done = 0;
    const auto results = run_jobs(jobs, parallel, [&](std::size_t, const ChildResult&) {
        progress.update(fmt::format("{} of {} queries", ++done, jobs.size()));
    });
    std::size_t agree = 0, differ = 0;
    std::string text;
    Json rows = Json::array();
    for (std::size_t i = 0; i < all.size(); ++i) {
        const std::string said = results[i].output.value_or("unknown " + results[i].why);
        const std::string word = said.substr(0, said.find(' '));
        if (all[i].expected == SatResult::unknown || word == name(all[i].expected)) {
            ++agree;
            continue;
        }
        differ += word == "unknown" ? 0 : 1;
        text += fmt::format("{}: expected {}, {} answers {}\n", all[i].name, name(all[i].expected), solver, said);
        rows.push_back({{"query", all[i].name}, {"expected", name(all[i].expected)}, {"answer", said}});
    }
    text +=
        fmt::format("{}: {} of {} queries answered as expected, {} disagreements\n", solver, agree, all.size(), differ);
    if (unread > 0) text += fmt::format("{} more queries skipped: {} does not support their logics\n", unread, solver);
    const Json document{{"solver", solver},        {"queries", all.size()}, {"as_expected", agree},
                        {"disagreements", differ}, {"unsupported", unread}, {"not_as_expected", rows}};
    const Exit exit = differ > 0                         ? Exit::not_as_claimed
                      : agree == all.size() && agree > 0 ? Exit::as_claimed
                                                         : Exit::inconclusive;
    return emit(options, text, document, exit);
}

}  // namespace

Exit prove_command(std::span<const std::string> arguments) {
    Options options(
        "prove [NAME...] [flags]",
        "Discharges obligations: first checks that their assumptions are satisfiable, then searches for a\n"
        "counterexample. A counterexample counts if the model confirms it; unknown and out of time are inconclusive.",
        {"samesum prove", "samesum prove 'addition_*' --timeout 60", "samesum prove --export smt"});
    options.with_json().positional("NAME", -1);
    options.add()("list", "list the obligations and stop")("all", "include slow obligations; takes minutes")(
        "timeout", po::value<double>()->default_value(20)->value_name("S"),
        "time limit of each solver query, in seconds")("jobs", po::value<int>()->default_value(2),
                                                       "number of obligations at a time")(
        "export", po::value<std::string>()->value_name("DIR"),
        "write each query as SMT-LIB 2.6 with its expected status, and stop")(
        "cross-check", po::value<std::string>()->value_name("SOLVER"),
        "run the queries with a second solver and compare: cvc5, bitwuzla, or a program's path");
    if (!options.parse(arguments)) return Exit::as_claimed;
    const double limit = options.get<double>("timeout");
    if (!(limit > 0)) throw UsageError(fmt::format("--timeout {}: expected seconds above 0", limit));
    const int parallel = options.get<int>("jobs");
    if (parallel < 1) throw UsageError(fmt::format("--jobs {}: expected 1 or more", parallel));

    const std::vector<Obligation> chosen = selected(options.words(), options.has("all") || options.has("list"));
    if (options.has("list")) {
        Json rows = Json::array();
        for (const Obligation& each : chosen) rows.push_back(as_json(each));
        return emit(options, table_of(chosen), {{"obligations", rows}, {"assumptions", assumptions_as_json()}},
                    Exit::as_claimed);
    }
    if (const auto folder = options.find<std::string>("export")) {
        const auto all = scripts_of(chosen);
        export_to(*folder, all);
        return emit(options, fmt::format("wrote {} queries to {}\n", all.size(), *folder),
                    {{"queries", all.size()}, {"folder", *folder}}, Exit::as_claimed);
    }
    if (const auto program = options.find<std::string>("cross-check"))
        return cross_check(options, *program, scripts_of(chosen), limit, parallel);

    Progress progress("prove");
    std::vector<LedgerJob> jobs;
    for (const Obligation& obligation : chosen) jobs.push_back(ledger_job(obligation, limit));
    std::vector<Evidence> ledger = run_ledger_jobs(jobs, parallel, [&](std::size_t done) {
        progress.update(fmt::format("{} of {} obligations", done, chosen.size()));
    });
    Json rows = Json::array();
    for (const Evidence& evidence : ledger) rows.push_back(evidence);
    for (Evidence& line : ledger) line.decided_by += fmt::format(" in {:.1f} s", line.seconds);
    return emit(options, format_ledger(ledger, colourful(STDOUT_FILENO), "solver: " + solver_version() + "\n"),
                {{"solver", solver_version()}, {"assumptions", assumptions_as_json()}, {"evidence", rows}},
                exit_code(ledger));
}

}  // namespace samesum
