// Finding NVIDIA's library, and never ourselves.
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

Library find() {
    const char* wish = std::getenv("SAMESUM_NCCL");
    const bool given = wish != nullptr && *wish != '\0';
    const std::string file = given ? wish : "libnccl.so.2";
    const std::string asked = given ? fmt::format("SAMESUM_NCCL={}", file) : file;
    void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* why = ::dlerror();
        complain(ncclSystemError, fmt::format("the real NCCL is not found: {} ({}); SAMESUM_NCCL=/path/to/libnccl.so.2 "
                                              "would be right",
                                              asked, why != nullptr ? why : "no reason given"));
        return {};
    }
    // A copy or a link of this library under NCCL's name would call itself for ever.
    if (::dlsym(handle, "samesumCombine") != nullptr) {
        complain(ncclSystemError, fmt::format("{} is samesum's own library, not NVIDIA's; SAMESUM_NCCL=/path/to/"
                                              "libnccl.so.2 would be right",
                                              asked));
        return {};
    }
    if (::dlsym(handle, "ncclGetVersion") == nullptr) {
        complain(ncclSystemError, fmt::format("{} is no NCCL: it has no ncclGetVersion; SAMESUM_NCCL=/path/to/"
                                              "libnccl.so.2 would be right",
                                              asked));
        return {};
    }
    Library found{handle, file};
    link_map* map = nullptr;
    if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) found.path = map->l_name;
    return found;
}

const Library& library() {
    static const Library found = find();
    return found;
}

}  // namespace

void* real_function(const char* name) {
    if (library().handle == nullptr) return nullptr;
    void* const function = ::dlsym(library().handle, name);
    if (function == nullptr)
        complain(ncclInvalidUsage, fmt::format("{} has no {}; an NCCL of release {}.{} or later has", library().path,
                                               name, NCCL_MAJOR, NCCL_MINOR));
    return function;
}

ncclResult_t no_function() { return library().handle == nullptr ? ncclSystemError : ncclInvalidUsage; }

const std::string& real_path() { return library().path; }

}  // namespace samesum::dropin
