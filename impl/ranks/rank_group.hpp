// One process a rank, kept alive between cases: commands go over sockets, bulk data through shared memory where there
// is any, and every wait has a deadline.
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

struct RankGroupOptions {
    int ranks = 1;
    /// For each rank, or one for all: variables set in its process, {} for none.
    std::vector<std::map<std::string, std::string>> environment{};
    std::size_t memory_bytes = std::size_t{1} << 32;  ///< address space; pages come into being as they are touched
    double start_seconds = 60;
    /// Where rank r's process comes from when a launcher started one for it; rank 0's is forked all the same. It
    /// outlives the group and serves one group at a time. nullptr: all ranks are forked here.
    LaunchedJob* launched_job = nullptr;
};

/// Starts its ranks at the first question; they are forks, so make it before anything in this process touches CUDA or
/// starts threads. Whatever way the parent ends, the ranks end with it and nothing stays behind: the memory and the
/// logs have no names in any file system. The group must be used by the thread that made it.
class RankGroup {
public:
    RankGroup(RankGroupOptions options, WorkerFactory factory);
    ~RankGroup();
    RankGroup(const RankGroup&) = delete;
    RankGroup& operator=(const RankGroup&) = delete;

    [[nodiscard]] int ranks() const { return options_.ranks; }
    [[nodiscard]] std::span<std::byte> memory() const { return memory_.bytes(); }
    /// How often the ranks have been started: what they were told before a restart, they no longer know.
    [[nodiscard]] int starts() const { return starts_; }
    /// False before the first question and after a failure.
    [[nodiscard]] bool running() const { return running_; }
    [[nodiscard]] std::vector<pid_t> processes() const;

    /// Puts the same command to every rank and returns their answers. Throws RankFailure.
    std::vector<std::string> ask(std::string_view command, double seconds);
    /// commands[r] goes to rank r, and with it inputs[r] if there are any: the part of the memory that it reads.
    std::vector<std::string> ask(std::span<const std::string> commands, double seconds,
                                 std::span<const Range> inputs = {});

    /// What rank `rank` has written to its log since byte `from`.
    [[nodiscard]] std::string log(int rank, std::size_t from = 0) const;
    /// How many bytes that are by now.
    [[nodiscard]] std::size_t log_size(int rank) const;

    /// Ends the ranks now; the next question starts them anew.
    void stop();

private:
    void start();
    [[noreturn]] void fail(RankFailure::Kind kind, std::size_t rank, const std::string& why);

    RankGroupOptions options_;
    SharedMemory memory_;
    std::vector<std::unique_ptr<RankProcess>> processes_;
    int starts_ = 0;
    bool running_ = false;
};

}  // namespace samesum::gpu
