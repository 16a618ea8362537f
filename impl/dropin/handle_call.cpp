// The decision is policy.cpp's; this file carries it out.
// SPDX-License-Identifier: Apache-2.0
#include "impl/dropin/handle_call.hpp"

#include <exception>
#include <memory>

#include "impl/dropin/abort_gate.hpp"
#include "impl/dropin/communicator_state.hpp"
#include "impl/dropin/group_calls.hpp"
#include "impl/dropin/policy.hpp"
#include "impl/dropin/real_nccl.hpp"
#include "impl/dropin/recorder.hpp"
#include "impl/dropin/replacement.hpp"
#include "impl/dropin/thread_state.hpp"

namespace samesum::dropin {
namespace {

ncclResult_t forward_internal(const DataCall& call) {
    const ThreadState& thread = this_thread();
    if (thread.nccl_depth > 0) return forward(call);
    if (thread.gate->is_closed()) return aborted_result();
    return wait_until_ready(call.comm, forward(call));
}

ncclResult_t carry_out(const Decision& decision, const DataCall& call) {
    switch (decision.action) {
        case Decision::Action::forward:
            return forward(call);
        case Decision::Action::refuse:
            return refuse(decision.error);
        case Decision::Action::replace:
            return this_thread().group_depth > 0 ? defer(call) : run_replaced({&call, 1});
    }
    return ncclInternalError;
}

}  // namespace

ncclResult_t handle_call(const DataCall& call) {
    if (is_internal()) return forward_internal(call);
    const Configuration& settings = configuration();
    if (!settings.error.empty()) return report_error(ncclInvalidArgument, settings.error);
    if (settings.policy == Policy::none || call.comm == nullptr) return forward(call);
    if (!settings.records && !adds(call.function)) return forward(call);
    try {
        const std::shared_ptr<CommunicatorState> state = state_of(call.comm);
        const Decision decision = decide(settings, call, state->ranks());
        if (settings.records) recorder().record(call, *state, decision.action, this_thread().group);
        return carry_out(decision, call);
    } catch (const std::exception& error) {
        // A policy that only observes changes nothing: NCCL reports what is wrong with the communicator.
        return settings.replaces() ? report_error(result_code(error), error.what()) : forward(call);
    }
}

ncclResult_t check_configuration() {
    if (is_internal()) return ncclSuccess;
    const Configuration& settings = configuration();
    if (!settings.error.empty()) return report_error(ncclInvalidArgument, settings.error);
    if (settings.records && !recorder().error().empty()) return report_error(ncclInvalidArgument, recorder().error());
    return ncclSuccess;
}

}  // namespace samesum::dropin
