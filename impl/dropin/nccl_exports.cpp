// Exports every function of nccl.h 2.28.9, each also under its profiling name (pnccl...). Functions that only a newer
// NCCL has are not exported; a program with this library preloaded then finds them in the real library.
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include <exception>
#include <memory>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

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

/// Functions that make communicators. `made`: where NCCL puts their addresses.
template <auto exported, class... Arguments>
ncclResult_t make_communicator(std::span<ncclComm_t> made, const char* name, Arguments... arguments) {
    if (const ncclResult_t checked = check_configuration(); checked != ncclSuccess) return checked;
    const ncclResult_t result = forward<exported>(name, arguments...);
    if (!is_internal() && configuration().policy != Policy::none && (result == ncclSuccess || result == ncclInProgress))
        for (const ncclComm_t comm : made) forget_aborted(comm);
    return result;
}

std::span<ncclComm_t> given(ncclComm_t* comms, int count = 1) {
    return {comms, comms != nullptr && count > 0 ? static_cast<std::size_t>(count) : 0};
}

ncclResult_t check_unique_ids(std::span<const ncclUniqueId> ids) {
    if (const ncclResult_t checked = check_configuration(); checked != ncclSuccess) return checked;
    for (const ncclUniqueId& id : ids)
        if (const ncclResult_t checked = check_unique_id(id); checked != ncclSuccess) return checked;
    return ncclSuccess;
}

/// Unmaps the peers' memory of a communicator that is about to be finalized or destroyed.
void close_state(ncclComm_t comm) {
    const std::shared_ptr<CommunicatorState> state = find_state(comm);
    if (!state) return;
    try {
        const StateUse use(*state);
        state->close();
    } catch (const std::exception& error) {
        report_error(result_code(error), error.what());
    }
}

/// NCCL first: only its abort ends its kernels, and freeing memory waits for those.
ncclResult_t abort_communicator(ncclComm_t comm) {
    const std::shared_ptr<CommunicatorState> state = begin_abort(comm);
    if (!state) return forward<&ncclCommAbort>("ncclCommAbort", comm);
    // NCCL frees memory, too, and would wait for direct_ordered's kernels: so those are ended at the same time.
    std::thread ends_kernels;
    try {
        ends_kernels = std::thread([&] { state->abandon(); });
    } catch (const std::system_error&) {
        state->abandon();
    }
    const ncclResult_t result = forward<&ncclCommAbort>("ncclCommAbort", comm);
    if (ends_kernels.joinable()) ends_kernels.join();
    end_abort(comm, state);
    return result;
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
#define SAMESUM_MAKES_COMMUNICATOR(function, made, parameters, ...)                      \
    extern "C" ncclResult_t function parameters {                                        \
        return make_communicator<&function>(made, #function __VA_OPT__(, ) __VA_ARGS__); \
    }                                                                                    \
    SAMESUM_BOTH_NAMES(function)

SAMESUM_FORWARDED(ncclMemAlloc, (void** ptr, size_t size), ptr, size)
SAMESUM_FORWARDED(ncclMemFree, (void* ptr), ptr)
SAMESUM_FORWARDED(ncclGetVersion, (int* version), version)
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

SAMESUM_MAKES_COMMUNICATOR(ncclCommInitAll, given(comms, devices), (ncclComm_t * comms, int devices, const int* list),
                           comms, devices, list)
SAMESUM_MAKES_COMMUNICATOR(ncclCommSplit, given(made),
                           (ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config), comm, color,
                           key, made, config)
SAMESUM_MAKES_COMMUNICATOR(ncclCommShrink, given(made),
                           (ncclComm_t comm, int* excluded, int count, ncclComm_t* made, ncclConfig_t* config,
                            int flags),
                           comm, excluded, count, made, config, flags)

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    const ncclResult_t result = forward<&ncclGetUniqueId>("ncclGetUniqueId", id);
    return result == ncclSuccess ? mark_unique_id(id) : result;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
    if (const ncclResult_t checked = check_unique_ids({&id, 1}); checked != ncclSuccess) return checked;
    return make_communicator<&ncclCommInitRank>(given(comm), "ncclCommInitRank", comm, ranks, plain_unique_id(id),
                                                rank);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    if (const ncclResult_t checked = check_unique_ids({&id, 1}); checked != ncclSuccess) return checked;
    return make_communicator<&ncclCommInitRankConfig>(given(comm), "ncclCommInitRankConfig", comm, ranks,
                                                      plain_unique_id(id), rank, config);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int count, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
    const bool has_ids = configuration().policy != Policy::none && ids != nullptr && count > 0;
    std::vector<ncclUniqueId> plain(ids, ids + (has_ids ? count : 0));
    if (const ncclResult_t checked = check_unique_ids(plain); checked != ncclSuccess) return checked;
    for (ncclUniqueId& id : plain) id = plain_unique_id(id);
    return make_communicator<&ncclCommInitRankScalable>(given(comm), "ncclCommInitRankScalable", comm, ranks, rank,
                                                        count, has_ids ? plain.data() : ids, config);
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
    return is_internal() ? forward<&ncclCommAbort>("ncclCommAbort", comm) : abort_communicator(comm);
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
    const ncclResult_t result = forward<&ncclCommRevoke>("ncclCommRevoke", comm, flags);
    const std::shared_ptr<CommunicatorState> state = is_internal() ? nullptr : find_state(comm);
    if (state && (result == ncclSuccess || result == ncclInProgress)) state->abandon();
    return result;
}

const char* ncclGetErrorString(ncclResult_t result) {
    static const auto function = reinterpret_cast<decltype(&ncclGetErrorString)>(real_function("ncclGetErrorString"));
    return function != nullptr ? function(result) : "the real NCCL was not found";
}

const char* ncclGetLastError(ncclComm_t comm) {
    const ThreadState& thread = this_thread();
    const std::string& own = is_internal() ? thread.internal_error : thread.last_error;
    if (!own.empty()) return own.c_str();
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
SAMESUM_BOTH_NAMES(ncclCommRevoke)
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
