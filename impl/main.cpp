// samesum-impl: the commands that drive real ranks.
// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "impl/commands.hpp"
#include "model/cli.hpp"

int main(int argc, char** argv) {
    using namespace samesum;
    const std::array commands{
        Command{"run", "one combine on real ranks, compared with the model bit by bit", gpu::run_command},
        Command{"reveal", "the orders of live NCCL on this machine, compared with the prediction", gpu::reveal_command},
    };
    return run_program(argc, argv, commands);
}
