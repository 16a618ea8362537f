// README.md and the pages that it links tell the truth: ledgers, commands, numbers, links and words.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE readme
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "model/combine/scheme.hpp"
#include "tests/support/program.hpp"
#include "tests/support/repository.hpp"

namespace fs = std::filesystem;
using samesum::testing::lines_of;
using samesum::testing::run;
using samesum::testing::run_line;

namespace {

std::string text_of(const std::string& file) {
    std::ifstream stream(fs::path(SAMESUM_SOURCE_DIR) / file);
    return {std::istreambuf_iterator<char>(stream), {}};
}

/// The targets of a page's links, from the root of the repository.
std::vector<std::string> links_of(const std::string& page, const std::string& text) {
    static const std::regex link(R"(\]\(([^)#]+)[^)]*\))");
    std::vector<std::string> links;
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it)
        links.push_back((fs::path(page).parent_path() / (*it)[1].str()).lexically_normal().string());
    return links;
}

/// README.md and the pages that it links, by path.
const std::map<std::string, std::string>& pages() {
    static const std::map<std::string, std::string> found = [] {
        std::map<std::string, std::string> all{{"README.md", text_of("README.md")}};
        for (const std::string& link : links_of("README.md", all["README.md"]))
            if (link.ends_with(".md")) all[link] = text_of(link);
        return all;
    }();
    return found;
}

const std::string& page(const std::string& name) { return pages().at(name); }

/// The words of a ledger line, whatever their columns.
std::string words(std::string_view line) { return std::regex_replace(std::string(line), std::regex(" +"), " "); }

}  // namespace

BOOST_AUTO_TEST_CASE(ledgers_are_what_verify_prints) {
    if (!fs::exists(SAMESUM_BINARY_DIR "/samesum-fuzz")) {
        BOOST_TEST_MESSAGE("skipped: without RapidCheck there is no samesum-fuzz, and its claims are inconclusive");
        BOOST_TEST(!samesum::testing::strict());
        return;
    }
    const auto ledger = run("verify");
    BOOST_TEST(ledger.exit == 0, ledger.out << ledger.err);
    std::string printed;
    for (const std::string_view line : lines_of(ledger.out)) printed += words(line) + "\n";
    for (const auto& [name, text] : pages()) {
        bool inside = false;
        std::size_t compared = 0;
        for (const std::string_view line : lines_of(text)) {
            if (line.starts_with("```")) {
                inside = line == "```ledger";
                continue;
            }
            if (!inside) continue;
            ++compared;
            BOOST_TEST(printed.find(words(line) + "\n") != std::string::npos,
                       name << ": verify does not print: " << line);
        }
        if (name == "README.md") BOOST_TEST(compared >= 10u);
        if (name == "proofs/LEDGER.md") BOOST_TEST(compared > 70u);
    }
}

BOOST_AUTO_TEST_CASE(commands_exist) {
    std::size_t commands = 0;
    static const std::regex form("(^|`)samesum ((order|sum) [a-z]+|prove|fuzz|reveal|run|bench|verify|teach)([^`#]*)");
    for (const auto& [name, text] : pages())
        for (const std::string_view line : lines_of(text)) {
            const std::string whole(line);
            std::smatch found;
            if (!std::regex_search(whole, found, form)) continue;
            ++commands;
            const auto help = run(found[2].str() + " --help");
            BOOST_TEST(help.exit == 0, name << ": " << line << "\n" << help.err);
            // Every flag that the line shows is one of the command's.
            const std::string shown = found[4].str();
            static const std::regex flag("--[a-z-]+");
            for (std::sregex_iterator it(shown.begin(), shown.end(), flag), end; it != end; ++it)
                BOOST_TEST(help.says(it->str()), name << ": " << line << ": no flag " << it->str());
        }
    BOOST_TEST(commands >= 30u);
}

BOOST_AUTO_TEST_CASE(the_number_of_recorded_runs_is_what_order_check_prints) {
    std::smatch found;
    const std::string& text = page("model/QUESTIONS.md");
    BOOST_REQUIRE(std::regex_search(text, found, std::regex("against ([0-9]+) recorded runs")));
    const std::string number = found[1].str();
    BOOST_TEST(
        run("order check tests/golden/observed/*.jsonl").says("matched " + number + " of " + number + " records"));
}

BOOST_AUTO_TEST_CASE(tables_are_what_their_commands_print) {
    const auto prompts =
        run_line("python3 impl/torch/batch_invariance.py --from tests/golden/observed/h200x1-batch-invariance.json");
    BOOST_TEST_REQUIRE(prompts.exit == 0, prompts.err);
    BOOST_TEST(page("impl/torch/PYTORCH.md").find(prompts.out) != std::string::npos, "missing:\n" << prompts.out);
    const auto times = run("bench --markdown --from tests/golden/observed/h200x2-bench.json");
    BOOST_TEST_REQUIRE(times.exit == 0, times.err);
    BOOST_TEST(page("impl/GPUS.md").find(times.out) != std::string::npos, "missing:\n" << times.out);
}

BOOST_AUTO_TEST_CASE(links_lead_somewhere) {
    std::size_t links = 0;
    for (const auto& [name, text] : pages())
        for (const std::string& link : links_of(name, text)) {
            ++links;
            BOOST_TEST(fs::exists(fs::path(SAMESUM_SOURCE_DIR) / link), name << " links " << link);
        }
    BOOST_TEST(links >= 10u);
}

BOOST_AUTO_TEST_CASE(each_word_is_defined_once) {
    const auto definitions = [](const std::string& text) {
        static const std::regex form(R"(\*\*([^*]+)\*\*:)");
        std::map<std::string, int> count;
        for (std::sregex_iterator it(text.begin(), text.end(), form), end; it != end; ++it) ++count[(*it)[1].str()];
        return count;
    };
    std::map<std::string, int> defined;
    for (const auto& [name, text] : pages()) {
        if (name == "model/teach/TEACHING.md") continue;  // its lists are no definitions
        for (const auto& [word, count] : definitions(text)) defined[word] += count;
    }
    std::vector<std::string> wanted{"partial",
                                    "owner",
                                    "routing",
                                    "order",
                                    "sizes",
                                    "reduction tree",
                                    "run-to-run",
                                    "rank-equal",
                                    "scheme",
                                    "owner-invariant",
                                    "position-invariant",
                                    "count-invariant",
                                    "combine",
                                    "gate",
                                    "routing-invariant",
                                    "per_hop",
                                    "fp32_once",
                                    "world size",
                                    "ledger",
                                    "canary",
                                    "vacuous",
                                    "witness",
                                    "not observable",
                                    "segment"};
    for (const samesum::Scheme scheme : samesum::all_schemes) wanted.emplace_back(samesum::name(scheme));
    for (const std::string& word : wanted)
        BOOST_TEST(defined[word] == 1, word << " is defined " << defined[word] << " times");
    // A second definition is found.
    BOOST_TEST(definitions("- **order**: a\n- **order**: b\n")["order"] == 2);
}
