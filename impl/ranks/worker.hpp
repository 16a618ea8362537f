// What a rank's own process does: a worker that answers commands, and what it sees of its group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "impl/ranks/message_socket.hpp"

namespace samesum::gpu {

/// What a rank's process sees of its group.
class RankContext {
public:
    RankContext(int rank, int ranks, std::span<std::byte> memory, std::span<char> current_call, int log,
                std::vector<Range>& results);

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int ranks() const { return ranks_; }
    /// The inputs that came with the command, at the parent's offsets.
    [[nodiscard]] std::span<const std::byte> input(std::uint64_t offset, std::uint64_t bytes) const;
    /// Room for a result; the parent sees it once the answer has arrived.
    [[nodiscard]] std::span<std::byte> result(std::uint64_t offset, std::uint64_t bytes) const;
    /// Records which call comes next; the parent quotes it when this rank dies or hangs.
    void set_current_call(std::string_view call) const;
    /// A path that opens this rank's log inside its own process; the parent reads it by RankGroup::log().
    [[nodiscard]] std::string log_file() const;

private:
    int rank_, ranks_;
    std::span<std::byte> memory_;
    std::span<char> current_call_;
    int log_;
    std::vector<Range>* results_;
};

/// The work of one rank. What answer() throws reaches the parent as a RankFailure (a UsageError as itself) and ends the
/// group.
class Worker {
public:
    virtual ~Worker() = default;
    [[nodiscard]] virtual std::string answer(std::string_view command) = 0;
};
/// Called in the rank's own process, after its environment is set.
using WorkerFactory = std::function<std::unique_ptr<Worker>(const RankContext&)>;

}  // namespace samesum::gpu
