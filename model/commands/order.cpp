// samesum order: the order in which NCCL adds.
// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "model/commands/commands.hpp"
#include "model/support/program.hpp"

namespace samesum {

Exit order_command(std::span<const std::string> arguments) {
    const std::array commands{
        Command{"show", "the orders of one call: segments and their trees", order_show},
        Command{"diff", "which elements change their order between two calls", order_diff},
        Command{"invariance", "which scheme depends on owner, position, count, routing", order_invariance},
        Command{"enumerate", "all orders of a few values, and NCCL's among them", order_enumerate},
        Command{"paths", "a custom collective: batch sizes at which its order changes", order_paths},
        Command{"lint", "what an environment's settings do for the order", order_lint},
        Command{"calls", "a job's recorded calls: which depend on owner or count", order_calls},
        Command{"check", "recorded orders of real NCCL against the prediction", order_check},
    };
    return dispatch("order", arguments, commands);
}

}  // namespace samesum
