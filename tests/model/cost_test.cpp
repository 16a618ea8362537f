// The traffic of combines, counted independently call by call, and the fit through measured points.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE cost
#include "model/combine/cost.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <vector>

#include "model/support/error.hpp"

using namespace samesum;

namespace {

/// Bytes that each rank of a ring sends, following every piece.
class Walk {
public:
    explicit Walk(int ranks) : sent_(static_cast<std::size_t>(ranks)) {}
    /// Starting at `from`, `steps` ranks send `bytes` to their successors.
    void pass(int from, int steps, double bytes) {
        for (int step = 0; step < steps; ++step) sent_[static_cast<std::size_t>(from + step) % sent_.size()] += bytes;
    }
    void send(int from, double bytes) { pass(from, 1, bytes); }
    [[nodiscard]] double max() const { return *std::max_element(sent_.begin(), sent_.end()); }

private:
    std::vector<double> sent_;
};

double walked(Scheme scheme, int ranks, double chunk) {
    Walk walk(ranks);
    switch (scheme) {
        case Scheme::reduce_scatter:
        case Scheme::vllm_default:
        case Scheme::reduce_per_owner:
            // The sum of an owner's chunk starts at its successor and ends at the owner.
            for (int owner = 0; owner < ranks; ++owner) walk.pass(owner + 1, ranks - 1, chunk);
            break;
        case Scheme::fixed_root:
            walk.pass(1, ranks - 1, ranks * chunk);
            for (int owner = 1; owner < ranks; ++owner) walk.send(0, chunk);
            break;
        case Scheme::reduce_broadcast:
            walk.pass(1, ranks - 1, ranks * chunk);
            walk.pass(0, ranks - 1, ranks * chunk);
            break;
        case Scheme::gather_ordered:
            for (int rank = 0; rank < ranks; ++rank) walk.pass(rank, ranks - 1, ranks * chunk);
            break;
        case Scheme::exchange_ordered:
        case Scheme::exact:
        case Scheme::direct_ordered:
            for (int rank = 0; rank < ranks; ++rank)
                for (int owner = 0; owner < ranks; ++owner)
                    if (owner != rank) walk.send(rank, scheme == Scheme::direct_ordered ? chunk / 120 * 128 : chunk);
            break;
    }
    return walk.max();
}

}  // namespace

BOOST_AUTO_TEST_CASE(traffic_equals_the_independent_count) {
    for (const Scheme scheme : all_schemes)
        for (int ranks = 2; ranks <= 9; ++ranks) {
            const double chunk = 120 * 64;
            BOOST_TEST(traffic(scheme, ranks, 120 * 64).sent == walked(scheme, ranks, chunk),
                       name(scheme) << ", " << ranks << " ranks");
        }
}

BOOST_AUTO_TEST_CASE(the_fit_goes_through_its_two_points) {
    const AlphaBeta line = fit(Scheme::exchange_ordered, 2, 1, {{1'000'000, 20}, {1000, 9}, {50'000, 100}});
    // The fit ignores the point between them.
    BOOST_TEST(std::abs(line.microseconds(traffic(Scheme::exchange_ordered, 2, 1000)) - 9) < 1e-9);
    BOOST_TEST(std::abs(line.microseconds(traffic(Scheme::exchange_ordered, 2, 1'000'000)) - 20) < 1e-9);
    BOOST_CHECK_THROW(static_cast<void>(fit(Scheme::exact, 2, 1, {{1000, 9}})), UsageError);
    BOOST_CHECK_THROW(static_cast<void>(fit(Scheme::exact, 2, 1, {{1000, 9}, {2000, 9}})), UsageError);
}
