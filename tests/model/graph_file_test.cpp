// Graph files: NCCL's own dumps give the rings and trees that NCCL ran; anything else is refused.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE graph_file

#include "model/input/graph_file.hpp"

#include <boost/test/unit_test.hpp>

#include "model/nccl/order.hpp"
#include "model/nccl/schedule.hpp"
#include "model/support/error.hpp"
#include "model/support/files.hpp"
#include "tests/support/mutate.hpp"

using namespace samesum;

namespace {

std::string golden(const std::string& name) { return std::string(SAMESUM_SOURCE_DIR "/tests/golden/graphs/") + name; }

GraphFile read(const std::string& name) { return parse_graph_file(read_file(golden(name)), name); }

std::string graph(const std::string& channels, const std::string& attributes = "nchannels=\"1\"") {
    return "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" crossnic=\"0\" " + attributes +
           " speedintra=\"20\" speedinter=\"20\" typeintra=\"NVL\" typeinter=\"PIX\" samechannels=\"1\">" + channels +
           "</graph></graphs>";
}
const std::string two = "<channel><gpu dev=\"0\"/><gpu dev=\"1\"/></channel>";

}  // namespace

BOOST_AUTO_TEST_CASE(the_reversed_second_channel_gives_the_rings_and_trees_that_ran) {
    const GraphFile file = read("reversed-second-channel.xml");
    BOOST_TEST(file.gpus == 2);
    const Communicator comm = communicator_from_graph(file, 4, 2);
    BOOST_REQUIRE(comm.channels() == 4);
    const char* rings[]{"0 1 2 3 4 5 6 7", "0 3 2 5 4 7 6 1"};
    // Worked example A13 of the reduction-order notes, seen on hardware.
    const char* trees[]{"((0 1) ((4 (5 (2 3))) (6 7)))", "((1 0) ((5 (4 (3 2))) (7 6)))",
                        "((6 7) ((2 (3 (4 5))) (0 1)))", "((7 6) ((3 (2 (5 4))) (1 0)))"};
    for (int c = 0; c < 4; ++c) {
        BOOST_TEST(str(comm.topology.ring(c)) == rings[c % 2]);
        BOOST_TEST(Order::tree(comm.topology.channels()[static_cast<std::size_t>(c)].tree).as_tree().str() == trees[c]);
    }
}

BOOST_AUTO_TEST_CASE(four_gpus_without_a_switch_have_six_rings) {
    const GraphFile file = read("four-gpus-without-switch.xml");
    const Communicator comm = communicator_from_graph(file, 1, 4);
    const char* rings[]{"0 1 2 3", "0 1 3 2", "0 2 3 1", "0 2 1 3", "0 3 1 2", "0 3 2 1"};
    BOOST_REQUIRE(comm.channels() == 12);
    for (int c = 0; c < 12; ++c) BOOST_TEST(str(comm.topology.ring(c)) == rings[c % 6]);
    BOOST_TEST(!comm.topology.channels()[0].tree);
    // One ncclReduce of such a machine has several orders.
    Communicator any = comm;
    any.settings.protocols[Collective::reduce] = {Protocol::simple};
    const Plan plan = plan_call(any, {.collective = Collective::reduce, .count = 1 << 20, .root = 0});
    BOOST_TEST(plan.schedule.orders(64).size() > 1u);
    bool said = false;
    for (const std::string& assumption : graph_assumptions(file, 1))
        said = said || assumption.find("no tree graph") == 0;
    BOOST_TEST(said);
}

BOOST_AUTO_TEST_CASE(odd_nodes_swap_rings_and_not_trees_when_nics_cross) {
    const std::string lists =
        "<channel><gpu dev=\"0\"/><gpu dev=\"1\"/></channel><channel><gpu dev=\"1\"/><gpu dev=\"0\"/></channel>";
    std::string text = graph(lists, "nchannels=\"2\"");
    text.insert(text.find("</graphs>"),
                "<graph id=\"1\" pattern=\"1\" crossnic=\"2\" nchannels=\"2\" speedintra=\"1\" speedinter=\"1\">" +
                    lists + "</graph>");
    const Communicator straight = communicator_from_graph(parse_graph_file(text, "f"), 2, 2);
    text.replace(text.find("crossnic=\"0\""), 12, "crossnic=\"2\"");
    const Communicator crossed = communicator_from_graph(parse_graph_file(text, "f"), 2, 2);
    BOOST_TEST(str(straight.topology.ring(0)) == "0 1 2 3");
    BOOST_TEST(str(crossed.topology.ring(0)) == "0 1 3 2");
    BOOST_TEST(str(crossed.topology.ring(1)) == "0 2 3 1");
    for (std::size_t c = 0; c < 4; ++c)
        BOOST_TEST((*straight.topology.channels()[c].tree == *crossed.topology.channels()[c].tree));
}

BOOST_AUTO_TEST_CASE(gpus_are_known_by_rank_or_by_dev_of_either_base) {
    struct {
        const char* channel;
        const char* ring;
    } cases[]{
        {"<channel><gpu dev=\"0x2\"/><gpu dev=\"0\"/><gpu dev=\"0x1\"/></channel>", "0 1 2"},
        {"<channel><gpu dev=\"4\"/><gpu dev=\"7\"/><gpu dev=\"5\"/></channel>", "0 2 1"},
        {"<channel><gpu dev=\"8\"/><gpu dev=\"11\"/><gpu dev=\"10\"/></channel>", "0 2 1"},
        {"<channel><gpu dev=\"0x0\" rank=\"2\"/><gpu dev=\"0x1\" rank=\"0\"/><gpu dev=\"0x2\" rank=\"1\"/></channel>",
         "0 1 2"},
        {"<channel><net dev=\"0\"/><gpu dev=\"0x100000000000000\"/><gpu dev=\"0x1\"/><gpu dev=\"0x0\"/><net "
         "dev=\"1\"/></channel>",
         "0 2 1"},
    };
    for (const auto& each : cases) {
        const Communicator comm = communicator_from_graph(parse_graph_file(graph(each.channel), "f"), 1, 3);
        BOOST_TEST(str(comm.topology.ring(0)) == each.ring);
        BOOST_TEST(comm.channels() == 2);
    }
}

BOOST_AUTO_TEST_CASE(bad_files_are_refused_in_one_line) {
    struct {
        std::string text;
        const char* part;
    } cases[]{
        {"", "no <graphs>"},
        {"<graphs", "not XML"},
        {"nonsense", "not XML"},
        {"<system version=\"1\"></system>", "this is a topology"},
        {"<a/>", "no <graphs>"},
        {"<graphs version=\"2\"/>", "expected version 1"},
        {"<graphs version=\"1\"/>", "no ring graph"},
        {graph("", "nchannels=\"0\""), "no ring graph"},
        {graph(two, "nchannels=\"2\""), "says nchannels=\"2\" and lists 1"},
        {graph(two, "nchannels=\"x\""), "nchannels=\"x\": expected a number from 0 to 64"},
        {graph(two, "nchannels=\"65\""), "from 0 to 64"},
        {graph(two, ""), "has no attribute nchannels"},
        {graph("<channel></channel>"), "lists no <gpu>"},
        {graph("<channel><gpu/></channel>"), "without dev"},
        {graph("<channel><gpu dev=\"a\"/></channel>"), "dev=\"a\": expected a number like 3 or 0x3"},
        {graph("<channel><gpu dev=\"0\"/><gpu dev=\"0\"/></channel>"), "dev 0 is listed twice"},
        {graph(two + "<channel><gpu dev=\"0\"/></channel>", "nchannels=\"2\""), "1 of 2 GPUs are listed"},
        {graph(two + "<channel><gpu dev=\"0\"/><gpu dev=\"2\"/></channel>", "nchannels=\"2\""), "dev 2 is not among"},
        {graph("<channel><gpu dev=\"0\" rank=\"1\"/><gpu dev=\"1\"/></channel>"), "some have none"},
        {graph("<channel><gpu dev=\"10\"/><gpu dev=\"0xb\"/></channel>"), "expected 0x"},
        {std::string(100000, ' ')
             .replace(0, 0,
                      [] {
                          std::string deep;
                          for (int i = 0; i < 30000; ++i) deep += "<a>";
                          return deep;
                      }()),
         "nested"},
    };
    for (const auto& each : cases) {
        BOOST_TEST_CONTEXT(each.text.substr(0, 200)) {
            BOOST_CHECK_EXCEPTION((void)parse_graph_file(each.text, "graph.xml"), UsageError,
                                  [&](const UsageError& error) {
                                      const std::string what = error.what();
                                      BOOST_TEST(what.find("graph.xml") == 0u);
                                      BOOST_TEST(what.find('\n') == std::string::npos);
                                      BOOST_TEST(what.find(each.part) != std::string::npos, what);
                                      return true;
                                  });
        }
    }
    const GraphFile file = read("reversed-second-channel.xml");
    BOOST_CHECK_THROW((void)communicator_from_graph(file, 4, 4), UsageError);
    BOOST_CHECK_THROW((void)communicator_from_graph(file, 0, 2), UsageError);
    BOOST_CHECK_THROW((void)communicator_from_graph(file, 1 << 30, 2), UsageError);
}

BOOST_AUTO_TEST_CASE(mutated_files_parse_or_are_refused) {
    const auto [parsed, refused] =
        mutate({read_file(golden("reversed-second-channel.xml")), read_file(golden("four-gpus-without-switch.xml"))},
               11, 4000, [](const std::string& text) {
                   const GraphFile file = parse_graph_file(text, "mutant");
                   (void)communicator_from_graph(file, 2, file.gpus);
                   (void)graph_assumptions(file, 2);
               });
    BOOST_TEST(parsed > 100);
    BOOST_TEST(refused > 100);
}
