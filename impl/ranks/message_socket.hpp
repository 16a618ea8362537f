// The wire between a group and its ranks: whole messages over a socket, with or without the bytes that they speak of.
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

/// A part of the memory that a rank and its group share; a rank on another host has a copy of its own.
struct Range {
    std::uint64_t offset = 0, bytes = 0;
};

struct Message {
    enum class Kind : char {
        command = 'c',
        answer = 'a',
        error = 'e',
        usage_error = 'u',
        died = 'd',     ///< the rank did; the text says how
        start = 's',    ///< another host's rank is to start
        started = 'm',  ///< and has; "shared" if it sees the group's memory
        end = 'k',      ///< it is to end at once; the answer says what it was doing
        leave = 'x',    ///< the job is over; the text is the exit code
    };
    Kind kind = Kind::answer;
    std::string text;
    std::vector<Range> ranges;
};

/// Owns a connected socket. Both ends are of the same version and the same byte order.
class MessageSocket {
public:
    explicit MessageSocket(int socket = -1) : socket_(socket) {}
    ~MessageSocket() { close(); }
    MessageSocket(MessageSocket&& other) noexcept;
    MessageSocket& operator=(MessageSocket&& other) noexcept;

    [[nodiscard]] int socket() const { return socket_; }
    [[nodiscard]] explicit operator bool() const { return socket_ >= 0; }
    void close();

    /// The bytes of the ranges follow the message where `carried` is the memory that they lie in; they do not where it
    /// is empty, because the other end sees the same memory. False when nobody is there any more.
    bool write(Message::Kind kind, std::string_view text, std::span<const Range> ranges = {},
               std::span<const std::byte> carried = {});
    /// Waits; bytes that follow go where they belong in `memory`. Nothing when nobody is there any more, or somebody
    /// who does not speak this language.
    [[nodiscard]] std::optional<Message> read(std::span<std::byte> memory = {});
    /// Is there anything to read within so many seconds?
    [[nodiscard]] bool waiting(double seconds) const;

private:
    int socket_;
};

}  // namespace samesum::gpu
