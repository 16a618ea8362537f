// A rank that dies closes its socket, so its death is seen at once.
// SPDX-License-Identifier: Apache-2.0
#include "impl/ranks/rank_process.hpp"

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
#include <exception>
#include <utility>

#include "model/support/error.hpp"
#include "model/support/progress.hpp"

namespace samesum::gpu {
namespace {

constexpr std::size_t current_call_bytes = 256;

[[noreturn]] void system_error(const char* call) {
    throw Inconclusive(fmt::format("{}: {}", call, std::strerror(errno)));
}

}  // namespace

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
    LocalRank::wait_for_end(monotonic_seconds() + 0.5);
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
        // The parent's signal handlers must not run in its ranks.
        for (const int each : {SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGSEGV, SIGTERM})
            ::signal(each, SIG_DFL);
        // Ctrl-C reaches the whole foreground group; the parent handles it.
        ::signal(SIGINT, SIG_IGN);
        for (const int socket : foreign) ::close(socket);
        here.close();
        serve(std::move(there));
    }
    socket_ = std::move(here);
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
    // No destructors: they would wait for peers that may be gone. The kernel frees what the process holds.
    ::_exit(0);
}

bool LocalRank::send(std::string_view command, Range) { return socket_.write(Message::Kind::command, command); }

Message LocalRank::receive() {
    if (auto message = socket_.read()) return std::move(*message);
    socket_.close();
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

void LocalRank::wait_for_end(double until) {
    if (pid_ <= 0) return;
    // An idle rank ends by itself when its socket closes; a stuck rank is killed.
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
