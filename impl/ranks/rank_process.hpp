// One rank as its group sees it: a process that answers commands, forked here or at the other end of a connection.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "impl/ranks/message_socket.hpp"
#include "impl/ranks/shared_memory.hpp"
#include "impl/ranks/worker.hpp"

namespace samesum::gpu {

/// Which rank a process is.
struct RankRole {
    int rank = 0, ranks = 1;
    std::map<std::string, std::string> environment{};  ///< variables set in its process
};

/// Can be started, given commands, ended, and started again; one command at a time.
class RankProcess {
public:
    RankProcess() = default;
    virtual ~RankProcess() = default;
    RankProcess(const RankProcess&) = delete;
    RankProcess& operator=(const RankProcess&) = delete;

    /// `foreign`: descriptors that the process must not keep open. Throws Inconclusive.
    virtual void start(std::span<const int> foreign) = 0;
    /// Waits until a rank of another process has started. Throws Inconclusive after `seconds`.
    virtual void wait_until_started(double seconds) = 0;
    /// Readable when receive() has something to return.
    [[nodiscard]] virtual int descriptor() const = 0;
    /// False when the process is gone.
    [[nodiscard]] virtual bool send(std::string_view command, Range input) = 0;
    /// The rank's answer, or a message that it died and how.
    [[nodiscard]] virtual Message receive() = 0;
    /// Tells the process to end.
    virtual void request_stop() = 0;
    /// Waits for its end until monotonic_seconds() is `until`, then kills it.
    virtual void wait_for_end(double until) = 0;
    /// The rank's last call, as it recorded it.
    [[nodiscard]] virtual std::string current_call() const = 0;
    [[nodiscard]] virtual std::string log(std::size_t from) const = 0;
    [[nodiscard]] virtual std::size_t log_size() const = 0;
    /// Of a process forked here; else -1.
    [[nodiscard]] virtual pid_t pid() const = 0;
};

/// A fork of this process. It ends when this one does, however that happens (PR_SET_PDEATHSIG).
class LocalRank : public RankProcess {
public:
    /// `memory` is shared with the fork and outlives this object.
    LocalRank(RankRole role, std::span<std::byte> memory, WorkerFactory factory);
    ~LocalRank() override;

    void start(std::span<const int> foreign) override;
    void wait_until_started(double) override {}
    [[nodiscard]] int descriptor() const override { return socket_.descriptor(); }
    [[nodiscard]] bool send(std::string_view command, Range input) override;
    [[nodiscard]] Message receive() override;
    void request_stop() override { socket_.close(); }
    void wait_for_end(double until) override;
    [[nodiscard]] std::string current_call() const override;
    [[nodiscard]] std::string log(std::size_t from) const override;
    [[nodiscard]] std::size_t log_size() const override;
    [[nodiscard]] pid_t pid() const override { return pid_; }

private:
    [[noreturn]] void serve(MessageSocket parent);
    [[nodiscard]] std::string how_it_died();

    RankRole role_;
    std::span<std::byte> memory_;
    WorkerFactory factory_;
    SharedMemory current_call_;
    int log_;
    MessageSocket socket_;
    pid_t pid_ = -1;
};

}  // namespace samesum::gpu
