// Memory that the processes of one group of ranks share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace samesum::gpu {

/// Anonymous memory (memfd): several processes map it, and it has no name in any file system. Pages are allocated when
/// they are first touched.
class SharedMemory {
public:
    explicit SharedMemory(std::size_t bytes);
    /// Maps another process's memory by its name(). Nothing where that process is not visible: on another host, or in
    /// another container.
    [[nodiscard]] static std::optional<SharedMemory> of(const std::string& name);
    ~SharedMemory();
    SharedMemory(SharedMemory&& other) noexcept;
    SharedMemory& operator=(SharedMemory&&) = delete;

    [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
    /// Identifies the memory for other processes: boot id, process, descriptor, device, inode, size.
    [[nodiscard]] std::string name() const;

private:
    SharedMemory(int file, std::span<std::byte> bytes) : file_(file), bytes_(bytes) {}

    int file_;
    std::span<std::byte> bytes_;
};

}  // namespace samesum::gpu
