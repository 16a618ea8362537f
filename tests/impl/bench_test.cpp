// samesum bench without a GPU: a kept run read back, its tables, and the README's copy of one.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE impl_bench
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "model/combine/cost.hpp"
#include "tests/support/program.hpp"

using namespace samesum;
using samesum::testing::run;

namespace {

const std::string kept = "tests/golden/observed/h200x2-bench.json";

std::string contents(const std::string& file) {
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), {}};
}

nlohmann::json kept_rows() {
    return nlohmann::json::parse(contents(std::string(SAMESUM_SOURCE_DIR) + "/" + kept)).at("rows");
}

/// The first line that holds all words, and what follows them.
std::vector<std::string> words_of_line(const std::string& text, const std::string& after, const std::string& with) {
    std::istringstream stream(text);
    bool inside = false;
    for (std::string line; std::getline(stream, line);) {
        if (line.find(after) != std::string::npos) inside = true;
        if (!inside || line.find(with) == std::string::npos) continue;
        std::istringstream words(line);
        return {std::istream_iterator<std::string>(words), {}};
    }
    return {};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_kept_run_is_printed_as_it_was_measured) {
    const auto table = run("bench --from " + kept);
    BOOST_TEST_REQUIRE(table.exit == 0, table.err);
    BOOST_TEST(table.says("NCCL 2.28.9"));
    BOOST_TEST(table.says("NVIDIA H200"));
    // At 8 MiB a rank: size, count, type, scheme, time, algbw, busbw, wrong, two ratios, sent, hops, computed.
    const auto direct = words_of_line(table.out, "each rank receives 8 MiB", " direct_ordered ");
    BOOST_TEST_REQUIRE(direct.size() == 13u);
    double time = 0, reduce_scatter = 0;
    for (const auto& row : kept_rows()) {
        if (row.at("received_bytes") != 8 << 20) continue;
        if (row.at("scheme") == "direct_ordered") time = row.at("median_us");
        if (row.at("scheme") == "reduce_scatter") reduce_scatter = row.at("median_us");
    }
    BOOST_TEST(std::abs(std::stod(direct[4]) - time) < 0.006);
    BOOST_TEST(std::abs(std::stod(direct[5]) - (16 << 20) / time / 1e3) < 0.06);
    BOOST_TEST(std::abs(std::stod(direct[6]) - (8 << 20) / time / 1e3) < 0.06);
    BOOST_TEST(direct[7] == "0");
    BOOST_TEST(std::abs(std::stod(direct[8]) - time / reduce_scatter) < 0.006);
    BOOST_TEST(direct[11] == "1");
}

BOOST_AUTO_TEST_CASE(medians_are_medians_and_no_result_was_wrong) {
    std::size_t compared = 0;
    for (const auto& row : kept_rows()) {
        auto times = row.at("times_us").get<std::vector<double>>();
        BOOST_TEST_REQUIRE(times.size() == 11u);
        std::sort(times.begin(), times.end());
        BOOST_TEST(row.at("median_us").get<double>() == times[5]);
        if (row.at("wrong") == -1) continue;
        BOOST_TEST(row.at("wrong") == 0);
        BOOST_TEST(row.at("compared").get<std::uint64_t>() > 0u);
        ++compared;
    }
    BOOST_TEST(compared == 6u * 9);
}

BOOST_AUTO_TEST_CASE(the_readmes_table_is_what_bench_prints) {
    const auto table = run("bench --markdown --from " + kept);
    BOOST_TEST_REQUIRE(table.exit == 0, table.err);
    BOOST_TEST(contents(SAMESUM_SOURCE_DIR "/README.md").find(table.out) != std::string::npos,
               "the README does not have\n"
                   << table.out);
}

BOOST_AUTO_TEST_CASE(a_plan_is_computed_from_the_lines) {
    const auto plan = run("bench --plan 8,1024 --from " + kept);
    BOOST_TEST_REQUIRE(plan.exit == 0, plan.err);
    std::vector<std::pair<std::uint64_t, double>> measured;
    double launch = 0;
    for (const auto& row : kept_rows()) {
        if (row.at("scheme") == "exchange_ordered")
            measured.emplace_back(row.at("received_bytes").get<std::uint64_t>(), row.at("median_us").get<double>());
        if (row.at("scheme") == "launch" && launch == 0) launch = row.at("median_us");
    }
    const AlphaBeta line = fit(Scheme::exchange_ordered, 2, launch, measured);
    const auto at_8 = words_of_line(plan.out, "computed for 8 ranks", "8 MiB");
    // "8 MiB", then a column for each scheme in the order of all_schemes but for vllm_default.
    BOOST_TEST_REQUIRE(at_8.size() == 2u + 8);
    BOOST_TEST(std::abs(std::stod(at_8[2 + 5]) - line.microseconds(traffic(Scheme::exchange_ordered, 8, 8 << 20))) <
               0.06);
    // NVLink joins no 1024 GPUs.
    const auto at_1024 = words_of_line(plan.out, "computed for 1024 ranks", "8 MiB");
    BOOST_TEST_REQUIRE(at_1024.size() == 2u + 8);
    BOOST_TEST(at_1024[2 + 6] == "-");
}

BOOST_AUTO_TEST_CASE(files_for_machines_and_eyes) {
    namespace fs = std::filesystem;
    const fs::path folder = fs::path(SAMESUM_BINARY_DIR) / "bench";
    fs::create_directories(folder);
    const std::string csv = (folder / "bench.csv").string(), json = (folder / "bench.json").string();
    BOOST_TEST(run("bench --from " + kept + " --csv " + csv + " --json " + json).exit == 0);
    const std::string text = contents(csv);
    BOOST_TEST(std::count(text.begin(), text.end(), '\n') == 1 + static_cast<long>(kept_rows().size()));
    BOOST_TEST(nlohmann::json::parse(contents(json)).at("rows") == kept_rows());
    if (std::system("command -v gnuplot > /dev/null") == 0) {
        const std::string svg = (folder / "bench.svg").string();
        BOOST_TEST(run("bench --from " + kept + " --svg " + svg).exit == 0);
        BOOST_TEST(contents(svg).find("direct_ordered") != std::string::npos);
    } else {
        BOOST_TEST(run("bench --from " + kept + " --svg x.svg").complains("gnuplot"));
    }
}
