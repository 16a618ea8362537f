// Real ranks on GPUs: how NCCL is set up, what it logs, and the calls that the ranks make.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "impl/ranks/placement.hpp"
#include "impl/ranks/private_mps.hpp"
#include "impl/ranks/rank_group.hpp"
#include "model/arithmetic/format.hpp"
#include "model/combine/routing.hpp"
#include "model/combine/scheme.hpp"
#include "model/nccl/call.hpp"

namespace samesum::gpu {

/// The hardware that ranks find, each in its own process. Throws Inconclusive with the reason where there is no usable
/// GPU, or where a launched job's ranks have different GPUs or versions.
[[nodiscard]] Hardware probe_hardware();

enum class MpsUse : std::uint8_t { automatic, on, off };

/// NCCL's settings of one communicator, as environment variables. An empty one keeps the user's value.
struct NcclEnvironment {
    std::string algorithms, protocols;  ///< NCCL_ALGO, NCCL_PROTO
    std::string graph_file;             ///< NCCL_GRAPH_FILE
    std::string min_channels;           ///< NCCL_MIN_NCHANNELS
    friend bool operator==(const NcclEnvironment&, const NcclEnvironment&) = default;
};

/// What NCCL logged when the communicator was created.
struct StartLog {
    std::vector<std::string> rings;  ///< "Channel 00/02 : 0 1 2 3"
    std::string rank0_trees;         ///< "Trees [0] ..."
    std::string text;                ///< the whole log of rank 0
    std::vector<std::string>
        graphs;  ///< "Pattern 4, crossNic 0, nChannels 1, bw 1.2/1.2, ...": bandwidths of the search
};

/// One run of a group of calls on all ranks.
struct ReduceGroup {
    std::vector<Call> calls;  ///< of one format and one operation
    bool captured = false;    ///< in a CUDA graph

    [[nodiscard]] std::uint64_t total(int ranks) const;  ///< elements of all results together
};

/// A combine and how it is run.
struct CombineRun {
    Scheme scheme = Scheme::fixed_root;
    bool fastest = false;  ///< the fastest ordered scheme instead; all of them give the same bits
    Routing routing;
    Format format = Format::bfloat16;
    int root = 0;
    Accumulation accumulation = Accumulation::per_hop;
    int ranks_per_node = 0;  ///< of the ordered schemes by node; 0: one sum over all ranks
    std::string fault = "none";
    bool captured = false, in_place = false;
    int shift = 0;        ///< elements by which the buffers are misaligned
    double delay_s = 0;   ///< a producer kernel that still runs when the combine is enqueued
    bool guards = false;  ///< also check that nothing but the result was written
    bool digest = true;
    /// The rows of the inputs that have changed since the last call: only they are copied to the GPU. Absent: all may
    /// have changed.
    std::optional<std::vector<std::uint64_t>> changed_rows{};
};

struct CombineOutcome {
    std::vector<std::uint64_t> digests;  ///< FNV-1a of each rank's own rows, if asked for
    std::string said;                    ///< NCCL's log lines about the calls, joined by " | "
    std::string ran;                     ///< the scheme that ran
    std::string damage;                  ///< which rank wrote outside its result, if guards were set
};

/// NCCL refused what its settings force; the text is NCCL's.
struct Refusal : Inconclusive {
    using Inconclusive::Inconclusive;
};

/// The schemes to time on equal chunks of `hidden` elements, and how.
struct BenchRun {
    std::vector<std::string> schemes;  ///< names, or "auto"
    std::uint64_t hidden = 0;
    Format format = Format::bfloat16;
    Accumulation accumulation = Accumulation::per_hop;
    int iterations = 20, repetitions = 11;
    bool captured = true;
    bool limits = true;  ///< also "peer_read", "peer_write" and "launch"
};

class LiveRanks {
public:
    struct Options {
        int ranks = 2, ranks_per_node = 0;
        MpsUse mps = MpsUse::automatic;
        double timeout_s = 60;  ///< for one command
    };
    LiveRanks(const Options& options, const Hardware& hardware);
    ~LiveRanks();

    [[nodiscard]] int ranks() const { return placement_.ranks; }
    [[nodiscard]] const Placement& placement() const { return placement_; }
    [[nodiscard]] const Hardware& hardware() const { return hardware_; }
    [[nodiscard]] bool uses_mps() const { return mps_ != nullptr; }
    [[nodiscard]] RankGroup& group() { return *group_; }

    /// Creates a communicator; an open one is closed first.
    void open(const NcclEnvironment& environment);
    [[nodiscard]] const NcclEnvironment& environment() const { return environment_; }
    [[nodiscard]] const StartLog& start_log() const { return log_; }

    /// Runs the group once for each mask: mask[r] is rank r's value of every element. Returns for each mask all
    /// elements of all calls in program order; the bytes stay valid until the next command. `said` gets NCCL's log
    /// lines about the last run.
    [[nodiscard]] std::vector<std::span<const std::byte>> run_masks(const ReduceGroup& group,
                                                                    std::span<const std::vector<Bits>> masks,
                                                                    std::string& said);
    /// Room for rank r's input of run_data() or combine(): the calls' inputs one after another.
    [[nodiscard]] std::span<std::byte> input(int rank, std::uint64_t bytes);
    /// Throws Inconclusive when the ranks of an all-reduce hold different bits.
    [[nodiscard]] std::span<const std::byte> run_data(const ReduceGroup& group, std::string& said);

    /// Combines the partials in input(); result() then holds the [rows, hidden] result.
    CombineOutcome combine(const CombineRun& run);
    [[nodiscard]] std::span<const std::byte> result(std::uint64_t bytes) const;

    /// Microseconds of every scheme and limit, one for each repetition: the slowest rank's.
    [[nodiscard]] std::map<std::string, std::vector<double>> bench(const BenchRun& run);

private:
    std::vector<std::string> execute(std::span<const std::string> commands, std::span<const Range> inputs = {});
    [[nodiscard]] bool is_open() const;
    void ensure_open();
    [[nodiscard]] std::string said_since(std::size_t mark) const;

    Placement placement_;
    Hardware hardware_;
    double timeout_s_;
    std::unique_ptr<PrivateMps> mps_;
    std::unique_ptr<RankGroup> group_;
    NcclEnvironment environment_;
    StartLog log_;
    int opened_at_start_ = 0;  ///< group_->starts() when the communicator was created; 0: none
};

}  // namespace samesum::gpu
