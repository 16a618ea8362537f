// samesum verify: everything that decides a claim, in one ledger.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "model/arithmetic/format.hpp"
#include "model/support/files.hpp"
#include "model/support/launcher.hpp"
#include "model/support/options.hpp"
#include "model/support/progress.hpp"
#include "proofs/claims/assumptions.hpp"
#include "proofs/claims/vllm_scenario.hpp"
#include "proofs/commands.hpp"
#include "proofs/engine/obligation.hpp"
#include "model/support/subprocess.hpp"

namespace samesum {
namespace {

namespace fs = std::filesystem;

/// A program that stands beside this one and decides claims of its own; it writes its ledger as JSON.
struct Sibling {
    std::string program;
    std::vector<std::string> arguments;  ///< the ledger's file is added as the value of --json
    std::string field;                   ///< of the JSON document that holds the ledger
    Evidence if_lost;                    ///< the line that stands for a ledger that did not come
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

/// Every scheme on real NCCL, judged by the model: on ranks of its own, or on those that a launcher started.
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

/// What the other processes of a launcher's job do: they keep ranks for the sibling that rank 0 runs, and leave the
/// verdict to rank 0.
Exit serve(const Sibling& live) {
    // Rank 0 may have other claims to decide first.
    ::setenv("SAMESUM_JOIN_SECONDS", "900", 0);
    std::vector<std::string> command{path_of(live)};
    command.insert(command.end(), live.arguments.begin(), live.arguments.end());
    (void)run_executable(command, 0);
    return Exit::as_claimed;
}

/// Runs the sibling and takes over its ledger. Where there is no GPU the live one has none: nothing, unless `required`.
std::vector<Evidence> ledger_of(const Sibling& sibling, double limit, bool required) {
    const auto lost = [&](std::string why) {
        Evidence row = sibling.if_lost;
        row.detail = std::move(why);
        return std::vector{row};
    };
    const std::string program = path_of(sibling);
    if (!fs::exists(program)) return required ? lost(sibling.program + " is not built here") : std::vector<Evidence>{};
    const std::string file =
        (fs::temp_directory_path() / fmt::format("{}-{}.json", sibling.program, ::getpid())).string();
    std::vector<std::string> command{program};
    command.insert(command.end(), sibling.arguments.begin(), sibling.arguments.end());
    command.insert(command.end(), {"--json", file});
    const ProgramResult run = run_executable(command, limit);
    std::vector<Evidence> ledger;
    std::string why = run.why.empty() ? fmt::format("{} left with exit code {} and no ledger", sibling.program,
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
        why = fmt::format("{}'s ledger is not readable: {}", sibling.program, error.what());
    }
    std::error_code ignored;
    fs::remove(file, ignored);
    return ledger.empty() ? lost(why) : ledger;
}

bool is_float_format(const std::string& scope) {
    return std::any_of(float_formats.begin(), float_formats.end(),
                       [&](Format format) { return scope.starts_with(name(format)); });
}

/// Lines of one claim that came out alike for several formats become one line; the shortest witness stands for all.
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
        "Decides every claim and prints the ledger: what was claimed, for what, how it was decided, what came\n"
        "out, and a witness with its replay line where something is refuted.",
        {"samesum verify", "samesum verify --json ledger.json", "samesum verify 'fixed_root_*'"});
    options.with_json().positional("CLAIM", -1);
    options.add()("backend", po::value<std::string>()->default_value("auto"),
                  "model; nccl: real ranks on this machine's GPUs as well; auto: as well where there are GPUs")(
        "seed", po::value<std::uint64_t>()->default_value(1), "of the random partials and cases")(
        "quick", "fewer random cases")("jobs", po::value<int>()->default_value(2), "claims at a time")(
        "launcher", po::value<std::string>()->default_value("auto"),
        "whose processes are the real ranks: as samesum run has it; rank 0 decides and prints");
    const bool leads = !launch || launch->rank == 0;
    if (!leads && std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) return Exit::as_claimed;
    if (!options.parse(arguments)) return Exit::as_claimed;
    const auto launcher = options.get<std::string>("launcher");
    check_launcher(launcher);
    const std::string backend = options.get<std::string>("backend");
    if (backend != "auto" && backend != "model" && backend != "nccl")
        throw UsageError(fmt::format("--backend '{}'; one of: auto, model, nccl", backend));
    const int parallel = options.get<int>("jobs");
    if (parallel < 1) throw UsageError("--jobs takes a number of 1 or more");
    const auto seed = options.get<std::uint64_t>("seed");
    const bool quick = options.has("quick");
    const std::vector<std::string> globs = options.words();

    const Sibling live = live_program(seed, launch, launcher);
    if (!leads) return backend != "model" && wanted(globs, live.if_lost.claim) ? serve(live) : Exit::as_claimed;

    constexpr double question_limit = 30;  // most take well under 1 s; a busy machine must not turn them red
    std::vector<Inquiry> inquiries;
    for (Inquiry& each : scenario_inquiries(seed))
        if (wanted(globs, each.if_lost.claim)) inquiries.push_back(std::move(each));
    std::vector<Obligation> chosen;
    for (const Obligation& obligation : obligations())
        if (!obligation.is_canary() && !obligation.slow && obligation.can_run() && wanted(globs, obligation.name))
            chosen.push_back(obligation);
    constexpr double fuzz_limit = 40, live_limit = 240;
    const auto add = [&](const Sibling& sibling, double limit, bool required) {
        if (wanted(globs, sibling.if_lost.claim))
            inquiries.push_back({sibling.if_lost, [=] { return ledger_of(sibling, limit, required); }, limit + 1});
    };
    for (const Obligation& obligation : chosen) inquiries.push_back(inquiry(obligation, question_limit));
    add(fuzz_program(seed, quick ? 100 : 300), fuzz_limit, true);
    if (backend != "model") add(live, live_limit, backend == "nccl");
    for (const Obligation& obligation : obligations())
        if (obligation.is_canary() && wanted(globs, obligation.name))
            inquiries.push_back(inquiry(obligation, question_limit));
    if (inquiries.empty()) throw UsageError(fmt::format("no claim is called '{}'; see samesum verify", globs.front()));

    Progress progress("verify");
    const std::vector<Evidence> lines = inquire(inquiries, parallel, [&](std::size_t done) {
        progress.update(fmt::format("{} of {} claims decided", done, inquiries.size()));
    });
    if (const auto file = options.find<std::string>("json")) {
        nlohmann::ordered_json rows = nlohmann::ordered_json::array();
        for (const Evidence& evidence : lines) rows.push_back(evidence);
        write_json(*file, {{"backend", backend},
                           {"seed", seed},
                           {"solver", solver_version()},
                           {"assumptions", assumptions_as_json()},
                           {"evidence", rows}});
        if (*file == "-") return exit_code(lines);
    }
    fmt::print("{}", format_ledger(merged(lines), colourful(STDOUT_FILENO), assumption_ledger(chosen, lines)));
    return exit_code(lines);
}

}  // namespace

Exit verify_command(std::span<const std::string> arguments) {
    const auto launch = this_launch(arguments);
    if (!launch || launch->rank == 0) return verify(arguments, launch);
    try {
        return verify(arguments, launch);
    } catch (const UsageError&) {
        return Exit::usage;  // rank 0 says what is wrong
    }
}

}  // namespace samesum
