// A token is drawn with its call: sizes first, then its row; large calls place it beside a border of a channel.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/draw_token.hpp"

#include "fuzz/backend.hpp"

namespace samesum::fuzz {
namespace {

bool scatters_only(Scheme scheme) { return scheme == Scheme::reduce_scatter; }
int owner(const Side& side) { return Routing{side.sizes, 1}.owner(side.row); }
std::uint64_t rows(const Side& side) { return Routing{side.sizes, 1}.rows(); }

/// Gives a rank one more row, or every rank where all must be equal.
void grow(Side& side, int rank) {
    if (scatters_only(side.scheme))
        for (auto& size : side.sizes) ++size;
    else
        ++side.sizes[static_cast<std::size_t>(rank)];
}

std::uint64_t draw_row_of(Draw& draw, const Side& side, int rank) {
    return Routing{side.sizes, 1}.first_row(rank) + draw.below(side.sizes[static_cast<std::size_t>(rank)]);
}

}  // namespace

void draw_place(Draw& draw, Case& c, Side& side, const TokenSpec& spec) {
    // Large calls take long on real ranks.
    const std::uint64_t seldom = draw.setup() != nullptr ? 24 : 4;
    const bool large = by_nccl(side.scheme) && draw.fixed_rows() == 0 &&
                       (spec.one_ring || draw.setup() != nullptr ? draw.one_in(seldom) : !draw.one_in(seldom));
    side.sizes.assign(static_cast<std::size_t>(side.sizes.size()), 0);
    if (large) {
        draw_across_borders(draw, c, side);
        return;
    }
    const bool equal = scatters_only(side.scheme) || (side.scheme == Scheme::vllm_default && draw.one_in(2));
    side.sizes = draw_sizes(draw, side.ranks(), equal, spec.spread);
    side.row = draw.below(rows(side));
}

Case draw_token(Draw& draw, const TokenSpec& spec) {
    Case c;
    c.format = draw.format();
    const int ranks = draw.ranks(spec.min_ranks, spec.max_ranks);
    c.hidden = draw.hidden();
    c.column = draw.below(c.hidden);
    c.fill = draw.fill();
    c.x = draw_partials(draw, c.format, static_cast<std::size_t>(ranks));
    Side& a = c.a;
    a.scheme = spec.scheme;
    a.rings = draw_rings(draw, ranks, spec.one_ring && by_nccl(spec.scheme));
    a.protocol = draw.protocol();
    if (const CommunicatorSetup* setup = draw.setup()) {
        const bool pat = setup->algorithm == Algorithm::pat;
        const bool scatters = scatters_only(spec.scheme) || spec.scheme == Scheme::vllm_default;
        if (spec.only_pat ? !pat : pat && scatters && !spec.pat) throw Unavailable{};
        if (spec.pat) a.algorithm = setup->algorithm;
        a.ranks_per_node = setup->ranks_per_node;
        a.nccl = setup->nccl;
        a.threads = setup->threads;
    } else if (spec.only_pat || (spec.pat && draw.one_in(3))) {
        a.algorithm = Algorithm::pat;
        a.protocol = Protocol::simple;  // the only protocol of PAT in NCCL
    }
    if (spec.scheme == Scheme::fixed_root || spec.scheme == Scheme::reduce_broadcast)
        a.root = draw.between(0, ranks - 1);
    if (is_ordered(spec.scheme) && draw.one_in(3)) a.accumulation = Accumulation::fp32_once;
    a.sizes.resize(static_cast<std::size_t>(ranks));
    draw_place(draw, c, a, spec);
    c.b = a;
    return c;
}

void move_token(Draw& draw, Case& c, Invariance invariance, const TokenSpec& spec) {
    const int holder = owner(c.a);
    const auto n = c.a.ranks();
    switch (invariance) {
        case Invariance::owner: {
            if (c.a.sizes[static_cast<std::size_t>(holder)] == rows(c.a)) {
                grow(c.a, (holder + draw.between(1, n - 1)) % n);
                c.a.row = draw_row_of(draw, c.a, holder);
            }
            draw.next_side();
            int other = (holder + draw.between(1, n - 1)) % n;
            while (other == holder || c.a.sizes[static_cast<std::size_t>(other)] == 0) other = (other + 1) % n;
            c.b = c.a;
            c.b.row = draw_row_of(draw, c.b, other);
            return;
        }
        case Invariance::position: {
            if (c.a.sizes[static_cast<std::size_t>(holder)] < 2) {
                grow(c.a, holder);
                c.a.row = draw_row_of(draw, c.a, holder);
            }
            draw.next_side();
            c.b = c.a;
            const std::uint64_t first = Routing{c.a.sizes, 1}.first_row(holder);
            const std::uint64_t size = c.a.sizes[static_cast<std::size_t>(holder)];
            c.b.row = first + (c.a.row - first + 1 + draw.below(size - 1)) % size;
            return;
        }
        case Invariance::count:
            draw.next_side();
            draw_place(draw, c, c.b, spec);
            if (c.b.sizes[static_cast<std::size_t>(holder)] == 0) grow(c.b, holder);
            if (rows(c.b) == rows(c.a)) grow(c.b, holder);
            c.b.row = draw_row_of(draw, c.b, holder);
            return;
        default:
            draw.next_side();
            draw_place(draw, c, c.b, spec);
            return;
    }
}

std::string not_moved(const Case& c, Invariance invariance) {
    switch (invariance) {
        case Invariance::owner:
            if (c.a.sizes != c.b.sizes || owner(c.a) == owner(c.b)) return "same sizes, two owners";
            return {};
        case Invariance::position:
            if (c.a.sizes != c.b.sizes || owner(c.a) != owner(c.b) || c.a.row == c.b.row)
                return "same sizes, one owner, two rows";
            return {};
        case Invariance::count:
            if (owner(c.a) != owner(c.b) || rows(c.a) == rows(c.b)) return "one owner, two numbers of rows";
            return {};
        default:
            return {};
    }
}

}  // namespace samesum::fuzz
