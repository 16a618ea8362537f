// The call stream of a job, written beside it: JSON lines that `samesum order calls` reads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "impl/dropin/communicator_state.hpp"
#include "impl/dropin/data_call.hpp"
#include "impl/dropin/policy.hpp"

namespace samesum::dropin {

/// One for each process; a forked child begins its own. The file is named by SAMESUM_CALLS, in which %h stands for the
/// host and %p for the process (without %p it is appended, so that ranks never share a file), else
/// samesum-calls.%h.%p.jsonl.
///
/// A call costs its thread one entry of fixed size in a buffer of its own; a thread of the recorder's writes what has
/// come in every half second, and the rest when the process ends.
class Recorder {
public:
    /// Why nothing can be written, or nothing.
    [[nodiscard]] const std::string& complaint();
    void record(const DataCall& call, CommunicatorState& state, Decision::Act did, std::uint64_t group);

private:
    friend Recorder& recorder();
    Recorder() = default;
    struct Entry;
    struct Buffer;
    struct Writer;
    Writer& writer();
    [[nodiscard]] Buffer& buffer();
    void introduce(CommunicatorState& state);

    Writer* writer_ = nullptr;
};
[[nodiscard]] Recorder& recorder();

}  // namespace samesum::dropin
