// Descriptions of calls: what they resolve to, what is missing, and how messages name inputs.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE call_description
#include "model/input/call_description.hpp"

#include <boost/test/unit_test.hpp>
#include <string>

#include "model/support/error.hpp"
#include "model/support/input_names.hpp"

namespace samesum {
namespace {

/// The message that resolve() refuses with; empty: it does not.
template <class Description>
std::string refusal(const Description& description) {
    try {
        (void)resolve(description);
        return {};
    } catch (const UsageError& error) {
        return error.what();
    }
}

/// Names inputs by keywords while it lives.
struct Keywords {
    Keywords() { set_input_style(InputStyle::keywords); }
    ~Keywords() { set_input_style(InputStyle::flags); }
    Keywords(const Keywords&) = delete;
    Keywords& operator=(const Keywords&) = delete;
};

CallDescription all_reduce(CommunicatorDescription communicator) {
    return {.communicator = std::move(communicator), .collective = Collective::all_reduce, .count = 100};
}

BOOST_AUTO_TEST_CASE(inputs_are_named_in_the_callers_words) {
    BOOST_TEST(input_name("ranks-per-node") == "--ranks-per-node");
    BOOST_TEST(input_name("algo") == "--algo");
    const Keywords keywords;
    BOOST_TEST(input_name("ranks-per-node") == "ranks_per_node");
    BOOST_TEST(input_name("algo") == "algorithm");
    BOOST_TEST(input_name("proto") == "protocol");
    BOOST_TEST(input_name("env") == "environment");
}

BOOST_AUTO_TEST_CASE(what_is_missing_or_wrong_is_named) {
    struct Row {
        CallDescription description;
        std::string flags, keywords;
    };
    CallDescription rooted = all_reduce({.ranks = 4, .ranks_per_node = 1});
    rooted.root = 1;
    CallDescription to_nobody = rooted;
    to_nobody.collective = Collective::reduce;
    to_nobody.root = 4;
    CallDescription nothing{.communicator = {.ranks = 4, .ranks_per_node = 1}};
    CallDescription no_count = nothing;
    no_count.collective = Collective::reduce;
    CallDescription no_such_call = nothing;
    no_such_call.group = {{.count = 1}};
    no_such_call.index = 1;
    for (const Row& row : {
             Row{all_reduce({}), "--ranks is missing (or --rings, --log, --graph); see --help",
                 "ranks is missing (or rings, log, graph)"},
             Row{all_reduce({.ranks = 0}), "--ranks 0: expected 1 to 1048576", "ranks 0: expected 1 to 1048576"},
             Row{all_reduce({.ranks = 4}), "the rings are not known: expected --ranks-per-node 1",
                 "the rings are not known: expected ranks_per_node 1"},
             Row{all_reduce({.ranks = 4, .ranks_per_node = 4}), "--channels is missing", "channels is missing"},
             Row{all_reduce({.ranks = 4, .ranks_per_node = 3}), "2 nodes of 3 ranks", "2 nodes of 3 ranks"},
             Row{all_reduce({.ranks = 4, .rings = {{{0, 1, 2}}}}), "--ranks 4, but --rings has 3",
                 "ranks 4, but rings has 3"},
             Row{all_reduce({.rings = {{{0, 1}}}, .graph = GraphFile{}}), "--log, --graph and --rings each",
                 "log, graph and rings each"},
             Row{all_reduce({.rings = std::vector<Ring>{}}), "--rings: expected", "rings: expected"},
             Row{rooted, "--root goes with --collective reduce; AllReduce has none",
                 "root goes with collective reduce; AllReduce has none"},
             Row{to_nobody, "--root 4 is not a rank: expected 0 to 3", "root 4 is not a rank: expected 0 to 3"},
             Row{nothing, "--collective is missing; see --help", "collective is missing"},
             Row{no_count, "--count is missing; see --help", "count is missing"},
             Row{no_such_call, "--index 1: expected 0 to 0", "index 1: expected 0 to 0"},
         }) {
        BOOST_TEST(refusal(row.description).starts_with(row.flags), refusal(row.description));
        const Keywords keywords;
        BOOST_TEST(refusal(row.description).starts_with(row.keywords), refusal(row.description));
    }
}

BOOST_AUTO_TEST_CASE(a_plan_names_inputs_in_the_callers_words) {
    const ResolvedCall open = resolve(all_reduce({.ranks = 4, .ranks_per_node = 1}));
    const auto message = [&] {
        try {
            (void)open.plan();
            return std::string();
        } catch (const UsageError& error) {
            return std::string(error.what());
        }
    };
    BOOST_TEST(message().find("--algo and --proto") != std::string::npos, message());
    const Keywords keywords;
    BOOST_TEST(message().find("algorithm and protocol") != std::string::npos, message());
    BOOST_TEST(message().find("--") == std::string::npos, message());
}

BOOST_AUTO_TEST_CASE(assumptions_are_those_of_the_filler_and_of_resolve) {
    const ResolvedCommunicator resolved =
        resolve(CommunicatorDescription{.ranks = 4, .ranks_per_node = 1, .assumptions = {"mine"}});
    BOOST_TEST(resolved.assumptions.size() == 2u);
    BOOST_TEST(resolved.assumptions.front() == "mine");
    BOOST_TEST(resolved.assumptions.back().starts_with("2 channels"));
    const Keywords keywords;
    BOOST_TEST(resolve(CommunicatorDescription{.ranks = 4, .ranks_per_node = 1})
                   .assumptions.back()
                   .ends_with("'coll channels'; channels)"));
}

BOOST_AUTO_TEST_CASE(ring_and_simple_are_assumed_only_where_nothing_chooses) {
    ResolvedCommunicator open = resolve(CommunicatorDescription{.ranks = 4, .ranks_per_node = 1});
    assume_ring_and_simple(open);
    BOOST_TEST((open.forced.algorithm == Algorithm::ring && open.forced.protocol == Protocol::simple));
    BOOST_TEST(open.assumptions.size() == 3u);
    ResolvedCommunicator given =
        resolve(CommunicatorDescription{.ranks = 4, .ranks_per_node = 1, .forced = {Algorithm::tree, Protocol::ll}});
    assume_ring_and_simple(given);
    BOOST_TEST((given.forced.algorithm == Algorithm::tree && given.forced.protocol == Protocol::ll));
    BOOST_TEST(given.assumptions.size() == 1u);
    ResolvedCommunicator modelled = resolve(CommunicatorDescription{
        .ranks = 4, .ranks_per_node = 1, .machine = parse_machine("sm=90,ring=1:1.2:1.2,tree=1:1.2:1.2")});
    assume_ring_and_simple(modelled);
    BOOST_TEST(!modelled.forced.algorithm);
}

BOOST_AUTO_TEST_CASE(the_environment_limits_channels_after_the_layout) {
    const ResolvedCommunicator limited = resolve(CommunicatorDescription{
        .ranks = 4, .ranks_per_node = 4, .channels = 8, .environment = Environment{{"NCCL_MAX_NCHANNELS", "2"}}});
    BOOST_TEST(limited.comm.channels() == 2);
}

BOOST_AUTO_TEST_CASE(single_inputs_have_grammars) {
    BOOST_TEST(parse_count("64x2048", "count") == 131072u);
    BOOST_TEST(parse_rings("0,1,2;0,2,1").size() == 2u);
    const Machine machine = parse_machine("sm=100,cpu=amd,ring=2:3:4,ll128=1,nvlink=0");
    BOOST_TEST(machine.compute_capability == 100);
    BOOST_TEST(machine.ring.channels == 2);
    BOOST_TEST(machine.ll128);
    BOOST_TEST(!machine.ring.nvlink);
    for (const char* wrong : {"", "4x", "-1", "1e3", "99999999999999999999", "4194304x4194304x2"})
        BOOST_CHECK_THROW((void)parse_count(wrong, "count"), UsageError);
    for (const char* wrong : {"", "sm=90", "ring=1:2", "ring=1:2:x", "ring=1:1:1,wheel=1"})
        BOOST_CHECK_THROW((void)parse_machine(wrong), UsageError);
}

}  // namespace
}  // namespace samesum
