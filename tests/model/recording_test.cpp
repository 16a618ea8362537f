// Every recorded call of real NCCL is predicted; wrong and altered records are detected.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE records
#include "model/input/recording.hpp"
#include "model/analysis/record_check.hpp"

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/support/error.hpp"

using namespace samesum;

namespace {

std::vector<std::string> lines_of(const std::filesystem::path& file) {
    std::ifstream stream(file);
    BOOST_REQUIRE(stream);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);)
        if (!line.empty()) lines.push_back(line);
    return lines;
}

const std::filesystem::path observed = std::filesystem::path(SAMESUM_SOURCE_DIR) / "tests/golden/observed";

}  // namespace

BOOST_AUTO_TEST_CASE(every_record_matches) {
    std::size_t records = 0;
    for (const auto& entry : std::filesystem::directory_iterator(observed)) {
        if (entry.path().extension() != ".jsonl") continue;
        for (const std::string& line : lines_of(entry.path())) {
            const Match match = check_record(parse_record(line));
            BOOST_TEST((match.outcome == Match::Outcome::matched), entry.path().filename() << ": " << match.why);
            ++records;
        }
    }
    BOOST_TEST(records >= 622u);
}

BOOST_AUTO_TEST_CASE(a_record_that_was_altered_differs) {
    const auto line = lines_of(observed / "h200x2-two-ranks-per-node.jsonl").front();
    const auto outcome = [&](auto&& change) {
        auto json = nlohmann::json::parse(line);
        change(json);
        return check_record(parse_record(json.dump())).outcome;
    };
    using enum Match::Outcome;
    BOOST_TEST((outcome([](auto&) {}) == matched));
    BOOST_TEST((outcome([](auto& json) { json["trees"][0] = "((0 1) (2 3))"; }) == differs));
    BOOST_TEST((outcome([](auto& json) { json["root"] = 1; }) == differs));
    BOOST_TEST((outcome([](auto& json) {
                    json["nccl_says"] = "Reduce: 4 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..0}";
                }) == differs));
    BOOST_TEST((outcome([](auto& json) { json["rank0_trees"] = "Trees [0] 3/-1/-1->0->-1 [1] 1/-1/-1->0->2"; }) ==
                not_modelled));
}

BOOST_AUTO_TEST_CASE(what_is_not_a_record_is_refused_in_one_line) {
    const auto line = lines_of(observed / "h200x2-two-ranks-per-node.jsonl").front();
    const auto error_of = [&](auto&& change) -> std::string {
        auto json = nlohmann::json::parse(line);
        change(json);
        try {
            (void)parse_record(json.dump());
        } catch (const UsageError& error) {
            return error.what();
        }
        return "accepted";
    };
    BOOST_TEST(error_of([](auto& json) { json.erase("trees"); }) == "field 'trees' is missing");
    BOOST_TEST(error_of([](auto& json) {
                   json["count"] = "many";
               }).starts_with("field 'count' is \"many\": expected a whole number"));
    BOOST_TEST(error_of([](auto& json) { json["nranks"] = 0; }).starts_with("field 'nranks' is 0"));
    BOOST_TEST(error_of([](auto& json) { json["segments"] = {{0, 2, 0}}; }) == "the segments cover 2 of 1 elements");
    BOOST_TEST(error_of([](auto& json) { json["segments"][0][2] = 7; }).starts_with("segment [0, 1, 7]"));
    BOOST_TEST(
        error_of([](auto& json) { json["rings"][0] = "Channel 00/02 : 0 0 1 2"; }).starts_with("ring of channel"));
    BOOST_TEST(error_of([](auto& json) { json["trees"][0] = 4; }) == "field 'trees': expected a list of texts");
    for (const char* text : {"", "{", "[]", "null", "{\"nranks\": 1e99}"})
        BOOST_CHECK_THROW((void)parse_record(text), UsageError);
}

BOOST_AUTO_TEST_CASE(mutated_lines_never_crash) {
    // Deterministic fuzzing: bytes are replaced and removed at random places.
    const auto lines = lines_of(observed / "h200x2-grouped-and-more.jsonl");
    std::uint64_t state = 1;
    const auto next = [&state](std::size_t below) {
        state += 0x9e3779b97f4a7c15;
        std::uint64_t z = state;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return static_cast<std::size_t>((z ^ (z >> 31)) % below);
    };
    std::size_t refused = 0, checked = 0;
    for (int round = 0; round < 3000; ++round) {
        std::string line = lines[next(lines.size())];
        for (std::size_t edits = 1 + next(4); edits > 0; --edits) {
            const std::size_t place = next(line.size());
            if (next(3) == 0)
                line.erase(place, 1 + next(3));
            else
                line[place] = "0123456789{}[],:\"- x"[next(20)];
        }
        try {
            (void)check_record(parse_record(line));
            ++checked;
        } catch (const UsageError&) {
            ++refused;
        }
    }
    BOOST_TEST(refused > 100u);
    BOOST_TEST(checked > 100u);
}
