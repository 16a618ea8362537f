// Orders of NCCL's symmetric-memory kernels: one node, both buffers in registered windows, float32 sums rounded once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "model/nccl/communicator.hpp"
#include "model/nccl/schedule.hpp"

namespace samesum {

/// What determines the orders of a symmetric kernel, as in NCCL's log: "AllReduce [Symmetric]: ... Kernel
/// AllReduce_RSxLD_AGxST nchannels 16 ...". Offsets are those of the buffers inside their windows, in bytes.
struct SymmetricLaunch {
    std::string_view kernel;
    int blocks = 1;
    std::uint64_t input_offset = 0, output_offset = 0;
};

/// Throws UsageError for an unknown kernel, a kernel of another collective, or several nodes.
/// NCCL 2.28.9 device/symmetric/{all_reduce,reduce_scatter}.cuh, sym_kernels.cc.
[[nodiscard]] Plan plan_symmetric(const Communicator& comm, const Call& call, const SymmetricLaunch& launch);

}  // namespace samesum
