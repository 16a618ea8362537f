// A private folder for the time of a piece of work.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace samesum {

/// A new folder under the system's temporary folder that only this user may enter (0700). The destructor removes it
/// with all that it holds. Throws Inconclusive where it cannot be made.
class TemporaryFolder {
public:
    explicit TemporaryFolder(const std::string& prefix = "samesum");
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }

private:
    std::filesystem::path path_;
};

}  // namespace samesum
