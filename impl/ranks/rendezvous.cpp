// A member sends version, job and rank; rank 0 accepts; the member confirms. Only then does it count as joined.
// SPDX-License-Identifier: Apache-2.0
#include "impl/ranks/rendezvous.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "impl/ranks/shared_memory.hpp"
#include "model/support/error.hpp"
#include "model/support/hash.hpp"
#include "model/support/host.hpp"
#include "model/support/program.hpp"
#include "model/support/progress.hpp"

namespace samesum::gpu {
namespace {

/// Ports that are tried when none is given.
constexpr int ports_tried = 8;
/// Another server that listens on one of them may never answer.
constexpr int handshake_seconds = 3;

/// A member's first message. Magic and version keep their places in all versions.
struct Hello {
    std::array<char, 16> magic;
    std::array<char, 48> version;
    std::uint64_t job;
    std::int32_t rank, ranks, local_rank, unused;
    std::array<char, 256> host;
};
constexpr std::string_view magic = "samesum-rank";
/// A member's second message: it has read rank 0's reply.
constexpr char confirmed = 'y';

template <std::size_t size>
void put_text(std::array<char, size>& to, std::string_view text) {
    to.fill('\0');
    std::copy_n(text.begin(), std::min(text.size(), size - 1), to.begin());
}
template <std::size_t size>
std::string text_of(const std::array<char, size>& from) {
    return {from.begin(), std::find(from.begin(), from.end(), '\0')};
}

std::uint64_t job_hash(const Launch& launch) {
    return fnv1a(fmt::format("{}|{}|{}", launch.launcher, launch.job, launch.port));
}

std::string address_of(const Launch& launch) {
    return fmt::format("{}:{}", fmt::join(launch.hosts, " or "), launch.port);
}

int last_port(const Launch& launch) { return launch.port + (launch.port_is_given ? 0 : ports_tried - 1); }

void set_option(int socket, int level, int option, int value) {
    (void)::setsockopt(socket, level, option, &value, sizeof value);
}

/// Detects within half a minute that the other host has gone silent.
void enable_keepalive(int socket) {
    set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 5);
    set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 20'000);
}

void set_timeout(int socket, int seconds) {
    const timeval timeout{seconds, 0};
    (void)::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    (void)::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
}

// --- Rank 0 ---

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

/// A listening socket, on the loopback interface only where all ranks are on this host.
MessageSocket listen_for(const Launch& launch) {
    const bool here = launch.one_host || is_loopback(launch.hosts.front());
    const bool v6 = launch.hosts.front() == "::1";
    int error = 0;
    for (int port = launch.port; port <= last_port(launch); ++port) {
        for (const int family : {AF_INET6, AF_INET}) {
            if (here && (family == AF_INET6) != v6) continue;
            MessageSocket listener(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
            if (!listener) continue;
            set_option(listener.descriptor(), SOL_SOCKET, SO_REUSEADDR, 1);
            sockaddr_in6 six{};
            six.sin6_family = AF_INET6;
            six.sin6_port = htons(static_cast<std::uint16_t>(port));
            six.sin6_addr = here ? in6addr_loopback : in6addr_any;
            sockaddr_in four{};
            four.sin_family = AF_INET;
            four.sin_port = six.sin6_port;
            four.sin_addr.s_addr = htonl(here ? INADDR_LOOPBACK : INADDR_ANY);
            // Where there is IPv6, one socket serves both.
            if (family == AF_INET6) set_option(listener.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
            const auto* const address =
                family == AF_INET6 ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
            const auto length = static_cast<socklen_t>(family == AF_INET6 ? sizeof six : sizeof four);
            if (::bind(listener.descriptor(), address, length) == 0 && ::listen(listener.descriptor(), SOMAXCONN) == 0)
                return listener;
            error = errno;
        }
    }
    throw Inconclusive(
        fmt::format("rank 0 cannot listen on port {}: {}; to use another port, set SAMESUM_RENDEZVOUS=HOST:PORT on "
                    "all ranks",
                    launch.port, std::strerror(error)));
}

/// A process that has connected and may turn out to be a member.
struct Caller {
    MessageSocket socket;
    Hello hello{};
    std::size_t received = 0;  ///< bytes of hello
    bool accepted = false;
    double deadline = 0;

    [[nodiscard]] bool has_hello() const { return received == sizeof(Hello); }
};

/// Reads more of the hello, or the word after it; false when the caller has hung up.
bool read_more(Caller& caller, char& word) {
    for (;;) {
        const bool in_hello = !caller.has_hello();
        void* const to = in_hello ? static_cast<void*>(reinterpret_cast<char*>(&caller.hello) + caller.received)
                                  : static_cast<void*>(&word);
        const ssize_t bytes =
            ::recv(caller.socket.descriptor(), to, in_hello ? sizeof(Hello) - caller.received : 1, MSG_DONTWAIT);
        if (bytes > 0) {
            if (!in_hello) return true;
            caller.received += static_cast<std::size_t>(bytes);
            if (caller.has_hello()) return true;
        } else if (bytes < 0 && errno == EINTR) {
            continue;
        } else {
            return bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        }
    }
}

/// Rank 0 while it waits for the others.
class Gathering {
public:
    Gathering(const Launch& launch, std::vector<JobMember>& members)
        : launch_(launch), members_(members), listener_(listen_for(launch)), job_(job_hash(launch)) {}

    void run() {
        const double deadline = monotonic_seconds() + launch_.timeout_s;
        for (auto absent = missing(); !absent.empty(); absent = missing()) {
            const double left = deadline - monotonic_seconds();
            if (left <= 0)
                throw Inconclusive(fmt::format("of {} ranks that {} started, {} did not come to {} within {:g} s",
                                               launch_.ranks, launch_.launcher, fmt::join(absent, ", "),
                                               address_of(launch_), launch_.timeout_s));
            wait_for_traffic(left);
            for (Caller& caller : callers_)
                if (!stays(caller)) caller.socket.close();
            callers_.erase(
                std::remove_if(callers_.begin(), callers_.end(), [](const Caller& each) { return !each.socket; }),
                callers_.end());
            accept_callers();
        }
    }

private:
    [[nodiscard]] std::vector<int> missing() const {
        std::vector<int> ranks;
        for (int rank = 1; rank < launch_.ranks; ++rank)
            if (!members_[static_cast<std::size_t>(rank)].socket) ranks.push_back(rank);
        return ranks;
    }

    void wait_for_traffic(double seconds) const {
        std::vector<pollfd> sockets{{listener_.descriptor(), POLLIN, 0}};
        for (const Caller& caller : callers_) sockets.push_back({caller.socket.descriptor(), POLLIN, 0});
        (void)::poll(sockets.data(), static_cast<nfds_t>(sockets.size()),
                     static_cast<int>(std::min(seconds, 0.5) * 1000 + 1));
    }

    /// Hears a caller out; false when its connection is to be closed or has become a member's.
    [[nodiscard]] bool stays(Caller& caller) {
        char word = 0;
        const bool had_hello = caller.has_hello();
        if (!read_more(caller, word) || (word != confirmed && monotonic_seconds() >= caller.deadline)) return false;
        if (!had_hello && caller.has_hello()) return caller.accepted = accepts(caller);
        if (word != confirmed || !caller.accepted) return true;
        JobMember& member = members_[static_cast<std::size_t>(caller.hello.rank)];
        if (!member.socket) {
            enable_keepalive(caller.socket.descriptor());
            member.host = text_of(caller.hello.host);
            member.local_rank = caller.hello.local_rank;
            member.socket = std::move(caller.socket);
        }
        return false;
    }

    /// Is the caller a rank of this job that has not joined yet? A rank that does not fit ends the job.
    [[nodiscard]] bool accepts(Caller& caller) {
        const Hello& hello = caller.hello;
        if (text_of(hello.magic) != magic || hello.job != job_) return false;
        const std::string host = JobMember{text_of(hello.host), 0, MessageSocket()}.host_name();
        std::string mismatch;
        if (text_of(hello.version) != version())
            mismatch = fmt::format("rank {} on {} is samesum {}, rank 0 is {}: expected one version on all hosts",
                                   hello.rank, host, text_of(hello.version), version());
        else if (hello.ranks != launch_.ranks)
            mismatch = fmt::format("rank {} on {} counts {} ranks, rank 0 counts {}", hello.rank, host, hello.ranks,
                                   launch_.ranks);
        if (!mismatch.empty()) {
            caller.socket.write(Message::Kind::usage_error, mismatch);
            throw UsageError(mismatch);
        }
        if (hello.rank < 1 || hello.rank >= launch_.ranks || members_[static_cast<std::size_t>(hello.rank)].socket)
            return false;
        return caller.socket.write(Message::Kind::started, magic);
    }

    void accept_callers() {
        const std::size_t max_callers = 64 + members_.size();
        while (callers_.size() < max_callers) {
            MessageSocket socket(::accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
            if (!socket) break;
            set_option(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, 1);
            callers_.push_back({std::move(socket), {}, 0, false, monotonic_seconds() + handshake_seconds});
        }
    }

    const Launch& launch_;
    std::vector<JobMember>& members_;
    MessageSocket listener_;
    std::uint64_t job_;
    std::vector<Caller> callers_;
};

// --- The other ranks ---

MessageSocket connect_to(const std::string& host, int port) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return MessageSocket();
    MessageSocket connected;
    for (const addrinfo* each = found; each != nullptr && !connected; each = each->ai_next) {
        MessageSocket attempt(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (!attempt) continue;
        set_timeout(attempt.descriptor(), handshake_seconds);
        if (::connect(attempt.descriptor(), each->ai_addr, each->ai_addrlen) == 0) connected = std::move(attempt);
    }
    ::freeaddrinfo(found);
    return connected;
}

Hello hello_of(const Launch& launch) {
    Hello hello{};
    put_text(hello.magic, magic);
    put_text(hello.version, version());
    hello.job = job_hash(launch);
    hello.rank = launch.rank;
    hello.ranks = launch.ranks;
    hello.local_rank = launch.local_rank;
    put_text(hello.host, host_identity());
    return hello;
}

}  // namespace

void gather_members(const Launch& launch, std::vector<JobMember>& members) { Gathering(launch, members).run(); }

std::optional<MessageSocket> join_rank_0(const Launch& launch) {
    const Hello hello = hello_of(launch);
    const double deadline = monotonic_seconds() + launch.timeout_s;
    for (int attempt = 0; monotonic_seconds() < deadline; ++attempt) {
        for (const std::string& host : launch.hosts)
            for (int port = launch.port; port <= last_port(launch); ++port) {
                MessageSocket socket = connect_to(host, port);
                if (!socket || ::send(socket.descriptor(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello)
                    continue;
                const auto answer = socket.read();
                if (!answer) continue;
                if (answer->kind == Message::Kind::usage_error) return std::nullopt;
                if (answer->kind != Message::Kind::started || answer->text != magic ||
                    ::send(socket.descriptor(), &confirmed, 1, MSG_NOSIGNAL) != 1)
                    continue;
                set_timeout(socket.descriptor(), 0);
                enable_keepalive(socket.descriptor());
                return socket;
            }
        ::usleep(std::min(attempt + 1, 25) * 20'000);
    }
    throw Inconclusive(fmt::format("rank {}: rank 0 was not found at {} within {:g} s", launch.rank, address_of(launch),
                                   launch.timeout_s));
}

}  // namespace samesum::gpu
