// Edges first: mistakes live there, and RapidCheck's own numbers have no NaN, no infinity and hardly a subnormal.
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

/// A NaN with a payload. Quiet and signalling; float64 keeps payloads, and which one it keeps depends on the operands'
/// sides, so that there only the NaN that its additions make is drawn: then addition commutes.
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
    // The upper half of a product; its bias of bound / 2^64 is of no consequence for choosing cases.
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
    if (allowed.empty()) throw NotHere{};
    return pick(allowed);
}

Protocol Draw::protocol() {
    if (world() != nullptr) return world()->protocol;
    return pick({Protocol::simple, Protocol::simple, Protocol::ll, Protocol::ll128});
}

std::uint64_t Draw::hidden() {
    if (limits_ != nullptr && limits_->hidden > 0) return limits_->hidden;
    // Real ranks take as long for a row of thousands as for one element.
    return world() != nullptr ? pick({1u, 3u, 64u, 512u, 2048u, 2048u}) : pick({1u, 1u, 2u, 3u, 8u, 16u, 64u});
}

std::uint64_t Draw::fill() {
    // Rows beside the token's are kept by live backends from case to case, and seldom written anew.
    return world() != nullptr ? (one_in(8) ? 2 : 1) : 1 + below(1'000'000);
}

Format Draw::format() {
    if (limits_ != nullptr && !limits_->formats.empty()) return pick(limits_->formats);
    return one_in(3) ? Format::bfloat16 : pick(float_formats);
}

int Draw::ranks(int min, int max) {
    if (world() != nullptr) {
        if (world()->ranks < min || world()->ranks > max) throw NotHere{};
        return world()->ranks;
    }
    if (limits_ != nullptr && !limits_->ranks.empty()) {
        std::vector<int> allowed;
        for (const int n : limits_->ranks)
            if (n >= min && n <= max) allowed.push_back(n);
        ensure(!allowed.empty(), "properties that the limits leave no ranks are left out");
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
            // 1, and numbers of which one or a few make half of its last place.
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

Rings draw_rings(Draw& draw, int ranks, bool one_ring) {
    if (const World* world = draw.world()) {
        if (world->ranks != ranks || (one_ring && !world->one_ring())) throw NotHere{};
        return world->rings;
    }
    const auto channels = static_cast<std::size_t>(draw.pick({1, 2, 2, 4, 8, 16}));
    if (one_ring) {
        // Written from anywhere: it is the same ring.
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
        if (equal && rows % n != 0) throw NotHere{};
        if (equal || (rows % n == 0 && draw.one_in(8))) {
            std::fill(sizes.begin(), sizes.end(), rows / n);
            return sizes;
        }
        // Some ranks own nothing; the others' rows are cut at random.
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

LaunchMode draw_manner(Draw& draw) {
    LaunchMode launch_mode;
    if (draw.world() == nullptr || !draw.world()->manners) return launch_mode;
    launch_mode.captured = draw.one_in(8);
    launch_mode.in_place = draw.one_in(4);
    launch_mode.shift = draw.one_in(4) ? draw.between(1, 7) : 0;
    launch_mode.delayed = draw.one_in(256);
    // A communicator takes as long as hundreds of calls.
    launch_mode.fresh = draw.one_in(2048);
    return launch_mode;
}

void draw_straddling(Draw& draw, Case& c, Side& side) {
    const auto n = static_cast<std::uint64_t>(side.ranks());
    const auto bytes = static_cast<std::uint64_t>(traits(c.format).bytes());
    // Two channels are in use from 64 KiB (Simple) or 16 KiB a rank (LL) on; eight times that fills several.
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
    // A call that ends a little before, on or behind what is a border of a longer one.
    if (draw.one_in(4))
        if (const auto border = any_border(plan().schedule); border && *border / c.hidden + 2 > n) {
            rows = std::max<std::uint64_t>(n, *border / c.hidden + draw.below(3));
            cut(equal);
        }
    const std::uint64_t all = Routing{side.sizes, 1}.rows();
    side.row = draw.below(all);
    if (draw.one_in(3)) return;
    // The token's element beside a border, and with it the row across it or at it.
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

namespace {

bool has_call(const Side& side) { return side.maker != Maker::tree; }

/// The side without rank r, whose rows go to `heir`, or to nobody when that is r itself. Nothing where the token would
/// be lost or r contributes from a seat.
std::optional<Side> without_rank(const Side& side, int r, int heir) {
    Side less = side;
    const auto place = [](int rank) { return static_cast<std::size_t>(rank); };
    if (std::find(less.seats.begin(), less.seats.end(), r) != less.seats.end()) return std::nullopt;
    for (int& seat : less.seats) seat -= seat > r ? 1 : 0;
    const Routing before{side.sizes, 1};
    const int owner = before.owner(side.row);
    const std::uint64_t within = side.row - before.first_row(owner);
    if (heir == r && owner == r) return std::nullopt;
    std::uint64_t behind = within;
    if (heir != r) {
        if (owner == r) behind += side.sizes[place(heir)];
        less.sizes[place(heir)] += side.sizes[place(r)];
    }
    less.sizes.erase(less.sizes.begin() + r);
    const int kept = owner == r ? heir : owner;
    less.row = Routing{less.sizes, 1}.first_row(kept - (kept > r ? 1 : 0)) + behind;
    std::vector<Ring> rings = side.rings.copy();
    for (Ring& ring : rings) {
        ring.erase(std::find(ring.begin(), ring.end(), r));
        for (int& rank : ring) rank -= rank > r ? 1 : 0;
    }
    less.rings = std::move(rings);
    if (less.root >= r && less.root > 0) --less.root;
    if (less.ranks() % less.ranks_per_node != 0) less.ranks_per_node = 1;
    return less;
}

/// Preferred patterns, the simplest first.
std::vector<Bits> simple_values(Format format) {
    const FormatTraits& t = traits(format);
    const Bits big = absorption_threshold(format);
    return {0, t.one(), t.one() | t.sign(), big, big | t.sign(), t.sign()};
}

std::size_t complexity(Format format, Bits bits) {
    const auto simple = simple_values(format);
    return static_cast<std::size_t>(std::find(simple.begin(), simple.end(), bits) - simple.begin());
}

std::size_t complexity(Format format, std::span<const Bits> x) {
    std::size_t sum = 0;
    for (const Bits bits : x) sum += complexity(format, bits);
    return sum;
}

/// M, -M and 1 on the leaves that the two sides' orders bracket differently, where that is simpler than what is there.
std::optional<Case> with_witness(const Case& c) {
    if (!c.a.seats.empty() || !c.b.seats.empty() || c.a.sizes.size() != c.b.sizes.size()) return std::nullopt;
    const auto witness = separating_witness(tree_of(c, c.a), tree_of(c, c.b), c.format);
    if (!witness || witness->leaves.size() != c.x.size()) return std::nullopt;
    if (complexity(c.format, witness->leaves) >= complexity(c.format, c.x)) return std::nullopt;
    Case simple = c;
    simple.x = witness->leaves;
    return simple;
}

/// Small ones first; large numbers shrink in large steps, so that shrinking is quick.
std::vector<std::uint64_t> smaller_numbers(std::uint64_t number, std::uint64_t min) {
    std::vector<std::uint64_t> found;
    for (const std::uint64_t less : {min, min + 1, number / 2, number > 1 ? std::bit_floor(number - 1) : 0,
                                     number - number / 4, number <= 8 ? number - 1 : number})
        if (less >= min && less < number && std::find(found.begin(), found.end(), less) == found.end())
            found.push_back(less);
    return found;
}

void simplify_side(const Case& c, Side Case::*which, std::vector<Case>& found) {
    const Side& side = c.*which;
    if (!has_call(side)) return;
    const auto offer = [&](Side changed) {
        if (changed == side) return;
        Case simple = c;
        simple.*which = std::move(changed);
        found.push_back(std::move(simple));
    };
    const auto with_size = [&](std::size_t r, std::uint64_t size, std::uint64_t row) {
        Side less = side;
        less.sizes[r] = size;
        less.row = row;
        offer(std::move(less));
    };
    const Routing routing{side.sizes, 1};
    const int owner = routing.owner(side.row);
    // All others' rows at once, then each rank's.
    for (const int heir : {owner, 0}) {
        Side together = side;
        together.sizes.assign(side.sizes.size(), 0);
        together.sizes[static_cast<std::size_t>(heir)] = routing.rows();
        if (std::count(side.sizes.begin(), side.sizes.end(), 0u) + 1 < side.ranks()) offer(std::move(together));
    }
    Side alone = side;
    alone.row -= routing.first_row(owner);
    for (int r = 0; r < side.ranks(); ++r)
        if (r != owner) alone.sizes[static_cast<std::size_t>(r)] = 0;
    offer(alone);
    for (int r = 0; r < side.ranks(); ++r) {
        const auto place = static_cast<std::size_t>(r);
        const std::uint64_t size = side.sizes[place], first = routing.first_row(r);
        for (const std::uint64_t less : smaller_numbers(size, 0)) {
            if (side.row < first) {
                with_size(place, less, side.row);
            } else if (side.row >= first + size) {
                with_size(place, less, side.row - (size - less));
            } else {
                if (side.row - first < less) with_size(place, less, side.row);
                // The rows before the token go.
                if (side.row - first >= size - less) with_size(place, less, side.row - (size - less));
            }
        }
    }
    if (routing.equal_sizes() && side.sizes.front() > 1)
        for (const std::uint64_t less : smaller_numbers(side.sizes.front(), 1)) {
            Side smaller = side;
            std::fill(smaller.sizes.begin(), smaller.sizes.end(), less);
            const std::uint64_t within = side.row - routing.first_row(owner);
            smaller.row = static_cast<std::uint64_t>(owner) * less + std::min(within, less - 1);
            offer(std::move(smaller));
        }
    if (side.row > routing.first_row(owner)) {
        Side earlier = side;
        earlier.row = routing.first_row(owner);
        offer(earlier);
        earlier.row = side.row - 1;
        offer(std::move(earlier));
    }
}

}  // namespace

std::vector<Case> simpler(const Case& c) {
    std::vector<Case> found;
    const auto offer = [&](Case simple) {
        if (simple != c) found.push_back(std::move(simple));
    };
    const bool calls = has_call(c.a) && has_call(c.b);
    const bool same_ranks = calls && c.a.ranks() == c.b.ranks() && c.a.seats == c.b.seats;
    if (same_ranks && c.a.ranks() > 1)
        for (int r = c.a.ranks() - 1; r >= 0; --r)
            for (int heir = c.a.ranks() - 1; heir >= 0; --heir) {
                // Among many ranks the next one inherits; among few each one is tried.
                if (c.a.ranks() > 5 && heir != r && heir != (r > 0 ? r - 1 : 1)) continue;
                for (const bool a_inherits : {false, true})
                    for (const bool b_inherits : {false, true}) {
                        if (heir == r && (a_inherits || b_inherits)) continue;
                        const auto a = without_rank(c.a, r, a_inherits ? heir : r);
                        const auto b = without_rank(c.b, r, b_inherits ? heir : r);
                        if (!a || !b) continue;
                        Case simple = c;
                        simple.a = *a;
                        simple.b = *b;
                        if (c.a.seats.empty()) simple.x.erase(simple.x.begin() + r);
                        offer(std::move(simple));
                    }
            }
    if (calls && !same_ranks && !c.b.seats.empty() && c.b.ranks() > 1)
        for (int r = c.b.ranks() - 1; r >= 0; --r)
            if (const auto b = without_rank(c.b, r, r > 0 ? r - 1 : 1)) {
                Case simple = c;
                simple.b = *b;
                offer(std::move(simple));
            }
    if (c.a.launch_mode != LaunchMode{} || c.b.launch_mode != LaunchMode{}) {
        Case simple = c;
        simple.a.launch_mode = simple.b.launch_mode = {};
        offer(simple);
        simple.a.launch_mode = c.a.launch_mode;
        offer(simple);
        simple.a.launch_mode = {};
        simple.b.launch_mode = c.b.launch_mode;
        offer(std::move(simple));
        for (Side Case::*side : {&Case::a, &Case::b}) {
            const auto without = [&](auto LaunchMode::*part) {
                Case less = c;
                (less.*side).launch_mode.*part = {};
                offer(std::move(less));
            };
            without(&LaunchMode::captured);
            without(&LaunchMode::in_place);
            without(&LaunchMode::fresh);
            without(&LaunchMode::delayed);
            without(&LaunchMode::shift);
        }
    }
    if (auto simple = with_witness(c)) found.push_back(std::move(*simple));
    if (c.fill != 0) {
        Case simple = c;
        simple.fill = 0;
        offer(std::move(simple));
    }
    for (const std::uint64_t hidden : smaller_numbers(c.hidden, 1)) {
        Case simple = c;
        simple.hidden = hidden;
        simple.column = std::min(c.column, hidden - 1);
        offer(std::move(simple));
    }
    if (c.column > 0) {
        Case simple = c;
        simple.column = 0;
        offer(std::move(simple));
    }
    if (calls) {
        // Both sides alike: one communicator, of fewer channels, with the plainest ring.
        for (const std::size_t channels : {std::size_t{1}, c.a.rings.size() / 2, c.a.rings.size() - 1})
            if (channels >= 1 && channels < c.a.rings.size() && c.a.rings.size() == c.b.rings.size()) {
                Case simple = c;
                for (Side* side : {&simple.a, &simple.b})
                    side->rings = std::vector<Ring>(side->rings.begin(), side->rings.begin() + channels);
                offer(std::move(simple));
            }
        if (c.a.rings != c.b.rings && c.a.ranks() == c.b.ranks()) {
            Case simple = c;
            simple.b.rings = c.a.rings;
            offer(std::move(simple));
        }
        if (c.a.rings == c.b.rings) {
            // Relabels each distinct ring to the lexicographically smaller plain one.
            Ring plain(c.a.rings.front().size());
            std::iota(plain.begin(), plain.end(), 0);
            std::vector<Ring> kinds;
            for (const Ring& ring : c.a.rings)
                if (ring != plain && std::find(kinds.begin(), kinds.end(), ring) == kinds.end()) kinds.push_back(ring);
            const auto renamed = [&](const Ring& from, const Ring& to) {
                Case simple = c;
                std::vector<Ring> rings = c.a.rings.copy();
                std::replace(rings.begin(), rings.end(), from, to);
                simple.a.rings = simple.b.rings = std::move(rings);
                offer(std::move(simple));
            };
            for (const Ring& ring : kinds) {
                renamed(ring, plain);
                for (std::size_t i = 0; i + 1 < ring.size(); ++i)
                    for (std::size_t j = i + 1; j < ring.size(); ++j)
                        if (ring[j] < ring[i]) {
                            Ring closer = ring;
                            std::swap(closer[i], closer[j]);
                            renamed(ring, closer);
                        }
            }
        }
        if (c.a.root == c.b.root && c.a.root > 0) {
            Case simple = c;
            simple.a.root = simple.b.root = 0;
            offer(simple);
            // The same with the names of two ranks exchanged, so that each keeps its place on the rings.
            if (same_ranks && c.a.seats.empty()) {
                for (Side* side : {&simple.a, &simple.b}) {
                    std::vector<Ring> rings = side->rings.copy();
                    for (Ring& ring : rings)
                        for (int& rank : ring) rank = rank == 0 ? c.a.root : rank == c.a.root ? 0 : rank;
                    side->rings = std::move(rings);
                }
                std::swap(simple.x[0], simple.x[static_cast<std::size_t>(c.a.root)]);
                offer(std::move(simple));
            }
        }
        if (c.a.protocol == c.b.protocol && c.a.protocol != Protocol::simple) {
            Case simple = c;
            simple.a.protocol = simple.b.protocol = Protocol::simple;
            offer(std::move(simple));
        }
        if (c.a.accumulation == c.b.accumulation && c.a.accumulation != Accumulation::per_hop) {
            Case simple = c;
            simple.a.accumulation = simple.b.accumulation = Accumulation::per_hop;
            offer(std::move(simple));
        }
        if (c.a.algorithm == c.b.algorithm && c.a.algorithm != Algorithm::ring) {
            Case simple = c;
            simple.a.algorithm = simple.b.algorithm = Algorithm::ring;
            offer(std::move(simple));
        }
        // Both sides have one routing: it shrinks as one.
        if (c.a.sizes == c.b.sizes) {
            std::vector<Case> of_a;
            simplify_side(c, &Case::a, of_a);
            for (const Case& each : of_a) {
                if (each.a.sizes == c.a.sizes) continue;
                Case simple = c;
                std::vector<Case> of_b;
                simplify_side(c, &Case::b, of_b);
                for (const Case& other : of_b)
                    if (other.b.sizes == each.a.sizes) {
                        simple.a = each.a;
                        simple.b = other.b;
                        offer(simple);
                    }
            }
        }
    }
    simplify_side(c, &Case::a, found);
    simplify_side(c, &Case::b, found);
    const auto plain = simple_values(c.format);
    for (std::size_t i = 0; i < c.x.size(); ++i)
        for (std::size_t k = 0; k < std::min(complexity(c.format, c.x[i]), plain.size()); ++k) {
            Case simple = c;
            simple.x[i] = plain[k];
            offer(std::move(simple));
        }
    // Fewer set bits in the fraction, where no plain value will do.
    for (std::size_t i = 0; i < c.x.size(); ++i) {
        const FormatTraits& t = traits(c.format);
        const Bits fraction = c.x[i] & ((Bits{1} << t.fraction_bits) - 1);
        if (complexity(c.format, c.x[i]) < plain.size() || fraction == 0 || is_nan(c.format, c.x[i])) continue;
        Case simple = c;
        simple.x[i] &= ~fraction;
        offer(simple);
        simple.x[i] = c.x[i] & (c.x[i] - 1);
        offer(std::move(simple));
    }
    return found;
}

std::vector<std::string_view> classes(const Case& c) {
    std::vector<std::string_view> labels{name(c.format)};
    const FormatTraits& t = traits(c.format);
    // What the partials really are, not what the generator meant them to be.
    bool nan = false, infinite = false, subnormal = false, negative_zero = false, largest = false, cancels = false;
    std::size_t zeros = 0;
    int min = 1 << t.exponent_bits, max = 0;
    for (std::size_t i = 0; i < c.x.size(); ++i) {
        const Bits bits = c.x[i];
        nan |= is_nan(c.format, bits);
        infinite |= is_infinite(c.format, bits);
        subnormal |= is_subnormal(c.format, bits);
        negative_zero |= bits == t.sign();
        largest |= (bits & ~t.sign()) == t.largest();
        zeros += is_zero(c.format, bits);
        if (is_zero(c.format, bits) || !is_finite(c.format, bits)) continue;
        for (std::size_t j = 0; j < i; ++j) cancels |= (c.x[j] ^ t.sign()) == bits;
        const auto field = static_cast<int>((bits & ~t.sign()) >> t.fraction_bits);
        min = std::min(min, field);
        max = std::max(max, field);
    }
    const auto label = [&](bool holds, std::string_view text) {
        if (holds) labels.push_back(text);
    };
    label(nan, "data: NaN");
    label(infinite, "data: infinity");
    label(subnormal, "data: subnormal");
    label(negative_zero, "data: -0");
    label(largest, "data: largest");
    label(cancels, "data: cancels");
    label(max - min >= t.precision(), "data: wide");
    label(zeros > 0, "data: k of n");
    label(zeros > 0 && zeros + 1 >= c.x.size() && c.x.size() > 1, "data: 1 of n");
    for (const Side* side : {&c.a, &c.b}) {
        if (!has_call(*side)) {
            label(side == &c.a, "trees alone");
            continue;
        }
        const Routing routing = routing_of(c, *side);
        const auto owners =
            std::count_if(side->sizes.begin(), side->sizes.end(), [](std::uint64_t size) { return size > 0; });
        labels.push_back(routing.equal_sizes()    ? "routing: equal"
                         : owners == 1            ? "routing: one owner"
                         : owners < side->ranks() ? "routing: zero sizes"
                                                  : "routing: ragged");
        if (side == &c.b) continue;
        labels.push_back(side->ranks() == 1   ? "ranks: 1"
                         : side->ranks() == 2 ? "ranks: 2"
                         : side->ranks() <= 4 ? "ranks: 3 to 4"
                         : side->ranks() <= 8 ? "ranks: 5 to 8"
                                              : "ranks: 9 and more");
        const bool one_ring =
            std::adjacent_find(side->rings.begin(), side->rings.end(), std::not_equal_to<>()) == side->rings.end();
        labels.push_back(side->rings.size() == 1 ? "rings: one channel"
                         : one_ring              ? "rings: one on all channels"
                                                 : "rings: different");
        const LaunchMode &of_a = c.a.launch_mode, &of_b = c.b.launch_mode;
        label(of_a.captured || of_b.captured, "run: captured");
        label(of_a.in_place || of_b.in_place, "run: in place");
        label(of_a.fresh || of_b.fresh, "run: fresh communicator");
        label(of_a.delayed || of_b.delayed, "run: producer still running");
        label(of_a.shift != 0 || of_b.shift != 0, "run: off alignment");
        labels.push_back(side->protocol == Protocol::ll      ? "protocol: LL"
                         : side->protocol == Protocol::ll128 ? "protocol: LL128"
                                                             : "protocol: Simple");
    }
    return labels;
}

}  // namespace samesum::fuzz
