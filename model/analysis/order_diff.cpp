// Two schedules are walked side by side, from border to border; elements are never listed one by one.
// SPDX-License-Identifier: Apache-2.0
#include "model/analysis/order_diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "model/support/error.hpp"
#include "model/support/input_names.hpp"

namespace samesum {

std::size_t OrderTable::number_of(const Order& order) {
    for (const auto& [known, number] : seen_)
        if (known == order) return number;
    std::size_t number = trees_.size();
    if (order.observable()) {
        const ReductionTree canonical = order.as_tree().canonical();
        for (std::size_t i = 0; i < trees_.size() && number == trees_.size(); ++i)
            if (trees_[i].second == canonical) number = i;
        if (number == trees_.size()) trees_.emplace_back(order, canonical);
    } else if (number == trees_.size()) {
        trees_.emplace_back(order, ReductionTree::leaf(0));
    }
    seen_.emplace_back(order, number);
    return number;
}

std::vector<OrderRow> rows_of(const Schedule& schedule, OrderTable& table, std::uint64_t from, std::uint64_t to,
                              std::size_t max) {
    std::vector<OrderRow> rows;
    std::optional<Order> last;
    schedule.visit(from, to, [&](const Segment& segment) {
        const bool continues = last == segment.order && rows.back().channel == segment.channel;
        if (!continues && rows.size() == max) return false;
        last = segment.order;
        const std::size_t order = table.number_of(segment.order);
        if (!rows.empty() && rows.back().order == order && rows.back().channel == segment.channel) {
            rows.back().end = segment.end;
        } else {
            rows.push_back({segment.begin, segment.end, segment.channel, order});
        }
        return true;
    });
    return rows;
}

OrderChanges order_changes(const Plan& before, const Plan& after, std::uint64_t offset, std::size_t max,
                           OrderTable& table) {
    const Schedule &old_schedule = before.schedule, &new_schedule = after.schedule;
    if (old_schedule.ranks() != new_schedule.ranks())
        throw UsageError("the two calls have different numbers of ranks; expected equal numbers");
    const auto blocks_of = [](const Plan& plan) {
        return plan.task.call.collective == Collective::reduce_scatter
                   ? static_cast<std::uint64_t>(plan.schedule.ranks())
                   : 1;
    };
    const std::uint64_t blocks = blocks_of(before);
    if (blocks != blocks_of(after))
        throw UsageError("only one of the two calls is a reduce_scatter; expected both or neither");
    const std::uint64_t old_count = before.task.call.count, new_count = after.task.call.count;
    if (offset >= new_count && old_count > 0)
        throw UsageError(fmt::format("{} {}: expected less than {}, the elements of the second call",
                                     input_name("offset"), offset, new_count));
    const std::uint64_t common = std::min(old_count, new_count - offset);

    OrderChanges found{.compared = common * blocks};
    for (std::uint64_t block = 0; block < blocks; ++block) {
        std::optional<OrderChange> open;
        for (std::uint64_t i = 0; i < common;) {
            const std::uint64_t old_element = block * old_count + i, new_element = block * new_count + offset + i;
            const Segment old_segment = old_schedule.segment_at(old_element);
            const Segment new_segment = new_schedule.segment_at(new_element);
            const std::uint64_t step =
                std::min({common - i, old_segment.end - old_element, new_segment.end - new_element});
            const std::size_t a = table.number_of(old_segment.order), b = table.number_of(new_segment.order);
            if (a != b || !old_segment.order.observable()) {
                found.changed += step;
                if (open && open->end == old_element && open->old_order == a && open->new_order == b) {
                    open->end = old_element + step;
                    if (!found.changes.empty() && found.changes.back().begin == open->begin)
                        found.changes.back().end = open->end;
                } else {
                    open = OrderChange{old_element, old_element + step, a, b};
                    ++found.ranges;
                    if (found.changes.size() < max) found.changes.push_back(*open);
                }
            }
            i += step;
        }
    }
    return found;
}

}  // namespace samesum
