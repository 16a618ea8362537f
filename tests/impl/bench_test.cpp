// samesum bench without a GPU: a saved run read back, its tables and its picture, and the README's copy of a table. And
// what the commands on real ranks answer without a device.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE impl_bench
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "model/combine/cost.hpp"
#include "model/support/temporary_folder.hpp"
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

BOOST_AUTO_TEST_CASE(a_saved_run_is_printed_as_it_was_measured) {
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
    // No NVLink domain has 1024 GPUs.
    const auto at_1024 = words_of_line(plan.out, "computed for 1024 ranks", "8 MiB");
    BOOST_TEST_REQUIRE(at_1024.size() == 2u + 8);
    BOOST_TEST(at_1024[2 + 6] == "-");
}

BOOST_AUTO_TEST_CASE(csv_and_json_files_hold_every_row) {
    namespace fs = std::filesystem;
    const fs::path folder = fs::path(SAMESUM_BINARY_DIR) / "bench";
    fs::create_directories(folder);
    const std::string csv = (folder / "bench.csv").string(), json = (folder / "bench.json").string();
    BOOST_TEST(run("bench --from " + kept + " --csv " + csv + " --json " + json).exit == 0);
    const std::string text = contents(csv);
    BOOST_TEST(std::count(text.begin(), text.end(), '\n') == 1 + static_cast<long>(kept_rows().size()));
    BOOST_TEST(nlohmann::json::parse(contents(json)).at("rows") == kept_rows());
}

BOOST_AUTO_TEST_CASE(json_holds_what_the_text_shows) {
    const auto alone = run("bench --plan 8,1024 --json - --from " + kept);
    BOOST_TEST_REQUIRE(alone.exit == 0, alone.err);
    const auto json = nlohmann::json::parse(alone.out);
    BOOST_TEST(json.at("rows") == kept_rows());
    BOOST_TEST_REQUIRE(json.at("table").size() == kept_rows().size());
    const auto direct = words_of_line(run("bench --from " + kept).out, "each rank receives 8 MiB", " direct_ordered ");
    bool found = false;
    for (const auto& row : json.at("table")) {
        if (row.at("received_bytes") != 8 << 20 || row.at("scheme") != "direct_ordered") continue;
        found = true;
        BOOST_TEST(row.at("size_bytes") == std::stoull(direct[0]));
        BOOST_TEST(row.at("count") == std::stoull(direct[1]));
        BOOST_TEST(std::abs(row.at("algbw_gbs").get<double>() - std::stod(direct[5])) < 0.06);
        BOOST_TEST(std::abs(row.at("to_reduce_scatter").get<double>() - std::stod(direct[8])) < 0.006);
        BOOST_TEST(std::abs(row.at("alpha_beta_us").get<double>() - std::stod(direct[12])) < 0.006);
    }
    BOOST_TEST(found);
    // 6 sizes; 8 schemes on 8 ranks, and without direct_ordered on 1024.
    BOOST_TEST(json.at("plan").at("lines").size() == 8u);
    BOOST_TEST(json.at("plan").at("computed").size() == 6u * (8 + 7));
}

BOOST_AUTO_TEST_CASE(the_picture_has_a_line_for_each_scheme_and_limit) {
    const TemporaryFolder folder("samesum-test");
    const std::string svg = folder.file("bench.svg");
    BOOST_TEST_REQUIRE(run("bench --from " + kept + " --svg " + svg).exit == 0);
    const std::string picture = contents(svg);
    BOOST_TEST(picture.starts_with("<svg "));
    BOOST_TEST(picture.ends_with("</svg>\n"));
    std::set<std::string> names;
    for (const auto& row : kept_rows()) names.insert(row.at("scheme").get<std::string>());
    for (const std::string& name : names) BOOST_TEST(picture.find(">" + name + "</text>") != std::string::npos, name);
    const auto count = [&](std::string_view text) {
        std::size_t found = 0;
        for (std::size_t at = picture.find(text); at != std::string::npos; at = picture.find(text, at + 1)) ++found;
        return found;
    };
    // Each line has a point for each row and one in the legend.
    BOOST_TEST(count("<circle ") == kept_rows().size() + names.size());
    BOOST_TEST(count("<path class=\"line\"") == 2 * names.size());
    BOOST_TEST(count("stroke-dasharray") == 2u * 3);
    // A folder that cannot be written is the user's error.
    BOOST_TEST(run("bench --from " + kept + " --svg /no/such/folder/x.svg").exit == 2);
}

BOOST_AUTO_TEST_CASE(text_from_a_file_is_escaped_in_the_picture) {
    const TemporaryFolder folder("samesum-test");
    auto json = nlohmann::json::parse(contents(std::string(SAMESUM_SOURCE_DIR) + "/" + kept));
    json["gpu"] = "</title><script>&\"";
    std::ofstream(folder.file("in.json")) << json;
    BOOST_TEST_REQUIRE(run("bench --from " + folder.file("in.json") + " --svg " + folder.file("out.svg")).exit == 0);
    const std::string picture = contents(folder.file("out.svg"));
    BOOST_TEST(picture.find("<script>") == std::string::npos);
    BOOST_TEST(picture.find("&lt;/title&gt;&lt;script&gt;&amp;&quot;") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(json_alone_ends_as_the_text_does) {
    for (const std::string command : {"run --ranks 2 --rows 2 --hidden 8 --scheme fixed_root",
                                      "reveal --ranks 2 --calls ar:8", "bench --ranks 2 --sizes 8K --repetitions 1"}) {
        BOOST_TEST_CONTEXT(command) {
            const auto text = run(command), json = run(command + " --json -");
            BOOST_TEST(json.exit == text.exit);
            if (text.exit != 3) {
                BOOST_TEST(nlohmann::json::accept(json.out));
                continue;
            }
            // No device, or no CUDA in this build.
            BOOST_TEST(json.out == "");
            BOOST_TEST(text.out == "");
            BOOST_TEST(std::count(json.err.begin(), json.err.end(), '\n') == 1, json.err);
            BOOST_TEST(json.err == text.err);
        }
    }
}
