// A private MPS daemon, so that several ranks run on one GPU at the same time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "model/support/temporary_folder.hpp"

namespace samesum::gpu {

/// Runs nvidia-cuda-mps-control with its own pipe and log folders for as long as this object lives. A supervisor
/// process starts the daemon, and stops it when this object is destroyed or this process ends, however that happens. No
/// setting of the GPU is changed.
class PrivateMps {
public:
    /// False where the program is not installed, or where the environment already names a daemon.
    [[nodiscard]] static bool available();

    /// Throws Inconclusive when the daemon does not start.
    PrivateMps();
    ~PrivateMps();
    PrivateMps(const PrivateMps&) = delete;
    PrivateMps& operator=(const PrivateMps&) = delete;

    /// The variables that a process needs to use the daemon.
    [[nodiscard]] const std::map<std::string, std::string>& environment() const { return environment_; }

private:
    TemporaryFolder folder_{"samesum-mps"};
    std::map<std::string, std::string> environment_;
    pid_t supervisor_ = -1;
    int lifetime_pipe_ = -1;  ///< the supervisor stops when this end is closed
};

}  // namespace samesum::gpu
