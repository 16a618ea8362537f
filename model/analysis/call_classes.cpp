// Equal calls are planned once; the class of a call follows from the orders in its plan and in plans of varied calls.
// SPDX-License-Identifier: Apache-2.0
#include "model/analysis/call_classes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "model/nccl/schedule.hpp"
#include "model/support/error.hpp"
#include "model/support/input_names.hpp"

namespace samesum {
namespace {

Call as_call(const RecordedCall& recorded) {
    return {.collective = *recorded.reducing,
            .count = recorded.count,
            .format = *recorded.format,
            .operation = recorded.operation,
            .root = recorded.root,
            .in_place = recorded.in_place,
            .registered = recorded.captured};
}

/// Distinct orders, up to swapping operands; of each plan the first 64.
class Orders {
public:
    void add(const Order& order) {
        if (!order.observable()) {
            hidden_ = order.why_not();
            return;
        }
        if (std::any_of(seen_.begin(), seen_.end(), [&](const Order& known) { return known == order; })) return;
        seen_.push_back(order);
        const ReductionTree tree = order.as_tree().canonical();
        if (std::find(trees_.begin(), trees_.end(), tree) == trees_.end()) trees_.push_back(tree);
    }
    void add(const Plan& plan) {
        for (const Order& order : plan.schedule.orders(64)) add(order);
        if (plan.accumulation == Accumulation::fp32_once) hidden_ = "a symmetric kernel";
    }
    [[nodiscard]] std::size_t size() const { return trees_.size(); }
    [[nodiscard]] const std::string& hidden() const { return hidden_; }

private:
    std::vector<Order> seen_;
    std::vector<ReductionTree> trees_;
    std::string hidden_;
};

/// Equal calls.
struct Kind {
    RecordedCall call;
    const CallStream* stream = nullptr;
    RecordedCommunicator comm;
    std::vector<RecordedCall> group{};  ///< the sums of its group on its communicator, including itself
    std::size_t place = 0;              ///< its index in `group`
    std::size_t times = 0;
};

/// Class of a call that needs no plan; nothing where the call must be planned.
std::optional<OrderClass> class_without_a_plan(const Kind& kind) {
    const RecordedCall& call = kind.call;
    if (!call.reducing || !call.format || call.count == 0 || kind.comm.ranks == 1) return OrderClass::nothing_added;
    if (*call.reducing == Collective::reduce && (call.root < 0 || call.root >= kind.comm.ranks))
        return OrderClass::nothing_added;
    if (call.did == "refused") return OrderClass::refused;
    if (!traits(*call.format).is_float || call.operation == Operation::min || call.operation == Operation::max)
        return OrderClass::no_order;
    if (kind.comm.ranks == 2) return OrderClass::one_addition;
    return std::nullopt;
}

class CallClassifier {
public:
    CallClassifier(
        const std::function<ResolvedCommunicator(const CallStream&, const RecordedCommunicator&)>& resolve_for,
        std::vector<std::string>& assumptions)
        : resolve_for_(resolve_for), assumptions_(assumptions) {}

    ClassifiedCalls classify(const Kind& kind, std::span<const Kind> all) {
        ClassifiedCalls classified{.call = kind.call, .ranks = kind.comm.ranks, .times = kind.times};
        if (const auto settled = class_without_a_plan(kind)) {
            classified.order_class = *settled;
            return classified;
        }
        if (kind.call.did == "replaced")
            replaced(kind, classified);
        else
            forwarded(kind, all, classified);
        const bool scaled = kind.call.operation == Operation::avg || kind.call.operation == Operation::premulsum;
        if (scaled && classified.order_class == OrderClass::invariant)
            classified.order_class = OrderClass::count_dependent;
        if (scaled)
            classified.why += "; NCCL scales during the sum, with a rounding that depends on protocol and position";
        return classified;
    }

private:
    void assume(const std::string& what) {
        if (std::find(assumptions_.begin(), assumptions_.end(), what) == assumptions_.end())
            assumptions_.push_back(what);
    }

    /// The plan of one call of a group.
    Plan plan(const Kind& kind, std::span<const Call> group, std::size_t place) {
        const ResolvedCommunicator& resolved = resolved_for(kind);
        Forced forced = resolved.forced;
        std::vector<Plan> plans;
        try {
            plans = plan_group(resolved.comm, group, forced);
        } catch (const UsageError&) {
            if (resolved.comm.machine || (forced.algorithm && forced.protocol)) throw;
            if (!forced.algorithm) {
                forced.algorithm = Algorithm::ring;
                assume(fmt::format("Ring for every sum (NCCL's log: '-> Algo'; {}, {})", input_name("algo"),
                                   input_name("machine")));
            }
            if (!forced.protocol) {
                forced.protocol = Protocol::simple;
                assume(fmt::format("Simple for every sum (NCCL's log: 'proto'; {}, {})", input_name("proto"),
                                   input_name("machine")));
            }
            plans = plan_group(resolved.comm, group, forced);
        }
        for (Plan& each : plans)
            if (each.index == place) return std::move(each);
        throw UsageError("a call is not one of its group");
    }
    Plan plan_alone(const Kind& kind, const Call& call) { return plan(kind, {&call, 1}, 0); }

    const ResolvedCommunicator& resolved_for(const Kind& kind) {
        const auto key = std::pair(kind.stream, kind.comm.ranks);
        const auto found = resolved_.find(key);
        if (found != resolved_.end()) return found->second;
        ResolvedCommunicator resolved = resolve_for_(*kind.stream, kind.comm);
        for (const std::string& assumption : resolved.assumptions) assume(assumption);
        return resolved_.emplace(key, std::move(resolved)).first->second;
    }

    void replaced(const Kind& kind, ClassifiedCalls& classified) {
        classified.order_class = OrderClass::invariant;
        if (kind.stream->policy != "fixed_root") {
            classified.prediction = "rank order";
            classified.why = fmt::format("summed in rank order under SAMESUM_POLICY={}", kind.stream->policy);
            return;
        }
        Call reduce = as_call(kind.call);
        reduce.count = reduce.total(kind.comm.ranks);
        reduce.collective = Collective::reduce;
        reduce.root = 0;
        const Plan planned = plan_alone(kind, reduce);
        classified.prediction = describe(planned);
        Orders orders;
        orders.add(planned);
        classified.why = "one ncclReduce to root 0, all channels on one ring";
        if (orders.size() <= 1) return;
        classified.order_class = OrderClass::position_dependent;
        classified.why = fmt::format("one ncclReduce, whose channels' rings give {} orders", orders.size());
    }

    void forwarded(const Kind& kind, std::span<const Kind> all, ClassifiedCalls& classified) {
        std::vector<Call> group;
        for (const RecordedCall& each : kind.group) group.push_back(as_call(each));
        const Plan planned = plan(kind, group, kind.place);
        classified.prediction = describe(planned);
        Orders own;
        own.add(planned);
        const Call& call = group[kind.place];
        const auto settle = [&](OrderClass order_class, std::string why) {
            classified.order_class = order_class;
            classified.why = std::move(why);
        };
        if (!own.hidden().empty()) return settle(OrderClass::not_observable, own.hidden());
        if (call.collective == Collective::reduce_scatter && own.size() > 1)
            return settle(OrderClass::owner_dependent, fmt::format("{} orders, by the receiving rank", own.size()));
        if (call.collective == Collective::reduce)
            if (const std::size_t orders = orders_by_root(kind, all, call, own); orders > own.size())
                return settle(OrderClass::owner_dependent, fmt::format("{} orders, by the root", orders));
        if (own.size() > 1)
            return settle(OrderClass::position_dependent,
                          fmt::format("{} orders in one call, by the element's position", own.size()));
        if (const auto count = count_with_other_orders(kind, all, call, own))
            return settle(OrderClass::count_dependent,
                          fmt::format("one order here, other orders with {} elements", *count));
        settle(OrderClass::invariant, "one order for every count and position");
    }

    /// Orders of the call over all roots that the job reduces to: the owner of a row is its root.
    std::size_t orders_by_root(const Kind& kind, std::span<const Kind> all, const Call& call, Orders orders) {
        for (const Kind& other : all) {
            if (other.comm.ranks != kind.comm.ranks || !other.call.reducing || class_without_a_plan(other) ||
                *other.call.reducing != Collective::reduce || other.call.did != "forwarded")
                continue;
            Call to = call;
            to.root = other.call.root;
            if (to.root != call.root) orders.add(plan_alone(kind, to));
        }
        return orders.size();
    }

    /// A count, of those of the job and some more, at which the call has further orders.
    std::optional<std::uint64_t> count_with_other_orders(const Kind& kind, std::span<const Kind> all, const Call& call,
                                                         const Orders& own) {
        std::vector<std::uint64_t> counts{1, call.count * 2, std::uint64_t{1} << 14, std::uint64_t{1} << 20,
                                          std::uint64_t{1} << 25};
        for (const Kind& other : all)
            if (other.comm.ranks == kind.comm.ranks && other.call.reducing == kind.call.reducing &&
                other.call.count > 0)
                counts.push_back(other.call.count);
        for (const std::uint64_t count : counts) {
            Orders with = own;
            Call other = call;
            other.count = count;
            with.add(plan_alone(kind, other));
            if (with.size() != own.size()) return count;
        }
        return std::nullopt;
    }

    const std::function<ResolvedCommunicator(const CallStream&, const RecordedCommunicator&)>& resolve_for_;
    std::vector<std::string>& assumptions_;
    std::map<std::pair<const CallStream*, int>, ResolvedCommunicator> resolved_;
};

/// All that can change a call's class, as text.
std::string key_of(const RecordedCall& call, int ranks) {
    return fmt::format("{} {} {} {} {} {} {} {} {} {}", ranks, call.collective, call.count,
                       call.format ? name(*call.format) : "", static_cast<int>(call.operation), call.root,
                       call.captured, call.in_place, call.did, call.group != 0);
}

/// The sums of one group on one communicator that NCCL computed (not replaced).
struct Group {
    std::vector<RecordedCall> sums;
    std::map<std::size_t, std::size_t> places;  ///< index in `sums`, by index in the stream
    std::string key;
};

std::map<std::pair<std::uint64_t, std::uint64_t>, Group> groups_of(const CallStream& stream) {
    std::map<std::pair<std::uint64_t, std::uint64_t>, Group> groups;
    for (std::size_t i = 0; i < stream.calls.size(); ++i) {
        const RecordedCall& call = stream.calls[i];
        const RecordedCommunicator& comm = stream.communicators.at(call.communicator);
        if (call.group == 0 || call.did != "forwarded" ||
            class_without_a_plan({.call = call, .comm = comm}) == OrderClass::nothing_added)
            continue;
        Group& group = groups[{call.communicator, call.group}];
        group.places[i] = group.sums.size();
        group.sums.push_back(call);
        group.key += " | " + key_of(call, comm.ranks);
    }
    return groups;
}

std::vector<Kind> kinds_of(std::span<const CallStream> streams) {
    std::vector<Kind> kinds;
    std::map<std::string, std::size_t> known;
    for (const CallStream& stream : streams) {
        const auto groups = groups_of(stream);
        for (std::size_t i = 0; i < stream.calls.size(); ++i) {
            const RecordedCall& call = stream.calls[i];
            const RecordedCommunicator& comm = stream.communicators.at(call.communicator);
            std::string key = fmt::format("{} {}", stream.policy, key_of(call, comm.ranks));
            const auto group = groups.find({call.communicator, call.group});
            const bool grouped = group != groups.end() && group->second.places.count(i) > 0;
            if (grouped) key += group->second.key;
            const auto [place, is_new] = known.emplace(key, kinds.size());
            if (is_new) {
                kinds.push_back({.call = call, .stream = &stream, .comm = comm, .group = {call}});
                if (grouped) {
                    kinds.back().group = group->second.sums;
                    kinds.back().place = group->second.places.at(i);
                }
            }
            ++kinds[place->second].times;
        }
    }
    return kinds;
}

constexpr std::array<std::string_view, 9> class_names{
    "nothing added",  "no order",        "one addition",       "invariant",      "refused",
    "not observable", "count-dependent", "position-dependent", "owner-dependent"};

}  // namespace

std::string_view name(OrderClass order_class) { return class_names.at(static_cast<std::size_t>(order_class)); }
bool depends(OrderClass order_class) { return order_class >= OrderClass::count_dependent; }

std::vector<ClassifiedCalls> classify_calls(
    std::span<const CallStream> streams,
    const std::function<ResolvedCommunicator(const CallStream&, const RecordedCommunicator&)>& resolve_for,
    std::vector<std::string>& assumptions) {
    const std::vector<Kind> kinds = kinds_of(streams);
    CallClassifier classify(resolve_for, assumptions);
    std::vector<ClassifiedCalls> classified;
    for (const Kind& kind : kinds) classified.push_back(classify.classify(kind, kinds));
    std::stable_sort(classified.begin(), classified.end(), [](const ClassifiedCalls& a, const ClassifiedCalls& b) {
        return std::pair(a.order_class, a.times) > std::pair(b.order_class, b.times);
    });
    return classified;
}

}  // namespace samesum
