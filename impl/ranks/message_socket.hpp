// Whole messages between a group and its ranks over a socket, with or without the data that they refer to.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace samesum::gpu {

/// A part of the memory that a rank and its group share. A rank on another host has a copy of its own.
struct Range {
    std::uint64_t offset = 0, bytes = 0;
};

struct Message {
    enum class Kind : char {
        command = 'c',
        answer = 'a',
        error = 'e',
        usage_error = 'u',
        died = 'd',     ///< the rank died; the text says how
        start = 's',    ///< start the rank of another process
        started = 'm',  ///< that rank has started; "shared" if it sees the group's memory
        end = 'k',      ///< end the rank at once; the reply says what it was doing
        leave = 'x',    ///< the job is over; the text is the exit code
    };
    Kind kind = Kind::answer;
    std::string text;
    std::vector<Range> ranges;
};

/// Owns a connected socket. Both ends have the same version of samesum and the same byte order.
class MessageSocket {
public:
    explicit MessageSocket(int socket = -1) : socket_(socket) {}
    ~MessageSocket() { close(); }
    MessageSocket(MessageSocket&& other) noexcept;
    MessageSocket& operator=(MessageSocket&& other) noexcept;

    [[nodiscard]] int descriptor() const { return socket_; }
    [[nodiscard]] explicit operator bool() const { return socket_ >= 0; }
    void close();

    /// Where the other end does not share the memory, pass it as `memory`: the bytes of the ranges then follow the
    /// message. False when the other end is gone.
    bool write(Message::Kind kind, std::string_view text, std::span<const Range> ranges = {},
               std::span<const std::byte> memory = {});
    /// Waits for a message. Bytes that follow it are written to their ranges of `memory`. Nothing when the other end is
    /// gone or does not use this protocol.
    [[nodiscard]] std::optional<Message> read(std::span<std::byte> memory = {});
    /// Is there anything to read within so many seconds?
    [[nodiscard]] bool readable_within(double seconds) const;

private:
    int socket_;
};

}  // namespace samesum::gpu
