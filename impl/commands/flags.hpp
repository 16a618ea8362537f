// Flags that the commands on real ranks share, and what those commands say about their run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "impl/ranks/live_ranks.hpp"
#include "model/arithmetic/format.hpp"
#include "model/support/options.hpp"

namespace samesum::gpu {

/// Adds --ranks, --ranks-per-node, --launcher, --mps, --timeout, --algo, --proto, --graph-file, --min-channels.
void add_rank_flags(Options& options, const char* default_ranks);
/// Adds --launcher. run_under_launcher() reads it before the command runs.
void add_launcher_flag(Options& options);
/// --ranks, or else the number that a launcher has started.
[[nodiscard]] std::string ranks_flag(const Options& options);
/// `ranks`: the number as the user wrote it. Throws UsageError naming the flag.
[[nodiscard]] LiveRanks::Options rank_options(const Options& options, const std::string& ranks);
[[nodiscard]] NcclEnvironment nccl_environment(const Options& options);
/// "a,b,c" as its parts. Throws UsageError when there is none.
[[nodiscard]] std::vector<std::string> list_of(std::string_view text, const char* flag);
/// The formats that --dtype names.
[[nodiscard]] std::vector<Format> formats_flag(const Options& options);
/// The NCCL_* variables of the environment, as "NAME=value".
[[nodiscard]] std::vector<std::string> nccl_variables();
/// "# NCCL 2.28.9, CUDA 13.0, driver for CUDA 13.0, 1 x NVIDIA H200 sm_90", the ranks, and the NCCL_* variables, one on
/// each line.
[[nodiscard]] std::string describe_run(const LiveRanks& ranks);
/// The same as an object.
[[nodiscard]] nlohmann::ordered_json run_json(const LiveRanks& ranks);

/// Text that a command prints while it works; nothing where `--json -` asks for JSON alone.
class LiveText {
public:
    explicit LiveText(const Options& options);
    void print(std::string_view text) const;

private:
    bool silent_;
};

}  // namespace samesum::gpu
