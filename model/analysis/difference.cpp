// The usual orders are tried on all elements at once, by vector code; what they leave is searched element by element.
// SPDX-License-Identifier: Apache-2.0
#include "model/analysis/difference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "model/sum/reachable.hpp"
#include "model/support/error.hpp"
#include "model/support/progress.hpp"

namespace samesum {
namespace {

using Bytes = std::vector<std::byte>;

/// An order and a rounding that gives a whole result: `tree` is a number in the list of trees.
struct WholeSum {
    Accumulation rounding;
    std::size_t tree;
};

/// One of the two results, and which trees give its differing elements.
struct Side {
    ConstBytes whole;
    Bytes differing;  ///< its values at the elements that differ
    /// By rounding, for each differing element the number of a tree that gives it; none yet.
    std::map<Accumulation, std::vector<std::optional<std::size_t>>> made{};
    std::vector<WholeSum> single{};  ///< each gives all of the result, also where the two are equal

    [[nodiscard]] bool made_by(Accumulation rounding) const {
        const auto& trees = made.at(rounding);
        return std::all_of(trees.begin(), trees.end(), [](const auto& tree) { return tree.has_value(); });
    }
    /// A rounding that gives all differing elements, each by some tree.
    [[nodiscard]] std::optional<Accumulation> rounding() const {
        for (const auto& [rounding, trees] : made)
            if (made_by(rounding)) return rounding;
        return std::nullopt;
    }
    /// Rounding and tree of one element: those of the whole result where there are such.
    [[nodiscard]] std::optional<WholeSum> at(std::size_t i) const {
        if (!single.empty()) return single.front();
        const auto whole_rounding = rounding();
        for (const auto& [rounding, trees] : made)
            if ((!whole_rounding || rounding == *whole_rounding) && trees[i]) return WholeSum{rounding, *trees[i]};
        return std::nullopt;
    }
};

class Search {
public:
    Search(Format format, std::span<const ConstBytes> partials, ConstBytes a, ConstBytes b)
        : format_(format), partials_(partials.begin(), partials.end()), sides_{Side{a, {}}, Side{b, {}}} {
        const auto bytes = static_cast<std::size_t>(traits(format).bytes());
        for (std::uint64_t i = 0; i < a.size() / bytes; ++i)
            if (load(format, a, i) != load(format, b, i)) elements_.push_back(i);
        columns_.resize(partials.size());
        for (std::size_t rank = 0; rank < partials.size(); ++rank) columns_[rank] = selected(partials[rank]);
        roundings_ = {Accumulation::per_hop};
        if (traits(format).is_float && traits(format).width < 32) roundings_.push_back(Accumulation::fp32_once);
        if (traits(format).is_float) roundings_.push_back(Accumulation::exact);
        for (Side& side : sides_) {
            side.differing = selected(side.whole);
            for (const Accumulation rounding : roundings_) side.made[rounding].resize(elements_.size());
        }
    }

    [[nodiscard]] std::size_t differing() const { return elements_.size(); }

    void try_trees(std::vector<ReductionTree> trees) {
        trees_ = std::move(trees);
        for (const Accumulation rounding : roundings_)
            // An exact sum has no order: one tree stands for all.
            for (std::size_t tree = 0; tree < (rounding == Accumulation::exact ? 1 : trees_.size()); ++tree)
                try_tree(rounding, tree);
    }

    /// The simplest explanation of what is known so far, if there is one.
    [[nodiscard]] std::optional<Difference> answer() {
        if (take_single_orders())
            return explained(sides_[0].single.front().rounding == sides_[1].single.front().rounding
                                 ? DifferenceKind::order_change
                                 : DifferenceKind::rounding_model);
        for (const Accumulation rounding : roundings_) {
            if (!sides_[0].made_by(rounding) || !sides_[1].made_by(rounding)) continue;
            for (Side& side : sides_) {
                side.made = {{rounding, side.made.at(rounding)}};
                std::erase_if(side.single, [&](const WholeSum& each) { return each.rounding != rounding; });
            }
            return explained(DifferenceKind::order_change);
        }
        if (sides_[0].rounding() && sides_[1].rounding()) return explained(DifferenceKind::rounding_model);
        return std::nullopt;
    }

    /// Searches all orders, element by element, for what the usual ones do not give.
    [[nodiscard]] Difference search_all(double seconds) {
        const double deadline = monotonic_seconds() + seconds;
        std::string undecided;
        for (std::size_t i = 0; i < elements_.size(); ++i)
            for (const std::size_t which : {0, 1})
                if (const auto nearest = search_element(i, which, deadline, seconds, undecided))
                    return explained(DifferenceKind::defect, {evidence(i, *nearest, which)});
        if (auto found = answer()) return *found;
        if (!undecided.empty())
            throw Inconclusive(fmt::format("neither an order nor a defect was found; {}", undecided));
        // Every element has a rounding, but no single rounding gives all of a result.
        return explained(DifferenceKind::rounding_model);
    }

private:
    /// The elements that differ, out of a whole buffer.
    [[nodiscard]] Bytes selected(ConstBytes whole) const {
        Bytes values(elements_.size() * static_cast<std::size_t>(traits(format_).bytes()));
        for (std::size_t i = 0; i < elements_.size(); ++i)
            store(format_, values, i, load(format_, whole, elements_[i]));
        return values;
    }

    [[nodiscard]] Bytes sum(Accumulation rounding, std::size_t tree, std::span<const ConstBytes> inputs) const {
        Bytes sums(inputs.front().size());
        sum_buffers({.format = format_, .accumulation = rounding}, trees_[tree], inputs, sums);
        return sums;
    }

    void try_tree(Accumulation rounding, std::size_t tree) {
        const Bytes sums = sum(rounding, tree, std::vector<ConstBytes>(columns_.begin(), columns_.end()));
        std::optional<Bytes> whole;
        for (Side& side : sides_) {
            bool all = true;
            for (std::size_t i = 0; i < elements_.size(); ++i) {
                auto& made = side.made.at(rounding)[i];
                const bool hit = load(format_, sums, i) == load(format_, side.differing, i);
                if (hit && !made) made = tree;
                all = all && hit;
            }
            if (!all) continue;
            if (!whole) whole = sum(rounding, tree, partials_);
            if (std::equal(whole->begin(), whole->end(), side.whole.begin(), side.whole.end()))
                side.single.push_back({rounding, tree});
        }
    }

    /// One order for all of a and one for all of b: of several such pairs one of the same rounding, then of the same
    /// tree.
    bool take_single_orders() {
        std::optional<std::pair<WholeSum, WholeSum>> best;
        const auto rank_of = [](const WholeSum& a, const WholeSum& b) {
            return std::pair(a.rounding != b.rounding, a.tree != b.tree);
        };
        for (const WholeSum& a : sides_[0].single)
            for (const WholeSum& b : sides_[1].single)
                if (!best || rank_of(a, b) < rank_of(best->first, best->second)) best = {a, b};
        if (!best) return false;
        sides_[0].single = {best->first};
        sides_[1].single = {best->second};
        return true;
    }

    /// Looks for a tree in each rounding that has none yet. The nearest results, if no rounding has one: a defect.
    std::optional<std::vector<Bits>> search_element(std::size_t i, std::size_t which, double deadline, double seconds,
                                                    std::string& undecided) {
        std::vector<Bits> leaves, nearest;
        for (const Bytes& column : columns_) leaves.push_back(load(format_, column, i));
        Side& side = sides_[which];
        std::size_t unreachable = 0;
        for (auto& [rounding, trees] : side.made) {
            if (trees[i]) continue;
            const double left = deadline - monotonic_seconds();
            if (left <= 0)
                throw Inconclusive(
                    fmt::format("no defect among the first {} of {} elements that differ, and {:g} seconds are over: "
                                "expected more seconds or fewer elements",
                                i, elements_.size(), seconds));
            const Reach found = reach({.format = format_, .accumulation = rounding}, leaves,
                                      load(format_, side.differing, i), {.seconds = left});
            if (found.tree) {
                trees[i] = trees_.size();
                trees_.push_back(*found.tree);
            }
            unreachable += found.verdict == Reach::Verdict::unreachable;
            if (found.verdict == Reach::Verdict::undecided && undecided.empty())
                undecided = fmt::format("element {} of {}: {}", elements_[i], which == 0 ? "a" : "b", found.why);
            if (rounding == Accumulation::per_hop)
                for (const auto& near : {found.below, found.above})
                    if (near) nearest.push_back(*near);
        }
        if (unreachable < roundings_.size()) return std::nullopt;
        return nearest;
    }

    [[nodiscard]] DifferingElement evidence(std::size_t i, std::vector<Bits> nearest = {},
                                            std::optional<std::size_t> defect_in = {}) const {
        DifferingElement differing{elements_[i], {}, std::move(nearest)};
        for (const std::size_t which : {0, 1}) {
            ExplainedElement& result = differing.results[which];
            result.bits = load(format_, sides_[which].differing, i);
            result.defect = defect_in == which;
            if (const auto made = sides_[which].at(i)) {
                result.tree = trees_[made->tree];
                result.rounding = made->rounding;
            }
        }
        return differing;
    }

    [[nodiscard]] Difference explained(DifferenceKind kind, std::vector<DifferingElement> elements = {}) const {
        Difference difference{kind, sides_[0].whole.size() / static_cast<std::size_t>(traits(format_).bytes()),
                              elements_.size()};
        for (const std::size_t which : {0, 1}) {
            const Side& side = sides_[which];
            difference.roundings[which] = side.single.empty() ? side.rounding() : side.single.front().rounding;
            if (!side.single.empty()) difference.orders[which] = trees_[side.single.front().tree];
        }
        for (std::size_t i = 0; elements.empty() && i < std::min<std::size_t>(3, elements_.size()); ++i)
            difference.evidence.push_back(evidence(i));
        if (!elements.empty()) difference.evidence = std::move(elements);
        return difference;
    }

    Format format_;
    std::vector<ConstBytes> partials_;
    std::array<Side, 2> sides_;
    std::vector<std::uint64_t> elements_;  ///< that differ
    std::vector<Bytes> columns_;           ///< the partials at those elements, by rank
    std::vector<Accumulation> roundings_;
    std::vector<ReductionTree> trees_;
};

/// The given orders, then the usual ones, each once.
std::vector<ReductionTree> orders_to_try(std::span<const ReductionTree> given, int ranks) {
    std::vector<ReductionTree> orders;
    const auto add = [&](const ReductionTree& order) {
        if (std::find(orders.begin(), orders.end(), order) == orders.end()) orders.push_back(order);
    };
    for (const ReductionTree& order : given) add(order);
    add(parse_order("chain", ranks));
    for (int rank = 0; rank < ranks; ++rank) add(parse_order(fmt::format("ring:{}", rank), ranks));
    add(parse_order("reversed", ranks));
    add(parse_order("balanced", ranks));
    return orders;
}

void check_sizes(Format format, std::span<const ConstBytes> partials, ConstBytes a, ConstBytes b,
                 std::span<const ReductionTree> orders) {
    if (a.empty() || b.empty()) throw UsageError("a and b hold no element: comparing nothing shows nothing");
    const bool fits =
        std::all_of(partials.begin(), partials.end(), [&](const ConstBytes& each) { return each.size() == a.size(); });
    if (partials.empty() || !fits || a.size() != b.size() ||
        a.size() % static_cast<std::size_t>(traits(format).bytes()) != 0)
        throw UsageError(
            fmt::format("a has {} bytes, b {}: expected as many as each rank's partials, whole elements of "
                        "{}",
                        a.size(), b.size(), name(format)));
    for (const ReductionTree& order : orders)
        if (order.leaf_count() != static_cast<int>(partials.size()))
            throw UsageError(
                fmt::format("'{}' adds {} values: expected {}", order.str(), order.leaf_count(), partials.size()));
}

}  // namespace

std::string_view name(DifferenceKind kind) {
    constexpr std::array<std::string_view, 4> names{"same", "order change", "rounding model", "defect"};
    return names.at(static_cast<std::size_t>(kind));
}

Difference explain_difference(Format format, std::span<const ConstBytes> partials, ConstBytes a, ConstBytes b,
                              std::span<const ReductionTree> orders, double seconds) {
    check_sizes(format, partials, a, b, orders);
    Search search(format, partials, a, b);
    if (search.differing() == 0) return {.elements = a.size() / static_cast<std::size_t>(traits(format).bytes())};
    search.try_trees(orders_to_try(orders, static_cast<int>(partials.size())));
    if (auto found = search.answer()) return *found;
    return search.search_all(seconds);
}

}  // namespace samesum
