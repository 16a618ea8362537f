// Compares what real ranks computed with what the model predicts. No file that computes on a GPU includes it.
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

/// The ranks' open communicator, as NCCL's log describes it. Throws Inconclusive when the log fits no topology that the
/// model knows.
[[nodiscard]] samesum::Communicator described_communicator(const LiveRanks& ranks);

/// Writes random partials for the run's routing into the ranks' inputs, and returns them.
std::vector<std::span<const std::byte>> draw_partials(LiveRanks& ranks, const CombineRun& run, std::uint64_t seed);

/// The elements whose bits differ from the model's, and the first of them.
struct Difference {
    std::uint64_t elements = 0;  ///< how many of the compared elements differ
    std::uint64_t first = 0;
    Bits real = 0, modelled = 0;
    std::string tree;            ///< of the first
    std::vector<Bits> partials;  ///< of the first
    [[nodiscard]] std::string str(Format format) const;
};
/// How many elements of a result first_difference() compares: all, or of large results a sample at a fixed stride.
[[nodiscard]] std::uint64_t compared_elements(std::uint64_t elements);
/// Compares the [rows, hidden] result with the model's result for the same partials. NCCL's log lines about its calls
/// (`said`) are used only where the communicator's machine is unknown: then nothing else tells which algorithm NCCL
/// chose.
[[nodiscard]] std::optional<Difference> first_difference(const samesum::Communicator& comm, const CombineRun& run,
                                                         std::span<const std::span<const std::byte>> partials,
                                                         std::span<const std::byte> result, std::string_view said);

/// The orders of two combines, row by row, as the model predicts them.
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
