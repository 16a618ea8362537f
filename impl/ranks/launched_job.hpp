// The processes that a launcher started for one job: rank 0 runs the command, the others keep its ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "impl/ranks/message_socket.hpp"
#include "impl/ranks/rank_process.hpp"
#include "model/support/error.hpp"
#include "model/support/launcher.hpp"

namespace samesum::gpu {

/// All ranks of a job, as rank 0 knows them. It listens only until all have come; who cannot name the job is turned
/// away, and so is another version of samesum.
class LaunchedJob {
public:
    struct Member {
        std::string host;  ///< two members with the same words sit on the same host, as NCCL counts hosts
        int local_rank = 0;
        MessageSocket link;  ///< rank 0's is none

        /// The first word, for people.
        [[nodiscard]] std::string host_name() const { return host.substr(0, host.find(' ')); }
    };

    /// Waits for the others. Throws Inconclusive naming those that did not come, UsageError naming one that does not
    /// fit.
    explicit LaunchedJob(const Launch& launch);
    /// The others leave with this exit code, unless leave() has said another.
    ~LaunchedJob() { leave(static_cast<int>(Exit::inconclusive)); }
    LaunchedJob(const LaunchedJob&) = delete;
    LaunchedJob& operator=(const LaunchedJob&) = delete;

    [[nodiscard]] const Launch& launch() const { return launch_; }
    [[nodiscard]] int ranks() const { return launch_.ranks; }
    [[nodiscard]] const Member& member(int rank) const { return members_.at(static_cast<std::size_t>(rank)); }
    /// Those that a rank's own process must not keep open.
    [[nodiscard]] std::vector<int> sockets() const;

    /// A rank kept by member role.rank. `memory`: the group's, which outlives it.
    [[nodiscard]] std::unique_ptr<RankProcess> process(RankRole role, const SharedMemory& memory);

    /// Sends the others home.
    void leave(int exit_code);

private:
    void assemble();

    Launch launch_;
    std::vector<Member> members_;
};

/// What a process of rank > 0 does: finds rank 0, keeps a rank for it, and ends with its exit code. Rank 0's memory is
/// shared where it can be seen, unless `share_memory` is false, as it is in tests of what other hosts do.
[[nodiscard]] int serve_launched_job(const Launch& launch, const WorkerFactory& factory, bool share_memory = true);

/// The crew that this process leads; nullptr when it starts its own ranks.
[[nodiscard]] LaunchedJob* launched_job();

using CommandFunction = std::function<Exit(std::span<const std::string>)>;
/// The command as a launcher's processes run it: rank 0 with its crew(), the others as its ranks, printing nothing.
[[nodiscard]] CommandFunction run_under_launcher(CommandFunction command);
/// The crew leaves with the exit code that rank 0's process ends with; returns it.
int leave_launched_job(int exit_code);

}  // namespace samesum::gpu
