// Text and JSON are made of the same computed cells.
// SPDX-License-Identifier: Apache-2.0
#include "impl/commands/bench_tables.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "model/combine/cost.hpp"

namespace samesum::gpu {
namespace {

using Json = nlohmann::ordered_json;
using Lines = std::vector<std::pair<Scheme, AlphaBeta>>;

/// GB200 NVL72.
constexpr int largest_nvlink_domain = 72;

/// The alpha-beta line of every scheme that was measured at two sizes or more.
Lines fits(const BenchResults& results) {
    Lines all;
    const BenchRow* const launch = results.find(results.rows.front().received, "launch");
    for (const Scheme scheme : all_schemes) {
        std::vector<std::pair<std::uint64_t, double>> measured;
        for (const BenchRow& row : results.rows)
            if (row.name == name(scheme)) measured.emplace_back(row.received, row.median_us);
        if (measured.size() >= 2)
            all.emplace_back(scheme, fit(scheme, results.ranks, launch != nullptr ? launch->median_us : 0, measured));
    }
    return all;
}

/// What follows from one row; absent where it does not apply.
struct Computed {
    std::uint64_t size = 0, count = 0;  ///< of the whole buffer: bytes, elements
    std::optional<double> algbw_gbs, busbw_gbs, to_reduce_scatter, to_fixed_root, sent_bytes, alpha_beta_us;
    std::optional<int> hops;
};

Computed compute(const BenchResults& results, const BenchRow& row, const Lines& lines) {
    Computed cells;
    cells.size = row.received * static_cast<std::uint64_t>(results.ranks);
    cells.count = cells.size / static_cast<std::uint64_t>(traits(results.format).bytes());
    if (row.name != "launch") {
        cells.algbw_gbs = static_cast<double>(cells.size) / row.median_us / 1e3;
        cells.busbw_gbs = *cells.algbw_gbs * (results.ranks - 1) / results.ranks;
    }
    const auto ratio = [&](std::string_view to) {
        const BenchRow* const other = results.find(row.received, to);
        return other == nullptr ? std::nullopt : std::optional(row.median_us / other->median_us);
    };
    cells.to_reduce_scatter = ratio("reduce_scatter");
    cells.to_fixed_root = ratio("fixed_root");
    if (const auto scheme = scheme_named(row.name)) {
        const Traffic moves = traffic(*scheme, results.ranks, row.received);
        cells.sent_bytes = moves.sent;
        cells.hops = moves.hops;
        for (const auto& [which, line] : lines)
            if (which == *scheme) cells.alpha_beta_us = line.microseconds(moves);
    }
    return cells;
}

Lines table_lines(const BenchResults& results) { return results.sizes().size() >= 2 ? fits(results) : Lines{}; }

template <class Value>
std::string cell(const std::optional<Value>& value, int decimals, std::string_view absent) {
    return value ? fmt::format("{:.{}f}", static_cast<double>(*value), decimals) : std::string(absent);
}

/// Predicted microseconds; nothing for direct_ordered beyond the largest NVLink domain.
std::optional<double> predicted(Scheme scheme, const AlphaBeta& line, int ranks, std::uint64_t received) {
    if (scheme == Scheme::direct_ordered && ranks > largest_nvlink_domain) return std::nullopt;
    return line.microseconds(traffic(scheme, ranks, received));
}

}  // namespace

std::string short_bytes(std::uint64_t bytes) {
    for (const auto& [unit, size] : {std::pair{"GiB", 30}, std::pair{"MiB", 20}, std::pair{"KiB", 10}})
        if (bytes >> size > 0 && bytes % (std::uint64_t{1} << size) == 0)
            return fmt::format("{} {}", bytes >> size, unit);
    return fmt::format("{} B", bytes);
}

std::string heading(const BenchResults& results) {
    std::string text = fmt::format("# NCCL {}, CUDA {}, driver for CUDA {}, {} x {}\n", results.nccl, results.cuda,
                                   results.driver, results.gpus, results.gpu);
    for (const std::string& variable : results.environment) text += "# " + variable + "\n";
    text += fmt::format("# {} ranks, {}, {}, {}; medians of {} interleaved repetitions, the slowest rank's\n",
                        results.ranks, name(results.format), name(results.accumulation),
                        results.captured ? "CUDA graphs" : "eager", results.rows.front().times_us.size());
    if (results.shares_gpus())
        text += "# ranks share GPUs: these times do not show the schemes' speed with one GPU for each rank\n";
    return text;
}

std::string table(const BenchResults& results) {
    constexpr const char* layout =
        "{:>10} {:>11} {:<9} {:<17} {:>10} {:>7} {:>7} {:>6} {:>8} {:>8} {:>10} {:>5} {:>9}\n";
    const Lines lines = table_lines(results);
    std::string text = fmt::format(fmt::runtime(layout), "size", "count", "type", "scheme", "time", "algbw", "busbw",
                                   "#wrong", "/reduce", "/fixed", "sent", "hops", "alpha-");
    text += fmt::format(fmt::runtime(layout), "(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "", "_scatter",
                        "_root", "(B/rank)", "", "beta (us)");
    std::uint64_t size_above = 0;
    for (const BenchRow& row : results.rows) {
        if (row.received != size_above) text += fmt::format("# each rank receives {}\n", short_bytes(row.received));
        size_above = row.received;
        const Computed cells = compute(results, row, lines);
        text += fmt::format(fmt::runtime(layout), cells.size, cells.count, name(results.format),
                            scheme_named(row.name) ? row.name : "limit " + row.name,
                            fmt::format("{:.2f}", row.median_us), cell(cells.algbw_gbs, 1, ""),
                            cell(cells.busbw_gbs, 1, ""), row.wrong < 0 ? "-" : fmt::format("{}", row.wrong),
                            cell(cells.to_reduce_scatter, 2, "-"), cell(cells.to_fixed_root, 2, "-"),
                            cell(cells.sent_bytes, 0, ""), cell(cells.hops, 0, ""), cell(cells.alpha_beta_us, 2, ""));
    }
    return text;
}

Json table_json(const BenchResults& results) {
    const Lines lines = table_lines(results);
    Json rows = Json::array();
    for (const BenchRow& row : results.rows) {
        const Computed cells = compute(results, row, lines);
        Json each{
            {"received_bytes", row.received}, {"scheme", row.name}, {"size_bytes", cells.size}, {"count", cells.count}};
        const auto put = [&](const char* key, const auto& value) {
            if (value) each[key] = *value;
        };
        put("algbw_gbs", cells.algbw_gbs);
        put("busbw_gbs", cells.busbw_gbs);
        put("to_reduce_scatter", cells.to_reduce_scatter);
        put("to_fixed_root", cells.to_fixed_root);
        put("sent_bytes", cells.sent_bytes);
        put("hops", cells.hops);
        put("alpha_beta_us", cells.alpha_beta_us);
        rows.push_back(std::move(each));
    }
    return rows;
}

std::string csv(const BenchResults& results) {
    std::string text = "received_bytes,ranks,dtype,rounding,scheme,median_us,wrong,compared\n";
    for (const BenchRow& row : results.rows)
        text += fmt::format("{},{},{},{},{},{:.4f},{},{}\n", row.received, results.ranks, name(results.format),
                            name(results.accumulation), row.name, row.median_us, row.wrong, row.compared);
    return text;
}

std::string markdown(const BenchResults& results, std::string_view which) {
    const std::vector<std::uint64_t> sizes = results.sizes();
    std::string text = "| us, a rank receives |", rule = "|---|";
    for (const std::uint64_t received : sizes) {
        text += fmt::format(" {} |", short_bytes(received));
        rule += "--:|";
    }
    text += "\n" + rule + "\n";
    const auto line = [&](const std::string& label, auto&& cell_of) {
        text += fmt::format("| {} |", label);
        for (const std::uint64_t received : sizes) text += fmt::format(" {} |", cell_of(received));
        text += "\n";
    };
    for (const BenchRow& row : results.rows) {
        if (row.received != results.rows.front().received || row.name == "auto" || row.name == "launch") continue;
        line(scheme_named(row.name) ? "`" + row.name + "`" : "limit: " + row.name, [&](std::uint64_t received) {
            const BenchRow* const there = results.find(received, row.name);
            return there == nullptr ? std::string("-")
                                    : fmt::format("{:.{}f}", there->median_us, there->median_us < 100 ? 1 : 0);
        });
    }
    for (const char* other : {"reduce_scatter", "fixed_root"})
        line(fmt::format("`{}` / `{}`", which, other), [&](std::uint64_t received) {
            const BenchRow *const row = results.find(received, which), *const to = results.find(received, other);
            return row == nullptr || to == nullptr ? std::string("-")
                                                   : fmt::format("{:.2f}", row->median_us / to->median_us);
        });
    return text;
}

std::string plan(const BenchResults& results, const std::vector<int>& numbers) {
    const Lines lines = fits(results);
    std::string text = fmt::format(
        "measured on {} ranks: time = launches x launch + hops x alpha + sent / beta, all ranks joined alike\n"
        "{:<17} {:>11} {:>10} {:>12}\n",
        results.ranks, "scheme", "launch (us)", "alpha (us)", "beta (GB/s)");
    for (const auto& [scheme, line] : lines)
        text += fmt::format("{:<17} {:>11.2f} {:>10.2f} {:>12.1f}\n", name(scheme), line.launch_us, line.alpha_us,
                            line.beta_gbs);
    for (const int ranks : numbers) {
        text += fmt::format("computed for {} ranks, in us; rows: bytes that each rank receives\n{:>10}", ranks, "");
        for (const auto& [scheme, line] : lines) text += fmt::format(" {:>16}", name(scheme));
        text += "\n";
        for (const std::uint64_t received : results.sizes()) {
            text += fmt::format("{:>10}", short_bytes(received));
            for (const auto& [scheme, line] : lines)
                text += fmt::format(" {:>16}", cell(predicted(scheme, line, ranks, received), 1, "-"));
            text += "\n";
        }
    }
    return text;
}

Json plan_json(const BenchResults& results, const std::vector<int>& numbers) {
    const Lines lines = fits(results);
    Json parameters = Json::array(), computed = Json::array();
    for (const auto& [scheme, line] : lines)
        parameters.push_back({{"scheme", name(scheme)},
                              {"launch_us", line.launch_us},
                              {"alpha_us", line.alpha_us},
                              {"beta_gbs", line.beta_gbs}});
    for (const int ranks : numbers)
        for (const std::uint64_t received : results.sizes())
            for (const auto& [scheme, line] : lines)
                if (const auto microseconds = predicted(scheme, line, ranks, received))
                    computed.push_back({{"ranks", ranks},
                                        {"received_bytes", received},
                                        {"scheme", name(scheme)},
                                        {"computed_us", *microseconds}});
    return {
        {"formula", "launches x launch + hops x alpha + sent / beta"}, {"lines", parameters}, {"computed", computed}};
}

}  // namespace samesum::gpu
