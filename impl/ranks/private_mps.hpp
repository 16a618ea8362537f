// A private MPS daemon, so that several ranks share a GPU without taking turns.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

namespace samesum::gpu {

/// Runs nvidia-cuda-mps-control with pipe and log folders of its own while it lives. A keeper process holds the daemon
/// and stops it when this object goes, or when this process ends in whatever way. No GPU setting is touched.
class PrivateMps {
public:
    /// False where the program is not installed, or where the environment already names a daemon.
    [[nodiscard]] static bool available();

    /// Throws Inconclusive when the daemon does not start.
    PrivateMps();
    ~PrivateMps();
    PrivateMps(const PrivateMps&) = delete;
    PrivateMps& operator=(const PrivateMps&) = delete;

    /// What a process that wants to use the daemon must have in its environment.
    [[nodiscard]] const std::map<std::string, std::string>& environment() const { return environment_; }

private:
    std::string folder_;
    std::map<std::string, std::string> environment_;
    pid_t supervisor_ = -1;
    int lifetime_pipe_ = -1;  ///< the keeper sees this end close
};

}  // namespace samesum::gpu
