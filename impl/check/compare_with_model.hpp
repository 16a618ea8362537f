// The only file of impl/ that asks the model what should have come out; nothing that computes on a GPU includes it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "impl/ranks/live_ranks.hpp"
#include "model/combine/combine.hpp"
#include "model/input/recording.hpp"
#include "model/sum/reveal.hpp"

namespace samesum::gpu {

/// The communicator that the ranks have open, as NCCL described it in its log. Throws Inconclusive when the log fits
/// no topology that the model knows.
[[nodiscard]] samesum::Communicator described_communicator(const LiveRanks& ranks);

/// Draws every rank's partial of the run's routing into its input, and returns them.
std::vector<std::span<const std::byte>> draw_partials(LiveRanks& ranks, const CombineRun& run, std::uint64_t seed);

/// One element whose bits are not the model's.
struct Difference {
    std::uint64_t elements = 0;  ///< how many of the compared ones differ
    std::uint64_t first = 0;
    Bits real = 0, modelled = 0;
    std::string tree;            ///< of the first
    std::vector<Bits> partials;  ///< of the first
    [[nodiscard]] std::string str(Format format) const;
};
/// Compares the [rows, hidden] result with what the model makes of the same partials: every element, or of large
/// results every stride_of()-th. What NCCL said about its calls (`said`) is used only where the communicator's machine
/// is not known, so that nothing else tells which algorithm NCCL chose.
[[nodiscard]] std::uint64_t stride_of(std::uint64_t elements);
[[nodiscard]] std::optional<Difference> first_difference(const samesum::Communicator& comm, const CombineRun& run,
                                                         std::span<const std::span<const std::byte>> partials,
                                                         std::span<const std::byte> result, std::string_view said);

/// The orders of two combines, row by row, as the model predicts them from what first_difference() takes, too.
class RowOrders {
public:
    RowOrders(const samesum::Communicator& comm, const CombineRun& a, std::string_view said_of_a, const CombineRun& b,
              std::string_view said_of_b);
    /// Is any element of row `row_of_a` added in another order than the same element of row `row_of_b`?
    [[nodiscard]] bool differ(std::uint64_t row_of_a, std::uint64_t row_of_b) const;

private:
    CombinePlan a_, b_;
    std::uint64_t hidden_;
};

/// One line of JSON in the format of recordings of revealed orders.
[[nodiscard]] std::string record_line(const LiveRanks& ranks, const ReduceGroup& group, std::size_t index,
                                      const std::string& said, const Revealed& revealed, std::string_view graph_label);

}  // namespace samesum::gpu
