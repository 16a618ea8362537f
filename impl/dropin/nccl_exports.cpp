// Exports every function of nccl.h 2.28.9, each also under its profiling name (pnccl...). Functions that only a newer
// NCCL has are not exported; a program with this library preloaded then finds them in the real library.
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include <exception>
#include <mutex>
#include <span>

#include "impl/dropin/communicator_state.hpp"
#include "impl/dropin/group_calls.hpp"
#include "impl/dropin/handle_call.hpp"
#include "impl/dropin/policy.hpp"
#include "impl/dropin/real_nccl.hpp"
#include "impl/dropin/replacement.hpp"
#include "impl/dropin/thread_state.hpp"
#include "impl/dropin/unique_id_mark.hpp"

namespace samesum::dropin {
namespace {

/// Functions that make communicators.
template <auto exported, class... Arguments>
ncclResult_t make_communicator(const char* name, Arguments... arguments) {
    const ncclResult_t checked = check_configuration();
    return checked == ncclSuccess ? forward<exported>(name, arguments...) : checked;
}

/// The same for those that take unique ids.
template <auto exported, class... Arguments>
ncclResult_t make_communicator_from(std::span<const ncclUniqueId> ids, const char* name, Arguments... arguments) {
    if (const ncclResult_t checked = check_configuration(); checked != ncclSuccess) return checked;
    for (const ncclUniqueId& id : ids)
        if (const ncclResult_t checked = check_unique_id(id); checked != ncclSuccess) return checked;
    return forward<exported>(name, arguments...);
}

/// Unmaps the peers' memory of a communicator that is about to be finalized or destroyed.
void close_state(ncclComm_t comm) {
    CommunicatorState* const state = find_state(comm);
    if (state == nullptr) return;
    try {
        const InternalCallGuard internal(comm);
        const std::lock_guard lock(state->mutex());
        const DeviceGuard device(state->device());
        state->close();
    } catch (const std::exception& error) {
        report_error(result_code(error), error.what());
    }
}

}  // namespace
}  // namespace samesum::dropin

using namespace samesum::dropin;

// NCCL exports each function also as pnccl..., for tools that replace the first name.
#define SAMESUM_BOTH_NAMES(function) \
    extern "C" __attribute__((alias(#function))) decltype(function) p##function;  // NOLINT
#define SAMESUM_FORWARDED(function, parameters, ...)                                                                 \
    extern "C" ncclResult_t function parameters { return forward<&function>(#function __VA_OPT__(, ) __VA_ARGS__); } \
    SAMESUM_BOTH_NAMES(function)
#define SAMESUM_MAKES_COMMUNICATOR(function, parameters, ...)                      \
    extern "C" ncclResult_t function parameters {                                  \
        return make_communicator<&function>(#function __VA_OPT__(, ) __VA_ARGS__); \
    }                                                                              \
    SAMESUM_BOTH_NAMES(function)

SAMESUM_FORWARDED(ncclMemAlloc, (void** ptr, size_t size), ptr, size)
SAMESUM_FORWARDED(ncclMemFree, (void* ptr), ptr)
SAMESUM_FORWARDED(ncclGetVersion, (int* version), version)
SAMESUM_FORWARDED(ncclCommRevoke, (ncclComm_t comm, int flags), comm, flags)
SAMESUM_FORWARDED(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* error), comm, error)
SAMESUM_FORWARDED(ncclCommCount, (const ncclComm_t comm, int* count), comm, count)
SAMESUM_FORWARDED(ncclCommCuDevice, (const ncclComm_t comm, int* device), comm, device)
SAMESUM_FORWARDED(ncclCommUserRank, (const ncclComm_t comm, int* rank), comm, rank)
SAMESUM_FORWARDED(ncclCommRegister, (const ncclComm_t comm, void* buffer, size_t size, void** handle), comm, buffer,
                  size, handle)
SAMESUM_FORWARDED(ncclCommDeregister, (const ncclComm_t comm, void* handle), comm, handle)
SAMESUM_FORWARDED(ncclCommWindowRegister, (ncclComm_t comm, void* buffer, size_t size, ncclWindow_t* window, int flags),
                  comm, buffer, size, window, flags)
SAMESUM_FORWARDED(ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window), comm, window)
SAMESUM_FORWARDED(ncclRedOpCreatePreMulSum,
                  (ncclRedOp_t * op, void* scalar, ncclDataType_t type, ncclScalarResidence_t where, ncclComm_t comm),
                  op, scalar, type, where, comm)
SAMESUM_FORWARDED(ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm), op, comm)

SAMESUM_MAKES_COMMUNICATOR(ncclCommInitAll, (ncclComm_t * comms, int devices, const int* list), comms, devices, list)
SAMESUM_MAKES_COMMUNICATOR(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config),
                           comm, color, key, made, config)
SAMESUM_MAKES_COMMUNICATOR(ncclCommShrink,
                           (ncclComm_t comm, int* excluded, int count, ncclComm_t* made, ncclConfig_t* config,
                            int flags),
                           comm, excluded, count, made, config, flags)

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    const ncclResult_t result = forward<&ncclGetUniqueId>("ncclGetUniqueId", id);
    return result == ncclSuccess ? mark_unique_id(id) : result;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
    return make_communicator_from<&ncclCommInitRank>({&id, 1}, "ncclCommInitRank", comm, ranks, id, rank);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    return make_communicator_from<&ncclCommInitRankConfig>({&id, 1}, "ncclCommInitRankConfig", comm, ranks, id, rank,
                                                           config);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int count, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
    const bool given = configuration().policy != Policy::none && ids != nullptr && count > 0;
    return make_communicator_from<&ncclCommInitRankScalable>({ids, given ? static_cast<std::size_t>(count) : 0},
                                                             "ncclCommInitRankScalable", comm, ranks, rank, count, ids,
                                                             config);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    if (!is_internal()) close_state(comm);
    return forward<&ncclCommFinalize>("ncclCommFinalize", comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (!is_internal()) {
        close_state(comm);
        delete_state(comm);
    }
    return forward<&ncclCommDestroy>("ncclCommDestroy", comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    if (!is_internal()) abandon_state(comm);
    return forward<&ncclCommAbort>("ncclCommAbort", comm);
}

const char* ncclGetErrorString(ncclResult_t result) {
    static const auto function = reinterpret_cast<decltype(&ncclGetErrorString)>(real_function("ncclGetErrorString"));
    return function != nullptr ? function(result) : "the real NCCL was not found";
}

const char* ncclGetLastError(ncclComm_t comm) {
    if (!is_internal() && !this_thread().last_error.empty()) return this_thread().last_error.c_str();
    static const auto function = reinterpret_cast<decltype(&ncclGetLastError)>(real_function("ncclGetLastError"));
    return function != nullptr ? function(comm) : this_thread().last_error.c_str();
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
void ncclResetDebugInit() {
    static const auto function = reinterpret_cast<void (*)()>(real_function("ncclResetDebugInit"));
    if (function != nullptr) function();
}
SAMESUM_BOTH_NAMES(ncclResetDebugInit)
#pragma GCC diagnostic pop

ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
    return handle_call({Function::reduce, send, receive, count, type, op, root, comm, stream});
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
    return handle_call({Function::reduce_scatter, send, receive, count, type, op, 0, comm, stream});
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    return handle_call({Function::all_reduce, send, receive, count, type, op, 0, comm, stream});
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    return handle_call({Function::all_gather, send, receive, count, type, ncclSum, 0, comm, stream});
}

ncclResult_t ncclAlltoAll(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
    return handle_call({Function::all_to_all, send, receive, count, type, ncclSum, 0, comm, stream});
}

ncclResult_t ncclGather(const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream) {
    return handle_call({Function::gather, send, receive, count, type, ncclSum, root, comm, stream});
}

ncclResult_t ncclScatter(const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                         cudaStream_t stream) {
    return handle_call({Function::scatter, send, receive, count, type, ncclSum, root, comm, stream});
}

ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
    return handle_call({Function::bcast, nullptr, buffer, count, type, ncclSum, root, comm, stream});
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    return handle_call({Function::broadcast, send, receive, count, type, ncclSum, root, comm, stream});
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return handle_call({Function::send, send, nullptr, count, type, ncclSum, peer, comm, stream});
}

ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return handle_call({Function::receive, nullptr, receive, count, type, ncclSum, peer, comm, stream});
}

ncclResult_t ncclGroupStart() { return group_start(); }

ncclResult_t ncclGroupEnd() { return group_end(); }

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* info) { return group_simulate_end(info); }

SAMESUM_BOTH_NAMES(ncclGetUniqueId)
SAMESUM_BOTH_NAMES(ncclCommInitRank)
SAMESUM_BOTH_NAMES(ncclCommInitRankConfig)
SAMESUM_BOTH_NAMES(ncclCommInitRankScalable)
SAMESUM_BOTH_NAMES(ncclCommFinalize)
SAMESUM_BOTH_NAMES(ncclCommDestroy)
SAMESUM_BOTH_NAMES(ncclCommAbort)
SAMESUM_BOTH_NAMES(ncclGetErrorString)
SAMESUM_BOTH_NAMES(ncclGetLastError)
SAMESUM_BOTH_NAMES(ncclReduce)
SAMESUM_BOTH_NAMES(ncclReduceScatter)
SAMESUM_BOTH_NAMES(ncclAllReduce)
SAMESUM_BOTH_NAMES(ncclAllGather)
SAMESUM_BOTH_NAMES(ncclAlltoAll)
SAMESUM_BOTH_NAMES(ncclGather)
SAMESUM_BOTH_NAMES(ncclScatter)
SAMESUM_BOTH_NAMES(ncclBcast)
SAMESUM_BOTH_NAMES(ncclBroadcast)
SAMESUM_BOTH_NAMES(ncclSend)
SAMESUM_BOTH_NAMES(ncclRecv)
SAMESUM_BOTH_NAMES(ncclGroupStart)
SAMESUM_BOTH_NAMES(ncclGroupEnd)
SAMESUM_BOTH_NAMES(ncclGroupSimulateEnd)

}  // extern "C"
