// Seeded random numbers that are the same bits on every machine and compiler.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "model/arithmetic/format.hpp"

namespace samesum {

/// Splitmix64: any seed works, and split() gives an independent generator. Only integer arithmetic and IEEE + - * /
/// sqrt are used, never libm or std::*_distribution, whose results differ between platforms.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    [[nodiscard]] std::uint64_t next() {
        state_ += 0x9e3779b97f4a7c15;
        return mixed(state_);
    }
    [[nodiscard]] Random split() { return Random(mixed(next() ^ 0xd1b54a32d192ed03)); }
    /// The generator of the i-th case of a seed, without drawing the cases before it.
    [[nodiscard]] static Random of(std::uint64_t seed, std::uint64_t index) {
        return Random(mixed(mixed(seed + 0x9e3779b97f4a7c15) ^ (index * 0xd1b54a32d192ed03)));
    }

    /// 0 .. bound - 1, all equally likely; bound > 0.
    [[nodiscard]] std::uint64_t below(std::uint64_t bound);
    /// [0, 1), a multiple of 2^-53.
    [[nodiscard]] double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
    /// Mean 0, variance 1.
    [[nodiscard]] double normal();

    /// Any pattern of the format; a third are edge cases: zeros, subnormals, powers of two and their neighbours, the
    /// largest, infinities, NaNs.
    [[nodiscard]] Bits pattern(Format format);
    /// Any finite pattern whose magnitude lies within 2^-spread .. 2^spread.
    [[nodiscard]] Bits spread(Format format, int spread);

private:
    [[nodiscard]] static std::uint64_t mixed(std::uint64_t x) {
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
        x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
        return x ^ (x >> 31);
    }

    std::uint64_t state_;
};

}  // namespace samesum
