// The NCCL_* settings that affect the order of sums, and how NCCL reads their values.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/nccl/call.hpp"
#include "model/support/environment.hpp"

namespace samesum {

/// NCCL_* settings that affect the order; NCCL's defaults where absent.
struct Settings {
    /// Allowed algorithms and protocols for each collective; all when absent (NCCL_ALGO, NCCL_PROTO).
    std::map<Collective, std::vector<Algorithm>> algorithms;
    std::map<Collective, std::vector<Protocol>> protocols;
    int min_channels = 0, max_channels = 0;
    std::uint64_t ll_buffer = 524288, ll128_buffer = 4915200, simple_buffer = 4194304;  ///< bytes, NCCL_*BUFFSIZE
    std::optional<int> threads, ll128_threads;  ///< NCCL_NTHREADS, NCCL_LL128_NTHREADS
    bool pat_enabled = true, pat_forced = false, nvls_enabled = true, symmetric_enabled = true;
    double net_overhead = -1;  ///< us, NCCL_NET_OVERHEAD; negative: by CPU
};

/// Parse a value of NCCL_ALGO or NCCL_PROTO ("Ring", "^LL128", "allreduce:tree;reducescatter:ring").
/// Throw UsageError.
void set_algorithms(Settings& settings, std::string_view value);
void set_protocols(Settings& settings, std::string_view value);

/// Applies the variables that affect the order (NCCL_ALGO, NCCL_PROTO, channel limits, threads, buffer sizes, NVLS,
/// PAT, symmetric memory, net overhead) and ignores the others. A value that NCCL would reject or misread throws
/// UsageError with key, value and what is expected; thread counts are clamped as in NCCL.
void apply_environment(const Environment& environment, Settings& settings);

/// NCCL_NTHREADS and NCCL_LL128_NTHREADS (2.28.9 graph/tuning.cc, getNthreads): not a multiple of 32, or above `max`:
/// max; below `min`: min; zero or less: `otherwise`.
[[nodiscard]] int clamp_threads(int wanted, int min, int max, int otherwise);

/// As strict as NCCL (strcasecmp of whole words, one function before each ':', only the first list may lack one).
/// Throws UsageError: NCCL fails the communicator on such a value.
void check_list_syntax(std::string_view key, std::string_view value);

}  // namespace samesum
