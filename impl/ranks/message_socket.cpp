// A message is a header, the text, the ranges, and their bytes. Header, text and ranges go out in one sendmsg.
// SPDX-License-Identifier: Apache-2.0
#include "impl/ranks/message_socket.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <utility>

namespace samesum::gpu {
namespace {

struct Header {
    std::uint64_t text_bytes;
    std::uint32_t ranges;
    char kind;
    bool has_data;
};

/// Upper bounds on what a peer may announce; samesum's own messages are shorter.
constexpr std::uint64_t max_text = std::uint64_t{1} << 32;
constexpr std::uint32_t max_ranges = 1 << 24;

/// Moves all pieces, however many bytes one sendmsg or recvmsg takes. False when the other end is gone.
template <class Move>
bool move_all(std::span<iovec> pieces, Move move) {
    while (!pieces.empty()) {
        if (pieces.front().iov_len == 0) {
            pieces = pieces.subspan(1);
            continue;
        }
        msghdr message{};
        message.msg_iov = pieces.data();
        message.msg_iovlen = std::min<std::size_t>(pieces.size(), IOV_MAX);
        const ssize_t moved = move(&message);
        if (moved < 0 && errno == EINTR) continue;
        if (moved <= 0) return false;
        auto left = static_cast<std::size_t>(moved);
        for (iovec& piece : pieces) {
            const std::size_t part = std::min(left, piece.iov_len);
            piece.iov_base = static_cast<char*>(piece.iov_base) + part;
            piece.iov_len -= part;
            left -= part;
        }
    }
    return true;
}

bool write_all(int socket, std::span<iovec> pieces) {
    return move_all(pieces, [&](const msghdr* message) { return ::sendmsg(socket, message, MSG_NOSIGNAL); });
}

bool read_all(int socket, std::span<iovec> pieces) {
    return move_all(pieces, [&](msghdr* message) { return ::recvmsg(socket, message, 0); });
}

/// The ranges as parts of the memory; nothing when one lies outside it.
template <class Byte>
std::optional<std::vector<iovec>> pieces_of(std::span<const Range> ranges, std::span<Byte> memory) {
    std::vector<iovec> pieces;
    for (const Range& range : ranges) {
        if (range.bytes > memory.size() || range.offset > memory.size() - range.bytes) return std::nullopt;
        pieces.push_back({const_cast<std::byte*>(memory.data()) + range.offset, range.bytes});
    }
    return pieces;
}

}  // namespace

MessageSocket::MessageSocket(MessageSocket&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}

MessageSocket& MessageSocket::operator=(MessageSocket&& other) noexcept {
    std::swap(socket_, other.socket_);
    return *this;
}

void MessageSocket::close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

bool MessageSocket::write(Message::Kind kind, std::string_view text, std::span<const Range> ranges,
                          std::span<const std::byte> memory) {
    Header header{};
    header.text_bytes = text.size();
    header.ranges = static_cast<std::uint32_t>(ranges.size());
    header.kind = static_cast<char>(kind);
    header.has_data = !memory.empty() && !ranges.empty();
    std::array<iovec, 3> pieces{iovec{&header, sizeof header}, iovec{const_cast<char*>(text.data()), text.size()},
                                iovec{const_cast<Range*>(ranges.data()), ranges.size_bytes()}};
    if (!write_all(socket_, pieces)) return false;
    if (!header.has_data) return true;
    auto bytes = pieces_of(ranges, memory);
    return bytes && write_all(socket_, *bytes);
}

std::optional<Message> MessageSocket::read(std::span<std::byte> memory) {
    Header header{};
    std::array<iovec, 1> first{iovec{&header, sizeof header}};
    if (!read_all(socket_, first) || header.text_bytes > max_text || header.ranges > max_ranges) return std::nullopt;
    Message message;
    message.kind = static_cast<Message::Kind>(header.kind);
    message.text.resize(header.text_bytes);
    message.ranges.resize(header.ranges);
    std::array<iovec, 2> rest{iovec{message.text.data(), message.text.size()},
                              iovec{message.ranges.data(), message.ranges.size() * sizeof(Range)}};
    if (!read_all(socket_, rest)) return std::nullopt;
    if (header.has_data) {
        auto bytes = pieces_of(std::span<const Range>(message.ranges), memory);
        if (!bytes || !read_all(socket_, *bytes)) return std::nullopt;
    }
    return message;
}

bool MessageSocket::readable_within(double seconds) const {
    pollfd each{socket_, POLLIN, 0};
    int ready = 0;
    do ready = ::poll(&each, 1, static_cast<int>(std::clamp(seconds * 1000 + 1, 0.0, 1e9)));
    while (ready < 0 && errno == EINTR);
    return ready > 0;
}

}  // namespace samesum::gpu
