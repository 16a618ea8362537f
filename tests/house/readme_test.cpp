// The README tells the truth: its ledger is what verify prints, its commands exist, its files are there.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE readme
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <vector>

#include "tests/support/program.hpp"

using samesum::testing::run;
using samesum::testing::run_line;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

const std::string readme = [] {
    std::ifstream stream(SAMESUM_SOURCE_DIR "/README.md");
    return std::string(std::istreambuf_iterator<char>(stream), {});
}();

/// The words of a ledger line, whatever their columns.
std::string words(const std::string& line) { return std::regex_replace(line, std::regex(" +"), " "); }

}  // namespace

BOOST_AUTO_TEST_CASE(the_ledger_is_what_verify_prints) {
    if (!std::filesystem::exists(SAMESUM_BINARY_DIR "/samesum-fuzz")) {
        BOOST_TEST_MESSAGE("skipped: without RapidCheck there is no samesum-fuzz, and its claims stay open");
        return;
    }
    const auto ledger = run("verify");
    BOOST_TEST(ledger.exit == 0, ledger.out << ledger.err);
    std::string printed;
    for (const std::string& line : lines_of(ledger.out)) printed += words(line) + "\n";
    bool inside = false;
    std::size_t compared = 0;
    for (const std::string& line : lines_of(readme)) {
        if (line.starts_with("```")) {
            inside = line == "```ledger";
            continue;
        }
        if (!inside) continue;
        ++compared;
        BOOST_TEST(printed.find(words(line) + "\n") != std::string::npos, "verify does not print: " << line);
    }
    BOOST_TEST(compared > 20u);
}

BOOST_AUTO_TEST_CASE(its_commands_exist) {
    std::size_t commands = 0;
    for (const std::string& line : lines_of(readme)) {
        std::smatch found;
        static const std::regex form("^samesum ((order|sum) [a-z]+|prove|fuzz|reveal|run|verify|teach)");
        if (!std::regex_search(line, found, form)) continue;
        ++commands;
        const auto help = run(found[1].str() + " --help");
        BOOST_TEST(help.exit == 0, line << "\n" << help.err);
        // Every flag that the line shows is one of the command's.
        const std::string shown = line.substr(0, line.find('#'));
        static const std::regex flag("--[a-z-]+");
        for (std::sregex_iterator it(shown.begin(), shown.end(), flag), end; it != end; ++it)
            BOOST_TEST(help.says(it->str()), line << ": no flag " << it->str());
    }
    BOOST_TEST(commands >= 10u);
}

BOOST_AUTO_TEST_CASE(its_number_of_recorded_runs_is_what_order_check_prints) {
    std::smatch found;
    BOOST_REQUIRE(std::regex_search(readme, found, std::regex("against ([0-9]+) recorded runs")));
    const std::string number = found[1].str();
    BOOST_TEST(
        run("order check tests/golden/observed/*.jsonl").says("matched " + number + " of " + number + " records"));
}

BOOST_AUTO_TEST_CASE(its_table_of_prompts_is_what_the_experiment_prints) {
    const auto table =
        run_line("python3 impl/torch/batch_invariance.py --from tests/golden/observed/h200x1-batch-invariance.json");
    BOOST_TEST_REQUIRE(table.exit == 0, table.err);
    BOOST_TEST(readme.find(table.out) != std::string::npos, "the README does not have\n" << table.out);
}

BOOST_AUTO_TEST_CASE(its_links_lead_somewhere) {
    static const std::regex link(R"(\]\(([^)]+)\))");
    std::size_t links = 0;
    for (std::sregex_iterator it(readme.begin(), readme.end(), link), end; it != end; ++it, ++links)
        BOOST_TEST(std::filesystem::exists(std::filesystem::path(SAMESUM_SOURCE_DIR) / (*it)[1].str()));
    BOOST_TEST(links >= 2u);
}
