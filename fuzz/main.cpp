// samesum-fuzz: campaigns of properties.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>
#include <utility>

#include "fuzz/commands.hpp"
#include "impl/ranks/launched_job.hpp"
#include "model/support/program.hpp"

int main(int argc, char** argv) {
    using namespace samesum;
    const std::array commands{
        Command{"fuzz", "campaigns: properties on random cases, findings made small, canaries",
                gpu::run_under_launcher(fuzz_command)},
    };
    // RapidCheck carries no version of its own.
    const std::array versions{std::pair<std::string, std::string>{"RapidCheck", SAMESUM_RAPIDCHECK}};
    return gpu::leave_launched_job(run_program(argc, argv, commands, versions));
}
