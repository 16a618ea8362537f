// Claims that must not be upheld: if one is, no other line of the ledger can be trusted.
// SPDX-License-Identifier: Apache-2.0
#include "model/arithmetic/hop_arithmetic.hpp"
#include "model/nccl/topology.hpp"
#include "proofs/claims/claims.hpp"
#include "proofs/engine/smt_arithmetic.hpp"

namespace samesum {
namespace {

Obligation false_claim(std::string name, std::string sentence, std::string scope, Statement statement) {
    statement.expected = SatResult::sat;
    return {.name = std::move(name),
            .sentence = std::move(sentence),
            .scope = std::move(scope),
            .statements = {std::move(statement)},
            .expected = Verdict::refuted};
}

Obligation open_claim(std::string name, std::string sentence, std::string scope, Statement statement) {
    return {.name = std::move(name),
            .sentence = std::move(sentence),
            .scope = std::move(scope),
            .statements = {std::move(statement)},
            .expected = Verdict::inconclusive};
}

}  // namespace

std::vector<Obligation> canaries() {
    std::vector<Obligation> all;
    all.push_back(false_claim("canary_addition_associates", "false: (x0 + x1) + x2 = x0 + (x1 + x2)", "float8_e4m3",
                              same_bits("float8_e4m3", ReductionTree::parse("((0 1) 2)"),
                                        ReductionTree::parse("(0 (1 2))"), Format::float8_e4m3)));
    all.push_back(
        false_claim("canary_fixed_root_on_two_rings", "false: fixed_root keeps its bits on rings 0 1 2 3 and 0 1 3 2",
                    "4 ranks, float8_e5m2",
                    same_bits("float8_e5m2", ReductionTree::left_fold(walk_ending_at({0, 1, 2, 3}, 0)),
                              ReductionTree::left_fold(walk_ending_at({0, 1, 3, 2}, 0)), Format::float8_e5m2)));
    all.push_back(open_claim("canary_impossible_assumption", "empty: x < y and y < x imply anything", "integers",
                             {.name = "integers",
                              .logic = "QF_LIA",
                              .declarations = "(declare-const x Int)\n(declare-const y Int)\n",
                              .assumptions = {{"below", {"(< x y)"}}, {"above", {"(< y x)"}}},
                              .goal = {"false"},
                              .expected_of_assumptions = SatResult::unsat}));
    // SmtArithmetic saturates; this adder does not, so the model must not confirm its counterexample.
    const SmtArithmetic e5m2(Format::float8_e5m2);
    const std::vector<Term> x = numbered("x", 2);
    all.push_back(open_claim("canary_wrong_adder", "wrong: finite float8_e5m2 values added as IEEE does", "float8_e5m2",
                             {.name = "float8_e5m2",
                              .logic = "QF_BVFP",
                              .declarations = declare(x, e5m2.leaf_sort()) + e5m2.definitions(),
                              .assumptions = {{"finite_values",
                                               {"(not (or (fp.isInfinite (value x0)) (fp.isNaN (value x0)) "
                                                "(fp.isInfinite (value x1)) (fp.isNaN (value x1))))"}}},
                              .goal = {"(not (fp.isInfinite (fp.add RNE (value x0) (value x1))))"},
                              .constants = {"x0", "x1"},
                              .confirm =
                                  [](const Assignment& v) {
                                      const Bits sum = HopArithmetic(Format::float8_e5m2).add(v.at("x0"), v.at("x1"));
                                      return std::string(is_infinite(Format::float8_e5m2, sum) ? "infinite" : "");
                                  },
                              .expected = SatResult::sat}));
    all.push_back(open_claim("canary_out_of_time", "hard: a product of two primes of 31 bits has no factors",
                             "64-bit integers",
                             {.name = "factors",
                              .logic = "QF_BV",
                              .declarations = "(declare-const x (_ BitVec 64))\n(declare-const y (_ BitVec 64))\n",
                              .goal = {"(not (and (bvugt x #x0000000000000001) (bvule x y) "
                                       "(bvult y #x0000000100000000) (= (bvmul x y) (_ bv4611685975477714963 64))))"},
                              .expected = SatResult::unknown,
                              .seconds = 0.3}));
    return all;
}

}  // namespace samesum
