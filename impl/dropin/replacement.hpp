// Replaced calls, put on their streams as combines.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "impl/dropin/communicator_state.hpp"
#include "impl/dropin/data_call.hpp"

namespace samesum::dropin {

/// Plays calls of one communicator that decide() wants replaced, in their order. Neighbouring ncclReduces of one group
/// with rising roots become one combine, each rank's row its own part (vLLM's reduce_scatterv): whether they do rests
/// on what all ranks say alike, never on addresses. Answers as NCCL does; says on stderr why it was no success.
ncclResult_t run_replaced(std::span<const DataCall> calls);

/// The answer for an error of ours, which is kept for samesumLastError; `aloud`: also on stderr.
ncclResult_t answer_of(const std::exception& error, bool aloud);

/// While it lives, calls of NCCL that this thread makes are parts of a combine on this communicator.
class Playing {
public:
    explicit Playing(ncclComm_t comm);
    ~Playing();
    Playing(const Playing&) = delete;
    Playing& operator=(const Playing&) = delete;

private:
    ncclComm_t before_;
};

}  // namespace samesum::dropin
