// The calls that the drop-in NCCL makes in place of the program's, for each policy, without a GPU.
// SPDX-License-Identifier: Apache-2.0
//
// Rank 1 of 4 needs no CUDA memory for fixed_root, so all of its calls can run here. tests/gpu/gpu_dropin.py tests the
// ordered sums.
#define BOOST_TEST_MODULE impl_dropin_policy
#include <boost/test/unit_test.hpp>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/dropin.hpp"

namespace {

using namespace samesum::testing;

/// Calls of rank 1 of 4 under a policy.
struct PolicyCase {
    std::string name;
    Environment environment;
    std::function<Lines(DropIn&)> body;  ///< returns the calls' results
    Lines results;                       ///< returned by the body
    Lines calls;                         ///< received by the fake
    std::string error{};                 ///< part of the one line on stderr; empty: none
};

const std::vector<PolicyCase> policy_cases{
    {"no policy forwards",
     {},
     [](DropIn& s) {
         return Lines{number(s.all_reduce()), number(s.reduce_scatter()), number(s.reduce(2)),
                      number(s.all_reduce(100, ncclBfloat16, ncclAvg))};
     },
     {"0", "0", "0", "0"},
     {"AllReduce 100", "ReduceScatter 100", "Reduce 10 to 2", "AllReduce 100"}},
    {"an all-reduce is a reduce and a broadcast",
     fixed_root,
     [](DropIn& s) { return Lines{number(s.all_reduce())}; },
     {"0"},
     {"Reduce 100 to 0", "Broadcast 100 from 0"}},
    {"a reduce-scatter is a reduce and a scatter",
     fixed_root,
     [](DropIn& s) { return Lines{number(s.reduce_scatter())}; },
     {"0"},
     {"Reduce 400 to 0", "GroupStart", "Recv 200 from 0", "GroupEnd"}},
    {"a single reduce to another root goes by root 0",
     fixed_root,
     [](DropIn& s) {
         return Lines{number(s.reduce(1)), number(s.reduce(3))};
     },
     {"0", "0"},
     {"Reduce 10 to 0", "GroupStart", "Recv 20 from 0", "GroupEnd", "Reduce 10 to 0", "GroupStart", "GroupEnd"}},
    {"a single reduce to root 0 is forwarded",
     fixed_root,
     [](DropIn& s) { return Lines{number(s.reduce(0))}; },
     {"0"},
     {"Reduce 10 to 0"}},
    {"reduces to each owner in one group become one reduce, after the group's other calls",
     fixed_root,
     [](DropIn& s) {
         Lines results{number(s.start())};
         for (int root = 0; root < 4; ++root)
             results.push_back(number(s.reduce(root, 10, static_cast<std::size_t>(root))));
         results.push_back(number(s.all_gather()));
         results.push_back(number(s.end()));
         return results;
     },
     {"0", "0", "0", "0", "0", "0", "0"},
     {"GroupStart", "AllGather 100", "GroupEnd", "Reduce 40 to 0", "GroupStart", "Recv 20 from 0", "GroupEnd"}},
    {"a decreasing root begins a new reduce",
     fixed_root,
     [](DropIn& s) {
         (void)s.start();
         (void)s.reduce(2);
         (void)s.reduce(1);
         return Lines{number(s.end())};
     },
     {"0"},
     {"GroupStart", "GroupEnd", "Reduce 10 to 0", "GroupStart", "GroupEnd", "Reduce 10 to 0", "GroupStart",
      "Recv 20 from 0", "GroupEnd"}},
    {"only the outermost end runs deferred calls, in their order",
     fixed_root,
     [](DropIn& s) {
         (void)s.start();
         (void)s.start();
         (void)s.all_reduce(7);
         (void)s.end();
         const std::size_t before = fake_calls().size();
         (void)s.all_reduce(9);
         return Lines{std::to_string(before), number(s.end())};
     },
     {"3", "0"},
     {"GroupEnd", "Reduce 7 to 0", "Broadcast 7 from 0", "Reduce 9 to 0", "Broadcast 9 from 0"}},
    {"calls whose result has no order are forwarded",
     fixed_root,
     [](DropIn& s) {
         return Lines{number(s.all_reduce(100, ncclInt32)), number(s.all_reduce(100, ncclFloat32, ncclMax)),
                      number(s.all_reduce(0)), number(s.all_reduce(100, ncclUint64, ncclAvg))};
     },
     {"0", "0", "0", "0"},
     {"AllReduce 100", "AllReduce 100", "AllReduce 0", "AllReduce 100"}},
    {"two ranks add once, so their calls are forwarded",
     {{"SAMESUM_POLICY", "fixed_root"}, {"FAKE_RANKS", "2"}},
     [](DropIn& s) {
         return Lines{number(s.all_reduce()), number(s.reduce_scatter())};
     },
     {"0", "0"},
     {"AllReduce 100", "ReduceScatter 100"}},
    {"calls that NCCL will refuse are forwarded",
     fixed_root,
     [](DropIn& s) {
         return Lines{number(s.reduce(9)), number(s.all_reduce(5, ncclNumTypes))};
     },
     {"0", "0"},
     {"Reduce 10 to 9", "AllReduce 5"}},
    {"an average is refused",
     fixed_root,
     [](DropIn& s) {
         return Lines{number(s.all_reduce(8, ncclFloat32, ncclAvg)), s.last_error()};
     },
     {"5",
      "ncclAllReduce of float32 by avg over 4 ranks under SAMESUM_POLICY=fixed_root: NCCL scales while it adds, with "
      "a rounding that depends on protocol and position; expected ncclSum and a division by the caller"},
     {},
     "by avg over 4 ranks"},
    {"an operation of ncclRedOpCreatePreMulSum is refused",
     {{"SAMESUM_POLICY", "ordered"}},
     [](DropIn& s) { return Lines{number(s.reduce_scatter(8, ncclFloat16, static_cast<ncclRedOp_t>(6)))}; },
     {"5"},
     {},
     "ncclReduceScatter of float16 by premulsum over 4 ranks under SAMESUM_POLICY=ordered"},
    {"products are kept in order where one ncclReduce makes all of them",
     fixed_root,
     [](DropIn& s) {
         return Lines{number(s.all_reduce(8, ncclFloat32, ncclProd)),
                      number(s.reduce_scatter(8, ncclFloat32, ncclProd))};
     },
     {"0", "5"},
     {"Reduce 8 to 0", "Broadcast 8 from 0"},
     "only sums are kept in order"},
    {"a call refused in a group is refused again at its end, and nothing deferred runs",
     fixed_root,
     [](DropIn& s) {
         (void)s.start();
         const std::string sum = number(s.all_reduce());
         const std::string average = number(s.all_reduce(8, ncclFloat32, ncclAvg));
         const std::string end = number(s.end());
         return Lines{sum, average, end, number(s.all_reduce(3))};
     },
     {"0", "5", "5", "0"},
     {"GroupStart", "GroupEnd", "Reduce 3 to 0", "Broadcast 3 from 0"},
     "by avg"},
    {"sums on two communicators in one group would wait for each other",
     fixed_root,
     [](DropIn& s) {
         (void)s.start();
         (void)s.all_reduce();
         const ncclComm_t first = s.comm;
         (void)s.init();
         const std::string second = number(s.all_reduce());
         s.comm = first;
         return Lines{second, number(s.end())};
     },
     {"5", "5"},
     {"GroupStart", "GroupEnd"},
     "sums on two communicators in one group"},
    {"a simulated group with replaced calls is refused",
     fixed_root,
     [](DropIn& s) {
         (void)s.start();
         (void)s.all_reduce();
         const auto simulate = s.get<decltype(ncclGroupSimulateEnd)>("ncclGroupSimulateEnd");
         return Lines{number(simulate(nullptr)), number(s.start()), number(s.end())};
     },
     {"5", "0", "0"},
     {"GroupStart", "GroupSimulateEnd", "GroupStart", "GroupEnd"},
     "NCCL cannot estimate"},
    {"an error of NCCL is returned and names the call",
     {{"SAMESUM_POLICY", "fixed_root"}, {"FAKE_FAIL", "ncclBroadcast"}},
     [](DropIn& s) { return Lines{number(s.all_reduce())}; },
     {"6"},
     {"Reduce 100 to 0", "Broadcast 100 from 0"},
     "ncclBroadcast on rank 1: fake: an error"},
    {"an error of NCCL inside a combine leaves no group open",
     {{"SAMESUM_POLICY", "fixed_root"}, {"FAKE_FAIL", "ncclRecv"}},
     [](DropIn& s) { return Lines{number(s.reduce_scatter())}; },
     {"6"},
     {"Reduce 400 to 0", "GroupStart", "Recv 200 from 0", "GroupEnd"},
     "ncclRecv on rank 1"},
    {"a combine waits for a nonblocking communicator",
     {{"SAMESUM_POLICY", "fixed_root"}, {"FAKE_BUSY", "3"}},
     [](DropIn& s) {
         (void)s.start();
         (void)s.reduce_scatter();
         return Lines{number(s.end()), number(s.all_reduce(2, ncclInt8))};
     },
     {"0", "7"},
     {"GroupStart", "GroupEnd", "Reduce 400 to 0", "GroupStart", "Recv 200 from 0", "GroupEnd", "AllReduce 2"}},
    {"without a GPU an ordered sum fails with an error line",
     {{"SAMESUM_POLICY", "ordered"}, {"CUDA_VISIBLE_DEVICES", ""}},
     [](DropIn& s) { return Lines{number(s.all_reduce())}; },
     {"1"},
     {},
     "cudaStreamGetId"},
};

BOOST_AUTO_TEST_CASE(policies_replace_calls) {
    for (const PolicyCase& row : policy_cases) {
        const DropInOutcome outcome = in_child(row.environment, [&](DropIn& dropin) {
            (void)dropin.init();
            (void)fake_calls();
            Lines results = row.body(dropin);
            results.push_back("--");
            for (const std::string& call : fake_calls()) results.push_back(call);
            return results;
        });
        Lines expected = row.results;
        expected.push_back("--");
        expected.insert(expected.end(), row.calls.begin(), row.calls.end());
        BOOST_TEST_CONTEXT(row.name) {
            BOOST_TEST(fmt::format("{}", fmt::join(outcome.results, "\n")) ==
                       fmt::format("{}", fmt::join(expected, "\n")));
            BOOST_TEST(outcome.err.size() == (row.error.empty() ? 0u : 1u),
                       fmt::format("{}", fmt::join(outcome.err, "\n")));
            if (!row.error.empty()) {
                BOOST_TEST(outcome.complains(row.error), fmt::format("{}", fmt::join(outcome.err, "\n")));
                BOOST_TEST(outcome.complains("samesum: "));
            }
        }
    }
}

}  // namespace
