// What decides how NCCL runs a call: the call itself, the communicator, the machine and the settings.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/arithmetic.hpp"
#include "model/format.hpp"
#include "model/topology.hpp"

namespace samesum {

enum class Collective : std::uint8_t { reduce, reduce_scatter, all_reduce };
/// In NCCL's numbering, which is also the order in which its choice scans them.
enum class Algorithm : std::uint8_t { tree, ring, collnet_direct, collnet_chain, nvls, nvls_tree, pat };
enum class Protocol : std::uint8_t { ll, ll128, simple };

inline constexpr std::array all_collectives{Collective::reduce, Collective::reduce_scatter, Collective::all_reduce};
inline constexpr std::array all_algorithms{
    Algorithm::tree,      Algorithm::ring, Algorithm::collnet_direct, Algorithm::collnet_chain, Algorithm::nvls,
    Algorithm::nvls_tree, Algorithm::pat};
inline constexpr std::array all_protocols{Protocol::ll, Protocol::ll128, Protocol::simple};

/// Names are case-insensitive and those of NCCL's environment ("Ring", "LL128") and log; unknown ones throw UsageError.
[[nodiscard]] Collective parse_collective(std::string_view word);
[[nodiscard]] Algorithm parse_algorithm(std::string_view word);
[[nodiscard]] Protocol parse_protocol(std::string_view word);
[[nodiscard]] std::string_view name(Collective collective);
[[nodiscard]] std::string_view name(Algorithm algorithm);
[[nodiscard]] std::string_view name(Protocol protocol);

/// NCCL's release; the model knows 2.27 to 2.30.
struct NcclVersion {
    int major = 2, minor = 28, patch = 9;
    friend auto operator<=>(const NcclVersion&, const NcclVersion&) = default;
};
[[nodiscard]] NcclVersion parse_nccl_version(std::string_view text);
[[nodiscard]] std::string str(NcclVersion version);

/// One API call. `count` is NCCL's argument: elements of the vector, for reduce_scatter elements per rank.
struct Call {
    Collective collective = Collective::all_reduce;
    std::uint64_t count = 0;
    Format format = Format::float32;
    Operation operation = Operation::sum;
    int root = 0;             ///< of a reduce
    bool in_place = false;    ///< sendbuff == recvbuff: an all-reduce is then never registered
    bool registered = false;  ///< ncclCommRegister'ed or captured in a CUDA graph (NCCL_GRAPH_REGISTER)

    /// Elements of the result over all ranks: count, for reduce_scatter count * ranks.
    [[nodiscard]] std::uint64_t total(int ranks) const {
        return collective == Collective::reduce_scatter ? count * static_cast<std::uint64_t>(ranks) : count;
    }
};

/// What NCCL decided for one call or one aggregate of calls.
struct Choice {
    Algorithm algorithm = Algorithm::ring;
    Protocol protocol = Protocol::simple;
    int max_channels = 1;
};

enum class CpuVendor : std::uint8_t { intel, amd, other };

/// Speeds of one search graph as NCCL prints them ("Pattern 4, ... bw 1.2/1.2").
struct GraphSpeed {
    int channels = 0;                   ///< before they are doubled
    double bw_intra = 0, bw_inter = 0;  ///< GB/s a channel
    double latency_inter = 0;           ///< us
    bool nvlink = true;                 ///< typeIntra is NVL (else as PCI)
    bool same_channels = true;
};

/// What NCCL's cost model asks of the machine. Needed only where the choice is left to NCCL.
struct Machine {
    int compute_capability = 90;
    CpuVendor cpu = CpuVendor::intel;
    bool ll128 = false;       ///< enabled by link types (typeInter <= PXN, typeIntra <= NVB)
    bool nvls = false;        ///< multicast support, NVSwitch, 2 or more heads
    bool pat_network = true;  ///< net device of type "host", so that PAT may run
    GraphSpeed ring, tree, nvls_graph;
};

/// NCCL_* settings that act on the order; absent ones are NCCL's defaults.
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

/// Reads a value as NCCL_ALGO and NCCL_PROTO take it ("Ring", "^LL128", "allreduce:tree;reducescatter:ring").
/// Throws UsageError.
void set_algorithms(Settings& settings, std::string_view value);
void set_protocols(Settings& settings, std::string_view value);

/// A communicator as far as the order of sums depends on it.
struct Communicator {
    Topology topology;
    NcclVersion version{};
    Settings settings{};
    std::optional<Machine> machine{};

    [[nodiscard]] int ranks() const { return topology.ranks(); }
    [[nodiscard]] int nodes() const { return topology.nodes(); }
    [[nodiscard]] int channels() const { return static_cast<int>(topology.channels().size()); }
};

}  // namespace samesum
