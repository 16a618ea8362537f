// One rank as its group sees it: a process that answers commands, here or at the end of a wire.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "impl/ranks/message_socket.hpp"

namespace samesum::gpu {

/// Address space that several processes see and no file system does; pages come into being as they are touched.
class SharedMemory {
public:
    explicit SharedMemory(std::size_t bytes);
    /// Another process's, by its name(); nothing where it cannot be seen: on another host, in another container.
    [[nodiscard]] static std::optional<SharedMemory> of(const std::string& name);
    ~SharedMemory();
    SharedMemory(SharedMemory&& other) noexcept;
    SharedMemory& operator=(SharedMemory&&) = delete;

    [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
    [[nodiscard]] std::string name() const;

private:
    SharedMemory(int file, std::span<std::byte> bytes) : file_(file), bytes_(bytes) {}

    int file_;
    std::span<std::byte> bytes_;
};

/// What a rank's process sees of its group.
class RankContext {
public:
    RankContext(int rank, int ranks, std::span<std::byte> memory, std::span<char> current_call, int log,
                std::vector<Range>& results);

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int ranks() const { return ranks_; }
    /// Where the inputs that came with the command lie, as the parent sees them.
    [[nodiscard]] std::span<const std::byte> input(std::uint64_t offset, std::uint64_t bytes) const;
    /// Where results are to be written; with the answer the parent sees them.
    [[nodiscard]] std::span<std::byte> result(std::uint64_t offset, std::uint64_t bytes) const;
    /// Says what comes next; the parent quotes it when this rank dies or hangs.
    void at(std::string_view call) const;
    /// A path that opens this rank's log inside its own process; the parent reads it by RankGroup::log().
    [[nodiscard]] std::string log_file() const;

private:
    int rank_, ranks_;
    std::span<std::byte> memory_;
    std::span<char> current_call_;
    int log_;
    std::vector<Range>* results_;
};

/// The work of one rank. What answer() throws reaches the parent as a RankFailure (a UsageError as itself) and ends the
/// group.
class Worker {
public:
    virtual ~Worker() = default;
    [[nodiscard]] virtual std::string answer(std::string_view command) = 0;
};
/// Called in the rank's own process, after its environment is set.
using WorkerFactory = std::function<std::unique_ptr<Worker>(const RankContext&)>;

/// Started, asked, ended, and started again; never two at a time.
class RankProcess {
public:
    RankProcess() = default;
    virtual ~RankProcess() = default;
    RankProcess(const RankProcess&) = delete;
    RankProcess& operator=(const RankProcess&) = delete;

    /// `foreign`: sockets that the process must not keep open. Throws Inconclusive.
    virtual void start(std::span<const int> foreign) = 0;
    /// Waits until it has started where that takes two.
    virtual void started(double seconds) = 0;
    /// Readable when there is something to take().
    [[nodiscard]] virtual int socket() const = 0;
    [[nodiscard]] virtual bool put(std::string_view command, Range input) = 0;
    /// Its answer; or that it died, and how.
    [[nodiscard]] virtual Message take() = 0;
    /// Tells it to end; end() waits for that until monotonic_seconds() is `until`, then kills it.
    virtual void request_stop() = 0;
    virtual void end(double until) = 0;
    /// What it was doing last, in its own words.
    [[nodiscard]] virtual std::string current_call() const = 0;
    [[nodiscard]] virtual std::string log(std::size_t from) const = 0;
    [[nodiscard]] virtual std::size_t log_size() const = 0;
    /// Of a process on this host; else -1.
    [[nodiscard]] virtual pid_t pid() const = 0;
};

/// Who a rank is.
struct RankRole {
    int rank = 0, ranks = 1;
    std::map<std::string, std::string> environment{};  ///< variables set in its process
};

/// A fork of this process: it ends when this one does, in whatever way (PR_SET_PDEATHSIG).
class LocalRank : public RankProcess {
public:
    /// `memory` is shared with the fork and outlives this object.
    LocalRank(RankRole role, std::span<std::byte> memory, WorkerFactory factory);
    ~LocalRank() override;

    void start(std::span<const int> foreign) override;
    void started(double) override {}
    [[nodiscard]] int socket() const override { return link_.socket(); }
    [[nodiscard]] bool put(std::string_view command, Range input) override;
    [[nodiscard]] Message take() override;
    void request_stop() override { link_.close(); }
    void end(double until) override;
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
    MessageSocket link_;
    pid_t pid_ = -1;
};

}  // namespace samesum::gpu
