// Aborts, revocations and waits that never end, on the drop-in NCCL without a GPU: which calls still reach NCCL, and
// that no thread uses freed memory.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE impl_dropin_abort
#include <malloc.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <string>
#include <thread>

#include "tests/support/dropin.hpp"

namespace {

using namespace samesum::testing;

/// Overwrites freed memory, so that its use shows in messages, codes or a crash.
void show_use_after_free() { (void)::mallopt(M_PERTURB, 0xa5); }

/// A replaced call on another thread; joined and described when it has returned.
class CallElsewhere {
public:
    explicit CallElsewhere(DropIn& dropin)
        : thread_([&] {
              result_ = number(dropin.all_reduce());
              error_ = dropin.last_error();
          }) {}
    [[nodiscard]] Lines outcome() {
        thread_.join();
        return {result_, error_};
    }

private:
    std::string result_, error_;
    std::thread thread_;
};

[[nodiscard]] ncclResult_t abort(const DropIn& dropin) {
    return dropin.get<decltype(ncclCommAbort)>("ncclCommAbort")(dropin.comm);
}

void append(Lines& to, const Lines& more) { to.insert(to.end(), more.begin(), more.end()); }

BOOST_AUTO_TEST_CASE(an_abort_reaches_nccl_while_another_thread_is_inside_a_call) {
    Environment environment = fixed_root;
    environment["FAKE_BLOCK"] = "ncclReduce";
    const DropInOutcome outcome = in_child(environment, [](DropIn& dropin) {
        show_use_after_free();
        (void)dropin.init();
        (void)fake_calls();
        CallElsewhere call(dropin);
        wait_for_call("ncclReduce");
        // NCCL's abort is what would end the call, so it must not wait for it.
        Lines results{number(abort(dropin))};
        append(results, fake_calls());
        release_blocked_calls();
        append(results, call.outcome());
        append(results, fake_calls());
        return results;
    });
    // The broadcast that belongs to the all-reduce is not begun.
    BOOST_TEST(outcome.results == (Lines{"0", "Reduce 100 to 0", "CommAbort", "5",
                                         "ncclAllReduce on rank 1: the communicator was aborted"}),
               boost::test_tools::per_element());
    BOOST_TEST(outcome.err.size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_call_during_an_abort_does_not_reach_nccl) {
    Environment environment = fixed_root;
    environment["FAKE_BLOCK"] = "ncclCommAbort";
    const DropInOutcome outcome = in_child(environment, [](DropIn& dropin) {
        show_use_after_free();
        (void)dropin.init();
        (void)dropin.all_reduce();
        (void)fake_calls();
        std::thread aborting([&] { (void)abort(dropin); });
        wait_for_call("ncclCommAbort");
        Lines results{number(dropin.all_reduce()), dropin.last_error()};
        release_blocked_calls();
        aborting.join();
        append(results, fake_calls());
        // The next communicator is another one.
        (void)dropin.init();
        (void)fake_calls();
        results.push_back(number(dropin.all_reduce(3)));
        append(results, fake_calls());
        return results;
    });
    BOOST_TEST(outcome.results == (Lines{"5", "the communicator was aborted", "CommAbort", "0", "Reduce 3 to 0",
                                         "Broadcast 3 from 0"}),
               boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(an_abort_ends_the_wait_for_a_nonblocking_communicator) {
    Environment environment = fixed_root;
    environment["FAKE_BUSY"] = "1000000000";
    const DropInOutcome outcome = in_child(environment, [](DropIn& dropin) {
        show_use_after_free();
        (void)dropin.init();
        (void)fake_calls();
        CallElsewhere call(dropin);
        wait_for_call("ncclCommGetAsyncError");
        (void)abort(dropin);
        Lines results = call.outcome();
        // Once NCCL has the abort, the communicator is not asked any more.
        bool aborted = false;
        std::size_t late = 0;
        for (const std::string& line : fake_record()) {
            late += aborted ? 1 : 0;
            aborted = aborted || line.starts_with("ncclCommAbort ");
        }
        results.push_back(aborted ? std::to_string(late) : "no abort");
        return results;
    });
    BOOST_TEST(outcome.results == (Lines{"5", "ncclAllReduce on rank 1: the communicator was aborted", "0"}),
               boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_wait_for_a_nonblocking_communicator_has_a_deadline) {
    Environment environment = fixed_root;
    environment["FAKE_BUSY"] = "1000000000";
    environment["SAMESUM_TIMEOUT_S"] = "1";
    const DropInOutcome outcome = in_child(environment, [](DropIn& dropin) {
        (void)dropin.init();
        (void)fake_calls();
        const auto begin = std::chrono::steady_clock::now();
        Lines results{number(dropin.all_reduce())};
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        results.push_back(took.count() >= 1 ? "waited" : "did not wait");
        // Pauses grow to 5 ms.
        const std::size_t calls = fake_record().size();
        results.push_back(calls < 1000 ? "pauses" : fmt::format("{} calls", calls));
        return results;
    });
    BOOST_TEST(outcome.results == (Lines{"2", "waited", "pauses"}), boost::test_tools::per_element());
    BOOST_TEST(outcome.err.size() == 1u);
    BOOST_TEST(outcome.complains("ncclReduce on rank 1"));
    BOOST_TEST(outcome.complains("the communicator was not ready within 1 s (SAMESUM_TIMEOUT_S)"));
}

BOOST_AUTO_TEST_CASE(a_revoked_communicator_is_still_known) {
    const DropInOutcome outcome = in_child(fixed_root, [](DropIn& dropin) {
        (void)dropin.init();
        (void)dropin.all_reduce();
        (void)fake_calls();
        Lines results{number(dropin.get<decltype(ncclCommRevoke)>("ncclCommRevoke")(dropin.comm, 0)),
                      number(dropin.all_reduce(6))};
        append(results, fake_calls());
        results.push_back(number(abort(dropin)));
        append(results, fake_calls());
        return results;
    });
    // NCCL itself refuses what a revoked communicator cannot do.
    BOOST_TEST(
        outcome.results == (Lines{"0", "0", "CommRevoke", "Reduce 6 to 0", "Broadcast 6 from 0", "0", "CommAbort"}),
        boost::test_tools::per_element());
}

}  // namespace
