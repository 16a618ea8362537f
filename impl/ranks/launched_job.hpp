// The processes that a launcher started for one job: rank 0 runs the command, each other process runs its rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "impl/ranks/rank_process.hpp"
#include "impl/ranks/rendezvous.hpp"
#include "model/support/error.hpp"
#include "model/support/launcher.hpp"

namespace samesum::gpu {

/// All ranks of a job, as rank 0 knows them.
class LaunchedJob {
public:
    /// Waits for the other ranks. Throws what gather_members() throws.
    explicit LaunchedJob(const Launch& launch);
    /// The other processes end with exit code 3, unless leave() has given another.
    ~LaunchedJob() { leave(static_cast<int>(Exit::inconclusive)); }
    LaunchedJob(const LaunchedJob&) = delete;
    LaunchedJob& operator=(const LaunchedJob&) = delete;

    [[nodiscard]] const Launch& launch() const { return launch_; }
    [[nodiscard]] int ranks() const { return launch_.ranks; }
    [[nodiscard]] const JobMember& member(int rank) const { return members_.at(static_cast<std::size_t>(rank)); }
    /// The descriptors that a forked rank must close.
    [[nodiscard]] std::vector<int> descriptors() const;

    /// The rank of member role.rank. `memory`: the group's, which outlives it.
    [[nodiscard]] std::unique_ptr<RankProcess> process(RankRole role, const SharedMemory& memory);

    /// Ends the other processes with this exit code.
    void leave(int exit_code);

private:
    Launch launch_;
    std::vector<JobMember> members_;
};

/// The main loop of a process of rank > 0: joins rank 0, runs a rank for it, and returns rank 0's exit code. Rank 0's
/// memory is mapped where it is visible, unless `share_memory` is false: tests use that to behave like another host.
[[nodiscard]] int serve_launched_job(const Launch& launch, const WorkerFactory& factory, bool share_memory = true);

/// The job that this process leads; nullptr when it starts its own ranks.
[[nodiscard]] LaunchedJob* launched_job();

using CommandFunction = std::function<Exit(std::span<const std::string>)>;
/// The command as a launcher's processes run it: rank 0 runs it with its launched_job(); the others serve as ranks and
/// print nothing.
[[nodiscard]] CommandFunction run_under_launcher(CommandFunction command);
/// The job's other processes end with the exit code that rank 0's process ends with. Returns the code.
int leave_launched_job(int exit_code);

}  // namespace samesum::gpu
