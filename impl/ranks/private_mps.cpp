// The keeper is forked early, ignores Ctrl-C by leading its own session, and waits for its leash to fall.
// SPDX-License-Identifier: Apache-2.0
#include "impl/ranks/private_mps.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "model/support/error.hpp"

namespace samesum::gpu {
namespace {

constexpr const char* control = "nvidia-cuda-mps-control";

/// Feeds `input` to the control program; true when it ended well.
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

[[noreturn]] void supervise_daemon(int report, int lifetime_pipe, const std::string& folder) {
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
    std::stringstream folders(path == nullptr ? "" : path);
    for (std::string folder; std::getline(folders, folder, ':');)
        if (::access((folder + "/" + control).c_str(), X_OK) == 0) return true;
    return false;
}

PrivateMps::PrivateMps() {
    std::string pattern = (std::filesystem::temp_directory_path() / "samesum-mps-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
        throw Inconclusive(fmt::format("cannot make {}: {}", pattern, std::strerror(errno)));
    folder_ = pattern;
    for (const auto& [variable, name] :
         {std::pair{"CUDA_MPS_PIPE_DIRECTORY", "pipe"}, {"CUDA_MPS_LOG_DIRECTORY", "log"}}) {
        environment_[variable] = fmt::format("{}/{}", folder_, name);
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
        supervise_daemon(report[1], lifetime_pipe[0], folder_);
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
    throw Inconclusive("nvidia-cuda-mps-control -d did not start; run with --mps off to let the ranks take turns");
}

PrivateMps::~PrivateMps() {
    ::close(lifetime_pipe_);
    ::waitpid(supervisor_, nullptr, 0);
}

}  // namespace samesum::gpu
