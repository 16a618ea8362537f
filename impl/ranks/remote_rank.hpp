// A rank that runs under another process of the job: rank 0's handle of it, and the agent in that process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "impl/ranks/message_socket.hpp"
#include "impl/ranks/rank_process.hpp"
#include "impl/ranks/shared_memory.hpp"
#include "impl/ranks/worker.hpp"

namespace samesum::gpu {

/// A rank behind a connection to its agent. Where the agent does not share the group's memory, inputs and results
/// travel with the messages.
class RemoteRank : public RankProcess {
public:
    /// `memory` is the group's; it and `socket` outlive this object.
    RemoteRank(RankRole role, const SharedMemory& memory, MessageSocket& socket);
    ~RemoteRank() override;

    void start(std::span<const int> foreign) override;
    void wait_until_started(double seconds) override;
    [[nodiscard]] int descriptor() const override { return socket_.descriptor(); }
    [[nodiscard]] bool send(std::string_view command, Range input) override;
    [[nodiscard]] Message receive() override;
    void request_stop() override;
    void wait_for_end(double until) override;
    [[nodiscard]] std::string current_call() const override { return current_call_; }
    [[nodiscard]] std::string log(std::size_t from) const override;
    [[nodiscard]] std::size_t log_size() const override { return log_.size(); }
    [[nodiscard]] pid_t pid() const override { return -1; }

private:
    /// The memory whose ranges travel with a command; empty where the agent sees it.
    [[nodiscard]] std::span<const std::byte> sent_memory() const;
    std::string keep_report(const std::string& report);

    RankRole role_;
    const SharedMemory& memory_;
    MessageSocket& socket_;
    std::string current_call_, log_;
    bool running_ = false, shares_memory_ = false;
};

/// The other end of a RemoteRank: forks the rank and forwards messages between it and rank 0.
class RankAgent {
public:
    /// `share_memory`: map rank 0's memory where it is visible.
    RankAgent(MessageSocket rank_0, const WorkerFactory& factory, bool share_memory);

    /// Runs until rank 0 ends the job or is gone; returns the exit code.
    int serve();

private:
    [[nodiscard]] std::span<std::byte> memory() const;
    [[nodiscard]] bool forward_answer();
    [[nodiscard]] bool handle(const Message& message);
    [[nodiscard]] bool start(const std::string& order);
    [[nodiscard]] std::string report(const std::string& how) const;

    MessageSocket rank_0_;
    const WorkerFactory& factory_;
    const bool share_memory_;
    std::unique_ptr<SharedMemory> memory_;
    std::unique_ptr<LocalRank> rank_;
    bool shared_ = false;
};

}  // namespace samesum::gpu
