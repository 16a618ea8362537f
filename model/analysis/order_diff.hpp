// The distinct orders of calls, numbered by first appearance: what `order show` and `order diff` list.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "model/nccl/order.hpp"
#include "model/nccl/schedule.hpp"
#include "model/sum/reduction_tree.hpp"

namespace samesum {

/// Numbers orders by first appearance; descriptions of the same order share a number.
class OrderTable {
public:
    std::size_t number_of(const Order& order);
    [[nodiscard]] std::size_t size() const { return trees_.size(); }
    [[nodiscard]] const Order& order(std::size_t number) const { return trees_[number].first; }

private:
    std::vector<std::pair<Order, std::size_t>> seen_;
    std::vector<std::pair<Order, ReductionTree>> trees_;
};

/// Elements [begin, end) summed in one order on one channel; `order` is a number of the table.
struct OrderRow {
    std::uint64_t begin, end;
    int channel;
    std::size_t order;
};
/// The segments of [from, to), neighbours of one order and channel joined, at most `max` rows.
[[nodiscard]] std::vector<OrderRow> rows_of(const Schedule& schedule, OrderTable& table, std::uint64_t from,
                                            std::uint64_t to, std::size_t max);

/// Elements [begin, end) of the first call that the second call sums in another order.
struct OrderChange {
    std::uint64_t begin, end;
    std::size_t old_order, new_order;
};
struct OrderChanges {
    std::uint64_t compared = 0, changed = 0;  ///< elements
    std::uint64_t ranges = 0;                 ///< in all; `changes` holds the first of them
    std::vector<OrderChange> changes{};
};
/// Element i of `before` is compared with element i + offset of `after` (of each rank's block, for reduce_scatter), as
/// far as both go. An order that is not observable counts as changed. At most `max` changes are listed.
/// Throws UsageError where the calls have no elements in common.
[[nodiscard]] OrderChanges order_changes(const Plan& before, const Plan& after, std::uint64_t offset, std::size_t max,
                                         OrderTable& table);

}  // namespace samesum
