// Writes the call stream of a running job: JSON lines that `samesum order calls` reads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "impl/dropin/communicator_state.hpp"
#include "impl/dropin/data_call.hpp"
#include "impl/dropin/policy.hpp"

namespace samesum::dropin {

/// One for each process; a forked child makes its own. SAMESUM_CALLS names the file, else it is
/// samesum-calls.%h.%p.jsonl. In the name %h stands for the host and %p for the process; without %p the process is
/// appended, so that ranks never share a file. A file of that name is never overwritten: the next free number is added.
///
/// A call costs its thread one record of fixed size in the thread's own ring. A thread of the recorder writes the new
/// records every half second, and the remaining ones when the process ends.
class Recorder {
public:
    /// Why the file cannot be written; empty when it can.
    [[nodiscard]] const std::string& error() const;
    void record(const DataCall& call, CommunicatorState& state, Decision::Action action, std::uint64_t group);

private:
    friend Recorder& recorder();
    Recorder() = default;
    struct CallRecord;
    struct Ring;
    struct Writer;
    /// The calling thread's ring.
    [[nodiscard]] Ring& own_ring();
    /// Writes the line of a communicator that is not in the file yet.
    void describe(CommunicatorState& state);

    Writer* writer_ = nullptr;
};
[[nodiscard]] Recorder& recorder();

}  // namespace samesum::dropin
