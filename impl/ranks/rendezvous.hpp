// How the processes that a launcher started find each other: rank 0 listens, the others connect and say who they are.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "impl/ranks/message_socket.hpp"
#include "model/support/launcher.hpp"

namespace samesum::gpu {

/// One process of the job, as rank 0 knows it.
struct JobMember {
    std::string host;  ///< "NAME BOOT_ID"; equal texts mean the same host, as NCCL counts hosts
    int local_rank = 0;
    MessageSocket socket;  ///< rank 0's is not connected

    /// The name alone, for messages.
    [[nodiscard]] std::string host_name() const { return host.substr(0, host.find(' ')); }
};

/// Rank 0's side: listens until all other ranks of the job have joined, and fills `members`, which has an entry for
/// each rank. A caller that does not name this job is turned away. Throws Inconclusive naming the ranks that did not
/// join, UsageError naming one with another version of samesum or another number of ranks.
void gather_members(const Launch& launch, std::vector<JobMember>& members);

/// The other ranks' side: connects to rank 0. Nothing when rank 0 has rejected this process; rank 0 reports why. Throws
/// Inconclusive when rank 0 is not found in time.
[[nodiscard]] std::optional<MessageSocket> join_rank_0(const Launch& launch);

}  // namespace samesum::gpu
