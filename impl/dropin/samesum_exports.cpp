// Exports samesum's own two functions.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <exception>
#include <memory>
#include <optional>
#include <string_view>

#include "impl/dropin/communicator_state.hpp"
#include "impl/dropin/replacement.hpp"
#include "impl/dropin/samesum_nccl.h"
#include "impl/dropin/thread_state.hpp"
#include "model/support/error.hpp"

using namespace samesum;
using namespace samesum::dropin;

extern "C" {

ncclResult_t samesumCombine(ncclComm_t comm, const char* scheme, const char* accumulation, const uint64_t* sizes,
                            int ranks, uint64_t hidden, ncclDataType_t type, int root, const void* partial,
                            void* result, cudaStream_t stream) {
    try {
        ThreadState& thread = this_thread();
        thread.last_error.clear();
        if (comm == nullptr) throw UsageError("samesumCombine: comm is null; expected a communicator");
        if (scheme == nullptr || accumulation == nullptr || sizes == nullptr)
            throw UsageError("samesumCombine: scheme, accumulation or sizes is null; expected all three");
        if (thread.group_depth > 0)
            throw UsageError(
                "samesumCombine: called inside a group; expected a call outside ncclGroupStart and "
                "ncclGroupEnd");
        if (!is_float(type))
            throw UsageError(fmt::format("samesumCombine: type {}; expected a floating-point type", name(type)));
        const std::shared_ptr<CommunicatorState> state = state_of(comm);
        if (ranks != state->ranks())
            throw UsageError(fmt::format("samesumCombine: sizes of {} ranks; expected {}, as the communicator has",
                                         ranks, state->ranks()));
        gpu::CombineRequest request;
        request.routing = {{sizes, sizes + ranks}, hidden};
        request.format = format_of(type);
        request.root = root;
        request.accumulation = parse_accumulation(accumulation);
        const std::string_view scheme_name = scheme;
        std::optional<Scheme> chosen;
        if (scheme_name != "auto") chosen = parse_scheme(scheme_name);
        const StateUse use(*state);
        state->combine(chosen, request, partial, result, stream);
        return ncclSuccess;
    } catch (const std::exception& error) {
        return keep_error(result_code(error), error.what());
    }
}

const char* samesumLastError(void) { return this_thread().last_error.c_str(); }

}  // extern "C"
