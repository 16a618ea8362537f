// A process opens another's memory through /proc; device and inode confirm that it is the same memory.
// SPDX-License-Identifier: Apache-2.0
#include "impl/ranks/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>
#include <vector>

#include "model/support/error.hpp"
#include "model/support/host.hpp"
#include "model/support/numbers.hpp"
#include "model/support/text.hpp"

namespace samesum::gpu {
namespace {

[[noreturn]] void system_error(const char* call) {
    throw Inconclusive(fmt::format("{}: {}", call, std::strerror(errno)));
}

/// Empty when the file cannot be mapped.
std::span<std::byte> map_file(int file, std::size_t bytes) {
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (memory == MAP_FAILED) return {};
    return {static_cast<std::byte*>(memory), bytes};
}

}  // namespace

SharedMemory::SharedMemory(std::size_t bytes) : file_(::memfd_create("samesum-memory", MFD_CLOEXEC)) {
    if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(bytes)) != 0) system_error("memory shared by the ranks");
    bytes_ = map_file(file_, bytes);
    if (bytes_.empty()) system_error("mmap of the ranks' shared memory");
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : file_(std::exchange(other.file_, -1)), bytes_(std::exchange(other.bytes_, {})) {}

SharedMemory::~SharedMemory() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
    if (file_ >= 0) ::close(file_);
}

std::string SharedMemory::name() const {
    struct stat state {};
    if (::fstat(file_, &state) != 0) system_error("fstat of the ranks' shared memory");
    return fmt::format("{} {} {} {} {} {}", boot_id(), ::getpid(), file_, state.st_dev, state.st_ino, bytes_.size());
}

std::optional<SharedMemory> SharedMemory::of(const std::string& name) {
    const std::vector<std::string_view> words = split(name, ' ');
    if (words.size() != 6 || words[0] != boot_id()) return std::nullopt;
    const auto process = integer_in<pid_t>(words[1]);
    const auto file = integer_in<int>(words[2]);
    const auto device = integer_in<std::uint64_t>(words[3]), inode = integer_in<std::uint64_t>(words[4]);
    const auto bytes = integer_in<std::uint64_t>(words[5]);
    if (!process || !file || !device || !inode || !bytes) return std::nullopt;
    const int own = ::open(fmt::format("/proc/{}/fd/{}", *process, *file).c_str(), O_RDWR | O_CLOEXEC);
    if (own < 0) return std::nullopt;
    // In another container the same number may be another process.
    struct stat state {};
    if (::fstat(own, &state) == 0 && state.st_dev == *device && state.st_ino == *inode)
        if (const auto mapped = map_file(own, *bytes); !mapped.empty()) return SharedMemory(own, mapped);
    ::close(own);
    return std::nullopt;
}

}  // namespace samesum::gpu
