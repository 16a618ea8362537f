// Lines are in the order of the rows of the first size.
// SPDX-License-Identifier: Apache-2.0
#include "impl/commands/bench_chart.hpp"

#include <fmt/format.h>

#include "impl/commands/bench_tables.hpp"
#include "model/support/svg.hpp"

namespace samesum::gpu {

std::string chart(const BenchResults& results) {
    LogChart chart{.title = fmt::format("{} ranks on {} x {}, {}, NCCL {}", results.ranks, results.gpus, results.gpu,
                                        name(results.format), results.nccl),
                   .x_label = "bytes that each rank receives",
                   .y_label = "microseconds",
                   .x_ticks = {},
                   .x_tick_labels = {},
                   .lines = {}};
    for (const std::uint64_t received : results.sizes()) {
        chart.x_ticks.push_back(static_cast<double>(received));
        chart.x_tick_labels.push_back(short_bytes(received));
    }
    for (const BenchRow& first : results.rows) {
        if (first.received != results.rows.front().received) continue;
        LogChart::Line line{.label = first.name, .points = {}, .dashed = !scheme_named(first.name)};
        for (const BenchRow& row : results.rows)
            if (row.name == first.name) line.points.emplace_back(static_cast<double>(row.received), row.median_us);
        chart.lines.push_back(std::move(line));
    }
    return draw_chart(chart);
}

}  // namespace samesum::gpu
