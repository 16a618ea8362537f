// The supervisor leads its own session, so Ctrl-C does not reach it, and waits until its lifetime pipe is closed.
// SPDX-License-Identifier: Apache-2.0
#include "impl/ranks/private_mps.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "model/support/error.hpp"
#include "model/support/text.hpp"

namespace samesum::gpu {
namespace {

constexpr const char* control = "nvidia-cuda-mps-control";

/// Runs the control program with this standard input; true when it exits with 0. Its output is not read: the daemon
/// that -d starts would keep that pipe open.
bool run_control(const char* argument, const char* input) {
    std::array<int, 2> feed{};
    if (::pipe2(feed.data(), O_CLOEXEC) != 0) return false;
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::dup2(feed[0], STDIN_FILENO);
        ::execlp(control, control, argument, static_cast<char*>(nullptr));
        ::_exit(127);
    }
    ::close(feed[0]);
    const ssize_t written = ::write(feed[1], input, std::strlen(input));
    ::close(feed[1]);
    int status = -1;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return written >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

[[noreturn]] void supervise_daemon(int report, int lifetime_pipe, const std::filesystem::path& folder) {
    ::setsid();
    ::signal(SIGPIPE, SIG_IGN);
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, standard);
    const char started = run_control("-d", "") ? 'y' : 'n';
    if (::write(report, &started, 1) != 1) ::_exit(1);
    char ignored = 0;
    while (::read(lifetime_pipe, &ignored, 1) < 0 && errno == EINTR) {
    }
    if (started == 'y') run_control(nullptr, "quit -t 2\n");
    std::error_code error;
    std::filesystem::remove_all(folder, error);
    ::_exit(0);
}

}  // namespace

bool PrivateMps::available() {
    if (std::getenv("CUDA_MPS_PIPE_DIRECTORY") != nullptr) return false;
    const char* path = std::getenv("PATH");
    if (path == nullptr) return false;
    const std::vector<std::string_view> folders = split(path, ':');
    return std::any_of(folders.begin(), folders.end(), [](std::string_view folder) {
        return ::access(fmt::format("{}/{}", folder, control).c_str(), X_OK) == 0;
    });
}

PrivateMps::PrivateMps() {
    for (const auto& [variable, name] :
         {std::pair{"CUDA_MPS_PIPE_DIRECTORY", "pipe"}, {"CUDA_MPS_LOG_DIRECTORY", "log"}}) {
        environment_[variable] = folder_.file(name);
        std::filesystem::create_directory(environment_[variable]);
    }
    std::array<int, 2> report{}, lifetime_pipe{};
    if (::pipe2(report.data(), O_CLOEXEC) != 0 || ::pipe2(lifetime_pipe.data(), O_CLOEXEC) != 0)
        throw Inconclusive(fmt::format("pipe: {}", std::strerror(errno)));
    std::fflush(nullptr);
    supervisor_ = ::fork();
    if (supervisor_ == 0) {
        ::close(report[0]);
        ::close(lifetime_pipe[1]);
        for (const auto& [variable, value] : environment_) ::setenv(variable.c_str(), value.c_str(), 1);
        supervise_daemon(report[1], lifetime_pipe[0], folder_.path());
    }
    ::close(report[1]);
    ::close(lifetime_pipe[0]);
    lifetime_pipe_ = lifetime_pipe[1];
    char started = 'n';
    const bool heard = supervisor_ > 0 && ::read(report[0], &started, 1) == 1;
    ::close(report[0]);
    if (heard && started == 'y') return;
    ::close(lifetime_pipe_);
    if (supervisor_ > 0) ::waitpid(supervisor_, nullptr, 0);
    throw Inconclusive("nvidia-cuda-mps-control -d did not start; with --mps off the ranks take turns on the GPU");
}

PrivateMps::~PrivateMps() {
    ::close(lifetime_pipe_);
    ::waitpid(supervisor_, nullptr, 0);
}

}  // namespace samesum::gpu
