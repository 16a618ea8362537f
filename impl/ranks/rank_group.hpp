// One process for each rank, kept alive between commands. Commands go over sockets, bulk data through shared memory
// where there is any, and every wait has a deadline.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "impl/ranks/rank_process.hpp"
#include "model/support/error.hpp"

namespace samesum::gpu {

class LaunchedJob;

/// A rank died, hung or reported an error instead of answering its command. The group has been stopped and starts again
/// at the next command.
struct RankFailure : Inconclusive {
    enum class Kind : std::uint8_t { died, hung, failed };

    RankFailure(Kind kind, int rank, std::string call, std::string why);

    Kind kind;
    int rank;
    std::string call;  ///< what the rank was doing, as it recorded it
    std::string why;
};

struct RankGroupOptions {
    int ranks = 1;
    /// For each rank, or one for all: variables set in its process, {} for none.
    std::vector<std::map<std::string, std::string>> environment{};
    std::size_t memory_bytes = std::size_t{1} << 32;  ///< address space; pages are allocated when first touched
    double start_seconds = 60;
    /// Where a launcher started the processes: rank 0 is forked here, the others by their own processes. The job
    /// outlives the group and serves one group at a time. nullptr: all ranks are forked here.
    LaunchedJob* launched_job = nullptr;
};

/// Starts its ranks at the first command. They are forks: construct the group before anything in this process touches
/// CUDA or starts threads. However the parent ends, the ranks end with it and nothing is left behind: memory and logs
/// have no names in any file system. Only the thread that constructed the group may use it.
class RankGroup {
public:
    RankGroup(RankGroupOptions options, WorkerFactory factory);
    ~RankGroup();
    RankGroup(const RankGroup&) = delete;
    RankGroup& operator=(const RankGroup&) = delete;

    [[nodiscard]] int ranks() const { return options_.ranks; }
    [[nodiscard]] std::span<std::byte> memory() const { return memory_.bytes(); }
    /// How often the ranks have been started. A restart loses the ranks' state.
    [[nodiscard]] int starts() const { return starts_; }
    /// False before the first command and after a failure.
    [[nodiscard]] bool running() const { return running_; }
    [[nodiscard]] std::vector<pid_t> processes() const;

    /// Sends the same command to every rank and returns their answers. Throws RankFailure.
    std::vector<std::string> execute(std::string_view command, double seconds);
    /// commands[r] goes to rank r, with inputs[r] if given: the part of the memory that the command reads.
    std::vector<std::string> execute(std::span<const std::string> commands, double seconds,
                                     std::span<const Range> inputs = {});

    /// What rank `rank` has written to its log since byte `from`.
    [[nodiscard]] std::string log(int rank, std::size_t from = 0) const;
    /// Bytes of the log so far.
    [[nodiscard]] std::size_t log_size(int rank) const;

    /// Ends the ranks now; the next command starts them again.
    void stop();

private:
    void start();
    [[nodiscard]] std::string answer_of(std::size_t rank);
    [[noreturn]] void fail(RankFailure::Kind kind, std::size_t rank, const std::string& why);

    RankGroupOptions options_;
    SharedMemory memory_;
    std::vector<std::unique_ptr<RankProcess>> processes_;
    int starts_ = 0;
    bool running_ = false;
};

}  // namespace samesum::gpu
