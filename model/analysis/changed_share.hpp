// The share of elements whose bits change between two ways to add, for a model of the data.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/arithmetic/random.hpp"
#include "model/nccl/schedule.hpp"
#include "model/sum/element_sum.hpp"
#include "model/sum/reduction_tree.hpp"

namespace samesum {

/// What each rank's values are drawn from, all independent.
struct DataModel {
    enum class Kind : std::uint8_t {
        normal,   ///< mean 0, standard deviation `parameter`
        uniform,  ///< between -parameter and parameter
        spread,   ///< any sign and fraction, exponent equally likely from -parameter to parameter
        integer,  ///< whole numbers 0 .. parameter, as in the test data of nccl-tests
    } kind = Kind::normal;
    double parameter = 1;

    [[nodiscard]] Bits draw(Format format, Random& random) const;
};
/// "normal", "uniform:0.5", "spread:20", "integer:7". Throws UsageError listing the choices.
[[nodiscard]] DataModel parse_data_model(std::string_view text);
[[nodiscard]] std::string str(const DataModel& model);

/// One way to add: a tree and where it rounds. Both ways of a comparison have the same format and leaves.
struct Way {
    ReductionTree tree;
    SumRule rule;
};

struct Share {
    std::uint64_t samples = 0, changed = 0;
    [[nodiscard]] double value() const;
    /// Standard error of a share of independent samples; never 0: with none or all changed, that of one in n.
    [[nodiscard]] double error() const;
};

/// Monte Carlo over `samples` elements; the same numbers for the same seed, whatever the number of threads.
[[nodiscard]] Share changed_share(const Way& before, const Way& after, const DataModel& data, std::uint64_t samples,
                                  std::uint64_t seed);

/// The orders of `elements` elements of a call, before and after.
struct OrderPair {
    ReductionTree before, after;
    std::uint64_t elements = 0;
};
/// The pairs of two schedules of equal size, distinct orders only. Throws Inconclusive where one is not observable, or
/// where there are more than `max` pairs.
[[nodiscard]] std::vector<OrderPair> order_pairs(const Schedule& before, const Schedule& after, std::size_t max = 4096);

}  // namespace samesum
