// The largest steps first: fewer ranks, then plainer settings, then plainer numbers.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/shrink.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <span>

#include "fuzz/backend.hpp"
#include "model/sum/witness.hpp"

namespace samesum::fuzz {
namespace {

bool has_call(const Side& side) { return side.maker != Maker::tree; }

/// The side without rank r, whose rows go to `heir`; if that is r itself, they are dropped. Nothing if the token would
/// be lost or r is a contributor.
std::optional<Side> without_rank(const Side& side, int r, int heir) {
    Side less = side;
    const auto place = [](int rank) { return static_cast<std::size_t>(rank); };
    if (std::find(less.contributors.begin(), less.contributors.end(), r) != less.contributors.end())
        return std::nullopt;
    for (int& contributor : less.contributors) contributor -= contributor > r ? 1 : 0;
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

/// M, -M and 1 on the leaves that the two sides' orders bracket differently, if that is simpler than the present x.
std::optional<Case> with_witness(const Case& c) {
    if (!c.a.contributors.empty() || !c.b.contributors.empty() || c.a.sizes.size() != c.b.sizes.size())
        return std::nullopt;
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
                // Drops the rows before the token.
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

/// Collects the simpler cases of one case.
class Shrinks {
public:
    explicit Shrinks(const Case& from)
        : c(from),
          calls(has_call(c.a) && has_call(c.b)),
          same_ranks(calls && c.a.ranks() == c.b.ranks() && c.a.contributors == c.b.contributors) {}

    std::vector<Case> all() {
        fewer_ranks();
        plainer_launch();
        if (auto simple = with_witness(c)) found.push_back(std::move(*simple));
        smaller_rows();
        if (calls) {
            plainer_rings();
            plainer_settings();
            smaller_routing();
        }
        simplify_side(c, &Case::a, found);
        simplify_side(c, &Case::b, found);
        plainer_values();
        return std::move(found);
    }

private:
    void offer(Case simple) {
        if (simple != c) found.push_back(std::move(simple));
    }
    void fewer_ranks();
    void plainer_launch();
    void smaller_rows();
    void plainer_rings();
    void plainer_settings();
    void smaller_routing();
    void plainer_values();

    const Case& c;
    const bool calls;       ///< both sides are calls on ranks
    const bool same_ranks;  ///< both sides have the same ranks and the same contributors
    std::vector<Case> found{};
};

void Shrinks::fewer_ranks() {
    if (same_ranks && c.a.ranks() > 1)
        for (int r = c.a.ranks() - 1; r >= 0; --r)
            for (int heir = c.a.ranks() - 1; heir >= 0; --heir) {
                // With many ranks only a neighbour inherits; with few, each one is tried.
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
                        if (c.a.contributors.empty()) simple.x.erase(simple.x.begin() + r);
                        offer(std::move(simple));
                    }
            }
    if (calls && !same_ranks && !c.b.contributors.empty() && c.b.ranks() > 1)
        for (int r = c.b.ranks() - 1; r >= 0; --r)
            if (const auto b = without_rank(c.b, r, r > 0 ? r - 1 : 1)) {
                Case simple = c;
                simple.b = *b;
                offer(std::move(simple));
            }
}

void Shrinks::plainer_launch() {
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
}

void Shrinks::smaller_rows() {
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
}

void Shrinks::plainer_rings() {
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
}

void Shrinks::plainer_settings() {
    if (c.a.root == c.b.root && c.a.root > 0) {
        Case simple = c;
        simple.a.root = simple.b.root = 0;
        offer(simple);
        // The same with two ranks renumbered, so that each keeps its place on the rings.
        if (same_ranks && c.a.contributors.empty()) {
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
}

void Shrinks::smaller_routing() {
    // A routing that both sides share is shrunk on both.
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

void Shrinks::plainer_values() {
    const auto plain = simple_values(c.format);
    for (std::size_t i = 0; i < c.x.size(); ++i)
        for (std::size_t k = 0; k < std::min(complexity(c.format, c.x[i]), plain.size()); ++k) {
            Case simple = c;
            simple.x[i] = plain[k];
            offer(std::move(simple));
        }
    // Fewer set bits in the fraction, for values that are not plain.
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
}

}  // namespace

std::vector<Case> simpler(const Case& c) { return Shrinks(c).all(); }

}  // namespace samesum::fuzz
