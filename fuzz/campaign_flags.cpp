// Every value is checked before the first case is drawn.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/campaign_flags.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <thread>
#include <tuple>
#include <utility>

#include "fuzz/live_backend.hpp"
#include "impl/commands/flags.hpp"
#include "impl/ranks/launched_job.hpp"
#include "model/support/error.hpp"
#include "model/support/hash.hpp"
#include "model/support/numbers.hpp"
#include "model/support/text.hpp"

namespace samesum::fuzz {
namespace {

using Words = std::vector<std::string>;

void add_campaign_flags(Options& options) {
    options.add()("list", "list the properties and stop")("property",
                                                          po::value<Words>()->composing()->value_name("GLOB"),
                                                          "only properties with such a name; may be repeated")(
        "cases", po::value<std::uint64_t>()->value_name("N"), "number of cases of each property (default: 1000)")(
        "seconds", po::value<double>()->value_name("S"), "run for this long instead")(
        "seed", po::value<std::string>()->default_value("1"), "a number, a commit's hash, or any word")(
        "replay", po::value<std::string>()->value_name("LINE"), "try one case, or all cases of a file")(
        "corpus", po::value<std::string>()->value_name("DIR"),
        "replay the findings in this folder first; write new ones to it")(
        "bundle", po::value<std::string>()->value_name("DIR"),
        "write a folder for each finding, to attach to a bug report: text, replay, versions, environment, JSON")(
        "junit", po::value<std::string>()->value_name("FILE"), "also write the answer as JUnit XML")(
        "shard", po::value<std::string>()->default_value("0/1")->value_name("I/N"),
        "try every Nth case, starting at case I")("schemes", po::value<std::string>()->value_name("LIST"),
                                                  "only properties of these schemes")(
        "shape", po::value<std::string>()->value_name("ROWSxHIDDEN"), "only calls of this shape, e.g. 64x2048")(
        "dtypes", po::value<std::string>()->value_name("LIST"), "only these formats, e.g. bfloat16,float32")(
        "jobs", po::value<int>(), "number of properties tried at a time (default: number of cores)")(
        "enumerate", po::value<std::string>()->value_name("WHICH"),
        "exhaustive checks of small sizes: none, some, all (default: all on the model, none on real ranks)")(
        "self-test", "only search for the planted faults; show each")(
        "ledger", "the short run that samesum verify includes: the main claims for 8 s or --cases");
}

void add_backend_flags(Options& options) {
    options.add()("backend", po::value<std::string>()->default_value("auto"),
                  "model; nccl: real ranks; plugin: a library's sum; auto: nccl if there is a GPU, else model")(
        "plugin", po::value<std::string>()->value_name("FILE"),
        "the library; compared with the order of --schemes (gather_ordered) in --dtypes (float32)")(
        "ranks", po::value<std::string>()->value_name("LIST"),
        "numbers of ranks (default on nccl: 2,4,8, or a launcher's)")(
        "ranks-per-node", po::value<int>()->default_value(0), "nccl: ranks per node, as in samesum run")(
        "graph-file", po::value<Words>()->composing()->value_name("FILE"),
        "nccl: also run with this NCCL_GRAPH_FILE; may be repeated")(
        "mps", po::value<std::string>()->default_value("auto"), "nccl: auto, on, off")(
        "timeout", po::value<double>()->default_value(60), "nccl: seconds after which a silent rank counts as hung")(
        "fault", po::value<std::string>()->default_value("none"), "nccl: a planted fault, in test builds");
}

/// A number, a commit's hash of which the first 16 hex digits count, or any other word by its hash.
std::uint64_t parse_seed(const std::string& word) {
    if (const auto seed = integer_in<std::uint64_t>(word)) return *seed;
    if (word.empty() || word.front() == '-' || word.find(' ') != std::string::npos)
        throw UsageError(fmt::format("--seed '{}': expected a number below 2^64, a commit's hash, or one word", word));
    const bool all_hex = std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
    if (word.size() >= 7 && word.size() <= 64 && all_hex)
        return integer_in<std::uint64_t>(std::string_view(word).substr(0, 16), 16).value();
    return fnv1a(word);
}

/// "i/n": shard i of n, counted from 0.
std::pair<std::uint64_t, std::uint64_t> parse_shard(const std::string& word) {
    if (const auto parts = split(word, '/'); parts.size() == 2) {
        const auto shard = integer_in<std::uint64_t>(parts[0]), shards = integer_in<std::uint64_t>(parts[1]);
        if (shard && shards && *shard < *shards) return {*shard, *shards};
    }
    throw UsageError(fmt::format("--shard '{}': expected I/N with I below N, e.g. 0/4 .. 3/4", word));
}

std::pair<std::uint64_t, std::uint64_t> parse_shape(const std::string& word) {
    const auto good = [](std::optional<std::uint64_t> number) { return number && *number >= 1 && *number <= 65536; };
    if (const auto parts = split(word, 'x'); parts.size() == 2) {
        const auto rows = integer_in<std::uint64_t>(parts[0]), hidden = integer_in<std::uint64_t>(parts[1]);
        if (good(rows) && good(hidden)) return {*rows, *hidden};
    }
    throw UsageError(fmt::format("--shape '{}': expected ROWSxHIDDEN, each from 1 to 65536, e.g. 64x2048", word));
}

std::vector<const Property*> chosen_properties(const Options& options, const Limits& limits) {
    std::vector<const Property*> chosen;
    const Words globs = options.find<Words>("property").value_or(Words{});
    for (const Property& property : properties()) {
        const bool wanted = globs.empty() ? property.headline || !options.has("ledger")
                                          : std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
                                                return ::fnmatch(glob.c_str(), property.name.c_str(), 0) == 0;
                                            });
        if (wanted && fits(property, limits)) chosen.push_back(&property);
    }
    if (chosen.empty())
        throw UsageError(
            fmt::format("--property '{}': no property with this name that --ranks and --schemes leave; samesum fuzz "
                        "--list lists all",
                        fmt::join(globs, "', '")));
    return chosen;
}

std::shared_ptr<Backend> live_backend(const Options& options, const Limits& limits) {
    LiveOptions live;
    // The model goes no further than 16.
    if (gpu::launched_job() != nullptr) live.ranks = {std::min(gpu::launched_job()->ranks(), 16)};
    if (!limits.ranks.empty()) live.ranks = limits.ranks;
    live.ranks_per_node = options.get<int>("ranks-per-node");
    live.graph_files = options.find<Words>("graph-file").value_or(Words{});
    live.mps = options.get<std::string>("mps");
    live.timeout_s = options.get<double>("timeout");
    live.fault = options.get<std::string>("fault");
    if (live.mps != "auto" && live.mps != "on" && live.mps != "off")
        throw UsageError(fmt::format("--mps '{}': expected auto, on or off", live.mps));
    if (live.ranks_per_node < 0)
        throw UsageError(fmt::format("--ranks-per-node {}: expected 0 or more", live.ranks_per_node));
    if (!(live.timeout_s > 0)) throw UsageError(fmt::format("--timeout {}: expected a time above 0", live.timeout_s));
    return nccl_backend(live);
}

std::shared_ptr<Backend> chosen_plugin(const Options& options, Limits& limits) {
    const auto file = options.find<std::string>("plugin");
    if (!file) throw UsageError("--backend plugin needs --plugin FILE, a shared library with a samesum_sum");
    // A library has one format and is compared with the order that it claims to have.
    if (limits.schemes.empty()) limits.schemes = {Scheme::gather_ordered};
    if (limits.formats.empty()) limits.formats = {Format::float32};
    if (limits.ranks.empty()) limits.ranks = {2, 4, 8};
    return plugin_backend(*file, limits.ranks);
}

}  // namespace

Options fuzz_flags() {
    Options options(
        "fuzz [flags]",
        "Tries every property on random cases: routings, rings, bit patterns. A case that differs is shrunk and\n"
        "printed with the line that replays it. Every run must also refute the false claims and catch the\n"
        "planted faults.",
        {"samesum fuzz --cases 1000", "samesum fuzz --property 'fixed_root_*' --seconds 60 --corpus findings",
         "samesum fuzz --seed $(git rev-parse HEAD) --shard 0/4 --junit fuzz.xml --json fuzz.json",
         "samesum fuzz --backend nccl --ranks 2,4,8 --seconds 600 --bundle bundles",
         "samesum fuzz --backend plugin --plugin ./libsum.so --schemes gather_ordered --dtypes bfloat16",
         "samesum fuzz --replay \"addition_is_associative dtype=bfloat16 x=4400,c400,3f80 a: by=tree "
         "tree=((0+1)+2) b: tree=(0+(1+2))\""});
    options.with_json();
    gpu::add_launcher_flag(options);
    add_campaign_flags(options);
    add_backend_flags(options);
    return options;
}

Limits limits_flags(const Options& options) {
    Limits limits;
    if (const auto list = options.find<std::string>("dtypes"))
        for (const std::string_view word : split(*list, ',')) {
            limits.formats.push_back(parse_format(word));
            if (!traits(limits.formats.back()).is_float)
                throw UsageError(fmt::format("--dtypes {}: expected floats only; integers add in any order", word));
        }
    if (const auto list = options.find<std::string>("schemes"))
        for (const std::string_view word : split(*list, ',')) limits.schemes.push_back(parse_scheme(word));
    if (const auto shape = options.find<std::string>("shape"))
        std::tie(limits.rows, limits.hidden) = parse_shape(*shape);
    if (const auto list = options.find<std::string>("ranks"))
        for (const std::string_view word : split(*list, ','))
            limits.ranks.push_back(static_cast<int>(whole_number(word, "--ranks", 1, 16)));
    return limits;
}

ChosenBackend backend_flags(const Options& options, Limits& limits) {
    const auto word = options.get<std::string>("backend");
    if (word == "model") return {std::make_shared<ModelBackend>(), {}};
    if (word == "nccl") return {live_backend(options, limits), {}};
    if (word == "plugin") return {chosen_plugin(options, limits), {}};
    if (word != "auto")
        throw UsageError(fmt::format("--backend '{}': expected one of: auto, model, nccl, plugin", word));
    if (options.has("ledger")) return {std::make_shared<ModelBackend>(), {}};
    try {
        return {live_backend(options, limits), {}};
    } catch (const Inconclusive& reason) {
        return {std::make_shared<ModelBackend>(), reason.what()};
    }
}

CampaignOptions campaign_flags(const Options& options, const Limits& limits, const std::shared_ptr<Backend>& backend) {
    const bool live = backend->setups() > 0;
    CampaignOptions campaign{.properties = chosen_properties(options, limits),
                             .cases = options.find<std::uint64_t>("cases"),
                             .seconds = options.find<double>("seconds"),
                             .seed = parse_seed(options.get<std::string>("seed")),
                             .limits = limits,
                             .backend = [=]() -> std::shared_ptr<Backend> {
                                 if (live) return backend;
                                 return std::make_shared<ModelBackend>();
                             }};
    if (campaign.cases && campaign.seconds) throw UsageError("--cases and --seconds: expected one of them");
    if (campaign.cases && *campaign.cases == 0) throw UsageError("--cases 0: expected 1 or more");
    if (campaign.seconds && !(*campaign.seconds > 0 && *campaign.seconds < 1e7))
        throw UsageError(fmt::format("--seconds {}: expected a time above 0", *campaign.seconds));
    if (!campaign.cases && !campaign.seconds) {
        if (options.has("ledger"))
            campaign.seconds = 8;
        else
            campaign.cases = 1000;
    }
    std::tie(campaign.shard, campaign.shards) = parse_shard(options.get<std::string>("shard"));
    campaign.jobs =
        options.find<int>("jobs").value_or(std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 64));
    if (campaign.jobs < 1 || campaign.jobs > 256)
        throw UsageError(fmt::format("--jobs {}: expected a number from 1 to 256", campaign.jobs));
    if (live) campaign.jobs = 1;
    return campaign;
}

Enumeration enumeration_flag(const Options& options, const CampaignOptions& campaign, bool live) {
    if (const auto word = options.find<std::string>("enumerate")) {
        if (*word == "none") return Enumeration::none;
        if (*word == "some") return Enumeration::some;
        if (*word == "all") return Enumeration::all;
        throw UsageError(fmt::format("--enumerate '{}': expected none, some or all", *word));
    }
    // Enumerations belong to whole campaigns, and to the first of several machines.
    const bool whole = !options.has("property") && !options.has("schemes") && campaign.shard == 0;
    if (!whole || live) return Enumeration::none;
    return options.has("ledger") ? Enumeration::some : Enumeration::all;
}

}  // namespace samesum::fuzz
