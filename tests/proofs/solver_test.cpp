// The solver's wall: answers, limits that hold, and an addition that agrees with the model's.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE proofs_solver
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "model/arithmetic/hop_arithmetic.hpp"
#include "model/arithmetic/random.hpp"
#include "model/support/error.hpp"
#include "model/support/progress.hpp"
#include "model/support/subprocess.hpp"
#include "proofs/engine/smt_arithmetic.hpp"
#include "proofs/engine/solver.hpp"

using namespace samesum;

BOOST_AUTO_TEST_CASE(answers_carry_values) {
    const std::string declared = "(declare-const x (_ BitVec 16))(declare-const idle (_ BitVec 8))";
    const Answer yes = check({declared + "(assert (= x #xbeef))", {"x", "idle"}}, 10);
    BOOST_TEST((yes.result == SatResult::sat));
    BOOST_TEST(yes.values.at("x") == 0xbeefu);
    BOOST_TEST(yes.values.at("idle") == 0u);
    const Answer no = check({declared + "(assert (and (= x #xbeef) (bvult x #x0001)))", {}}, 10);
    BOOST_TEST((no.result == SatResult::unsat));
}

BOOST_AUTO_TEST_CASE(a_broken_script_is_an_error_not_an_answer) {
    BOOST_CHECK_THROW((void)check({"(assert (= x 1))", {}}, 10), UsageError);
    BOOST_CHECK_THROW((void)check({"(assert (", {}}, 10), UsageError);
}

BOOST_AUTO_TEST_CASE(the_time_limit_holds) {
    const std::string factors =
        "(declare-const x (_ BitVec 64))(declare-const y (_ BitVec 64))"
        "(assert (and (bvugt x #x0000000000000001) (bvule x y) (bvult y #x0000000100000000)"
        " (= (bvmul x y) (_ bv4611685975477714963 64))))";
    for (const double limit : {0.2, 0.5}) {
        const double started = monotonic_seconds();
        const Answer answer = check({factors, {"x"}}, limit);
        const double took = monotonic_seconds() - started;
        BOOST_TEST((answer.result == SatResult::unknown));
        BOOST_TEST(answer.why.find("no answer within") != std::string::npos);
        BOOST_TEST(took >= limit);
        BOOST_TEST(took < limit + 1);
    }
}

BOOST_AUTO_TEST_CASE(children) {
    const auto endless = []() -> std::string {
        for (volatile bool forever = true; forever;) continue;
        return {};
    };
    const std::vector<Job> jobs{
        {"answers", [] { return std::string(200000, 'x'); }, 10},
        {"is empty", [] { return std::string(); }, 10},
        {"throws", []() -> std::string { throw Inconclusive("no device"); }, 10},
        {"crashes", []() -> std::string { std::abort(); }, 10},
        {"hangs", endless, 0.3},
        {"hangs below", [&] { return run_in_child(endless, 0).why; }, 0.3},
    };
    const double started = monotonic_seconds();
    std::size_t heard = 0;
    const auto results = run_jobs(jobs, 3, [&](std::size_t, const ChildResult&) { ++heard; });
    BOOST_TEST(monotonic_seconds() - started < 5);
    BOOST_TEST(heard == jobs.size());
    BOOST_TEST(results[0].output.value().size() == 200000u);
    BOOST_TEST(results[1].output.value().empty());
    BOOST_TEST(results[2].why == "no device");
    BOOST_TEST(!results[3].output.has_value());
    BOOST_TEST(results[3].why.find("signal 6") != std::string::npos);
    BOOST_TEST(results[4].why == "no answer within 0.3 s");
    BOOST_TEST(results[5].why == "no answer within 0.3 s");
}

BOOST_AUTO_TEST_CASE(executables) {
    const ProgramResult program = run_executable({"/bin/sh", "-c", "echo said; echo lost >&2; exit 3"}, 10);
    BOOST_TEST(program.exit_code.value() == 3);
    BOOST_TEST(program.output == "said\n");
    const ProgramResult slow = run_executable({"/bin/sh", "-c", "exec >&-; sleep 20"}, 0.3);
    BOOST_TEST(!slow.exit_code.has_value());
    BOOST_TEST(slow.why == "no end within 0.3 s");
    const ProgramResult missing = run_executable({"/no/such/program"}, 1);
    BOOST_TEST(!missing.exit_code.has_value());
    BOOST_TEST(missing.why.find("No such file") != std::string::npos);
}

/// Checks the translation: the solver's sums equal the model's, on edge cases and on random patterns.
BOOST_AUTO_TEST_CASE(the_solver_adds_as_the_model_does) {
    for (const Format format : float_formats) {
        const FormatTraits& t = traits(format);
        const SmtArithmetic arithmetic(format);
        const HopArithmetic model(format);
        Random random(7);
        std::vector<std::pair<Bits, Bits>> pairs;
        for (int i = 0; i < 300; ++i) pairs.emplace_back(random.pattern(format), random.pattern(format));
        for (int i = 0; i < 100; ++i) pairs.emplace_back(random.spread(format, 3), random.spread(format, 3));
        std::vector<Term> wrong;
        for (const auto& [x, y] : pairs) {
            const auto value = [&](Bits bits) { return arithmetic.value(bit_vector(t.width, bits)); };
            wrong.push_back(negation(equal(arithmetic.add(value(x), value(y)), value(model.add(x, y)))));
        }
        const Query any{arithmetic.definitions() + "(assert " + disjunction(wrong).text + ")", {}};
        BOOST_TEST((check(any, 30).result == SatResult::unsat), name(format) << ": a sum differs");
        // The same query with one wrong sum must be sat.
        const auto one = [&](Bits bits) { return arithmetic.value(bit_vector(t.width, bits)); };
        wrong.push_back(negation(equal(arithmetic.add(one(t.one()), one(t.one())), one(t.one()))));
        const Query spoilt{arithmetic.definitions() + "(assert " + disjunction(wrong).text + ")", {}};
        BOOST_TEST((check(spoilt, 30).result == SatResult::sat), name(format));
    }
}

/// float8 is small enough for every pair.
BOOST_AUTO_TEST_CASE(every_float8_sum_agrees) {
    for (const Format format : {Format::float8_e4m3, Format::float8_e5m2}) {
        const SmtArithmetic arithmetic(format);
        const HopArithmetic model(format);
        // 256 rows of 256 sums are too many terms for one script: a row of x is a chain of constants over y.
        std::string script = arithmetic.definitions();
        std::vector<Term> wrong;
        for (Bits x = 0; x < 256; x += 5) {
            for (Bits y = x % 3; y < 256; y += 3) {
                const Term sum = arithmetic.add(arithmetic.value(bit_vector(8, x)), arithmetic.value(bit_vector(8, y)));
                wrong.push_back(negation(equal(sum, arithmetic.value(bit_vector(8, model.add(x, y))))));
            }
        }
        script += "(assert " + disjunction(wrong).text + ")";
        BOOST_TEST((check({script, {}}, 60).result == SatResult::unsat), name(format));
    }
}

BOOST_AUTO_TEST_CASE(coq_accepts_what_is_proved_and_nothing_else) {
    BOOST_TEST(!refused_by_coq("no_such_file.v", 20).empty());
    if (!coq_is_installed()) {
        BOOST_TEST_MESSAGE("skipped: coqc is not installed");
        return;
    }
    BOOST_TEST(refused_by_coq("shape_theorem.v", 120) == "");
    // A file beside this program comes first: one with a wrong step, and one that assumes its theorem.
    const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    const auto answer = [&](const std::string& text) {
        const std::string file = "coq_test_" + std::to_string(::getpid()) + ".v";
        std::ofstream(folder / file) << text << "Print Assumptions t.\n";
        const std::string refusal = refused_by_coq(file, 60);
        std::filesystem::remove(folder / file);
        return refusal;
    };
    BOOST_TEST(answer("Theorem t : 1 + 1 = 2. Proof. reflexivity. Qed.\n") == "");
    BOOST_TEST(answer("Theorem t : 1 + 1 = 3. Proof. reflexivity. Qed.\n").find("rejected by coqc") == 0u);
    BOOST_TEST(answer("Axiom t : 1 + 1 = 3.\n").find("uses axioms") == 0u);
}
