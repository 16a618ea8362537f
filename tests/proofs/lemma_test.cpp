// Formulas mean what the code that they come from computes, and a changed operation does not go unnoticed.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE proofs_lemma
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <memory>
#include <set>
#include <string>

#include "impl/kernels/indexing.hpp"
#include "model/arithmetic/random.hpp"
#include "model/nccl/channel_split.hpp"
#include "model/nccl/tree_index.hpp"
#include "proofs/claims/claims.hpp"
#include "proofs/engine/lemma.hpp"
#include "tests/support/program.hpp"

using namespace samesum;
namespace code = gpu::indexing;

BOOST_AUTO_TEST_CASE(a_lemma_computes_what_the_code_does) {
    Lemma lemma("split");
    const auto cells = lemma.natural("cells"), full_channel = lemma.natural("full_channel"),
               fitting = lemma.natural("fitting");
    const auto channel = lemma.natural("channel"), max = lemma.natural("max_channels");
    const auto split = lemma.code(
        "split_cells", [&] { return channel_split::split_cells(cells, full_channel, fitting, channel, max); });
    lemma.assume("a_channel", channel < max);
    lemma.show("lo", split.cells_lo == lemma.natural("expected_lo"));
    lemma.show("mid", split.mid_channels == lemma.natural("expected_mid"));
    lemma.show("per_channel", split.cells_per_channel == lemma.natural("expected_per_channel"));
    lemma.show("hi", split.cells_hi == lemma.natural("expected_hi"));
    lemma.show("spaced", code::spaced(cells) == lemma.natural("expected_spaced"));
    lemma.show("lines", code::tile_lines_of(cells, fitting, max) == lemma.natural("expected_lines"));
    Random random(5);
    for (int i = 0; i < 2000; ++i) {
        Assignment v;
        v["cells"] = 1 + random.below(900);
        v["full_channel"] = 1 + random.below(60);
        v["fitting"] = 1 + random.below(9);
        v["channel"] = random.below(9);
        v["max_channels"] = 1 + random.below(12);
        const bool assumed = v["channel"] < v["max_channels"];
        if (assumed) {
            const auto computed = channel_split::split_cells<std::uint64_t>(v["cells"], v["full_channel"], v["fitting"],
                                                                            v["channel"], v["max_channels"]);
            v["expected_lo"] = computed.cells_lo;
            v["expected_mid"] = computed.mid_channels;
            v["expected_per_channel"] = computed.cells_per_channel;
            v["expected_hi"] = computed.cells_hi;
        }
        v["expected_spaced"] = code::spaced(v["cells"]);
        v["expected_lines"] = code::tile_lines_of(v["cells"], v["fitting"], v["max_channels"]);
        for (const char* each : {"expected_lo", "expected_mid", "expected_per_channel", "expected_hi"}) v[each] += 0;
        const auto values = lemma.evaluate(v);
        BOOST_REQUIRE(values);
        BOOST_TEST(values->assumptions_hold == assumed);
        if (assumed) BOOST_TEST(!values->fails, values->fails.value_or(""));
        ++v["expected_spaced"];
        BOOST_TEST((lemma.evaluate(v)->fails.has_value()));
    }
}

BOOST_AUTO_TEST_CASE(words_are_of_32_bits) {
    Lemma lemma("links", Numbers::words);
    const auto nodes = lemma.natural("nodes"), node = lemma.natural("node");
    lemma.show("parent", tree_index::parent(nodes, node) == lemma.natural("expected_parent"));
    lemma.show("left", tree_index::left_child(nodes, node) == lemma.natural("expected_left"));
    lemma.show("right", tree_index::right_child(nodes, node) == lemma.natural("expected_right"));
    Random random(6);
    for (int i = 0; i < 2000; ++i) {
        const auto n = static_cast<std::uint32_t>(1 + random.below(i % 2 ? 40 : std::uint64_t{1} << 31));
        const auto at = static_cast<std::uint32_t>(random.below(n));
        const auto values = lemma.evaluate({{"nodes", n},
                                            {"node", at},
                                            {"expected_parent", tree_index::parent(n, at)},
                                            {"expected_left", tree_index::left_child(n, at)},
                                            {"expected_right", tree_index::right_child(n, at)}});
        BOOST_REQUIRE(values);
        BOOST_TEST(!values->fails, n << " nodes, node " << at << ": " << values->fails.value_or(""));
    }
}

BOOST_AUTO_TEST_CASE(what_has_no_value_is_no_counterexample) {
    Lemma lemma("division");
    const SymbolicInteger x = lemma.natural("x"), y = lemma.natural("y");
    lemma.show("at_most_x", x / y <= x);
    BOOST_TEST(!lemma.evaluate({{"x", 5}, {"y", 0}}));
    BOOST_TEST(!lemma.evaluate({{"x", 5}, {"y", 2}})->fails);
    const Obligation obligation{.name = "division", .sentence = {}, .scope = {}, .statements = {lemma.statement()}};
    BOOST_TEST((discharge(obligation, 10).verdict == Verdict::inconclusive));
}

BOOST_AUTO_TEST_CASE(a_change_that_matters_to_no_lemma_is_named) {
    std::vector<std::unique_ptr<Lemma>> lemmas;
    lemmas.push_back(std::make_unique<Lemma>("sum"));
    Lemma& lemma = *lemmas.back();
    const SymbolicInteger x = lemma.natural("x"), y = lemma.natural("y");
    const SymbolicInteger sum = lemma.code("add", [&] { return x + y; });
    (void)lemma.code("multiply", [&] { return x * y; });
    lemma.show("at_least_x", x <= sum);
    const Obligation obligation{.name = "planted",
                                .sentence = {},
                                .scope = {},
                                .statements = Lemma::mutations(lemmas, 1000),
                                .settled = Obligation::Settled::by_every_example};
    BOOST_TEST(obligation.statements.size() == 2u);
    const Evidence evidence = discharge(obligation, 10);
    BOOST_TEST((evidence.verdict == Verdict::refuted));
    BOOST_TEST(evidence.decided_by == "1 of 2 refuted");
    BOOST_TEST(evidence.detail.find("multiply_1 changes nothing") != std::string::npos, evidence.detail);
}

BOOST_AUTO_TEST_CASE(every_operation_of_the_code_is_changed_once) {
    for (const Obligation& obligation : claims_of_indexing()) {
        if (obligation.name != "mutations_are_refuted") continue;
        std::set<std::string> names;
        for (const Statement& each : obligation.statements) BOOST_TEST(names.insert(each.name).second, each.name);
        BOOST_TEST(names.size() > 70u);
        for (const char* function : {"next_first_row", "chunk", "scatter", "exchange", "received_at", "spaced",
                                     "gathered_at", "fixed_root_workspace", "gather_workspace", "exchange_workspace",
                                     "word_at", "tiles_of", "tile_lines_of", "dispatch", "gate"})
            BOOST_TEST(names.contains(std::string(function) + "_1"), function);
    }
}

BOOST_AUTO_TEST_CASE(a_changed_line_of_impl_breaks_a_proof) {
    const auto says = [](const std::string& program, const std::string& text) {
        return testing::run_line("'" SAMESUM_BINARY_DIR "/" + program + "' prove chunks_partition_the_buffer")
            .says(text);
    };
    BOOST_TEST(says("samesum-proofs", "1 of 1 claims came out as stated"));
    BOOST_TEST(says("samesum-proofs-changed", "refuted, claimed upheld"));
    BOOST_TEST(says("samesum-proofs-changed", "begins_at_0 fails for"));
}
