// Flags that the commands on real ranks share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "impl/ranks/live_ranks.hpp"
#include "model/support/options.hpp"

namespace samesum::gpu {

/// Adds --ranks, --ranks-per-node, --launcher, --mps, --patience, --algo, --proto, --graph-file, --min-channels.
void add_rank_flags(Options& options, const char* default_ranks);
/// Adds --launcher, which run_under_launcher() has read by the time that a command runs.
void add_launcher_flag(Options& options);
/// What --ranks says, or else how many a launcher has started.
[[nodiscard]] std::string ranks_flag(const Options& options);
/// `ranks`: the number as the user wrote it. Throws UsageError naming the flag.
[[nodiscard]] LiveRanks::Options rank_options(const Options& options, const std::string& ranks);
[[nodiscard]] NcclEnvironment nccl_environment(const Options& options);
/// "a,b,c" as its parts; throws UsageError when there is none.
[[nodiscard]] std::vector<std::string> list_of(const std::string& text, const char* flag);
/// Digits alone; throws UsageError naming the flag.
[[nodiscard]] std::uint64_t whole_number(const std::string& text, const char* flag);
/// The NCCL_* settings in force, as "NAME=value".
[[nodiscard]] std::vector<std::string> nccl_variables();
/// "# NCCL 2.28.9, CUDA 13.0, driver 13.0, 1 x NVIDIA H200 sm_90" and the NCCL_* settings in force, a line each.
[[nodiscard]] std::string describe_run(const LiveRanks& ranks);

}  // namespace samesum::gpu
