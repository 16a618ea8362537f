// samesum run: one combine on real ranks, or the table of properties, or how many routings a second.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "impl/check/compare_with_model.hpp"
#include "impl/check/invariance_properties.hpp"
#include "impl/combine/planted_fault.hpp"
#include "impl/commands/commands.hpp"
#include "impl/commands/flags.hpp"
#include "model/arithmetic/random.hpp"
#include "model/support/files.hpp"
#include "model/support/progress.hpp"

namespace samesum::gpu {
namespace {

std::vector<Scheme> schemes_of(const Options& options) {
    const auto text = options.get<std::string>("scheme");
    // The fastest ordered scheme, whichever it is here, is judged as the one that assumes least.
    if (text == "auto" && !options.has("properties")) return {Scheme::gather_ordered};
    if (text == "all") return {all_schemes.begin(), all_schemes.end()};
    std::vector<Scheme> schemes;
    for (const std::string& word : list_of(text, "scheme")) schemes.push_back(parse_scheme(word));
    return schemes;
}

Routing routing_of(const Options& options, int ranks) {
    Routing routing;
    routing.hidden = options.get<std::uint64_t>("hidden");
    if (routing.hidden == 0) throw UsageError("--hidden 0; at least 1 would be right");
    routing.sizes = options.has("sizes") ? parse_sizes(options.get<std::string>("sizes"), ranks)
                                         : equal_sizes(options.get<std::uint64_t>("rows"), ranks);
    return routing;
}

/// The sizes are drawn anew for every routing, so that nothing can be kept from the one before.
void measure_routings(LiveRanks& ranks, CombineRun run, double seconds, std::uint64_t seed) {
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
    const double took = monotonic_seconds() - begin;
    fmt::print("{}: {} routings of {} x {} {} in {:.2f} s: {:.0f} a second\n", name(run.scheme), done, rows,
               run.routing.hidden, name(run.format), took, static_cast<double>(done) / took);
}

Exit properties(LiveRanks& ranks, const Options& options, const std::vector<Format>& formats) {
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
    if (const auto file = options.find<std::string>("json")) {
        nlohmann::ordered_json lines = nlohmann::ordered_json::array();
        for (const Evidence& evidence : ledger) {
            lines.emplace_back();
            to_json(lines.back(), evidence);
        }
        write_json(*file, {{"nccl", str(ranks.hardware().nccl)},
                           {"gpu", ranks.hardware().gpus.front()},
                           {"gpus", ranks.hardware().gpus.size()},
                           {"ranks", ranks.ranks()},
                           {"ranks_per_node", ranks.placement().ranks_per_node},
                           {"fault", table.fault},
                           {"ledger", lines}});
    }
    if (table.fault == "none") {
        fmt::print("{}", format_ledger(ledger, colourful(STDOUT_FILENO)));
        return exit_code(ledger);
    }
    // A planted fault is caught when a property that ought to hold does not.
    std::string by;
    for (const Evidence& evidence : ledger)
        if (evidence.expected == Verdict::upheld && evidence.verdict == Verdict::refuted &&
            by.find(evidence.claim) == std::string::npos)
            by += (by.empty() ? "" : ", ") + evidence.claim;
    fmt::print("fault {}: {}\n", table.fault, by.empty() ? "NOT CAUGHT" : "caught by " + by);
    return by.empty() ? Exit::not_as_claimed : Exit::as_claimed;
}

}  // namespace

Exit run_command(std::span<const std::string> arguments) {
    Options options(
        "run [flags]",
        "One combine on real ranks with real NCCL: prints a digest of each rank's rows and the first element\n"
        "whose bits are not the model's. With --properties, the table of what must hold for each scheme.",
        {"samesum run --scheme fixed_root --ranks 4 --sizes 3,0,5,1 --hidden 2048",
         "samesum run --scheme all --ranks 8 --rows 64 --dtype float16 --captured",
         "samesum run --scheme direct_ordered --by-node 2 --ranks 8", "samesum run --properties --ranks 4",
         "mpirun -np 8 samesum run --scheme exchange_ordered,direct_ordered",
         "torchrun --no-python --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST samesum run"});
    options.with_json();
    add_rank_flags(options, "4");
    options.add()("scheme", po::value<std::string>()->default_value("all"),
                  "a scheme, several by commas, all, or auto: the fastest that adds in rank order")(
        "sizes", po::value<std::string>(), "rows of each rank: 3,0,5,1")(
        "rows", po::value<std::uint64_t>()->default_value(64), "rows in all, shared equally, when --sizes is absent")(
        "hidden", po::value<std::uint64_t>()->default_value(2048), "elements of a row")(
        "dtype", po::value<std::string>()->default_value("bfloat16"), "a format, or several by commas")(
        "root", po::value<int>()->default_value(0), "of fixed_root and reduce_broadcast")(
        "rounding", po::value<std::string>()->default_value("per_hop"), "of the ordered schemes: per_hop, fp32_once")(
        "by-node", po::value<int>()->default_value(0),
        "sum over so many ranks of a node first, then over the nodes (0: over all ranks at once)")(
        "captured", "run it from a CUDA graph")("in-place", "let the result be the rank's own rows of its partial")(
        "shift", po::value<int>()->default_value(0), "elements by which buffers are off their alignment")(
        "delay-ms", po::value<double>()->default_value(0), "a producer still running on the stream")(
        "seed", po::value<std::uint64_t>()->default_value(1), "of the data")(
        "properties", "check the table of properties instead")("only", po::value<std::string>()->default_value(""),
                                                               "properties whose names contain this")(
        "cases", po::value<int>()->default_value(4), "cases of each property")(
        "speed", po::value<double>()->default_value(0), "instead: run random routings for so many seconds")(
        "fault", po::value<std::string>()->default_value("none"), "a planted mistake, in test builds");
    if (!options.parse(arguments)) return Exit::as_claimed;
    const LiveRanks::Options placing = rank_options(options, ranks_flag(options));
    const auto schemes = schemes_of(options);
    std::vector<Format> formats;
    for (const std::string& word : list_of(options.get<std::string>("dtype"), "dtype"))
        formats.push_back(parse_format(word));
    const Routing routing = options.has("properties") ? Routing{} : routing_of(options, placing.ranks);
    const NcclEnvironment environment = nccl_environment(options);
    if (const int root = options.get<int>("root"); root < 0 || root >= placing.ranks)
        throw UsageError(fmt::format("--root {}; 0 to {} would be right", root, placing.ranks - 1));
    const int in_node = options.get<int>("by-node");
    if (in_node < 0 || (in_node > 0 && placing.ranks % in_node != 0))
        throw UsageError(fmt::format("--by-node {}: {} ranks do not fill nodes of so many", in_node, placing.ranks));
    if (in_node > 0)
        for (const Scheme scheme : schemes)
            if (scheme != Scheme::exchange_ordered && scheme != Scheme::direct_ordered)
                throw UsageError(
                    fmt::format("--by-node: {} knows no nodes; --scheme exchange_ordered,direct_ordered "
                                "would be right",
                                name(scheme)));
    (void)parse_fault(options.get<std::string>("fault"));
    if (options.get<int>("cases") < 1) throw UsageError("--cases is less than 1; then nothing would be checked");

    const Hardware hardware = probe_hardware();
    LiveRanks ranks(placing, hardware);
    ranks.open(environment);
    fmt::print("{}", describe_run(ranks));
    if (options.has("properties")) return properties(ranks, options, formats);

    bool all_equal = true;
    std::uint64_t compared = 0;
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const Format format : formats)
        for (const Scheme scheme : schemes) {
            CombineRun run;
            run.scheme = scheme;
            run.fastest = options.get<std::string>("scheme") == "auto";
            run.routing = routing;
            run.format = format;
            run.root = options.get<int>("root");
            run.accumulation = parse_accumulation(options.get<std::string>("rounding"));
            run.fault = options.get<std::string>("fault");
            run.ranks_per_node = options.get<int>("by-node");
            run.captured = options.has("captured");
            run.in_place = options.has("in-place");
            run.shift = options.get<int>("shift");
            run.delay_s = options.get<double>("delay-ms") / 1000;
            run.guards = true;
            if (scheme == Scheme::reduce_scatter && !routing.equal_sizes() && schemes.size() > 1) {
                fmt::print("{}: skipped: takes equal sizes\n", name(scheme));
                continue;
            }
            if (options.get<double>("speed") > 0) {
                run.guards = false;
                measure_routings(ranks, run, options.get<double>("speed"), options.get<std::uint64_t>("seed"));
                ++compared;
                continue;
            }
            const auto partials = draw_partials(ranks, run, options.get<std::uint64_t>("seed"));
            const CombineOutcome outcome = ranks.combine(run);
            const auto result = ranks.result(routing.elements() * static_cast<std::uint64_t>(traits(format).bytes()));
            const auto difference =
                first_difference(described_communicator(ranks), run, partials, result, outcome.said);
            all_equal = all_equal && !difference && outcome.damage.empty();
            ++compared;
            fmt::print("{}{} {}: ", run.fastest ? "auto, that is " : "", outcome.ran, name(format));
            for (const std::uint64_t digest : outcome.digests) fmt::print("{:016x} ", digest);
            fmt::print("{}\n", difference ? difference->str(format)
                               : !outcome.damage.empty()
                                   ? outcome.damage
                                   : fmt::format("the model's bits, {} of {} elements",
                                                 (routing.elements() + stride_of(routing.elements()) - 1) /
                                                     stride_of(routing.elements()),
                                                 routing.elements()));
            if (!outcome.said.empty()) fmt::print("  NCCL: {}\n", outcome.said);
            rows.push_back({{"scheme", outcome.ran},
                            {"dtype", name(format)},
                            {"sizes", routing.sizes},
                            {"hidden", routing.hidden},
                            {"digests", outcome.digests},
                            {"nccl_says", outcome.said},
                            {"equals_model", !difference},
                            {"difference", difference ? difference->str(format) : ""}});
        }
    if (const auto file = options.find<std::string>("json"))
        write_json(*file, {{"nccl", str(hardware.nccl)},
                           {"gpu", hardware.gpus.front()},
                           {"rings", ranks.start_log().rings},
                           {"combines", rows}});
    if (compared == 0) return Exit::inconclusive;
    return all_equal ? Exit::as_claimed : Exit::not_as_claimed;
}

}  // namespace samesum::gpu
