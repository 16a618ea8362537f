// Groups are counted for each thread, as NCCL counts them; what was deferred runs when the outermost group ends.
// SPDX-License-Identifier: Apache-2.0
#include "impl/dropin/group_calls.hpp"

#include <fmt/format.h>

#include <atomic>
#include <utility>
#include <vector>

#include "impl/dropin/policy.hpp"
#include "impl/dropin/real_nccl.hpp"
#include "impl/dropin/replacement.hpp"
#include "impl/dropin/thread_state.hpp"

namespace samesum::dropin {
namespace {

/// True when this call ends the outermost group.
bool leave_group() {
    ThreadState& thread = this_thread();
    if (is_internal() || thread.group_depth == 0 || --thread.group_depth > 0) return false;
    thread.group = 0;
    return true;
}

/// After NCCL's own end of the outermost group.
ncclResult_t run_deferred(ncclResult_t result) {
    ThreadState& thread = this_thread();
    const std::vector<DataCall> deferred = std::exchange(thread.deferred, {});
    const ncclResult_t refused = std::exchange(thread.group_result, ncclSuccess);
    if (refused != ncclSuccess) return refused;
    if (deferred.empty() || (result != ncclSuccess && result != ncclInProgress)) return result;
    return run_replaced(deferred, result);
}

}  // namespace

ncclResult_t refuse(const std::string& line) {
    ThreadState& thread = this_thread();
    if (thread.group_depth > 0) thread.group_result = ncclInvalidUsage;
    return report_error(ncclInvalidUsage, line);
}

ncclResult_t defer(const DataCall& call) {
    std::vector<DataCall>& deferred = this_thread().deferred;
    // Deferred calls run one after the other: a thread that drives two ranks would wait for itself.
    if (!deferred.empty() && deferred.front().comm != call.comm)
        return refuse(
            fmt::format("nccl{} under SAMESUM_POLICY={}: sums on two communicators in one group; expected one group "
                        "for each communicator and one thread for each rank",
                        name(call.function), name(configuration().policy)));
    deferred.push_back(call);
    return ncclSuccess;
}

ncclResult_t group_start() {
    const ncclResult_t result = forward<&ncclGroupStart>("ncclGroupStart");
    static std::atomic<std::uint64_t> groups{0};
    ThreadState& thread = this_thread();
    if (is_internal() || result != ncclSuccess) return result;
    if (++thread.group_depth == 1) thread.group = configuration().records ? ++groups : 1;
    return result;
}

ncclResult_t group_end() {
    const bool outermost = leave_group();
    const ncclResult_t result = forward<&ncclGroupEnd>("ncclGroupEnd");
    const ThreadState& thread = this_thread();
    if (thread.nccl_depth == 0 && thread.combining_on != nullptr) return wait_until_ready(thread.combining_on, result);
    return outermost ? run_deferred(result) : result;
}

ncclResult_t group_simulate_end(ncclSimInfo_t* info) {
    const bool outermost = leave_group();
    const ncclResult_t result = forward<&ncclGroupSimulateEnd>("ncclGroupSimulateEnd", info);
    if (!outermost) return result;
    ThreadState& thread = this_thread();
    const bool replaced = !std::exchange(thread.deferred, {}).empty();
    const ncclResult_t refused = std::exchange(thread.group_result, ncclSuccess);
    if (replaced)
        return report_error(ncclInvalidUsage,
                            "ncclGroupSimulateEnd: NCCL cannot estimate sums that SAMESUM_POLICY replaces; expected "
                            "ncclGroupEnd");
    return refused != ncclSuccess ? refused : result;
}

}  // namespace samesum::dropin
