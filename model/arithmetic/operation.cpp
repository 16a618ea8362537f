// Names of operations and accumulations.
// SPDX-License-Identifier: Apache-2.0
#include "model/arithmetic/operation.hpp"

#include <fmt/format.h>

#include "model/support/error.hpp"

namespace samesum {

Operation parse_operation(std::string_view word) {
    for (const Operation operation :
         {Operation::sum, Operation::prod, Operation::min, Operation::max, Operation::avg, Operation::premulsum})
        if (word == name(operation)) return operation;
    throw UsageError(fmt::format("unknown operation '{}': expected one of: sum, prod, min, max, avg, premulsum", word));
}

std::string_view name(Operation operation) {
    constexpr std::array<std::string_view, 6> names{"sum", "prod", "min", "max", "avg", "premulsum"};
    return names.at(static_cast<std::size_t>(operation));
}

std::string_view name(Accumulation accumulation) {
    constexpr std::array<std::string_view, 3> names{"per_hop", "fp32_once", "exact"};
    return names.at(static_cast<std::size_t>(accumulation));
}

Accumulation parse_accumulation(std::string_view word) {
    for (const Accumulation each : {Accumulation::per_hop, Accumulation::fp32_once, Accumulation::exact})
        if (word == name(each)) return each;
    throw UsageError(fmt::format("unknown rounding '{}': expected one of: per_hop, fp32_once, exact", word));
}

}  // namespace samesum
