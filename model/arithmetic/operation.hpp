// What a collective computes, and where the result is rounded: operations and accumulations.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace samesum {

/// NCCL's reductions (nccl.h, ncclRedOp_t).
enum class Operation : std::uint8_t { sum, prod, min, max, avg, premulsum };

[[nodiscard]] Operation parse_operation(std::string_view word);
[[nodiscard]] std::string_view name(Operation operation);

/// Where roundings happen: at every addition in the data's format, once at the end of a float32 sum, or once at the end
/// of an exact sum.
enum class Accumulation : std::uint8_t { per_hop, fp32_once, exact };
[[nodiscard]] std::string_view name(Accumulation accumulation);
[[nodiscard]] Accumulation parse_accumulation(std::string_view word);

}  // namespace samesum
