// Which host and which process this is: one answer for everything that asks whether two ranks share one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace samesum {

/// Names the host's current boot; "-" where the kernel does not say.
[[nodiscard]] std::string boot_id();

/// The host's name and its boot, as NCCL tells hosts apart (misc/utils.cc, getHostHash): two hosts may have one name.
[[nodiscard]] std::string host_identity();

/// The process's number and the namespace in which it counts: two containers may each have a process 1.
[[nodiscard]] std::string process_identity();

}  // namespace samesum
