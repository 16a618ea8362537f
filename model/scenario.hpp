// The flags that describe a communicator and a call, and what they leave to be assumed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/cli.hpp"
#include "model/schedule.hpp"

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

/// Adds --ranks, --ranks-per-node, --rings, --channels, --log, --graph, --env, --nccl-version, --machine, --algo,
/// --proto.
void add_communicator_flags(Options& options);
/// Adds --collective, --count, --root, --dtype, --op, --calls, --index, --in-place, --registered.
void add_call_flags(Options& options);

/// Throws UsageError naming the flag that is wrong, or that would supply what is missing: nothing is assumed silently.
[[nodiscard]] Scenario scenario_from(const Options& options, bool with_call = true);

/// "sm=90,cpu=intel,ring=1:1.2:1.2,tree=1:1.2:1.2,ll128=0,nvlink=1": what NCCL's cost model asks of a machine.
[[nodiscard]] Machine parse_machine(std::string_view text);

/// "4096" or "64x2048".
[[nodiscard]] std::uint64_t parse_count(std::string_view text, std::string_view flag);

/// "Reduce of 262144 float32 to root 0 over 8 ranks".
[[nodiscard]] std::string describe(const Call& call, int ranks);
/// "RING, SIMPLE, channels 0..3".
[[nodiscard]] std::string describe(const Plan& plan);

}  // namespace samesum
