// The order of each element of a call, as compact parts instead of a list of elements.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "model/nccl/communicator.hpp"
#include "model/nccl/order.hpp"
#include "model/nccl/partition.hpp"
#include "model/nccl/tuning.hpp"
#include "model/sum/element_sum.hpp"

namespace samesum {

/// Elements [begin, end) that are summed in one order.
struct Segment {
    std::uint64_t begin = 0, end = 0;
    Order order;
    int channel = 0;
    Protocol protocol = Protocol::simple;
};

/// Equal blocks of elements that go through one channel:
///
///   begin                period                      end
///   |<-- length -->|......|<-- length -->|......|<- rest
///        block 0               block 1             block 2
///
/// From block to block, `advance` moves the last rank of the order by one.
struct Part {
    enum class Advance : std::uint8_t { none, rank, ring_position };

    int channel = 0;
    std::uint64_t begin = 0, length = 0, period = 0, blocks = 1, end = 0;
    Order order;  ///< of block 0
    Advance advance = Advance::none;
    std::uint64_t first = 0;  ///< the last rank, or its ring position, of block 0
    Protocol protocol = Protocol::simple;

    [[nodiscard]] Order order_of_block(std::uint64_t block) const;
};

/// The orders of all `size()` elements of a call's result. Parts are disjoint and cover it.
class Schedule {
public:
    Schedule(int ranks, std::uint64_t size, std::vector<Part> parts);

    [[nodiscard]] int ranks() const { return ranks_; }
    [[nodiscard]] std::uint64_t size() const { return size_; }
    [[nodiscard]] std::span<const Part> parts() const { return parts_; }
    [[nodiscard]] Segment segment_at(std::uint64_t element) const;
    /// Segments of [begin, end) in element order, as NCCL splits them: adjacent ones may have the same order. Stops
    /// when `visit` returns false.
    void visit(std::uint64_t begin, std::uint64_t end, const std::function<bool(const Segment&)>& visit) const;
    /// The same orders for a piece of a larger buffer that begins at `offset`.
    [[nodiscard]] std::vector<Part> parts_at(std::uint64_t offset) const;
    /// The number of segments that NCCL makes, without visiting them.
    [[nodiscard]] std::uint64_t segment_count() const;
    /// One Order for each description in use, at most `max` of them.
    [[nodiscard]] std::vector<Order> orders(std::size_t max) const;

private:
    int ranks_;
    std::uint64_t size_;
    std::vector<Part> parts_;
};

/// How a segment's elements are summed along its order. Of two float64 NaNs NCCL's LL and Simple kernels keep the
/// received one's payload, LL128 the rank's own (measured on H200, NCCL 2.28.9).
[[nodiscard]] SumRule rule_for(const Segment& segment, Format format, Accumulation accumulation);

/// Whether the multiplication and the addition of one hop of avg or premulsum are one fma. `offset`: bytes from the
/// beginning of the element's chunk (NCCL 2.28.9, measured on H200). LL and Simple always fuse; LL128 fuses float32
/// depending on the position, so that an average depends on the element's position even when the order does not.
[[nodiscard]] bool hop_is_fused(Protocol protocol, Format format, std::uint64_t offset);

/// The orders of one task on its channels. For reduce_scatter the result holds rank after rank.
[[nodiscard]] Schedule make_schedule(const Communicator& comm, const Task& task, std::span<const ChannelPart> parts);

/// How NCCL executes one call of a group.
struct Plan {
    Task task;
    std::size_t index = 0;  ///< place in program order
    std::vector<ChannelPart> parts;
    Schedule schedule;
    Accumulation accumulation = Accumulation::per_hop;
};

/// Plans a group of calls; the result is in NCCL's scheduling order. Calls of zero elements are dropped, as NCCL does.
[[nodiscard]] std::vector<Plan> plan_group(const Communicator& comm, std::span<const Call> calls, Forced forced = {});
/// A single call, as a group of one.
[[nodiscard]] Plan plan_call(const Communicator& comm, const Call& call, Forced forced = {});
/// A single call whose choice is known.
[[nodiscard]] Plan plan_task(const Communicator& comm, const Task& task);

}  // namespace samesum
