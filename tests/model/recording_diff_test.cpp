// What changed between two recordings: the recorded ones against themselves, and against copies changed by hand.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE canary
#include "model/analysis/recording_diff.hpp"

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/program.hpp"

using namespace samesum;
using samesum::testing::run;

namespace {

using Json = nlohmann::json;

std::vector<Json> recorded() {
    std::ifstream stream(SAMESUM_SOURCE_DIR "/tests/golden/observed/h200x1-free.jsonl");
    std::vector<Json> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
    return lines;
}

std::vector<Record> records(const std::vector<Json>& lines) {
    std::vector<Record> all;
    for (const Json& line : lines) all.push_back(parse_record(line.dump()));
    return all;
}

bool is_all_reduce_on_4(const Json& line) { return line.at("nranks") == 4 && line.at("collective") == "ar"; }

}  // namespace

BOOST_AUTO_TEST_CASE(nothing_changed_from_itself) {
    const auto all = records(recorded());
    const RecordingDiff diff = diff_recordings(all, all);
    BOOST_TEST(diff.compared == all.size());
    BOOST_TEST(diff.unchanged == all.size());
    BOOST_TEST(diff.changes.empty());
    BOOST_TEST(diff.only_before.empty());
    BOOST_TEST(diff.only_after.empty());
}

BOOST_AUTO_TEST_CASE(swapped_operands_are_not_a_change_another_tree_is) {
    auto lines = recorded();
    const auto before = records(lines);
    std::size_t swapped = 0;
    for (Json& line : lines)
        if (line.at("nranks") == 2) {
            line.at("trees") = {"(1 0)"};
            ++swapped;
        }
    BOOST_TEST(swapped > 10u);
    BOOST_TEST(diff_recordings(before, records(lines)).changes.empty());

    // The all-reduces of 4 ranks from 32 Ki elements on get one order, and another algorithm in the log line.
    std::size_t changed = 0;
    for (Json& line : lines) {
        if (!is_all_reduce_on_4(line) || line.at("count") < 32768 || line.at("dtype") != "f32") continue;
        line.at("trees") = {"((0 2) (1 3))"};
        line.at("segments") = Json::array({{0, line.at("count"), 0}});
        std::string said = line.at("nccl_says");
        said = said.substr(0, said.find("-> Algo ")) + "-> Algo TREE proto SIMPLE channel{Lo..Hi}={0..7}";
        line.at("nccl_says") = said;
        ++changed;
    }
    BOOST_TEST(changed > 2u);
    const RecordingDiff diff = diff_recordings(before, records(lines));
    BOOST_TEST(diff.compared - diff.unchanged == changed);
    std::size_t calls = 0;
    for (const RecordingChange& change : diff.changes) {
        BOOST_TEST(change.orders());
        BOOST_TEST(change.what == "4 ranks, AllReduce of float32");
        BOOST_TEST(change.after == "TREE SIMPLE, 8 channels");
        BOOST_TEST(change.example.find("((0 2) (1 3)) now") != std::string::npos);
        calls += change.calls;
    }
    BOOST_TEST(calls == changed);
    BOOST_TEST(diff.changes.front().min_bytes == 131072u);
    BOOST_TEST(diff.changes.back().max_bytes == 4194304u);
}

BOOST_AUTO_TEST_CASE(only_the_choice_changed) {
    auto lines = recorded();
    const auto before = records(lines);
    for (Json& line : lines) {
        std::string said = line.at("nccl_says");
        if (const auto at = said.find("proto LL "); at != std::string::npos) said.replace(at, 9, "proto LL128 ");
        line.at("nccl_says") = said;
    }
    const RecordingDiff diff = diff_recordings(before, records(lines));
    BOOST_TEST(!diff.changes.empty());
    for (const RecordingChange& change : diff.changes) {
        BOOST_TEST(!change.orders());
        BOOST_TEST(change.str().find("every element in the same order") != std::string::npos);
    }
}

BOOST_AUTO_TEST_CASE(the_command_prints_and_exits_as_diff_does) {
    const std::string file = "tests/golden/observed/h200x1-free.jsonl";
    const auto same = run("order diff " + file + " " + file);
    BOOST_TEST(same.exit == 0, same.err);
    BOOST_TEST(same.says("calls as before"));

    auto lines = recorded();
    lines.erase(lines.begin());
    for (Json& line : lines)
        if (is_all_reduce_on_4(line))
            line.at("trees") = {"(((0 1) 2) 3)", "(((3 1) 2) 0)", "(((0 1) 2) 3)", "(0 (1 (2 3)))"};
    const auto changed = std::filesystem::path(SAMESUM_BINARY_DIR) / "canary.jsonl";
    {
        std::ofstream stream(changed);
        for (const Json& line : lines) stream << line.dump() << "\n";
    }
    const auto other = run("order diff " + file + " " + changed.string() + " --json -");
    BOOST_TEST(other.exit == 1, other.err);
    BOOST_TEST(Json::parse(other.out).at("only_before").size() == 1u);
    BOOST_TEST(run("order diff " + file).complains("two files that reveal --save wrote"));
    BOOST_TEST(run("order diff " + file + " README.md").exit == 2);
}
