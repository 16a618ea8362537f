// A header, the text, the ranges, their bytes. What is small goes out in one piece.
// SPDX-License-Identifier: Apache-2.0
#include "impl/link.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace samesum::gpu {
namespace {

struct Header {
    std::uint64_t text_bytes;
    std::uint32_t ranges;
    char kind;
    bool carries;
};

/// No message of ours is longer.
constexpr std::uint64_t most_text = std::uint64_t{1} << 32;
constexpr std::uint32_t most_ranges = 1 << 24;

bool write_all(int socket, std::span<iovec> pieces) {
    while (!pieces.empty()) {
        msghdr message{};
        message.msg_iov = pieces.data();
        message.msg_iovlen = pieces.size();
        const ssize_t written = ::sendmsg(socket, &message, MSG_NOSIGNAL);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        auto left = static_cast<std::size_t>(written);
        while (!pieces.empty() && left >= pieces.front().iov_len) {
            left -= pieces.front().iov_len;
            pieces = pieces.subspan(1);
        }
        if (pieces.empty()) break;
        if (written == 0) return false;
        pieces.front().iov_base = static_cast<char*>(pieces.front().iov_base) + left;
        pieces.front().iov_len -= left;
    }
    return true;
}

bool write_all(int socket, const void* data, std::size_t bytes) {
    iovec piece{const_cast<void*>(data), bytes};
    return bytes == 0 || write_all(socket, std::span(&piece, 1));
}

bool read_all(int socket, void* data, std::size_t bytes) {
    char* next = static_cast<char*>(data);
    while (bytes > 0) {
        const ssize_t got = ::recv(socket, next, bytes, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        next += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}

bool lies_in(const Range& range, std::size_t bytes) {
    return range.bytes <= bytes && range.offset <= bytes - range.bytes;
}

}  // namespace

Link::Link(Link&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}

Link& Link::operator=(Link&& other) noexcept {
    std::swap(socket_, other.socket_);
    return *this;
}

void Link::close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

bool Link::write(Message::Kind kind, std::string_view text, std::span<const Range> ranges,
                 std::span<const std::byte> carried) {
    Header header{};
    header.text_bytes = text.size();
    header.ranges = static_cast<std::uint32_t>(ranges.size());
    header.kind = static_cast<char>(kind);
    header.carries = !carried.empty() && !ranges.empty();
    std::array<iovec, 3> pieces{iovec{&header, sizeof header}, iovec{const_cast<char*>(text.data()), text.size()},
                                iovec{const_cast<Range*>(ranges.data()), ranges.size_bytes()}};
    if (!write_all(socket_, pieces)) return false;
    if (header.carries)
        for (const Range& range : ranges)
            if (!lies_in(range, carried.size()) || !write_all(socket_, carried.data() + range.offset, range.bytes))
                return false;
    return true;
}

std::optional<Message> Link::read(std::span<std::byte> memory) {
    Header header{};
    Message message;
    if (!read_all(socket_, &header, sizeof header)) return std::nullopt;
    if (header.text_bytes > most_text || header.ranges > most_ranges) return std::nullopt;
    message.kind = static_cast<Message::Kind>(header.kind);
    message.text.resize(header.text_bytes);
    message.ranges.resize(header.ranges);
    if (!read_all(socket_, message.text.data(), message.text.size()) ||
        !read_all(socket_, message.ranges.data(), message.ranges.size() * sizeof(Range)))
        return std::nullopt;
    if (header.carries)
        for (const Range& range : message.ranges)
            if (!lies_in(range, memory.size()) || !read_all(socket_, memory.data() + range.offset, range.bytes))
                return std::nullopt;
    return message;
}

bool Link::waiting(double seconds) const {
    pollfd each{socket_, POLLIN, 0};
    int ready = 0;
    do ready = ::poll(&each, 1, static_cast<int>(std::clamp(seconds * 1000 + 1, 0.0, 1e9)));
    while (ready < 0 && errno == EINTR);
    return ready > 0;
}

}  // namespace samesum::gpu
