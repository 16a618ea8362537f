// samesum-model: the commands that need no GPU and no solver.
// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "model/cli.hpp"

int main(int argc, char** argv) {
    using namespace samesum;
    const std::array<Command, 0> commands{};
    return run_program(argc, argv, commands);
}
