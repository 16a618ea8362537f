// The model's prediction compared with a recorded call, element by element.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "model/input/recording.hpp"
#include "model/nccl/communicator.hpp"

namespace samesum {

struct Match {
    enum class Outcome : std::uint8_t { matched, differs, not_modelled };
    Outcome outcome = Outcome::matched;
    std::string why;  ///< what differs, or what is not modelled
};

/// Predicts the record's call from its settings, rings and tree links, and compares choice, channels and the order of
/// every element.
[[nodiscard]] Match check_record(const Record& record);

/// The communicator of a record; throws UsageError when rank 0's tree links fit no known pattern.
[[nodiscard]] Communicator communicator_of(const Record& record);

}  // namespace samesum
