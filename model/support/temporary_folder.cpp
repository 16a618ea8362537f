// mkdtemp makes the name and the folder in one step.
// SPDX-License-Identifier: Apache-2.0
#include "model/support/temporary_folder.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "model/support/error.hpp"

namespace samesum {

TemporaryFolder::TemporaryFolder(const std::string& prefix) {
    std::string name = (std::filesystem::temp_directory_path() / (prefix + "-XXXXXX")).string();
    if (::mkdtemp(name.data()) == nullptr)
        throw Inconclusive(fmt::format("cannot make a temporary folder like {}: {}", name, std::strerror(errno)));
    path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

}  // namespace samesum
