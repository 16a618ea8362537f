// One call of NCCL's API that moves or adds data.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "model/arithmetic/format.hpp"

namespace samesum::dropin {

enum class Function : std::uint8_t {
    reduce,
    reduce_scatter,
    all_reduce,
    all_gather,
    all_to_all,
    gather,
    scatter,
    bcast,
    broadcast,
    send,
    receive,
};
/// "ReduceScatter"
[[nodiscard]] std::string_view name(Function function);
/// True of the collectives that add values of several ranks.
[[nodiscard]] constexpr bool adds(Function function) { return function <= Function::all_reduce; }

struct DataCall {
    Function function{};
    const void* input = nullptr;
    void* output = nullptr;
    std::size_t count = 0;
    ncclDataType_t type = ncclUint8;
    ncclRedOp_t operation = ncclSum;
    int root = 0;  ///< or peer
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
};

/// Bytes of an element; 0 for a number that is not a type.
[[nodiscard]] int bytes_of(ncclDataType_t type);
[[nodiscard]] bool is_float(ncclDataType_t type);
/// Of a type that is_float(); throws UsageError for another.
[[nodiscard]] Format format_of(ncclDataType_t type);
/// "bfloat16", "sum"; operations made with ncclRedOpCreatePreMulSum are "premulsum".
[[nodiscard]] std::string_view name(ncclDataType_t type);
[[nodiscard]] std::string_view name(ncclRedOp_t operation);

/// Calls the real library.
ncclResult_t forward(const DataCall& call);

}  // namespace samesum::dropin
