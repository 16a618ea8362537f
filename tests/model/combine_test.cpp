// The schemes on the vLLM scenario, the dispatcher, the gate, and the invariance of each scheme.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE combine

#include "model/combine/combine.hpp"

#include <boost/test/unit_test.hpp>

#include "model/combine/invariance.hpp"
#include "model/support/error.hpp"

using namespace samesum;

namespace {

const CombineOptions ring_simple{.forced = {Algorithm::ring, Protocol::simple}};
const Communicator four{Topology::one_rank_per_node(4, 2)};
const Communicator crossed{Topology::from_rings(std::vector<Ring>{{0, 1, 2, 3}, {0, 2, 3, 1}})};

/// Partials of one token with different sums along different rings: 2^9, -2^9 and ones in bfloat16.
std::vector<Bits> telling_partials() { return {0x4400, 0x3f80, 0xc400, 0x3f80}; }

Bits token_bits(Scheme scheme, const Communicator& comm, const Routing& routing, std::uint64_t row) {
    const auto partials = telling_partials();
    std::vector<std::vector<Bits>> buffers;
    for (const Bits partial : partials) {
        buffers.emplace_back(routing.elements(), Bits{0x3f00});
        for (std::uint64_t column = 0; column < routing.hidden; ++column)
            buffers.back()[row * routing.hidden + column] = partial;
    }
    return combine(scheme, comm, routing, Format::bfloat16, buffers, ring_simple)[row * routing.hidden];
}

}  // namespace

BOOST_AUTO_TEST_CASE(decode_sizes_make_the_owner_visible) {
    const Routing decode{{1, 1, 1, 1}, 8};
    BOOST_TEST(token_bits(Scheme::vllm_default, four, decode, 0) != token_bits(Scheme::vllm_default, four, decode, 1));
    for (const Scheme scheme : {Scheme::fixed_root, Scheme::reduce_broadcast, Scheme::gather_ordered,
                                Scheme::exchange_ordered, Scheme::direct_ordered, Scheme::exact})
        for (std::uint64_t row = 1; row < 4; ++row)
            BOOST_TEST(token_bits(scheme, four, decode, row) == token_bits(scheme, four, decode, 0));
}

BOOST_AUTO_TEST_CASE(reduce_scatter_block_r_is_reduce_with_root_r) {
    const Routing equal{{3, 3, 3, 3}, 16};
    for (std::uint64_t row = 0; row < equal.rows(); ++row)
        BOOST_TEST(token_bits(Scheme::reduce_scatter, four, equal, row) ==
                   token_bits(Scheme::reduce_per_owner, four, equal, row));
}

BOOST_AUTO_TEST_CASE(the_dispatcher_and_the_gate) {
    BOOST_TEST((dispatched(Scheme::vllm_default, {{2, 2, 2}, 4}) == Scheme::reduce_scatter));
    BOOST_TEST((dispatched(Scheme::vllm_default, {{2, 0, 2}, 4}) == Scheme::reduce_per_owner));
    BOOST_TEST((dispatched(Scheme::exact, {{2, 0, 2}, 4}) == Scheme::exact));
    BOOST_TEST((gated(true, 2) == Scheme::vllm_default));
    BOOST_TEST((gated(true, 3) == Scheme::fixed_root));
    BOOST_TEST((gated(false, 8) == Scheme::vllm_default));
}

BOOST_AUTO_TEST_CASE(every_scheme_combines_ragged_and_empty_rows) {
    const Routing ragged{{5, 0, 3, 2}, 4};
    for (const Scheme scheme : all_schemes) {
        if (scheme == Scheme::reduce_scatter) continue;
        const CombinePlan plan = plan_combine(scheme, four, ragged, Format::bfloat16, ring_simple);
        std::uint64_t next = 0;
        plan.schedule.visit(0, ragged.elements(), [&](const Segment& segment) {
            BOOST_TEST(segment.begin == next);
            next = segment.end;
            return true;
        });
        BOOST_TEST(next == ragged.elements());
    }
    BOOST_TEST(
        plan_combine(Scheme::fixed_root, four, {{0, 0, 0, 0}, 4}, Format::bfloat16, ring_simple).schedule.size() == 0u);
    BOOST_CHECK_THROW((void)plan_combine(Scheme::reduce_scatter, four, ragged, Format::bfloat16, ring_simple),
                      UsageError);
    BOOST_CHECK_THROW((void)plan_combine(Scheme::fixed_root, four, {{1, 1}, 4}, Format::bfloat16, ring_simple),
                      UsageError);
    const std::vector<std::vector<Bits>> short_buffers(4, std::vector<Bits>(7));
    BOOST_CHECK_THROW((void)combine(Scheme::fixed_root, four, ragged, Format::bfloat16, short_buffers, ring_simple),
                      UsageError);
}

BOOST_AUTO_TEST_CASE(invariance_of_each_scheme) {
    struct Row {
        Scheme scheme;
        const Communicator& comm;
        bool owner, position, count, routing;
    };
    for (const Row& row : {Row{Scheme::reduce_scatter, four, false, true, true, false},
                           Row{Scheme::vllm_default, four, false, true, true, false},
                           Row{Scheme::fixed_root, four, true, true, true, true},
                           Row{Scheme::fixed_root, crossed, false, false, false, false},
                           Row{Scheme::reduce_broadcast, crossed, false, false, false, false},
                           Row{Scheme::gather_ordered, crossed, true, true, true, true},
                           Row{Scheme::exact, crossed, true, true, true, true}})
        for (const auto& [invariance, expected] :
             {std::pair{Invariance::owner, row.owner}, std::pair{Invariance::position, row.position},
              std::pair{Invariance::count, row.count}, std::pair{Invariance::routing, row.routing}}) {
            const InvarianceAnswer answer =
                decide_invariance(invariance, row.scheme, row.comm, 2048, Format::bfloat16, ring_simple);
            BOOST_TEST(answer.holds == expected, name(row.scheme) << " " << name(invariance) << ": " << answer.reason);
            BOOST_TEST(answer.example.has_value() == !expected);
            if (answer.example) BOOST_TEST(!same_order(answer.example->before_order, answer.example->after_order));
        }
}

BOOST_AUTO_TEST_CASE(by_node_the_order_is_as_documented) {
    const Communicator six{Topology::one_rank_per_node(6)};
    const Routing routing{{2, 0, 3, 1, 1, 1}, 4};
    const auto tree = [&](int ranks_per_node) {
        const CombinePlan plan = plan_combine(Scheme::exchange_ordered, six, routing, Format::bfloat16,
                                              {.ranks_per_node = ranks_per_node, .forced = {}});
        BOOST_TEST(plan.schedule.segment_count() == 1u);
        return plan.schedule.segment_at(0).order.as_tree().str();
    };
    BOOST_TEST(tree(0) == "(((((0 1) 2) 3) 4) 5)");
    BOOST_TEST(tree(2) == "(((0 1) (2 3)) (4 5))");
    BOOST_TEST(tree(3) == "(((0 1) 2) ((3 4) 5))");
    BOOST_TEST(tree(6) == tree(0));
    BOOST_TEST(tree(1) == tree(0));
    BOOST_CHECK_THROW(tree(4), UsageError);
    BOOST_CHECK_THROW(
        static_cast<void>(plan_combine(Scheme::exchange_ordered, six, routing, Format::bfloat16,
                                       {.accumulation = Accumulation::fp32_once, .ranks_per_node = 2, .forced = {}})),
        UsageError);
}

BOOST_AUTO_TEST_CASE(two_ranks_are_exempt) {
    const Communicator two{Topology::from_rings(std::vector<Ring>{{0, 1}, {1, 0}})};
    for (const Scheme scheme : all_schemes)
        BOOST_TEST(decide_invariance(Invariance::routing, scheme, two, 64, Format::bfloat16, ring_simple).holds);
}

BOOST_AUTO_TEST_CASE(a_choice_that_is_not_observable_is_never_called_invariant) {
    Communicator comm{Topology::one_node(4, 8)};
    const InvarianceAnswer answer =
        decide_invariance(Invariance::owner, Scheme::reduce_scatter, comm, 64, Format::bfloat16,
                          {.forced = {Algorithm::nvls, Protocol::simple}});
    BOOST_TEST(!answer.holds);
    BOOST_TEST(answer.reason.starts_with("not observable"));
}

BOOST_AUTO_TEST_CASE(invalid_routings_and_rings_are_rejected) {
    BOOST_CHECK_THROW((void)parse_sizes("1,2", 3), UsageError);
    BOOST_CHECK_THROW((void)parse_sizes("1,-2,3", 3), UsageError);
    BOOST_CHECK_THROW((void)parse_sizes("", 1), UsageError);
    BOOST_CHECK_THROW((void)equal_sizes(10, 4), UsageError);
    BOOST_CHECK_THROW((void)equal_sizes(10, 0), UsageError);
    BOOST_TEST((equal_sizes(8, 4) == std::vector<std::uint64_t>{2, 2, 2, 2}));
    for (const char* ring : {"", "0,0", "0,2", "1", "0,a", "0,-1"})
        BOOST_CHECK_THROW((void)parse_ring(ring), UsageError);
    BOOST_CHECK_THROW((void)Topology::from_rings(std::vector<Ring>{{0, 1, 2}, {0, 1}}), UsageError);
    BOOST_CHECK_THROW((void)Topology::one_rank_per_node(0), UsageError);
}

BOOST_AUTO_TEST_CASE(of_two_nans_the_received_one_is_kept_but_under_ll128_the_own) {
    // Three ranks, root 0: rank 2 receives from 1, rank 0 from 2. only float64 keeps payloads.
    const Communicator three{Topology::one_rank_per_node(3, 2)};
    const std::vector<Bits> nans{0x7ff8000000000000, 0x7ff8000000000001, 0x7ff8000000000002};
    for (const auto& [protocol, kept] : {std::pair{Protocol::ll, 1}, {Protocol::simple, 1}, {Protocol::ll128, 0}}) {
        const CombinePlan plan = plan_combine(Scheme::fixed_root, three, {{1, 1, 1}, 1}, Format::float64,
                                              {.forced = {Algorithm::ring, protocol}});
        BOOST_TEST(combine_element(plan, Format::float64, 0, nans) == nans[static_cast<std::size_t>(kept)]);
    }
    // A tree's own value is the left operand: the root receives what rank 2 received from rank 1.
    for (const auto& [protocol, kept] : {std::pair{Protocol::simple, 1}, {Protocol::ll128, 0}}) {
        const Plan plan =
            plan_call(three, {.collective = Collective::all_reduce, .count = 1, .format = Format::float64},
                      {Algorithm::tree, protocol});
        const Segment segment = plan.schedule.segment_at(0);
        BOOST_TEST(sum_element(rule_for(segment, Format::float64, plan.accumulation), segment.order.as_tree(), nans) ==
                   nans[static_cast<std::size_t>(kept)]);
    }
}
