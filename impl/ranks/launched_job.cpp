// Rank 0 holds a connection to each other process until the job ends.
// SPDX-License-Identifier: Apache-2.0
#include "impl/ranks/launched_job.hpp"

#include <utility>

#include "impl/ranks/gpu_worker.hpp"
#include "impl/ranks/remote_rank.hpp"
#include "model/support/host.hpp"

namespace samesum::gpu {

LaunchedJob::LaunchedJob(const Launch& launch) : launch_(launch), members_(static_cast<std::size_t>(launch.ranks)) {
    members_.front().host = host_identity();
    members_.front().local_rank = launch.local_rank;
    try {
        gather_members(launch_, members_);
    } catch (const UsageError&) {
        leave(static_cast<int>(Exit::usage));
        throw;
    } catch (...) {
        leave(static_cast<int>(Exit::inconclusive));
        throw;
    }
}

std::vector<int> LaunchedJob::descriptors() const {
    std::vector<int> all;
    for (const JobMember& member : members_)
        if (member.socket) all.push_back(member.socket.descriptor());
    return all;
}

std::unique_ptr<RankProcess> LaunchedJob::process(RankRole role, const SharedMemory& memory) {
    MessageSocket& socket = members_.at(static_cast<std::size_t>(role.rank)).socket;
    return std::make_unique<RemoteRank>(std::move(role), memory, socket);
}

void LaunchedJob::leave(int exit_code) {
    for (JobMember& member : members_) {
        if (member.socket) member.socket.write(Message::Kind::leave, std::to_string(exit_code));
        member.socket.close();
    }
}

int serve_launched_job(const Launch& launch, const WorkerFactory& factory, bool share_memory) {
    auto rank_0 = join_rank_0(launch);
    if (!rank_0) return static_cast<int>(Exit::usage);
    return RankAgent(std::move(*rank_0), factory, share_memory).serve();
}

namespace {

std::unique_ptr<LaunchedJob> current_job;

}  // namespace

LaunchedJob* launched_job() { return current_job.get(); }

CommandFunction run_under_launcher(CommandFunction command) {
    return [command = std::move(command)](std::span<const std::string> arguments) {
        const auto launch = this_launch(arguments);
        if (launch && launch->rank > 0) return static_cast<Exit>(serve_launched_job(*launch, gpu_workers()));
        if (launch) current_job = std::make_unique<LaunchedJob>(*launch);
        check_launcher(launcher_flag(arguments));
        return command(arguments);
    };
}

int leave_launched_job(int exit_code) {
    if (current_job) current_job->leave(exit_code);
    current_job.reset();
    return exit_code;
}

}  // namespace samesum::gpu
