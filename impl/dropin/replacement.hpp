// Runs replaced calls as combines on their streams.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <span>

#include "impl/dropin/communicator_state.hpp"
#include "impl/dropin/data_call.hpp"

namespace samesum::dropin {

/// Runs calls of one communicator for which decide() says replace, in their order. Consecutive ncclReduces of one group
/// with increasing roots become one combine, in which each root receives its own rows (vLLM's reduce_scatterv). Which
/// calls are joined depends only on arguments that are the same on all ranks, never on addresses. Returns NCCL's result
/// codes; prints an error line on stderr. `group`: the result of the end of the group whose calls these are;
/// ncclInProgress is waited for.
ncclResult_t run_replaced(std::span<const DataCall> calls, ncclResult_t group = ncclSuccess);

/// The result code of NCCL for an exception of ours.
[[nodiscard]] ncclResult_t result_code(const std::exception& error);

}  // namespace samesum::dropin
