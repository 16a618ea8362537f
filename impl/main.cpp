// samesum-impl: the commands that drive real ranks.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "impl/commands/commands.hpp"
#include "impl/ranks/launched_job.hpp"
#include "model/support/program.hpp"

int main(int argc, char** argv) {
    using namespace samesum;
    const std::array commands{
        Command{"run", "one combine on real ranks, compared with the model bit by bit",
                gpu::run_under_launcher(gpu::run_command)},
        Command{"reveal", "the orders of live NCCL on this machine, compared with the prediction",
                gpu::run_under_launcher(gpu::reveal_command)},
        Command{"bench", "time and bandwidth of all combines, side by side",
                gpu::run_under_launcher(gpu::bench_command)},
    };
    // Only on demand: ranks are forks, and CUDA must not be initialised before them.
    const bool wants_versions = argc > 1 && std::string_view(argv[1]) == "--version";
    return gpu::leave_launched_job(run_program(
        argc, argv, commands, wants_versions ? gpu::versions() : std::vector<std::pair<std::string, std::string>>{}));
}
