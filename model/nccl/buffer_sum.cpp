// Splits a buffer into one range per thread; each thread visits its segments and caches their trees.
// SPDX-License-Identifier: Apache-2.0
#include "model/nccl/buffer_sum.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "model/sum/native_sum.hpp"
#include "model/support/error.hpp"

namespace samesum {
namespace {

/// Elements [begin, end) in the order of one tree.
void sum_range(const SumRule& rule, const ReductionTree& tree, std::span<const ConstBytes> inputs,
               std::span<std::byte> output, std::uint64_t begin, std::uint64_t end) {
    if (native_takes(rule)) {
        const auto offset = begin * static_cast<std::uint64_t>(traits(rule.format).bytes());
        std::vector<const std::byte*> leaves;
        for (const ConstBytes input : inputs) leaves.push_back(input.data() + offset);
        native_sum(rule, tree, leaves, output.data() + offset, end - begin);
        return;
    }
    std::vector<Bits> column(inputs.size());
    if (rule.accumulation == Accumulation::exact) {
        ensure(rule.operation == Operation::sum, "exact accumulation is for sums");
        // The order is irrelevant. sum_element() would collect the leaves of the tree for every element.
        const std::vector<int> leaves = tree.leaves();
        column.resize(leaves.size());
        for (std::uint64_t element = begin; element < end; ++element) {
            for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf)
                column[leaf] = load(rule.format, inputs[static_cast<std::size_t>(leaves[leaf])], element);
            store(rule.format, output, element, exact_sum(rule.format, column));
        }
        return;
    }
    for (std::uint64_t element = begin; element < end; ++element) {
        for (std::size_t rank = 0; rank < inputs.size(); ++rank)
            column[rank] = load(rule.format, inputs[rank], element);
        store(rule.format, output, element, sum_element(rule, tree, column));
    }
}

/// Calls work(begin, end) on one range per thread; rethrows the first exception.
void in_parallel(std::uint64_t size, std::uint64_t bytes, int threads,
                 const std::function<void(std::uint64_t, std::uint64_t)>& work) {
    if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    // Starting a thread takes as long as summing some hundred KiB.
    const auto ranges = std::clamp<std::uint64_t>(bytes >> 19, 1, static_cast<std::uint64_t>(threads));
    std::vector<std::exception_ptr> failures(ranges);
    std::vector<std::thread> others;
    const auto run = [&](std::uint64_t i) {
        // Boundaries at multiples of 64 elements, so that threads share no cache line.
        const auto boundary = [&](std::uint64_t k) { return k == ranges ? size : size / ranges * k / 64 * 64; };
        try {
            work(boundary(i), boundary(i + 1));
        } catch (...) {
            failures[i] = std::current_exception();
        }
    };
    for (std::uint64_t i = 1; i < ranges; ++i) others.emplace_back(run, i);
    run(0);
    for (std::thread& other : others) other.join();
    for (const std::exception_ptr& failure : failures)
        if (failure) std::rethrow_exception(failure);
}

std::uint64_t checked_size(Format format, std::span<const ConstBytes> inputs, std::span<std::byte> output) {
    const auto bytes = static_cast<std::uint64_t>(traits(format).bytes());
    if (output.size() % bytes != 0)
        throw UsageError(fmt::format("a buffer of {} bytes: expected a multiple of the {} element size, {} bytes",
                                     output.size(), name(format), bytes));
    for (std::size_t rank = 0; rank < inputs.size(); ++rank)
        if (inputs[rank].size() != output.size())
            throw UsageError(fmt::format("rank {}'s buffer has {} bytes: expected {}, as many as the result", rank,
                                         inputs[rank].size(), output.size()));
    return output.size() / bytes;
}

}  // namespace

void sum_buffers(const SumRule& rule, const Schedule& schedule, std::span<const ConstBytes> inputs,
                 std::span<std::byte> output, int threads) {
    const std::uint64_t size = checked_size(rule.format, inputs, output);
    if (size != schedule.size() || inputs.size() != static_cast<std::size_t>(schedule.ranks()))
        throw UsageError(fmt::format("{} buffers of {} elements: expected {} buffers of {} elements for this schedule",
                                     inputs.size(), size, schedule.ranks(), schedule.size()));
    in_parallel(size, output.size() * inputs.size(), threads, [&](std::uint64_t begin, std::uint64_t end) {
        std::vector<std::pair<Order, ReductionTree>> trees;
        schedule.visit(begin, end, [&](const Segment& segment) {
            auto known =
                std::find_if(trees.begin(), trees.end(), [&](const auto& each) { return each.first == segment.order; });
            if (known == trees.end()) known = trees.emplace(known, segment.order, segment.order.as_tree());
            const SumRule by_segment = rule_for(segment, rule.format, rule.accumulation);
            SumRule ruled = rule;
            ruled.own_is_left = by_segment.own_is_left;
            ruled.nan_from_right = by_segment.nan_from_right;
            sum_range(ruled, known->second, inputs, output, segment.begin, segment.end);
            return true;
        });
    });
}

void sum_buffers(const SumRule& rule, const ReductionTree& tree, std::span<const ConstBytes> inputs,
                 std::span<std::byte> output, int threads) {
    const std::uint64_t size = checked_size(rule.format, inputs, output);
    const std::vector<int> leaves = tree.leaves();
    if (*std::max_element(leaves.begin(), leaves.end()) >= static_cast<int>(inputs.size()))
        throw UsageError(fmt::format("the tree has rank {}, but there are only {} buffers",
                                     *std::max_element(leaves.begin(), leaves.end()), inputs.size()));
    in_parallel(size, output.size() * inputs.size(), threads,
                [&](std::uint64_t begin, std::uint64_t end) { sum_range(rule, tree, inputs, output, begin, end); });
}

}  // namespace samesum
