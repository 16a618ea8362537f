// samesum-proofs: prove the claims, and print the ledger of everything that decides them.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>
#include <utility>

#include "model/support/program.hpp"
#include "proofs/commands.hpp"
#include "proofs/engine/solver.hpp"

int main(int argc, char** argv) {
    using namespace samesum;
    const std::array commands{
        Command{"verify", "the main job: every claim, decided, in one ledger", verify_command},
        Command{"prove", "obligations: list, discharge, export as SMT-LIB, cross-check", prove_command},
    };
    const std::array versions{std::pair<std::string, std::string>{"solver", solver_version()}};
    return run_program(argc, argv, commands, versions);
}
