// Like compare_with_model.cpp, it uses the model's arithmetic and computes nothing of its own.
// SPDX-License-Identifier: Apache-2.0
#include "impl/check/probe_arithmetic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/arithmetic/hop_arithmetic.hpp"
#include "model/arithmetic/random.hpp"

namespace samesum::gpu {
namespace {

/// Operand pairs (rank 0's, rank 1's): rank 1 sends, rank 0 is the root.
std::vector<std::pair<Bits, Bits>> operand_pairs(Format format, std::uint64_t pairs, std::uint64_t seed) {
    const FormatTraits& t = traits(format);
    std::vector<std::pair<Bits, Bits>> operands;
    if (t.width == 8) {
        for (Bits a = 0; a < 256; ++a)
            for (Bits b = 0; b < 256; ++b) operands.emplace_back(a, b);
        return operands;
    }
    Random random(seed);
    for (std::uint64_t i = 0; i < pairs; ++i) {
        Bits a = random.pattern(format), b = random.pattern(format);
        if (t.is_float && i % 16 == 0) {
            // Two NaNs of different payloads, quiet or signalling, of any sign.
            const auto nan = [&] {
                const Bits payload = 1 + random.below((Bits{1} << t.fraction_bits) - 1);
                return (random.next() & t.sign()) | t.infinity() | payload;
            };
            a = nan();
            b = nan();
        }
        operands.emplace_back(a, b);
    }
    return operands;
}

/// Reduces all pairs at once and compares each result with the model.
ArithmeticRow probe_one(LiveRanks& ranks, ArithmeticRow row, std::uint64_t pairs, std::uint64_t seed) {
    const Format format = row.format;
    const auto operands = operand_pairs(format, pairs, seed);
    const ReduceGroup group{
        {{.collective = Collective::reduce, .count = operands.size(), .format = format, .operation = row.operation}},
        false};
    const std::uint64_t bytes = operands.size() * static_cast<std::uint64_t>(traits(format).bytes());
    const auto root = ranks.input(0, bytes), sender = ranks.input(1, bytes);
    for (std::size_t i = 0; i < operands.size(); ++i) {
        store(format, root, i, operands[i].first);
        store(format, sender, i, operands[i].second);
    }
    std::span<const std::byte> result;
    try {
        result = ranks.run_data(group, row.said);
    } catch (const Refusal& refusal) {
        row.skipped = refusal.what();
        return row;
    }
    const HopArithmetic hop(format);
    for (std::size_t i = 0; i < operands.size(); ++i) {
        const auto [own, sent] = operands[i];
        const Bits real = load(format, result, i);
        const Bits left = hop.combine(row.operation, sent, own), right = hop.combine(row.operation, own, sent);
        row.differ_sent_left += real != left ? 1 : 0;
        row.differ_sent_right += real != right ? 1 : 0;
        if (real != left && row.first.empty())
            row.first = fmt::format("sent {} own {}: real {}, modelled {} (own left: {})", hex(format, sent),
                                    hex(format, own), hex(format, real), hex(format, left), hex(format, right));
    }
    row.pairs = operands.size();
    return row;
}

}  // namespace

std::string ArithmeticRow::str() const {
    const std::string what = fmt::format("{} {} {}", name(format), name(operation), protocol);
    if (!skipped.empty()) return fmt::format("skipped: {}: {}", what, skipped);
    return fmt::format("{}: {} pairs; {} differ with the sent operand left, {} with it right{}{}", what, pairs,
                       differ_sent_left, differ_sent_right, first.empty() ? "" : "; first: ", first);
}

nlohmann::ordered_json to_json(const ArithmeticProbe& probe) {
    auto rows = nlohmann::ordered_json::array(), skipped = nlohmann::ordered_json::array();
    for (const ArithmeticRow& row : probe.rows) {
        if (!row.skipped.empty()) {
            skipped.push_back({{"format", name(row.format)},
                               {"operation", name(row.operation)},
                               {"protocol", row.protocol},
                               {"why", row.skipped}});
            continue;
        }
        rows.push_back({{"format", name(row.format)},
                        {"operation", name(row.operation)},
                        {"protocol", row.protocol},
                        {"pairs", row.pairs},
                        {"differ_sent_left", row.differ_sent_left},
                        {"differ_sent_right", row.differ_sent_right},
                        {"first", row.first},
                        {"nccl_says", row.said}});
    }
    return {{"compared", probe.compared}, {"differ", probe.differing}, {"rows", rows}, {"skipped", skipped}};
}

ArithmeticProbe probe_arithmetic(const Hardware& hardware, std::span<const Format> formats, std::uint64_t pairs,
                                 std::uint64_t seed, const std::function<void(const ArithmeticRow&)>& finished) {
    LiveRanks ranks({.ranks = 2}, hardware);
    ArithmeticProbe probe;
    for (const char* protocol : {"LL", "LL128", "Simple"}) {
        ranks.open({.algorithms = "Ring", .protocols = protocol, .graph_file = "", .min_channels = ""});
        for (const Format format : formats)
            for (const Operation operation : {Operation::sum, Operation::prod, Operation::min, Operation::max}) {
                ArithmeticRow row;
                row.format = format;
                row.operation = operation;
                row.protocol = protocol;
                row = probe_one(ranks, std::move(row), pairs, seed);
                probe.compared += row.pairs;
                probe.differing += std::min(row.differ_sent_left, row.differ_sent_right);
                finished(row);
                probe.rows.push_back(std::move(row));
            }
    }
    return probe;
}

}  // namespace samesum::gpu
