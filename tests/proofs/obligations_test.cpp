// Every obligation comes out as claimed, and what must not come out green does not.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE proofs_obligations
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <regex>
#include <set>

#include "model/support/error.hpp"
#include "proofs/claims/assumptions.hpp"
#include "proofs/claims/claims.hpp"
#include "proofs/claims/vllm_scenario.hpp"
#include "proofs/engine/obligation.hpp"
#include "tests/support/program.hpp"

using namespace samesum;

namespace {

Obligation lone(Statement statement) {
    return {.name = "lone", .sentence = {}, .scope = {}, .statements = {statement}};
}

Statement integers(std::string goal, std::vector<Assumption> assumptions = {}) {
    return {.name = "integers",
            .logic = "QF_LIA",
            .declarations = "(declare-const x Int)\n",
            .assumptions = std::move(assumptions),
            .goal = {std::move(goal)}};
}

}  // namespace

BOOST_AUTO_TEST_CASE(all_come_out_as_claimed) {
    std::vector<LedgerJob> jobs;
    for (const Obligation& obligation : selected({})) jobs.push_back(ledger_job(obligation, 30));
    const std::vector<Evidence> ledger = run_ledger_jobs(jobs, 2);
    BOOST_TEST(ledger.size() == jobs.size());
    for (const Evidence& line : ledger) {
        BOOST_TEST(line.as_claimed(),
                   line.claim << " (" << line.scope << "): " << name(line.verdict) << ", " << line.detail);
        if (line.verdict == Verdict::refuted) BOOST_TEST(!line.witness.empty(), line.claim);
    }
    BOOST_TEST((exit_code(ledger) == Exit::as_claimed));
}

BOOST_AUTO_TEST_CASE(the_scenario_comes_out_as_claimed_for_other_seeds) {
    for (const std::uint64_t seed : {std::uint64_t{2}, std::uint64_t{77}}) {
        const std::vector<LedgerJob> jobs = scenario_jobs(seed);
        BOOST_TEST(jobs.size() >= 8u);
        for (const Evidence& line : run_ledger_jobs(jobs, 2)) {
            BOOST_TEST(line.as_claimed(), line.claim << ": " << line.detail << line.witness);
            if (line.expected == Verdict::refuted) {
                BOOST_TEST(line.witness.find("0x3f80") != std::string::npos);
                BOOST_TEST(line.replay == "samesum verify " + line.claim + " --seed " + std::to_string(seed));
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(nothing_weak_comes_out_green) {
    struct Case {
        const char* what;
        Obligation obligation;
        Verdict verdict;
        const char* detail;
    };
    Statement confirmed = integers("(< x 5)");
    confirmed.constants = {"x"};
    confirmed.confirm = [](const Assignment& v) { return "x = " + std::to_string(v.at("x")); };
    Statement doubted = confirmed;
    doubted.confirm = [](const Assignment&) { return std::string(); };
    Obligation empty_world{.name = "empty", .sentence = {}, .scope = {}, .enumerate = [] { return Enumeration{}; }};
    Obligation mixed = lone(integers("(=> (< x 3) (< x 5))"));
    mixed.enumerate = [] { return Enumeration{1, "a case"}; };
    Obligation by_example = lone(integers("(=> (< x 3) (< x 5))"));
    by_example.settled = Obligation::Settled::by_example;
    const std::vector<Case> cases{
        {"a truth", lone(integers("(=> (< x 3) (< x 5))")), Verdict::upheld, ""},
        {"a falsehood", lone(confirmed), Verdict::refuted, ""},
        {"one that the model denies", lone(doubted), Verdict::inconclusive, "does not confirm"},
        {"one that nobody can re-evaluate", lone(integers("(< x 5)")), Verdict::inconclusive, "does not confirm"},
        {"contradictory assumptions", lone(integers("false", {{"a", {"(< x 1)"}}, {"b", {"(> x 1)"}}})),
         Verdict::inconclusive, "cannot all hold"},
        {"nothing asked",
         {.name = "nothing", .sentence = {}, .scope = {}},
         Verdict::inconclusive,
         "no statement and no enumeration"},
        {"no case", empty_world, Verdict::inconclusive, "no case"},
        {"a proof beside a refuting case", mixed, Verdict::refuted, ""},
        {"an example that is not there", by_example, Verdict::refuted, ""},
    };
    for (const Case& each : cases) {
        const Evidence evidence = discharge(each.obligation, 10);
        BOOST_TEST((evidence.verdict == each.verdict), each.what << ": " << name(evidence.verdict));
        BOOST_TEST(evidence.detail.find(each.detail) != std::string::npos, each.what << ": " << evidence.detail);
    }
}

BOOST_AUTO_TEST_CASE(a_lost_child_is_a_line_of_the_ledger) {
    Obligation crashing{
        .name = "crashing", .sentence = {}, .scope = {}, .enumerate = []() -> Enumeration { std::abort(); }};
    Obligation hanging{.name = "hanging", .sentence = {}, .scope = {}, .enumerate = []() -> Enumeration {
                           for (volatile bool forever = true; forever;) continue;
                           return {};
                       }};
    const std::vector<LedgerJob> jobs{ledger_job(crashing, 0.3), ledger_job(hanging, 0.3)};
    const std::vector<Evidence> ledger = run_ledger_jobs(jobs, 2);
    BOOST_TEST(ledger.size() == 2u);
    for (const Evidence& line : ledger) BOOST_TEST((line.verdict == Verdict::inconclusive), line.claim);
    BOOST_TEST(ledger[0].detail.find("signal") != std::string::npos);
    BOOST_TEST(ledger[1].detail.find("no answer within") != std::string::npos);
    BOOST_TEST((exit_code(ledger) == Exit::inconclusive));
}

BOOST_AUTO_TEST_CASE(names) {
    BOOST_TEST(selected(std::vector<std::string>{"addition_commutes"}).size() == 6u);
    BOOST_TEST(selected(std::vector<std::string>{"canary_*"}).size() == canaries().size());
    const auto can_run =
        std::count_if(obligations().begin(), obligations().end(), [](const auto& each) { return each.can_run(); });
    BOOST_TEST(selected({}, true).size() == static_cast<std::size_t>(can_run));
    BOOST_TEST(obligations().size() - static_cast<std::size_t>(can_run) <= 1u);
    BOOST_TEST(selected({}).size() < obligations().size());
    BOOST_CHECK_THROW((void)selected(std::vector<std::string>{"additoin_*"}), UsageError);
    for (const Obligation& obligation : obligations()) {
        BOOST_TEST(!obligation.sentence.empty(), obligation.name);
        for (const std::string& assumed : obligation.assumes_of_nccl) {
            const auto& known = nccl_assumptions();
            BOOST_TEST(std::any_of(known.begin(), known.end(), [&](const auto& a) { return a.name == assumed; }),
                       assumed);
        }
    }
}

BOOST_AUTO_TEST_CASE(exported_queries_read_back_with_their_status) {
    std::set<std::string> files;
    std::size_t asked = 0;
    for (const Obligation& obligation : selected({}, true))
        for (const Script& script : scripts(obligation)) {
            BOOST_TEST(files.insert(script.name).second, script.name << " twice");
            BOOST_TEST(script.text.find("(set-info :status " + std::string(name(script.expected)) + ")") !=
                       std::string::npos);
            BOOST_TEST(script.text.ends_with("(check-sat)\n"));
            if (obligation.slow || script.expected == SatResult::unknown) continue;
            ++asked;
            BOOST_TEST((check({script.text, {}}, 30).result == script.expected), script.name);
        }
    BOOST_TEST(asked > 30u);
}

BOOST_AUTO_TEST_CASE(assumptions_meet_what_was_seen) {
    const auto line = [](const char* claim, Verdict verdict) {
        return Evidence{.claim = claim,
                        .sentence = {},
                        .scope = {},
                        .verdict = verdict,
                        .decided_by = {},
                        .detail = {},
                        .witness = {},
                        .replay = {}};
    };
    const std::vector<Obligation> chosen =
        selected(std::vector<std::string>{"fixed_root_is_routing_invariant", "exchange_is_a_bijection"});
    const auto says = [&](std::span<const Evidence> ledger, std::string_view text) {
        return assumption_ledger(chosen, ledger).find(text) != std::string::npos;
    };
    BOOST_TEST(says({}, "checked by: samesum reveal"));
    BOOST_TEST(!says({}, "this machine"));
    std::vector<Evidence> ledger{line("fixed_root_on_nccl_equals_model", Verdict::upheld),
                                 line("exchange_ordered_on_nccl_equals_model", Verdict::upheld),
                                 line("fixed_root_on_nccl_is_owner_invariant", Verdict::upheld)};
    BOOST_TEST(says(ledger, "apply to this communicator: fixed_root_is_routing_invariant, exchange_is_a_bijection"));
    ledger.back().verdict = Verdict::refuted;
    BOOST_TEST(says(ledger, "on this machine: does not hold: refuted by 1 of 1 lines"));
    BOOST_TEST(says(ledger, "apply to this communicator: exchange_is_a_bijection\n"));
    BOOST_TEST(says(ledger, "do not hold here or were not tested: fixed_root_is_routing_invariant\n"));
    ledger.pop_back();
    BOOST_TEST(says(ledger, "do not hold here or were not tested: fixed_root_is_routing_invariant\n"));
}

BOOST_AUTO_TEST_CASE(each_probe_is_a_command) {
    for (const NcclAssumption& each : nccl_assumptions()) {
        const std::regex command("samesum ((?:order )?[a-z]+)([^;]*)"), flag("--[a-z-]+");
        std::size_t commands = 0;
        for (std::sregex_iterator at(each.probe.begin(), each.probe.end(), command), end; at != end; ++at, ++commands) {
            const auto help = samesum::testing::run((*at)[1].str() + " --help");
            BOOST_TEST(help.exit == 0, each.probe);
            const std::string flags = (*at)[2].str();
            for (std::sregex_iterator f(flags.begin(), flags.end(), flag); f != end; ++f)
                BOOST_TEST(help.says(f->str()), each.probe << ": no flag " << f->str());
        }
        BOOST_TEST(commands > 0u, each.probe);
    }
}
