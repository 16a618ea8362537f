// samesum sum: the bits that orders of additions give.
// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "model/commands/commands.hpp"
#include "model/support/program.hpp"

namespace samesum {

Exit sum_command(std::span<const std::string> arguments) {
    const std::array commands{
        Command{"eval", "add numbers in a given order; --explain shows each rounding", sum_eval},
        Command{"witness", "small numbers that two orders add to different bits", sum_witness},
        Command{"expect", "which share of elements changes between two orders or calls", sum_expect},
        Command{"reachable", "can any order give this result? no: a defect", sum_reachable},
        Command{"mask", "which elements of given tensors can reveal an order at all", sum_mask},
    };
    return dispatch("sum", arguments, commands);
}

}  // namespace samesum
