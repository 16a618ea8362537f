// samesum bench: nccl-tests' table for all combines side by side, measured in one run or read from a file.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "impl/check/compare_with_model.hpp"
#include "impl/commands/bench_chart.hpp"
#include "impl/commands/bench_results.hpp"
#include "impl/commands/bench_tables.hpp"
#include "impl/commands/commands.hpp"
#include "impl/commands/flags.hpp"
#include "model/support/files.hpp"
#include "model/support/numbers.hpp"
#include "model/support/output.hpp"

namespace samesum::gpu {
namespace {

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// "64M" as nccl-tests reads it: K, M, G are powers of 1024.
std::uint64_t bytes_of(const std::string& text, const char* flag) {
    std::string digits = text;
    int shift = 0;
    if (!digits.empty())
        for (const auto& [letter, power] : {std::pair{'K', 10}, std::pair{'M', 20}, std::pair{'G', 30}})
            if (std::toupper(static_cast<unsigned char>(digits.back())) == letter) shift = power;
    if (shift > 0) digits.pop_back();
    const auto number = integer_in<std::uint64_t>(digits);
    if (!number || *number == 0 || *number > (std::uint64_t{1} << 40) >> shift)
        throw UsageError(fmt::format("--{} '{}': expected bytes from 1 to 1024G", flag, text));
    return *number << shift;
}

/// Whole buffers in bytes, rounded to a multiple of `unit` so that every rank receives an equal part.
std::vector<std::uint64_t> sizes_of(const Options& options, std::uint64_t unit) {
    std::vector<std::uint64_t> sizes;
    if (const auto list = options.find<std::string>("sizes")) {
        for (const std::string& word : list_of(*list, "sizes")) sizes.push_back(bytes_of(word, "sizes"));
    } else {
        const std::uint64_t begin = bytes_of(options.get<std::string>("begin"), "begin");
        const std::uint64_t end = bytes_of(options.get<std::string>("end"), "end");
        const auto factor = options.get<std::uint64_t>("factor");
        if (factor < 2) throw UsageError(fmt::format("--factor {}: expected 2 or more", factor));
        if (end < begin) throw UsageError("--end is less than --begin: expected --begin or more");
        for (std::uint64_t size = begin; size <= end; size *= factor) sizes.push_back(size);
    }
    for (std::uint64_t& size : sizes) size = std::max(unit, size / unit * unit);
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    return sizes;
}

std::vector<std::string> schemes_of(const Options& options) {
    auto schemes = list_of(options.get<std::string>("scheme"), "scheme");
    for (const std::string& word : schemes)
        if (word != "auto") (void)parse_scheme(word);
    return schemes;
}

/// Runs each scheme once more, on random data, and compares with the model.
void compare(LiveRanks& ranks, const BenchResults& results, std::vector<BenchRow>& rows, std::uint64_t seed) {
    const auto width = static_cast<std::uint64_t>(traits(results.format).bytes());
    CombineRun run;
    run.routing.sizes.assign(static_cast<std::size_t>(results.ranks), 1);
    run.routing.hidden = rows.front().received / width;
    run.format = results.format;
    run.accumulation = results.accumulation;
    run.captured = results.captured;
    const auto partials = draw_partials(ranks, run, seed);
    const auto comm = described_communicator(ranks);
    for (BenchRow& row : rows) {
        const auto scheme = scheme_named(row.name);
        if (!scheme) continue;
        run.scheme = *scheme;
        run.fastest = row.name == "auto";
        const CombineOutcome outcome = ranks.combine(run);
        const std::uint64_t elements = run.routing.elements();
        const auto difference = first_difference(comm, run, partials, ranks.result(elements * width), outcome.said);
        row.wrong = difference ? static_cast<std::int64_t>(difference->elements) : 0;
        row.compared = compared_elements(elements);
        if (!difference) continue;
        row.difference = difference->str(results.format);
        fmt::print(stderr, "{}: {}\n", row.name, row.difference);
    }
}

/// The schemes and limits at one size, timed and compared.
std::vector<BenchRow> measure_size(LiveRanks& ranks, const Options& options, const BenchResults& results,
                                   const BenchRun& run) {
    const auto times = ranks.bench(run);
    const std::uint64_t received = run.hidden * static_cast<std::uint64_t>(traits(run.format).bytes());
    std::vector<BenchRow> rows;
    const auto add = [&](const std::string& name) {
        const std::vector<double>& all = times.at(name);
        rows.push_back({received, name, median(all), all, -1, 0});
    };
    for (const std::string& scheme : run.schemes) add(scheme);
    for (const char* limit : {"peer_read", "peer_write", "launch"}) add(limit);
    if (!options.has("no-check")) compare(ranks, results, rows, options.get<std::uint64_t>("seed"));
    return rows;
}

BenchResults measure(const Options& options) {
    const std::string number = std::to_string(options.get<int>("gpus"));
    const LiveRanks::Options placing = rank_options(options, options.has("gpus") ? number : ranks_flag(options));
    if (placing.ranks < 2) throw UsageError("--ranks 1: a combine of one rank adds nothing; expected 2 or more");
    BenchResults results;
    results.format = parse_format(options.get<std::string>("dtype"));
    results.accumulation = parse_accumulation(options.get<std::string>("rounding"));
    results.captured = !options.has("eager");
    results.ranks = placing.ranks;
    const auto ranks_count = static_cast<std::uint64_t>(results.ranks);
    const auto width = static_cast<std::uint64_t>(traits(results.format).bytes());
    const auto sizes = sizes_of(options, 16 * width * ranks_count);
    const NcclEnvironment environment = nccl_environment(options);
    BenchRun run{.schemes = schemes_of(options), .format = results.format, .accumulation = results.accumulation};
    run.captured = results.captured;
    run.repetitions = options.get<int>("repetitions");
    const int iterations = options.get<int>("iters");
    if (run.repetitions < 1) throw UsageError(fmt::format("--repetitions {}: expected 1 or more", run.repetitions));
    if (iterations < 0) throw UsageError(fmt::format("--iters {}: expected 0 or more", iterations));

    const Hardware hardware = probe_hardware();
    LiveRanks ranks(placing, hardware);
    ranks.open(environment);
    results.nccl = str(hardware.nccl);
    results.cuda = hardware.runtime;
    results.driver = hardware.driver;
    results.gpu = hardware.gpus.front();
    results.gpus = std::min(hardware.gpus.size(), static_cast<std::size_t>(results.ranks));
    results.environment = nccl_variables();
    const bool terminal = ::isatty(STDERR_FILENO) != 0;
    for (const std::uint64_t size : sizes) {
        run.hidden = size / ranks_count / width;
        run.iterations = iterations > 0 ? iterations : size >= (std::uint64_t{64} << 20) ? 10 : 20;
        const std::vector<BenchRow> rows = measure_size(ranks, options, results, run);
        results.rows.insert(results.rows.end(), rows.begin(), rows.end());
        if (terminal)
            fmt::print(stderr, "\r{} of {}  ", short_bytes(size / ranks_count),
                       short_bytes(sizes.back() / ranks_count));
    }
    if (terminal) fmt::print(stderr, "\r{:40}\r", "");
    return results;
}

Options bench_options() {
    Options options(
        "bench [flags]",
        "Time and bandwidth of all combines side by side, in nccl-tests' terms, beside the limits of the hardware; "
        "each\n"
        "result is compared with the model. --from shows a saved run again; --plan computes times for more ranks.",
        {"samesum bench -b 8K -e 128M -f 4 -g 2 --json bench.json",
         "samesum bench --sizes 2M,16M --scheme reduce_scatter,direct_ordered --dtype float32",
         "samesum bench --from bench.json --plan 8,72 --svg bench.svg"});
    options.with_json();
    add_rank_flags(options, "2");
    options.add()("begin,b", po::value<std::string>()->default_value("8K"), "smallest buffer in bytes: 8K, 1M")(
        "end,e", po::value<std::string>()->default_value("128M"), "largest buffer")(
        "factor,f", po::value<std::uint64_t>()->default_value(4), "from one size to the next")(
        "sizes", po::value<std::string>(), "these buffers instead, separated by commas")(
        "gpus,g", po::value<int>()->default_value(2), "--ranks under nccl-tests' name")(
        "scheme",
        po::value<std::string>()->default_value("reduce_scatter,reduce_per_owner,fixed_root,reduce_broadcast,"
                                                "gather_ordered,exchange_ordered,direct_ordered,exact"),
        "schemes, separated by commas; auto: the fastest that adds in rank order")(
        "dtype", po::value<std::string>()->default_value("bfloat16"), "a format")(
        "rounding", po::value<std::string>()->default_value("per_hop"), "of the ordered schemes: per_hop, fp32_once")(
        "iters,n", po::value<int>()->default_value(0), "combines in one graph (0: 20, of large buffers 10)")(
        "repetitions", po::value<int>()->default_value(11), "of each graph, interleaved; the median counts")(
        "eager", "call by call instead of CUDA graphs")("no-check", "do not compare results with the model")(
        "seed", po::value<std::uint64_t>()->default_value(1), "of the compared data")(
        "from", po::value<std::string>(), "a file that --json wrote, instead of measuring")(
        "plan", po::value<std::string>(), "also compute the times for these numbers of ranks, separated by commas")(
        "markdown", "print a Markdown table of the medians instead")(
        "csv", po::value<std::string>(), "also write comma-separated values")("svg", po::value<std::string>(),
                                                                              "also draw time against size");
    return options;
}

}  // namespace

Exit bench_command(std::span<const std::string> arguments) {
    Options options = bench_options();
    if (!options.parse(arguments)) return Exit::as_claimed;
    std::vector<int> numbers;
    if (const auto list = options.find<std::string>("plan"))
        for (const std::string& word : list_of(*list, "plan"))
            numbers.push_back(static_cast<int>(whole_number(word, "--plan", 2, 1'000'000)));
    const auto from = options.find<std::string>("from");
    const BenchResults results = from ? read_results(*from) : measure(options);

    std::string text = options.has("markdown") ? markdown(results) : heading(results) + table(results);
    nlohmann::ordered_json json = to_json(results);
    json["table"] = table_json(results);
    if (!numbers.empty()) {
        text += "\n" + plan(results, numbers);
        json["plan"] = plan_json(results, numbers);
    }
    if (const auto file = options.find<std::string>("csv")) write_file(*file, csv(results));
    if (const auto file = options.find<std::string>("svg")) write_file(*file, chart(results));
    const bool wrong =
        std::any_of(results.rows.begin(), results.rows.end(), [](const BenchRow& row) { return row.wrong > 0; });
    return emit(options, text, json, wrong ? Exit::not_as_claimed : Exit::as_claimed);
}

}  // namespace samesum::gpu
