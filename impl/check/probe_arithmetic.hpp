// The bits of one addition, minimum or maximum as real NCCL makes them, against the model's.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "impl/ranks/live_ranks.hpp"
#include "model/arithmetic/format.hpp"
#include "model/arithmetic/operation.hpp"

namespace samesum::gpu {

/// One format, operation and protocol.
struct ArithmeticRow {
    Format format = Format::float32;
    Operation operation = Operation::sum;
    std::string protocol;
    std::string skipped{};    ///< why NCCL refused, if it did
    std::uint64_t pairs = 0;  ///< compared
    /// Results that differ from the model's with the sent operand on the left, and on the right: NaN payloads may
    /// depend on it.
    std::uint64_t differ_sent_left = 0, differ_sent_right = 0;
    std::string first{};  ///< the first result that differs
    std::string said{};   ///< NCCL's log lines about the call

    [[nodiscard]] std::string str() const;
};

struct ArithmeticProbe {
    std::uint64_t compared = 0, differing = 0;
    std::vector<ArithmeticRow> rows;
};
[[nodiscard]] nlohmann::ordered_json to_json(const ArithmeticProbe& probe);

/// ncclReduce over 2 ranks, for each format, operation and protocol: all pairs of 8-bit formats, `pairs` edge-heavy
/// ones of the others. `finished` is called after each row.
[[nodiscard]] ArithmeticProbe probe_arithmetic(const Hardware& hardware, std::span<const Format> formats,
                                               std::uint64_t pairs, std::uint64_t seed,
                                               const std::function<void(const ArithmeticRow&)>& finished);

}  // namespace samesum::gpu
