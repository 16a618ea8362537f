// samesum fuzz: flags to a campaign, and a campaign to an exit code.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "fuzz/campaign.hpp"
#include "fuzz/commands.hpp"
#include "fuzz/live.hpp"
#include "fuzz/report.hpp"
#include "fuzz/small_worlds.hpp"
#include "impl/commands/flags.hpp"
#include "impl/ranks/launched_job.hpp"
#include "model/support/files.hpp"
#include "model/support/options.hpp"
#include "model/support/progress.hpp"

namespace samesum {
namespace {

using namespace fuzz;
namespace fs = std::filesystem;

/// A number, a commit's hash of which the first 16 hex digits count, or any other word by its hash.
std::uint64_t parse_seed(const std::string& word) {
    std::uint64_t seed = 0;
    const char* const end = word.data() + word.size();
    if (const auto [stop, error] = std::from_chars(word.data(), end, seed); error == std::errc{} && stop == end)
        return seed;
    const std::string digits = word.substr(0, 16);
    const bool all_hex = std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
    if (word.empty() || word.front() == '-' || word.find(' ') != std::string::npos)
        throw UsageError(fmt::format("--seed '{}': a number below 2^64, a commit's hash, or any other word", word));
    if (word.size() >= 7 && word.size() <= 64 && all_hex) {
        std::from_chars(digits.data(), digits.data() + digits.size(), seed, 16);
        return seed;
    }
    seed = 0xcbf29ce484222325;
    for (const char c : word) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return seed;
}

/// "i/n": shard i of n, counted from 0.
std::pair<std::uint64_t, std::uint64_t> parse_shard(const std::string& word) {
    std::uint64_t shard = 0, shards = 0;
    const char* const end = word.data() + word.size();
    const auto [slash, error] = std::from_chars(word.data(), end, shard);
    if (error == std::errc{} && slash != end && *slash == '/') {
        const auto [stop, second] = std::from_chars(slash + 1, end, shards);
        if (second == std::errc{} && stop == end && shard < shards) return {shard, shards};
    }
    throw UsageError(fmt::format("--shard '{}': reads like 0/4 .. 3/4", word));
}

Limits parse_limits(const Options& options) {
    Limits limits;
    const auto each_word = [](const std::string& text, auto visit) {
        for (std::size_t begin = 0; begin <= text.size();) {
            const std::size_t end = std::min(text.find(',', begin), text.size());
            visit(text.substr(begin, end - begin));
            begin = end + 1;
        }
    };
    if (const auto list = options.find<std::string>("dtypes"))
        each_word(*list, [&](const std::string& word) {
            limits.formats.push_back(parse_format(word));
            if (!traits(limits.formats.back()).is_float)
                throw UsageError(fmt::format("--dtypes {}: integers add in any order; floats only", word));
        });
    if (const auto list = options.find<std::string>("schemes"))
        each_word(*list, [&](const std::string& word) { limits.schemes.push_back(parse_scheme(word)); });
    if (const auto shape = options.find<std::string>("shape")) {
        const char* const end = shape->data() + shape->size();
        const auto [cross, first] = std::from_chars(shape->data(), end, limits.rows);
        bool good = first == std::errc{} && cross != end && *cross == 'x';
        if (good) {
            const auto [stop, second] = std::from_chars(cross + 1, end, limits.hidden);
            good = second == std::errc{} && stop == end;
        }
        if (!good || limits.rows < 1 || limits.rows > 65536 || limits.hidden < 1 || limits.hidden > 65536)
            throw UsageError(fmt::format("--shape '{}': ROWSxHIDDEN, each from 1 to 65536, e.g. 64x2048", *shape));
    }
    if (const auto list = options.find<std::string>("ranks"))
        each_word(*list, [&](const std::string& word) {
            int ranks = 0;
            const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), ranks);
            if (error != std::errc{} || stop != word.data() + word.size() || ranks < 1 || ranks > 16)
                throw UsageError(fmt::format("--ranks '{}': numbers from 1 to 16, e.g. 2,4,8", *list));
            limits.ranks.push_back(ranks);
        });
    return limits;
}

std::vector<const Property*> chosen_properties(const Options& options, const Limits& limits) {
    std::vector<const Property*> chosen;
    const auto globs = options.find<std::vector<std::string>>("property").value_or(std::vector<std::string>{});
    for (const Property& property : properties()) {
        const bool wanted = globs.empty() ? property.headline || !options.has("ledger")
                                          : std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
                                                return ::fnmatch(glob.c_str(), property.name.c_str(), 0) == 0;
                                            });
        if (wanted && fits(property, limits)) chosen.push_back(&property);
    }
    if (chosen.empty())
        throw UsageError(
            fmt::format("--property '{}' names no property that --ranks and --schemes leave; samesum fuzz --list "
                        "names them",
                        fmt::join(globs, "', '")));
    return chosen;
}

/// The backend that --backend names, and why it is not the one that auto would rather be.
std::shared_ptr<Backend> make_backend(const Options& options, Limits& limits, std::string& why_not) {
    const auto word = options.get<std::string>("backend");
    const auto of_live = [&] {
        LiveOptions live;
        // The model goes no further than 16.
        if (gpu::launched_job() != nullptr) live.ranks = {std::min(gpu::launched_job()->ranks(), 16)};
        if (!limits.ranks.empty()) live.ranks = limits.ranks;
        live.ranks_per_node = options.get<int>("ranks-per-node");
        live.graph_files = options.find<std::vector<std::string>>("graph-file").value_or(std::vector<std::string>{});
        live.mps = options.get<std::string>("mps");
        live.timeout_s = options.get<double>("timeout");
        live.fault = options.get<std::string>("fault");
        if (live.mps != "auto" && live.mps != "on" && live.mps != "off")
            throw UsageError(fmt::format("--mps '{}'; auto, on or off would be right", live.mps));
        if (live.ranks_per_node < 0) throw UsageError("--ranks-per-node is less than 0");
        if (!(live.timeout_s > 0)) throw UsageError("--timeout takes a time above 0");
        return nccl_backend(live);
    };
    if (word == "model") return std::make_shared<ModelBackend>();
    if (word == "nccl") return of_live();
    if (word == "plugin") {
        const auto file = options.find<std::string>("plugin");
        if (!file) throw UsageError("--backend plugin needs --plugin FILE, a shared library with a samesum_sum");
        // A library knows one format, and is held against the order that it is said to have.
        if (limits.schemes.empty()) limits.schemes = {Scheme::gather_ordered};
        if (limits.formats.empty()) limits.formats = {Format::float32};
        if (limits.ranks.empty()) limits.ranks = {2, 4, 8};
        return plugin_backend(*file, limits.ranks);
    }
    if (word != "auto") throw UsageError(fmt::format("--backend '{}'; one of: auto, model, nccl, plugin", word));
    if (options.has("ledger")) return std::make_shared<ModelBackend>();
    try {
        return of_live();
    } catch (const Inconclusive& reason) {
        why_not = reason.what();
        return std::make_shared<ModelBackend>();
    }
}

Exit list_properties(const Options& options) {
    std::size_t width = 0;
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const Property& property : properties()) {
        width = std::max(width, property.name.size());
        rows.push_back({{"property", property.name},
                        {"sentence", property.sentence},
                        {"scope", property.scope},
                        {"expected", name(property.expected)}});
    }
    if (const auto file = options.find<std::string>("json")) {
        write_json(*file, {{"properties", rows}});
        if (*file == "-") return Exit::as_claimed;
    }
    for (const Property& property : properties())
        fmt::print("{:<{}}  {:<7}  {}\n", property.name, width, name(property.expected), property.sentence);
    return Exit::as_claimed;
}

/// Replays one case; says what each side makes.
bool replay(const std::string& line, Backend& backend, bool aloud) {
    const Case c = parse_case(line);
    const Property& property = property_named(c.property);
    if (const std::string why = fuzz::objection(property, c); !why.empty())
        throw UsageError(fmt::format("case: it is none of {}: {}", property.name, why));
    const Comparison result = compare(c, backend);
    const bool as_claimed = result.same == (property.expected == Verdict::upheld);
    if (aloud) {
        fmt::print("{}\n", tell(about_column(c, result.column), backend));
        fmt::print("{}: {}; the sides {}, {}\n", property.name, property.sentence, result.same ? "agree" : "differ",
                   as_claimed ? "as claimed" : "not as claimed");
    }
    return as_claimed;
}

/// Lines that hold a case: those of a finding that begin with "case: ", else every line of the file.
std::vector<std::string> case_lines(const std::string& file) {
    const std::string text = read_file(file);
    std::vector<std::string> all, marked;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        const std::string line = text.substr(begin, end - begin);
        begin = end + 1;
        if (line.starts_with("case: "))
            marked.push_back(line.substr(6));
        else if (!line.empty() && line.front() != '#')
            all.push_back(line);
    }
    return marked.empty() ? all : marked;
}

/// Replays what earlier campaigns found. Returns how many did not come out as claimed.
std::size_t replay_corpus(const std::string& folder, Backend& backend, std::vector<Evidence>& evidence) {
    if (!fs::is_directory(folder)) throw UsageError(fmt::format("--corpus {}: no such folder", folder));
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder))
        if (entry.is_regular_file() && entry.path().extension() == ".txt") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    std::size_t replayed = 0, unfit = 0;
    std::string bad;
    for (const fs::path& file : files)
        for (const std::string& line : case_lines(file.string())) {
            bool good = false;
            try {
                good = replay(line, backend, false);
            } catch (const UsageError& error) {
                throw UsageError(fmt::format("{}: {}", file.string(), error.what()));
            } catch (const Inconclusive&) {
                ++unfit;  // found on a communicator that these ranks cannot have
                continue;
            }
            ++replayed;
            if (!good) bad += fmt::format("{}{}: {}", bad.empty() ? "" : "\n", file.filename().string(), line);
        }
    if (replayed > 0)
        evidence.push_back({.claim = "corpus",
                            .sentence = "what earlier campaigns found comes out as claimed now",
                            .scope = folder,
                            .expected = Verdict::upheld,
                            .verdict = bad.empty() ? Verdict::upheld : Verdict::refuted,
                            .decided_by = fmt::format("{} cases replayed", replayed),
                            .detail = unfit == 0 ? "" : fmt::format("{} of others are not for these ranks", unfit),
                            .witness = bad,
                            .replay = {},
                            .seconds = 0});
    return replayed;
}

void keep_findings(const std::string& folder, std::span<const Tally> tallies, const Head& head) {
    for (const Tally& tally : tallies) {
        if (!tally.finding || tally.property->expected == Verdict::refuted) continue;
        write_file((fs::path(folder) / (finding_name(tally) + ".txt")).string(), finding_file(head, tally));
    }
}

/// 1 for what came out otherwise, for canaries that live and for data that shows nothing; 3 for what was not decided.
Exit exit_of(std::span<const Evidence> evidence) {
    const bool hollow = std::any_of(evidence.begin(), evidence.end(), [](const Evidence& line) {
        return line.detail.starts_with("vacuous") || line.detail.starts_with("empty");
    });
    return evidence.empty() || hollow ? Exit::not_as_claimed : exit_code(evidence);
}

}  // namespace

Exit fuzz_command(std::span<const std::string> arguments) {
    Options options(
        "fuzz [flags]",
        "Tries every property on random cases: routings, rings, bit patterns. What differs is made small and printed\n"
        "with the line that replays it. False claims and planted faults must be found out in every run.",
        {"samesum fuzz --cases 1000", "samesum fuzz --property 'fixed_root_*' --seconds 60 --corpus findings",
         "samesum fuzz --seed $(git rev-parse HEAD) --shard 0/4 --junit fuzz.xml --json fuzz.json",
         "samesum fuzz --backend nccl --ranks 2,4,8 --seconds 600 --bundle bundles",
         "samesum fuzz --backend plugin --plugin ./libsum.so --schemes gather_ordered --dtypes bfloat16",
         "samesum fuzz --replay \"addition_is_associative dtype=bfloat16 x=4400,c400,3f80 a: by=tree "
         "tree=((0+1)+2) b: tree=(0+(1+2))\""});
    options.with_json();
    gpu::add_launcher_flag(options);
    options.add()("list", "name the properties")(
        "property", po::value<std::vector<std::string>>()->composing()->value_name("GLOB"),
        "only properties of such a name; may be repeated")("cases", po::value<std::uint64_t>()->value_name("N"),
                                                           "so many cases of each property (1000 if nothing is said)")(
        "seconds", po::value<double>()->value_name("S"), "for so long")(
        "seed", po::value<std::string>()->default_value("1"), "a number, a commit's hash, or any word")(
        "backend", po::value<std::string>()->default_value("auto"),
        "model; nccl: real ranks; plugin: a library's sum; auto: nccl where there is a GPU, else model")(
        "plugin", po::value<std::string>()->value_name("FILE"),
        "the library; it is held against --schemes (gather_ordered) in --dtypes (float32)")(
        "ranks-per-node", po::value<int>()->default_value(0), "of nccl: as samesum run has it")(
        "graph-file", po::value<std::vector<std::string>>()->composing()->value_name("FILE"),
        "of nccl: also run with this NCCL_GRAPH_FILE; may be repeated")(
        "mps", po::value<std::string>()->default_value("auto"), "of nccl: auto, on, off")(
        "timeout", po::value<double>()->default_value(60), "of nccl: seconds after which a silent rank is hung")(
        "fault", po::value<std::string>()->default_value("none"), "of nccl: a planted mistake, in test builds")(
        "replay", po::value<std::string>()->value_name("LINE"), "one case, or a file with cases")(
        "corpus", po::value<std::string>()->value_name("DIR"), "replay its findings first, write new ones to it")(
        "bundle", po::value<std::string>()->value_name("DIR"),
        "a folder for each finding, to attach to a bug report: text, replay, versions, environment, JSON")(
        "junit", po::value<std::string>()->value_name("FILE"), "also write the answer as JUnit XML")(
        "shard", po::value<std::string>()->default_value("0/1")->value_name("I/N"), "this machine's part of the cases")(
        "ranks", po::value<std::string>()->value_name("LIST"),
        "only so many ranks (of nccl, if nothing is said, 2,4,8 or a launcher's)")(
        "schemes", po::value<std::string>()->value_name("LIST"), "only properties of these schemes")(
        "shape", po::value<std::string>()->value_name("ROWSxHIDDEN"), "only calls of so many elements, e.g. 64x2048")(
        "dtypes", po::value<std::string>()->value_name("LIST"), "only these formats, e.g. bfloat16,float32")(
        "jobs", po::value<int>(), "properties at a time (all cores if nothing is said)")(
        "worlds", po::value<std::string>()->value_name("WHICH"),
        "small worlds tried whole: none, some, all (of whole campaigns on the model all, on real ranks none)")(
        "self-test", "only hunt the planted faults, and show each")(
        "ledger", "the short run that samesum verify takes over: the main claims for 8 s or --cases");
    if (!options.parse(arguments)) return Exit::as_claimed;
    if (options.has("list")) return list_properties(options);

    Limits limits = parse_limits(options);
    std::string why_model;
    const std::shared_ptr<Backend> backend = make_backend(options, limits, why_model);
    const bool live = backend->worlds() > 0;
    if (const auto line = options.find<std::string>("replay")) {
        std::error_code ignored;
        const bool file = *line == "-" || fs::is_regular_file(*line, ignored);
        const std::vector<std::string> lines = file ? case_lines(*line) : std::vector{*line};
        if (lines.empty()) throw UsageError(fmt::format("--replay {}: no case in the file", *line));
        bool as_claimed = true;
        for (const std::string& each : lines) as_claimed = replay(each, *backend, true) && as_claimed;
        return as_claimed ? Exit::as_claimed : Exit::not_as_claimed;
    }

    CampaignOptions campaign{.properties = chosen_properties(options, limits),
                             .cases = options.find<std::uint64_t>("cases"),
                             .seconds = options.find<double>("seconds"),
                             .seed = parse_seed(options.get<std::string>("seed")),
                             .limits = limits,
                             .backend = [&]() -> std::shared_ptr<Backend> {
                                 if (live) return backend;
                                 return std::make_shared<ModelBackend>();
                             }};
    if (campaign.cases && campaign.seconds) throw UsageError("--cases and --seconds: one of them");
    if (campaign.cases && *campaign.cases == 0) throw UsageError("--cases 0: a campaign tries 1 case or more");
    if (campaign.seconds && !(*campaign.seconds > 0 && *campaign.seconds < 1e7))
        throw UsageError("--seconds takes a time above 0");
    if (!campaign.cases && !campaign.seconds) {
        if (options.has("ledger"))
            campaign.seconds = 8;
        else
            campaign.cases = 1000;
    }
    std::tie(campaign.shard, campaign.shards) = parse_shard(options.get<std::string>("shard"));
    campaign.jobs =
        options.find<int>("jobs").value_or(std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 64));
    if (campaign.jobs < 1 || campaign.jobs > 256) throw UsageError("--jobs takes a number from 1 to 256");
    if (live) campaign.jobs = 1;

    // Whole worlds belong to whole campaigns, and to the first of several machines.
    const bool whole = !options.has("property") && !options.has("schemes") && campaign.shard == 0;
    Worlds worlds = !whole || live ? Worlds::none : options.has("ledger") ? Worlds::some : Worlds::all;
    if (const auto word = options.find<std::string>("worlds")) {
        if (*word != "none" && *word != "some" && *word != "all")
            throw UsageError(fmt::format("--worlds '{}'; none, some or all would be right", *word));
        worlds = *word == "none" ? Worlds::none : *word == "some" ? Worlds::some : Worlds::all;
    }

    const Head head{campaign.seed, commit(), backend->description(), versions()};
    const auto file = options.find<std::string>("json");
    const bool quiet = file && *file == "-";
    if (!quiet)
        fmt::print("# seed {}\n# commit {}\n# backend {}{}\n# {}\n", head.seed, head.commit, head.backend,
                   why_model.empty() ? "" : fmt::format(" (no nccl: {})", why_model), head.versions);

    std::vector<Evidence> evidence;
    const auto corpus = options.find<std::string>("corpus");
    if (corpus) replay_corpus(*corpus, *backend, evidence);
    std::vector<FaultSearch> hunts = hunt_faults(campaign.seed, 2000);
    std::string no_faults;
    if (live && options.has("self-test")) {
        try {
            for (FaultSearch& hunt : hunt_faults_of_ranks(*backend, campaign.seed, 2000))
                hunts.push_back(std::move(hunt));
        } catch (const UsageError& error) {
            no_faults = error.what();
        }
    }
    if (options.has("self-test")) {
        std::size_t caught = 0;
        for (const FaultSearch& hunt : hunts) {
            caught += hunt.caught;
            fmt::print("{:<28} {:<9} {:>5} cases of {}\n    {}\n", hunt.fault->name,
                       hunt.caught ? "caught" : "SURVIVED", hunt.cases, hunt.fault->property, hunt.fault->sentence);
        }
        fmt::print("{} of {} planted faults caught{}\n", caught, hunts.size(),
                   no_faults.empty() ? "" : "; none on the ranks: " + no_faults);
        return caught == hunts.size() ? Exit::as_claimed : Exit::not_as_claimed;
    }

    Progress progress("fuzz");
    const double began = monotonic_seconds();
    double shown = 0;
    campaign.progress = [&](std::span<const Tally> tallies) {
        if (monotonic_seconds() - shown < 0.1) return;
        shown = monotonic_seconds();
        std::uint64_t cases = 0, findings = 0;
        std::set<Combination> reached;
        for (const Tally& tally : tallies) {
            for (const auto& [combination, count] : tally.combinations) reached.insert(combination);
            cases += tally.cases;
            findings += tally.finding && tally.property->expected == Verdict::upheld;
        }
        const double seconds = monotonic_seconds() - began;
        std::string left;
        if (campaign.seconds) left = fmt::format(", {:.0f} s left", std::max(0.0, *campaign.seconds - seconds));
        if (campaign.cases)
            left = fmt::format(", {:.0f} %", 100.0 * static_cast<double>(cases * campaign.shards) /
                                                 static_cast<double>(*campaign.cases * tallies.size()));
        progress.update(fmt::format("{} cases, {:.0f} a second, {} combinations of NCCL's, {} findings{}", cases,
                                    static_cast<double>(cases) / std::max(seconds, 1e-3), reached.size(), findings,
                                    left));
    };
    const std::vector<Tally> tallies = run_campaign(campaign);
    const double seconds = monotonic_seconds() - began;

    std::string left_out;
    for (const Tally& tally : tallies)
        if (tally.cases == 0 && tally.trouble.empty() && tally.unfit > 0)
            left_out += (left_out.empty() ? "" : ", ") + tally.property->name;
        else
            evidence.push_back(evidence_of(tally, head.backend));
    evidence.push_back(evidence_of(hunts));
    for (Evidence& line : small_worlds(*backend, worlds)) evidence.push_back(std::move(line));
    if (corpus) keep_findings(*corpus, tallies, head);
    const nlohmann::ordered_json document = json_of(head, tallies, hunts, evidence);
    if (file) write_json(*file, document);
    if (const auto bundles = options.find<std::string>("bundle"))
        for (const std::string& bundle : write_bundles(*bundles, head, tallies, document))
            fmt::print(stderr, "samesum fuzz: {}: attach this folder to a report\n", bundle);
    if (const auto junit = options.find<std::string>("junit")) write_file(*junit, junit_of(head, evidence));
    if (quiet) return exit_of(evidence);
    std::uint64_t cases = 0;
    for (const Tally& tally : tallies) cases += tally.cases;
    if (!left_out.empty()) fmt::print("\nleft out, as the ranks here cannot show them: {}\n", left_out);
    if (!options.has("ledger"))
        fmt::print("\nwhat the cases were:\n{}\nwhat of NCCL they reached:\n{}\n", histogram_of(tallies),
                   coverage_of(tallies));
    fmt::print("{}", format_ledger(evidence, colourful(STDOUT_FILENO)));
    fmt::print("{} cases in {:.1f} s, {:.0f} a second, digest {:016x}\n", cases, seconds,
               static_cast<double>(cases) / std::max(seconds, 1e-3), digest_of(tallies));
    return exit_of(evidence);
}

}  // namespace samesum
