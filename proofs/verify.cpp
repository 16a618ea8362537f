// samesum verify: decides every claim and prints one ledger.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "model/arithmetic/format.hpp"
#include "model/support/files.hpp"
#include "model/support/launcher.hpp"
#include "model/support/options.hpp"
#include "model/support/output.hpp"
#include "model/support/progress.hpp"
#include "model/support/subprocess.hpp"
#include "model/support/temporary_folder.hpp"
#include "proofs/claims/assumptions.hpp"
#include "proofs/claims/vllm_scenario.hpp"
#include "proofs/commands.hpp"
#include "proofs/engine/obligation.hpp"

namespace samesum {
namespace {

namespace fs = std::filesystem;

/// A program beside this one that decides claims of its own; it writes its ledger as JSON.
struct Sibling {
    std::string program;
    std::vector<std::string> arguments;  ///< the ledger's file is added as the value of --json
    std::string field;                   ///< of the JSON document; holds the ledger
    Evidence if_lost;                    ///< the line to use if there is no ledger
};

Sibling fuzz_program(std::uint64_t seed, std::uint64_t cases) {
    return {"samesum-fuzz",
            {"fuzz", "--ledger", "--cases", fmt::format("{}", cases), "--seed", fmt::format("{}", seed), "--launcher",
             "none"},
            "evidence",
            {.claim = "fuzz_properties",
             .sentence = "the properties that samesum-fuzz tries on random cases",
             .scope = "random routings, bits, rings",
             .decided_by = "not decided",
             .detail = {},
             .witness = {},
             .replay = "samesum fuzz"}};
}

/// Every scheme on real NCCL, compared with the model: on its own ranks, or on those that a launcher started.
Sibling live_program(std::uint64_t seed, const std::optional<Launch>& launch, const std::string& launcher) {
    Sibling live{"samesum-impl",
                 {"run", "--properties", "--cases", "2", "--seed", fmt::format("{}", seed), "--launcher"},
                 "ledger",
                 {.claim = "properties_on_nccl",
                  .sentence = "what must hold for each scheme on real ranks",
                  .scope = fmt::format("{} ranks", launch ? launch->ranks : 4),
                  .decided_by = "not decided",
                  .detail = {},
                  .witness = {},
                  .replay = "samesum run --properties"}};
    if (launch)
        live.arguments.push_back(launcher);
    else
        live.arguments.insert(live.arguments.end(), {"none", "--ranks", "4"});
    return live;
}

std::string path_of(const Sibling& sibling) {
    return (fs::read_symlink("/proc/self/exe").parent_path() / sibling.program).string();
}

/// What the other processes of a launcher's job do: they run ranks for the sibling that rank 0 runs; rank 0 decides.
Exit serve(const Sibling& live) {
    // Rank 0 may have other claims to decide first.
    ::setenv("SAMESUM_JOIN_SECONDS", "900", 0);
    std::vector<std::string> command{path_of(live)};
    command.insert(command.end(), live.arguments.begin(), live.arguments.end());
    (void)run_executable(command, 0);
    return Exit::as_claimed;
}

/// Runs the sibling and returns its ledger. Without a GPU the live one has none: nothing then, unless `required`.
std::vector<Evidence> ledger_of(const Sibling& sibling, double limit, bool required) {
    const auto lost = [&](std::string why) {
        Evidence row = sibling.if_lost;
        row.detail = std::move(why);
        return std::vector{row};
    };
    const std::string program = path_of(sibling);
    if (!fs::exists(program)) return required ? lost(sibling.program + " is not built here") : std::vector<Evidence>{};
    const TemporaryFolder folder;
    const std::string file = folder.file("ledger.json");
    std::vector<std::string> command{program};
    command.insert(command.end(), sibling.arguments.begin(), sibling.arguments.end());
    command.insert(command.end(), {"--json", file});
    const ProgramResult run = run_executable(command, limit);
    std::vector<Evidence> ledger;
    std::string why = run.why.empty() ? fmt::format("{} ended with exit code {} and without a ledger", sibling.program,
                                                    run.exit_code.value_or(-1))
                                      : sibling.program + ": " + run.why;
    try {
        if (run.exit_code && fs::exists(file)) {
            const auto document = nlohmann::ordered_json::parse(read_file(file));
            for (const auto& line : document.at(sibling.field)) ledger.push_back(evidence_from_json(line));
        } else if (run.exit_code == static_cast<int>(Exit::inconclusive)) {
            if (!required) return {};
            why = "no usable GPU on this machine";
        }
    } catch (const std::exception& error) {
        ledger.clear();
        why = fmt::format("cannot read the ledger of {}: {}", sibling.program, error.what());
    }
    return ledger.empty() ? lost(why) : ledger;
}

bool is_float_format(const std::string& scope) {
    return std::any_of(float_formats.begin(), float_formats.end(),
                       [&](Format format) { return scope.starts_with(name(format)); });
}

/// Merges lines of one claim with the same result for several formats; keeps the shortest witness.
std::vector<Evidence> merged(const std::vector<Evidence>& ledger) {
    std::vector<Evidence> result;
    std::vector<std::size_t> formats;
    for (const Evidence& line : ledger) {
        const auto same = std::find_if(result.begin(), result.end(), [&](const Evidence& earlier) {
            return earlier.claim == line.claim && earlier.expected == line.expected &&
                   earlier.verdict == line.verdict && line.as_claimed() && is_float_format(earlier.scope) &&
                   is_float_format(line.scope);
        });
        if (same == result.end()) {
            result.push_back(line);
            if (line.claim.starts_with("canary_") && line.as_claimed()) result.back().witness.clear();
            formats.push_back(1);
            continue;
        }
        ++formats[static_cast<std::size_t>(same - result.begin())];
        same->scope += ", " + line.scope;
        if (line.decided_by.size() > same->decided_by.size()) same->decided_by = line.decided_by;
        if (line.witness.size() < same->witness.size()) same->witness = line.witness;
        same->seconds += line.seconds;
    }
    for (std::size_t i = 0; i < result.size(); ++i)
        if (formats[i] == float_formats.size()) result[i].scope = "all 6 float formats";
    return result;
}

bool wanted(std::span<const std::string> globs, const std::string& claim) {
    return globs.empty() || std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
               return ::fnmatch(glob.c_str(), claim.c_str(), 0) == 0;
           });
}

Exit verify(std::span<const std::string> arguments, const std::optional<Launch>& launch) {
    Options options(
        "verify [CLAIM...] [flags]",
        "Decides every claim and prints the ledger: the claim, its scope, how it was decided, the result, and\n"
        "for refuted claims a witness with a line that replays it.",
        {"samesum verify", "samesum verify --json ledger.json", "samesum verify 'fixed_root_*'"});
    options.with_json().positional("CLAIM", -1);
    options.add()("backend", po::value<std::string>()->default_value("auto"),
                  "model; nccl: also real ranks on this machine's GPUs; auto: nccl if there are GPUs")(
        "seed", po::value<std::uint64_t>()->default_value(1), "seed of the random partials and cases")(
        "quick", "fewer random cases")("jobs", po::value<int>()->default_value(2), "number of claims at a time")(
        "launcher", po::value<std::string>()->default_value("auto"),
        "the launcher that started the ranks, as in samesum run; rank 0 decides and prints");
    const bool leads = !launch || launch->rank == 0;
    if (!leads && std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) return Exit::as_claimed;
    if (!options.parse(arguments)) return Exit::as_claimed;
    const auto launcher = options.get<std::string>("launcher");
    check_launcher(launcher);
    const std::string backend = options.get<std::string>("backend");
    if (backend != "auto" && backend != "model" && backend != "nccl")
        throw UsageError(fmt::format("--backend '{}': expected auto, model or nccl", backend));
    const int parallel = options.get<int>("jobs");
    if (parallel < 1) throw UsageError(fmt::format("--jobs {}: expected 1 or more", parallel));
    const auto seed = options.get<std::uint64_t>("seed");
    const bool quick = options.has("quick");
    const std::vector<std::string> globs = options.words();

    const Sibling live = live_program(seed, launch, launcher);
    if (!leads) return backend != "model" && wanted(globs, live.if_lost.claim) ? serve(live) : Exit::as_claimed;

    constexpr double query_limit = 30;  // most take well under 1 s; a busy machine must not exceed it
    std::vector<LedgerJob> jobs;
    for (LedgerJob& each : scenario_jobs(seed))
        if (wanted(globs, each.if_lost.claim)) jobs.push_back(std::move(each));
    std::vector<Obligation> chosen;
    for (const Obligation& obligation : obligations())
        if (!obligation.is_canary() && !obligation.slow && obligation.can_run() && wanted(globs, obligation.name))
            chosen.push_back(obligation);
    constexpr double fuzz_limit = 40, live_limit = 240;
    const auto add = [&](const Sibling& sibling, double limit, bool required) {
        if (wanted(globs, sibling.if_lost.claim))
            jobs.push_back({sibling.if_lost, [=] { return ledger_of(sibling, limit, required); }, limit + 1});
    };
    for (const Obligation& obligation : chosen) jobs.push_back(ledger_job(obligation, query_limit));
    add(fuzz_program(seed, quick ? 100 : 300), fuzz_limit, true);
    if (backend != "model") add(live, live_limit, backend == "nccl");
    for (const Obligation& obligation : obligations())
        if (obligation.is_canary() && wanted(globs, obligation.name))
            jobs.push_back(ledger_job(obligation, query_limit));
    if (jobs.empty()) throw UsageError(fmt::format("unknown claim '{}'; samesum verify lists all", globs.front()));

    Progress progress("verify");
    const std::vector<Evidence> lines = run_ledger_jobs(jobs, parallel, [&](std::size_t done) {
        progress.update(fmt::format("{} of {} claims decided", done, jobs.size()));
    });
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const Evidence& evidence : lines) rows.push_back(evidence);
    const std::string assumptions = assumption_ledger(chosen, lines);
    return emit(options, format_ledger(merged(lines), colourful(STDOUT_FILENO), assumptions),
                {{"backend", backend},
                 {"seed", seed},
                 {"solver", solver_version()},
                 {"assumptions", assumptions_as_json()},
                 {"assumptions_text", assumptions},
                 {"evidence", rows}},
                exit_code(lines));
}

}  // namespace

Exit verify_command(std::span<const std::string> arguments) {
    const auto launch = this_launch(arguments);
    if (!launch || launch->rank == 0) return verify(arguments, launch);
    try {
        return verify(arguments, launch);
    } catch (const UsageError&) {
        return Exit::usage;  // rank 0 reports it
    }
}

}  // namespace samesum
