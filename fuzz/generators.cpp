// Edge cases first: RapidCheck's own numbers have no NaN, no infinity and hardly any subnormals.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/generators.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "fuzz/backend.hpp"
#include "model/sum/witness.hpp"
#include "model/support/error.hpp"

namespace samesum::fuzz {
namespace {

Bits power_of_two(const FormatTraits& t, int exponent) {
    const int field = std::clamp(exponent + t.bias(), 1, (1 << t.exponent_bits) - 2);
    return static_cast<Bits>(field) << t.fraction_bits;
}

Bits draw_fraction(Draw& draw, const FormatTraits& t) { return draw.bits() & ((Bits{1} << t.fraction_bits) - 1); }
Bits draw_sign(Draw& draw, const FormatTraits& t) { return draw.bits() & t.sign(); }

/// A NaN with a payload, quiet or signalling. Addition in float64 keeps the payload of one operand, left or right;
/// there only the NaN that additions make is drawn, so that addition commutes.
Bits draw_nan(Draw& draw, Format format) {
    const FormatTraits& t = traits(format);
    if (format == Format::float64 || !t.has_infinity) return t.nan | (t.has_infinity ? 0 : draw_sign(draw, t));
    const Bits payload = draw_fraction(draw, t);
    return draw_sign(draw, t) | t.infinity() | (payload == 0 ? 1 : payload);
}

Ring draw_ring(Draw& draw, int ranks) {
    Ring ring(static_cast<std::size_t>(ranks));
    std::iota(ring.begin(), ring.end(), 0);
    draw.shuffle(ring);
    return ring;
}

}  // namespace

std::uint64_t Draw::below(std::uint64_t bound) {
    // The upper half of a product; its bias of bound / 2^64 is negligible here.
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(random_.next()) * bound) >> 64);
}

int Draw::between(int min, int max) { return min + static_cast<int>(below(static_cast<std::uint64_t>(max - min) + 1)); }

bool Limits::allows_ranks(int min, int max) const {
    return ranks.empty() || std::any_of(ranks.begin(), ranks.end(), [&](int n) { return n >= min && n <= max; });
}

bool Limits::allows(Scheme scheme) const {
    return schemes.empty() || std::find(schemes.begin(), schemes.end(), scheme) != schemes.end();
}

Scheme Draw::scheme(std::span<const Scheme> among) {
    std::vector<Scheme> allowed;
    for (const Scheme scheme : among)
        if (limits_ == nullptr || limits_->allows(scheme)) allowed.push_back(scheme);
    if (allowed.empty()) throw Unavailable{};
    return pick(allowed);
}

Protocol Draw::protocol() {
    if (setup() != nullptr) return setup()->protocol;
    return pick({Protocol::simple, Protocol::simple, Protocol::ll, Protocol::ll128});
}

std::uint64_t Draw::hidden() {
    if (limits_ != nullptr && limits_->hidden > 0) return limits_->hidden;
    // On real ranks, a row of thousands takes as long as one element.
    return setup() != nullptr ? pick({1u, 3u, 64u, 512u, 2048u, 2048u}) : pick({1u, 1u, 2u, 3u, 8u, 16u, 64u});
}

std::uint64_t Draw::fill() {
    // Live backends keep the rows beside the token's from case to case and seldom rewrite them.
    return setup() != nullptr ? (one_in(8) ? 2 : 1) : 1 + below(1'000'000);
}

Format Draw::format() {
    if (limits_ != nullptr && !limits_->formats.empty()) return pick(limits_->formats);
    return one_in(3) ? Format::bfloat16 : pick(float_formats);
}

int Draw::ranks(int min, int max) {
    if (setup() != nullptr) {
        if (setup()->ranks < min || setup()->ranks > max) throw Unavailable{};
        return setup()->ranks;
    }
    if (limits_ != nullptr && !limits_->ranks.empty()) {
        std::vector<int> allowed;
        for (const int n : limits_->ranks)
            if (n >= min && n <= max) allowed.push_back(n);
        ensure(!allowed.empty(), "a property without ranks within the limits is left out");
        return pick(allowed);
    }
    const int cap = std::clamp(3 + size_ / 8, min, max);
    return one_in(2) ? std::min(cap, std::max(4, min)) : between(min, cap);
}

Bits draw_edge(Draw& draw, Format format) {
    const FormatTraits& t = traits(format);
    const Bits sign = draw_sign(draw, t);
    const Bits smallest_normal = Bits{1} << t.fraction_bits;
    switch (draw.below(8)) {
        case 0:
            return sign;
        case 1:
            return sign | 1;
        case 2:
            return sign | (smallest_normal - 1);
        case 3:
            return sign | smallest_normal;
        case 4:
            return sign | (t.largest() - draw.below(2));
        case 5:
            return sign | (power_of_two(t, draw.between(-4, 4)) - 1 + draw.below(3));
        case 6:
            return sign | (draw.bits() & (smallest_normal - 1));
        default:
            return sign | t.one();
    }
}

std::vector<Bits> draw_partials(Draw& draw, Format format, std::size_t count, Data data) {
    const FormatTraits& t = traits(format);
    std::vector<Bits> x(count);
    const auto wide = [&](int spread) {
        return draw_sign(draw, t) | power_of_two(t, draw.between(-spread, spread)) | draw_fraction(draw, t);
    };
    switch (data) {
        case Data::wide:
            for (Bits& bits : x) bits = wide(std::min(t.precision(), 12));
            break;
        case Data::ladder: {
            const Bits big = absorption_threshold(format);
            for (std::size_t i = 0; i < count; ++i) {
                const Bits step = static_cast<Bits>(draw.below(2)) << t.fraction_bits;
                x[i] = i % 3 == 0 ? big + step : i % 3 == 1 ? (big + step) | t.sign() : draw_sign(draw, t) | t.one();
            }
            draw.shuffle(x);
            break;
        }
        case Data::ties:
            // 1, and numbers of which one or a few sum to half a unit in its last place.
            for (Bits& bits : x)
                bits = draw_sign(draw, t) |
                       power_of_two(t, draw.pick({0, 0, 1, -t.precision(), -t.precision() - 1, -t.precision() + 1}));
            break;
        case Data::edges:
            for (Bits& bits : x) bits = draw_edge(draw, format);
            break;
        case Data::subnormal:
            for (Bits& bits : x) bits = draw_sign(draw, t) | draw.below(Bits{3} << t.fraction_bits);
            break;
        case Data::saturating:
            for (Bits& bits : x)
                bits = draw_sign(draw, t) | (t.largest() - (draw.below(3) << (t.fraction_bits - 1)) - draw.below(2));
            break;
        case Data::infinite:
        case Data::not_numbers: {
            for (Bits& bits : x) bits = wide(4);
            const std::size_t special = 1 + draw.below(2);
            for (std::size_t i = 0; i < special; ++i)
                x[draw.below(count)] = data == Data::not_numbers ? draw_nan(draw, format)
                                       : t.has_infinity          ? draw_sign(draw, t) | t.infinity()
                                                                 : draw_sign(draw, t) | t.largest();
            break;
        }
        case Data::whole:
            for (Bits& bits : x) bits = from_double(format, static_cast<double>(draw.between(-3, 3)));
            break;
    }
    return x;
}

std::vector<Bits> draw_partials(Draw& draw, Format format, std::size_t count) {
    static constexpr std::array weighted{Data::wide,     Data::wide,        Data::wide,      Data::ladder,
                                         Data::ladder,   Data::ladder,      Data::ties,      Data::ties,
                                         Data::edges,    Data::edges,       Data::subnormal, Data::saturating,
                                         Data::infinite, Data::not_numbers, Data::whole};
    std::vector<Bits> x = draw_partials(draw, format, count, draw.pick(weighted));
    // A token that k of n ranks contribute to: the others hold exactly +0 or -0.
    if (count > 2 && draw.one_in(4)) {
        const std::size_t idle = 1 + draw.below(count - 2);
        const Bits zero = draw_sign(draw, traits(format));
        const bool mixed = draw.one_in(2);
        for (std::size_t i = 0; i < idle; ++i) x[draw.below(count)] = mixed ? draw_sign(draw, traits(format)) : zero;
    }
    return x;
}

Rings draw_rings(Draw& draw, int ranks, bool same_ring) {
    if (const CommunicatorSetup* setup = draw.setup()) {
        if (setup->ranks != ranks || (same_ring && !one_ring(setup->rings))) throw Unavailable{};
        return setup->rings;
    }
    const auto channels = static_cast<std::size_t>(draw.pick({1, 2, 2, 4, 8, 16}));
    if (same_ring) {
        // The ring may start at any rank.
        const Ring ring = draw_ring(draw, ranks);
        return std::vector<Ring>(channels, ring);
    }
    std::vector<Ring> different(static_cast<std::size_t>(draw.between(2, 4)));
    for (Ring& ring : different) ring = draw_ring(draw, ranks);
    std::vector<Ring> rings;
    for (std::size_t i = 0; i < std::max<std::size_t>(channels, 2); ++i)
        rings.push_back(different[i % different.size()]);
    return rings;
}

std::vector<std::uint64_t> draw_sizes(Draw& draw, int ranks, bool equal, bool spread) {
    const auto n = static_cast<std::size_t>(ranks);
    const auto max = static_cast<std::uint64_t>(1 + draw.size() / 10);
    std::vector<std::uint64_t> sizes(n);
    if (const std::uint64_t rows = draw.fixed_rows(); rows > 0) {
        if (equal && rows % n != 0) throw Unavailable{};
        if (equal || (rows % n == 0 && draw.one_in(8))) {
            std::fill(sizes.begin(), sizes.end(), rows / n);
            return sizes;
        }
        // Some ranks own nothing; the other ranks' rows are random.
        const std::uint64_t idle = draw.one_in(2) ? draw.bits() & draw.bits() : 0;
        const std::size_t owner = draw.below(n), other = (owner + 1 + draw.below(n - 1 + (n == 1))) % n;
        for (std::uint64_t row = 0; row < rows; ++row) {
            const std::size_t r = draw.below(n);
            ++sizes[(idle >> r & 1) != 0 ? owner : r];
        }
        if (spread && sizes[other] == 0 && sizes[owner] > 1) {
            --sizes[owner];
            ++sizes[other];
        }
        return sizes;
    }
    switch (equal ? 0 : draw.below(6)) {
        case 0:
            std::fill(sizes.begin(), sizes.end(), 1 + draw.below(max));
            break;
        case 1:  // one owner has everything
            sizes[draw.below(n)] = 1 + draw.below(3 * max);
            break;
        case 2:  // alternating with nothing
            for (std::size_t r = draw.below(2); r < n; r += 2) sizes[r] = 1 + draw.below(max);
            break;
        case 3:  // all the same but for one row
            std::fill(sizes.begin(), sizes.end(), 1 + draw.below(max));
            sizes[draw.below(n)] += 1;
            break;
        default:
            for (auto& size : sizes) size = draw.one_in(3) ? 0 : draw.below(2 * max);
            break;
    }
    const auto owners = [&] {
        return static_cast<std::size_t>(std::count_if(sizes.begin(), sizes.end(), [](auto s) { return s > 0; }));
    };
    const std::size_t wanted = std::min<std::size_t>(spread ? 2 : 1, n);
    for (std::size_t r = draw.below(n); owners() < wanted; r = (r + 1) % n)
        if (sizes[r] == 0) sizes[r] = 1 + draw.below(max);
    return sizes;
}

LaunchMode draw_launch_mode(Draw& draw) {
    LaunchMode launch_mode;
    if (draw.setup() == nullptr || !draw.setup()->launch_modes) return launch_mode;
    launch_mode.captured = draw.one_in(8);
    launch_mode.in_place = draw.one_in(4);
    launch_mode.shift = draw.one_in(4) ? draw.between(1, 7) : 0;
    launch_mode.delayed = draw.one_in(256);
    // Opening a communicator takes as long as hundreds of calls.
    launch_mode.fresh = draw.one_in(2048);
    return launch_mode;
}

void draw_across_borders(Draw& draw, Case& c, Side& side) {
    const auto n = static_cast<std::uint64_t>(side.ranks());
    const auto bytes = static_cast<std::uint64_t>(traits(c.format).bytes());
    // Two channels are used from 64 KiB (Simple) or 16 KiB per rank (LL) on; eight times that fills several.
    const std::uint64_t elements =
        (std::uint64_t{16384} << draw.below(6)) * (side.protocol == Protocol::ll ? n : 4) / bytes;
    std::uint64_t rows = std::max<std::uint64_t>(n, elements / c.hidden + draw.below(3));
    const auto plan = [&] {
        const Request request = request_of(c, side);
        return plan_combine(request.scheme, request.comm, request.routing, c.format, request.options);
    };
    const auto cut = [&](bool equal) {
        if (equal) {
            std::fill(side.sizes.begin(), side.sizes.end(), std::max<std::uint64_t>(1, rows / n));
            return;
        }
        std::uint64_t left = rows;
        for (std::uint64_t r = 0; r + 1 < n; ++r) {
            side.sizes[r] = draw.below(left / 2 + 1);
            left -= side.sizes[r];
        }
        side.sizes.back() = left;
    };
    const bool equal = side.scheme == Scheme::reduce_scatter || draw.one_in(3);
    cut(equal);
    const auto any_border = [&](const Schedule& schedule) -> std::optional<std::uint64_t> {
        if (schedule.parts().empty()) return std::nullopt;
        const Part part = draw.pick(schedule.parts());
        const std::uint64_t block = part.begin + draw.below(part.blocks) * part.period;
        switch (draw.below(4)) {
            case 0:
                return part.begin;
            case 1:
                return std::min(block + part.length, part.end);
            case 2:  // a pack of 16 bytes behind a border
                return std::min(block + 16 / bytes, part.end);
            default:
                return block;
        }
    };
    // A call that ends just before, at or just behind a border of a longer call.
    if (draw.one_in(4))
        if (const auto border = any_border(plan().schedule); border && *border / c.hidden + 2 > n) {
            rows = std::max<std::uint64_t>(n, *border / c.hidden + draw.below(3));
            cut(equal);
        }
    const std::uint64_t all = Routing{side.sizes, 1}.rows();
    side.row = draw.below(all);
    if (draw.one_in(3)) return;
    // The token's element is beside a border, so its row is at the border or across it.
    if (const auto border = any_border(plan().schedule)) {
        const std::uint64_t element = std::clamp<std::uint64_t>(*border + draw.below(3), 1, all * c.hidden) - 1;
        side.row = element / c.hidden;
        if (&side == &c.a) c.column = element % c.hidden;
    }
}

rc::Gen<Bits> edge_bits(Format format) {
    return drawn<Bits>([format](Draw& draw) { return draw_edge(draw, format); });
}

rc::Gen<std::vector<Bits>> partials(Format format, std::size_t count, Data data) {
    return drawn<std::vector<Bits>>([=](Draw& draw) { return draw_partials(draw, format, count, data); });
}

}  // namespace samesum::fuzz
