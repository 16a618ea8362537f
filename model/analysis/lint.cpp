// Only what a setting is for is written down (lint_settings); what holds under the settings is answered by the model.
// SPDX-License-Identifier: Apache-2.0
#include "model/analysis/lint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "model/analysis/lint_settings.hpp"
#include "model/nccl/communicator.hpp"
#include "model/nccl/schedule.hpp"
#include "model/nccl/settings.hpp"
#include "model/nccl/topology.hpp"
#include "model/nccl/tuning.hpp"
#include "model/support/error.hpp"

namespace samesum {
namespace {

using Holds = CollectiveAnswer::Holds;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// --- Layouts that the settings allow --------------------------------------------------------------------------------

/// A communicator under the settings. What an environment does not say is tried both ways.
struct Layout {
    Communicator comm;
    bool equal_rings = true;
};

/// Speeds only decide which combinations exist; each of them is planned, so the sizes of the speeds do not matter.
Machine any_machine(int ranks_per_node) {
    Machine machine;
    machine.ll128 = true;
    machine.nvls = ranks_per_node > 1;
    machine.ring = {8, 20, 20, 0, true, true};
    machine.tree = {8, 20, 20, 0, true, true};
    machine.nvls_graph = {8, 20, 20, 0, true, true};
    return machine;
}

/// Nodes whose channels visit their GPUs in different orders, as without a switch or with several rails: channel c
/// begins at GPU c, odd channels run backwards, and channels from 2 on also swap their last two GPUs.
Topology with_unequal_rings(int nodes, int per_node) {
    std::vector<std::vector<NodeLists>> lists(at(nodes));
    const int searched = std::min(4, std::max(2, per_node));
    for (int node = 0; node < nodes; ++node)
        for (int c = 0; c < searched; ++c) {
            NodeLists own;
            for (int i = 0; i < per_node; ++i)
                own.ring.push_back(node * per_node + (c + (c % 2 == 0 ? i : per_node - i)) % per_node);
            if (c >= 2 && per_node > 3) std::swap(own.ring[at(per_node - 1)], own.ring[at(per_node - 2)]);
            own.tree = own.ring;
            lists[at(node)].push_back(std::move(own));
        }
    return Topology::from_node_lists(lists);
}

/// All channels of one ring and tree.
Topology with_equal_rings(int nodes, int per_node) {
    if (nodes == 1) return Topology::one_node(per_node, 24);
    std::vector<std::vector<NodeLists>> lists;
    for (int node = 0; node < nodes; ++node) {
        NodeLists own;
        for (int i = 0; i < per_node; ++i) own.ring.push_back(node * per_node + i);
        own.tree = own.ring;
        lists.emplace_back(4, own);
    }
    return Topology::from_node_lists(lists);
}

std::vector<Layout> layouts(const LintScope& scope, const Settings& settings) {
    const int nodes = scope.ranks / scope.ranks_per_node;
    std::vector<Layout> result;
    const auto add = [&](const Topology& topology, bool equal) {
        Communicator comm{topology.with_channels(settings.min_channels, settings.max_channels), scope.version,
                          settings};
        comm.machine = any_machine(scope.ranks_per_node);
        result.push_back({std::move(comm), equal});
    };
    if (scope.ranks_per_node == 1 || scope.ranks == 1) {
        add(Topology::one_rank_per_node(scope.ranks, 2), true);  // rings are always equal then
        return result;
    }
    add(with_equal_rings(nodes, scope.ranks_per_node), true);
    if (scope.ranks > 2) add(with_unequal_rings(nodes, scope.ranks_per_node), false);
    return result;
}

// --- Plans and their orders -----------------------------------------------------------------------------------------

Call some_call(Collective collective, std::uint64_t count, int root = 0) {
    return {.collective = collective, .count = count, .format = Format::bfloat16, .root = root};
}

/// What the settings leave to NCCL's choice.
std::vector<Combination> open_combinations(const Communicator& comm, Collective collective) {
    std::vector<Combination> open;
    for (const Algorithm algorithm : all_algorithms)
        for (const Protocol protocol : all_protocols)
            if (modelled_time(comm, some_call(collective, 1024), algorithm, protocol, 2048))
                open.push_back({algorithm, protocol});
    return open;
}

/// One element's order in one call.
struct Sample {
    Combination how;
    std::uint64_t count, element;
    Order order;
};

std::string shown(const Sample& sample, int ranks) {
    const std::string order = ranks <= 8 ? sample.order.as_tree().str() : sample.order.label();
    return fmt::format("{} in a call of {} ({}, {})", order, sample.count, name(sample.how.algorithm),
                       name(sample.how.protocol));
}

const std::vector<std::uint64_t>& counts() {
    static const std::vector<std::uint64_t> result = [] {
        std::vector<std::uint64_t> list;
        for (std::uint64_t power = 1; power <= (std::uint64_t{1} << 24); power *= 4) {
            list.push_back(power);
            list.push_back(power * 2 + power / 2);
        }
        return list;
    }();
    return result;
}

/// Equal descriptions are not unfolded into trees.
bool differ(const Order& a, const Order& b) { return !(a == b) && !same_order(a, b); }

/// Every plan that the settings allow, smallest calls first; `visit` returns false to stop.
template <class Visit>
void for_each_plan(const Layout& layout, const std::vector<Combination>& open, Collective collective, int root,
                   Visit&& visit) {
    for (const std::uint64_t count : counts())
        for (const Combination& how : open) {
            const Plan plan = plan_call(layout.comm, some_call(collective, count, root), {how.algorithm, how.protocol});
            if (!visit(how, count, plan.schedule)) return;
        }
}

/// Two elements of one call with different orders, or nothing.
std::optional<std::string> position_difference(const Layout& layout, const std::vector<Combination>& open,
                                               Collective collective) {
    std::optional<std::string> found;
    for_each_plan(
        layout, open, collective, 0, [&](const Combination& how, std::uint64_t count, const Schedule& schedule) {
            std::optional<Sample> first;
            std::size_t looked = 0;
            schedule.visit(0, count, [&](const Segment& segment) {
                Sample sample{how, count, segment.begin, segment.order};
                if (!first)
                    first = sample;
                else if (differ(first->order, sample.order))
                    found =
                        fmt::format("element {} {}; element {} {}", first->element, shown(*first, layout.comm.ranks()),
                                    sample.element, shown(sample, layout.comm.ranks()));
                return !found && ++looked < 4096;
            });
            return !found;
        });
    return found;
}

/// The same element of calls of different counts, with different orders.
std::optional<std::string> count_difference(const Layout& layout, const std::vector<Combination>& open,
                                            Collective collective) {
    // A single combination gives the simpler example; then all that NCCL may change to as calls grow.
    if (open.size() > 1)
        for (const Combination& each : open)
            if (auto found = count_difference(layout, {each}, collective)) return found;
    std::map<std::uint64_t, Sample> first;  // by element
    std::optional<std::string> found;
    for_each_plan(
        layout, open, collective, 0, [&](const Combination& how, std::uint64_t count, const Schedule& schedule) {
            for (std::uint64_t element = 0; element < count && !found; element = element == 0 ? 1 : element * 4) {
                Sample sample{how, count, element, schedule.segment_at(element).order};
                const auto [place, fresh] = first.emplace(element, sample);
                if (!fresh && differ(place->second.order, sample.order))
                    found = fmt::format("element {}: {}; {}", element, shown(place->second, layout.comm.ranks()),
                                        shown(sample, layout.comm.ranks()));
            }
            return !found;
        });
    return found;
}

/// The same call for another root, or another rank's block, with different orders.
std::optional<std::string> owner_difference(const Layout& layout, const std::vector<Combination>& open,
                                            Collective collective) {
    if (collective == Collective::all_reduce || layout.comm.ranks() < 2) return std::nullopt;
    for (const Combination& how : open) {
        const std::uint64_t count = 64;
        const auto order_for = [&](int owner) {
            const Plan plan =
                plan_call(layout.comm, some_call(collective, count, collective == Collective::reduce ? owner : 0),
                          {how.algorithm, how.protocol});
            const std::uint64_t element =
                collective == Collective::reduce ? 0 : count * static_cast<std::uint64_t>(owner);
            return Sample{how, count, element, plan.schedule.segment_at(element).order};
        };
        const Sample zero = order_for(0);
        for (int owner = 1; owner < layout.comm.ranks(); ++owner) {
            const Sample other = order_for(owner);
            if (differ(zero.order, other.order))
                return fmt::format("owner 0: {}; owner {}: {}", shown(zero, layout.comm.ranks()), owner,
                                   shown(other, layout.comm.ranks()));
        }
    }
    return std::nullopt;
}

std::optional<std::string> difference(const Layout& layout, const std::vector<Combination>& open, Collective collective,
                                      Invariance invariance) {
    const bool all = invariance == Invariance::routing;
    std::optional<std::string> found;
    if (all || invariance == Invariance::owner) found = owner_difference(layout, open, collective);
    if (!found && (all || invariance == Invariance::position)) found = position_difference(layout, open, collective);
    if (!found && (all || invariance == Invariance::count)) found = count_difference(layout, open, collective);
    return found;
}

// --- Answers --------------------------------------------------------------------------------------------------------

/// Why the order may be hidden from the model.
std::optional<std::string> not_observable(const std::vector<Combination>& open, Collective collective, bool collnet) {
    for (const Combination& each : open)
        if (each.algorithm == Algorithm::nvls || each.algorithm == Algorithm::nvls_tree)
            return fmt::format(
                "{} may be chosen: the switch adds, in an order that NCCL does not specify (its results differed from "
                "call to call on H20, NVIDIA/nccl issue 1497)",
                name(each.algorithm));
    if (collnet && collective != Collective::reduce) return "CollNet may be chosen: the network adds, outside of NCCL";
    return std::nullopt;
}

std::string why_it_holds(Collective collective, Invariance invariance, const std::vector<Combination>& open) {
    const bool all_reduce = collective == Collective::all_reduce;
    switch (invariance) {
        case Invariance::run_to_run:
            return "every algorithm that is left fixes its order by the call alone";
        case Invariance::rank_equal:
            return all_reduce ? "each element is computed once and then copied to all ranks"
                              : "each element ends at one rank";
        case Invariance::owner:
            return all_reduce ? "no rank owns a result (see position)" : "one order for every owner";
        default:
            return fmt::format(
                "one order in every call of 1 to 2^24 elements that was planned, by every algorithm and protocol left "
                "({})",
                algorithms_listed(open));
    }
}

CollectiveAnswer assess(Collective collective, Invariance invariance, const std::vector<Layout>& all, bool collnet) {
    const auto answer = [&](Holds holds, std::string why) {
        return CollectiveAnswer{collective, invariance, holds, std::move(why)};
    };
    if (all.front().comm.ranks() == 1) return answer(Holds::yes, "one rank: nothing is added");
    const bool no_owner = invariance == Invariance::owner && collective == Collective::all_reduce;
    std::map<bool, std::string> differences;  // by equal rings or not
    for (const Layout& layout : all) {
        const auto open = open_combinations(layout.comm, collective);
        if (open.empty())
            return answer(Holds::fails,
                          "no algorithm is left: NCCL fails the call with 'no algorithm/protocol available'");
        if (invariance == Invariance::rank_equal || no_owner) continue;
        if (auto why = not_observable(open, collective, collnet)) return answer(Holds::unknown, std::move(*why));
        if (invariance == Invariance::run_to_run) continue;
        if (auto found = difference(layout, open, collective, invariance))
            differences[layout.equal_rings] = std::move(*found);
    }
    if (differences.count(true) > 0) return answer(Holds::no, differences[true]);
    if (differences.count(false) > 0)
        return answer(Holds::depends,
                      "holds if all channels have one ring and tree ('order show --log' shows them); otherwise " +
                          differences[false]);
    return answer(Holds::yes, why_it_holds(collective, invariance, open_combinations(all.front().comm, collective)));
}

/// "PyTorch's deterministic mode (^NVLS): run-to-run Reduce yes, ReduceScatter yes, ...; position ..."
std::string block_text(std::string_view block, const std::vector<CollectiveAnswer>& answers) {
    std::string text = fmt::format("{}:", block);
    for (const Invariance invariance :
         {Invariance::run_to_run, Invariance::position, Invariance::count, Invariance::owner}) {
        text += fmt::format("{} {}", invariance == Invariance::run_to_run ? "" : ";", name(invariance));
        for (const CollectiveAnswer& answer : answers)
            if (answer.invariance == invariance)
                text += fmt::format("{} {} {}", answer.collective == Collective::reduce ? "" : ",",
                                    name(answer.collective), name(answer.holds));
    }
    return text;
}

// --- Recipes --------------------------------------------------------------------------------------------------------

/// Recipes for one collective, not yet confirmed.
std::vector<Recipe> recipes_for(Collective collective, bool one_node) {
    using Pairs = std::vector<std::pair<std::string, std::string>>;
    const bool reduce = collective == Collective::reduce, all = collective == Collective::all_reduce;
    Pairs one_channel{{"NCCL_MIN_NCHANNELS", "1"}, {"NCCL_MAX_NCHANNELS", "1"}};
    if (!reduce) one_channel.insert(one_channel.begin(), {"NCCL_ALGO", all ? "allreduce:tree" : "reducescatter:ring"});
    std::string cost = "one channel: the bandwidth of one ring of many";
    if (all) {
        cost += "; Tree is also slower than Ring for large calls";
        if (!one_node) cost += "; over several nodes only the first of the two trees is used";
    }
    const auto recipe = [&](Invariance invariance, Pairs settings, std::string price) {
        return Recipe{invariance, collective, std::move(settings), std::move(price), Holds::unknown};
    };
    return {
        reduce ? recipe(Invariance::run_to_run, {}, "nothing: Reduce is always a ring")
               : recipe(Invariance::run_to_run, {{"NCCL_NVLS_ENABLE", "0"}, {"NCCL_COLLNET_ENABLE", "0"}},
                        "NVLS's bandwidth on NVSwitch machines"),
        recipe(Invariance::rank_equal, {}, "nothing"),
        recipe(Invariance::owner, {},
               all ? "nothing: no rank owns a result"
                   : "no setting achieves it: reduce to one fixed root and scatter (fixed_root, 2.1 to 2.3 times the "
                     "traffic), or sum in rank order in your code (exchange_ordered, the same traffic)"),
        recipe(Invariance::position, one_channel, cost),
        recipe(Invariance::count, one_channel, cost),
        all ? recipe(Invariance::routing, one_channel, cost)
            : recipe(Invariance::routing, {},
                     "no setting achieves it: fixed_root on one channel (Reduce with MIN=MAX=1), exchange_ordered, "
                     "or symmetric windows with NCCL_SYM_KERNEL=ReduceScatter_LL (rank order)"),
    };
}

std::vector<Recipe> confirmed_recipes(const LintScope& scope) {
    std::vector<Recipe> result;
    for (const Collective collective : all_collectives)
        for (Recipe& recipe : recipes_for(collective, scope.ranks == scope.ranks_per_node)) {
            Environment environment(recipe.settings.begin(), recipe.settings.end());
            if (recipe.settings.empty() && recipe.invariance != Invariance::rank_equal)
                environment.emplace("NCCL_NVLS_ENABLE", "0");
            Settings settings;
            apply_environment(environment, settings);
            recipe.confirmed = assess(collective, recipe.invariance, layouts(scope, settings), false).holds;
            result.push_back(std::move(recipe));
        }
    return result;
}

/// Takes the settings one by one; those that NCCL does not take are returned, each with the reason.
std::vector<LintRow> accept_settings(LintContext& context) {
    std::vector<LintRow> rejected;
    for (const auto& [key, value] : context.environment) {
        try {
            Settings alone;
            apply_environment({{key, value}}, alone);
            context.accepted[key] = value;
        } catch (const UsageError& error) {
            std::string why = error.what();
            if (const std::string front = fmt::format("{}={}: ", key, value); why.starts_with(front))
                why.erase(0, front.size());
            rejected.push_back({LintRow::Effect::rejected, key, value, why});
        }
    }
    apply_environment(context.accepted, context.settings);
    return rejected;
}

}  // namespace

std::string_view name(LintRow::Effect effect) {
    constexpr std::array<std::string_view, 6> names{"pins", "acts", "inert", "rejected", "contradictory", "missing"};
    return names.at(static_cast<std::size_t>(effect));
}

std::string_view name(CollectiveAnswer::Holds holds) {
    constexpr std::array<std::string_view, 5> names{"yes", "depends", "unknown", "no", "fails"};
    return names.at(static_cast<std::size_t>(holds));
}

LintReport lint(const Environment& environment, const LintScope& scope) {
    if (scope.ranks < 1 || scope.ranks_per_node < 1 || scope.ranks % scope.ranks_per_node != 0 || scope.ranks > 1024)
        throw UsageError(
            fmt::format("--ranks {} --ranks-per-node {}: expected 1 to 1024 ranks, a multiple of the "
                        "ranks per node",
                        scope.ranks, scope.ranks_per_node));
    LintContext context{.environment = environment, .accepted = {}, .settings = {}, .scope = scope, .open = {}};
    // What the framework sets later is part of the environment that NCCL sees.
    if (value_in(environment, "VLLM_BATCH_INVARIANT") == "1")
        for (const auto& [key, value] : vllm_block()) context.environment[key] = value;
    const std::vector<LintRow> rejected = accept_settings(context);
    const std::vector<Layout> all = layouts(scope, context.settings);
    context.channels = all.front().comm.channels();
    for (const Collective collective : all_collectives)
        context.open[collective] = open_combinations(all.front().comm, collective);

    LintReport report;
    const bool collnet = value_in(context.accepted, "NCCL_COLLNET_ENABLE") == "1" && scope.ranks_per_node < scope.ranks;
    const auto fatal = std::find_if(rejected.begin(), rejected.end(), [](const LintRow& row) {
        return row.key == "NCCL_ALGO" || row.key == "NCCL_PROTO";
    });
    for (const Collective collective : all_collectives)
        for (const Invariance invariance : all_invariances)
            report.answers.push_back(
                fatal == rejected.end()
                    ? assess(collective, invariance, all, collnet)
                    : CollectiveAnswer{collective, invariance, Holds::fails,
                                       fmt::format("NCCL fails the communicator on {}={}", fatal->key, fatal->value)});
    for (const auto& [key, value] : context.environment) {
        if (!concerns_sums(key)) continue;
        const auto bad = std::find_if(rejected.begin(), rejected.end(),
                                      [&, &own = key](const LintRow& row) { return row.key == own; });
        report.rows.push_back(bad != rejected.end() ? *bad : row_of_setting(context, key, value));
    }
    for (LintRow& row : rows_of_gaps(context)) report.rows.push_back(std::move(row));
    for (const std::string_view block : known_blocks(context.environment))
        report.blocks.push_back(block_text(block, report.answers));
    report.recipes = confirmed_recipes(scope);
    return report;
}

}  // namespace samesum
