// Real NCCL on this machine's GPUs: the table of properties, planted faults caught by name, ranks that die between
// calls.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE impl_gpu
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "impl/check/compare_with_model.hpp"
#include "impl/check/invariance_properties.hpp"
#include "impl/combine/combine.hpp"
#include "model/support/error.hpp"
#include "tests/support/program.hpp"

using namespace samesum;
using namespace samesum::gpu;

namespace {

/// Without a GPU nothing can be tested here; CTest counts exit code 77 as skipped.
const Hardware& hardware() {
    static const Hardware found = [] {
        try {
            return probe_hardware();
        } catch (const Inconclusive& why) {
            std::printf("skipped: %s\n", why.what());
            std::fflush(stdout);
            ::_exit(77);
        }
    }();
    return found;
}

struct NeedsDevice {
    NeedsDevice() { (void)hardware(); }
};
BOOST_TEST_GLOBAL_FIXTURE(NeedsDevice);

}  // namespace

BOOST_AUTO_TEST_CASE(every_scheme_does_as_the_table_says) {
    for (const int count : {2, 3, 4}) {
        LiveRanks ranks({.ranks = count}, hardware());
        const auto ledger = check_properties(ranks, {.schemes = {all_schemes.begin(), all_schemes.end()},
                                                     .formats = {Format::bfloat16, Format::float32},
                                                     .hidden = 256,
                                                     .cases = 1,
                                                     .only = ""});
        BOOST_TEST(ledger.size() > 100u);
        bool vllm_default_caught = false;
        for (const Evidence& evidence : ledger) {
            BOOST_TEST(evidence.as_claimed(),
                       evidence.claim << " " << evidence.scope << ": " << evidence.witness << evidence.detail);
            vllm_default_caught = vllm_default_caught || (evidence.claim == "vllm_default_on_nccl_is_owner_invariant" &&
                                                          evidence.verdict == Verdict::refuted);
        }
        // With 2 ranks every path is one addition; from 3 on the default follows the owner.
        BOOST_TEST(vllm_default_caught == (count > 2));
    }
}

BOOST_AUTO_TEST_CASE(faults_are_caught_by_name) {
    const std::string program = SAMESUM_BINARY_DIR "/samesum-impl-faulty";
    BOOST_REQUIRE(std::filesystem::exists(program));
    for (const Fault fault : all_faults) {
        const bool of_fixed_root = fault == Fault::root_is_owner || fault == Fault::root_copy_on_other_stream;
        const std::string command = "'" + program + "' run --properties --ranks 4 --cases 2 --hidden 256 --scheme " +
                                    (of_fixed_root ? "fixed_root" : "gather_ordered,exchange_ordered") + " --fault " +
                                    std::string(name(fault));
        BOOST_TEST(testing::run_line(command).exit == 0, command);
    }
    // A build without SAMESUM_FAULTS refuses.
    BOOST_TEST(testing::run("run --ranks 2 --scheme fixed_root --fault root_is_owner").exit == 2);
}

BOOST_AUTO_TEST_CASE(a_rank_killed_between_calls_is_reported_and_replaced) {
    LiveRanks ranks({.ranks = 3, .timeout_s = 5}, hardware());
    ranks.open({});
    CombineRun run;
    run.scheme = Scheme::exchange_ordered;
    run.routing = {{2, 2, 2}, 64};
    for (int rank = 0; rank < 3; ++rank) {
        const auto input = ranks.input(rank, 6 * 64 * 2);
        for (std::uint64_t i = 0; i < 6 * 64; ++i) store(run.format, input, i, 0x3f80);
    }
    const auto before = ranks.combine(run).digests;
    ::kill(ranks.group().processes()[1], SIGKILL);
    BOOST_CHECK_EXCEPTION((void)ranks.combine(run), RankFailure, [](const RankFailure& failure) {
        return failure.kind == RankFailure::Kind::died && failure.rank == 1;
    });
    BOOST_TEST((ranks.combine(run).digests == before));
}
