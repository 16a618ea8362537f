// Opens NVIDIA's library and refuses a copy of our own.
// SPDX-License-Identifier: Apache-2.0
#include "impl/dropin/real_nccl.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <cstdlib>

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

const Library& library() {
    static const Library found = open_library();
    return found;
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

ncclResult_t wait_until_ready(ncclComm_t comm, ncclResult_t result) {
    while (result == ncclInProgress && comm != nullptr) {
        ncclResult_t state = ncclSuccess;
        const ncclResult_t queried = forward<&ncclCommGetAsyncError>("ncclCommGetAsyncError", comm, &state);
        result = queried != ncclSuccess ? queried : state;
    }
    return result;
}

}  // namespace samesum::dropin
