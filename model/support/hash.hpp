// FNV-1a, 64 bits: digests that are the same on every machine and in every build. Not for secrets.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace samesum {

class Fnv1a {
public:
    void add(std::string_view text) {
        for (const char c : text) add_byte(static_cast<unsigned char>(c));
    }
    void add(std::span<const std::byte> bytes) {
        for (const std::byte byte : bytes) add_byte(static_cast<unsigned char>(byte));
    }
    [[nodiscard]] std::uint64_t value() const { return hash_; }

private:
    void add_byte(unsigned char byte) { hash_ = (hash_ ^ byte) * 0x100000001b3; }

    std::uint64_t hash_ = 0xcbf29ce484222325;
};

[[nodiscard]] inline std::uint64_t fnv1a(std::string_view text) {
    Fnv1a hash;
    hash.add(text);
    return hash.value();
}

}  // namespace samesum
