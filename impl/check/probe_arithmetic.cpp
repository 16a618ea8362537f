// A judge, like judge.cpp: it asks the model's arithmetic and computes nothing of its own.
// SPDX-License-Identifier: Apache-2.0
#include "impl/check/probe_arithmetic.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/arithmetic/hop_arithmetic.hpp"
#include "model/arithmetic/random.hpp"
#include "model/support/files.hpp"

namespace samesum::gpu {
namespace {

/// Operand pairs; rank 1's value travels, rank 0 is the root.
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

}  // namespace

Exit probe_arithmetic(const Hardware& hardware, std::span<const Format> formats, std::uint64_t pairs,
                      std::uint64_t seed, const std::optional<std::string>& json_file) {
    LiveRanks ranks({.ranks = 2}, hardware);
    auto rows = nlohmann::ordered_json::array();
    std::uint64_t compared = 0, differing = 0;
    for (const char* protocol : {"LL", "LL128", "Simple"}) {
        ranks.open({.algorithms = "Ring", .protocols = protocol, .graph_file = "", .min_channels = ""});
        for (const Format format : formats)
            for (const Operation operation : {Operation::sum, Operation::prod, Operation::min, Operation::max}) {
                const auto operands = operand_pairs(format, pairs, seed);
                const ReduceGroup group{{{.collective = Collective::reduce,
                                          .count = operands.size(),
                                          .format = format,
                                          .operation = operation}},
                                        false};
                const std::uint64_t bytes = operands.size() * static_cast<std::uint64_t>(traits(format).bytes());
                const auto root = ranks.input(0, bytes), sender = ranks.input(1, bytes);
                for (std::size_t i = 0; i < operands.size(); ++i) {
                    store(format, root, i, operands[i].first);
                    store(format, sender, i, operands[i].second);
                }
                std::string said;
                std::span<const std::byte> result;
                const std::string what = fmt::format("{} {} {}", name(format), name(operation), protocol);
                try {
                    result = ranks.run_data(group, said);
                } catch (const Refusal& refusal) {
                    fmt::print("skipped: {}: {}\n", what, refusal.what());
                    continue;
                }
                // The operand from the sender is the left one, or the right one: NaN payloads may tell.
                const HopArithmetic hop(format);
                std::uint64_t sent_left = 0, sent_right = 0;
                std::string first;
                for (std::size_t i = 0; i < operands.size(); ++i) {
                    const auto [own, sent] = operands[i];
                    const Bits real = load(format, result, i);
                    const Bits left = hop.combine(operation, sent, own), right = hop.combine(operation, own, sent);
                    sent_left += real != left ? 1 : 0;
                    sent_right += real != right ? 1 : 0;
                    if (real != left && first.empty())
                        first = fmt::format("sent {} own {}: real {}, modelled {} (own left: {})", hex(format, sent),
                                            hex(format, own), hex(format, real), hex(format, left), hex(format, right));
                }
                compared += operands.size();
                differing += std::min(sent_left, sent_right);
                fmt::print("{}: {} pairs; {} differ with the sent operand left, {} with it right{}{}\n", what,
                           operands.size(), sent_left, sent_right, first.empty() ? "" : "; first: ", first);
                rows.push_back({{"format", name(format)},
                                {"operation", name(operation)},
                                {"protocol", protocol},
                                {"pairs", operands.size()},
                                {"differ_sent_left", sent_left},
                                {"differ_sent_right", sent_right},
                                {"first", first},
                                {"nccl_says", said}});
            }
    }
    if (json_file) write_json(*json_file, {{"compared", compared}, {"differ", differing}, {"rows", rows}});
    fmt::print("{} of {} results as modelled\n", compared - differing, compared);
    if (compared == 0) return Exit::inconclusive;
    return differing == 0 ? Exit::as_claimed : Exit::not_as_claimed;
}

}  // namespace samesum::gpu
