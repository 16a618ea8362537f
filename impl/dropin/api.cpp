// The doors: every function of nccl.h 2.28.9 under both of its names, and samesum's own two. What a newer NCCL has
// beyond these is not here; a preloaded program then finds it in the real library.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "impl/dropin/communicator_state.hpp"
#include "impl/dropin/policy.hpp"
#include "impl/dropin/real_nccl.hpp"
#include "impl/dropin/recorder.hpp"
#include "impl/dropin/replacement.hpp"
#include "impl/dropin/samesum_nccl.h"
#include "impl/dropin/thread.hpp"
#include "model/support/error.hpp"

namespace samesum::dropin {
namespace {

/// A communicator that does not block answers "in progress"; a combine of ours goes on when that is over.
ncclResult_t wait_until_ready(ncclComm_t comm, ncclResult_t result) {
    while (result == ncclInProgress && comm != nullptr) {
        ncclResult_t state = ncclSuccess;
        const ncclResult_t asked = forward<&ncclCommGetAsyncError>("ncclCommGetAsyncError", comm, &state);
        result = asked != ncclSuccess ? asked : state;
    }
    return result;
}

/// NCCL on its own account, or a part of our combine: no policy applies.
bool is_internal() { return this_thread().in_nccl > 0 || this_thread().playing != nullptr; }

ncclResult_t passed(const DataCall& call) {
    return this_thread().in_nccl > 0 ? forward(call) : wait_until_ready(call.comm, forward(call));
}

/// Refused at once, and again where the group ends: a program may look there only.
ncclResult_t refuse(const std::string& why) {
    Thread& thread = this_thread();
    if (thread.groups > 0) thread.group_result = ncclInvalidUsage;
    return complain(ncclInvalidUsage, why);
}

ncclResult_t defer(const DataCall& call) {
    std::vector<DataCall>& deferred = this_thread().deferred;
    // They would be played one after the other, so one thread that drives two ranks would wait for itself.
    if (!deferred.empty() && deferred.front().comm != call.comm)
        return refuse(
            fmt::format("nccl{} under SAMESUM_POLICY={}: sums on two communicators in one group; a group for "
                        "each, and a thread for each rank, would be right",
                        name(call.function), name(configuration().policy)));
    deferred.push_back(call);
    return ncclSuccess;
}

/// A call of the program's.
ncclResult_t handle_call(const DataCall& call) {
    if (is_internal()) return passed(call);
    const Configuration& asked = configuration();
    if (!asked.complaint.empty()) return complain(ncclInvalidArgument, asked.complaint);
    if (asked.policy == Policy::none || call.comm == nullptr) return forward(call);
    if (!asked.records && !adds(call.function)) return forward(call);
    try {
        CommunicatorState& state = state_of(call.comm);
        const Decision decision = decide(asked, call, state.ranks());
        Thread& thread = this_thread();
        if (asked.records) recorder().record(call, state, decision.act, thread.group);
        switch (decision.act) {
            case Decision::Act::forward:
                return forward(call);
            case Decision::Act::refuse:
                return refuse(decision.why);
            case Decision::Act::replace:
                return thread.groups > 0 ? defer(call) : run_replaced({&call, 1});
        }
    } catch (const std::exception& error) {
        // Who only watches changes nothing: NCCL will say what is wrong with such a communicator.
        return asked.replaces() ? answer_of(error, true) : forward(call);
    }
    return ncclInternalError;
}

/// May communicators be made? Not under a policy that is not understood or that cannot be kept.
ncclResult_t check_configuration() {
    if (is_internal()) return ncclSuccess;
    const Configuration& asked = configuration();
    if (!asked.complaint.empty()) return complain(ncclInvalidArgument, asked.complaint);
    if (asked.records && !recorder().complaint().empty()) return complain(ncclInvalidArgument, recorder().complaint());
    return ncclSuccess;
}

/// A unique id goes from one rank to all. Its last bytes, which NCCL leaves zero (2.28.9, bootstrap.cc), carry what
/// sums are replaced by, so that ranks with different settings do not wait for each other's other calls.
constexpr std::size_t mark_bytes = 32;
std::string own_mark() {
    const Configuration& asked = configuration();
    if (!asked.replaces()) return std::string(mark_bytes, '\0');
    std::string mark = fmt::format("samesum:{}{}", name(asked.policy),
                                   asked.accumulation == Accumulation::fp32_once ? ",fp32_once" : "");
    mark.resize(mark_bytes);
    return mark;
}

std::string mark_in(const ncclUniqueId& id) { return {std::end(id.internal) - mark_bytes, std::end(id.internal)}; }

ncclResult_t mark(ncclUniqueId* id) {
    if (is_internal() || id == nullptr || !configuration().replaces()) return ncclSuccess;
    const std::string unused(mark_bytes, '\0'), own = own_mark();
    if (mark_in(*id) != unused)
        return complain(ncclSystemError,
                        "NCCL's unique id leaves no room for samesum's mark; SAMESUM_POLICY=observe or "
                        "an NCCL of 2.27 to 2.30 would be right");
    std::copy(own.begin(), own.end(), std::end(id->internal) - mark_bytes);
    return ncclSuccess;
}

ncclResult_t check_mark(const ncclUniqueId& id) {
    const std::string found = mark_in(id), own = own_mark();
    const bool marked = found.starts_with("samesum:");
    if (is_internal() || found == own || (!marked && !configuration().replaces())) return ncclSuccess;
    const auto words = [](const std::string& mark) {
        return mark[0] == '\0' ? std::string("none that replaces") : std::string(mark.c_str() + 8);
    };
    return complain(ncclInvalidArgument,
                    fmt::format("the rank that made this communicator's unique id has SAMESUM_POLICY {}, this one {}; "
                                "this library and the same policy on every rank would be right",
                                marked ? words(found) : "none that replaces, or not this library", words(own)));
}

template <auto exported, class... Arguments>
ncclResult_t start(const char* name, Arguments... arguments) {
    const ncclResult_t allowed = check_configuration();
    return allowed == ncclSuccess ? forward<exported>(name, arguments...) : allowed;
}

template <auto exported, class... Arguments>
ncclResult_t start_with(std::span<const ncclUniqueId> ids, const char* name, Arguments... arguments) {
    if (const ncclResult_t allowed = check_configuration(); allowed != ncclSuccess) return allowed;
    for (const ncclUniqueId& id : ids)
        if (const ncclResult_t alike = check_mark(id); alike != ncclSuccess) return alike;
    return forward<exported>(name, arguments...);
}

ncclResult_t group_start() {
    const ncclResult_t result = forward<&ncclGroupStart>("ncclGroupStart");
    static std::atomic<std::uint64_t> groups{0};
    Thread& thread = this_thread();
    if (is_internal() || result != ncclSuccess) return result;
    if (++thread.groups == 1) thread.group = configuration().records ? ++groups : 1;
    return result;
}

/// True when the outermost group ends here.
bool leaves_group() {
    Thread& thread = this_thread();
    if (is_internal() || thread.groups == 0 || --thread.groups > 0) return false;
    thread.group = 0;
    return true;
}

/// Our part of the end of a group: what was deferred, after NCCL's own part.
ncclResult_t end_of_group(ncclResult_t result) {
    Thread& thread = this_thread();
    const std::vector<DataCall> deferred = std::exchange(thread.deferred, {});
    const ncclResult_t refused = std::exchange(thread.group_result, ncclSuccess);
    if (refused != ncclSuccess) return refused;
    if (deferred.empty()) return result;
    result = wait_until_ready(deferred.front().comm, result);
    return result == ncclSuccess ? run_replaced(deferred) : result;
}

/// Before a communicator goes for good.
void close(ncclComm_t comm) {
    CommunicatorState* const state = known_state_of(comm);
    if (state == nullptr) return;
    try {
        const Playing playing(comm);
        const std::lock_guard lock(state->mutex());
        const DeviceGuard device(state->device());
        state->close();
    } catch (const std::exception& error) {
        (void)answer_of(error, true);
    }
}

}  // namespace
}  // namespace samesum::dropin

using namespace samesum;
using namespace samesum::dropin;

// NCCL's names, and the names that NCCL keeps for tools that take the first.
#define SAMESUM_BOTH_NAMES(function) \
    extern "C" __attribute__((alias(#function))) decltype(function) p##function;  // NOLINT
#define SAMESUM_FORWARDED(function, parameters, ...)                                                                 \
    extern "C" ncclResult_t function parameters { return forward<&function>(#function __VA_OPT__(, ) __VA_ARGS__); } \
    SAMESUM_BOTH_NAMES(function)
#define SAMESUM_STARTED(function, parameters, ...)                                                                 \
    extern "C" ncclResult_t function parameters { return start<&function>(#function __VA_OPT__(, ) __VA_ARGS__); } \
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

SAMESUM_STARTED(ncclCommInitAll, (ncclComm_t * comms, int devices, const int* list), comms, devices, list)
SAMESUM_STARTED(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config), comm,
                color, key, made, config)
SAMESUM_STARTED(ncclCommShrink,
                (ncclComm_t comm, int* excluded, int count, ncclComm_t* made, ncclConfig_t* config, int flags), comm,
                excluded, count, made, config, flags)

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    const ncclResult_t result = forward<&ncclGetUniqueId>("ncclGetUniqueId", id);
    return result == ncclSuccess ? mark(id) : result;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
    return start_with<&ncclCommInitRank>({&id, 1}, "ncclCommInitRank", comm, ranks, id, rank);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    return start_with<&ncclCommInitRankConfig>({&id, 1}, "ncclCommInitRankConfig", comm, ranks, id, rank, config);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int count, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
    const bool given = configuration().policy != Policy::none && ids != nullptr && count > 0;
    return start_with<&ncclCommInitRankScalable>({ids, given ? static_cast<std::size_t>(count) : 0},
                                                 "ncclCommInitRankScalable", comm, ranks, rank, count, ids, config);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    if (!is_internal()) close(comm);
    return forward<&ncclCommFinalize>("ncclCommFinalize", comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (!is_internal()) {
        close(comm);
        forget(comm);
    }
    return forward<&ncclCommDestroy>("ncclCommDestroy", comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    if (!is_internal()) abandon(comm);
    return forward<&ncclCommAbort>("ncclCommAbort", comm);
}

const char* ncclGetErrorString(ncclResult_t result) {
    static const auto function = reinterpret_cast<decltype(&ncclGetErrorString)>(real_function("ncclGetErrorString"));
    return function != nullptr ? function(result) : "the real NCCL is not found";
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

ncclResult_t ncclGroupEnd() {
    const bool outermost = leaves_group();
    const ncclResult_t result = forward<&ncclGroupEnd>("ncclGroupEnd");
    if (this_thread().in_nccl == 0 && this_thread().playing != nullptr)
        return wait_until_ready(this_thread().playing, result);
    return outermost ? end_of_group(result) : result;
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* info) {
    const bool outermost = leaves_group();
    const ncclResult_t result = forward<&ncclGroupSimulateEnd>("ncclGroupSimulateEnd", info);
    if (!outermost) return result;
    Thread& thread = this_thread();
    const bool replaced = !std::exchange(thread.deferred, {}).empty();
    const ncclResult_t refused = std::exchange(thread.group_result, ncclSuccess);
    if (replaced)
        return complain(ncclInvalidUsage,
                        "ncclGroupSimulateEnd: NCCL cannot estimate sums that SAMESUM_POLICY "
                        "replaces; ncclGroupEnd would be right");
    return refused != ncclSuccess ? refused : result;
}

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

ncclResult_t samesumCombine(ncclComm_t comm, const char* scheme, const char* accumulation, const uint64_t* sizes,
                            int ranks, uint64_t hidden, ncclDataType_t type, int root, const void* partial,
                            void* result, cudaStream_t stream) {
    try {
        Thread& thread = this_thread();
        thread.last_error.clear();
        if (comm == nullptr) throw UsageError("samesumCombine: no communicator");
        if (scheme == nullptr || accumulation == nullptr || sizes == nullptr)
            throw UsageError("samesumCombine: scheme, accumulation and sizes must be given");
        if (thread.groups > 0)
            throw UsageError("samesumCombine inside ncclGroupStart and ncclGroupEnd; outside would be right");
        if (!is_float(type))
            throw UsageError(fmt::format("{} sums have no order; a floating-point type would be right", name(type)));
        const Playing playing(comm);
        CommunicatorState& state = state_of(comm);
        if (ranks != state.ranks())
            throw UsageError(fmt::format("sizes of {} ranks; the communicator has {}", ranks, state.ranks()));
        gpu::CombineRequest request;
        request.routing = {{sizes, sizes + ranks}, hidden};
        request.format = format_of(type);
        request.root = root;
        request.accumulation = parse_accumulation(accumulation);
        const std::string_view word = scheme;
        std::optional<Scheme> named;
        if (word != "auto") named = parse_scheme(word);
        const std::lock_guard lock(state.mutex());
        const DeviceGuard device(state.device());
        state.combine(named, request, partial, result, stream);
        return ncclSuccess;
    } catch (const std::exception& error) {
        return answer_of(error, false);
    }
}

const char* samesumLastError(void) { return this_thread().last_error.c_str(); }

}  // extern "C"
