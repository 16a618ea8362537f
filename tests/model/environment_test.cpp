// Environments as users write them, and values that NCCL reads as something else.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE environment
#include "model/input/environment_file.hpp"
#include "model/nccl/settings.hpp"

#include <boost/test/unit_test.hpp>

#include "model/support/error.hpp"
#include "tests/support/mutate.hpp"

using namespace samesum;

BOOST_AUTO_TEST_CASE(every_way_of_writing_a_setting) {
    struct {
        const char* text;
        Environment expected;
    } cases[]{
        {"", {}},
        {"# only a comment\n\n", {}},
        {"NCCL_ALGO=Ring", {{"NCCL_ALGO", "Ring"}}},
        {"NCCL_ALGO=Ring\r\nNCCL_PROTO=LL\r\n", {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "LL"}}},
        {"export NCCL_ALGO=Ring # pinned", {{"NCCL_ALGO", "Ring"}}},
        {"export NCCL_ALGO='allreduce:tree;reducescatter:ring'", {{"NCCL_ALGO", "allreduce:tree;reducescatter:ring"}}},
        {"declare -x NCCL_ALGO=\"Ring\"", {{"NCCL_ALGO", "Ring"}}},
        {"set NCCL_ALGO=Ring", {{"NCCL_ALGO", "Ring"}}},
        {"setenv NCCL_ALGO Ring", {{"NCCL_ALGO", "Ring"}}},
        {"ENV NCCL_ALGO=Ring NCCL_PROTO=Simple", {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "Simple"}}},
        {"-e NCCL_ALGO=Ring -e NCCL_PROTO=LL \\", {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "LL"}}},
        {"--env NCCL_ALGO=Ring \\\n--env=NCCL_PROTO=LL", {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "LL"}}},
        {"-e 'NCCL_ALGO=allreduce:tree'", {{"NCCL_ALGO", "allreduce:tree"}}},
        {"-x NCCL_ALGO=Ring", {{"NCCL_ALGO", "Ring"}}},
        {"- NCCL_ALGO=Ring", {{"NCCL_ALGO", "Ring"}}},
        {"environment:\n  NCCL_ALGO: Ring\n  NCCL_PROTO: 'LL'", {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "LL"}}},
        {"\"NCCL_ALGO\": \"allreduce:tree\",", {{"NCCL_ALGO", "allreduce:tree"}}},
        {"os.environ[\"NCCL_ALGO\"] = \"allreduce:tree\"", {{"NCCL_ALGO", "allreduce:tree"}}},
        {"    os.environ.setdefault('NCCL_ALGO', 'Ring')  # why", {{"NCCL_ALGO", "Ring"}}},
        {"NCCL_ALGO=Ring NCCL_PROTO=LL python train.py --n 3", {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "LL"}}},
        {"NCCL_ALGO=Ring python train.py", {{"NCCL_ALGO", "Ring"}}},
        {"NCCL_THREAD_THRESHOLDS=8 8 64", {{"NCCL_THREAD_THRESHOLDS", "8 8 64"}}},
        {"PS1=[\\u@\\h \\W]\\$ \nA=b c", {{"PS1", "[\\u@\\h \\W]\\$"}, {"A", "b c"}}},
        {"NCCL_ALGO=Ring\nNCCL_ALGO=Tree", {{"NCCL_ALGO", "Tree"}}},
        {"NCCL_ALGO=Ring\nunset NCCL_ALGO", {}},
        {"NCCL_ALGO=", {{"NCCL_ALGO", ""}}},
        {"BASH_FUNC_module%%=() {  eval x\n y=$1; z\n}\nNCCL_ALGO=Ring", {{"NCCL_ALGO", "Ring"}}},
        {"{\"NCCL_ALGO\": \"Ring\", \"NCCL_MIN_NCHANNELS\": 4, \"VLLM_BATCH_INVARIANT\": true, \"X\": null}",
         {{"NCCL_ALGO", "Ring"}, {"NCCL_MIN_NCHANNELS", "4"}, {"VLLM_BATCH_INVARIANT", "1"}}},
        {" {\"env\": {\"NCCL_ALGO\": \"Ring\"}}", {{"NCCL_ALGO", "Ring"}}},
        {"[\"NCCL_ALGO=Ring\", \"PATH=/bin\"]", {{"NCCL_ALGO", "Ring"}, {"PATH", "/bin"}}},
        {"[{\"name\": \"NCCL_ALGO\", \"value\": \"Ring\"}]", {{"NCCL_ALGO", "Ring"}}},
    };
    for (const auto& each : cases)
        BOOST_TEST_CONTEXT(each.text) BOOST_TEST((parse_environment(each.text, "f") == each.expected));
}

BOOST_AUTO_TEST_CASE(what_is_not_a_setting_is_refused_with_its_line) {
    struct {
        const char* text;
        const char* part;
    } cases[]{
        {"NCCL_ALGO=Ring\nhello world", "line 2: 'hello world' is not a setting"},
        {"=Ring", "line 1"},
        {"NCCL-ALGO=Ring", "is not a setting"},
        {"export NCCL_ALGO='Ring", "expected a closing quote"},
        {"{\"NCCL_ALGO\": ", "begins like JSON but is not"},
        {"{\"NCCL_ALGO\": [1]}", "expected text or a number"},
        {"[3]", "expected a list of"},
        {"os.environ[NCCL_ALGO] = x", "expected os.environ"},
    };
    for (const auto& each : cases) BOOST_TEST_CONTEXT(each.text)
    BOOST_CHECK_EXCEPTION((void)parse_environment(each.text, "file.env"), UsageError, [&](const UsageError& error) {
        const std::string what = error.what();
        BOOST_TEST(what.find("file.env") == 0u);
        BOOST_TEST(what.find(each.part) != std::string::npos, what);
        return true;
    });
}

BOOST_AUTO_TEST_CASE(settings_are_taken_as_nccl_takes_them) {
    const auto applied = [](const Environment& environment) {
        Settings settings;
        apply_environment(environment, settings);
        return settings;
    };
    BOOST_TEST(applied({}).algorithms.empty());
    BOOST_TEST(applied({{"NCCL_ALGO", ""}}).algorithms.empty());
    const Settings pinned = applied({{"NCCL_ALGO", "ring;allreduce:tree,nvlstree"}, {"NCCL_PROTO", "^LL128"}});
    BOOST_TEST((pinned.algorithms.at(Collective::all_reduce) == std::vector{Algorithm::tree, Algorithm::nvls_tree}));
    BOOST_TEST((pinned.algorithms.at(Collective::reduce) == std::vector{Algorithm::ring}));
    BOOST_TEST((pinned.protocols.at(Collective::reduce) == std::vector{Protocol::ll, Protocol::simple}));

    struct {
        Environment environment;
        int min, max;
    } channels[]{
        {{{"NCCL_MIN_NCHANNELS", "4"}}, 4, 0},
        {{{"NCCL_MAX_NCHANNELS", "0"}}, 0, 1},
        {{{"NCCL_MAX_NCHANNELS", "100"}}, 0, 64},
        {{{"NCCL_MIN_NRINGS", "4"}}, 4, 0},
        {{{"NCCL_MIN_NRINGS", "4"}, {"NCCL_MIN_NCHANNELS", "8"}}, 8, 0},
        {{{"NCCL_MIN_NCHANNELS", "8"}, {"NCCL_MAX_NCHANNELS", "4"}}, 8, 4},
        {{{"NCCL_MAX_NCHANNELS", "8"}, {"NCCL_MAX_CTAS", "4"}}, 0, 4},
        {{{"NCCL_MIN_CTAS", "8"}, {"NCCL_MAX_CTAS", "4"}}, 4, 4},
        {{{"NCCL_MIN_CTAS", "-1"}, {"NCCL_MAX_CTAS", "0"}}, 0, 0},
        {{{"NCCL_MIN_NCHANNELS", "0x10"}}, 16, 0},
    };
    for (const auto& each : channels) {
        BOOST_TEST(applied(each.environment).min_channels == each.min);
        BOOST_TEST(applied(each.environment).max_channels == each.max);
    }
    struct {
        const char* value;
        int simple, wide;
    } threads[]{{"1", 512, 640}, {"256", 256, 256}, {"32", 64, 160}, {"1024", 512, 640}, {"100", 512, 640}};
    for (const auto& each : threads) {
        BOOST_TEST(*applied({{"NCCL_NTHREADS", each.value}}).threads == each.simple);
        BOOST_TEST(*applied({{"NCCL_LL128_NTHREADS", each.value}}).ll128_threads == each.wide);
    }
    BOOST_TEST(!applied({{"NCCL_NTHREADS", "0"}}).threads.has_value());
    BOOST_TEST(applied({{"NCCL_BUFFSIZE", "8388608"}}).simple_buffer == 8388608u);
    BOOST_TEST(applied({{"NCCL_LL_BUFFSIZE", "65536"}}).ll_buffer == 65536u);
    BOOST_TEST(applied({{"NCCL_LL128_BUFFSIZE", "65536"}}).ll128_buffer == 65536u);
    BOOST_TEST(applied({{"NCCL_BUFFSIZE", "-2"}}).simple_buffer == Settings{}.simple_buffer);
    BOOST_TEST(!applied({{"NCCL_PAT_ENABLE", "0"}}).pat_enabled);
    BOOST_TEST(applied({{"NCCL_PAT_ENABLE", "1"}}).pat_forced);
    BOOST_TEST(!applied({{"NCCL_PAT_ENABLE", "2"}}).pat_forced);
    BOOST_TEST(!applied({{"NCCL_NVLS_ENABLE", "0"}}).nvls_enabled);
    BOOST_TEST(!applied({{"NCCL_WIN_ENABLE", "0"}}).symmetric_enabled);
    BOOST_TEST(applied({{"NCCL_NET_OVERHEAD", "2500"}}).net_overhead == 2.5);
    BOOST_TEST(applied({{"NCCL_IB_HCA", "mlx5_0"}, {"PATH", "x"}}).min_channels == 0);
}

BOOST_AUTO_TEST_CASE(values_that_nccl_would_misread_are_refused) {
    struct {
        const char *key, *value, *right;
    } cases[]{
        {"NCCL_ALGO", "Bing", "Tree, Ring"},
        {"NCCL_ALGO", "reduce_scatter:ring", "ReduceScatter"},
        {"NCCL_ALGO", "allreduce,reduce:ring", "is not a function"},
        {"NCCL_ALGO", "ring;tree", "only the first list may lack a function"},
        {"NCCL_ALGO", "nvls_tree", "NVLSTree"},
        {"NCCL_ALGO", "allreduce:", "an empty list"},
        {"NCCL_PROTO", "LL12", "LL, LL128 or Simple"},
        {"NCCL_MIN_NCHANNELS", "many", "a whole number of channels"},
        {"NCCL_MIN_NCHANNELS", "8 channels", "a whole number of channels"},
        {"NCCL_NTHREADS", "x", "a multiple of 32"},
        {"NCCL_BUFFSIZE", "4M", "a number of bytes"},
        {"NCCL_BUFFSIZE", "1", "a number of bytes"},
        {"NCCL_NVLS_ENABLE", "off", "0 (off)"},
        {"NCCL_PAT_ENABLE", "3", "0 (off)"},
        {"NCCL_COLLNET_ENABLE", "yes", "0 or 1"},
        {"NCCL_MAX_NCHANNELS", "99999999999999999999", "a whole number"},
    };
    for (const auto& each : cases) {
        Settings settings;
        BOOST_TEST_CONTEXT(each.key << "=" << each.value)
        BOOST_CHECK_EXCEPTION(apply_environment({{each.key, each.value}}, settings), UsageError,
                              [&](const UsageError& error) {
                                  const std::string what = error.what();
                                  BOOST_TEST(what.find(std::string(each.key) + "=" + each.value + ":") == 0u, what);
                                  BOOST_TEST(what.find(each.right) != std::string::npos, what);
                                  return true;
                              });
    }
}

BOOST_AUTO_TEST_CASE(mutated_environments_parse_or_are_refused) {
    const auto [parsed, refused] =
        mutate({"export NCCL_ALGO='allreduce:tree;reducescatter:ring'\nNCCL_PROTO=^LL128,Simple\n-e "
                "NCCL_MIN_NCHANNELS=8 -e NCCL_BUFFSIZE=4194304 \\\n"
                "os.environ[\"NCCL_NTHREADS\"] = \"256\"\nA: 'b'\nBASH_FUNC_x%%=() {\n}\n",
                "{\"env\": {\"NCCL_ALGO\": \"Ring\", \"NCCL_NVLS_ENABLE\": 0, \"B\": [1, {\"c\": null}]}}",
                "[\"NCCL_ALGO=Ring\", {\"name\": \"X\", \"value\": \"1\"}]"},
               5, 20000, [](const std::string& text) {
                   Settings settings;
                   apply_environment(parse_environment(text, "mutant"), settings);
               });
    BOOST_TEST(parsed > 1000);
    BOOST_TEST(refused > 1000);
}
