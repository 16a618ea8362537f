// The calls that a job made, as libsamesum-nccl wrote them down, and what their sums' orders depend on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/environment.hpp"
#include "model/nccl.hpp"
#include "model/scenario.hpp"

namespace samesum {

/// One communicator as one process saw it.
struct RecordedCommunicator {
    int ranks = 0;
    int rank = 0;
    std::optional<int> gpus_seen;  ///< of its host
};

struct RecordedCall {
    std::string collective;              ///< NCCL's name, "AllReduce"
    std::optional<Collective> reducing;  ///< none for those that add nothing
    std::optional<Format> format;        ///< none where NCCL knows no such type
    Operation operation = Operation::sum;
    std::uint64_t communicator = 0;  ///< key of CallStream::communicators
    std::uint64_t count = 0;
    int root = 0;
    std::uint64_t group = 0;  ///< calls of one ncclGroupStart/End share a number; 0: a call by itself
    bool captured = false, in_place = false;
    std::string did;  ///< "forwarded", "replaced" or "refused"
};

/// What one process wrote.
struct CallStream {
    std::string file;
    NcclVersion version{};
    std::string policy{};       ///< "observe", "fixed_root", "ordered" or "direct"
    Environment environment{};  ///< its NCCL_* settings
    std::map<std::uint64_t, RecordedCommunicator> communicators{};
    std::vector<RecordedCall> calls{};
};

/// A last line that a killed process left unfinished is passed over. Throws UsageError naming file and line.
[[nodiscard]] CallStream parse_call_stream(std::string_view text, const std::string& file);

/// What a sum's order depends on, from harmless to worst.
enum class OrderClass : std::uint8_t {
    nothing_added,       ///< moves data only, or no elements
    no_order,            ///< integers wrap, minima and maxima keep: every order has the same bits
    one_addition,        ///< two ranks
    invariant,           ///< one order for every element, count and owner
    refused,             ///< the policy did not let it run
    not_observable,      ///< an adder that cannot be seen into
    count_dependent,     ///< other counts are added in other orders
    position_dependent,  ///< elements of one call are added in different orders
    owner_dependent,     ///< by the rank that receives them
};
[[nodiscard]] std::string_view name(OrderClass order_class);
[[nodiscard]] bool depends(OrderClass order_class);

/// Calls that are alike, and what was found out about them.
struct JudgedCalls {
    RecordedCall call;  ///< the first of them
    int ranks = 0;
    std::size_t times = 0;
    std::string prediction{};  ///< "RING, SIMPLE, channels 0..3"; empty where none was needed
    OrderClass order_class{};
    std::string why{};
};

/// Judges the calls of all streams, the most frequent first of the worst class first. `scenario_for` describes a
/// communicator; where it leaves algorithm or protocol open and gives no machine, Ring and Simple are assumed, and said
/// in `assumptions`, as is all that the scenarios assume.
[[nodiscard]] std::vector<JudgedCalls> judge_calls(
    std::span<const CallStream> streams,
    const std::function<Scenario(const CallStream&, const RecordedCommunicator&)>& scenario_for,
    std::vector<std::string>& assumptions);

}  // namespace samesum
