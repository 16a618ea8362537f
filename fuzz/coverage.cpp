// Labels describe the case itself, not the generator's intention; combinations describe the planned call.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/coverage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "fuzz/backend.hpp"
#include "model/sum/native_sum.hpp"

namespace samesum::fuzz {
namespace {

void label_data(const Case& c, std::vector<std::string_view>& labels) {
    const FormatTraits& t = traits(c.format);
    // From the partials themselves, not from the generator's intention.
    bool nan = false, infinite = false, subnormal = false, negative_zero = false, largest = false, cancels = false;
    std::size_t zeros = 0;
    int min = 1 << t.exponent_bits, max = 0;
    for (std::size_t i = 0; i < c.x.size(); ++i) {
        const Bits bits = c.x[i];
        nan |= is_nan(c.format, bits);
        infinite |= is_infinite(c.format, bits);
        subnormal |= is_subnormal(c.format, bits);
        negative_zero |= bits == t.sign();
        largest |= (bits & ~t.sign()) == t.largest();
        zeros += is_zero(c.format, bits);
        if (is_zero(c.format, bits) || !is_finite(c.format, bits)) continue;
        for (std::size_t j = 0; j < i; ++j) cancels |= (c.x[j] ^ t.sign()) == bits;
        const auto field = static_cast<int>((bits & ~t.sign()) >> t.fraction_bits);
        min = std::min(min, field);
        max = std::max(max, field);
    }
    const auto label = [&](bool holds, std::string_view text) {
        if (holds) labels.push_back(text);
    };
    label(nan, "data: NaN");
    label(infinite, "data: infinity");
    label(subnormal, "data: subnormal");
    label(negative_zero, "data: -0");
    label(largest, "data: largest");
    label(cancels, "data: cancels");
    label(max - min >= t.precision(), "data: wide");
    label(zeros > 0, "data: k of n");
    label(zeros > 0 && zeros + 1 >= c.x.size() && c.x.size() > 1, "data: 1 of n");
}

void label_call(const Case& c, const Side& side, std::vector<std::string_view>& labels) {
    const Routing routing = routing_of(c, side);
    const auto owners =
        std::count_if(side.sizes.begin(), side.sizes.end(), [](std::uint64_t size) { return size > 0; });
    labels.push_back(routing.equal_sizes()   ? "routing: equal"
                     : owners == 1           ? "routing: one owner"
                     : owners < side.ranks() ? "routing: zero sizes"
                                             : "routing: ragged");
    if (&side == &c.b) return;
    labels.push_back(side.ranks() == 1   ? "ranks: 1"
                     : side.ranks() == 2 ? "ranks: 2"
                     : side.ranks() <= 4 ? "ranks: 3 to 4"
                     : side.ranks() <= 8 ? "ranks: 5 to 8"
                                         : "ranks: 9 and more");
    labels.push_back(side.rings.size() == 1 ? "rings: one channel"
                     : one_ring(side.rings) ? "rings: one on all channels"
                                            : "rings: different");
    const auto label = [&](bool holds, std::string_view text) {
        if (holds) labels.push_back(text);
    };
    const LaunchMode &of_a = c.a.launch_mode, &of_b = c.b.launch_mode;
    label(of_a.captured || of_b.captured, "run: captured");
    label(of_a.in_place || of_b.in_place, "run: in place");
    label(of_a.fresh || of_b.fresh, "run: fresh communicator");
    label(of_a.delayed || of_b.delayed, "run: producer still running");
    label(of_a.shift != 0 || of_b.shift != 0, "run: off alignment");
    labels.push_back(side.protocol == Protocol::ll      ? "protocol: LL"
                     : side.protocol == Protocol::ll128 ? "protocol: LL128"
                                                        : "protocol: Simple");
}

}  // namespace

std::vector<std::string_view> classes(const Case& c) {
    std::vector<std::string_view> labels{name(c.format)};
    label_data(c, labels);
    if (c.a.maker == Maker::tree) labels.push_back("trees alone");
    for (const Side* side : {&c.a, &c.b})
        if (side->maker != Maker::tree) label_call(c, *side, labels);
    return labels;
}

std::optional<Combination> combination(const Case& c, const Side& side) {
    if (side.maker != Maker::combine || !by_nccl(side.scheme)) return std::nullopt;
    const Request request = request_of(c, side);
    const CombinePlan plan =
        plan_combine(request.scheme, request.comm, request.routing, request.format, request.options);
    std::uint64_t channels = 0;
    for (const Part& part : plan.schedule.parts()) channels |= std::uint64_t{1} << (part.channel % 64);
    const std::uint64_t begin = side.row * c.hidden, end = begin + c.hidden, all = request.routing.elements();
    const Segment segment = plan.schedule.segment_at(begin);
    const bool whole = segment.begin == 0 && segment.end >= all;
    const bool at_border = (segment.begin == begin && begin > 0) || (segment.end == end && end < all);
    const auto cut = whole               ? Combination::Cut::whole
                     : segment.end < end ? Combination::Cut::across
                     : at_border         ? Combination::Cut::at_border
                                         : Combination::Cut::inside;
    return Combination{side.scheme,
                       dispatched(side.scheme, request.routing),
                       *request.options.forced.algorithm,
                       side.protocol,
                       cut,
                       std::popcount(channels)};
}

std::string str(const Combination& c) {
    static constexpr std::array cuts{"one order", "row inside an order", "row at a border", "row across a border"};
    return fmt::format("{}{} {} {}, {}", name(c.scheme),
                       c.scheme == c.dispatched ? "" : fmt::format(" as {}", name(c.dispatched)), name(c.algorithm),
                       name(c.protocol), cuts.at(static_cast<std::size_t>(c.cut)));
}

bool is_order_sensitive(const Case& c) {
    return with_native_add(c.format, [&](auto hop) {
        const auto n = c.x.size();
        const auto fold = [&](std::size_t start, std::size_t step) {
            Bits sum = c.x[start];
            for (std::size_t i = 1, at = start; i < n; ++i) {
                at += step;
                if (at >= n) at -= n;
                sum = hop.add(sum, c.x[at]);
            }
            return sum;
        };
        const Bits first = fold(0, 1);
        for (std::size_t start = 1; start < n; ++start)
            if (fold(start, 1) != first) return true;
        return fold(n - 1, n - 1) != first;
    });
}

}  // namespace samesum::fuzz
