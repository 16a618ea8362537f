// One thread polls the children's pipes. Each child leads a process group, so that killing the group also kills its
// children; a child is killed when its parent dies.
// SPDX-License-Identifier: Apache-2.0
#include "model/support/subprocess.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include "model/support/error.hpp"
#include "model/support/progress.hpp"

namespace samesum {
namespace {

struct Child {
    std::size_t index;
    pid_t pid;
    int pipe;
    double started, limit;
    std::string received{};
};

void write_all(int file_descriptor, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(file_descriptor, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return;
        text.remove_prefix(static_cast<std::size_t>(written));
    }
}

/// Starts a child that runs `body` with the write end of a pipe and exits with its result.
Child start(std::size_t index, double limit, const std::function<int(int)>& body) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw Inconclusive(fmt::format("cannot open a pipe: {}", std::strerror(errno)));
    std::fflush(stdout);  // else the child inherits, and may print, the buffered output
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) {
        ::close(ends[0]);
        ::close(ends[1]);
        throw Inconclusive(fmt::format("cannot start a child process: {}", std::strerror(errno)));
    }
    if (pid == 0) {
        ::setpgid(0, 0);
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);  // the parent died before prctl()
        // The parent's signal handlers (e.g. a test runner's) must not run in the child.
        for (const int each : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGINT, SIGTERM}) ::signal(each, SIG_DFL);
        ::close(ends[0]);
        ::_exit(body(ends[1]));
    }
    ::setpgid(pid, pid);  // in both processes: either may run first
    ::close(ends[1]);
    return {index, pid, ends[0], monotonic_seconds(), limit};
}

/// Reads the available bytes; false at the end.
bool receive(Child& child) {
    char buffer[65536];
    const ssize_t got = ::read(child.pipe, buffer, sizeof buffer);
    if (got > 0) child.received.append(buffer, static_cast<std::size_t>(got));
    return got > 0 || (got < 0 && errno == EINTR);
}

/// Waits for the child and closes its pipe.
int reap(Child& child) {
    ::close(child.pipe);
    int status = 0;
    while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) continue;
    return status;
}

void kill_group(const Child& child) {
    ::kill(-child.pid, SIGKILL);
    ::kill(child.pid, SIGKILL);
}

double left_of(const Child& child) { return child.started + child.limit - monotonic_seconds(); }

/// Waits until a child has output, ends or times out; returns the children that are done, and whether they timed out.
struct Done {
    std::size_t child;
    bool timed_out;
};
std::vector<Done> wait_for(std::vector<Child>& children) {
    std::vector<pollfd> pipes;
    double timeout = 60;
    for (const Child& child : children) {
        pipes.push_back({child.pipe, POLLIN, 0});
        if (child.limit > 0) timeout = std::min(timeout, std::max(0.0, left_of(child)));
    }
    ::poll(pipes.data(), pipes.size(), static_cast<int>(std::ceil(timeout * 1000)));
    std::vector<Done> done;
    for (std::size_t i = 0; i < children.size(); ++i) {
        if (pipes[i].revents != 0 && !receive(children[i]))
            done.push_back({i, false});
        else if (children[i].limit > 0 && left_of(children[i]) <= 0)
            done.push_back({i, true});
    }
    return done;
}

constexpr char returned = 'r', thrown = 't';

ChildResult result_of(const Child& child, int status, bool timed_out) {
    ChildResult result{std::nullopt, {}, monotonic_seconds() - child.started};
    if (timed_out)
        result.why = fmt::format("no answer within {:g} s", child.limit);
    else if (WIFSIGNALED(status))
        result.why = fmt::format("ended by signal {}", WTERMSIG(status));
    else if (child.received.empty() || WEXITSTATUS(status) != 0)
        result.why = fmt::format("exited with code {} and no answer", WEXITSTATUS(status));
    else if (child.received.front() == thrown)
        result.why = child.received.substr(1);
    else
        result.output = child.received.substr(1);
    return result;
}

}  // namespace

std::vector<ChildResult> run_jobs(std::span<const Job> jobs, int parallel,
                                  const std::function<void(std::size_t, const ChildResult&)>& finished) {
    std::vector<ChildResult> results(jobs.size());
    std::vector<Child> children;
    std::size_t next = 0;
    while (next < jobs.size() || !children.empty()) {
        while (next < jobs.size() && children.size() < static_cast<std::size_t>(std::max(parallel, 1))) {
            const Job& job = jobs[next];
            children.push_back(start(next++, job.limit, [&](int pipe) {
                try {
                    write_all(pipe, returned + job.work());
                } catch (const std::exception& error) {
                    write_all(pipe, thrown + std::string(error.what()));
                }
                return 0;
            }));
        }
        const std::vector<Done> done = wait_for(children);
        for (auto which = done.rbegin(); which != done.rend(); ++which) {
            Child& child = children[which->child];
            if (which->timed_out) kill_group(child);  // else it closed its pipe: it is exiting
            const int status = reap(child);
            results[child.index] = result_of(child, status, which->timed_out);
            if (finished) finished(child.index, results[child.index]);
            children.erase(children.begin() + static_cast<std::ptrdiff_t>(which->child));
        }
    }
    return results;
}

ChildResult run_in_child(const std::function<std::string()>& work, double limit) {
    const Job job{{}, work, limit};
    return std::move(run_jobs(std::span(&job, 1), 1).front());
}

ProgramResult run_executable(const std::vector<std::string>& words, double limit) {
    ensure(!words.empty(), "a program has a path");
    if (::access(words.front().c_str(), X_OK) != 0)
        return {std::nullopt, {}, fmt::format("{}: {}", words.front(), std::strerror(errno))};
    std::vector<Child> children{start(0, limit, [&](int pipe) {
        const int nothing = ::open("/dev/null", O_RDWR);
        ::dup2(nothing, STDIN_FILENO);
        ::dup2(pipe, STDOUT_FILENO);
        ::dup2(nothing, STDERR_FILENO);
        std::vector<char*> arguments;
        for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
        arguments.push_back(nullptr);
        ::execv(arguments.front(), arguments.data());
        return 127;
    })};
    std::vector<Done> done;
    while (done.empty()) done = wait_for(children);
    Child& child = children.front();
    // A program that closed its output may still run; waits for its exit code, also within the limit.
    int status = 0;
    bool timed_out = done.front().timed_out;
    while (!timed_out && ::waitpid(child.pid, &status, WNOHANG) == 0) {
        ::usleep(2000);
        timed_out = limit > 0 && left_of(child) <= 0;
    }
    if (timed_out) {
        kill_group(child);
        status = reap(child);
        return {std::nullopt, child.received, fmt::format("no end within {:g} s", limit)};
    }
    ::close(child.pipe);
    if (WIFSIGNALED(status)) return {std::nullopt, child.received, fmt::format("ended by signal {}", WTERMSIG(status))};
    return {WEXITSTATUS(status), child.received, {}};
}

}  // namespace samesum
