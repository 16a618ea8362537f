// Formulas mean what the code that they come from computes, and a changed operation does not go unnoticed.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE proofs_lemma
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <memory>
#include <set>
#include <string>

#include "impl/indexing.hpp"
#include "model/random.hpp"
#include "proofs/claims.hpp"
#include "proofs/lemma.hpp"

using namespace samesum;
namespace code = gpu::indexing;

BOOST_AUTO_TEST_CASE(a_lemma_computes_what_the_code_does) {
    Lemma lemma("piece");
    const auto begin = lemma.natural("begin"), most = lemma.natural("most"), all = lemma.natural("all");
    const code::Range<Natural> own{lemma.natural("offset"), lemma.natural("count")};
    const auto piece = lemma.code("piece", [&] { return code::piece(begin, most, all, own); });
    lemma.assume("due", begin < all);
    lemma.show("count", piece.count == lemma.natural("expected_count"));
    lemma.show("own", piece.own == lemma.natural("expected_own"));
    lemma.show("in_piece", piece.in_piece == lemma.natural("expected_in_piece"));
    lemma.show("in_result", piece.in_result == lemma.natural("expected_in_result"));
    lemma.show("spaced", code::spaced(most) == lemma.natural("expected_spaced"));
    Random random(5);
    for (int i = 0; i < 2000; ++i) {
        Assignment v;
        v["all"] = 1 + random.below(60);
        v["begin"] = random.below(v["all"] + 5);
        v["most"] = 1 + random.below(40);
        v["offset"] = random.below(v["all"]);
        v["count"] = random.below(v["all"] - v["offset"] + 1);
        const auto computed = code::piece<std::uint64_t>(v["begin"], v["most"], v["all"], {v["offset"], v["count"]});
        v["expected_count"] = computed.count;
        v["expected_own"] = computed.own;
        v["expected_in_piece"] = computed.in_piece;
        v["expected_in_result"] = computed.in_result;
        v["expected_spaced"] = code::spaced(v["most"]);
        const auto values = lemma.evaluate(v);
        BOOST_REQUIRE(values);
        BOOST_TEST(values->assumptions_hold == (v["begin"] < v["all"]));
        if (values->assumptions_hold) BOOST_TEST(!values->fails, values->fails.value_or(""));
        ++v["expected_own"];
        BOOST_TEST((lemma.evaluate(v)->fails.has_value()));
    }
}

BOOST_AUTO_TEST_CASE(what_has_no_value_is_no_counterexample) {
    Lemma lemma("division");
    const Natural x = lemma.natural("x"), y = lemma.natural("y");
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
    const Natural x = lemma.natural("x"), y = lemma.natural("y");
    const Natural sum = lemma.code("add", [&] { return x + y; });
    (void)lemma.code("multiply", [&] { return x * y; });
    lemma.show("at_least_x", x <= sum);
    const Obligation obligation{.name = "planted",
                                .sentence = {},
                                .scope = {},
                                .statements = Lemma::planted(lemmas, 1000),
                                .settled = Obligation::Settled::by_every_example};
    BOOST_TEST(obligation.statements.size() == 2u);
    const Evidence evidence = discharge(obligation, 10);
    BOOST_TEST((evidence.verdict == Verdict::refuted));
    BOOST_TEST(evidence.decided_by == "1 of 2 refuted");
    BOOST_TEST(evidence.detail.find("multiply_1 changes nothing") != std::string::npos, evidence.detail);
}

BOOST_AUTO_TEST_CASE(every_operation_of_the_code_is_changed_once) {
    for (const Obligation& obligation : claims_of_indexing()) {
        if (obligation.name != "planted_changes_are_refuted") continue;
        std::set<std::string> names;
        for (const Statement& each : obligation.statements) BOOST_TEST(names.insert(each.name).second, each.name);
        BOOST_TEST(names.size() > 70u);
        for (const char* function : {"next_first_row", "chunk", "scatter", "exchange", "received_at", "spaced",
                                     "gathered_at", "fixed_root_workspace", "gather_workspace", "exchange_workspace",
                                     "whole_elements", "piece", "dispatch", "gate"})
            BOOST_TEST(names.contains(std::string(function) + "_1"), function);
    }
}

BOOST_AUTO_TEST_CASE(a_changed_line_of_impl_breaks_a_proof) {
    const auto says = [](const std::string& program, const std::string& text) {
        const std::string command =
            std::string(SAMESUM_BINARY_DIR "/") + program + " prove chunks_partition_the_buffer";
        const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
        std::string out;
        for (int c = std::fgetc(pipe.get()); c != EOF; c = std::fgetc(pipe.get())) out += static_cast<char>(c);
        return out.find(text) != std::string::npos;
    };
    BOOST_TEST(says("samesum-proofs", "1 of 1 claims came out as stated"));
    BOOST_TEST(says("samesum-proofs-changed", "refuted, claimed upheld"));
    BOOST_TEST(says("samesum-proofs-changed", "begins_at_0 fails for"));
}
