// The measurements of samesum bench, as they are written to a file and read back.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/arithmetic/format.hpp"
#include "model/combine/scheme.hpp"

namespace samesum::gpu {

/// One scheme, or one limit ("peer_read", "peer_write", "launch"), at one size.
struct BenchRow {
    std::uint64_t received = 0;  ///< bytes of a rank's own chunk
    std::string name;
    double median_us = 0;
    std::vector<double> times_us;
    std::int64_t wrong = -1;  ///< elements that differ from the model; -1: not compared
    std::uint64_t compared = 0;
    std::string difference{};  ///< the first, if any
};

struct BenchResults {
    std::string nccl, gpu, cuda, driver;
    std::vector<std::string> environment;
    std::size_t gpus = 0;
    int ranks = 0;
    Format format = Format::bfloat16;
    Accumulation accumulation = Accumulation::per_hop;
    bool captured = true;
    std::vector<BenchRow> rows;  ///< by size

    [[nodiscard]] const BenchRow* find(std::uint64_t received, std::string_view name) const;
    [[nodiscard]] std::vector<std::uint64_t> sizes() const;
    [[nodiscard]] bool shares_gpus() const { return static_cast<std::size_t>(ranks) > gpus; }
};

/// The scheme of a row; nothing for a limit. "auto" is compared and counted as direct_ordered, which it chooses where
/// NVLink joins all ranks.
[[nodiscard]] std::optional<Scheme> scheme_named(std::string_view word);

[[nodiscard]] nlohmann::ordered_json to_json(const BenchResults& results);
/// Throws UsageError naming the file and what was expected.
[[nodiscard]] BenchResults read_results(const std::string& file);

}  // namespace samesum::gpu
