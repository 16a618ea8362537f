// samesum bench: nccl-tests' table for all combines side by side, measured in one run or read from a kept one.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "impl/check/compare_with_model.hpp"
#include "impl/commands/commands.hpp"
#include "impl/commands/flags.hpp"
#include "model/combine/cost.hpp"
#include "model/support/files.hpp"

namespace samesum::gpu {
namespace {

using Json = nlohmann::ordered_json;

/// One line of the table: a scheme, or a limit ("peer_read", "peer_write", "launch"), at one size.
struct Row {
    std::uint64_t received = 0;  ///< bytes of a rank's own chunk
    std::string name;
    double median_us = 0;
    std::vector<double> times_us;
    std::int64_t wrong = -1;  ///< elements that are not the model's; -1: not compared
    std::uint64_t compared = 0;
};

struct Bench {
    std::string nccl, gpu, cuda, driver;
    std::vector<std::string> environment;
    std::size_t gpus = 0;
    int ranks = 0;
    Format format = Format::bfloat16;
    Accumulation accumulation = Accumulation::per_hop;
    bool captured = true;
    std::vector<Row> rows;  ///< by size

    [[nodiscard]] const Row* find(std::uint64_t received, std::string_view name) const {
        const auto row = std::find_if(rows.begin(), rows.end(),
                                      [&](const Row& each) { return each.received == received && each.name == name; });
        return row == rows.end() ? nullptr : &*row;
    }
    [[nodiscard]] std::vector<std::uint64_t> sizes() const {
        std::vector<std::uint64_t> all;
        for (const Row& row : rows)
            if (all.empty() || all.back() != row.received) all.push_back(row.received);
        return all;
    }
    [[nodiscard]] bool shared() const { return static_cast<std::size_t>(ranks) > gpus; }
};

/// "auto" is judged and counted as what it stands for where NVLink joins all ranks.
std::optional<Scheme> scheme_named(std::string_view word) {
    if (word == "auto") return Scheme::direct_ordered;
    for (const Scheme scheme : all_schemes)
        if (name(scheme) == word) return scheme;
    return std::nullopt;
}

/// GB200 NVL72.
constexpr int largest_nvlink_domain = 72;

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// --- Kept runs ---

Json to_json(const Bench& bench) {
    Json rows = Json::array();
    for (const Row& row : bench.rows)
        rows.push_back({{"received_bytes", row.received},
                        {"scheme", row.name},
                        {"median_us", row.median_us},
                        {"times_us", row.times_us},
                        {"wrong", row.wrong},
                        {"compared", row.compared}});
    return {{"nccl", bench.nccl},
            {"cuda", bench.cuda},
            {"driver", bench.driver},
            {"gpu", bench.gpu},
            {"gpus", bench.gpus},
            {"environment", bench.environment},
            {"ranks", bench.ranks},
            {"dtype", name(bench.format)},
            {"rounding", name(bench.accumulation)},
            {"captured", bench.captured},
            {"rows", rows}};
}

Bench read_bench(const std::string& file) {
    std::ifstream in(file);
    if (!in) throw UsageError(fmt::format("--from {}: cannot be read", file));
    try {
        const Json json = Json::parse(in);
        Bench bench;
        bench.nccl = json.at("nccl");
        bench.cuda = json.at("cuda");
        bench.driver = json.at("driver");
        bench.gpu = json.at("gpu");
        bench.gpus = json.at("gpus");
        bench.environment = json.at("environment").get<std::vector<std::string>>();
        bench.ranks = json.at("ranks");
        bench.format = parse_format(json.at("dtype").get<std::string>());
        bench.accumulation = parse_accumulation(json.at("rounding").get<std::string>());
        bench.captured = json.at("captured");
        for (const Json& row : json.at("rows")) {
            bench.rows.push_back({row.at("received_bytes"), row.at("scheme"), row.at("median_us"),
                                  row.at("times_us").get<std::vector<double>>(), row.at("wrong"), row.at("compared")});
            const Row& last = bench.rows.back();
            if (!(last.median_us > 0) || last.received == 0)
                throw UsageError(fmt::format("--from {}: {} took {} us for {} bytes; more than 0 would be right", file,
                                             last.name, last.median_us, last.received));
        }
        if (bench.ranks < 2 || bench.rows.empty())
            throw UsageError(fmt::format("--from {}: {} ranks and {} rows; at least 2 and 1 would be right", file,
                                         bench.ranks, bench.rows.size()));
        return bench;
    } catch (const nlohmann::json::parse_error& error) {
        throw UsageError(fmt::format("--from {}: no JSON at byte {}; a file that bench --json wrote would be right",
                                     file, error.byte));
    } catch (const nlohmann::json::exception& error) {
        // "[json.exception.out_of_range.403] key 'rows' not found"
        const std::string_view what = error.what();
        throw UsageError(fmt::format("--from {}: {}; a file that bench --json wrote would be right", file,
                                     what.substr(what.find(']') + 2)));
    }
}

// --- Tables ---

std::string short_bytes(std::uint64_t bytes) {
    for (const auto& [unit, size] : {std::pair{"GiB", 30}, std::pair{"MiB", 20}, std::pair{"KiB", 10}})
        if (bytes >> size > 0 && bytes % (std::uint64_t{1} << size) == 0)
            return fmt::format("{} {}", bytes >> size, unit);
    return fmt::format("{} B", bytes);
}

std::string heading(const Bench& bench) {
    std::string text = fmt::format("# NCCL {}, CUDA {}, driver for CUDA {}, {} x {}\n", bench.nccl, bench.cuda,
                                   bench.driver, bench.gpus, bench.gpu);
    for (const std::string& variable : bench.environment) text += "# " + variable + "\n";
    text += fmt::format("# {} ranks, {}, {}, {}; medians of {} interleaved repetitions, the slowest rank's\n",
                        bench.ranks, name(bench.format), name(bench.accumulation),
                        bench.captured ? "CUDA graphs" : "eager", bench.rows.front().times_us.size());
    if (bench.shared())
        text += "# ranks share GPUs: these times say nothing about the schemes' speed on a GPU for each rank\n";
    return text;
}

/// The parameters of every scheme that was measured at two sizes or more.
std::vector<std::pair<Scheme, AlphaBeta>> fits(const Bench& bench) {
    std::vector<std::pair<Scheme, AlphaBeta>> all;
    const Row* const launch = bench.find(bench.rows.front().received, "launch");
    for (const Scheme scheme : all_schemes) {
        std::vector<std::pair<std::uint64_t, double>> measured;
        for (const Row& row : bench.rows)
            if (row.name == name(scheme)) measured.emplace_back(row.received, row.median_us);
        if (measured.size() >= 2)
            all.emplace_back(scheme, fit(scheme, bench.ranks, launch != nullptr ? launch->median_us : 0, measured));
    }
    return all;
}

/// nccl-tests' columns: size is the whole buffer; algbw = size / time, busbw = algbw (n - 1) / n.
std::string table(const Bench& bench) {
    const auto lines = bench.sizes().size() >= 2 ? fits(bench) : std::vector<std::pair<Scheme, AlphaBeta>>{};
    std::string text = fmt::format(
        "{:>10} {:>11} {:<9} {:<17} {:>10} {:>7} {:>7} {:>6} {:>8} {:>8} {:>10} {:>5} {:>9}\n", "size", "count", "type",
        "scheme", "time", "algbw", "busbw", "#wrong", "/reduce", "/fixed", "sent", "hops", "alpha-");
    text += fmt::format("{:>10} {:>11} {:<9} {:<17} {:>10} {:>7} {:>7} {:>6} {:>8} {:>8} {:>10} {:>5} {:>9}\n", "(B)",
                        "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "", "_scatter", "_root", "(B a rank)", "",
                        "beta (us)");
    const auto width = static_cast<std::uint64_t>(traits(bench.format).bytes());
    const auto ranks = static_cast<std::uint64_t>(bench.ranks);
    for (const std::uint64_t received : bench.sizes()) {
        text += fmt::format("# each rank receives {}\n", short_bytes(received));
        const auto ratio = [&](const Row& row, std::string_view to) {
            const Row* const other = bench.find(received, to);
            return other == nullptr ? std::string("-") : fmt::format("{:.2f}", row.median_us / other->median_us);
        };
        for (const Row& row : bench.rows) {
            if (row.received != received) continue;
            const std::uint64_t size = received * ranks;
            const double algbw = static_cast<double>(size) / row.median_us / 1e3;
            const auto scheme = scheme_named(row.name);
            std::string sent, hops, computed;
            if (scheme) {
                const Traffic moves = traffic(*scheme, bench.ranks, received);
                sent = fmt::format("{:.0f}", moves.sent);
                hops = fmt::format("{}", moves.hops);
                for (const auto& [which, line] : lines)
                    if (which == *scheme) computed = fmt::format("{:.2f}", line.microseconds(moves));
            }
            const bool moves_nothing = row.name == "launch";
            text +=
                fmt::format("{:>10} {:>11} {:<9} {:<17} {:>10.2f} {:>7} {:>7} {:>6} {:>8} {:>8} {:>10} {:>5} {:>9}\n",
                            size, size / width, name(bench.format), scheme ? row.name : "limit " + row.name,
                            row.median_us, moves_nothing ? "" : fmt::format("{:.1f}", algbw),
                            moves_nothing ? "" : fmt::format("{:.1f}", algbw * (bench.ranks - 1) / bench.ranks),
                            row.wrong < 0 ? "-" : fmt::format("{}", row.wrong), ratio(row, "reduce_scatter"),
                            ratio(row, "fixed_root"), sent, hops, computed);
        }
    }
    return text;
}

std::string csv(const Bench& bench) {
    std::string text = "received_bytes,ranks,dtype,rounding,scheme,median_us,wrong,compared\n";
    for (const Row& row : bench.rows)
        text += fmt::format("{},{},{},{},{},{:.4f},{},{}\n", row.received, bench.ranks, name(bench.format),
                            name(bench.accumulation), row.name, row.median_us, row.wrong, row.compared);
    return text;
}

/// Medians in microseconds as Markdown, a line for each scheme and limit; and the ratios of `which` to the two schemes
/// that vLLM chooses between.
std::string markdown(const Bench& bench, std::string_view which = "direct_ordered") {
    std::string text = "| us, a rank receives |", rule = "|---|";
    for (const std::uint64_t received : bench.sizes()) {
        text += fmt::format(" {} |", short_bytes(received));
        rule += "--:|";
    }
    text += "\n" + rule + "\n";
    const auto line = [&](const std::string& label, auto&& cell) {
        text += fmt::format("| {} |", label);
        for (const std::uint64_t received : bench.sizes()) text += fmt::format(" {} |", cell(received));
        text += "\n";
    };
    for (const Row& row : bench.rows) {
        if (row.received != bench.rows.front().received || row.name == "auto" || row.name == "launch") continue;
        line(scheme_named(row.name) ? "`" + row.name + "`" : "limit: " + row.name, [&](std::uint64_t received) {
            const Row* const there = bench.find(received, row.name);
            return there == nullptr ? std::string("-")
                                    : fmt::format("{:.{}f}", there->median_us, there->median_us < 100 ? 1 : 0);
        });
    }
    for (const char* other : {"reduce_scatter", "fixed_root"})
        line(fmt::format("`{}` / `{}`", which, other), [&](std::uint64_t received) {
            const Row *const row = bench.find(received, which), *const to = bench.find(received, other);
            return row == nullptr || to == nullptr ? std::string("-")
                                                   : fmt::format("{:.2f}", row->median_us / to->median_us);
        });
    return text;
}

/// What the alpha-beta lines through the measured points say about other numbers of ranks.
std::string plan(const Bench& bench, const std::vector<int>& numbers) {
    const auto lines = fits(bench);
    std::string text = fmt::format(
        "measured on {} ranks: time = launches x launch + hops x alpha + sent / beta, all ranks joined alike\n"
        "{:<17} {:>11} {:>10} {:>12}\n",
        bench.ranks, "scheme", "launch (us)", "alpha (us)", "beta (GB/s)");
    for (const auto& [scheme, line] : lines)
        text += fmt::format("{:<17} {:>11.2f} {:>10.2f} {:>12.1f}\n", name(scheme), line.launch_us, line.alpha_us,
                            line.beta_gbs);
    for (const int ranks : numbers) {
        text += fmt::format("computed for {} ranks, in us; rows: bytes that each rank receives\n{:>10}", ranks, "");
        for (const auto& [scheme, line] : lines) text += fmt::format(" {:>16}", name(scheme));
        text += "\n";
        for (const std::uint64_t received : bench.sizes()) {
            text += fmt::format("{:>10}", short_bytes(received));
            for (const auto& [scheme, line] : lines)
                // No NVLink domain is larger.
                text += scheme == Scheme::direct_ordered && ranks > largest_nvlink_domain
                            ? fmt::format(" {:>16}", "-")
                            : fmt::format(" {:>16.1f}", line.microseconds(traffic(scheme, ranks, received)));
            text += "\n";
        }
    }
    return text;
}

/// Drawn by gnuplot, which must be installed.
void plot(const Bench& bench, const std::string& file) {
    FILE* const gnuplot = ::popen("gnuplot", "w");
    if (gnuplot == nullptr) throw UsageError("--svg: gnuplot cannot be started");
    std::vector<std::string> names;
    for (const Row& row : bench.rows)
        if (row.received == bench.rows.front().received) names.push_back(row.name);
    std::string script = fmt::format(
        "set terminal svg noenhanced size 900,560 font 'sans-serif,13' background 'white'\n"
        "set output '{}'\nset logscale xy\nset key outside right\nset grid\n"
        "set format x '%.0b %BB'\nset xlabel 'bytes that each rank receives'\nset ylabel 'microseconds'\n"
        "set title '{} ranks on {} x {}, {}, NCCL {}'\nplot ",
        file, bench.ranks, bench.gpus, bench.gpu, name(bench.format), bench.nccl);
    for (std::size_t i = 0; i < names.size(); ++i)
        script += fmt::format("{}'-' with linespoints linewidth 2 {} title '{}'", i > 0 ? ", " : "",
                              scheme_named(names[i]) ? "" : "dashtype 2", names[i]);
    script += "\n";
    for (const std::string& name : names) {
        for (const Row& row : bench.rows)
            if (row.name == name) script += fmt::format("{} {}\n", row.received, row.median_us);
        script += "e\n";
    }
    std::fwrite(script.data(), 1, script.size(), gnuplot);
    if (::pclose(gnuplot) != 0)
        throw UsageError(
            fmt::format("--svg {}: gnuplot drew nothing; an installed gnuplot and a folder that can be "
                        "written would be right",
                        file));
}

// --- Measuring ---

/// "64M" as nccl-tests reads it: K, M, G are powers of 1024.
std::uint64_t bytes_of(const std::string& text, const char* flag) {
    std::string digits = text;
    int shift = 0;
    if (!digits.empty())
        for (const auto& [letter, power] : {std::pair{'K', 10}, std::pair{'M', 20}, std::pair{'G', 30}})
            if (std::toupper(static_cast<unsigned char>(digits.back())) == letter) shift = power;
    if (shift > 0) digits.pop_back();
    const std::uint64_t number = whole_number(digits, flag);
    if (number == 0 || number > (std::uint64_t{1} << 40) >> shift)
        throw UsageError(fmt::format("--{} {}; 1 to 1024G would be right", flag, text));
    return number << shift;
}

/// Whole buffers, in bytes, that every rank can take an equal part of.
std::vector<std::uint64_t> sizes_of(const Options& options, std::uint64_t unit) {
    std::vector<std::uint64_t> sizes;
    if (const auto list = options.find<std::string>("sizes")) {
        for (const std::string& word : list_of(*list, "sizes")) sizes.push_back(bytes_of(word, "sizes"));
    } else {
        const std::uint64_t begin = bytes_of(options.get<std::string>("begin"), "begin");
        const std::uint64_t end = bytes_of(options.get<std::string>("end"), "end");
        const auto factor = options.get<std::uint64_t>("factor");
        if (factor < 2) throw UsageError("--factor is less than 2; then sizes would not grow");
        if (end < begin) throw UsageError("--end is less than --begin; then nothing would be measured");
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

/// Runs each scheme once more, on drawn data, and compares with the model.
void compare(LiveRanks& ranks, const Bench& bench, std::vector<Row>& rows, std::uint64_t seed) {
    const auto width = static_cast<std::uint64_t>(traits(bench.format).bytes());
    CombineRun run;
    run.routing.sizes.assign(static_cast<std::size_t>(bench.ranks), 1);
    run.routing.hidden = rows.front().received / width;
    run.format = bench.format;
    run.accumulation = bench.accumulation;
    run.captured = bench.captured;
    const auto partials = draw_partials(ranks, run, seed);
    const auto comm = described_communicator(ranks);
    for (Row& row : rows) {
        const auto scheme = scheme_named(row.name);
        if (!scheme) continue;
        run.scheme = *scheme;
        run.fastest = row.name == "auto";
        const CombineOutcome outcome = ranks.combine(run);
        const std::uint64_t elements = run.routing.elements();
        const auto difference = first_difference(comm, run, partials, ranks.result(elements * width), outcome.said);
        row.wrong = difference ? static_cast<std::int64_t>(difference->elements) : 0;
        row.compared = (elements + stride_of(elements) - 1) / stride_of(elements);
        if (difference) fmt::print(stderr, "{}: {}\n", row.name, difference->str(bench.format));
    }
}

Bench measure(const Options& options) {
    const std::string number = std::to_string(options.get<int>("gpus"));
    const LiveRanks::Options placing = rank_options(options, options.has("gpus") ? number : ranks_flag(options));
    if (placing.ranks < 2) throw UsageError("a combine of one rank adds nothing; 2 ranks or more would be right");
    Bench bench;
    bench.format = parse_format(options.get<std::string>("dtype"));
    bench.accumulation = parse_accumulation(options.get<std::string>("rounding"));
    bench.captured = !options.has("eager");
    bench.ranks = placing.ranks;
    const auto width = static_cast<std::uint64_t>(traits(bench.format).bytes());
    const auto sizes = sizes_of(options, 16 * width * static_cast<std::uint64_t>(bench.ranks));
    const auto schemes = schemes_of(options);
    const NcclEnvironment environment = nccl_environment(options);
    BenchRun run{.schemes = schemes, .format = bench.format, .accumulation = bench.accumulation};
    run.captured = bench.captured;
    run.repetitions = options.get<int>("repetitions");
    const int iterations = options.get<int>("iters");
    if (run.repetitions < 1 || iterations < 0)
        throw UsageError("--repetitions and --iters; at least 1 and 0 would be right");

    const Hardware hardware = probe_hardware();
    LiveRanks ranks(placing, hardware);
    ranks.open(environment);
    bench.nccl = str(hardware.nccl);
    bench.cuda = hardware.runtime;
    bench.driver = hardware.driver;
    bench.gpu = hardware.gpus.front();
    bench.gpus = std::min(hardware.gpus.size(), static_cast<std::size_t>(bench.ranks));
    bench.environment = nccl_variables();
    for (const std::uint64_t size : sizes) {
        const std::uint64_t received = size / static_cast<std::uint64_t>(bench.ranks);
        run.hidden = received / width;
        run.iterations = iterations > 0 ? iterations : size >= (std::uint64_t{64} << 20) ? 10 : 20;
        std::vector<Row> rows;
        const auto times = ranks.bench(run);
        const auto add = [&](std::string_view name) {
            const auto& all = times.at(std::string(name));
            rows.push_back({received, std::string(name), median(all), all, -1, 0});
        };
        for (const std::string& scheme : schemes) add(scheme);
        for (const char* limit : {"peer_read", "peer_write", "launch"}) add(limit);
        if (!options.has("no-check")) compare(ranks, bench, rows, options.get<std::uint64_t>("seed"));
        if (::isatty(STDERR_FILENO) != 0)
            fmt::print(stderr, "\r{} of {}  ", short_bytes(received),
                       short_bytes(sizes.back() / static_cast<std::uint64_t>(bench.ranks)));
        bench.rows.insert(bench.rows.end(), rows.begin(), rows.end());
    }
    if (::isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r{:40}\r", "");
    return bench;
}

}  // namespace

Exit bench_command(std::span<const std::string> arguments) {
    Options options(
        "bench [flags]",
        "Time and bandwidth of all combines side by side, in nccl-tests' terms, with the limits of the hardware and\n"
        "each result compared with the model. Or the same from a kept run, and what follows for more ranks.",
        {"samesum bench -b 8K -e 128M -f 4 -g 2 --json bench.json",
         "samesum bench --sizes 2M,16M --scheme reduce_scatter,direct_ordered --dtype float32",
         "samesum bench --from bench.json --plan 8,72 --svg bench.svg"});
    options.with_json();
    add_rank_flags(options, "2");
    options.add()("begin,b", po::value<std::string>()->default_value("8K"), "smallest buffer in bytes: 8K, 1M")(
        "end,e", po::value<std::string>()->default_value("128M"), "largest buffer")(
        "factor,f", po::value<std::uint64_t>()->default_value(4), "from one size to the next")(
        "sizes", po::value<std::string>(), "these buffers instead, by commas")(
        "gpus,g", po::value<int>()->default_value(2), "nccl-tests' word for --ranks")(
        "scheme",
        po::value<std::string>()->default_value("reduce_scatter,reduce_per_owner,fixed_root,reduce_broadcast,"
                                                "gather_ordered,exchange_ordered,direct_ordered,exact"),
        "schemes by commas; auto: the fastest that adds in rank order")(
        "dtype", po::value<std::string>()->default_value("bfloat16"), "a format")(
        "rounding", po::value<std::string>()->default_value("per_hop"), "of the ordered schemes: per_hop, fp32_once")(
        "iters,n", po::value<int>()->default_value(0), "combines in one graph (0: 20, of large buffers 10)")(
        "repetitions", po::value<int>()->default_value(11), "of each graph, interleaved; the median counts")(
        "eager", "call by call instead of CUDA graphs")("no-check", "do not compare results with the model")(
        "seed", po::value<std::uint64_t>()->default_value(1), "of the compared data")(
        "from", po::value<std::string>(), "a file that --json wrote, instead of measuring")(
        "plan", po::value<std::string>(), "compute the times on so many ranks, by commas")(
        "markdown", "print a Markdown table of the medians instead")("csv", po::value<std::string>(),
                                                                     "also write comma-separated values")(
        "svg", po::value<std::string>(), "also draw time against size (by gnuplot)");
    if (!options.parse(arguments)) return Exit::as_claimed;
    std::vector<int> numbers;
    if (const auto list = options.find<std::string>("plan"))
        for (const std::string& word : list_of(*list, "plan")) {
            const std::uint64_t ranks = whole_number(word, "plan");
            if (ranks < 2 || ranks > 1'000'000)
                throw UsageError(fmt::format("--plan {}; 2 to 1000000 would be right", word));
            numbers.push_back(static_cast<int>(ranks));
        }
    const auto from = options.find<std::string>("from");
    const Bench bench = from ? read_bench(*from) : measure(options);
    if (options.has("markdown"))
        fmt::print("{}", markdown(bench));
    else
        fmt::print("{}{}", heading(bench), table(bench));
    if (!numbers.empty()) fmt::print("\n{}", plan(bench, numbers));
    if (const auto file = options.find<std::string>("json")) write_json(*file, to_json(bench));
    if (const auto file = options.find<std::string>("csv")) write_file(*file, csv(bench));
    if (const auto file = options.find<std::string>("svg")) plot(bench, *file);
    const bool wrong = std::any_of(bench.rows.begin(), bench.rows.end(), [](const Row& row) { return row.wrong > 0; });
    return wrong ? Exit::not_as_claimed : Exit::as_claimed;
}

}  // namespace samesum::gpu
