// samesum order invariance: the matrix of schemes and invariances, with counter-examples.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/combine/invariance.hpp"
#include "model/commands/call_flags.hpp"
#include "model/commands/commands.hpp"
#include "model/commands/order_text.hpp"
#include "model/input/call_description.hpp"
#include "model/support/output.hpp"
#include "model/support/text.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;

Options invariance_options() {
    Options options(
        "order invariance [flags]",
        "The matrix: does a scheme's order depend on the token's owner, its position, or the number of other tokens?\n"
        "Each 'no' comes with a smallest counter-example, each 'yes' with its reason (in --json). Decided on orders, "
        "not on data.",
        {"samesum order invariance --ranks 4 --ranks-per-node 1",
         "samesum order invariance --rings '0,1,2,3;0,2,1,3' --schemes fixed_root,vllm_default"});
    add_communicator_flags(options);
    options.with_json();
    options.add()("schemes", po::value<std::string>()->value_name("LIST"), "only these, comma-separated")(
        "hidden", po::value<std::string>()->default_value("2048")->value_name("H"), "elements of a row")(
        "dtype", po::value<std::string>()->default_value("bfloat16")->value_name("T"), "data type")(
        "root", po::value<int>()->default_value(0)->value_name("R"), "root of fixed_root and reduce_broadcast");
    return options;
}

struct Cell {
    Invariance invariance;
    InvarianceAnswer answer;

    /// Neither proved nor refuted: some order is not observable.
    [[nodiscard]] bool unknown() const { return !answer.holds && !answer.example; }
};

struct Row {
    Scheme scheme;
    std::vector<Cell> cells{};
};

Json json_of(const Placement& placement) {
    return {
        {"sizes", placement.routing.sizes}, {"row", placement.row}, {"owner", placement.routing.owner(placement.row)}};
}

Json json_of(const Row& row) {
    Json json{{"scheme", name(row.scheme)}};
    for (const Cell& cell : row.cells) {
        Json entry{{"holds", cell.unknown() ? Json(nullptr) : Json(cell.answer.holds)}, {"reason", cell.answer.reason}};
        if (const auto& e = cell.answer.example)
            entry["example"] = {{"before", json_of(e->before)},
                                {"after", json_of(e->after)},
                                {"column", e->column},
                                {"before_order", e->before_order.as_tree().str()},
                                {"after_order", e->after_order.as_tree().str()}};
        json[std::string(name(cell.invariance))] = entry;
    }
    return json;
}

std::string text_of(const Placement& placement) {
    // Size vectors of big calls are long; their beginning shows the shape.
    std::string sizes = str_sizes(placement.routing.sizes);
    if (sizes.size() > 60) sizes = sizes.substr(0, 57) + "...";
    return fmt::format("sizes {}, row {} (owner {})", sizes, placement.row, placement.routing.owner(placement.row));
}

std::string text_of(const std::vector<Row>& rows) {
    std::string text = fmt::format("{:<18}", "scheme"), notes;
    for (const Invariance invariance : all_invariances) text += fmt::format("  {:>10}", name(invariance));
    text += "\n";
    for (const Row& row : rows) {
        text += fmt::format("{:<18}", name(row.scheme));
        bool noted = false;
        for (const Cell& cell : row.cells) {
            text += fmt::format("  {:>10}", cell.unknown() ? "?" : cell.answer.holds ? "yes" : "no");
            if (!cell.answer.example) continue;
            // Routing is all of owner, position and count: a counter-example to one of them is not shown twice.
            const CounterExample& e = *cell.answer.example;
            if (cell.invariance != Invariance::routing || !noted)
                notes += fmt::format("\n{} is not {}-invariant: column {} of a token\n  {}: {}\n  {}: {}\n",
                                     name(row.scheme), name(cell.invariance), e.column, text_of(e.before),
                                     expression(e.before_order), text_of(e.after), expression(e.after_order));
            noted = true;
        }
        text += "\n";
    }
    return text + notes;
}

std::vector<Scheme> schemes_in(const Options& options) {
    const auto list = options.find<std::string>("schemes");
    if (!list) return {all_schemes.begin(), all_schemes.end()};
    std::vector<Scheme> schemes;
    for (const std::string_view word : split(*list, ',')) schemes.push_back(parse_scheme(word));
    return schemes;
}

}  // namespace

Exit order_invariance(std::span<const std::string> arguments) {
    Options options = invariance_options();
    if (!options.parse(arguments)) return Exit::as_claimed;
    ResolvedCommunicator resolved = resolve(communicator_from(options));
    assume_ring_and_simple(resolved);
    const std::vector<Scheme> schemes = schemes_in(options);
    const Format format = parse_format(options.get<std::string>("dtype"));
    const std::uint64_t hidden = parse_count(options.get<std::string>("hidden"), "hidden");
    if (hidden == 0) throw UsageError("--hidden 0: expected 1 element or more");
    const CombineOptions combine{.root = options.get<int>("root"), .forced = resolved.forced};
    if (combine.root < 0 || combine.root >= resolved.comm.ranks())
        throw UsageError(
            fmt::format("--root {} is not a rank: expected 0 to {}", combine.root, resolved.comm.ranks() - 1));

    std::vector<Row> rows;
    Json matrix = Json::array();
    bool unknown = false;
    for (const Scheme scheme : schemes) {
        rows.push_back({scheme});
        for (const Invariance invariance : all_invariances) {
            rows.back().cells.push_back(
                {invariance, decide_invariance(invariance, scheme, resolved.comm, hidden, format, combine)});
            unknown = unknown || rows.back().cells.back().unknown();
        }
        matrix.push_back(json_of(rows.back()));
    }
    return emit(
        options, assumptions_text(resolved.assumptions) + text_of(rows),
        {{"assumptions", resolved.assumptions}, {"hidden", hidden}, {"dtype", name(format)}, {"matrix", matrix}},
        unknown ? Exit::inconclusive : Exit::as_claimed);
}

}  // namespace samesum
