// The names of the faults, as --fault takes them.
// SPDX-License-Identifier: Apache-2.0
#include "impl/combine/planted_fault.hpp"

#include <fmt/format.h>

#include <string>

#include "model/support/error.hpp"

namespace samesum::gpu {
namespace {

constexpr std::array<std::string_view, all_faults.size() + 1> fault_names{
    "none",         "root_is_owner", "offset_by_one_row",       "root_copy_on_other_stream",
    "missing_wait", "ring_order",    "fp32_instead_of_per_hop", "stale_receive_buffer",
    "sizes_rotated"};

}  // namespace

std::string_view name(Fault fault) { return fault_names.at(static_cast<std::size_t>(fault)); }

Fault parse_fault(std::string_view word) {
    std::string choices;
    for (std::size_t i = 0; i < fault_names.size(); ++i) {
        if (word == fault_names[i]) return static_cast<Fault>(i);
        choices += fmt::format("{}{}", i > 0 ? ", " : "", fault_names[i]);
    }
    throw UsageError(fmt::format("unknown fault '{}'; one of: {}", word, choices));
}

}  // namespace samesum::gpu
