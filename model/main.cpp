// samesum-model: the commands that need no GPU and no solver.
// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "model/commands/commands.hpp"
#include "model/support/program.hpp"

int main(int argc, char** argv) {
    using namespace samesum;
    const std::array commands{
        Command{"order", "the order in which NCCL adds: show, diff, invariance, enumerate, paths, lint, calls, check",
                order_command},
        Command{"sum", "the bits that an order gives: eval, witness, expect, reachable, mask", sum_command},
        Command{"teach", "lessons in the terminal, or as one page", teach_command},
    };
    return run_program(argc, argv, commands);
}
