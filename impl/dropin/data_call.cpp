// Tables of names and widths, and the dispatch to the real library.
// SPDX-License-Identifier: Apache-2.0
#include "impl/dropin/data_call.hpp"

#include <array>

#include "impl/device/nccl.hpp"
#include "impl/dropin/real_nccl.hpp"
#include "model/support/error.hpp"

namespace samesum::dropin {
namespace {

struct Type {
    std::string_view name;
    int bytes;
    bool is_float;
};
/// By ncclDataType_t.
constexpr std::array<Type, ncclNumTypes> types{{{"int8", 1, false},
                                                {"uint8", 1, false},
                                                {"int32", 4, false},
                                                {"uint32", 4, false},
                                                {"int64", 8, false},
                                                {"uint64", 8, false},
                                                {"float16", 2, true},
                                                {"float32", 4, true},
                                                {"float64", 8, true},
                                                {"bfloat16", 2, true},
                                                {"float8_e4m3", 1, true},
                                                {"float8_e5m2", 1, true}}};

const Type* type_of(ncclDataType_t type) {
    const auto index = static_cast<std::size_t>(type);
    return index < types.size() ? &types[index] : nullptr;
}

}  // namespace

std::string_view name(Function function) {
    constexpr std::array<std::string_view, 11> names{"Reduce",    "ReduceScatter", "AllReduce", "AllGather",
                                                     "AlltoAll",  "Gather",        "Scatter",   "Bcast",
                                                     "Broadcast", "Send",          "Recv"};
    return names.at(static_cast<std::size_t>(function));
}

int bytes_of(ncclDataType_t type) { return type_of(type) != nullptr ? type_of(type)->bytes : 0; }
bool is_float(ncclDataType_t type) { return type_of(type) != nullptr && type_of(type)->is_float; }
Format format_of(ncclDataType_t type) {
    for (const Format format : float_formats)
        if (gpu::nccl_type(format) == type) return format;
    throw UsageError("only floating-point sums are replaced");
}
std::string_view name(ncclDataType_t type) { return type_of(type) != nullptr ? type_of(type)->name : "no type"; }

std::string_view name(ncclRedOp_t operation) {
    constexpr std::array<std::string_view, ncclNumOps> names{"sum", "prod", "max", "min", "avg"};
    const auto index = static_cast<std::size_t>(operation);
    return index < names.size() ? names[index] : "premulsum";
}

ncclResult_t forward(const DataCall& c) {
    switch (c.function) {
        case Function::reduce:
            return forward<&ncclReduce>("ncclReduce", c.input, c.output, c.count, c.type, c.operation, c.root, c.comm,
                                        c.stream);
        case Function::reduce_scatter:
            return forward<&ncclReduceScatter>("ncclReduceScatter", c.input, c.output, c.count, c.type, c.operation,
                                               c.comm, c.stream);
        case Function::all_reduce:
            return forward<&ncclAllReduce>("ncclAllReduce", c.input, c.output, c.count, c.type, c.operation, c.comm,
                                           c.stream);
        case Function::all_gather:
            return forward<&ncclAllGather>("ncclAllGather", c.input, c.output, c.count, c.type, c.comm, c.stream);
        case Function::all_to_all:
            return forward<&ncclAlltoAll>("ncclAlltoAll", c.input, c.output, c.count, c.type, c.comm, c.stream);
        case Function::gather:
            return forward<&ncclGather>("ncclGather", c.input, c.output, c.count, c.type, c.root, c.comm, c.stream);
        case Function::scatter:
            return forward<&ncclScatter>("ncclScatter", c.input, c.output, c.count, c.type, c.root, c.comm, c.stream);
        case Function::bcast:
            return forward<&ncclBcast>("ncclBcast", c.output, c.count, c.type, c.root, c.comm, c.stream);
        case Function::broadcast:
            return forward<&ncclBroadcast>("ncclBroadcast", c.input, c.output, c.count, c.type, c.root, c.comm,
                                           c.stream);
        case Function::send:
            return forward<&ncclSend>("ncclSend", c.input, c.count, c.type, c.root, c.comm, c.stream);
        case Function::receive:
            return forward<&ncclRecv>("ncclRecv", c.output, c.count, c.type, c.root, c.comm, c.stream);
    }
    return ncclInternalError;
}

}  // namespace samesum::dropin
