// What happens to a call of the program: it is forwarded, recorded, replaced or refused, as SAMESUM_POLICY says.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include "impl/dropin/data_call.hpp"

namespace samesum::dropin {

/// Applies the policy to a call that moves or adds data.
ncclResult_t handle_call(const DataCall& call);

/// Before a communicator is made: an error when the settings are wrong or cannot be honoured. Prints it on stderr.
ncclResult_t check_configuration();

}  // namespace samesum::dropin
