// The job and rank of this process, from the variables that torchrun, mpirun and srun set.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/support/environment.hpp"

namespace samesum {

/// One process of a job of at least two, as its launcher describes it. Only environment variables are read; no
/// launcher's library is linked.
struct Launch {
    std::string launcher;  ///< "torchrun", "Open MPI", "MPICH", "srun"
    int rank = 0, ranks = 1;
    int local_rank = 0;
    bool one_host = false;           ///< all ranks are on this host
    std::string job;                 ///< equal on all ranks of the job, different in other jobs
    std::vector<std::string> hosts;  ///< alternative addresses of the host where rank 0 listens
    int port = 0;                    ///< where rank 0 listens
    bool port_is_given = false;      ///< if false, the next ports are tried if this one is taken
    double timeout_s = 120;          ///< for all ranks to connect
};

/// The variables of this process, with SAMESUM_HYDRA_PROXY added: the id of the process by which MPICH's mpirun starts
/// the ranks of this host, because MPICH's own variables do not identify the job.
[[nodiscard]] Environment this_environment();

/// `launcher`: none, torchrun, mpi, slurm, or auto for the launcher found (the innermost if they are nested).
/// std::nullopt without a launcher and for a job of one rank. Throws UsageError for impossible values, naming rank and
/// variable. SAMESUM_RENDEZVOUS=host:port, or else NCCL_COMM_ID, sets where rank 0 listens; SAMESUM_JOIN_SECONDS sets
/// how long the ranks wait for each other.
[[nodiscard]] std::optional<Launch> launch_of(const Environment& environment, std::string_view launcher = "auto");

/// The launch of this process for a command with these arguments: their --launcher, auto if absent. An unknown launcher
/// counts as auto, so that the rank is known and rank 0 alone can report the error.
[[nodiscard]] std::optional<Launch> this_launch(std::span<const std::string> arguments);
/// The value of --launcher. check_launcher() throws UsageError if it is unknown.
[[nodiscard]] std::string launcher_flag(std::span<const std::string> arguments);
void check_launcher(std::string_view word);

/// The first host of a list in Slurm's notation: "node07" of "node[07-09,12],gpu3".
[[nodiscard]] std::string first_host(std::string_view list);

}  // namespace samesum
