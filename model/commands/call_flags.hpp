// The flags that describe a communicator and a call.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/input/call_description.hpp"
#include "model/support/options.hpp"

namespace samesum {

/// Adds --ranks, --ranks-per-node, --rings, --channels, --log, --communicator, --sm, --graph, --env, --nccl-version,
/// --machine, --algo, --proto.
void add_communicator_flags(Options& options);
/// Adds --collective, --count, --root, --dtype, --op, --calls, --index, --in-place, --registered, --symmetric,
/// --blocks.
void add_call_flags(Options& options);

/// What the flags say. Throws UsageError when a value is not of its grammar or a file cannot be read; resolve() checks
/// whether they fit together.
[[nodiscard]] CommunicatorDescription communicator_from(const Options& options);
[[nodiscard]] CallDescription call_from(const Options& options);

}  // namespace samesum
