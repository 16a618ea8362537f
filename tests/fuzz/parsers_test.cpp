// Every parser on seeded mutants of good input: no crash, no hang, no invalid input accepted.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE fuzz_parsers
#include "tests/fuzz/parsers.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "fuzz/campaign.hpp"
#include "model/support/files.hpp"
#include "model/support/progress.hpp"
#include "model/support/text.hpp"
#include "tests/support/mutate.hpp"

using namespace samesum;

namespace {

const std::string golden = std::string(SAMESUM_SOURCE_DIR) + "/tests/golden/";

std::vector<std::string> files_in(const std::string& folder) {
    std::vector<std::string> names, texts;
    for (const auto& entry : std::filesystem::directory_iterator(golden + folder))
        if (entry.is_regular_file()) names.push_back(entry.path().string());
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) texts.push_back(read_file(name));
    return texts;
}

/// Every `step`-th line of a file.
std::vector<std::string> some_lines(const std::string& name, std::size_t step) {
    const std::string text = read_file(golden + name);
    std::vector<std::string> lines;
    std::size_t number = 0;
    for (const std::string_view line : split(text, '\n'))
        if (number++ % step == 0 && !line.empty()) lines.emplace_back(line);
    return lines;
}

std::map<std::string_view, std::vector<std::string>> seeds() {
    std::map<std::string_view, std::vector<std::string>> all;
    all["log"] = files_in("logs");
    all["graph"] = files_in("graphs");
    all["environment"] = {
        "export NCCL_ALGO='allreduce:tree;reducescatter:ring'\nNCCL_PROTO=^LL128,Simple\n-e NCCL_MIN_NCHANNELS=4\n",
        "{\"NCCL_BUFFSIZE\": \"4194304\", \"NCCL_NTHREADS\": 256}"};
    all["lint"] = all["environment"];
    all["hex"] = {"0x3f80 0xbf80 0x0001\n# nothing\n3f80 bf80 0001\n", "00\n01\nff\n", "3f800000 bf800000\n"};
    for (const fuzz::Property& property : fuzz::properties())
        for (const std::uint64_t index : {3, 40, 77})
            all["case"].push_back(fuzz::str(fuzz::case_of(property, 1, index).value()));
    all["routing"] = {"1,1,1,1", "0,5,0", "7", "18446744073709551615,1", "4,0,0,0,0,0,2,1"};
    all["tree"] = {"((0 1) 2)", "(0 (1 (2 3)))", "0", "((((0 1) 2) 3) (4 5))"};
    for (const char* name : {"observed/h200x1-one-rank-per-node.jsonl", "observed/h200x2-grouped-and-more.jsonl"})
        for (std::string& line : some_lines(name, 40)) all["record"].push_back(std::move(line));
    nlohmann::ordered_json json;
    to_json(json, {.claim = "two_ranks_agree",
                   .sentence = "a",
                   .scope = "b",
                   .expected = Verdict::upheld,
                   .verdict = Verdict::refuted,
                   .decided_by = "proved",
                   .detail = "c",
                   .witness = "d\ne",
                   .replay = "f",
                   .seconds = 0.5});
    all["evidence"] = {json.dump(), json.dump(2)};
    all["custom"] = {
        R"json({"name": "c", "ranks": 4, "paths": [{"name": "one", "below_bytes": 524288, "multiple_of_bytes": 16,
            "order": "rank_order", "rounding": "fp32_once"}, {"name": "two", "order": "from_owner"}]})json",
        R"json({"name": "c", "ranks": 4, "paths": [{"name": "one", "order": "((0 1) (2 3))"},
            {"name": "two", "order": ["((0 1) (2 3))", "(((0 1) 2) 3)", "(0 (1 (2 3)))", "((0 2) (1 3))"]}]})json"};
    all["calls"] = {
        R"json({"samesum":"calls","format":1,"host":"h","process":7,"nccl":"2.28.9","library":"l","policy":"observe",)json"
        R"json("environment":{"NCCL_ALGO":"Ring"},"columns":["call","communicator","collective","count","dtype","op",)json"
        R"json("root","stream","group","captured","did","in_place","alignment"]})json"
        "\n{\"communicator\":1,\"ranks\":4,\"rank\":1,\"device\":0,\"gpus_seen\":4}\n"
        R"json([1,1,"AllReduce",1000,"bfloat16","sum",0,"0x0",0,false,"forwarded",false,256])json"
        "\n"
        R"json([2,1,"Reduce",64,"float32","sum",2,"0x0",1,true,"forwarded",true,16])json"
        "\n"
        R"json([3,1,"AllGather",64,"int8","",0,"0x0",1,false,"forwarded",true,16])json"
        "\n"};
    return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_libfuzzer_found_is_refused_in_one_line) {
    const std::vector<std::pair<std::string_view, std::string>> found{
        {"evidence",
         R"json({"claim":"a","sentence":"a","scope":"b","expected":"upheld","decided_by":"proved","detail":"c",)json"
         R"json("verdict":"d\ne","witness":"","replay":"f","seconds":0.5})json"}};
    for (const auto& [name, text] : found) {
        const auto parser = std::find_if(testing::parsers.begin(), testing::parsers.end(),
                                         [&](const testing::Parser& each) { return each.name == name; });
        BOOST_TEST_REQUIRE((parser != testing::parsers.end()));
        BOOST_CHECK_EXCEPTION(parser->read(text), UsageError, [](const UsageError& error) {
            return std::string_view(error.what()).find('\n') == std::string_view::npos;
        });
    }
}

/// Writes the seeds of tests/fuzz/libfuzzer_test.sh.
BOOST_AUTO_TEST_CASE(good_input_is_kept) {
    const char* folder = std::getenv("SAMESUM_SEEDS");
    if (folder == nullptr) return;
    const auto good = seeds();
    for (const testing::Parser& parser : testing::parsers) {
        const auto own = std::filesystem::path(folder) / parser.name;
        std::filesystem::create_directories(own);
        std::size_t number = 0;
        for (const std::string& text : good.at(parser.name))
            write_file((own / std::to_string(number++)).string(), text);
        BOOST_TEST(number > 0, parser.name);
    }
}

BOOST_AUTO_TEST_CASE(parsers_survive) {
    const auto good = seeds();
    for (const testing::Parser& parser : testing::parsers) {
        BOOST_REQUIRE_MESSAGE(good.count(parser.name) == 1, parser.name << " has no seeds");
        const std::vector<std::string>& texts = good.at(parser.name);
        double slowest = 0;
        const auto timed = [&](const std::string& text) {
            const double began = monotonic_seconds();
            // The time counts whether it throws or not.
            struct Watch {
                double began;
                double& slowest;
                ~Watch() { slowest = std::max(slowest, monotonic_seconds() - began); }
            } const watch{began, slowest};
            parser.read(text);
        };
        for (const std::string& text : texts) {
            try {
                timed(text);
            } catch (const UsageError& error) {
                // The number of sizes or columns that these read depends on the text's length.
                BOOST_TEST((parser.name == "routing" || parser.name == "hex"), parser.name << ": " << error.what());
            }
        }
        // About 20 MB of mutants, at least hundreds of them.
        std::size_t bytes = 0;
        for (const std::string& text : texts) bytes += text.size();
        const int mutants =
            static_cast<int>(std::clamp<std::size_t>(20'000'000 / (bytes / texts.size() + 1), 400, 20000));
        const auto [taken, refused] = mutate(texts, 71, mutants, timed);
        BOOST_TEST(taken > 0, parser.name);
        // The log parser searches for NCCL's words and ignores everything else.
        const bool tolerant = parser.name == "log";
        BOOST_TEST((tolerant || refused > 0), parser.name);
        BOOST_TEST(slowest < 5, parser.name << ": one took " << slowest << " s");
        BOOST_TEST_MESSAGE(parser.name << ": " << taken << " of " << mutants << " mutants taken, slowest " << slowest);
    }
}
