// The wire: a length and a kind before each message. A rank that dies closes its socket, so its death is seen at once;
// a rank that hangs is seen by the deadline.
// SPDX-License-Identifier: Apache-2.0
#include "impl/rank_group.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
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
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "model/cli.hpp"

namespace samesum::gpu {
namespace {

constexpr std::size_t whereabouts_bytes = 256;

struct Header {
    std::uint64_t bytes;
    char kind;  ///< 'c'ommand, 'a'nswer, 'e'rror, 'u'sage error
};

[[noreturn]] void system_error(const char* call) {
    throw Inconclusive(fmt::format("{}: {}", call, std::strerror(errno)));
}

void* map_shared(std::size_t bytes) {
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) system_error("mmap of the ranks' shared memory");
    return memory;
}

bool write_all(int socket, const void* data, std::size_t bytes) {
    const char* next = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t written = ::send(socket, next, bytes, MSG_NOSIGNAL);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        next += written;
        bytes -= static_cast<std::size_t>(written);
    }
    return true;
}

bool read_all(int socket, void* data, std::size_t bytes) {
    char* next = static_cast<char*>(data);
    while (bytes > 0) {
        const ssize_t got = ::recv(socket, next, bytes, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        next += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}

bool write_message(int socket, char kind, std::string_view text) {
    Header header{};
    header.bytes = text.size();
    header.kind = kind;
    return write_all(socket, &header, sizeof header) && write_all(socket, text.data(), text.size());
}

std::string how_it_died(pid_t pid) {
    int status = 0;
    // Its socket closes a moment before the process can be waited for.
    for (int i = 0; i < 200; ++i) {
        const pid_t ended = ::waitpid(pid, &status, WNOHANG);
        if (ended == pid) {
            if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
            return fmt::format("exited with {}", WEXITSTATUS(status));
        }
        if (ended < 0) break;
        ::usleep(5000);
    }
    return "its socket closed";
}

}  // namespace

RankFailure::RankFailure(Kind k, int r, std::string c, std::string w)
    : Inconclusive(fmt::format("rank {} {} in {}: {}", r,
                               k == Kind::died   ? "died"
                               : k == Kind::hung ? "hung"
                                                 : "failed",
                               c.empty() ? "start" : c, w)),
      kind(k),
      rank(r),
      call(std::move(c)),
      why(std::move(w)) {}

RankContext::RankContext(int rank, int ranks, std::span<std::byte> memory, std::span<char> whereabouts, int log)
    : rank_(rank), ranks_(ranks), memory_(memory), whereabouts_(whereabouts), log_(log) {}

std::string RankContext::log_file() const { return fmt::format("/proc/self/fd/{}", log_); }

void RankContext::at(std::string_view call) const {
    const std::size_t length = std::min(call.size(), whereabouts_.size() - 1);
    std::memcpy(whereabouts_.data(), call.data(), length);
    whereabouts_[length] = '\0';
}

RankGroup::RankGroup(RankGroupOptions options, WorkerFactory factory)
    : options_(std::move(options)), factory_(std::move(factory)) {
    if (options_.ranks < 1) throw UsageError(fmt::format("{} ranks; at least 1 would be right", options_.ranks));
    const auto ranks = static_cast<std::size_t>(options_.ranks);
    memory_ = {static_cast<std::byte*>(map_shared(options_.memory_bytes)), options_.memory_bytes};
    whereabouts_ = {static_cast<char*>(map_shared(ranks * whereabouts_bytes)), ranks * whereabouts_bytes};
}

RankGroup::~RankGroup() {
    stop();
    ::munmap(memory_.data(), memory_.size());
    ::munmap(whereabouts_.data(), whereabouts_.size());
    for (const int log : logs_) ::close(log);
}

std::vector<pid_t> RankGroup::processes() const {
    std::vector<pid_t> pids;
    for (const Process& process : processes_) pids.push_back(process.pid);
    return pids;
}

std::string RankGroup::whereabouts(int rank) const {
    return whereabouts_.data() + static_cast<std::size_t>(rank) * whereabouts_bytes;
}

std::string RankGroup::log(int rank, std::size_t from) const {
    if (logs_.empty()) return {};
    std::string text;
    std::array<char, 65536> piece{};
    for (;;) {
        const ssize_t got = ::pread(logs_.at(static_cast<std::size_t>(rank)), piece.data(), piece.size(),
                                    static_cast<off_t>(from + text.size()));
        if (got <= 0) return text;
        text.append(piece.data(), static_cast<std::size_t>(got));
    }
}

std::size_t RankGroup::log_size(int rank) const {
    if (logs_.empty()) return 0;
    struct stat state {};
    if (::fstat(logs_.at(static_cast<std::size_t>(rank)), &state) != 0) system_error("fstat of a rank's log");
    return static_cast<std::size_t>(state.st_size);
}

void RankGroup::start() {
    ++starts_;
    std::fill(whereabouts_.begin(), whereabouts_.end(), '\0');
    for (int rank = static_cast<int>(logs_.size()); rank < options_.ranks; ++rank) {
        logs_.push_back(::memfd_create("samesum-log", MFD_CLOEXEC));
        if (logs_.back() < 0) system_error("memfd_create for a rank's log");
    }
    std::fflush(nullptr);
    const pid_t parent = ::getpid();
    processes_.resize(static_cast<std::size_t>(options_.ranks));
    for (int rank = 0; rank < options_.ranks; ++rank) {
        std::array<int, 2> ends{};
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) system_error("socketpair");
        const pid_t pid = ::fork();
        if (pid < 0) system_error("fork of a rank");
        if (pid == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (::getppid() != parent) ::_exit(1);
            // What the parent does about signals is not for its ranks.
            for (const int each : {SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGSEGV, SIGTERM})
                ::signal(each, SIG_DFL);
            // Ctrl-C reaches the whole foreground group; it is the parent's to answer.
            ::signal(SIGINT, SIG_IGN);
            for (const Process& other : processes_)
                if (other.socket >= 0) ::close(other.socket);
            ::close(ends[0]);
            serve(rank, ends[1]);
        }
        ::close(ends[1]);
        processes_[static_cast<std::size_t>(rank)] = {pid, ends[0]};
    }
}

void RankGroup::serve(int rank, int socket) {
    const auto own = whereabouts_.subspan(static_cast<std::size_t>(rank) * whereabouts_bytes, whereabouts_bytes);
    const RankContext context(rank, options_.ranks, memory_, own, logs_[static_cast<std::size_t>(rank)]);
    std::unique_ptr<Worker> worker;
    std::string command;
    Header header{};
    while (read_all(socket, &header, sizeof header)) {
        command.resize(header.bytes);
        if (!read_all(socket, command.data(), command.size())) break;
        bool sent = false;
        try {
            if (!worker) {
                if (!options_.environment.empty()) {
                    const std::size_t which = options_.environment.size() == 1 ? 0 : static_cast<std::size_t>(rank);
                    for (const auto& [name, value] : options_.environment.at(which))
                        ::setenv(name.c_str(), value.c_str(), 1);
                }
                worker = factory_(context);
            }
            sent = write_message(socket, 'a', worker->answer(command));
        } catch (const UsageError& error) {
            sent = write_message(socket, 'u', error.what());
        } catch (const std::exception& error) {
            sent = write_message(socket, 'e', error.what());
        }
        if (!sent) break;
    }
    // No destructors: they would talk to peers that may be gone. The kernel frees what the process holds.
    ::_exit(0);
}

void RankGroup::fail(RankFailure::Kind kind, int rank, const std::string& why) {
    RankFailure failure(kind, rank, whereabouts(rank), why);
    stop();
    throw failure;
}

std::vector<std::string> RankGroup::ask(std::string_view command, double seconds) {
    const std::vector<std::string> same(static_cast<std::size_t>(options_.ranks), std::string(command));
    return ask(same, seconds);
}

std::vector<std::string> RankGroup::ask(std::span<const std::string> commands, double seconds) {
    ensure(static_cast<int>(commands.size()) == options_.ranks, "a command for every rank");
    double deadline = monotonic_seconds() + seconds;
    if (processes_.empty()) {
        start();
        deadline += options_.start_seconds;
    }
    for (int rank = 0; rank < options_.ranks; ++rank)
        if (!write_message(processes_[static_cast<std::size_t>(rank)].socket, 'c',
                           commands[static_cast<std::size_t>(rank)]))
            fail(RankFailure::Kind::died, rank, how_it_died(processes_[static_cast<std::size_t>(rank)].pid));

    std::vector<std::string> answers(commands.size());
    std::vector<pollfd> waiting(commands.size());
    for (std::size_t i = 0; i < commands.size(); ++i) waiting[i] = {processes_[i].socket, POLLIN, 0};
    for (std::size_t left = commands.size(); left > 0;) {
        const double rest = deadline - monotonic_seconds();
        const int ready = rest <= 0 ? 0
                                    : ::poll(waiting.data(), static_cast<nfds_t>(waiting.size()),
                                             static_cast<int>(std::min(rest * 1000 + 1, 1e9)));
        if (ready < 0 && errno == EINTR) continue;
        if (ready < 0) system_error("poll on the ranks");
        if (ready == 0) {
            const auto silent =
                std::find_if(waiting.begin(), waiting.end(), [](const pollfd& each) { return each.fd >= 0; });
            fail(RankFailure::Kind::hung, static_cast<int>(silent - waiting.begin()),
                 fmt::format("no answer in {:.3g} s; {} of {} ranks are silent", seconds, left, commands.size()));
        }
        for (std::size_t i = 0; i < waiting.size(); ++i) {
            if (waiting[i].fd < 0 || waiting[i].revents == 0) continue;
            Header header{};
            const bool whole = read_all(waiting[i].fd, &header, sizeof header);
            if (whole) answers[i].resize(header.bytes);
            if (!whole || !read_all(waiting[i].fd, answers[i].data(), header.bytes))
                fail(RankFailure::Kind::died, static_cast<int>(i), how_it_died(processes_[i].pid));
            if (header.kind == 'u') {
                stop();
                throw UsageError(answers[i]);
            }
            if (header.kind == 'e') fail(RankFailure::Kind::failed, static_cast<int>(i), answers[i]);
            waiting[i].fd = -1;
            --left;
        }
    }
    return answers;
}

void RankGroup::stop() {
    for (Process& process : processes_) ::close(process.socket);
    // An idle rank ends by itself when its socket closes; one that is stuck does not.
    const double patience = monotonic_seconds() + 0.5;
    for (Process& process : processes_) {
        while (::waitpid(process.pid, nullptr, WNOHANG) == 0) {
            if (monotonic_seconds() > patience) {
                ::kill(process.pid, SIGKILL);
                ::waitpid(process.pid, nullptr, 0);
                break;
            }
            ::usleep(1000);
        }
    }
    processes_.clear();
}

}  // namespace samesum::gpu
