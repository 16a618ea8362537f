// Real ranks on this machine's GPUs: where they sit, what NCCL is told, what it said, and the calls they make.
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

#include "impl/ranks/launched_job.hpp"
#include "impl/ranks/private_mps.hpp"
#include "impl/ranks/rank_group.hpp"
#include "model/combine/routing.hpp"
#include "model/combine/scheme.hpp"
#include "model/nccl/call.hpp"

namespace samesum::gpu {

/// Where a rank that a launcher started sits.
struct RankLocation {
    std::string host, gpu;  ///< equal words, same thing
    int device = 0;         ///< the GPU's number in the rank's process
};

/// The GPUs and versions of this machine, or of a crew's machines, found out in processes of their own.
struct Hardware {
    std::vector<std::string> gpus;  ///< names; of a crew's machines those that ranks sit on
    int compute_capability = 0;     ///< of the first
    std::string driver, runtime;
    NcclVersion nccl;
    std::vector<RankLocation> locations{};  ///< of the crew's ranks; none where this process starts its own
};
/// Throws Inconclusive, with the reason, where there is no usable GPU or a crew's ranks do not have the same.
[[nodiscard]] Hardware probe_hardware();

/// Who sits where. Ranks of one node sit on different GPUs; a node is a host, or a value of NCCL_HOSTID.
struct Placement {
    int ranks = 1, ranks_per_node = 1;
    std::vector<int> gpu_of;
    bool several_nodes = false;
    bool gpus_are_shared = false;
    int hosts = 1;
    bool nodes_are_hosts = false;  ///< NCCL need not be told
};
/// One node where the GPUs suffice and `ranks_per_node` is 0; else nodes of so many ranks (1 when 0).
/// Throws UsageError when a node's ranks outnumber the GPUs or do not divide the ranks.
[[nodiscard]] Placement place_ranks(int ranks, int ranks_per_node, int gpus);
/// The same for the first ranks of a crew, whose hosts are the nodes when `ranks_per_node` is 0 and no two ranks share
/// a GPU. Consecutive ranks must sit on one host then, equally many on each.
[[nodiscard]] Placement place_ranks(int ranks, int ranks_per_node, std::span<const RankLocation> locations);
[[nodiscard]] Placement place_ranks(int ranks, int ranks_per_node, const Hardware& hardware);

enum class MpsUse : std::uint8_t { automatic, on, off };

/// NCCL's settings of one communicator, as environment variables; those that are absent are unset.
struct NcclEnvironment {
    std::string algorithms, protocols;  ///< NCCL_ALGO, NCCL_PROTO
    std::string graph_file;             ///< NCCL_GRAPH_FILE
    std::string min_channels;           ///< NCCL_MIN_NCHANNELS
    friend bool operator==(const NcclEnvironment&, const NcclEnvironment&) = default;
};

/// What NCCL wrote when the communicator was made.
struct StartLog {
    std::vector<std::string> rings;   ///< "Channel 00/02 : 0 1 2 3"
    std::string rank0_trees;          ///< "Trees [0] ..."
    std::string text;                 ///< all of it, from rank 0
    std::vector<std::string> graphs;  ///< "Pattern 4, crossNic 0, nChannels 1, bw 1.2/1.2, ...": speeds of the search
};

/// One run of a group of calls on all ranks.
struct ReduceGroup {
    std::vector<Call> calls;  ///< of one format and one operation
    bool captured = false;    ///< in a CUDA graph

    [[nodiscard]] std::uint64_t total(int ranks) const;  ///< elements of all results together
};

/// How a combine is run, beside the request itself.
struct CombineRun {
    Scheme scheme = Scheme::fixed_root;
    bool fastest = false;  ///< the fastest ordered scheme instead; to be judged as any ordered one
    Routing routing;
    Format format = Format::bfloat16;
    int root = 0;
    Accumulation accumulation = Accumulation::per_hop;
    int ranks_per_node = 0;  ///< of the ordered schemes by node; 0: one sum over all ranks
    std::string fault = "none";
    bool captured = false, in_place = false;
    int shift = 0;        ///< elements by which the buffers are off their alignment
    double delay_s = 0;   ///< a producer that is still running when the combine is enqueued
    bool guards = false;  ///< also look whether anything else was written
    bool digest = true;
    /// The rows of the inputs that are others than in the call before, where the rest lies as it did: only they travel
    /// to the GPU. Absent: any.
    std::optional<std::vector<std::uint64_t>> changed_rows{};
};

struct CombineOutcome {
    std::vector<std::uint64_t> digests;  ///< FNV-1a of each rank's own rows, if asked for
    std::string said;                    ///< NCCL's lines about the calls, joined by " | "
    std::string ran;                     ///< the scheme
    std::string damage;                  ///< which rank wrote outside its result, if guards were set
};

/// NCCL refused what its settings force; the text is its own.
struct Refusal : Inconclusive {
    using Inconclusive::Inconclusive;
};

/// What is timed on equal chunks of `hidden` elements, and how.
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

    /// A new communicator; the old one is closed.
    void open(const NcclEnvironment& environment);
    [[nodiscard]] const NcclEnvironment& environment() const { return environment_; }
    [[nodiscard]] const StartLog& start_log() const { return log_; }

    /// Runs the group once for each mask: mask[r] is what rank r contributes at every element. Returns, mask after
    /// mask, all elements of all calls in program order. `said` gets NCCL's lines about the last run.
    /// The returned bytes stay valid until the next command.
    [[nodiscard]] std::vector<std::span<const std::byte>> run_masks(const ReduceGroup& group,
                                                                    std::span<const std::vector<Bits>> masks,
                                                                    std::string& said);
    /// Where rank r's input is to be written before run_data(): the calls' inputs one after another.
    [[nodiscard]] std::span<std::byte> input(int rank, std::uint64_t bytes);
    /// Throws Inconclusive when the ranks of an all-reduce hold different bits.
    [[nodiscard]] std::span<const std::byte> run_data(const ReduceGroup& group, std::string& said);

    /// Combines the partials that input() holds; result() then holds the [rows, hidden] result.
    CombineOutcome combine(const CombineRun& run);
    [[nodiscard]] std::span<const std::byte> result(std::uint64_t bytes) const;

    /// Microseconds of every scheme and limit, repetition by repetition: the slowest rank's.
    [[nodiscard]] std::map<std::string, std::vector<double>> bench(const BenchRun& run);

private:
    std::vector<std::string> ask(std::span<const std::string> commands, std::span<const Range> inputs = {});
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
    int opened_at_start_ = 0;  ///< group_->starts() when the communicator was made; 0: none
};

}  // namespace samesum::gpu
