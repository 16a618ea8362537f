// A call on a communicator, described: what is asked about, and what was assumed because nothing said it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/nccl/communicator.hpp"
#include "model/nccl/schedule.hpp"

namespace samesum {

/// A call on a communicator, as the user described it.
struct Scenario {
    Communicator comm;
    std::vector<Call> group{};  ///< in program order; a lone call is a group of one
    std::size_t index = 0;      ///< the call that is asked about
    Forced forced{};
    std::string symmetric_kernel{};  ///< empty: an ordinary kernel
    int symmetric_blocks = 1;
    std::vector<std::string> assumptions{};  ///< what was taken as given, each with what would check it

    [[nodiscard]] const Call& call() const { return group[index]; }
    [[nodiscard]] Plan plan() const;
};

/// "sm=90,cpu=intel,ring=1:1.2:1.2,tree=1:1.2:1.2,ll128=0,nvlink=1": what NCCL's cost model asks of a machine.
[[nodiscard]] Machine parse_machine(std::string_view text);

/// "4096" or "64x2048".
[[nodiscard]] std::uint64_t parse_count(std::string_view text, std::string_view flag);

/// "Reduce of 262144 float32 to root 0 over 8 ranks".
[[nodiscard]] std::string describe(const Call& call, int ranks);
/// "RING, SIMPLE, channels 0..3".
[[nodiscard]] std::string describe(const Plan& plan);

}  // namespace samesum
