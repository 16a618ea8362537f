// A file is checked field by field before anything is computed from it.
// SPDX-License-Identifier: Apache-2.0
#include "impl/commands/bench_results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/support/error.hpp"

namespace samesum::gpu {
namespace {

using Json = nlohmann::ordered_json;

BenchRow read_row(const Json& row) {
    return {row.at("received_bytes"),
            row.at("scheme"),
            row.at("median_us"),
            row.at("times_us").get<std::vector<double>>(),
            row.at("wrong"),
            row.at("compared"),
            row.value("difference", "")};
}

}  // namespace

const BenchRow* BenchResults::find(std::uint64_t received, std::string_view name) const {
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&](const BenchRow& each) { return each.received == received && each.name == name; });
    return row == rows.end() ? nullptr : &*row;
}

std::vector<std::uint64_t> BenchResults::sizes() const {
    std::vector<std::uint64_t> all;
    for (const BenchRow& row : rows)
        if (all.empty() || all.back() != row.received) all.push_back(row.received);
    return all;
}

std::optional<Scheme> scheme_named(std::string_view word) {
    if (word == "auto") return Scheme::direct_ordered;
    for (const Scheme scheme : all_schemes)
        if (name(scheme) == word) return scheme;
    return std::nullopt;
}

Json to_json(const BenchResults& results) {
    Json rows = Json::array();
    for (const BenchRow& row : results.rows) {
        rows.push_back({{"received_bytes", row.received},
                        {"scheme", row.name},
                        {"median_us", row.median_us},
                        {"times_us", row.times_us},
                        {"wrong", row.wrong},
                        {"compared", row.compared}});
        if (!row.difference.empty()) rows.back()["difference"] = row.difference;
    }
    return {{"nccl", results.nccl},
            {"cuda", results.cuda},
            {"driver", results.driver},
            {"gpu", results.gpu},
            {"gpus", results.gpus},
            {"environment", results.environment},
            {"ranks", results.ranks},
            {"dtype", name(results.format)},
            {"rounding", name(results.accumulation)},
            {"captured", results.captured},
            {"ranks_share_gpus", results.shares_gpus()},
            {"rows", rows}};
}

BenchResults read_results(const std::string& file) {
    constexpr std::string_view expected = "expected a file that bench --json wrote";
    std::ifstream in(file);
    if (!in) throw UsageError(fmt::format("--from {}: cannot be read", file));
    try {
        const Json json = Json::parse(in);
        BenchResults results;
        results.nccl = json.at("nccl");
        results.cuda = json.at("cuda");
        results.driver = json.at("driver");
        results.gpu = json.at("gpu");
        results.gpus = json.at("gpus");
        results.environment = json.at("environment").get<std::vector<std::string>>();
        results.ranks = json.at("ranks");
        results.format = parse_format(json.at("dtype").get<std::string>());
        results.accumulation = parse_accumulation(json.at("rounding").get<std::string>());
        results.captured = json.at("captured");
        for (const Json& each : json.at("rows")) {
            const BenchRow row = results.rows.emplace_back(read_row(each));
            if (!(row.median_us > 0) || row.received == 0)
                throw UsageError(fmt::format("--from {}: {} took {} us for {} bytes: expected more than 0", file,
                                             row.name, row.median_us, row.received));
        }
        if (results.ranks < 2 || results.rows.empty())
            throw UsageError(fmt::format("--from {}: {} ranks and {} rows: expected at least 2 ranks and 1 row", file,
                                         results.ranks, results.rows.size()));
        return results;
    } catch (const nlohmann::json::parse_error& error) {
        throw UsageError(fmt::format("--from {}: no JSON at byte {}: {}", file, error.byte, expected));
    } catch (const nlohmann::json::exception& error) {
        // "[json.exception.out_of_range.403] key 'rows' not found"
        const std::string_view what = error.what();
        throw UsageError(fmt::format("--from {}: {}: {}", file, what.substr(what.find(']') + 2), expected));
    }
}

}  // namespace samesum::gpu
