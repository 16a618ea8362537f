// One process a rank, kept alive between cases: commands go over sockets, bulk data through shared memory, and every
// wait has a deadline.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/error.hpp"

namespace samesum::gpu {

/// A rank died, hung or reported an error: the question it was asked stays unanswered. The group has been taken down
/// and starts anew at the next question.
struct RankFailure : Inconclusive {
    enum class Kind : std::uint8_t { died, hung, failed };

    RankFailure(Kind kind, int rank, std::string call, std::string why);

    Kind kind;
    int rank;
    std::string call;  ///< what the rank was doing, in its own words
    std::string why;
};

/// What a rank's process sees of its group.
class RankContext {
public:
    RankContext(int rank, int ranks, std::span<std::byte> memory, std::span<char> whereabouts, int log);

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int ranks() const { return ranks_; }
    /// Shared by all ranks and the parent.
    [[nodiscard]] std::span<std::byte> memory() const { return memory_; }
    /// Says what comes next; the parent quotes it when this rank dies or hangs.
    void at(std::string_view call) const;
    /// A path that opens this rank's log inside its own process; the parent reads it by RankGroup::log().
    [[nodiscard]] std::string log_file() const;

private:
    int rank_, ranks_;
    std::span<std::byte> memory_;
    std::span<char> whereabouts_;
    int log_;
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

struct RankGroupOptions {
    int ranks = 1;
    /// For each rank, or one for all: variables set in its process, {} for none.
    std::vector<std::map<std::string, std::string>> environment{};
    std::size_t memory_bytes = std::size_t{1} << 32;  ///< address space; pages come into being as they are touched
    double start_seconds = 60;
};

/// Forks its ranks at the first question, so make it before anything in this process touches CUDA or starts threads.
/// Whatever way the parent ends, the ranks end with it (PR_SET_PDEATHSIG) and nothing stays behind: the memory and the
/// logs have no names in any file system. The group must be used by the thread that made it.
class RankGroup {
public:
    RankGroup(RankGroupOptions options, WorkerFactory factory);
    ~RankGroup();
    RankGroup(const RankGroup&) = delete;
    RankGroup& operator=(const RankGroup&) = delete;

    [[nodiscard]] int ranks() const { return options_.ranks; }
    [[nodiscard]] std::span<std::byte> memory() const { return memory_; }
    /// How often the ranks have been started: what they were told before a restart, they no longer know.
    [[nodiscard]] int starts() const { return starts_; }
    /// False before the first question and after a failure.
    [[nodiscard]] bool running() const { return !processes_.empty(); }
    [[nodiscard]] std::vector<pid_t> processes() const;

    /// Puts the same command to every rank and returns their answers. Throws RankFailure.
    std::vector<std::string> ask(std::string_view command, double seconds);
    /// commands[r] goes to rank r.
    std::vector<std::string> ask(std::span<const std::string> commands, double seconds);

    /// What rank `rank` has written to its log since byte `from`.
    [[nodiscard]] std::string log(int rank, std::size_t from = 0) const;
    /// How many bytes that are by now.
    [[nodiscard]] std::size_t log_size(int rank) const;

    /// Ends the ranks now; the next question starts them anew.
    void stop();

private:
    struct Process {
        pid_t pid = -1;
        int socket = -1;
    };

    void start();
    [[noreturn]] void serve(int rank, int socket);
    [[noreturn]] void fail(RankFailure::Kind kind, int rank, const std::string& why);
    [[nodiscard]] std::string whereabouts(int rank) const;

    RankGroupOptions options_;
    WorkerFactory factory_;
    std::span<std::byte> memory_;
    std::span<char> whereabouts_;
    std::vector<int> logs_;
    std::vector<Process> processes_;
    int starts_ = 0;
};

}  // namespace samesum::gpu
