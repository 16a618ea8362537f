// ncclGroupStart to ncclGroupEnd: replaced calls inside a group are deferred to its end.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <string>

#include "impl/dropin/data_call.hpp"

namespace samesum::dropin {

/// Refuses a call at once and again at the end of its group: a program may check only the result of ncclGroupEnd.
ncclResult_t refuse(const std::string& line);
/// Keeps a replaced call for the end of the open group.
ncclResult_t defer(const DataCall& call);

ncclResult_t group_start();
/// NCCL's end of the group, then the deferred calls.
ncclResult_t group_end();
ncclResult_t group_simulate_end(ncclSimInfo_t* info);

}  // namespace samesum::dropin
