// What single settings and the blocks that projects use do for the order, each decided by the model.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE lint
#include "model/analysis/lint.hpp"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "model/input/environment_file.hpp"
#include "model/support/error.hpp"
#include "tests/support/mutate.hpp"
#include "tests/support/program.hpp"

using namespace samesum;
using Effect = LintRow::Effect;
using Holds = CollectiveAnswer::Holds;

namespace {

const LintRow* row_of(const LintReport& report, const std::string& key, Effect effect) {
    for (const LintRow& row : report.rows)
        if (row.key == key && row.effect == effect) return &row;
    return nullptr;
}

Holds answer_of(const LintReport& report, Collective collective, Invariance invariance) {
    for (const CollectiveAnswer& answer : report.answers)
        if (answer.collective == collective && answer.invariance == invariance) return answer.holds;
    BOOST_FAIL("every collective and invariance has an answer");
    return Holds::unknown;
}

const Environment vllm{{"VLLM_BATCH_INVARIANT", "1"}};
const Environment copied{{"NCCL_LAUNCH_MODE", "GROUP"}, {"NCCL_COLLNET_ENABLE", "0"},    {"NCCL_NVLS_ENABLE", "0"},
                         {"NCCL_P2P_NET_DISABLE", "1"}, {"NCCL_MIN_NCHANNELS", "1"},     {"NCCL_MAX_NCHANNELS", "1"},
                         {"NCCL_PROTO", "Simple"},      {"NCCL_ALGO", "allreduce:tree"}, {"NCCL_NTHREADS", "1"}};
const Environment megatron{{"NCCL_ALGO", "Ring"}, {"NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0"}};
const Environment sglang{{"NCCL_ALGO", "allreduce:tree"}, {"NCCL_MIN_NCHANNELS", "8"}, {"NCCL_MAX_NCHANNELS", "8"}};
const Environment pytorch{{"NCCL_ALGO", "^NVLS"}};

}  // namespace

BOOST_AUTO_TEST_CASE(single_settings) {
    struct {
        Environment environment;
        const char* key;
        Effect effect;
        const char* part;
    } cases[]{
        {{{"NCCL_P2P_NET_DISABLE", "1"}}, "NCCL_P2P_NET_DISABLE", Effect::inert, "not read by"},
        {{{"NCCL_RINGS", "0 1 2 3"}}, "NCCL_RINGS", Effect::inert, "removed"},
        {{{"NCCL_FOO", "1"}}, "NCCL_FOO", Effect::inert, "NCCL 2.28.9 has no setting of this name"},
        {{{"NCCL_SOCKET_NTHREADS", "1"}}, "NCCL_SOCKET_NTHREADS", Effect::inert, "does not act on the order"},
        {{{"NCCL_DEBUG", "INFO"}}, "NCCL_DEBUG", Effect::inert, "does not act on the order"},
        {{{"NCCL_NTHREADS", "1"}}, "NCCL_NTHREADS", Effect::rejected, "takes the maximum, 512"},
        {{{"NCCL_NTHREADS", "2048"}}, "NCCL_NTHREADS", Effect::rejected, "NCCL takes 512"},
        {{{"NCCL_LL128_NTHREADS", "64"}}, "NCCL_LL128_NTHREADS", Effect::rejected, "NCCL takes 160"},
        {{{"NCCL_NTHREADS", "256"}}, "NCCL_NTHREADS", Effect::acts, "sizes"},
        {{{"NCCL_ALGO", "reduce_scatter:ring"}}, "NCCL_ALGO", Effect::rejected, "ReduceScatter"},
        {{{"NCCL_MIN_NCHANNELS", "x"}}, "NCCL_MIN_NCHANNELS", Effect::rejected, "a whole number"},
        {{{"NCCL_ALGO", "allreduce:tree"}}, "NCCL_ALGO", Effect::pins, "does not pin Reduce and ReduceScatter"},
        {{{"NCCL_ALGO", "allreduce:tree"}}, "NCCL_ALGO", Effect::missing, "ReduceScatter is not pinned: RING, NVLS"},
        {{{"NCCL_ALGO", "Tree"}},
         "NCCL_ALGO",
         Effect::missing,
         "no algorithm is left for Reduce by algorithm TREE: NCCL fails"},
        {{{"NCCL_ALGO", "NVLS"}, {"NCCL_NVLS_ENABLE", "0"}},
         "NCCL_ALGO",
         Effect::contradictory,
         "NVLS is switched off"},
        {{{"NCCL_ALGO", "allreduce:collnetdirect"}}, "NCCL_ALGO", Effect::contradictory, "is switched off"},
        {{{"NCCL_MIN_NCHANNELS", "8"}, {"NCCL_MAX_NCHANNELS", "4"}},
         "NCCL_MIN_NCHANNELS",
         Effect::contradictory,
         "copies them up to 8"},
        {{{"NCCL_MIN_CTAS", "8"}, {"NCCL_MAX_CTAS", "4"}}, "NCCL_MIN_CTAS", Effect::contradictory, "uses 4 for both"},
        {{{"NCCL_MAX_NCHANNELS", "1"}}, "NCCL_MAX_NCHANNELS", Effect::pins, "one channel"},
        {{{"NCCL_MAX_NCHANNELS", "8"}}, "NCCL_MAX_NCHANNELS", Effect::acts, "fewer channels"},
        {{{"NCCL_NVLS_ENABLE", "0"}}, "NCCL_NVLS_ENABLE", Effect::pins, "no NVLS"},
        {{{"NCCL_NVLS_ENABLE", "2"}}, "NCCL_NVLS_ENABLE", Effect::acts, "not observable"},
        {{{"NCCL_WIN_ENABLE", "0"}}, "NCCL_WIN_ENABLE", Effect::pins, "no symmetric kernels"},
        {{}, "NCCL_WIN_ENABLE", Effect::missing, "symmetric windows"},
        {{{"NCCL_TOPO_FILE", "t.xml"}}, "NCCL_TOPO_FILE", Effect::acts, "through the topology search only"},
        {{{"NCCL_GRAPH_FILE", "g.xml"}}, "NCCL_GRAPH_FILE", Effect::pins, "ring and tree"},
        {{{"NCCL_SYM_NOWIN_ENABLE", "1"}}, "NCCL_SYM_NOWIN_ENABLE", Effect::inert, "read since NCCL 2.29.2"},
        {{{"CUBLAS_WORKSPACE_CONFIG", ":4096:8"}}, "CUBLAS_WORKSPACE_CONFIG", Effect::inert, "not the collectives"},
    };
    for (const auto& each : cases) {
        const LintReport report = lint(each.environment, {});
        const LintRow* row = row_of(report, each.key, each.effect);
        BOOST_TEST_CONTEXT(each.key << " " << name(each.effect)) {
            BOOST_REQUIRE(row != nullptr);
            BOOST_TEST(row->what.find(each.part) != std::string::npos, row->what);
        }
    }
    const LintReport later = lint({{"NCCL_SYM_NOWIN_ENABLE", "1"}}, {{2, 30, 7}, 8, 8});
    BOOST_TEST(row_of(later, "NCCL_SYM_NOWIN_ENABLE", Effect::acts) != nullptr);
    BOOST_TEST(
        lint({{"PATH", "/bin"}, {"HOME", "/root"}, {"NCCL_WIN_ENABLE", "0"}, {"NCCL_ALGO", "ring"}}, {}).rows.size() ==
        2u);
}

BOOST_AUTO_TEST_CASE(blocks_that_projects_use) {
    const LintScope one_node{{2, 28, 9}, 8, 8}, many_nodes{{2, 28, 9}, 8, 1}, rails{{2, 28, 9}, 16, 8};
    struct {
        const Environment& environment;
        LintScope scope;
        Collective collective;
        Invariance invariance;
        Holds holds;
    } cases[]{
        // One channel: one ring, one tree. Owner dependence stays, for which vLLM reduces to a fixed root.
        {vllm, one_node, Collective::all_reduce, Invariance::count, Holds::yes},
        {vllm, one_node, Collective::all_reduce, Invariance::routing, Holds::yes},
        {vllm, one_node, Collective::reduce, Invariance::count, Holds::yes},
        {vllm, one_node, Collective::reduce, Invariance::owner, Holds::no},
        {vllm, one_node, Collective::reduce_scatter, Invariance::owner, Holds::no},
        {vllm, rails, Collective::reduce, Invariance::position, Holds::yes},
        {vllm, rails, Collective::all_reduce, Invariance::count, Holds::yes},
        // allreduce:tree leaves ReduceScatter to Ring or PAT there, by size.
        {vllm, many_nodes, Collective::reduce_scatter, Invariance::count, Holds::no},
        {vllm, many_nodes, Collective::reduce_scatter, Invariance::run_to_run, Holds::yes},
        {copied, one_node, Collective::all_reduce, Invariance::count, Holds::yes},
        // Ring: the same again, but its order depends on where an element lies.
        {megatron, one_node, Collective::all_reduce, Invariance::run_to_run, Holds::yes},
        {megatron, one_node, Collective::all_reduce, Invariance::count, Holds::no},
        {megatron, one_node, Collective::all_reduce, Invariance::position, Holds::no},
        {megatron, one_node, Collective::reduce, Invariance::position, Holds::depends},
        {megatron, many_nodes, Collective::reduce, Invariance::position, Holds::yes},
        {megatron, rails, Collective::reduce, Invariance::position, Holds::depends},
        // Tree on many channels: holds if the channels' trees are equal; over several nodes there are two.
        {sglang, one_node, Collective::all_reduce, Invariance::run_to_run, Holds::yes},
        {sglang, one_node, Collective::all_reduce, Invariance::count, Holds::depends},
        {sglang, many_nodes, Collective::all_reduce, Invariance::count, Holds::no},
        {sglang, one_node, Collective::reduce_scatter, Invariance::run_to_run, Holds::unknown},
        // ^NVLS leaves NVLSTree, which exists over several nodes.
        {pytorch, one_node, Collective::all_reduce, Invariance::run_to_run, Holds::yes},
        {pytorch, rails, Collective::all_reduce, Invariance::run_to_run, Holds::unknown},
        {pytorch, one_node, Collective::all_reduce, Invariance::rank_equal, Holds::yes},
        {pytorch, one_node, Collective::all_reduce, Invariance::count, Holds::no},
    };
    for (const auto& each : cases)
        BOOST_TEST_CONTEXT(name(each.collective) << " " << name(each.invariance) << " " << each.scope.ranks << "/"
                                                 << each.scope.ranks_per_node)
    BOOST_TEST(std::string(name(answer_of(lint(each.environment, each.scope), each.collective, each.invariance))) ==
               std::string(name(each.holds)));

    struct {
        const Environment& environment;
        const char* block;
    } blocks[]{{vllm, "vLLM's batch-invariant block"},
               {copied, "as torchtitan and others copy it"},
               {megatron, "Megatron's deterministic mode (Ring only)"},
               {sglang, "SGLang's deterministic mode"},
               {pytorch, "PyTorch's deterministic mode (^NVLS)"}};
    for (const auto& each : blocks) {
        const LintReport report = lint(each.environment, one_node);
        BOOST_REQUIRE(report.blocks.size() == 1u);
        BOOST_TEST(report.blocks[0].find(each.block) != std::string::npos, report.blocks[0]);
    }
    BOOST_TEST(lint({}, one_node).blocks.empty());
}

BOOST_AUTO_TEST_CASE(the_settings_of_the_block_differ_in_effect) {
    const LintReport report = lint(vllm, {});
    BOOST_TEST(row_of(report, "NCCL_P2P_NET_DISABLE", Effect::inert) != nullptr);
    BOOST_TEST(row_of(report, "NCCL_NTHREADS", Effect::rejected) != nullptr);
    BOOST_TEST(row_of(report, "NCCL_ALGO", Effect::pins) != nullptr);
    BOOST_TEST(row_of(report, "NCCL_MAX_NCHANNELS", Effect::pins) != nullptr);
    BOOST_TEST(row_of(report, "NCCL_NVLS_ENABLE", Effect::pins) != nullptr);
}

BOOST_AUTO_TEST_CASE(settings_that_nccl_fails_on_give_no_invariance) {
    for (const Environment& environment :
         {Environment{{"NCCL_ALGO", "Tree"}}, Environment{{"NCCL_ALGO", "Bing"}}, Environment{{"NCCL_PROTO", "LL12"}}})
        BOOST_TEST((answer_of(lint(environment, {}), Collective::reduce, Invariance::rank_equal) == Holds::fails));
}

BOOST_AUTO_TEST_CASE(two_ranks_always_have_one_order) {
    for (const int per_node : {1, 2}) {
        const LintReport report = lint({{"NCCL_NVLS_ENABLE", "0"}}, {{2, 28, 9}, 2, per_node});
        for (const CollectiveAnswer& answer : report.answers) BOOST_TEST((answer.holds == Holds::yes), answer.why);
    }
}

BOOST_AUTO_TEST_CASE(recipes_are_confirmed_by_the_model) {
    int confirmed = 0, impossible = 0;
    for (const LintScope scope : {LintScope{{2, 28, 9}, 8, 8}, LintScope{{2, 28, 9}, 8, 1},
                                  LintScope{{2, 30, 7}, 16, 8}, LintScope{{2, 27, 3}, 4, 4}}) {
        const LintReport report = lint({}, scope);
        BOOST_TEST(report.recipes.size() == all_collectives.size() * all_invariances.size());
        for (const Recipe& recipe : report.recipes) {
            const bool owned = recipe.collective != Collective::all_reduce &&
                               (recipe.invariance == Invariance::owner || recipe.invariance == Invariance::routing);
            BOOST_TEST_CONTEXT(name(recipe.collective) << " " << name(recipe.invariance) << " " << scope.ranks_per_node)
            BOOST_TEST(std::string(name(recipe.confirmed)) == (owned ? "no" : "yes"));
            ++(owned ? impossible : confirmed);
            BOOST_TEST(!recipe.cost.empty());
            // With the recipe's settings the linter gives the same answer.
            if (recipe.settings.empty()) continue;
            const LintReport followed = lint(Environment(recipe.settings.begin(), recipe.settings.end()), scope);
            BOOST_TEST((answer_of(followed, recipe.collective, recipe.invariance) == recipe.confirmed));
        }
    }
    BOOST_TEST(confirmed == 4 * 14);
    BOOST_TEST(impossible == 4 * 4);
}

BOOST_AUTO_TEST_CASE(scopes_that_are_not_layouts_are_refused) {
    for (const LintScope scope :
         {LintScope{{}, 0, 1}, LintScope{{}, 8, 3}, LintScope{{}, 8, 0}, LintScope{{}, 4096, 8}})
        BOOST_CHECK_THROW((void)lint({}, scope), UsageError);
}

BOOST_AUTO_TEST_CASE(mutated_environments_are_assessed) {
    const auto [assessed, refused] = mutate({"NCCL_ALGO=allreduce:tree;reducescatter:ring\nNCCL_PROTO=Simple\nNCCL_MIN_"
                                             "NCHANNELS=2\nNCCL_MAX_NCHANNELS=8\nNCCL_NTHREADS=64\n"},
                                            31, 60, [](const std::string& text) {
                                                (void)lint(parse_environment(text, "mutant"), {{2, 28, 9}, 4, 4});
                                            });
    BOOST_TEST(assessed > 10);
    (void)refused;
}

BOOST_AUTO_TEST_CASE(the_command_prints_the_same_as_text_and_as_json) {
    const std::string command = "order lint --env - --ranks 8 --want count", settings = "NCCL_ALGO=Ring\n";
    const auto text = testing::run(command, settings), json = testing::run(command + " --json -", settings);
    BOOST_TEST(text.exit == 1, text.err);
    BOOST_TEST(json.exit == 1, json.err);
    const auto document = nlohmann::json::parse(json.out);
    BOOST_TEST(document.at("wanted") == "count");
    BOOST_TEST(document.at("achieved") == false);
    for (const auto& row : document.at("settings")) BOOST_TEST(text.says(row.at("what").get<std::string>()), text.out);
    for (const auto& answer : document.at("answers")) BOOST_TEST(text.says(answer.at("why").get<std::string>()));
    for (const auto& recipe : document.at("recipes")) BOOST_TEST(text.says(recipe.at("cost").get<std::string>()));
    for (const char* list : {"assumptions", "blocks"})
        for (const auto& each : document.at(list)) BOOST_TEST(text.says(each.get<std::string>()));
    BOOST_TEST(document.at("answers").size() == 3u);
    BOOST_TEST(document.at("recipes").size() == 3u);
    BOOST_TEST(document.at("assumptions").size() == 1u);
    BOOST_TEST(document.at("blocks").size() == 1u);
}
