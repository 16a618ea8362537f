// samesum-impl: the commands that drive real ranks.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "impl/commands.hpp"
#include "impl/crew.hpp"
#include "model/cli.hpp"

int main(int argc, char** argv) {
    using namespace samesum;
    const std::array commands{
        Command{"run", "one combine on real ranks, compared with the model bit by bit",
                gpu::with_crew(gpu::run_command)},
        Command{"reveal", "the orders of live NCCL on this machine, compared with the prediction",
                gpu::with_crew(gpu::reveal_command)},
        Command{"bench", "time and bandwidth of all combines, side by side", gpu::with_crew(gpu::bench_command)},
    };
    // Asked for only when wanted: ranks are forked, and no library of a GPU's may have started by then.
    const bool asked = argc > 1 && std::string_view(argv[1]) == "--version";
    return gpu::leave_crew(run_program(argc, argv, commands,
                                       asked ? gpu::versions() : std::vector<std::pair<std::string, std::string>>{}));
}
