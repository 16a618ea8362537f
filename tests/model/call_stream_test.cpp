// A job's recorded calls: an example of each order class, and files that are not call streams.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE call_stream
#include "model/input/call_stream.hpp"
#include "model/analysis/call_classes.hpp"

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/support/error.hpp"
#include "model/support/files.hpp"
#include "model/support/temporary_folder.hpp"
#include "tests/support/program.hpp"

using namespace samesum;

namespace {

std::string header(const std::string& policy, const std::string& settings = "") {
    return R"({"samesum":"calls","format":1,"host":"h","process":7,"nccl":"2.28.9","library":"l","policy":")" + policy +
           R"(","environment":{)" + settings +
           R"(},"columns":["call","communicator","collective","count","dtype","op","root","stream","group","captured",)"
           R"("did","in_place","alignment"]})"
           "\n{\"communicator\":1,\"ranks\":4,\"rank\":1,\"device\":0,\"gpus_seen\":4}\n"
           "{\"communicator\":2,\"ranks\":2,\"rank\":0,\"device\":0}\n";
}

std::string call(const std::string& collective, std::uint64_t count, const std::string& dtype = "bfloat16",
                 const std::string& op = "sum", int root = 0, int group = 0, int communicator = 1,
                 const std::string& did = "forwarded") {
    return fmt::format("[1,{},\"{}\",{},\"{}\",\"{}\",{},\"0x0\",{},false,\"{}\",false,256]\n", communicator,
                       collective, count, dtype, op, root, group, did);
}

/// Four ranks, each its own node, two channels.
std::vector<ClassifiedCalls> classified(const std::string& text) {
    const CallStream stream = parse_call_stream(text, "calls");
    std::vector<std::string> assumptions;
    return classify_calls(
        {&stream, 1},
        [](const CallStream& from, const RecordedCommunicator& comm) {
            ResolvedCommunicator resolved{.comm = {Topology::one_rank_per_node(comm.ranks, 2)}};
            apply_environment(from.environment, resolved.comm.settings);
            return resolved;
        },
        assumptions);
}

BOOST_AUTO_TEST_CASE(each_class_has_a_call) {
    struct Row {
        std::string text;
        OrderClass expected;
        std::string why{};
    };
    const std::string observed = header("observe");
    const std::vector<Row> table{
        {observed + call("AllGather", 100, "bfloat16", ""), OrderClass::nothing_added},
        {observed + call("AllReduce", 0), OrderClass::nothing_added},
        {observed + call("AllReduce", 5, "no type"), OrderClass::nothing_added},
        {observed + call("Reduce", 5, "float32", "sum", 9), OrderClass::nothing_added},
        {observed + call("AllReduce", 100, "int32"), OrderClass::no_order},
        {observed + call("AllReduce", 100, "float32", "max"), OrderClass::no_order},
        {observed + call("AllReduce", 100, "float32", "sum", 0, 0, 2), OrderClass::one_addition},
        {observed + call("ReduceScatter", 64), OrderClass::owner_dependent, "4 orders, by the receiving rank"},
        {observed + call("AllReduce", 1000), OrderClass::position_dependent, "4 orders in one call"},
        {observed + call("AllReduce", 1), OrderClass::count_dependent, "one order here"},
        {observed + call("Reduce", 4096), OrderClass::invariant},
        {observed + call("Reduce", 4096, "float32", "avg"), OrderClass::count_dependent, "NCCL scales during the sum"},
        {observed + call("Reduce", 8, "bfloat16", "sum", 0, 1) + call("Reduce", 8, "bfloat16", "sum", 3, 1),
         OrderClass::owner_dependent, "2 orders, by the root"},
        {header("ordered") + call("AllReduce", 1000, "bfloat16", "sum", 0, 0, 1, "replaced"), OrderClass::invariant,
         "rank order"},
        {header("fixed_root") + call("AllReduce", 1000, "bfloat16", "sum", 0, 0, 1, "replaced"), OrderClass::invariant,
         "one ncclReduce to root 0"},
        {header("fixed_root") + call("AllReduce", 1000, "float32", "avg", 0, 0, 1, "refused"), OrderClass::refused},
    };
    for (const Row& row : table) {
        const auto found = classified(row.text);
        BOOST_TEST_CONTEXT(row.text.substr(row.text.rfind('[', row.text.size() - 2))) {
            BOOST_TEST_REQUIRE(found.size() >= 1u);
            BOOST_TEST(name(found[0].order_class) == name(row.expected), found[0].why);
            BOOST_TEST(found[0].why.find(row.why) != std::string::npos, found[0].why);
        }
    }
}

BOOST_AUTO_TEST_CASE(equal_calls_are_counted_together) {
    std::string text = header("observe");
    for (int i = 0; i < 5; ++i) text += call("AllReduce", 1000) + call("ReduceScatter", 8);
    text += call("AllReduce", 1000) + call("AllReduce", 1001);
    const auto found = classified(text);
    BOOST_TEST_REQUIRE(found.size() == 3u);
    BOOST_TEST(found[0].times == 5u);  // the reduce-scatters: owner-dependent comes first
    BOOST_TEST(found[1].times == 6u);
    BOOST_TEST(found[2].times == 1u);
    BOOST_TEST(found[1].prediction == "RING, SIMPLE, channels 0..0");
}

BOOST_AUTO_TEST_CASE(the_settings_of_the_job_apply) {
    const auto tree =
        classified(header("observe", R"("NCCL_ALGO":"allreduce:tree","NCCL_PROTO":"LL")") + call("AllReduce", 100000));
    BOOST_TEST(tree[0].prediction.starts_with("TREE, LL"), tree[0].prediction);
}

BOOST_AUTO_TEST_CASE(a_killed_process_leaves_half_a_line) {
    const std::string whole = header("observe") + call("AllReduce", 1000);
    BOOST_TEST(parse_call_stream(whole + "[2,1,\"AllRed", "calls").calls.size() == 1u);
    BOOST_CHECK_THROW((void)parse_call_stream(whole + "[2,1,\"AllRed\n" + call("AllReduce", 5), "calls"), UsageError);
}

BOOST_AUTO_TEST_CASE(wrong_lines_are_named) {
    const std::string good = header("observe");
    const std::vector<std::pair<std::string, std::string>> table{
        {"", "calls:1: no header"},
        {call("AllReduce", 5), "calls:1: a call before the header"},
        {good + header("observe"), "calls:4: a second header"},
        {header("wrong"), "calls:1: field 'policy': expected one of observe, fixed_root, ordered, direct"},
        {good + call("AllReduce", 5, "float17"), "calls:4: unknown data type 'float17'"},
        {good + call("AllRedice", 5), "calls:4: unknown collective 'AllRedice'"},
        {good + call("AllReduce", 5, "float32", "median"), "calls:4: unknown operation 'median'"},
        {good + call("AllReduce", std::uint64_t{1} << 45),
         "calls:4: field 'count' is 35184372088832: expected a whole number"},
        {good + call("AllReduce", 5, "float32", "sum", 0, 0, 3), "calls:4: unknown communicator 3"},
        {good + call("AllReduce", 5, "float32", "sum", 0, 0, 1, "lost"),
         "calls:4: field 'did': expected one of forwarded, replaced, refused"},
        {good + call("AllReduce", 5, "float32", "sum", 0, 0, 1, "replaced"),
         "calls:4: a call that was replaced; policy 'observe' forwards every call"},
        {good + "[1,2]\n", "calls:4: 2 fields; expected 13"},
        {good + "{\"communicator\":1,\"ranks\":4,\"rank\":4}\n",
         "calls:4: field 'rank' is 4: expected a whole number from 0 to 3"},
        {"{\"samesum\":\"records\"}\n", "calls:1: a samesum file, not a call stream"},
    };
    for (const auto& [text, expected] : table) {
        try {
            (void)parse_call_stream(text, "calls");
            BOOST_ERROR("accepted: " << expected);
        } catch (const UsageError& error) {
            BOOST_TEST(std::string(error.what()).starts_with(expected), error.what());
        }
    }
}

BOOST_AUTO_TEST_CASE(the_command_answers) {
    const TemporaryFolder folder("samesum-calls");
    const std::string calls = folder.file("calls.jsonl"), json = folder.file("answer.json");
    const auto write = [&](const std::string& text) { std::ofstream(calls) << text; };
    const auto run = [&](const std::string& more) { return testing::run("order calls " + calls + " " + more); };

    write(header("observe") + call("AllReduce", 1000) + call("AllReduce", 7, "int32") + call("AllGather", 7));
    auto answer = run("--json " + json);
    BOOST_TEST(answer.exit == 0, answer.err);
    BOOST_TEST(answer.says("1 of 2 sums depend on owner, position or count"), answer.out);
    BOOST_TEST(answer.says("assumes 4 ranks on one node with 24 channels"), answer.out);
    BOOST_TEST(nlohmann::json::parse(read_file(json)).at("dependent") == 1);
    BOOST_TEST(run("--expect invariant").exit == 1);
    BOOST_TEST(run("--ranks-per-node 1 --channels 2").says("RING, SIMPLE, channels 0..0"));

    write(header("ordered") + call("AllReduce", 1000, "bfloat16", "sum", 0, 0, 1, "replaced"));
    BOOST_TEST(run("--expect invariant").exit == 0);
    // No sums: nothing was checked.
    write(header("observe") + call("AllGather", 1000));
    BOOST_TEST(run("--expect invariant").exit == 3);
    BOOST_TEST(run("").exit == 3);
}

}  // namespace
