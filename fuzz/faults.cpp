// A planted fault changes the request, the order, the leaves or the additions of the model.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/faults.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "model/arithmetic/hop_arithmetic.hpp"

namespace samesum::fuzz {
namespace {

/// What a fault can change between a request and its row; an empty member changes nothing.
struct FaultHooks {
    std::function<void(Request&, std::uint64_t& row)> request{};
    std::function<ReductionTree(ReductionTree, const Order&, const Request&, std::uint64_t row)> tree{};
    std::function<void(const Request&, std::vector<Bits>&)> leaves{};
    std::ptrdiff_t offset = 0;  ///< elements by which a whole buffer is read too late
    std::function<Bits(Format, Bits, Bits)> add{};
    std::function<void(CombinePlan&)> plan{};
};

class FaultyModel : public Backend {
public:
    explicit FaultyModel(FaultHooks hooks) : hooks_(std::move(hooks)) {}

    std::string description() const override { return "model with a planted fault"; }
    std::vector<Bits> combine(const Request&, std::span<const std::vector<Bits>>) override {
        throw std::logic_error("planted faults only make rows");
    }
    std::vector<Bits> combine_row(const Request& asked, const Partials& partials, std::uint64_t row) override {
        Request request = asked;
        const std::uint64_t own_row = row;
        if (hooks_.request) hooks_.request(request, row);
        CombinePlan plan = plan_combine(request.scheme, request.comm, request.routing, request.format, request.options);
        if (hooks_.plan) hooks_.plan(plan);
        std::vector<Bits> result, leaves(static_cast<std::size_t>(partials.ranks()));
        for (std::uint64_t column = 0; column < request.routing.hidden; ++column) {
            const Order order = plan.schedule.segment_at(row * request.routing.hidden + column).order;
            ReductionTree tree = order.as_tree();
            if (hooks_.tree) tree = hooks_.tree(std::move(tree), order, request, own_row);
            const auto element = static_cast<std::ptrdiff_t>(row * request.routing.hidden + column) + hooks_.offset;
            const auto size = static_cast<std::ptrdiff_t>(request.routing.elements());
            const auto read = static_cast<std::uint64_t>((element + size) % size);
            for (std::size_t q = 0; q < leaves.size(); ++q)
                leaves[q] =
                    partials.at(static_cast<int>(q), read / request.routing.hidden, read % request.routing.hidden);
            if (hooks_.leaves) hooks_.leaves(request, leaves);
            const bool own_addition = hooks_.add && plan.accumulation == Accumulation::per_hop;
            result.push_back(
                own_addition
                    ? evaluate<Bits>(tree, leaves,
                                     [&](Bits left, Bits right) { return hooks_.add(request.format, left, right); })
                    : sum_element({.format = request.format, .accumulation = plan.accumulation}, tree, leaves));
        }
        return result;
    }

private:
    FaultHooks hooks_;
};

template <class Make>
Fault fault(std::string_view name, std::string_view sentence, std::string_view property, Make make) {
    return {name, sentence, property, [make] { return std::make_unique<FaultyModel>(make()); }};
}

bool to_root(Scheme scheme) { return scheme == Scheme::fixed_root || scheme == Scheme::reduce_broadcast; }

/// Rounds toward zero: the nearest-even sum, one pattern closer to zero when it is farther out than the exact one.
/// Doubles are precise enough to compare sums of all formats except float64.
Bits toward_zero(Format format, Bits left, Bits right) {
    const Bits sum = HopArithmetic(format).add(left, right);
    if (format == Format::float64 || !is_finite(format, sum) || is_zero(format, sum)) return sum;
    const double exact = to_double(format, left) + to_double(format, right);
    const double rounded = to_double(format, sum);
    return (rounded > 0 ? rounded > exact : rounded < exact) ? sum - 1 : sum;
}

Bits flushed(Format format, Bits bits) { return is_subnormal(format, bits) ? bits & traits(format).sign() : bits; }

/// Of an implementation of the schemes; impl/ can be built with most of them, too.
std::vector<Fault> faults_of_schemes() {
    return {
        fault("root_is_owner", "fixed_root reduces each chunk to its owner", "fixed_root_is_routing_invariant",
              [] {
                  return FaultHooks{.request = [](Request& r, std::uint64_t&) {
                      if (to_root(r.scheme)) r.scheme = Scheme::reduce_per_owner;
                  }};
              }),
        fault("offset_by_one_row", "rows are taken one row too early", "scatter_is_pure_movement",
              [] {
                  return FaultHooks{.request = [](Request& r, std::uint64_t& row) {
                      row = (row + r.routing.rows() - 1) % r.routing.rows();
                  }};
              }),
        fault("offset_by_one_element", "elements are taken one element too early", "scatter_is_pure_movement",
              [] { return FaultHooks{.offset = -1}; }),
        fault("ring_order", "ordered sums begin with the owner's successor, as rings do",
              "gather_ordered_is_owner_invariant",
              [] {
                  return FaultHooks{.tree = [](ReductionTree tree, const Order&, const Request& r, std::uint64_t row) {
                      if (!is_ordered(r.scheme)) return tree;
                      std::vector<int> ranks(static_cast<std::size_t>(r.comm.ranks()));
                      std::iota(ranks.begin(), ranks.end(), 0);
                      return ReductionTree::left_fold(walk_ending_at(ranks, r.routing.owner(row)));
                  }};
              }),
        fault("fp32_instead_of_per_hop", "gather_ordered rounds once where it should at every addition",
              "ordered_schemes_agree",
              [] {
                  return FaultHooks{.request = [](Request& r, std::uint64_t&) {
                      if (r.scheme == Scheme::gather_ordered) r.options.accumulation = Accumulation::fp32_once;
                  }};
              }),
        fault("stale_receive_buffer", "the last rank's partials are those of the call before",
              "exchange_ordered_is_routing_invariant",
              [] {
                  return FaultHooks{.leaves = [stale = Bits{0}](const Request&, std::vector<Bits>& x) mutable {
                      std::swap(stale, x.back());
                  }};
              }),
        fault("sizes_rotated", "rank r takes rank r + 1's size", "scatter_is_pure_movement",
              [] {
                  return FaultHooks{.request = [](Request& r, std::uint64_t& row) {
                      Routing rotated = r.routing;
                      std::rotate(rotated.sizes.begin(), rotated.sizes.begin() + 1, rotated.sizes.end());
                      const int owner = r.routing.owner(row);
                      row = (row - r.routing.first_row(owner) + rotated.first_row(owner)) % r.routing.rows();
                  }};
              }),
        fault("last_rank_forgotten", "the last rank's partials are left out", "results_are_as_predicted",
              [] {
                  return FaultHooks{.leaves = [](const Request& r, std::vector<Bits>& x) {
                      if (x.size() > 1) x.back() = traits(r.format).sign();
                  }};
              }),
        fault("added_twice", "rank 0's partials are added twice", "results_are_as_predicted",
              [] {
                  return FaultHooks{.leaves = [](const Request& r, std::vector<Bits>& x) {
                      x[0] = HopArithmetic(r.format).add(x[0], x[0]);
                  }};
              }),
    };
}

/// Of a model of the orders in which NCCL adds: whole rings and trees.
std::vector<Fault> faults_of_orders() {
    return {
        fault("ring_rotated", "rings end one rank later", "results_are_as_predicted",
              [] {
                  return FaultHooks{.tree = [](ReductionTree tree, const Order& order, const Request&, std::uint64_t) {
                      if (order.kind() != Order::Kind::ring) return tree;
                      return order.ending_at((order.last() + 1) % order.ranks()).as_tree();
                  }};
              }),
        fault("ring_reversed", "rings are walked backwards", "results_are_as_predicted",
              [] {
                  return FaultHooks{.tree = [](ReductionTree tree, const Order& order, const Request&, std::uint64_t) {
                      if (order.kind() != Order::Kind::ring) return tree;
                      std::vector<int> ranks = tree.leaves();
                      std::reverse(ranks.begin(), ranks.end());
                      return ReductionTree::left_fold(ranks);
                  }};
              }),
        fault("balanced_instead_of_fold", "rank order is summed in halves", "results_are_as_predicted",
              [] {
                  return FaultHooks{.tree = [](ReductionTree tree, const Order& order, const Request&, std::uint64_t) {
                      return order.kind() == Order::Kind::rank_order ? ReductionTree::balanced(tree.leaves()) : tree;
                  }};
              }),
        fault("pat_is_a_ring", "PAT adds as a ring does", "results_are_as_predicted",
              [] {
                  return FaultHooks{
                      .request = [](Request& r, std::uint64_t&) { r.options.forced.algorithm = Algorithm::ring; }};
              }),
    };
}

/// Of a model of which channel, protocol and root a call uses.
std::vector<Fault> faults_of_calls() {
    return {
        fault("one_channel_for_all", "all channels are taken for the first", "results_are_as_predicted",
              [] {
                  return FaultHooks{.request = [](Request& r, std::uint64_t&) {
                      const std::vector<Ring> first(r.comm.topology.channels().size(), r.comm.topology.ring(0));
                      r.comm.topology = Topology::from_rings(first);
                  }};
              }),
        fault("channels_swapped", "the channels' rings are taken in reverse", "results_are_as_predicted",
              [] {
                  return FaultHooks{.request = [](Request& r, std::uint64_t&) {
                      std::vector<Ring> rings;
                      for (int c = r.comm.channels(); c-- > 0;) rings.push_back(r.comm.topology.ring(c));
                      r.comm.topology = Topology::from_rings(rings);
                  }};
              }),
        fault("protocol_taken_for_simple", "channels are split as if the protocol were Simple",
              "results_are_as_predicted",
              [] {
                  return FaultHooks{
                      .request = [](Request& r, std::uint64_t&) { r.options.forced.protocol = Protocol::simple; }};
              }),
        fault("channel_split_off_by_a_cell", "the first channel takes one cell of 4 KiB too many",
              "results_are_as_predicted",
              [] {
                  return FaultHooks{.plan = [](CombinePlan& plan) {
                      std::vector<Part> parts(plan.schedule.parts().begin(), plan.schedule.parts().end());
                      constexpr std::uint64_t cell = 512;  // elements of float64, and a part of a cell in others
                      if (parts.size() < 2 || parts[0].advance != Part::Advance::none || parts[1].length <= cell)
                          return;
                      if (parts[0].end != parts[1].begin || parts[0].blocks != 1 || parts[1].blocks != 1) return;
                      parts[0].length += cell;
                      parts[0].end += cell;
                      parts[1].begin += cell;
                      parts[1].length -= cell;
                      plan.schedule = Schedule(plan.schedule.ranks(), plan.schedule.size(), std::move(parts));
                  }};
              }),
        fault("root_ignored", "every reduce ends at rank 0", "results_are_as_predicted",
              [] { return FaultHooks{.request = [](Request& r, std::uint64_t&) { r.options.root = 0; }}; }),
        fault("dispatcher_ignores_sizes", "vllm_default takes the ring of reduce_per_owner always",
              "results_are_as_predicted",
              [] {
                  return FaultHooks{.request = [](Request& r, std::uint64_t&) {
                      if (r.scheme != Scheme::vllm_default) return;
                      r.scheme = Scheme::reduce_per_owner;
                      r.options.forced.algorithm = Algorithm::ring;
                  }};
              }),
    };
}

/// Of a model of one addition.
std::vector<Fault> faults_of_arithmetic() {
    return {
        fault("rounds_toward_zero", "additions drop what does not fit", "results_are_as_predicted",
              [] { return FaultHooks{.add = toward_zero}; }),
        fault("flushes_subnormals", "subnormal sums become zero", "results_are_as_predicted",
              [] {
                  return FaultHooks{.add = [](Format format, Bits left, Bits right) {
                      return flushed(format, HopArithmetic(format).add(left, right));
                  }};
              }),
        fault("subnormals_are_zero", "subnormal operands count as zero", "results_are_as_predicted",
              [] {
                  return FaultHooks{.add = [](Format format, Bits left, Bits right) {
                      return HopArithmetic(format).add(flushed(format, left), flushed(format, right));
                  }};
              }),
        fault("double_rounding", "sums are rounded to float16 first", "results_are_as_predicted",
              [] {
                  return FaultHooks{.add = [](Format format, Bits left, Bits right) {
                      const Bits sum = HopArithmetic(format).add(left, right);
                      if (format != Format::float32 && format != Format::float64) return sum;
                      const Bits narrow = convert(format, Format::float16, sum);
                      return convert(Format::float16, format, narrow);
                  }};
              }),
        fault("no_saturation", "float8 sums overflow to infinity or NaN", "results_are_as_predicted",
              [] {
                  return FaultHooks{.add = [](Format format, Bits left, Bits right) {
                      const FormatTraits& t = traits(format);
                      const Bits sum = HopArithmetic(format).add(left, right);
                      const bool overflows =
                          t.width == 8 && (sum & ~t.sign()) == t.largest() && left != sum && right != sum;
                      return overflows ? (t.has_infinity ? t.infinity() | (sum & t.sign()) : t.nan) : sum;
                  }};
              }),
        fault("saturates_everywhere", "wide formats saturate as float8 does", "results_are_as_predicted",
              [] {
                  return FaultHooks{.add = [](Format format, Bits left, Bits right) {
                      const FormatTraits& t = traits(format);
                      const Bits sum = HopArithmetic(format).add(left, right);
                      return is_infinite(format, sum) ? (sum & t.sign()) | t.largest() : sum;
                  }};
              }),
        fault("negative_zero_lost", "sums of -0 are +0", "scatter_is_pure_movement",
              [] {
                  return FaultHooks{.add = [](Format format, Bits left, Bits right) {
                      const Bits sum = HopArithmetic(format).add(left, right);
                      return is_zero(format, sum) ? Bits{0} : sum;
                  }};
              }),
        fault("nan_keeps_its_payload", "NaN operands pass as they are", "results_are_as_predicted",
              [] {
                  return FaultHooks{.add = [](Format format, Bits left, Bits right) {
                      if (is_nan(format, left)) return left;
                      return is_nan(format, right) ? right : HopArithmetic(format).add(left, right);
                  }};
              }),
        fault("ties_away_from_even", "the last place is off by one where a sum was inexact", "results_are_as_predicted",
              [] {
                  return FaultHooks{.add = [](Format format, Bits left, Bits right) {
                      const Bits sum = HopArithmetic(format).add(left, right);
                      const bool exact =
                          !is_finite(format, sum) || is_zero(format, sum) || add_is_exact(format, left, right);
                      return exact ? sum : sum ^ 1;
                  }};
              }),
    };
}

}  // namespace

std::span<const Fault> faults() {
    static const std::vector<Fault> all = [] {
        std::vector<Fault> table;
        for (const auto part : {faults_of_schemes, faults_of_orders, faults_of_calls, faults_of_arithmetic})
            for (Fault& each : part()) table.push_back(std::move(each));
        return table;
    }();
    return all;
}

std::span<const Fault> faults_of_ranks() {
    static const std::vector<Fault> all = [] {
        const std::vector<Scheme> to_root{Scheme::fixed_root};
        const std::vector<Scheme> ordered{Scheme::gather_ordered, Scheme::exchange_ordered};
        std::vector<Fault> table;
        const auto add = [&](std::string_view name, std::string_view sentence, const std::vector<Scheme>& schemes) {
            table.push_back({name, sentence, "results_are_as_predicted", {}, schemes});
        };
        add("root_is_owner", "fixed_root reduces each chunk to its owner", to_root);
        add("root_copy_on_other_stream", "the root copies its own chunk without waiting for the reduce", to_root);
        add("offset_by_one_row", "chunks are taken one row too early", ordered);
        add("missing_wait", "the ordered sum does not wait for what it adds", ordered);
        add("ring_order", "ordered sums begin with the owner's successor, as rings do", ordered);
        add("fp32_instead_of_per_hop", "ordered sums round once", ordered);
        add("stale_receive_buffer", "gather and exchange add what the last call received", ordered);
        add("sizes_rotated", "rank r takes rank r + 1's size", ordered);
        return table;
    }();
    return all;
}

}  // namespace samesum::fuzz
