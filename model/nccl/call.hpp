// One call of NCCL's API: collective, algorithm, protocol, NCCL release, and what NCCL chose for it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/arithmetic/format.hpp"
#include "model/arithmetic/operation.hpp"

namespace samesum {

enum class Collective : std::uint8_t { reduce, reduce_scatter, all_reduce };
/// In NCCL's numbering, which is also the order in which its tuning scans them.
enum class Algorithm : std::uint8_t { tree, ring, collnet_direct, collnet_chain, nvls, nvls_tree, pat };
enum class Protocol : std::uint8_t { ll, ll128, simple };

inline constexpr std::array all_collectives{Collective::reduce, Collective::reduce_scatter, Collective::all_reduce};
inline constexpr std::array all_algorithms{
    Algorithm::tree,      Algorithm::ring, Algorithm::collnet_direct, Algorithm::collnet_chain, Algorithm::nvls,
    Algorithm::nvls_tree, Algorithm::pat};
inline constexpr std::array all_protocols{Protocol::ll, Protocol::ll128, Protocol::simple};

/// Lower case without '_' and '-': "ReduceScatter", "reduce_scatter" and "REDUCESCATTER" all give "reducescatter".
[[nodiscard]] std::string folded(std::string_view word);
/// Names as in NCCL's environment variables ("Ring", "LL128") and log, case-insensitive. Unknown ones throw UsageError.
[[nodiscard]] Collective parse_collective(std::string_view word);
[[nodiscard]] Algorithm parse_algorithm(std::string_view word);
[[nodiscard]] Protocol parse_protocol(std::string_view word);
[[nodiscard]] std::string_view name(Collective collective);
[[nodiscard]] std::string_view name(Algorithm algorithm);
[[nodiscard]] std::string_view name(Protocol protocol);

/// NCCL's release; the model covers 2.27 to 2.30.
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

/// What the caller fixes instead of leaving it to NCCL.
struct Forced {
    std::optional<Algorithm> algorithm;
    std::optional<Protocol> protocol;
};

}  // namespace samesum
