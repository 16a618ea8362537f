// Runs calls of the drop-in NCCL in front of a fake NCCL, each case in its own process, and returns what the fake
// received.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "impl/dropin/samesum_nccl.h"
#include "model/support/files.hpp"
#include "model/support/temporary_folder.hpp"

namespace samesum::testing {

using Environment = std::map<std::string, std::string>;
using Lines = std::vector<std::string>;

inline const std::string dropin_file = SAMESUM_DROPIN, fake_file = SAMESUM_FAKE_NCCL;
inline const Environment fixed_root{{"SAMESUM_POLICY", "fixed_root"}};

inline Lines lines_of(const std::string& text) {
    Lines lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

/// Empty where a child did not come to write the file.
inline std::string text_of(const std::string& file) {
    return std::filesystem::exists(file) ? read_file(file) : std::string();
}

/// The library under test, loaded as a program loads it by name.
class DropIn {
public:
    DropIn() : library_(::dlopen(dropin_file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        if (library_ == nullptr) throw std::runtime_error(::dlerror());
    }
    template <class Function>
    [[nodiscard]] Function* get(const char* name) const {
        auto* function = reinterpret_cast<Function*>(::dlsym(library_, name));
        if (function == nullptr) throw std::runtime_error(std::string("no ") + name);
        return function;
    }

    [[nodiscard]] bool has(const std::string& name) const { return ::dlsym(library_, name.c_str()) != nullptr; }

    [[nodiscard]] ncclUniqueId unique_id() const {
        ncclUniqueId id{};
        if (get<decltype(ncclGetUniqueId)>("ncclGetUniqueId")(&id) != ncclSuccess) id = {};
        return id;
    }
    [[nodiscard]] ncclResult_t init_with(ncclUniqueId id) {
        return get<decltype(ncclCommInitRank)>("ncclCommInitRank")(&comm, 4, id, 1);
    }
    [[nodiscard]] ncclResult_t init() { return init_with(unique_id()); }
    [[nodiscard]] ncclResult_t all_reduce(std::size_t count = 100, ncclDataType_t type = ncclBfloat16,
                                          ncclRedOp_t op = ncclSum) const {
        return get<decltype(ncclAllReduce)>("ncclAllReduce")(in, out, count, type, op, comm, nullptr);
    }
    [[nodiscard]] ncclResult_t reduce_scatter(std::size_t count = 100, ncclDataType_t type = ncclBfloat16,
                                              ncclRedOp_t op = ncclSum) const {
        return get<decltype(ncclReduceScatter)>("ncclReduceScatter")(in, out, count, type, op, comm, nullptr);
    }
    /// `place` numbers the part of the input buffer that is sent.
    [[nodiscard]] ncclResult_t reduce(int root, std::size_t count = 10, std::size_t place = 0) const {
        return get<decltype(ncclReduce)>("ncclReduce")(in + place * count * 2, out, count, ncclBfloat16, ncclSum, root,
                                                       comm, nullptr);
    }
    [[nodiscard]] ncclResult_t all_gather() const {
        return get<decltype(ncclAllGather)>("ncclAllGather")(in, out, 100, ncclBfloat16, comm, nullptr);
    }
    [[nodiscard]] ncclResult_t start() const { return get<decltype(ncclGroupStart)>("ncclGroupStart")(); }
    [[nodiscard]] ncclResult_t end() const { return get<decltype(ncclGroupEnd)>("ncclGroupEnd")(); }
    [[nodiscard]] std::string last_error() const { return get<decltype(ncclGetLastError)>("ncclGetLastError")(comm); }
    [[nodiscard]] std::string combine(const char* scheme, const char* accumulation, std::vector<std::uint64_t> sizes,
                                      ncclDataType_t type = ncclBfloat16, int root = 0) const {
        const ncclResult_t result = get<decltype(samesumCombine)>("samesumCombine")(
            comm, scheme, accumulation, sizes.empty() ? nullptr : sizes.data(), static_cast<int>(sizes.size()), 8, type,
            root, in, out, nullptr);
        return fmt::format("{} {}", static_cast<int>(result), get<decltype(samesumLastError)>("samesumLastError")());
    }

    /// Addresses that are never read.
    char *in = reinterpret_cast<char*>(0x10000), *out = reinterpret_cast<char*>(0x20000);
    ncclComm_t comm = nullptr;

private:
    void* library_;
};

/// A function of the fake's own.
template <class Function>
[[nodiscard]] Function* of_fake(const char* name) {
    void* const fake = ::dlopen(fake_file.c_str(), RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<Function*>(::dlsym(fake, name));
}
/// Lines of the fake's record, as it writes them: a name and eight words.
inline Lines fake_record() { return lines_of(of_fake<const char*()>("fake_calls")()); }
inline void wait_for_call(const char* name) { of_fake<void(const char*)>("fake_wait_for")(name); }
inline void release_blocked_calls() { of_fake<void()>("fake_release")(); }

/// The calls that the fake received since the last time: "Reduce 400 to 0", "Recv 200 from 0". Queries are left out.
inline Lines fake_calls() {
    Lines found;
    for (const std::string& line : fake_record()) {
        std::istringstream stream(line);
        std::string name;
        std::array<long, 8> words{};
        stream >> name;
        for (long& word : words) stream >> word;
        name = name.substr(4);
        if (name == "Reduce")
            name += fmt::format(" {} to {}", words[2], words[5]);
        else if (name == "Broadcast")
            name += fmt::format(" {} from {}", words[2], words[4]);
        else if (name == "Send" || name == "Recv")
            name += fmt::format(" {} {} {}", words[1], name == "Send" ? "to" : "from", words[3]);
        else if (name == "AllReduce" || name == "ReduceScatter" || name == "AllGather")
            name += fmt::format(" {}", words[2]);
        else if (!name.starts_with("Group") && name != "CommAbort" && name != "CommRevoke")
            continue;
        found.push_back(name);
    }
    return found;
}

struct DropInOutcome {
    int exit = -1;
    Lines results;  ///< returned by the body
    Lines err;

    [[nodiscard]] bool complains(std::string_view text) const {
        return std::any_of(err.begin(), err.end(),
                           [&](const std::string& line) { return line.find(text) != std::string::npos; });
    }
};

/// Runs the body in a child process with this environment.
inline DropInOutcome in_child(const Environment& environment, const std::function<Lines(DropIn&)>& body,
                              bool leave_by_exit = false) {
    const TemporaryFolder folder;
    std::fflush(nullptr);
    const pid_t child = ::fork();
    BOOST_REQUIRE(child >= 0);
    if (child == 0) {
        ::alarm(60);
        for (const char* name :
             {"SAMESUM_POLICY", "SAMESUM_CALLS", "SAMESUM_ACCUMULATION", "SAMESUM_NCCL", "SAMESUM_TIMEOUT_S"})
            ::unsetenv(name);
        Environment all{{"SAMESUM_NCCL", fake_file}, {"FAKE_RANKS", "4"}, {"FAKE_RANK", "1"}};
        for (const auto& [name, value] : environment) all[name] = value;
        for (const auto& [name, value] : all) ::setenv(name.c_str(), value.c_str(), 1);
        if (std::freopen(folder.file("err").c_str(), "w", stderr) == nullptr) ::_exit(8);
        int code = 0;
        try {
            DropIn dropin;
            std::ofstream(folder.path() / "results") << fmt::format("{}", fmt::join(body(dropin), "\n"));
        } catch (const std::exception& error) {
            std::fprintf(stderr, "test: %s\n", error.what());
            code = 9;
        }
        std::fflush(stderr);
        if (leave_by_exit) std::exit(code);
        ::_exit(code);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    DropInOutcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -1, lines_of(text_of(folder.file("results"))),
                          lines_of(text_of(folder.file("err")))};
    BOOST_TEST(outcome.exit == 0, fmt::format("{}", fmt::join(outcome.err, "\n")));
    return outcome;
}

inline std::string number(ncclResult_t result) { return std::to_string(static_cast<int>(result)); }

}  // namespace samesum::testing
