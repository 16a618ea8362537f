// samesum run: one combine on real ranks, or the table of properties, or the number of routings per second.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "impl/check/compare_with_model.hpp"
#include "impl/check/invariance_properties.hpp"
#include "impl/combine/planted_fault.hpp"
#include "impl/commands/commands.hpp"
#include "impl/commands/flags.hpp"
#include "model/arithmetic/random.hpp"
#include "model/support/output.hpp"
#include "model/support/progress.hpp"

namespace samesum::gpu {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Scheme> schemes_of(const Options& options) {
    const auto text = options.get<std::string>("scheme");
    // All ordered schemes give the same bits: "auto" is compared with the one whose order assumes least.
    if (text == "auto" && !options.has("properties")) return {Scheme::gather_ordered};
    if (text == "all") return {all_schemes.begin(), all_schemes.end()};
    std::vector<Scheme> schemes;
    for (const std::string& word : list_of(text, "scheme")) schemes.push_back(parse_scheme(word));
    return schemes;
}

Routing routing_of(const Options& options, int ranks) {
    Routing routing;
    routing.hidden = options.get<std::uint64_t>("hidden");
    if (routing.hidden == 0) throw UsageError("--hidden 0: expected 1 or more");
    routing.sizes = options.has("sizes") ? parse_sizes(options.get<std::string>("sizes"), ranks)
                                         : equal_sizes(options.get<std::uint64_t>("rows"), ranks);
    return routing;
}

/// Throws UsageError for a combination of flags that no scheme can run.
void check_flags(const Options& options, int ranks, const std::vector<Scheme>& schemes) {
    if (const int root = options.get<int>("root"); root < 0 || root >= ranks)
        throw UsageError(fmt::format("--root {}: expected 0 to {}", root, ranks - 1));
    const int in_node = options.get<int>("by-node");
    if (in_node < 0 || (in_node > 0 && ranks % in_node != 0))
        throw UsageError(fmt::format("--by-node {}: expected a divisor of {} ranks, or 0", in_node, ranks));
    for (const Scheme scheme : schemes)
        if (in_node > 0 && scheme != Scheme::exchange_ordered && scheme != Scheme::direct_ordered)
            throw UsageError(fmt::format(
                "--by-node: {} cannot sum by node; expected --scheme exchange_ordered,direct_ordered", name(scheme)));
    (void)parse_fault(options.get<std::string>("fault"));
    if (const int cases = options.get<int>("cases"); cases < 1)
        throw UsageError(fmt::format("--cases {}: expected 1 or more", cases));
}

/// The flags' combine, but for scheme and format.
CombineRun run_of(const Options& options, const Routing& routing) {
    CombineRun run;
    run.fastest = options.get<std::string>("scheme") == "auto";
    run.routing = routing;
    run.root = options.get<int>("root");
    run.accumulation = parse_accumulation(options.get<std::string>("rounding"));
    run.fault = options.get<std::string>("fault");
    run.ranks_per_node = options.get<int>("by-node");
    run.captured = options.has("captured");
    run.in_place = options.has("in-place");
    run.shift = options.get<int>("shift");
    run.delay_s = options.get<double>("delay-ms") / 1000;
    run.guards = true;
    return run;
}

/// Random sizes for every routing, so that nothing can be reused from the one before.
Json measure_routings(LiveRanks& ranks, CombineRun run, double seconds, std::uint64_t seed, const LiveText& text) {
    Random random(seed);
    const std::uint64_t rows = run.routing.rows();
    (void)draw_partials(ranks, run, seed);
    (void)ranks.combine(run);
    std::uint64_t done = 0;
    const double begin = monotonic_seconds();
    while (monotonic_seconds() - begin < seconds) {
        if (run.scheme != Scheme::reduce_scatter) {
            std::fill(run.routing.sizes.begin(), run.routing.sizes.end(), 0);
            for (std::uint64_t row = 0; row < rows; ++row)
                ++run.routing.sizes[random.below(static_cast<std::uint64_t>(ranks.ranks()))];
        }
        (void)ranks.combine(run);
        ++done;
    }
    const double took = monotonic_seconds() - begin, per_second = static_cast<double>(done) / took;
    text.print(fmt::format("{}: {} routings of {} x {} {} in {:.2f} s: {:.0f} per second\n", name(run.scheme), done,
                           rows, run.routing.hidden, name(run.format), took, per_second));
    return {{"scheme", name(run.scheme)},   {"dtype", name(run.format)}, {"rows", rows},
            {"hidden", run.routing.hidden}, {"routings", done},          {"seconds", took},
            {"per_second", per_second}};
}

Exit check_table(LiveRanks& ranks, const Options& options, const std::vector<Format>& formats) {
    PropertyOptions table;
    table.schemes = schemes_of(options);
    table.formats = formats;
    table.seed = options.get<std::uint64_t>("seed");
    table.cases = options.get<int>("cases");
    table.by_node = options.get<int>("by-node");
    table.fault = options.get<std::string>("fault");
    table.only = options.get<std::string>("only");
    if (options.has("hidden")) table.hidden = options.get<std::uint64_t>("hidden");
    const std::vector<Evidence> ledger = check_properties(ranks, table);
    Json lines = Json::array();
    for (const Evidence& evidence : ledger) {
        lines.emplace_back();
        to_json(lines.back(), evidence);
    }
    Json json = run_json(ranks);
    json["fault"] = table.fault;
    json["ledger"] = std::move(lines);
    if (table.fault == "none")
        return emit(options, format_ledger(ledger, colourful(STDOUT_FILENO)), json, exit_code(ledger));

    // A planted fault is caught when a property that should hold does not.
    std::string by;
    for (const Evidence& evidence : ledger)
        if (evidence.expected == Verdict::upheld && evidence.verdict == Verdict::refuted &&
            by.find(evidence.claim) == std::string::npos)
            by += (by.empty() ? "" : ", ") + evidence.claim;
    json["caught_by"] = by;
    return emit(options, fmt::format("fault {}: {}\n", table.fault, by.empty() ? "NOT CAUGHT" : "caught by " + by),
                json, by.empty() ? Exit::not_as_claimed : Exit::as_claimed);
}

/// Runs one combine on random data and compares it with the model.
Json compare_one(LiveRanks& ranks, const CombineRun& run, std::uint64_t seed, const LiveText& text, bool& as_modelled) {
    const auto partials = draw_partials(ranks, run, seed);
    const CombineOutcome outcome = ranks.combine(run);
    const std::uint64_t elements = run.routing.elements(), compared = compared_elements(elements);
    const auto result = ranks.result(elements * static_cast<std::uint64_t>(traits(run.format).bytes()));
    const auto found = first_difference(described_communicator(ranks), run, partials, result, outcome.said);
    const std::string difference = found ? found->str(run.format) : "";
    as_modelled = !found && outcome.damage.empty();

    std::string digests;
    for (const std::uint64_t digest : outcome.digests) digests += fmt::format("{:016x} ", digest);
    text.print(fmt::format("{}{} {}: {}{}\n", run.fastest ? "auto: " : "", outcome.ran, name(run.format), digests,
                           found ? difference
                           : !outcome.damage.empty()
                               ? outcome.damage
                               : fmt::format("the model's bits, {} of {} elements", compared, elements)));
    if (!outcome.said.empty()) text.print(fmt::format("  NCCL: {}\n", outcome.said));
    return {{"scheme", outcome.ran},      {"auto", run.fastest},          {"dtype", name(run.format)},
            {"sizes", run.routing.sizes}, {"hidden", run.routing.hidden}, {"digests", outcome.digests},
            {"nccl_says", outcome.said},  {"equals_model", !found},       {"difference", difference},
            {"damage", outcome.damage},   {"compared", compared},         {"elements", elements}};
}

Options run_options() {
    Options options(
        "run [flags]",
        "One combine on real ranks with real NCCL: prints a digest of each rank's rows and the first element whose\n"
        "bits differ from the model's. With --properties, the table of the properties of each scheme.",
        {"samesum run --scheme fixed_root --ranks 4 --sizes 3,0,5,1 --hidden 2048",
         "samesum run --scheme all --ranks 8 --rows 64 --dtype float16 --captured",
         "samesum run --scheme direct_ordered --by-node 2 --ranks 8", "samesum run --properties --ranks 4",
         "mpirun -np 8 samesum run --scheme exchange_ordered,direct_ordered",
         "torchrun --no-python --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST samesum run"});
    options.with_json();
    add_rank_flags(options, "4");
    options.add()("scheme", po::value<std::string>()->default_value("all"),
                  "schemes, separated by commas; all; or auto: the fastest that adds in rank order")(
        "sizes", po::value<std::string>(), "rows of each rank: 3,0,5,1")(
        "rows", po::value<std::uint64_t>()->default_value(64), "rows in all, shared equally, without --sizes")(
        "hidden", po::value<std::uint64_t>()->default_value(2048), "elements of a row")(
        "dtype", po::value<std::string>()->default_value("bfloat16"), "formats, separated by commas")(
        "root", po::value<int>()->default_value(0), "of fixed_root and reduce_broadcast")(
        "rounding", po::value<std::string>()->default_value("per_hop"), "of the ordered schemes: per_hop, fp32_once")(
        "by-node", po::value<int>()->default_value(0),
        "sum first over this number of ranks of a node, then over the nodes (0: over all ranks at once)")(
        "captured", "run it from a CUDA graph")("in-place", "the result takes the place of the rank's own rows")(
        "shift", po::value<int>()->default_value(0), "elements by which the buffers are misaligned")(
        "delay-ms", po::value<double>()->default_value(0), "length of a producer kernel that still runs on the stream")(
        "seed", po::value<std::uint64_t>()->default_value(1), "of the data")(
        "properties", "check the table of properties instead")("only", po::value<std::string>()->default_value(""),
                                                               "properties whose names contain this")(
        "cases", po::value<int>()->default_value(4), "cases of each property")(
        "speed", po::value<double>()->default_value(0), "instead: run random routings for this number of seconds")(
        "fault", po::value<std::string>()->default_value("none"), "a planted fault, in test builds");
    return options;
}

}  // namespace

Exit run_command(std::span<const std::string> arguments) {
    Options options = run_options();
    if (!options.parse(arguments)) return Exit::as_claimed;
    const LiveRanks::Options placing = rank_options(options, ranks_flag(options));
    const auto schemes = schemes_of(options);
    const std::vector<Format> formats = formats_flag(options);
    const Routing routing = options.has("properties") ? Routing{} : routing_of(options, placing.ranks);
    const NcclEnvironment environment = nccl_environment(options);
    check_flags(options, placing.ranks, schemes);
    CombineRun run = run_of(options, routing);

    const LiveText text(options);
    LiveRanks ranks(placing, probe_hardware());
    ranks.open(environment);
    text.print(describe_run(ranks));
    if (options.has("properties")) return check_table(ranks, options, formats);

    const auto seed = options.get<std::uint64_t>("seed");
    const double speed_seconds = options.get<double>("speed");
    bool all_equal = true;
    Json combines = Json::array(), skipped = Json::array(), speeds = Json::array();
    for (const Format format : formats)
        for (const Scheme scheme : schemes) {
            run.scheme = scheme;
            run.format = format;
            if (scheme == Scheme::reduce_scatter && !routing.equal_sizes() && schemes.size() > 1) {
                text.print(fmt::format("{}: skipped: takes equal sizes\n", name(scheme)));
                skipped.push_back({{"scheme", name(scheme)}, {"dtype", name(format)}, {"why", "takes equal sizes"}});
            } else if (speed_seconds > 0) {
                run.guards = false;
                speeds.push_back(measure_routings(ranks, run, speed_seconds, seed, text));
            } else {
                bool as_modelled = false;
                combines.push_back(compare_one(ranks, run, seed, text, as_modelled));
                all_equal = all_equal && as_modelled;
            }
        }
    const bool nothing_ran = combines.empty() && speeds.empty();
    Json json = run_json(ranks);
    json["rings"] = ranks.start_log().rings;
    json["combines"] = std::move(combines);
    json["speed"] = std::move(speeds);
    json["skipped"] = std::move(skipped);
    return emit(options, "", json,
                nothing_ran ? Exit::inconclusive
                : all_equal ? Exit::as_claimed
                            : Exit::not_as_claimed);
}

}  // namespace samesum::gpu
