// Alike calls are planned once; what depends on what is read off the orders of the plans.
// SPDX-License-Identifier: Apache-2.0
#include "model/call_stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "model/error.hpp"
#include "model/schedule.hpp"
#include "model/text.hpp"

namespace samesum {
namespace {

using Json = nlohmann::json;

/// Reads lines, knows where it is.
class Reader {
public:
    explicit Reader(std::string_view text, const std::string& file) : rest_(text), stream_{.file = file} {}

    CallStream read() {
        while (!rest_.empty()) {
            const std::size_t end = rest_.find('\n');
            const bool finished = end != std::string_view::npos;
            const std::string_view line = rest_.substr(0, end);
            rest_.remove_prefix(finished ? end + 1 : rest_.size());
            ++number_;
            if (trimmed(line).empty()) continue;
            const Json json = Json::parse(line, nullptr, false);
            if (json.is_discarded() && !finished && number_ > 1) break;
            if (json.is_array())
                call(json);
            else if (json.is_object())
                object(json);
            else
                wrong("not a line of a call stream");
        }
        if (columns_.empty()) wrong("no header; a file that SAMESUM_POLICY=observe wrote would be right");
        return std::move(stream_);
    }

private:
    [[noreturn]] void wrong(std::string_view what) const {
        throw UsageError(fmt::format("{}:{}: {}", stream_.file, std::max<std::size_t>(number_, 1), what));
    }
    [[nodiscard]] const Json& field(const Json& json, const char* key) const {
        const auto place = json.find(key);
        if (place == json.end()) wrong(fmt::format("no field '{}'", key));
        return *place;
    }
    [[nodiscard]] std::string text(const Json& value, std::string_view what) const {
        if (!value.is_string()) wrong(fmt::format("{} is no text", what));
        auto found = value.get<std::string>();
        if (found.find_first_of("\n\r") != std::string::npos) wrong(fmt::format("{} has a line break", what));
        return found;
    }
    [[nodiscard]] std::uint64_t whole(const Json& value, std::string_view what, std::uint64_t least,
                                      std::uint64_t most) const {
        if (!value.is_number_unsigned() || value.get<std::uint64_t>() < least || value.get<std::uint64_t>() > most)
            wrong(fmt::format("{} is no whole number from {} to {}", what, least, most));
        return value.get<std::uint64_t>();
    }
    [[nodiscard]] bool truth(const Json& value, std::string_view what) const {
        if (!value.is_boolean()) wrong(fmt::format("{} is neither true nor false", what));
        return value.get<bool>();
    }
    /// A reader's complaint, with the place in front.
    auto here(auto&& read) const {
        try {
            return read();
        } catch (const UsageError& error) {
            wrong(error.what());
        }
    }

    void object(const Json& json) {
        if (json.contains("samesum")) return header(json);
        if (columns_.empty()) wrong("no header; a file that SAMESUM_POLICY=observe wrote would be right");
        RecordedCommunicator comm;
        const std::uint64_t key = whole(field(json, "communicator"), "communicator", 1, most_number);
        comm.ranks = static_cast<int>(whole(field(json, "ranks"), "ranks", 1, 1 << 20));
        comm.rank = static_cast<int>(whole(field(json, "rank"), "rank", 0, static_cast<std::uint64_t>(comm.ranks - 1)));
        if (json.contains("gpus_seen"))
            comm.gpus_seen = static_cast<int>(whole(json["gpus_seen"], "gpus_seen", 1, 1 << 20));
        stream_.communicators[key] = comm;
    }

    void header(const Json& json) {
        if (!columns_.empty()) wrong("a second header: two files in one");
        if (field(json, "samesum") != "calls") wrong("a file of samesum's, but no call stream");
        if (field(json, "format") != 1) wrong("a call stream of another format; 1 would be right");
        stream_.version = here([&] { return parse_nccl_version(text(field(json, "nccl"), "nccl")); });
        stream_.policy = text(field(json, "policy"), "policy");
        constexpr std::array policies{"observe", "fixed_root", "ordered", "direct"};
        if (std::find(policies.begin(), policies.end(), stream_.policy) == policies.end())
            wrong("policy: observe, fixed_root, ordered or direct");
        if (field(json, "environment").is_object())
            for (const auto& [key, value] : json["environment"].items())
                stream_.environment[key] = text(value, "a setting");
        std::vector<std::string> given;
        if (field(json, "columns").is_array())
            for (const Json& each : json["columns"]) given.push_back(text(each, "a column"));
        for (const char* name :
             {"communicator", "collective", "count", "dtype", "op", "root", "group", "captured", "did", "in_place"}) {
            const auto place = std::find(given.begin(), given.end(), name);
            if (place == given.end()) wrong(fmt::format("no column '{}'", name));
            columns_[name] = static_cast<std::size_t>(place - given.begin());
        }
        width_ = given.size();
    }

    void call(const Json& row) {
        if (columns_.empty()) wrong("a call before the header");
        if (row.size() != width_) wrong(fmt::format("{} fields; the header names {}", row.size(), width_));
        const auto at = [&](const char* column) -> const Json& { return row[columns_.at(column)]; };
        RecordedCall call;
        call.communicator = whole(at("communicator"), "communicator", 1, most_number);
        if (stream_.communicators.count(call.communicator) == 0)
            wrong(fmt::format("communicator {} was not introduced", call.communicator));
        constexpr std::array moving{"AllGather", "AlltoAll", "Gather", "Scatter", "Bcast", "Broadcast", "Send", "Recv"};
        call.collective = text(at("collective"), "collective");
        if (std::find(moving.begin(), moving.end(), call.collective) == moving.end())
            call.reducing = here([&] { return parse_collective(call.collective); });
        call.count = whole(at("count"), "count", 0, std::uint64_t{1} << 44);
        const std::string type = text(at("dtype"), "dtype");
        if (type != "no type") call.format = here([&] { return parse_format(type); });
        if (call.reducing) call.operation = here([&] { return parse_operation(text(at("op"), "op")); });
        if (!at("root").is_number_integer()) wrong("root is no whole number");
        const auto root = at("root").get<std::int64_t>();
        call.root = static_cast<int>(std::clamp<std::int64_t>(root, -1, 1 << 20));
        call.group = whole(at("group"), "group", 0, most_number);
        call.captured = truth(at("captured"), "captured");
        call.in_place = truth(at("in_place"), "in_place");
        call.did = text(at("did"), "did");
        if (call.did != "forwarded" && call.did != "replaced" && call.did != "refused")
            wrong("did: forwarded, replaced or refused");
        if (call.did != "forwarded" && stream_.policy == "observe") wrong("observe forwards every call");
        stream_.calls.push_back(std::move(call));
    }

    static constexpr std::uint64_t most_number = std::uint64_t{1} << 62;
    std::string_view rest_;
    std::size_t number_ = 0;
    CallStream stream_;
    std::map<std::string, std::size_t> columns_;
    std::size_t width_ = 0;
};

Call as_call(const RecordedCall& recorded) {
    return {.collective = *recorded.reducing,
            .count = recorded.count,
            .format = *recorded.format,
            .operation = recorded.operation,
            .root = recorded.root,
            .in_place = recorded.in_place,
            .registered = recorded.captured};
}

/// Different orders, up to swapping operands. As many as are enough to tell that there are several.
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

/// The calls of one kind.
struct Kind {
    RecordedCall call;
    const CallStream* stream = nullptr;
    RecordedCommunicator comm;
    std::vector<RecordedCall> group{};  ///< the sums of its group on its communicator, itself among them
    std::size_t place = 0;              ///< in there
    std::size_t times = 0;
};

/// In which a sum's order can show at all, and what shows it where nothing need be planned.
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

class Judge {
public:
    Judge(const std::function<Scenario(const CallStream&, const RecordedCommunicator&)>& scenario_for,
          std::vector<std::string>& assumptions)
        : scenario_for_(scenario_for), assumptions_(assumptions) {}

    JudgedCalls judge(const Kind& kind, std::span<const Kind> all) {
        JudgedCalls judged{.call = kind.call, .ranks = kind.comm.ranks, .times = kind.times};
        if (const auto settled = class_without_a_plan(kind)) {
            judged.order_class = *settled;
            return judged;
        }
        if (kind.call.did == "replaced")
            replaced(kind, judged);
        else
            forwarded(kind, all, judged);
        const bool scaled = kind.call.operation == Operation::avg || kind.call.operation == Operation::premulsum;
        if (scaled && judged.order_class == OrderClass::invariant) judged.order_class = OrderClass::count_dependent;
        if (scaled) judged.why += "; NCCL scales on the way, rounded by protocol and position";
        return judged;
    }

private:
    void assume(const std::string& what) {
        if (std::find(assumptions_.begin(), assumptions_.end(), what) == assumptions_.end())
            assumptions_.push_back(what);
    }

    /// The plan of one call of a group.
    Plan plan(const Kind& kind, std::span<const Call> group, std::size_t place) {
        const Scenario& scenario = scenario_of(kind);
        Forced forced = scenario.forced;
        std::vector<Plan> plans;
        try {
            plans = plan_group(scenario.comm, group, forced);
        } catch (const UsageError&) {
            if (scenario.comm.machine || (forced.algorithm && forced.protocol)) throw;
            if (!forced.algorithm) {
                forced.algorithm = Algorithm::ring;
                assume("ring for every sum (NCCL's log: '-> Algo'; --algo, --machine)");
            }
            if (!forced.protocol) {
                forced.protocol = Protocol::simple;
                assume("Simple for every sum (NCCL's log: 'proto'; --proto, --machine)");
            }
            plans = plan_group(scenario.comm, group, forced);
        }
        for (Plan& each : plans)
            if (each.index == place) return std::move(each);
        throw UsageError("a call is not one of its group");
    }
    Plan plan_alone(const Kind& kind, const Call& call) { return plan(kind, {&call, 1}, 0); }

    const Scenario& scenario_of(const Kind& kind) {
        const auto key = std::pair(kind.stream, kind.comm.ranks);
        const auto found = scenarios_.find(key);
        if (found != scenarios_.end()) return found->second;
        Scenario scenario = scenario_for_(*kind.stream, kind.comm);
        for (const std::string& assumption : scenario.assumptions) assume(assumption);
        return scenarios_.emplace(key, std::move(scenario)).first->second;
    }

    void replaced(const Kind& kind, JudgedCalls& judged) {
        judged.order_class = OrderClass::invariant;
        if (kind.stream->policy != "fixed_root") {
            judged.prediction = "rank order";
            judged.why = fmt::format("added in rank order by SAMESUM_POLICY={}", kind.stream->policy);
            return;
        }
        Call reduce = as_call(kind.call);
        reduce.count = reduce.total(kind.comm.ranks);
        reduce.collective = Collective::reduce;
        reduce.root = 0;
        const Plan planned = plan_alone(kind, reduce);
        judged.prediction = describe(planned);
        Orders orders;
        orders.add(planned);
        judged.why = "one ncclReduce to root 0, all channels on one ring";
        if (orders.size() <= 1) return;
        judged.order_class = OrderClass::position_dependent;
        judged.why = fmt::format("one ncclReduce, but its channels' rings make {} orders", orders.size());
    }

    void forwarded(const Kind& kind, std::span<const Kind> all, JudgedCalls& judged) {
        std::vector<Call> group;
        for (const RecordedCall& each : kind.group) group.push_back(as_call(each));
        const Plan planned = plan(kind, group, kind.place);
        judged.prediction = describe(planned);
        Orders own;
        own.add(planned);
        const Call& call = group[kind.place];
        if (!own.hidden().empty()) {
            judged.order_class = OrderClass::not_observable;
            judged.why = own.hidden();
            return;
        }
        if (call.collective == Collective::reduce_scatter && own.size() > 1) {
            judged.order_class = OrderClass::owner_dependent;
            judged.why = fmt::format("{} orders, by the receiving rank", own.size());
            return;
        }
        // Reduces to several roots: whoever owns a row is its root.
        if (call.collective == Collective::reduce) {
            Orders by_root = own;
            for (const Kind& other : all) {
                if (other.comm.ranks != kind.comm.ranks || !other.call.reducing || class_without_a_plan(other) ||
                    *other.call.reducing != Collective::reduce || other.call.did != "forwarded")
                    continue;
                Call to = call;
                to.root = other.call.root;
                if (to.root != call.root) by_root.add(plan_alone(kind, to));
            }
            if (by_root.size() > own.size()) {
                judged.order_class = OrderClass::owner_dependent;
                judged.why = fmt::format("{} orders, by the root", by_root.size());
                return;
            }
        }
        if (own.size() > 1) {
            judged.order_class = OrderClass::position_dependent;
            judged.why = fmt::format("{} orders in one call, by the element's place", own.size());
            return;
        }
        // The same call with other counts, those of the job and some more.
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
            if (with.size() == own.size()) continue;
            judged.order_class = OrderClass::count_dependent;
            judged.why = fmt::format("one order here, others with {} elements", count);
            return;
        }
        judged.order_class = OrderClass::invariant;
        judged.why = "one order for every count and place";
    }

    const std::function<Scenario(const CallStream&, const RecordedCommunicator&)>& scenario_for_;
    std::vector<std::string>& assumptions_;
    std::map<std::pair<const CallStream*, int>, Scenario> scenarios_;
};

/// Everything that can make a difference, as text.
std::string key_of(const RecordedCall& call, int ranks) {
    return fmt::format("{} {} {} {} {} {} {} {} {} {}", ranks, call.collective, call.count,
                       call.format ? name(*call.format) : "", static_cast<int>(call.operation), call.root,
                       call.captured, call.in_place, call.did, call.group != 0);
}

/// The sums of one group on one communicator that NCCL made itself.
struct Group {
    std::vector<RecordedCall> sums;
    std::map<std::size_t, std::size_t> places;  ///< by number in the stream
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

CallStream parse_call_stream(std::string_view text, const std::string& file) { return Reader(text, file).read(); }

std::string_view name(OrderClass order_class) { return class_names.at(static_cast<std::size_t>(order_class)); }
bool depends(OrderClass order_class) { return order_class >= OrderClass::count_dependent; }

std::vector<JudgedCalls> judge_calls(
    std::span<const CallStream> streams,
    const std::function<Scenario(const CallStream&, const RecordedCommunicator&)>& scenario_for,
    std::vector<std::string>& assumptions) {
    const std::vector<Kind> kinds = kinds_of(streams);
    Judge judge(scenario_for, assumptions);
    std::vector<JudgedCalls> judged;
    for (const Kind& kind : kinds) judged.push_back(judge.judge(kind, kinds));
    std::stable_sort(judged.begin(), judged.end(), [](const JudgedCalls& a, const JudgedCalls& b) {
        return std::pair(a.order_class, a.times) > std::pair(b.order_class, b.times);
    });
    return judged;
}

}  // namespace samesum
