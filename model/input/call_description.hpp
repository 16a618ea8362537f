// A communicator and a call as a user describes them, and what is planned for that description.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/input/graph_file.hpp"
#include "model/input/nccl_log.hpp"
#include "model/nccl/communicator.hpp"
#include "model/nccl/schedule.hpp"
#include "model/support/environment.hpp"

namespace samesum {

/// What a user can say about a communicator. Of `rings`, `log` and `graph` at most one is given.
struct CommunicatorDescription {
    std::optional<int> ranks{}, ranks_per_node{}, channels{};
    std::optional<std::vector<Ring>> rings{};  ///< by channel
    std::optional<NcclLog> log{};
    std::string log_communicator{};           ///< its id or place in the log; empty: the log's largest
    std::optional<int> compute_capability{};  ///< for the log's cost model, e.g. 90
    std::optional<GraphFile> graph{};
    std::optional<Environment> environment{};
    std::optional<NcclVersion> version{};
    std::optional<Machine> machine{};
    Forced forced{};
    std::vector<std::string> assumptions{};  ///< made by whoever filled this in; resolve() adds its own
};

/// What a user can say about a call on it.
struct CallDescription {
    CommunicatorDescription communicator{};
    std::optional<Collective> collective{};
    std::optional<std::uint64_t> count{};
    std::optional<int> root{};
    Format format = Format::float32;
    Operation operation = Operation::sum;
    std::vector<Call> group{};  ///< a whole group, in place of collective, count and root
    int index = 0;              ///< which call of the group is meant
    bool in_place = false, registered = false;
    std::string symmetric_kernel{};  ///< empty: an ordinary kernel
    int symmetric_blocks = 1;
};

/// A communicator, and the assumptions behind it, each with a way to verify it.
struct ResolvedCommunicator {
    Communicator comm;
    Forced forced{};
    std::vector<std::string> assumptions{};
};

/// A call on a communicator, ready to be planned.
struct ResolvedCall : ResolvedCommunicator {
    std::vector<Call> group{};  ///< in program order; a lone call is a group of one
    std::size_t index = 0;      ///< the call that is meant
    std::string symmetric_kernel{};
    int symmetric_blocks = 1;

    [[nodiscard]] const Call& call() const { return group[index]; }
    [[nodiscard]] Plan plan() const;
};

/// Both throw UsageError naming the input that is wrong, or the one that would supply what is missing (in the words of
/// input_name()): nothing is assumed silently.
[[nodiscard]] ResolvedCommunicator resolve(const CommunicatorDescription& description);
[[nodiscard]] ResolvedCall resolve(const CallDescription& description);

/// Ring for all algorithms and Simple for all protocols that are neither given nor chosen by a machine's cost model;
/// added to the assumptions.
void assume_ring_and_simple(ResolvedCommunicator& resolved);

/// Grammars of single inputs; `flag` is what the command line calls the input.
/// "4096" or "64x2048".
[[nodiscard]] std::uint64_t parse_count(std::string_view text, std::string_view flag);
/// "0,1,2,3;0,3,2,1": the ring of each channel.
[[nodiscard]] std::vector<Ring> parse_rings(std::string_view text);
/// "sm=90,cpu=intel,ring=1:1.2:1.2,tree=1:1.2:1.2,ll128=0,nvlink=1": what NCCL's cost model needs of a machine.
[[nodiscard]] Machine parse_machine(std::string_view text);

/// "Reduce of 262144 float32 to root 0 over 8 ranks".
[[nodiscard]] std::string describe(const Call& call, int ranks);
[[nodiscard]] std::string describe(const ResolvedCall& resolved);
/// "RING, SIMPLE, channels 0..3".
[[nodiscard]] std::string describe(const Plan& plan);

}  // namespace samesum
