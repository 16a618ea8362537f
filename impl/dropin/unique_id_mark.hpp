// Detects ranks under different policies before they communicate: ncclGetUniqueId's id carries the policy.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

namespace samesum::dropin {

// A unique id goes from one rank to all. NCCL leaves its last bytes zero (2.28.9, bootstrap.cc); there the policy and
// the accumulation of the rank that made it are written. Under different policies ranks would wait for each other in
// different calls. A marked id is also made useless for NCCL itself, so that a rank without this library fails.

/// Writes this process's policy into an id that NCCL has just made.
ncclResult_t mark_unique_id(ncclUniqueId* id);
/// Compares an id's policy with this process's.
ncclResult_t check_unique_id(const ncclUniqueId& id);
/// The id as NCCL made it.
[[nodiscard]] ncclUniqueId plain_unique_id(ncclUniqueId id);

}  // namespace samesum::dropin
