// The flags that describe a communicator and a call, and what they leave to be assumed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/input/call_description.hpp"
#include "model/support/options.hpp"

namespace samesum {

/// Adds --ranks, --ranks-per-node, --rings, --channels, --log, --graph, --env, --nccl-version, --machine, --algo,
/// --proto.
void add_communicator_flags(Options& options);
/// Adds --collective, --count, --root, --dtype, --op, --calls, --index, --in-place, --registered.
void add_call_flags(Options& options);

/// Throws UsageError naming the flag that is wrong, or that would supply what is missing: nothing is assumed silently.
[[nodiscard]] Scenario scenario_from(const Options& options, bool with_call = true);

}  // namespace samesum
