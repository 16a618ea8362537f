// samesum prove: the obligations, discharged, exported, or put to a second solver.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/support/files.hpp"
#include "model/support/options.hpp"
#include "model/support/progress.hpp"
#include "proofs/claims/assumptions.hpp"
#include "proofs/commands.hpp"
#include "proofs/engine/obligation.hpp"
#include "model/support/subprocess.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;

void list(std::span<const Obligation> chosen) {
    std::size_t name = 0, scope = 0;
    for (const Obligation& each : chosen) {
        name = std::max(name, each.name.size());
        scope = std::max(scope, each.scope.size());
    }
    for (const Obligation& each : chosen)
        fmt::print("{:<{}}  {:<{}}  {}\n", each.name, name, each.scope, scope, each.sentence);
    fmt::print("\n{}", assumption_ledger(chosen, {}));
}

Json as_json(const Obligation& obligation) {
    Json statements = Json::array();
    for (const Script& script : scripts(obligation)) statements.push_back(script.name);
    return {{"claim", obligation.name},        {"sentence", obligation.sentence},
            {"scope", obligation.scope},       {"expected", name(obligation.expected)},
            {"assumes", obligation.assumes()}, {"assumes_of_nccl", obligation.assumes_of_nccl},
            {"questions", statements},         {"exhausts", static_cast<bool>(obligation.exhaust)},
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
    if (error) throw UsageError(fmt::format("cannot make the folder {}: {}", folder, error.message()));
    for (const Script& script : all) write_file(fmt::format("{}/{}.smt2", folder, script.name), script.text);
}

/// Puts every question to a second solver. Only sat against unsat is a disagreement; what it does not answer is
/// counted.
Exit cross_check(const std::string& solver, std::vector<Script> all, double limit, int parallel) {
    const std::size_t unread =
        std::erase_if(all, [&](const Script& script) { return !second_solver_reads(solver, script.logic); });
    const std::vector<std::string> command = second_solver(solver);
    const std::string folder =
        fmt::format("{}/samesum-{}", std::filesystem::temp_directory_path().string(), ::getpid());
    export_to(folder, all);
    std::vector<Job> jobs;
    for (const Script& script : all)
        jobs.push_back({script.name,
                        [&script, &command, &folder, limit] {
                            const Answer answer =
                                check_with_second(command, fmt::format("{}/{}.smt2", folder, script.name), limit);
                            return fmt::format("{} {}", name(answer.satisfiable), answer.why);
                        },
                        0});
    Progress progress("cross-check");
    std::size_t done = 0;
    const auto results = run_jobs(jobs, parallel, [&](std::size_t, const ChildResult&) {
        progress.update(fmt::format("{} of {} questions", ++done, jobs.size()));
    });
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    std::size_t agree = 0, differ = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const std::string said = results[i].output.value_or("unknown " + results[i].why);
        const std::string word = said.substr(0, said.find(' '));
        if (all[i].expected == SatResult::unknown || word == name(all[i].expected)) {
            ++agree;
            continue;
        }
        differ += word == "unknown" ? 0 : 1;
        fmt::print("{}: expected {}, {} says {}\n", all[i].name, name(all[i].expected), solver, said);
    }
    fmt::print("{}: {} of {} questions answered as expected, {} disagreements\n", solver, agree, all.size(), differ);
    if (unread > 0) fmt::print("{} more questions are in logics that {} does not know\n", unread, solver);
    if (differ > 0) return Exit::not_as_claimed;
    return agree == all.size() && agree > 0 ? Exit::as_claimed : Exit::inconclusive;
}

}  // namespace

Exit prove_command(std::span<const std::string> arguments) {
    Options options(
        "prove [NAME...] [flags]",
        "Discharges obligations: first that their assumptions can hold, then that nothing contradicts them.\n"
        "A counterexample counts when the model confirms it; unknown and out of time are never green.",
        {"samesum prove", "samesum prove 'addition_*' --timeout 60", "samesum prove --export smt"});
    options.with_json().positional("NAME", -1);
    options.add()("list", "name the obligations and stop")("all", "also the slow ones, minutes in all")(
        "timeout", po::value<double>()->default_value(20)->value_name("S"), "seconds for each question to the solver")(
        "jobs", po::value<int>()->default_value(2), "obligations at a time")(
        "export", po::value<std::string>()->value_name("DIR"),
        "write each question as SMT-LIB 2.6 with its expected status, and stop")(
        "cross-check", po::value<std::string>()->value_name("SOLVER"),
        "put the questions to a second solver and compare: cvc5, bitwuzla, or a program's path");
    if (!options.parse(arguments)) return Exit::as_claimed;
    const double limit = options.get<double>("timeout");
    if (!(limit > 0)) throw UsageError("--timeout takes a number of seconds above 0");
    const int parallel = options.get<int>("jobs");
    if (parallel < 1) throw UsageError("--jobs takes a number of 1 or more");

    const std::vector<Obligation> chosen = selected(options.words(), options.has("all") || options.has("list"));
    if (options.has("list")) {
        if (const auto file = options.find<std::string>("json")) {
            Json rows = Json::array();
            for (const Obligation& each : chosen) rows.push_back(as_json(each));
            write_json(*file, {{"obligations", rows}, {"assumptions", assumptions_as_json()}});
            if (*file == "-") return Exit::as_claimed;
        }
        list(chosen);
        return Exit::as_claimed;
    }
    if (const auto folder = options.find<std::string>("export")) {
        const auto all = scripts_of(chosen);
        export_to(*folder, all);
        fmt::print("wrote {} questions to {}\n", all.size(), *folder);
        return Exit::as_claimed;
    }
    if (const auto program = options.find<std::string>("cross-check"))
        return cross_check(*program, scripts_of(chosen), limit, parallel);

    Progress progress("prove");
    std::vector<Inquiry> inquiries;
    for (const Obligation& obligation : chosen) inquiries.push_back(inquiry(obligation, limit));
    std::vector<Evidence> ledger = inquire(inquiries, parallel, [&](std::size_t done) {
        progress.update(fmt::format("{} of {} obligations", done, chosen.size()));
    });
    if (const auto file = options.find<std::string>("json")) {
        Json rows = Json::array();
        for (const Evidence& evidence : ledger) rows.push_back(evidence);
        write_json(*file, {{"solver", solver_version()}, {"assumptions", assumptions_as_json()}, {"evidence", rows}});
        if (*file == "-") return exit_code(ledger);
    }
    for (Evidence& line : ledger) line.decided_by += fmt::format(" in {:.1f} s", line.seconds);
    fmt::print("{}", format_ledger(ledger, colourful(STDOUT_FILENO), "solver: " + solver_version() + "\n"));
    return exit_code(ledger);
}

}  // namespace samesum
