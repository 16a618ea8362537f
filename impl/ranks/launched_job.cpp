// A member says which version, job and rank it is; rank 0 says welcome; the member says that it heard. Then commands go
// over the same connection, and what a rank reads and writes goes with them where it does not share rank 0's memory.
// SPDX-License-Identifier: Apache-2.0
#include "impl/ranks/launched_job.hpp"

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
#include <charconv>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "impl/ranks/gpu_worker.hpp"
#include "model/support/program.hpp"
#include "model/support/progress.hpp"

namespace samesum::gpu {
namespace {

using Json = nlohmann::json;

/// Ports that are tried when none is given.
constexpr int ports_tried = 8;
/// A stranger that listens on one of them may never answer.
constexpr int handshake_seconds = 3;

/// The first words of a member. Magic and version stay where they are in all versions.
struct Hello {
    std::array<char, 16> magic;
    std::array<char, 48> version;
    std::uint64_t job;
    std::int32_t rank, ranks, local_rank, unused;
    std::array<char, 256> host;
};
constexpr std::string_view magic = "samesum-rank";
constexpr char heard = 'y';

template <std::size_t size>
void put_text(std::array<char, size>& to, std::string_view text) {
    to.fill('\0');
    std::copy_n(text.begin(), std::min(text.size(), size - 1), to.begin());
}
template <std::size_t size>
std::string text_of(const std::array<char, size>& from) {
    return {from.begin(), std::find(from.begin(), from.end(), '\0')};
}

/// NCCL tells hosts apart by the same two (misc/utils.cc, getHostHash).
std::string this_host() {
    std::array<char, HOST_NAME_MAX + 1> name{};
    ::gethostname(name.data(), name.size() - 1);
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    return fmt::format("{} {}", name.data(), boot);
}

std::uint64_t job_of(const Launch& launch) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char letter : fmt::format("{}|{}|{}", launch.launcher, launch.job, launch.port))
        hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
    return hash;
}

std::string where(const Launch& launch) { return fmt::format("{}:{}", fmt::join(launch.hosts, " or "), launch.port); }

void set_option(int socket, int level, int option, int value) {
    (void)::setsockopt(socket, level, option, &value, sizeof value);
}

/// A host that vanishes without a word is noticed within half a minute.
void watch(int socket) {
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

/// A listening socket, on this host alone where nobody comes from another one.
MessageSocket listen_for(const Launch& launch) {
    const bool here = launch.one_host || is_loopback(launch.hosts.front());
    const bool v6 = launch.hosts.front() == "::1";
    int error = 0;
    for (int port = launch.port; port < launch.port + (launch.port_is_given ? 1 : ports_tried); ++port) {
        for (const int family : {AF_INET6, AF_INET}) {
            if (here && (family == AF_INET6) != v6) continue;
            MessageSocket link(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
            if (!link) continue;
            set_option(link.socket(), SOL_SOCKET, SO_REUSEADDR, 1);
            sockaddr_in6 six{};
            six.sin6_family = AF_INET6;
            six.sin6_port = htons(static_cast<std::uint16_t>(port));
            six.sin6_addr = here ? in6addr_loopback : in6addr_any;
            sockaddr_in four{};
            four.sin_family = AF_INET;
            four.sin_port = six.sin6_port;
            four.sin_addr.s_addr = htonl(here ? INADDR_LOOPBACK : INADDR_ANY);
            // One socket for both where there is IPv6.
            if (family == AF_INET6) set_option(link.socket(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
            const auto* const address =
                family == AF_INET6 ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
            const auto length = static_cast<socklen_t>(family == AF_INET6 ? sizeof six : sizeof four);
            if (::bind(link.socket(), address, length) == 0 && ::listen(link.socket(), SOMAXCONN) == 0) return link;
            error = errno;
        }
    }
    throw Inconclusive(
        fmt::format("rank 0 cannot listen on port {}: {}; SAMESUM_RENDEZVOUS=HOST:PORT on all ranks names another",
                    launch.port, std::strerror(error)));
}

/// Somebody who has connected and may turn out to be a member.
struct Caller {
    MessageSocket link;
    Hello hello{};
    std::size_t got = 0;  ///< bytes of hello
    bool welcome = false;
    double until = 0;
};

/// More of what the caller has to say; false when it has hung up.
bool listen_to(Caller& caller, char& word) {
    for (;;) {
        const bool greeting = caller.got < sizeof(Hello);
        void* const to = greeting ? static_cast<void*>(reinterpret_cast<char*>(&caller.hello) + caller.got)
                                  : static_cast<void*>(&word);
        const ssize_t bytes = ::recv(caller.link.socket(), to, greeting ? sizeof(Hello) - caller.got : 1, MSG_DONTWAIT);
        if (bytes > 0) {
            if (!greeting) return true;
            caller.got += static_cast<std::size_t>(bytes);
            if (caller.got == sizeof(Hello)) return true;
        } else if (bytes < 0 && errno == EINTR) {
            continue;
        } else {
            return bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        }
    }
}

// --- The other ranks ---

MessageSocket connect_to(const std::string& host, int port) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return MessageSocket();
    MessageSocket link;
    for (const addrinfo* each = found; each != nullptr && !link; each = each->ai_next) {
        MessageSocket attempt(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (!attempt) continue;
        set_timeout(attempt.socket(), handshake_seconds);
        if (::connect(attempt.socket(), each->ai_addr, each->ai_addrlen) == 0) link = std::move(attempt);
    }
    ::freeaddrinfo(found);
    return link;
}

/// Nothing when rank 0 has sent this member away, which it says itself.
std::optional<MessageSocket> join(const Launch& launch) {
    Hello hello{};
    put_text(hello.magic, magic);
    put_text(hello.version, version());
    hello.job = job_of(launch);
    hello.rank = launch.rank;
    hello.ranks = launch.ranks;
    hello.local_rank = launch.local_rank;
    put_text(hello.host, this_host());
    const double until = monotonic_seconds() + launch.timeout_s;
    for (int attempt = 0; monotonic_seconds() < until; ++attempt) {
        for (const std::string& host : launch.hosts)
            for (int port = launch.port; port < launch.port + (launch.port_is_given ? 1 : ports_tried); ++port) {
                MessageSocket link = connect_to(host, port);
                if (!link || ::send(link.socket(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) continue;
                const auto answer = link.read();
                if (!answer) continue;
                if (answer->kind == Message::Kind::usage_error) return std::nullopt;
                if (answer->kind != Message::Kind::started || answer->text != magic ||
                    ::send(link.socket(), &heard, 1, MSG_NOSIGNAL) != 1)
                    continue;
                set_timeout(link.socket(), 0);
                watch(link.socket());
                return link;
            }
        ::usleep(std::min(attempt + 1, 25) * 20'000);
    }
    throw Inconclusive(
        fmt::format("rank {}: rank 0 was not found at {} within {:g} s", launch.rank, where(launch), launch.timeout_s));
}

/// A rank that a member of the crew keeps.
class MemberRank : public RankProcess {
public:
    MemberRank(RankRole role, const SharedMemory& memory, MessageSocket& link)
        : role_(std::move(role)), memory_(memory), link_(link) {}
    ~MemberRank() override {
        if (running_) {
            request_stop();
            MemberRank::end(monotonic_seconds());
        }
    }

    void start(std::span<const int>) override {
        const Json order{{"rank", role_.rank},
                         {"ranks", role_.ranks},
                         {"environment", role_.environment},
                         {"memory", memory_.name()},
                         {"bytes", memory_.bytes().size()}};
        if (!link_ || !link_.write(Message::Kind::start, order.dump()))
            throw Inconclusive(fmt::format("rank {}'s process has left the job", role_.rank));
        running_ = true;
    }
    void started(double seconds) override {
        const auto answer = link_.waiting(seconds) ? link_.read() : std::nullopt;
        if (!answer || answer->kind != Message::Kind::started)
            throw Inconclusive(
                fmt::format("rank {}'s process {}", role_.rank, answer ? answer->text : "does not start its rank"));
        shares_memory_ = answer->text == "shared";
    }
    [[nodiscard]] int socket() const override { return link_.socket(); }
    [[nodiscard]] bool put(std::string_view command, Range input) override {
        return link_.write(Message::Kind::command, command, std::span(&input, input.bytes > 0 ? 1 : 0), carried());
    }
    [[nodiscard]] Message take() override {
        if (auto message = link_.read(memory_.bytes())) {
            if (message->kind == Message::Kind::died) message->text = understand(message->text);
            return std::move(*message);
        }
        link_.close();
        current_call_ = "an unknown call";
        return {Message::Kind::died, "its process is gone, or its host", {}};
    }
    void request_stop() override {
        if (running_ && link_ && !link_.write(Message::Kind::end, "")) link_.close();
    }
    void end(double until) override {
        // What it still had to say comes first. Its own process gives it half a second, too.
        constexpr double on_the_way = 5;
        while (running_ && link_) {
            const auto message =
                link_.waiting(until + on_the_way - monotonic_seconds()) ? link_.read(memory_.bytes()) : std::nullopt;
            if (!message) link_.close();
            if (message && message->kind == Message::Kind::end) {
                (void)understand(message->text);
                break;
            }
        }
        running_ = false;
    }
    [[nodiscard]] std::string current_call() const override { return current_call_; }
    [[nodiscard]] std::string log(std::size_t from) const override {
        return from < log_.size() ? log_.substr(from) : std::string();
    }
    [[nodiscard]] std::size_t log_size() const override { return log_.size(); }
    [[nodiscard]] pid_t pid() const override { return -1; }

private:
    [[nodiscard]] std::span<const std::byte> carried() const {
        return shares_memory_ ? std::span<const std::byte>() : memory_.bytes();
    }
    /// Keeps what a rank said at its end; returns how it died.
    std::string understand(const std::string& report) {
        const Json last = Json::parse(report, nullptr, false);
        if (last.is_discarded()) return report;
        current_call_ = last.value("at", "");
        log_ = last.value("log", "");
        return last.value("how", "");
    }

    RankRole role_;
    const SharedMemory& memory_;
    MessageSocket& link_;
    std::string current_call_, log_;
    bool running_ = false, shares_memory_ = false;
};

/// A member's side of a MemberRank.
class RankAgent {
public:
    RankAgent(MessageSocket link, const WorkerFactory& factory, bool share_memory)
        : link_(std::move(link)), factory_(factory), share_memory_(share_memory) {}

    /// Until rank 0 sends it home, or is gone.
    int serve() {
        for (;;) {
            std::array<pollfd, 2> waiting{pollfd{link_.socket(), POLLIN, 0},
                                          pollfd{rank_ ? rank_->socket() : -1, POLLIN, 0}};
            if (::poll(waiting.data(), waiting.size(), -1) < 0) {
                if (errno == EINTR) continue;
                break;
            }
            if (waiting[0].revents != 0) {
                const auto message = link_.read(memory());
                if (!message) break;
                if (message->kind == Message::Kind::leave) return std::stoi(message->text);
                if (!obey(*message)) break;
            } else if (waiting[1].revents != 0) {
                Message message = rank_->take();
                if (message.kind == Message::Kind::died) message.text = report(message.text);
                if (!link_.write(message.kind, message.text, message.ranges,
                                 shared_ ? std::span<std::byte>() : memory()))
                    break;
            }
        }
        // Rank 0, or the launcher, has said why.
        return static_cast<int>(Exit::inconclusive);
    }

private:
    [[nodiscard]] std::span<std::byte> memory() const { return memory_ ? memory_->bytes() : std::span<std::byte>(); }

    bool obey(const Message& message) {
        switch (message.kind) {
            case Message::Kind::start:
                return start(Json::parse(message.text));
            case Message::Kind::command:
                // Where it has died, its socket says so.
                if (rank_) (void)rank_->put(message.text, {});
                return true;
            case Message::Kind::end: {
                if (rank_) {
                    rank_->request_stop();
                    rank_->end(monotonic_seconds() + 0.5);
                }
                const bool told = link_.write(Message::Kind::end, report("ended"));
                rank_.reset();
                return told;
            }
            default:
                return false;
        }
    }

    bool start(const Json& order) {
        rank_.reset();
        memory_.reset();
        try {
            if (auto common = share_memory_ ? SharedMemory::of(order.at("memory")) : std::nullopt)
                memory_ = std::make_unique<SharedMemory>(std::move(*common));
            shared_ = memory_ != nullptr;
            if (!shared_) memory_ = std::make_unique<SharedMemory>(order.at("bytes").get<std::size_t>());
            rank_ = std::make_unique<LocalRank>(RankRole{order.at("rank"), order.at("ranks"), order.at("environment")},
                                                memory(), factory_);
            const int own = link_.socket();
            rank_->start(std::span(&own, 1));
        } catch (const std::exception& error) {
            rank_.reset();
            return link_.write(Message::Kind::error, error.what());
        }
        return link_.write(Message::Kind::started, shared_ ? "shared" : "its own memory");
    }

    [[nodiscard]] std::string report(const std::string& how) const {
        if (!rank_) return Json{{"how", how}}.dump();
        // Warnings stand in it, and little else, as the ranks' logs are set.
        constexpr std::size_t max = 1 << 16;
        const std::size_t size = rank_->log_size();
        return Json{{"how", how}, {"at", rank_->current_call()}, {"log", rank_->log(size > max ? size - max : 0)}}.dump(
            -1, ' ', false, Json::error_handler_t::replace);
    }

    MessageSocket link_;
    const WorkerFactory& factory_;
    const bool share_memory_;
    std::unique_ptr<SharedMemory> memory_;
    std::unique_ptr<LocalRank> rank_;
    bool shared_ = false;
};

}  // namespace

LaunchedJob::LaunchedJob(const Launch& launch) : launch_(launch), members_(static_cast<std::size_t>(launch.ranks)) {
    members_.front().host = this_host();
    members_.front().local_rank = launch.local_rank;
    try {
        assemble();
    } catch (const UsageError&) {
        leave(static_cast<int>(Exit::usage));
        throw;
    } catch (...) {
        leave(static_cast<int>(Exit::inconclusive));
        throw;
    }
}

void LaunchedJob::assemble() {
    const MessageSocket listener = listen_for(launch_);
    const std::uint64_t job = job_of(launch_);
    const double until = monotonic_seconds() + launch_.timeout_s;
    std::vector<Caller> callers;
    const auto missing = [&] {
        std::vector<int> ranks;
        for (int rank = 1; rank < launch_.ranks; ++rank)
            if (!members_[static_cast<std::size_t>(rank)].link) ranks.push_back(rank);
        return ranks;
    };
    // What a caller's hello is worth: welcome, or not; a member that does not fit ends the job.
    const auto judge = [&](Caller& caller) {
        const Hello& hello = caller.hello;
        if (text_of(hello.magic) != magic) return false;
        if (hello.job != job) return false;
        const std::string host = Member{text_of(hello.host), 0, MessageSocket()}.host_name();
        std::string misfit;
        if (text_of(hello.version) != version())
            misfit = fmt::format("rank {} on {} is samesum {}, rank 0 is {}; one version on all hosts would be right",
                                 hello.rank, host, text_of(hello.version), version());
        else if (hello.ranks != launch_.ranks)
            misfit = fmt::format("rank {} on {} counts {} ranks, rank 0 counts {}", hello.rank, host, hello.ranks,
                                 launch_.ranks);
        if (!misfit.empty()) {
            caller.link.write(Message::Kind::usage_error, misfit);
            throw UsageError(misfit);
        }
        if (hello.rank < 1 || hello.rank >= launch_.ranks || members_[static_cast<std::size_t>(hello.rank)].link)
            return false;
        return caller.link.write(Message::Kind::started, magic);
    };
    for (auto absent = missing(); !absent.empty(); absent = missing()) {
        const double rest = until - monotonic_seconds();
        if (rest <= 0)
            throw Inconclusive(fmt::format("of {} ranks that {} started, {} did not come to {} within {:g} s",
                                           launch_.ranks, launch_.launcher, fmt::join(absent, ", "), where(launch_),
                                           launch_.timeout_s));
        std::vector<pollfd> waiting{{listener.socket(), POLLIN, 0}};
        for (const Caller& caller : callers) waiting.push_back({caller.link.socket(), POLLIN, 0});
        (void)::poll(waiting.data(), static_cast<nfds_t>(waiting.size()),
                     static_cast<int>(std::min(rest, 0.5) * 1000 + 1));
        for (Caller& caller : callers) {
            char word = 0;
            const bool greeted = caller.got == sizeof(Hello);
            bool stays = listen_to(caller, word) && (word == heard || monotonic_seconds() < caller.until);
            if (stays && !greeted && caller.got == sizeof(Hello)) stays = caller.welcome = judge(caller);
            if (stays && word == heard && caller.welcome) {
                Member& member = members_[static_cast<std::size_t>(caller.hello.rank)];
                if (!member.link) {
                    watch(caller.link.socket());
                    member.host = text_of(caller.hello.host);
                    member.local_rank = caller.hello.local_rank;
                    member.link = std::move(caller.link);
                }
                stays = false;
            }
            if (!stays) caller.link.close();
        }
        callers.erase(std::remove_if(callers.begin(), callers.end(), [](const Caller& each) { return !each.link; }),
                      callers.end());
        const std::size_t max_callers = 64 + members_.size();
        while (callers.size() < max_callers) {
            MessageSocket link(::accept4(listener.socket(), nullptr, nullptr, SOCK_CLOEXEC));
            if (!link) break;
            set_option(link.socket(), IPPROTO_TCP, TCP_NODELAY, 1);
            callers.push_back({std::move(link), {}, 0, false, monotonic_seconds() + handshake_seconds});
        }
    }
}

std::vector<int> LaunchedJob::sockets() const {
    std::vector<int> all;
    for (const Member& member : members_)
        if (member.link) all.push_back(member.link.socket());
    return all;
}

std::unique_ptr<RankProcess> LaunchedJob::process(RankRole role, const SharedMemory& memory) {
    MessageSocket& link = members_.at(static_cast<std::size_t>(role.rank)).link;
    return std::make_unique<MemberRank>(std::move(role), memory, link);
}

void LaunchedJob::leave(int exit_code) {
    for (Member& member : members_) {
        if (member.link) member.link.write(Message::Kind::leave, std::to_string(exit_code));
        member.link.close();
    }
}

int serve_launched_job(const Launch& launch, const WorkerFactory& factory, bool share_memory) {
    auto link = join(launch);
    if (!link) return static_cast<int>(Exit::usage);
    return RankAgent(std::move(*link), factory, share_memory).serve();
}

namespace {

std::unique_ptr<LaunchedJob> leading;

}  // namespace

LaunchedJob* launched_job() { return leading.get(); }

CommandFunction run_under_launcher(CommandFunction command) {
    return [command = std::move(command)](std::span<const std::string> arguments) {
        const auto launch = this_launch(arguments);
        if (launch && launch->rank > 0) return static_cast<Exit>(serve_launched_job(*launch, gpu_workers()));
        if (launch) leading = std::make_unique<LaunchedJob>(*launch);
        check_launcher(launcher_flag(arguments));
        return command(arguments);
    };
}

int leave_launched_job(int exit_code) {
    if (leading) leading->leave(exit_code);
    leading.reset();
    return exit_code;
}

}  // namespace samesum::gpu
