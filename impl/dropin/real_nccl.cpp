// Opens NVIDIA's library and refuses a copy of our own.
// SPDX-License-Identifier: Apache-2.0
#include "impl/dropin/real_nccl.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <thread>

#include "impl/dropin/abort_gate.hpp"
#include "impl/dropin/policy.hpp"

namespace samesum::dropin {
namespace {

struct Library {
    void* handle = nullptr;
    std::string path;
};

Library open_library() {
    const char* value = std::getenv("SAMESUM_NCCL");
    const bool given = value != nullptr && *value != '\0';
    const std::string file = given ? value : "libnccl.so.2";
    const std::string source = given ? fmt::format("SAMESUM_NCCL={}", file) : file;
    const auto fail = [](const std::string& what) {
        report_error(ncclSystemError, what + "; expected SAMESUM_NCCL=/path/to/libnccl.so.2");
        return Library{};
    };
    void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* why = ::dlerror();
        return fail(fmt::format("the real NCCL was not found: {} ({})", source,
                                why != nullptr ? why : "dlerror gives no reason"));
    }
    // A copy of this library, or a link to it, under NCCL's name would call itself for ever.
    if (::dlsym(handle, "samesumCombine") != nullptr)
        return fail(fmt::format("{} is samesum's own library, not NVIDIA's", source));
    if (::dlsym(handle, "ncclGetVersion") == nullptr)
        return fail(fmt::format("{} is not an NCCL library: it has no ncclGetVersion", source));
    Library found{handle, file};
    link_map* map = nullptr;
    if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) found.path = map->l_name;
    return found;
}

std::atomic<bool> called{false};

const Library& library() {
    called.store(true, std::memory_order_relaxed);
    static const Library found = open_library();
    return found;
}

/// Does this process use CUDA? Shells and launchers inherit SAMESUM_POLICY too.
bool has_cuda_driver() {
    bool found = false;
    ::dl_iterate_phdr(
        [](dl_phdr_info* each, std::size_t, void* answer) {
            const std::string_view path = each->dlpi_name != nullptr ? each->dlpi_name : "";
            if (path.substr(path.rfind('/') + 1).starts_with("libcuda.so")) *static_cast<bool*>(answer) = true;
            return 0;
        },
        &found);
    return found;
}

/// A policy that is not in force would else be silent: NCCL linked into the program, or opened by another path.
__attribute__((destructor)) void report_unused_policy() {
    const char* policy = std::getenv("SAMESUM_POLICY");
    if (called.load() || policy == nullptr || *policy == '\0' || !has_cuda_driver()) return;
    std::fprintf(stderr,
                 "samesum: SAMESUM_POLICY=%s was set, but no NCCL call of process %d came to this library; expected "
                 "a program that loads libnccl.so.2 and makes NCCL calls\n",
                 policy, static_cast<int>(::getpid()));
}

}  // namespace

void* real_function(const char* name) {
    if (library().handle == nullptr) return nullptr;
    void* const function = ::dlsym(library().handle, name);
    if (function == nullptr)
        report_error(ncclInvalidUsage, fmt::format("{} has no {}; expected NCCL {}.{} or later", library().path, name,
                                                   NCCL_MAJOR, NCCL_MINOR));
    return function;
}

ncclResult_t missing_function_result() { return library().handle == nullptr ? ncclSystemError : ncclInvalidUsage; }

const std::string& real_path() { return library().path; }

ncclResult_t aborted_result() {
    this_thread().internal_error = "the communicator was aborted";
    return ncclInvalidUsage;
}

ncclResult_t wait_until_ready(ncclComm_t comm, ncclResult_t result) {
    using Clock = std::chrono::steady_clock;
    if (result != ncclInProgress || comm == nullptr) return result;
    const auto query = [comm] {
        ncclResult_t state = ncclSuccess;
        const ncclResult_t queried = forward<&ncclCommGetAsyncError>("ncclCommGetAsyncError", comm, &state);
        return queried != ncclSuccess ? queried : state;
    };
    const auto deadline = Clock::now() + std::chrono::seconds(configuration().timeout_s);
    auto pause = std::chrono::microseconds(20);
    constexpr auto max_pause = std::chrono::microseconds(5000);
    while (result == ncclInProgress) {
        if (Clock::now() >= deadline) {
            this_thread().internal_error = fmt::format("the communicator was not ready within {} s (SAMESUM_TIMEOUT_S)",
                                                       configuration().timeout_s);
            return ncclSystemError;
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, max_pause);
        const std::optional<ncclResult_t> answer = this_thread().gate->while_open(query);
        if (!answer) return aborted_result();
        result = *answer;
    }
    return result;
}

}  // namespace samesum::dropin
