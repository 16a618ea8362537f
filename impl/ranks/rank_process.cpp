// A rank that dies closes its socket, so its death is seen at once.
// SPDX-License-Identifier: Apache-2.0
#include "impl/ranks/rank_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "model/support/error.hpp"
#include "model/support/progress.hpp"

namespace samesum::gpu {
namespace {

constexpr std::size_t current_call_bytes = 256;

[[noreturn]] void system_error(const char* call) {
    throw Inconclusive(fmt::format("{}: {}", call, std::strerror(errno)));
}

/// No memory at all when it cannot be mapped.
std::span<std::byte> map_file(int file, std::size_t bytes) {
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (memory == MAP_FAILED) return {};
    return {static_cast<std::byte*>(memory), bytes};
}

std::string boot_id() {
    std::string id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
    return id.empty() ? "-" : id;
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
    std::istringstream words(name);
    std::string boot, process, file;
    std::uint64_t device = 0, inode = 0, bytes = 0;
    words >> boot >> process >> file >> device >> inode >> bytes;
    if (!words || boot != boot_id()) return std::nullopt;
    const int own = ::open(fmt::format("/proc/{}/fd/{}", process, file).c_str(), O_RDWR | O_CLOEXEC);
    if (own < 0) return std::nullopt;
    // In another container the same number may be another process.
    struct stat state {};
    if (::fstat(own, &state) == 0 && state.st_dev == device && state.st_ino == inode)
        if (const auto mapped = map_file(own, bytes); !mapped.empty()) return SharedMemory(own, mapped);
    ::close(own);
    return std::nullopt;
}

RankContext::RankContext(int rank, int ranks, std::span<std::byte> memory, std::span<char> current_call, int log,
                         std::vector<Range>& results)
    : rank_(rank), ranks_(ranks), memory_(memory), current_call_(current_call), log_(log), results_(&results) {}

std::span<const std::byte> RankContext::input(std::uint64_t offset, std::uint64_t bytes) const {
    ensure(bytes <= memory_.size() && offset <= memory_.size() - bytes, "the shared memory holds the data");
    return memory_.subspan(offset, bytes);
}

std::span<std::byte> RankContext::result(std::uint64_t offset, std::uint64_t bytes) const {
    (void)input(offset, bytes);
    if (bytes > 0) results_->push_back({offset, bytes});
    return memory_.subspan(offset, bytes);
}

std::string RankContext::log_file() const { return fmt::format("/proc/self/fd/{}", log_); }

void RankContext::at(std::string_view call) const {
    const std::size_t length = std::min(call.size(), current_call_.size() - 1);
    std::memcpy(current_call_.data(), call.data(), length);
    current_call_[length] = '\0';
}

LocalRank::LocalRank(RankRole role, std::span<std::byte> memory, WorkerFactory factory)
    : role_(std::move(role)),
      memory_(memory),
      factory_(std::move(factory)),
      current_call_(current_call_bytes),
      log_(::memfd_create("samesum-log", MFD_CLOEXEC)) {
    if (log_ < 0) system_error("memfd_create for a rank's log");
}

LocalRank::~LocalRank() {
    request_stop();
    end(monotonic_seconds() + 0.5);
    ::close(log_);
}

void LocalRank::start(std::span<const int> foreign) {
    std::fill(current_call_.bytes().begin(), current_call_.bytes().end(), std::byte{0});
    std::fflush(nullptr);
    const pid_t parent = ::getpid();
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) system_error("socketpair");
    MessageSocket here(ends[0]), there(ends[1]);
    pid_ = ::fork();
    if (pid_ < 0) system_error("fork of a rank");
    if (pid_ == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        // What the parent does about signals is not for its ranks.
        for (const int each : {SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGSEGV, SIGTERM})
            ::signal(each, SIG_DFL);
        // Ctrl-C reaches the whole foreground group; it is the parent's to answer.
        ::signal(SIGINT, SIG_IGN);
        for (const int socket : foreign) ::close(socket);
        here.close();
        serve(std::move(there));
    }
    link_ = std::move(here);
}

void LocalRank::serve(MessageSocket parent) {
    std::vector<Range> results;
    const RankContext context(role_.rank, role_.ranks, memory_,
                              {reinterpret_cast<char*>(current_call_.bytes().data()), current_call_.bytes().size()},
                              log_, results);
    std::unique_ptr<Worker> worker;
    while (const auto command = parent.read()) {
        bool sent = false;
        results.clear();
        try {
            if (!worker) {
                for (const auto& [name, value] : role_.environment) ::setenv(name.c_str(), value.c_str(), 1);
                worker = factory_(context);
            }
            const std::string answer = worker->answer(command->text);
            sent = parent.write(Message::Kind::answer, answer, results);
        } catch (const UsageError& error) {
            sent = parent.write(Message::Kind::usage_error, error.what());
        } catch (const std::exception& error) {
            sent = parent.write(Message::Kind::error, error.what());
        }
        if (!sent) break;
    }
    // No destructors: they would talk to peers that may be gone. The kernel frees what the process holds.
    ::_exit(0);
}

bool LocalRank::put(std::string_view command, Range) { return link_.write(Message::Kind::command, command); }

Message LocalRank::take() {
    if (auto message = link_.read()) return std::move(*message);
    link_.close();
    return {Message::Kind::died, how_it_died(), {}};
}

std::string LocalRank::how_it_died() {
    // Its socket closes a moment before the process can be waited for.
    for (int i = 0; i < 200 && pid_ > 0; ++i) {
        int status = 0;
        const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
        if (ended == 0) {
            ::usleep(5000);
            continue;
        }
        if (std::exchange(pid_, -1) != ended) break;
        if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
        return fmt::format("exited with {}", WEXITSTATUS(status));
    }
    return "its socket closed";
}

void LocalRank::end(double until) {
    if (pid_ <= 0) return;
    // An idle rank ends by itself when its socket closes; one that is stuck does not.
    while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
        if (monotonic_seconds() > until) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
            break;
        }
        ::usleep(1000);
    }
    pid_ = -1;
}

std::string LocalRank::current_call() const { return reinterpret_cast<const char*>(current_call_.bytes().data()); }

std::string LocalRank::log(std::size_t from) const {
    std::string text;
    std::array<char, 65536> piece{};
    for (;;) {
        const ssize_t got = ::pread(log_, piece.data(), piece.size(), static_cast<off_t>(from + text.size()));
        if (got <= 0) return text;
        text.append(piece.data(), static_cast<std::size_t>(got));
    }
}

std::size_t LocalRank::log_size() const {
    struct stat state {};
    if (::fstat(log_, &state) != 0) system_error("fstat of a rank's log");
    return static_cast<std::size_t>(state.st_size);
}

}  // namespace samesum::gpu
