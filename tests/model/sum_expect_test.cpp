// Predicted shares of changed elements against the numbers of the reported cases, within three standard errors.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE sum_expectation
#include "model/analysis/changed_share.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <numeric>

#include "model/support/error.hpp"

using namespace samesum;

namespace {

ReductionTree ring(int ranks, int last) {
    std::vector<int> order(static_cast<std::size_t>(ranks));
    for (int i = 0; i < ranks; ++i) order[static_cast<std::size_t>(i)] = (last + 1 + i) % ranks;
    return ReductionTree::left_fold(order);
}

}  // namespace

BOOST_AUTO_TEST_CASE(shares_of_the_reported_cases) {
    constexpr Accumulation hops = Accumulation::per_hop, once = Accumulation::fp32_once;
    struct Case {
        const char* what;
        int ranks, last_before, last_after;
        Accumulation before, after;
        double share, published_to;  // as published, to half a unit of its last digit
    };
    const std::vector<Case> cases{
        {"C6: another owner, 8 ranks, bfloat16 hops", 8, 7, 0, hops, hops, 0.57, 0.005},
        {"C6: the same with float32 accumulation", 8, 7, 0, once, once, 0, 0},
        {"C14: float32 once instead of hops, 3 ranks", 3, 2, 2, hops, once, 0.22, 0.005},
        {"C14: 4 ranks", 4, 3, 3, hops, once, 0.33, 0.005},
        {"C14: 8 ranks", 8, 7, 7, hops, once, 0.52, 0.005},
        {"2 ranks: one addition, whatever the order", 2, 0, 1, hops, hops, 0, 0},
        {"the same order", 8, 3, 3, hops, hops, 0, 0},
    };
    for (const Case& c : cases) {
        const SumRule before{.format = Format::bfloat16, .accumulation = c.before};
        const SumRule after{.format = Format::bfloat16, .accumulation = c.after};
        const Share share =
            changed_share({ring(c.ranks, c.last_before), before}, {ring(c.ranks, c.last_after), after}, {}, 200000, 1);
        BOOST_TEST(std::fabs(share.value() - c.share) <= c.published_to + 3 * share.error(),
                   c.what << ": " << share.value() << " +- " << share.error());
        BOOST_TEST(share.samples == 200000u);
    }
}

BOOST_AUTO_TEST_CASE(shares_are_reproducible_and_their_errors_right) {
    const SumRule rule{.format = Format::bfloat16};
    const Way before{ring(4, 0), rule}, after{ring(4, 2), rule};
    const Share first = changed_share(before, after, {}, 20000, 7), again = changed_share(before, after, {}, 20000, 7);
    BOOST_TEST(first.changed == again.changed);
    // The spread over thirty seeds is the standard error that each of them gives.
    double sum = 0, squares = 0;
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
        const double share = changed_share(before, after, {}, 20000, 100 + seed).value();
        sum += share, squares += share * share;
    }
    const double mean = sum / 30, deviation = std::sqrt(squares / 30 - mean * mean);
    BOOST_TEST(deviation < 1.6 * first.error());
    BOOST_TEST(deviation > 0.5 * first.error());
    BOOST_TEST(first.changed != changed_share(before, after, {}, 20000, 8).changed);
}

// C18: whole numbers as nccl-tests has them add exactly in every order.
BOOST_AUTO_TEST_CASE(data_models_differ_in_what_they_reveal) {
    const SumRule rule{.format = Format::bfloat16};
    const Way before{ring(4, 0), rule}, after{ring(4, 2), rule};
    BOOST_TEST(changed_share(before, after, parse_data_model("integer:7"), 20000, 1).changed == 0u);
    const double normal = changed_share(before, after, parse_data_model("normal"), 20000, 1).value();
    const double scaled = changed_share(before, after, parse_data_model("normal:0.25"), 20000, 1).value();
    BOOST_TEST(normal == scaled);  // powers of two scale exactly
    BOOST_TEST(changed_share(before, after, parse_data_model("uniform"), 20000, 1).changed > 1000u);
    BOOST_TEST(changed_share(before, after, parse_data_model("spread:20"), 20000, 1).changed > 100u);
    for (const char* wrong : {"gauss", "normal:", "normal:-1", "spread:1.5", "integer:x", ""})
        BOOST_CHECK_THROW((void)parse_data_model(wrong), UsageError);
}

BOOST_AUTO_TEST_CASE(pairs_of_orders_cover_the_calls) {
    const Communicator comm{.topology = Topology::one_rank_per_node(4, 2)};
    const Call call{.collective = Collective::all_reduce, .count = 100000, .format = Format::bfloat16};
    Forced ring_forced, tree_forced;
    ring_forced.algorithm = Algorithm::ring, ring_forced.protocol = Protocol::simple;
    tree_forced.algorithm = Algorithm::tree, tree_forced.protocol = Protocol::simple;
    const Plan before = plan_call(comm, call, ring_forced), after = plan_call(comm, call, tree_forced);
    std::uint64_t elements = 0;
    for (const OrderPair& pair : order_pairs(before.schedule, after.schedule)) {
        elements += pair.elements;
        BOOST_TEST(pair.before.leaf_count() == 4);
    }
    BOOST_TEST(elements == call.count);
    const auto same = order_pairs(before.schedule, before.schedule);
    BOOST_TEST(same.size() > 1u);
    for (const OrderPair& pair : same) BOOST_TEST((pair.before == pair.after));
}
