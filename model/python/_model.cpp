// The module samesum._model: the model's questions, asked by flags and buffers of bit patterns; model.py is its front.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>

#include "model/analysis/order_diff.hpp"
#include "model/combine/combine.hpp"
#include "model/commands/call_flags.hpp"
#include "model/input/call_description.hpp"
#include "model/nccl/buffer_sum.hpp"
#include "model/sum/reachable.hpp"
#include "model/support/error.hpp"

namespace samesum {
namespace {

namespace nb = nanobind;
using Flags = std::vector<std::string>;

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

Scenario scenario_of(const Flags& flags, bool with_call) {
    Options options("", "", {});
    add_communicator_flags(options);
    if (with_call) add_call_flags(options);
    ensure(options.parse(flags), "the front asks for no help");
    return scenario_from(options, with_call);
}

/// A call on a communicator, planned once and asked often.
struct PlannedCall {
    Scenario scenario;
    Plan plan;

    explicit PlannedCall(const Flags& flags) : scenario(scenario_of(flags, true)), plan(scenario.plan()) {}
};

/// A book's trees as text; one that cannot be observed has none, but a reason.
using Trees = std::vector<std::tuple<std::optional<std::string>, std::string>>;
Trees trees_of(const OrderTable& book) {
    Trees trees;
    for (std::size_t i = 0; i < book.size(); ++i) {
        const Order& order = book.order(i);
        trees.emplace_back(order.observable() ? std::optional(order.as_tree().str()) : std::nullopt, order.why_not());
    }
    return trees;
}

/// (begin, end, order, channel) of the first rows of [from, to), and the trees that they number.
auto rows(const PlannedCall& call, std::uint64_t from, std::uint64_t to, std::size_t max) {
    OrderTable book;
    std::vector<std::tuple<std::uint64_t, std::uint64_t, std::size_t, int>> found;
    for (const OrderRow& row : rows_of(call.plan.schedule, book, from, to, max))
        found.emplace_back(row.begin, row.end, row.order, row.channel);
    return std::tuple(found, trees_of(book));
}

/// (elements compared, changed, ranges in all, (begin, end, old order, new order), trees).
auto diff(const PlannedCall& before, const PlannedCall& after, std::uint64_t offset, std::size_t max) {
    OrderTable book;
    const OrderChanges changes = order_changes(before.plan, after.plan, offset, max, book);
    std::vector<std::tuple<std::uint64_t, std::uint64_t, std::size_t, std::size_t>> found;
    for (const OrderChange& change : changes.changes)
        found.emplace_back(change.begin, change.end, change.old_order, change.new_order);
    return std::tuple(changes.compared, changes.changed, changes.ranges, found, trees_of(book));
}

void evaluate_order(const std::string& dtype, const std::string& rounding, const std::string& operation,
                    const std::string& order, const Patterns& patterns, const Result& result, int threads) {
    SumRule rule{.format = parse_format(dtype),
                 .operation = parse_operation(operation),
                 .accumulation = parse_accumulation(rounding)};
    const auto ranks = static_cast<int>(patterns.shape(0));
    if (rule.operation == Operation::premulsum) throw UsageError("op 'premulsum' has a scale; evaluate takes none");
    if (rule.accumulation != Accumulation::per_hop && rule.operation != Operation::sum)
        throw UsageError("rounding '" + rounding + "' is for sums; other operations round at every hop: per_hop");
    if (rule.operation == Operation::avg) rule.scale = average_scale(rule.format, ranks);
    sum_buffers(rule, parse_order(order, ranks), rows_in(patterns, rule.format), bytes_in(result), threads);
}

void evaluate_call(const PlannedCall& call, const Patterns& patterns, const Result& result, int threads) {
    const Call& asked = call.plan.task.call;
    if (asked.operation == Operation::avg || asked.operation == Operation::premulsum)
        throw UsageError("op '" + std::string(name(asked.operation)) +
                         "': where a call scales depends on its protocol; evaluate one of its trees instead");
    const SumRule rule{.format = asked.format, .operation = asked.operation, .accumulation = call.plan.accumulation};
    sum_buffers(rule, call.plan.schedule, rows_in(patterns, asked.format), bytes_in(result), threads);
}

void combine_partials(const Flags& flags, const std::string& scheme, const std::vector<std::uint64_t>& sizes,
                      std::uint64_t hidden, const std::string& dtype, int root, const std::string& accumulation,
                      int ranks_per_node, const Patterns& patterns, const Result& result, int threads) {
    const Scenario scenario = scenario_of(flags, false);
    const Format format = parse_format(dtype);
    const CombineOptions options{.root = root,
                                 .accumulation = parse_accumulation(accumulation),
                                 .ranks_per_node = ranks_per_node,
                                 .forced = scenario.forced};
    const CombinePlan plan = plan_combine(parse_scheme(scheme), scenario.comm, {sizes, hidden}, format, options);
    const SumRule rule{.format = format, .accumulation = plan.accumulation};
    sum_buffers(rule, plan.schedule, rows_in(patterns, format), bytes_in(result), threads);
}

ReachableOptions limits_of(const std::string& shape, double seconds) {
    if (shape != "any" && shape != "chain") throw UsageError("shape '" + shape + "'; one of: any, chain");
    return {.shapes = shape == "any" ? Shapes::trees : Shapes::chains, .seconds = seconds};
}

/// (reachable, unreachable or undecided; a tree; number of results or 0; nearest below; nearest above; why).
auto reach_of(const std::string& dtype, const std::string& rounding, const std::vector<Bits>& leaves, Bits result,
              const std::string& shape, double seconds) {
    const SumRule rule{.format = parse_format(dtype), .accumulation = parse_accumulation(rounding)};
    const Reach found = reach(rule, leaves, result, limits_of(shape, seconds));
    const std::string verdict = found.verdict == Reach::Verdict::reachable     ? "reachable"
                                : found.verdict == Reach::Verdict::unreachable ? "unreachable"
                                                                               : "undecided";
    return std::tuple(verdict, found.tree ? std::optional(found.tree->str()) : std::nullopt, found.results, found.below,
                      found.above, found.why);
}

/// mask[i]: 1 where two orders give element i other bits, 0 where none do, 2 where the orders are too many to know.
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

    nb::class_<PlannedCall>(module, "PlannedCall")
        .def(nb::init<const Flags&>(), without_gil)
        .def_prop_ro("call",
                     [](const PlannedCall& self) { return describe(self.scenario.call(), self.scenario.comm.ranks()); })
        .def_prop_ro("ran", [](const PlannedCall& self) { return describe(self.plan); })
        .def_prop_ro("nccl_version", [](const PlannedCall& self) { return str(self.scenario.comm.version); })
        .def_prop_ro("assumptions", [](const PlannedCall& self) { return self.scenario.assumptions; })
        .def_prop_ro("dtype", [](const PlannedCall& self) { return std::string(name(self.scenario.call().format)); })
        .def_prop_ro("ranks", [](const PlannedCall& self) { return self.scenario.comm.ranks(); })
        .def_prop_ro("elements", [](const PlannedCall& self) { return self.plan.schedule.size(); })
        .def("rows", &rows, without_gil);
    module.def("diff", &diff, without_gil);
    module.def("evaluate_order", &evaluate_order, without_gil);
    module.def("evaluate_call", &evaluate_call, without_gil);
    module.def("combine", &combine_partials, without_gil);
    module.def("reach", &reach_of, without_gil);
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
