// RapidCheck generators of what campaigns vary: bit patterns, partials, routings, rings.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rapidcheck/Gen.h>
#include <rapidcheck/Random.h>
#include <rapidcheck/shrinkable/Create.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/case.hpp"

namespace samesum::fuzz {

/// Restrictions of a campaign; an empty list means no restriction.
struct Limits {
    std::vector<Format> formats{};
    std::vector<int> ranks{};
    std::vector<Scheme> schemes{};
    std::uint64_t rows = 0, hidden = 0;                ///< of every call; 0: any
    std::shared_ptr<const CommunicatorSetup> setup{};  ///< of the open ranks; null: none

    [[nodiscard]] bool allows(Scheme scheme) const;
    [[nodiscard]] bool allows_ranks(int min, int max) const;
};

/// The open ranks cannot have the case that a property needs.
struct Unavailable {};

/// Draws from RapidCheck's generator without its combinators, whose allocations cost more than a case does. The mapping
/// to ranges uses integer arithmetic of its own, so that a seed gives the same cases on every machine.
class Draw {
public:
    Draw(const rc::Random& random, int size, const Limits* limits = nullptr)
        : random_(random), size_(size), limits_(limits) {}
    /// Draws after next_side() come from `second`.
    Draw(const rc::Random& random, const rc::Random& second, int size, const Limits* limits)
        : random_(random), second_(second), size_(size), limits_(limits) {}

    /// Call it when side a is drawn. Real ranks run side a once for several cases with different sides b.
    void next_side() {
        if (second_) random_ = *std::exchange(second_, std::nullopt);
    }

    [[nodiscard]] std::uint64_t bits() { return random_.next(); }
    /// 0 .. bound - 1; bound > 0.
    [[nodiscard]] std::uint64_t below(std::uint64_t bound);
    /// min .. max, both included.
    [[nodiscard]] int between(int min, int max);
    [[nodiscard]] bool one_in(std::uint64_t n) { return below(n) == 0; }
    template <class Container>
    [[nodiscard]] auto pick(const Container& from) {
        return *(std::begin(from) + static_cast<std::ptrdiff_t>(below(std::size(from))));
    }
    template <class T>
    [[nodiscard]] T pick(std::initializer_list<T> from) {
        return *(from.begin() + below(from.size()));
    }
    template <class T>
    void shuffle(std::vector<T>& items) {
        for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
    }
    /// RapidCheck's size: early cases are small, 100 is nominal.
    [[nodiscard]] int size() const { return size_; }
    /// A float format, and a number of ranks from min to max, as the limits allow.
    [[nodiscard]] Format format();
    [[nodiscard]] int ranks(int min, int max);
    /// One of these, as the limits allow.
    [[nodiscard]] Scheme scheme(std::span<const Scheme> among);
    [[nodiscard]] Protocol protocol();
    [[nodiscard]] std::uint64_t hidden();
    [[nodiscard]] std::uint64_t fill();
    /// Null without real ranks.
    [[nodiscard]] const CommunicatorSetup* setup() const { return limits_ == nullptr ? nullptr : limits_->setup.get(); }
    [[nodiscard]] std::uint64_t fixed_rows() const { return limits_ == nullptr ? 0 : limits_->rows; }

private:
    rc::Random random_;
    std::optional<rc::Random> second_{};
    int size_;
    const Limits* limits_;
};

/// A generator from a function of Draw, without shrinking.
template <class T, class Function>
[[nodiscard]] rc::Gen<T> drawn(Function function) {
    return [function](const rc::Random& random, int size) {
        Draw draw(random, size);
        return rc::shrinkable::just(T(function(draw)));
    };
}

/// Kinds of partials of one element; each reveals different mistakes.
enum class Data : std::uint8_t {
    wide,         ///< exponents over twice the precision
    ladder,       ///< M, -M, 1 and the like: which values are absorbed depends on the order
    ties,         ///< half units in the last place
    edges,        ///< zeros of both signs, subnormals, powers of two and their neighbours, the largest
    subnormal,    ///< subnormals and the smallest normals
    saturating,   ///< near the largest value: partial sums may overflow
    infinite,     ///< one or two infinities among numbers
    not_numbers,  ///< NaNs with payloads among numbers
    whole,        ///< small integers: exact, so that all orders agree
};
inline constexpr std::array all_data{Data::wide,       Data::ladder,   Data::ties,        Data::edges, Data::subnormal,
                                     Data::saturating, Data::infinite, Data::not_numbers, Data::whole};

[[nodiscard]] Bits draw_edge(Draw& draw, Format format);
[[nodiscard]] std::vector<Bits> draw_partials(Draw& draw, Format format, std::size_t count);
[[nodiscard]] std::vector<Bits> draw_partials(Draw& draw, Format format, std::size_t count, Data data);
/// Ring orders of `channels` channels: all the same, or several different ones. Throws Unavailable.
[[nodiscard]] Rings draw_rings(Draw& draw, int ranks, bool same_ring);
/// Rows of each rank, at least one row in all. `spread`: at least two ranks own rows.
[[nodiscard]] std::vector<std::uint64_t> draw_sizes(Draw& draw, int ranks, bool equal, bool spread);
/// Sizes whose buffer crosses or ends beside borders between the channels of the side's call; the token's element lies
/// beside a border of a channel, a chunk or a pack of 16 bytes, or anywhere. The borders are those of the model's
/// schedule.
void draw_across_borders(Draw& draw, Case& c, Side& side);
/// How a call is launched, if that can be chosen.
[[nodiscard]] LaunchMode draw_launch_mode(Draw& draw);

[[nodiscard]] rc::Gen<Bits> edge_bits(Format format);
[[nodiscard]] rc::Gen<std::vector<Bits>> partials(Format format, std::size_t count, Data data);

}  // namespace samesum::fuzz
