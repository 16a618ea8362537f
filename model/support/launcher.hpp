// Which rank of whose job this process is: what torchrun, mpirun and srun say in the environment.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/support/environment.hpp"

namespace samesum {

/// One process of a job of at least two, as its launcher describes it. No launcher's library is linked: their variables
/// say all that is needed.
struct Launch {
    std::string launcher;  ///< "torchrun", "Open MPI", "MPICH", "srun"
    int rank = 0, ranks = 1;
    int local_rank = 0;
    bool one_host = false;           ///< all ranks sit on this host
    std::string job;                 ///< the same on all ranks of the job, another in another job
    std::vector<std::string> hosts;  ///< where rank 0 listens; one of them will do
    int port = 0;                    ///< where it listens
    bool port_is_given = false;      ///< else the next few count as well, should others be in the way
    double timeout_s = 120;          ///< for all ranks to come together
};

/// Of this process, with SAMESUM_HYDRA_PROXY added: the id of the process by which MPICH's mpirun runs this host's
/// ranks, since nothing in MPICH's own variables tells one job from another.
[[nodiscard]] Environment this_environment();

/// `launcher`: none, torchrun, mpi, slurm, or auto, whichever launcher is there (the innermost, where one ran another).
/// Nothing for a process that is alone, and for a job of one. Throws UsageError for what cannot be, naming rank and
/// variable. SAMESUM_RENDEZVOUS=host:port, or else NCCL_COMM_ID, says where rank 0 listens; SAMESUM_JOIN_SECONDS, how
/// long the ranks wait for each other.
[[nodiscard]] std::optional<Launch> launch_of(const Environment& environment, std::string_view launcher = "auto");

/// Of this process, when a command was called with these words: their --launcher counts, auto if there is none. A word
/// that names no launcher counts as auto, too: rank 0 is to complain about it, and first one has to know who that is.
[[nodiscard]] std::optional<Launch> this_launch(std::span<const std::string> arguments);
/// The word itself. check_launcher() throws UsageError if it names none.
[[nodiscard]] std::string launcher_flag(std::span<const std::string> arguments);
void check_launcher(std::string_view word);

/// "node[07-09,12],gpu3" begins with "node07": the first host of a list as Slurm writes it.
[[nodiscard]] std::string first_host(std::string_view list);

}  // namespace samesum
