// `--json -` for every command of samesum-model: one JSON document alone on stdout, and the exit code of the text.
// SPDX-License-Identifier: Apache-2.0
//
// A new command must have a row here: the commands that the help lists are checked against the table.
#define BOOST_TEST_MODULE json_output
#include <fmt/format.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "model/support/files.hpp"
#include "model/support/temporary_folder.hpp"
#include "tests/support/program.hpp"

namespace samesum {
namespace {

using Json = nlohmann::json;
using testing::Outcome;
using testing::run;

struct Row {
    std::string arguments;
    int exit = 0;
    std::string input{};  ///< on stdin
};

const std::string observed = "tests/golden/observed/h200x1-one-rank-per-node.jsonl";
const std::string nodes = " --ranks 4 --ranks-per-node 1 --algo ring --proto ll ";
const std::string nvls = " --ranks 8 --ranks-per-node 8 --channels 24 --algo nvls --proto simple ";
const std::string all_reduce = " --collective all_reduce --count 4194304 ";
const std::string custom = R"({"ranks": 4, "paths": [{"name": "small", "below_bytes": 64, "order": "rank_order"},
                               {"name": "large", "order": "from_owner"}]})";

std::string calls(const std::string& collective) {
    return R"({"samesum":"calls","format":1,"host":"h","process":7,"nccl":"2.28.9","library":"l","policy":"observe",)"
           R"("environment":{},"columns":["call","communicator","collective","count","dtype","op","root","stream",)"
           R"("group","captured","did","in_place","alignment"]})"
           "\n{\"communicator\":1,\"ranks\":4,\"rank\":1,\"device\":0,\"gpus_seen\":4}\n"
           "[1,1,\"" +
           collective + "\",1000,\"bfloat16\",\"sum\",0,\"0x0\",0,false,\"forwarded\",false,256]\n";
}

/// A record whose revealed trees are swapped, so that the prediction differs.
std::string changed_record() {
    std::ifstream stream(std::string(SAMESUM_SOURCE_DIR) + "/" + observed);
    for (std::string line; std::getline(stream, line);) {
        Json record = Json::parse(line);
        if (record.at("nranks") != 4) continue;
        for (Json& tree : record.at("trees")) tree = "((0 1) (2 3))";
        return record.dump() + "\n";
    }
    throw std::logic_error("no record of 4 ranks");
}

/// Values of 24 ranks, each about twice the one before: too many orders to try, and the sum is not exact in float32.
std::string undecided_element() {
    std::string line;
    for (int rank = 0; rank < 24; ++rank) line += fmt::format("{}0x{:04x}", rank ? " " : "", 0x3781 + 0x85 * rank);
    return line + "\n";
}

const std::vector<Row> rows{
    {"order show" + nodes + all_reduce},
    {"order show" + nodes + all_reduce + "--limit 1"},
    {"order show" + nodes + "--collective reduce --op avg --count 960"},
    {"order show" + nvls + all_reduce, 3},
    {"order show" + nvls + all_reduce + "--format dot", 3},
    {"order show" + nvls + all_reduce + "--format svg", 3},
    {"order show" + nodes + all_reduce + "--format svg"},
    {"order show --collective all_reduce --count 100 --ranks 4 --ranks-per-node 4 --channels 8 --symmetric "
     "AllReduce_AGxLL_R"},
    {"order diff" + nodes + all_reduce + "--with '--count 4194304'"},
    {"order diff" + nodes + all_reduce + "--with '--algo tree'", 1},
    {"order diff " + observed + " " + observed},
    {"order invariance --ranks 4 --ranks-per-node 1 --schemes fixed_root,vllm_default"},
    {"order invariance" + nvls + "--schemes vllm_default", 3},
    {"order enumerate --ranks 4 --list all --values '1e8 1 -1e8 1'"},
    {"order enumerate --ranks 5 --list nccl"},
    {"order paths - --row 16 --rows 3", 0, custom},
    {"order paths - --row 16 --rows 64", 1, custom},
    {"order lint --env -", 0, "NCCL_ALGO=Ring\n"},
    {"order lint --env - --want count", 1, "NCCL_ALGO=Ring\n"},
    {"order calls -", 0, calls("AllReduce")},
    {"order calls - --expect invariant", 1, calls("AllReduce")},
    {"order calls -", 3, calls("AllGather")},
    {"order check " + observed},
    {"order check -", 1, changed_record()},
    {"order check /dev/null", 3},
    {"sum eval --dtype float16 --values '0.5 512 512.5'"},
    {"sum eval --dtype float16 --values '0.5 512 512.5' --explain"},
    {"sum eval --dtype bfloat16 --tree '(0 (1 2))'", 0, "0x3f80 0x3b80 0xbf80\n"},
    {"sum witness --tree '((0 1) 2)' --other '(0 (1 2))'"},
    {"sum witness --leaves 4 --limit 2"},
    {"sum witness --tree '((0 1) 2)' --other '(2 (1 0))'", 1},
    {"sum expect --ranks 4 --before chain --after ring:0 --samples 2000"},
    {"sum expect" + nodes + "--collective all_reduce --count 4096 --samples 2000 --with '--algo tree'"},
    {"sum reachable --values '1 2' --result 3"},
    {"sum reachable --values '1 2' --result 4", 1},
    {"sum reachable --values '1 2' --list"},
    {"sum reachable --dtype bfloat16 --rounding per_hop --result 292 --values "
     "'1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24.25'",
     3},
    {"sum reachable --dtype bfloat16", 1, "3f80 3f80 4000\n3f80 3f80 7fff\n"},
    {"sum reachable --dtype bfloat16", 0, "3f80 3f80 4000\n"},
    {"sum mask --dtype bfloat16 --list", 0, "0x4400 0x3f80 0xc400 0x3f80\n"},
    {"sum mask --dtype bfloat16", 1, "0x3f80 0x4000 0xbf80 0x4040\n"},
    {"sum mask --dtype bfloat16 --least 1 --rounding fp32_once --seconds 0.001", 3, undecided_element()},
    {"teach"},
    {"teach addition"},
    {"teach --all"},
    {"teach ties --answer 2048"},
    {"teach ties --answer 1", 1},
};

/// The document, or nothing when stdout is not exactly one.
Json parsed(const std::string& text) { return Json::parse(text, nullptr, false); }

BOOST_AUTO_TEST_CASE(json_alone_has_the_exit_code_of_the_text) {
    for (const Row& row : rows) {
        BOOST_TEST_CONTEXT("samesum " << row.arguments) {
            const Outcome text = run(row.arguments, row.input), json = run(row.arguments + " --json -", row.input);
            BOOST_TEST(text.exit == row.exit, text.exit << " " << text.err);
            BOOST_TEST(json.exit == row.exit, json.exit << " " << json.err);
            BOOST_TEST(!text.out.empty());
            const Json document = parsed(json.out);
            BOOST_TEST(!document.is_discarded(), json.out.substr(0, 400));
            // What the text assumes the document assumes, too.
            std::istringstream lines(text.out);
            for (std::string line; std::getline(lines, line);)
                if (line.starts_with("assumes ")) {
                    const auto& assumptions = document.at("assumptions");
                    BOOST_TEST((std::find(assumptions.begin(), assumptions.end(), line.substr(8)) != assumptions.end()),
                               line);
                }
        }
    }
}

BOOST_AUTO_TEST_CASE(json_into_a_file_leaves_the_text_as_it_is) {
    const TemporaryFolder folder("samesum-test-");
    const std::string file = (folder.path() / "answer.json").string();
    for (const Row& row : rows) {
        BOOST_TEST_CONTEXT("samesum " << row.arguments) {
            const Outcome text = run(row.arguments, row.input),
                          both = run(row.arguments + " --json " + file, row.input);
            BOOST_TEST(both.exit == row.exit, both.err);
            BOOST_TEST(both.out == text.out);
            BOOST_TEST((parsed(read_file(file)) == parsed(run(row.arguments + " --json -", row.input).out)));
        }
    }
}

BOOST_AUTO_TEST_CASE(the_json_format_of_order_show_is_its_json_output) {
    for (const auto& [call, exit] : {std::pair{nodes + all_reduce, 0}, std::pair{nvls + all_reduce, 3}}) {
        const Outcome format = run("order show" + call + "--format json"), json = run("order show" + call + "--json -");
        BOOST_TEST(format.exit == exit);
        BOOST_TEST(format.out == json.out);
        BOOST_TEST(!parsed(format.out).is_discarded());
    }
}

BOOST_AUTO_TEST_CASE(documents_hold_what_the_text_shows) {
    const auto document = [](const std::string& arguments) { return parsed(run(arguments + " --json -").out); };
    const Json average = document("order show" + nodes + "--collective reduce --op avg --count 960");
    BOOST_TEST(average.at("scaling").get<std::string>().starts_with("each rank's own value times 1/n"));
    const Json hidden = document("order show" + nvls + all_reduce);
    BOOST_TEST(hidden.at("orders").at(0).at("letters") == "A");
    BOOST_TEST(hidden.at("orders").at(0).at("not_observable").get<std::string>().starts_with("the switch adds"));
    BOOST_TEST(hidden.at("trees").at(0).is_null());
    const Json some = document("order show" + nodes + all_reduce + "--limit 1");
    BOOST_TEST(some.at("segments_total") > 1u);
    BOOST_TEST(some.at("complete") == false);
    const Outcome bits = run("sum eval --dtype bfloat16 --json -", "0x3f80 0x3f80\n0x4000 0x4000\n");
    BOOST_TEST(parsed(bits.out).at("results") == Json({"0x4000", "0x4080"}));
    // A line that cannot be read is an error in this form, too.
    const Outcome wrong = run("sum eval --dtype bfloat16 --json -", "0x3f80 0x3f80\n0x3f80\n");
    BOOST_TEST(wrong.exit == 2);
    BOOST_TEST(wrong.out == "");
}

/// The names in a group's list of commands.
std::set<std::string> listed(const std::string& group) {
    std::set<std::string> names;
    std::istringstream lines(run(group + " --help").out);
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with("  ") && line.size() > 2 && line[2] != ' ')
            names.insert(group + " " + line.substr(2, line.find(' ', 2) - 2));
    return names;
}

BOOST_AUTO_TEST_CASE(every_command_has_a_row) {
    std::set<std::string> commands{"teach"};
    for (const char* group : {"order", "sum"}) commands.merge(listed(group));
    BOOST_TEST(commands.size() >= 14u);
    for (const std::string& command : commands)
        BOOST_TEST(std::any_of(rows.begin(), rows.end(),
                               [&](const Row& row) {
                                   return row.arguments == command || row.arguments.starts_with(command + " ");
                               }),
                   command);
}

}  // namespace
}  // namespace samesum
