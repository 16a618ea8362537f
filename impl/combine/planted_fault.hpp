// Faults that test builds can plant in a combine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace samesum::gpu {

/// Faults that a combine can be told to have, so that tests show that such a fault would be caught. Builds without
/// SAMESUM_FAULTS throw UsageError.
enum class Fault : std::uint8_t {
    none,
    root_is_owner,              ///< fixed_root reduces each chunk to its owner
    offset_by_one_row,          ///< chunks are taken one row too early
    root_copy_on_other_stream,  ///< fixed_root's root copies its own chunk without waiting for the reduce
    missing_wait,               ///< the ordered sum does not wait for what it adds
    ring_order,                 ///< ordered sums begin with the owner's successor, as rings do
    fp32_instead_of_per_hop,    ///< ordered sums round once
    stale_receive_buffer,       ///< gather and exchange add what the last call received
    sizes_rotated,              ///< rank r takes rank r + 1's size
};
inline constexpr std::array all_faults{
    Fault::root_is_owner, Fault::offset_by_one_row,       Fault::root_copy_on_other_stream, Fault::missing_wait,
    Fault::ring_order,    Fault::fp32_instead_of_per_hop, Fault::stale_receive_buffer,      Fault::sizes_rotated};
[[nodiscard]] std::string_view name(Fault fault);
/// Throws UsageError that lists the names.
[[nodiscard]] Fault parse_fault(std::string_view word);

}  // namespace samesum::gpu
