// The module samesum._model: descriptions of calls, plans, and sums of buffers of bit patterns; model.py is its front.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <exception>
#include <tuple>

#include "model/analysis/difference.hpp"
#include "model/analysis/order_diff.hpp"
#include "model/combine/combine.hpp"
#include "model/input/call_description.hpp"
#include "model/input/environment_file.hpp"
#include "model/nccl/buffer_sum.hpp"
#include "model/sum/reachable.hpp"
#include "model/support/error.hpp"
#include "model/support/files.hpp"
#include "model/support/input_names.hpp"

namespace samesum {
namespace {

namespace nb = nanobind;

/// Bit patterns as unsigned integers in C order, a row each rank: [ranks, elements]; results [elements].
using Patterns = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Result = nb::ndarray<nb::c_contig, nb::device::cpu>;
using Reals = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;

std::size_t bytes_of(const Format format) { return static_cast<std::size_t>(traits(format).bytes()); }

std::vector<ConstBytes> rows_in(const Patterns& patterns, Format format) {
    ensure(patterns.ndim() == 2 && patterns.itemsize() == bytes_of(format), "patterns are [ranks, elements]");
    const std::size_t bytes = patterns.shape(1) * patterns.itemsize();
    std::vector<ConstBytes> rows;
    for (std::size_t rank = 0; rank < patterns.shape(0); ++rank)
        rows.emplace_back(static_cast<const std::byte*>(patterns.data()) + rank * bytes, bytes);
    return rows;
}

std::span<std::byte> bytes_in(const Result& result) {
    return {static_cast<std::byte*>(result.data()), result.size() * result.itemsize()};
}

/// A call on a communicator, planned once and asked often.
struct PlannedCall {
    ResolvedCall resolved;
    Plan plan;

    explicit PlannedCall(const CallDescription& description) : resolved(resolve(description)), plan(resolved.plan()) {}
};

/// A table's trees as text; an order that is not observable has none, but a reason.
using Trees = std::vector<std::tuple<std::optional<std::string>, std::string>>;
Trees trees_of(const OrderTable& table) {
    Trees trees;
    for (std::size_t i = 0; i < table.size(); ++i) {
        const Order& order = table.order(i);
        trees.emplace_back(order.observable() ? std::optional(order.as_tree().str()) : std::nullopt, order.why_not());
    }
    return trees;
}

/// (begin, end, order, channel) of the first rows of [from, to), and the trees that they number.
auto rows(const PlannedCall& call, std::uint64_t from, std::uint64_t to, std::size_t max) {
    OrderTable table;
    std::vector<std::tuple<std::uint64_t, std::uint64_t, std::size_t, int>> found;
    for (const OrderRow& row : rows_of(call.plan.schedule, table, from, to, max))
        found.emplace_back(row.begin, row.end, row.order, row.channel);
    return std::tuple(found, trees_of(table));
}

/// (elements compared, changed, ranges in all, (begin, end, old order, new order), trees).
auto diff(const PlannedCall& before, const PlannedCall& after, std::uint64_t offset, std::size_t max) {
    OrderTable table;
    const OrderChanges changes = order_changes(before.plan, after.plan, offset, max, table);
    std::vector<std::tuple<std::uint64_t, std::uint64_t, std::size_t, std::size_t>> found;
    for (const OrderChange& change : changes.changes)
        found.emplace_back(change.begin, change.end, change.old_order, change.new_order);
    return std::tuple(changes.compared, changes.changed, changes.ranges, found, trees_of(table));
}

void evaluate_order(const std::string& dtype, const std::string& rounding, const std::string& operation,
                    const std::string& order, const Patterns& patterns, const Result& result, int threads) {
    SumRule rule{.format = parse_format(dtype),
                 .operation = parse_operation(operation),
                 .accumulation = parse_accumulation(rounding)};
    const auto ranks = static_cast<int>(patterns.shape(0));
    if (rule.operation == Operation::premulsum)
        throw UsageError("op 'premulsum' needs a scale, which evaluate does not take");
    if (rule.accumulation != Accumulation::per_hop && rule.operation != Operation::sum)
        throw UsageError("rounding '" + rounding +
                         "' is for sums; other operations round at every hop: expected per_hop");
    if (rule.operation == Operation::avg) rule.scale = average_scale(rule.format, ranks);
    sum_buffers(rule, parse_order(order, ranks), rows_in(patterns, rule.format), bytes_in(result), threads);
}

void evaluate_call(const PlannedCall& call, const Patterns& patterns, const Result& result, int threads) {
    const Call& asked = call.plan.task.call;
    if (asked.operation == Operation::avg || asked.operation == Operation::premulsum)
        throw UsageError("op '" + std::string(name(asked.operation)) +
                         "': scaling depends on the call's protocol; evaluate one of its trees instead");
    const SumRule rule{.format = asked.format, .operation = asked.operation, .accumulation = call.plan.accumulation};
    sum_buffers(rule, call.plan.schedule, rows_in(patterns, asked.format), bytes_in(result), threads);
}

void combine_partials(const CallDescription& description, const std::string& scheme,
                      const std::vector<std::uint64_t>& sizes, std::uint64_t hidden, const std::string& dtype, int root,
                      const std::string& accumulation, int ranks_per_node, const Patterns& patterns,
                      const Result& result, int threads) {
    const ResolvedCommunicator resolved = resolve(description.communicator);
    const Format format = parse_format(dtype);
    const CombineOptions options{.root = root,
                                 .accumulation = parse_accumulation(accumulation),
                                 .ranks_per_node = ranks_per_node,
                                 .forced = resolved.forced};
    const CombinePlan plan = plan_combine(parse_scheme(scheme), resolved.comm, {sizes, hidden}, format, options);
    const SumRule rule{.format = format, .accumulation = plan.accumulation};
    sum_buffers(rule, plan.schedule, rows_in(patterns, format), bytes_in(result), threads);
}

ReachableOptions limits_of(const std::string& shape, double seconds) {
    if (shape != "any" && shape != "chain") throw UsageError("shape '" + shape + "': expected any or chain");
    return {.shapes = shape == "any" ? Shapes::trees : Shapes::chains, .seconds = seconds};
}

/// (kind, differing, (rounding of a, of b), (order of a, of b), evidence); of each element in evidence (element, the
/// two results as (text, tree, rounding, defect), nearest results).
auto difference(const std::string& dtype, const Patterns& partials, const Patterns& a, const Patterns& b,
                const std::vector<std::string>& orders, double seconds) {
    const Format format = parse_format(dtype);
    const auto ranks = static_cast<int>(partials.shape(0));
    const auto whole = [](const Patterns& result) {
        return ConstBytes{static_cast<const std::byte*>(result.data()), result.size() * result.itemsize()};
    };
    const auto text = [](const auto& optional, const auto& as_text) {
        return optional ? std::optional<std::string>(as_text(*optional)) : std::nullopt;
    };
    const auto tree_text = [](const ReductionTree& tree) { return tree.str(); };
    const auto rounding_text = [](Accumulation rounding) { return std::string(name(rounding)); };
    const auto value_text = [&](Bits bits) { return hex(format, bits) + " (" + decimal(format, bits) + ")"; };
    std::vector<ReductionTree> trees;
    for (const std::string& order : orders) trees.push_back(parse_order(order, ranks));
    const Difference found = explain_difference(format, rows_in(partials, format), whole(a), whole(b), trees, seconds);
    using OneResult = std::tuple<std::string, std::optional<std::string>, std::optional<std::string>, bool>;
    std::vector<std::tuple<std::uint64_t, std::vector<OneResult>, std::vector<std::string>>> evidence;
    for (const DifferingElement& each : found.evidence) {
        std::vector<OneResult> results;
        for (const ExplainedElement& result : each.results)
            results.emplace_back(value_text(result.bits), text(result.tree, tree_text),
                                 text(result.rounding, rounding_text), result.defect);
        std::vector<std::string> nearest;
        for (const Bits bits : each.nearest) nearest.push_back(value_text(bits));
        evidence.emplace_back(each.element, std::move(results), std::move(nearest));
    }
    std::vector<std::optional<std::string>> roundings, whole_orders;
    for (const auto& rounding : found.roundings) roundings.push_back(text(rounding, rounding_text));
    for (const auto& order : found.orders) whole_orders.push_back(text(order, tree_text));
    return std::tuple(std::string(name(found.kind)), found.differing, roundings, whole_orders, evidence);
}

/// mask[i]: 1 where two orders give element i other bits, 0 where none do, 2 where there are too many orders to try.
void order_mask(const std::string& dtype, const std::string& rounding, const std::string& shape, double seconds,
                const Patterns& patterns, const Result& mask) {
    const SumRule rule{.format = parse_format(dtype), .accumulation = parse_accumulation(rounding)};
    const ReachableOptions limits = limits_of(shape, seconds);
    const auto rows = rows_in(patterns, rule.format);
    const auto answers = bytes_in(mask);
    std::vector<Bits> leaves(rows.size());
    for (std::size_t i = 0; i < answers.size(); ++i) {
        for (std::size_t rank = 0; rank < rows.size(); ++rank) leaves[rank] = load(rule.format, rows[rank], i);
        try {
            answers[i] = std::byte{order_matters(rule, leaves, limits)};
        } catch (const Inconclusive&) {
            answers[i] = std::byte{2};
        }
    }
}

void round_values(const std::string& dtype, const Reals& values, const Result& result) {
    const Format format = parse_format(dtype);
    for (std::size_t i = 0; i < values.size(); ++i)
        store(format, bytes_in(result), i, from_double(format, values.data()[i]));
}

/// predict()'s keywords, each as a property that is only written; words are parsed here.
void bind_description(nb::module_& module) {
    using Description = CallDescription;
    using Text = const std::string&;
    nb::class_<Description>(module, "CallDescription")
        .def(nb::init<>())
        .def_prop_rw("ranks", nullptr, [](Description& self, int n) { self.communicator.ranks = n; })
        .def_prop_rw("ranks_per_node", nullptr, [](Description& self, int n) { self.communicator.ranks_per_node = n; })
        .def_prop_rw("channels", nullptr, [](Description& self, int n) { self.communicator.channels = n; })
        .def_prop_rw("rings", nullptr,
                     [](Description& self, std::vector<Ring> rings) { self.communicator.rings = std::move(rings); })
        .def_prop_rw("rings_text", nullptr,
                     [](Description& self, Text text) { self.communicator.rings = parse_rings(text); })
        .def_prop_rw(
            "log_file", nullptr,
            [](Description& self, Text file) { self.communicator.log = parse_nccl_log(read_file(file), file); })
        .def_prop_rw(
            "log_text", nullptr,
            [](Description& self, Text text) { self.communicator.log = parse_nccl_log(text, input_name("log")); })
        .def_prop_rw("communicator", nullptr,
                     [](Description& self, Text id) { self.communicator.log_communicator = id; })
        .def_prop_rw("sm", nullptr, [](Description& self, int sm) { self.communicator.compute_capability = sm; })
        .def_prop_rw(
            "graph", nullptr,
            [](Description& self, Text file) { self.communicator.graph = parse_graph_file(read_file(file), file); })
        .def_prop_rw("environment", nullptr,
                     [](Description& self, const std::map<std::string, std::string>& settings) {
                         self.communicator.environment = Environment(settings.begin(), settings.end());
                     })
        .def_prop_rw("environment_file", nullptr,
                     [](Description& self, Text file) {
                         self.communicator.environment = parse_environment(read_file(file), file);
                     })
        .def_prop_rw("nccl_version", nullptr,
                     [](Description& self, Text text) { self.communicator.version = parse_nccl_version(text); })
        .def_prop_rw("machine", nullptr,
                     [](Description& self, Text text) { self.communicator.machine = parse_machine(text); })
        .def_prop_rw("algorithm", nullptr,
                     [](Description& self, Text word) { self.communicator.forced.algorithm = parse_algorithm(word); })
        .def_prop_rw("protocol", nullptr,
                     [](Description& self, Text word) { self.communicator.forced.protocol = parse_protocol(word); })
        .def_prop_rw("collective", nullptr,
                     [](Description& self, Text word) { self.collective = parse_collective(word); })
        .def_prop_rw("count", nullptr, [](Description& self, Text text) { self.count = parse_count(text, "count"); })
        .def_prop_rw("root", nullptr, [](Description& self, int root) { self.root = root; })
        .def_prop_rw("dtype", nullptr, [](Description& self, Text word) { self.format = parse_format(word); })
        .def_prop_rw("op", nullptr, [](Description& self, Text word) { self.operation = parse_operation(word); })
        .def_prop_rw("in_place", nullptr, [](Description& self, bool is) { self.in_place = is; })
        .def_prop_rw("registered", nullptr, [](Description& self, bool are) { self.registered = are; })
        .def_prop_rw("symmetric", nullptr, [](Description& self, Text kernel) { self.symmetric_kernel = kernel; })
        .def_prop_rw("blocks", nullptr, [](Description& self, int blocks) { self.symmetric_blocks = blocks; });
}

/// What C++ throws, as Python's users know it.
void translate(const std::exception_ptr& thrown, void*) {
    try {
        std::rethrow_exception(thrown);
    } catch (const UsageError& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
    } catch (const Inconclusive& error) {
        PyErr_SetString(nb::module_::import_("samesum").attr("Inconclusive").ptr(), error.what());
    }
}

}  // namespace
}  // namespace samesum

NB_MODULE(_model, module) {
    using namespace samesum;
    const nb::call_guard<nb::gil_scoped_release> without_gil;
    nb::register_exception_translator(translate);

    set_input_style(InputStyle::keywords);
    bind_description(module);
    nb::class_<PlannedCall>(module, "PlannedCall")
        .def(nb::init<const CallDescription&>(), without_gil)
        .def_prop_ro("call", [](const PlannedCall& self) { return describe(self.resolved); })
        .def_prop_ro("ran", [](const PlannedCall& self) { return describe(self.plan); })
        .def_prop_ro("nccl_version", [](const PlannedCall& self) { return str(self.resolved.comm.version); })
        .def_prop_ro("assumptions", [](const PlannedCall& self) { return self.resolved.assumptions; })
        .def_prop_ro("dtype", [](const PlannedCall& self) { return std::string(name(self.resolved.call().format)); })
        .def_prop_ro("ranks", [](const PlannedCall& self) { return self.resolved.comm.ranks(); })
        .def_prop_ro("elements", [](const PlannedCall& self) { return self.plan.schedule.size(); })
        .def("rows", &rows, without_gil);
    module.def("diff", &diff, without_gil);
    module.def("evaluate_order", &evaluate_order, without_gil);
    module.def("evaluate_call", &evaluate_call, without_gil);
    module.def("combine", &combine_partials, without_gil);
    module.def("explain_difference", &difference, without_gil);
    module.def("order_mask", &order_mask, without_gil);
    module.def("round_values", &round_values, without_gil);
    module.def("dtype", [](const std::string& word) {
        const FormatTraits& format = traits(parse_format(word));
        return std::tuple(std::string(format.name), format.bytes(), format.is_float);
    });
    module.def("text", [](const std::string& dtype, Bits bits) {
        const Format format = parse_format(dtype);
        return hex(format, bits) + " (" + decimal(format, bits) + ")";
    });
    module.def("same_order", [](const std::string& a, const std::string& b) {
        return same_order(parse_order(a, 0), parse_order(b, 0));
    });
    module.def("tree", [](const std::string& order, int ranks) { return parse_order(order, ranks).str(); });
}
