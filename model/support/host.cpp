// What Linux says of the host and the process, by /proc.
// SPDX-License-Identifier: Apache-2.0
#include "model/support/host.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace samesum {

std::string boot_id() {
    std::string id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
    return id.empty() ? "-" : id;
}

std::string host_identity() {
    std::array<char, HOST_NAME_MAX + 1> name{};
    ::gethostname(name.data(), name.size() - 1);
    return fmt::format("{} {}", name.data(), boot_id());
}

std::string process_identity() {
    std::error_code ignored;
    return fmt::format("{} {}", ::getpid(), std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string());
}

}  // namespace samesum
