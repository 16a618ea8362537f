// samesum order: which order NCCL adds in.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "model/analysis/call_classes.hpp"
#include "model/analysis/order_diff.hpp"
#include "model/analysis/record_check.hpp"
#include "model/analysis/recording_diff.hpp"
#include "model/combine/invariance.hpp"
#include "model/commands/call_flags.hpp"
#include "model/commands/commands.hpp"
#include "model/input/call_description.hpp"
#include "model/input/call_stream.hpp"
#include "model/input/custom_collective.hpp"
#include "model/input/recording.hpp"
#include "model/nccl/settings.hpp"
#include "model/sum/draw_tree.hpp"
#include "model/sum/element_sum.hpp"
#include "model/support/files.hpp"
#include "model/support/options.hpp"
#include "model/support/program.hpp"
#include "model/support/text.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;

/// A, B, ..., Z, AA, AB, ...
std::string letters(std::size_t number) {
    std::string text;
    for (++number; number > 0; number = (number - 1) / 26)
        text.insert(text.begin(), static_cast<char>('A' + (number - 1) % 26));
    return text;
}

std::string expression(const Order& order) {
    if (!order.observable()) return "not observable: " + order.why_not();
    const std::string tree = shortened(order.as_tree(), 160);
    return order.ranks() <= 64 ? tree : fmt::format("{}: {}", order.label(), tree);
}

void print_assumptions(const std::vector<std::string>& assumptions) {
    for (const std::string& assumption : assumptions) fmt::print("assumes {}\n", assumption);
}

/// Where averages are scaled, in words; empty for other operations. The rule itself: element_sum.hpp, SumRule.
std::string scaling_note(const Plan& plan) {
    const Call& call = plan.task.call;
    if (call.operation != Operation::avg && call.operation != Operation::premulsum) return {};
    if (!traits(call.format).is_float)
        return "scaling: none on the way; the wrapped sum is divided by the number of ranks at the end";
    const std::string_view factor =
        call.operation == Operation::avg ? "1/n, rounded to the format," : "the given scalar";
    std::string_view hop = "multiplied and added by one fma";
    if (traits(call.format).width == 8)
        hop = "multiplied and rounded, then added and rounded";
    else if (plan.task.choice.protocol == Protocol::ll128)
        hop = traits(call.format).width == 16 ? "multiplied and rounded, then added and rounded"
                                              : "fused or not by the element's position in 1920-byte slices";
    return fmt::format("scaling: each rank's own value times {} as it enters; {}", factor, hop);
}

std::string rows_as_text(const std::vector<OrderRow>& rows) {
    std::string text = fmt::format("{:>14} {:>14} {:>14}  {:>7}  order\n", "begin", "end", "elements", "channel");
    for (const OrderRow& row : rows)
        text += fmt::format("{:>14} {:>14} {:>14}  {:>7}  {}\n", row.begin, row.end, row.end - row.begin, row.channel,
                            letters(row.order));
    return text;
}

Exit order_show(std::span<const std::string> arguments) {
    Options options(
        "order show [flags]", "Shows which order makes which elements of a call: segments and their trees.",
        {"samesum order show --collective reduce --count 262144 --ranks 8 --ranks-per-node 1 --proto simple",
         "samesum order show --collective all_reduce --count 4096 --dtype bfloat16 --ranks 8 --ranks-per-node 8 "
         "--channels 24 --algo ring --proto ll",
         "samesum order show --calls 'ar:1000;ar:9000' --index 1 --ranks 4 --ranks-per-node 1 --algo ring --proto ll",
         "samesum order show --collective reduce --count 64x2048 --dtype bfloat16 --log nccl.log --format svg > "
         "order.svg"});
    add_communicator_flags(options);
    add_call_flags(options);
    options.with_json();
    options.add()("format", po::value<std::string>()->default_value("text")->value_name("F"), "text, json, dot, svg")(
        "element", po::value<std::string>()->value_name("E"), "only the order of this element")(
        "limit", po::value<std::size_t>()->default_value(32)->value_name("N"), "most segments to list");
    if (!options.parse(arguments)) return Exit::as_claimed;
    const std::string format = options.get<std::string>("format");
    if (format != "text" && format != "json" && format != "dot" && format != "svg")
        throw UsageError(fmt::format("--format '{}': one of text, json, dot, svg", format));
    const Scenario scenario = scenario_from(options);
    const Plan plan = scenario.plan();
    const Schedule& schedule = plan.schedule;
    std::uint64_t from = 0, to = schedule.size();
    if (const auto element = options.find<std::string>("element")) {
        from = parse_count(*element, "element");
        if (from >= to) throw UsageError(fmt::format("--element {}: the call has {} elements", from, to));
        to = from + 1;
    }
    OrderTable book;
    const auto rows = rows_of(schedule, book, from, to, options.get<std::size_t>("limit"));
    const bool whole = rows.empty() || rows.back().end == to;

    Json json{{"call", describe(scenario.call(), scenario.comm.ranks())},
              {"ran", describe(plan)},
              {"nccl_version", str(scenario.comm.version)},
              {"assumptions", scenario.assumptions},
              {"elements", schedule.size()},
              {"segments_total", schedule.segment_count()},
              {"complete", whole},
              {"trees", Json::array()},
              {"segments", Json::array()}};
    for (std::size_t i = 0; i < book.size(); ++i)
        json["trees"].push_back(book.order(i).observable() ? Json(book.order(i).as_tree().str()) : Json(nullptr));
    for (const OrderRow& row : rows) json["segments"].push_back({row.begin, row.end, row.order, row.channel});
    if (const auto file = options.find<std::string>("json")) {
        write_json(*file, json);
        if (*file == "-") return Exit::as_claimed;
    }
    if (format == "json") {
        write_json("-", json);
    } else if (format == "text") {
        fmt::print("{}: {} (NCCL {})\n", describe(scenario.call(), scenario.comm.ranks()), describe(plan),
                   str(scenario.comm.version));
        print_assumptions(scenario.assumptions);
        if (const std::string note = scaling_note(plan); !note.empty()) fmt::print("{}\n", note);
        fmt::print("\n{}", rows_as_text(rows));
        if (!whole)
            fmt::print("{:>14} {} segments in all; --limit N lists more, --element E one\n", "...",
                       schedule.segment_count());
        for (std::size_t i = 0; i < book.size(); ++i) {
            fmt::print("\n{}  {}\n", letters(i), expression(book.order(i)));
            if (i < 4 && book.order(i).observable() && book.order(i).ranks() <= 64)
                fmt::print("\n{}", draw_text(book.order(i).as_tree()));
        }
    } else if (format == "dot") {
        for (std::size_t i = 0; i < book.size(); ++i) fmt::print("{}", draw_dot(book.order(i).as_tree()));
    } else {
        Picture picture{describe(scenario.call(), scenario.comm.ranks()), {}, {}, from};
        for (std::size_t i = 0; i < std::min<std::size_t>(book.size(), 12); ++i)
            if (book.order(i).ranks() <= 128) picture.trees.push_back({letters(i), book.order(i).as_tree()});
        for (const OrderRow& row : rows) picture.bar.push_back({row.end, row.order});
        fmt::print("{}", draw_svg(picture));
    }
    for (std::size_t i = 0; i < book.size(); ++i)
        if (!book.order(i).observable()) return Exit::inconclusive;
    return Exit::as_claimed;
}

/// visit(record, line number); a line that is no record is the user's mistake.
void for_each_record(const std::string& file, const std::function<void(const Record&, std::size_t)>& visit) {
    const std::string text = read_file(file);
    std::size_t line_number = 0;
    for (const std::string_view line : split(text, '\n')) {
        ++line_number;
        if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        try {
            visit(parse_record(line), line_number);
        } catch (const UsageError& error) {
            throw UsageError(fmt::format("{}:{}: {}", file, line_number, error.what()));
        }
    }
}

/// What changed between two files that reveal wrote.
Exit diff_files(const std::string& before, const std::string& after, const std::optional<std::string>& json) {
    std::array<std::vector<Record>, 2> records;
    std::string text;
    for (const std::size_t side : {0, 1}) {
        const std::string& file = side == 0 ? before : after;
        for_each_record(file, [&](const Record& record, std::size_t) { records[side].push_back(record); });
        if (records[side].empty()) throw UsageError(fmt::format("{}: no record, one JSON object a line", file));
        const Record& first = records[side].front();
        text += fmt::format("# {}: NCCL {}, {}\n", side == 0 ? "before" : "now", str(first.version),
                            first.gpu.empty() ? "unknown GPU" : first.gpu);
    }
    const RecordingDiff diff = diff_recordings(records[0], records[1]);
    if (diff.compared == 0) throw UsageError(fmt::format("{} and {} have no call in common", before, after));
    bool changed = false;
    Json changes = Json::array();
    for (const RecordingChange& change : diff.changes) {
        text += change.str() + "\n";
        changed = changed || change.orders();
        changes.push_back({{"what", change.what},
                           {"least_bytes", change.min_bytes},
                           {"most_bytes", change.max_bytes},
                           {"before", change.before},
                           {"now", change.after},
                           {"calls", change.calls},
                           {"share_in_another_order", change.share},
                           {"example", change.example}});
    }
    for (const auto& [calls, where] : {std::pair{&diff.only_before, "before"}, std::pair{&diff.only_after, "now"}})
        if (!calls->empty())
            text += fmt::format("only {}: {} calls, the first: {}\n", where, calls->size(), calls->front());
    text += fmt::format("{} of {} calls as before\n", diff.unchanged, diff.compared);
    if (json)
        write_json(*json, {{"compared", diff.compared},
                           {"unchanged", diff.unchanged},
                           {"changes", changes},
                           {"only_before", diff.only_before},
                           {"only_now", diff.only_after}});
    if (!json || *json != "-") fmt::print("{}", text);
    return changed ? Exit::not_as_claimed : Exit::as_claimed;
}

Options diff_options() {
    Options options("order diff [flags] --with 'FLAGS' | order diff FILE FILE",
                    "Says exactly which elements change their order between two calls: the call that the flags "
                    "describe, and the same\n"
                    "with some flags replaced. Or between two files that reveal --save wrote: on another NCCL, driver "
                    "or machine.\n"
                    "Exit 1 when an element changes, as diff does.",
                    {"samesum order diff nccl-2.27.jsonl nccl-2.28.jsonl",
                     "samesum order diff --collective all_reduce --ranks 8 --ranks-per-node 1 --algo ring --proto ll "
                     "--count 4096 --with "
                     "'--count 8192'",
                     "samesum order diff --collective all_reduce --ranks 8 --ranks-per-node 8 --channels 16 --algo "
                     "tree --proto simple "
                     "--count 64x4096 --with '--channels 24'",
                     "samesum order diff ... --count 3000 --with '--count 8000' --offset 5000    (a tensor alone, or "
                     "fused behind another)"});
    add_communicator_flags(options);
    add_call_flags(options);
    options.with_json().positional("FILE", 2);
    options.add()("with", po::value<std::string>()->value_name("FLAGS"), "flags of the second call that differ")(
        "offset", po::value<std::string>()->default_value("0")->value_name("N"),
        "element i of the first call is element i + N of the second (of each rank's block, for reduce_scatter)")(
        "limit", po::value<std::size_t>()->default_value(32)->value_name("N"), "most ranges to list");
    return options;
}

Exit order_diff(std::span<const std::string> arguments) {
    Options first_options = diff_options(), second_options = diff_options();
    if (!first_options.parse(arguments)) return Exit::as_claimed;
    if (const auto files = first_options.words(); files.size() == 2)
        return diff_files(files[0], files[1], first_options.find<std::string>("json"));
    else if (files.size() == 1)
        throw UsageError(fmt::format("{} alone; two files that reveal --save wrote would be right", files[0]));
    if (!second_options.parse(with_changes(arguments, po::split_unix(first_options.get<std::string>("with")))))
        return Exit::as_claimed;
    const std::array scenarios{scenario_from(first_options), scenario_from(second_options)};
    const std::array plans{scenarios[0].plan(), scenarios[1].plan()};
    OrderTable book;
    const auto [compared, changed, ranges, changes] =
        order_changes(plans[0], plans[1], parse_count(first_options.get<std::string>("offset"), "offset"),
                      first_options.get<std::size_t>("limit"), book);
    Json json{{"before", describe(scenarios[0].call(), scenarios[0].comm.ranks())},
              {"before_ran", describe(plans[0])},
              {"after", describe(scenarios[1].call(), scenarios[1].comm.ranks())},
              {"after_ran", describe(plans[1])},
              {"compared", compared},
              {"changed", changed},
              {"ranges_total", ranges},
              {"trees", Json::array()},
              {"changes", Json::array()}};
    for (std::size_t i = 0; i < book.size(); ++i)
        json["trees"].push_back(book.order(i).observable() ? Json(book.order(i).as_tree().str()) : Json(nullptr));
    for (const OrderChange& change : changes)
        json["changes"].push_back({change.begin, change.end, change.old_order, change.new_order});
    const Exit exit = changed > 0 ? Exit::not_as_claimed : Exit::as_claimed;
    if (const auto file = first_options.find<std::string>("json")) {
        write_json(*file, json);
        if (*file == "-") return exit;
    }
    fmt::print("before  {}: {}\n", describe(scenarios[0].call(), scenarios[0].comm.ranks()), describe(plans[0]));
    fmt::print("after   {}: {}\n", describe(scenarios[1].call(), scenarios[1].comm.ranks()), describe(plans[1]));
    print_assumptions(scenarios[0].assumptions);
    if (changed > 0) {
        fmt::print("\n{:>14} {:>14} {:>14}  order\n", "begin", "end", "elements");
        for (const OrderChange& change : changes)
            fmt::print("{:>14} {:>14} {:>14}  {} -> {}\n", change.begin, change.end, change.end - change.begin,
                       letters(change.old_order), letters(change.new_order));
        if (ranges > changes.size()) fmt::print("{:>14} {} ranges in all; --limit N lists more\n", "...", ranges);
        fmt::print("\n");
        std::vector<bool> used(book.size());
        for (const OrderChange& change : changes) used[change.old_order] = used[change.new_order] = true;
        for (std::size_t i = 0; i < book.size(); ++i)
            if (used[i]) fmt::print("{}  {}\n", letters(i), expression(book.order(i)));
    }
    fmt::print("\n{} of {} elements change their order\n", changed, compared);
    return exit;
}

Json as_json(const Placement& placement) {
    return {
        {"sizes", placement.routing.sizes}, {"row", placement.row}, {"owner", placement.routing.owner(placement.row)}};
}

std::string as_text(const Placement& placement) {
    // Long size vectors of big calls say little; their shape does.
    std::string sizes = str_sizes(placement.routing.sizes);
    if (sizes.size() > 60) sizes = sizes.substr(0, 57) + "...";
    return fmt::format("sizes {}, row {} (owner {})", sizes, placement.row, placement.routing.owner(placement.row));
}

Exit order_invariance(std::span<const std::string> arguments) {
    Options options(
        "order invariance [flags]",
        "The matrix: does a scheme's order depend on who owns a token, where it lies, how many others there are?\n"
        "Each 'no' comes with a smallest counter-example, each 'yes' with its reason. Decided on orders, not on data.",
        {"samesum order invariance --ranks 4 --ranks-per-node 1",
         "samesum order invariance --rings '0,1,2,3;0,2,1,3' --schemes fixed_root,vllm_default"});
    add_communicator_flags(options);
    options.with_json();
    options.add()("schemes", po::value<std::string>()->value_name("LIST"), "only these, comma-separated")(
        "hidden", po::value<std::string>()->default_value("2048")->value_name("H"), "elements of a row")(
        "dtype", po::value<std::string>()->default_value("bfloat16")->value_name("T"), "data type")(
        "root", po::value<int>()->default_value(0)->value_name("R"), "root of fixed_root and reduce_broadcast");
    if (!options.parse(arguments)) return Exit::as_claimed;
    Scenario scenario = scenario_from(options, false);
    if (!scenario.forced.algorithm && !scenario.comm.machine) {
        scenario.forced.algorithm = Algorithm::ring;
        scenario.assumptions.emplace_back("ring for every collective (NCCL's log: '-> Algo'; --algo, --machine)");
    }
    if (!scenario.forced.protocol && !scenario.comm.machine) {
        scenario.forced.protocol = Protocol::simple;
        scenario.assumptions.emplace_back("Simple for every call (NCCL's log: 'proto'; --proto, --machine)");
    }
    std::vector<Scheme> schemes(all_schemes.begin(), all_schemes.end());
    if (const auto list = options.find<std::string>("schemes")) {
        schemes.clear();
        for (std::size_t begin = 0; begin <= list->size();) {
            const std::size_t end = std::min(list->find(',', begin), list->size());
            schemes.push_back(parse_scheme(std::string_view(*list).substr(begin, end - begin)));
            begin = end + 1;
        }
    }
    const Format format = parse_format(options.get<std::string>("dtype"));
    const std::uint64_t hidden = parse_count(options.get<std::string>("hidden"), "hidden");
    if (hidden == 0) throw UsageError("--hidden 0: a row has at least 1 element");
    CombineOptions combine_options{.root = options.get<int>("root"), .forced = scenario.forced};
    if (combine_options.root < 0 || combine_options.root >= scenario.comm.ranks())
        throw UsageError(
            fmt::format("--root {} is not a rank; 0 to {}", combine_options.root, scenario.comm.ranks() - 1));

    print_assumptions(scenario.assumptions);
    fmt::print("{:<18}", "scheme");
    for (const Invariance invariance : all_invariances) fmt::print("  {:>10}", name(invariance));
    fmt::print("\n");
    Json rows = Json::array();
    std::string notes;
    bool unobservable = false;
    for (const Scheme scheme : schemes) {
        fmt::print("{:<18}", name(scheme));
        Json row{{"scheme", name(scheme)}};
        bool noted = false;
        for (const Invariance invariance : all_invariances) {
            const InvarianceAnswer answer =
                decide_invariance(invariance, scheme, scenario.comm, hidden, format, combine_options);
            const bool unknown = !answer.holds && !answer.example;
            unobservable = unobservable || unknown;
            fmt::print("  {:>10}", unknown ? "?" : answer.holds ? "yes" : "no");
            Json cell{{"holds", unknown ? Json(nullptr) : Json(answer.holds)}, {"reason", answer.reason}};
            if (answer.example) {
                const CounterExample& e = *answer.example;
                cell["example"] = {{"before", as_json(e.before)},
                                   {"after", as_json(e.after)},
                                   {"column", e.column},
                                   {"before_order", e.before_order.as_tree().str()},
                                   {"after_order", e.after_order.as_tree().str()}};
                // What owner, position or count alone shows need not be shown again.
                if (invariance != Invariance::routing || !noted)
                    notes += fmt::format("\n{} is not {}-invariant: column {} of a token\n  {}: {}\n  {}: {}\n",
                                         name(scheme), name(invariance), e.column, as_text(e.before),
                                         expression(e.before_order), as_text(e.after), expression(e.after_order));
                noted = true;
            }
            row[std::string(name(invariance))] = cell;
        }
        fmt::print("\n");
        rows.push_back(row);
    }
    fmt::print("{}", notes);
    if (const auto file = options.find<std::string>("json"))
        write_json(
            *file,
            {{"assumptions", scenario.assumptions}, {"hidden", hidden}, {"dtype", name(format)}, {"matrix", rows}});
    return unobservable ? Exit::inconclusive : Exit::as_claimed;
}

/// The orders in which NCCL may add n ranks on the layouts whose rings are known in closed form.
std::vector<std::pair<std::string, std::vector<ReductionTree>>> nccl_families(int n) {
    std::vector<std::pair<std::string, std::vector<ReductionTree>>> families;
    const auto distinct = [](std::vector<ReductionTree> trees) {
        std::sort(trees.begin(), trees.end());
        trees.erase(std::unique(trees.begin(), trees.end()), trees.end());
        return trees;
    };
    const Topology apart = Topology::one_rank_per_node(n, 2), together = Topology::one_node(n, 2);
    std::vector<ReductionTree> ring, pat, cyclic;
    for (int rank = 0; rank < n; ++rank) {
        ring.push_back(Order::ring(apart.channels()[0].ring, rank).as_tree().canonical());
        pat.push_back(Order::pat(n, rank, pat_dimensions(n, 65536, 65536)).as_tree().canonical());
        cyclic.push_back(Order::from_owner(n, rank).as_tree().canonical());
    }
    std::vector<ReductionTree> trees;
    for (const Channel& channel : apart.channels()) trees.push_back(Order::tree(channel.tree).as_tree().canonical());
    families.emplace_back("ring 0..n-1 (one for each root, owner or chunk)", distinct(ring));
    families.emplace_back("double binary tree, one rank a node", distinct(trees));
    families.emplace_back("tree inside one node (a chain)",
                          std::vector{Order::tree(together.channels()[0].tree).as_tree().canonical()});
    families.emplace_back("PAT (one for each destination)", distinct(pat));
    families.emplace_back("symmetric kernels: rank order", std::vector{Order::rank_order(n).as_tree().canonical()});
    families.emplace_back("symmetric kernels: from the owner on", distinct(cyclic));
    return families;
}

Exit order_enumerate(std::span<const std::string> arguments) {
    Options options(
        "order enumerate --ranks N [flags]",
        "Counts and lists the orders of N values: all trees, all chains, and those that NCCL uses; with --values,\n"
        "the results that they reach, each with one order.",
        {"samesum order enumerate --ranks 4", "samesum order enumerate --ranks 4 --values '1e8 1 -1e8 1'",
         "samesum order enumerate --ranks 5 --list nccl"});
    options.with_json();
    options.add()("ranks", po::value<int>()->value_name("N"), "number of values")(
        "list", po::value<std::string>()->value_name("WHICH"), "list the trees: all, nccl")(
        "dtype", po::value<std::string>()->default_value("float32")->value_name("T"), "data type of --values")(
        "values", po::value<std::string>()->value_name("V"), "N values, decimal or 0x bit patterns");
    if (!options.parse(arguments)) return Exit::as_claimed;
    const int n = options.get<int>("ranks");
    if (n < 1 || n > 10) throw UsageError(fmt::format("--ranks {}: 1 to 10 would be right", n));
    const auto list = options.find<std::string>("list");
    if (list && *list != "all" && *list != "nccl") throw UsageError(fmt::format("--list '{}': all or nccl", *list));
    // All input is read before the first line is printed.
    const Format format = parse_format(options.get<std::string>("dtype"));
    std::vector<Bits> values;
    if (const auto text = options.find<std::string>("values"))
        values = parse_values(format, *text, static_cast<std::size_t>(n));
    std::uint64_t all = 1, chains = 1;
    for (int k = 2; k <= n; ++k) {
        all *= static_cast<std::uint64_t>(2 * k - 3);
        chains *= static_cast<std::uint64_t>(k);
    }
    if (n >= 2) chains /= 2;
    Json json{{"ranks", n}, {"trees", all}, {"chains", chains}, {"nccl", Json::array()}};
    fmt::print("{:>10}  trees, operands unordered: (2n-3)!!\n{:>10}  chains: n!/2\n", all, chains);
    for (const auto& [what, trees] : nccl_families(n)) {
        fmt::print("{:>10}  NCCL: {}\n", trees.size(), what);
        Json family{{"family", what}, {"trees", Json::array()}};
        for (const ReductionTree& tree : trees) {
            family["trees"].push_back(tree.str());
            if (list && *list == "nccl") fmt::print("{:>12}{}\n", "", tree.str());
        }
        json["nccl"].push_back(family);
    }
    if (list && *list == "all")
        for (const ReductionTree& tree : all_trees(n)) fmt::print("{}\n", tree.str());
    if (!values.empty()) {
        std::map<Bits, std::pair<std::uint64_t, std::string>> results;
        for (const ReductionTree& tree : all_trees(n)) {
            auto& [count, example] = results[sum_element({.format = format}, tree, values)];
            if (count++ == 0) example = tree.str();
        }
        fmt::print("\n{} results on these values\n", results.size());
        json["results"] = Json::array();
        for (const auto& [bits, reached] : results) {
            fmt::print("{:>10}  {}  {:<12} e.g. {}\n", reached.first, hex(format, bits), decimal(format, bits),
                       reached.second);
            json["results"].push_back({{"bits", hex(format, bits)},
                                       {"value", decimal(format, bits)},
                                       {"trees", reached.first},
                                       {"example", reached.second}});
        }
    }
    if (const auto file = options.find<std::string>("json")) write_json(*file, json);
    return Exit::as_claimed;
}

Exit order_paths(std::span<const std::string> arguments) {
    Options options(
        "order paths FILE --row BYTES [flags]",
        "For a collective that switches between several ways by size or alignment, described in FILE (JSON): the\n"
        "numbers of rows at which a row's order or rounding changes, and what each way depends on.\n"
        "Exit 1 when rows of one batch size and of another are summed differently.\n\n"
        "FILE: {\"ranks\": 4, \"paths\": [{\"name\": \"one stage\", \"below_bytes\": 524288, \"multiple_of_bytes\": "
        "16,\n"
        "\"order\": \"rank_order\", \"rounding\": \"fp32_once\"}, {\"name\": \"two stages\", \"order\": "
        "\"from_owner\"}]}\n"
        "order: rank_order; from_owner (one equal part a rank, summed from that rank on); a tree; a list of trees.",
        {"samesum order paths custom.json --row 10240 --rows 4096",
         "samesum order paths custom.json --row 4 --rows 64"});
    options.with_json().positional("FILE", 1);
    options.add()("row", po::value<std::uint64_t>()->value_name("BYTES"), "bytes of one row (one token)")(
        "rows", po::value<std::uint64_t>()->default_value(4096)->value_name("N"), "look at 1 to N rows");
    if (!options.parse(arguments)) return Exit::as_claimed;
    if (options.words().empty()) throw UsageError("needs the file that describes the collective; see --help");
    const std::string file = options.words().front();
    const CustomCollective custom = parse_custom(read_file(file), file);
    const auto row = options.get<std::uint64_t>("row"), max = options.get<std::uint64_t>("rows");
    if (row == 0 || row > (1u << 30)) throw UsageError(fmt::format("--row {}: 1 to 2^30 bytes", row));
    if (max == 0 || max > (1u << 24)) throw UsageError(fmt::format("--rows {}: 1 to 2^24", max));

    struct Stretch {
        std::uint64_t first, last;
        std::size_t path;
    };
    std::vector<Stretch> stretches;
    for (std::uint64_t rows = 1; rows <= max; ++rows) {
        const auto path = custom.path(rows * row);
        if (!path) throw UsageError(fmt::format("{}: no path takes {} rows ({} bytes)", file, rows, rows * row));
        if (stretches.empty() || stretches.back().path != *path) stretches.push_back({rows, rows, *path});
        stretches.back().last = rows;
    }
    Json json{{"name", custom.name},
              {"row_bytes", row},
              {"rows", max},
              {"stretches", Json::array()},
              {"paths", Json::array()}};
    fmt::print("{:>10} {:>10}  path\n", "rows from", "to");
    constexpr std::size_t shown = 24;
    for (std::size_t i = 0; i < stretches.size(); ++i) {
        if (i < shown)
            fmt::print("{:>10} {:>10}  {}\n", stretches[i].first, stretches[i].last,
                       custom.paths[stretches[i].path].name);
        json["stretches"].push_back({stretches[i].first, stretches[i].last, custom.paths[stretches[i].path].name});
    }
    if (stretches.size() > shown) fmt::print("{:>10} {} stretches in all\n", "...", stretches.size());
    bool differs = false;
    std::vector<std::size_t> used;
    for (const Stretch& stretch : stretches)
        if (std::find(used.begin(), used.end(), stretch.path) == used.end()) used.push_back(stretch.path);
    fmt::print("\n");
    for (const std::size_t i : used) {
        const CustomPath& path = custom.paths[i];
        const bool by_part =
            std::any_of(path.trees.begin(), path.trees.end(), [&](const auto& t) { return t != path.trees[0]; });
        differs = differs || by_part || !same_class(path, custom.paths[used.front()]);
        const std::string depends = by_part ? "depends on the row's place among the rows: owner, position and count"
                                            : "depends on nothing: owner-, position- and count-free";
        fmt::print("{}: {}, {}; {}\n", path.name, shortened(path.trees[0], 60), name(path.accumulation), depends);
        json["paths"].push_back({{"name", path.name},
                                 {"rounding", name(path.accumulation)},
                                 {"by_part", by_part},
                                 {"tree", path.trees[0].str()}});
    }
    json["invariant"] = !differs;
    fmt::print("\n{}\n", differs ? "a row's bits depend on how many rows are in the batch"
                                 : "every row is summed the same way in every batch");
    if (const auto target = options.find<std::string>("json")) write_json(*target, json);
    return differs ? Exit::not_as_claimed : Exit::as_claimed;
}

Exit order_check(std::span<const std::string> arguments) {
    Options options(
        "order check FILE... [flags]",
        "Predicts the order of every element of each recorded call and compares it with the order that was\n"
        "revealed on real NCCL. A record that the model does not cover is counted as such, never as matched.",
        {"samesum order check tests/golden/observed/h200x1-one-rank-per-node.jsonl"});
    options.with_json().positional("FILE", -1);
    options.add()("verbose", "also list the records that match");
    if (!options.parse(arguments)) return Exit::as_claimed;
    if (options.words().empty()) throw UsageError("needs a file of records, one JSON object a line");

    std::size_t matched = 0, differing = 0, total = 0;
    Json rows = Json::array();
    for (const std::string& file : options.words())
        for_each_record(file, [&](const Record& record, std::size_t line_number) {
            const Match match = check_record(record);
            ++total;
            matched += match.outcome == Match::Outcome::matched ? 1 : 0;
            differing += match.outcome == Match::Outcome::differs ? 1 : 0;
            constexpr std::array<std::string_view, 3> outcomes{"matched", "differs", "not modelled yet"};
            const std::string_view outcome = outcomes.at(static_cast<std::size_t>(match.outcome));
            if (match.outcome != Match::Outcome::matched || options.has("verbose"))
                fmt::print("{}:{}: {}{}{}\n", file, line_number, outcome, match.why.empty() ? "" : ": ", match.why);
            rows.push_back({{"file", file}, {"line", line_number}, {"outcome", outcome}, {"why", match.why}});
        });
    if (const auto json = options.find<std::string>("json"))
        write_json(*json, {{"matched", matched}, {"differs", differing}, {"records", total}, {"lines", rows}});
    fmt::print("matched {} of {} records\n", matched, total);
    if (differing > 0) return Exit::not_as_claimed;
    return matched == total && total > 0 ? Exit::as_claimed : Exit::inconclusive;
}

/// How a communicator of a recorded job is laid out, by the flags and else by what its process saw.
Scenario scenario_of_recorded(const Options& options, std::span<const std::string> arguments, const CallStream& stream,
                              const RecordedCommunicator& recorded, const std::function<Options()>& same_flags) {
    std::vector<std::string> changes{"--ranks", std::to_string(recorded.ranks)};
    std::vector<std::string> assumptions;
    if (!options.has("nccl-version") && !options.has("log")) {
        changes.emplace_back("--nccl-version");
        changes.push_back(str(stream.version));
    }
    if (!options.has("ranks-per-node") && !options.has("log") && !options.has("graph") && !options.has("rings")) {
        const bool together = recorded.ranks <= recorded.gpus_seen.value_or(8);
        changes.emplace_back("--ranks-per-node");
        changes.push_back(std::to_string(together ? recorded.ranks : 1));
        if (together && !options.has("channels")) {
            changes.emplace_back("--channels");
            changes.emplace_back("24");
        }
        assumptions.push_back(
            together ? fmt::format("{} ranks on one node with {} channels, as on many 8-GPU Hopper nodes (NCCL's log: "
                                   "'nNodes', 'coll channels'; --ranks-per-node, --channels, --log)",
                                   recorded.ranks, options.has("channels") ? options.get<int>("channels") : 24)
                     : fmt::format("each of {} ranks on a node of its own (NCCL's log: 'nNodes'; --ranks-per-node, "
                                   "--rings, --log)",
                                   recorded.ranks));
    }
    Options described = same_flags();
    (void)described.parse(with_changes(arguments, changes));
    Scenario scenario = scenario_from(described, false);
    scenario.assumptions.insert(scenario.assumptions.begin(), assumptions.begin(), assumptions.end());
    if (!options.has("env") && !options.has("log")) {
        Settings& settings = scenario.comm.settings;
        apply_environment(stream.environment, settings);
        scenario.comm.topology = scenario.comm.topology.with_channels(settings.min_channels, settings.max_channels);
    }
    return scenario;
}

/// What would be right instead, for the classes that were found.
std::string remedy(OrderClass order_class) {
    switch (order_class) {
        case OrderClass::owner_dependent:
            return "SAMESUM_POLICY=ordered, or direct where NVLink joins the ranks; fixed_root while all channels "
                   "share "
                   "one ring";
        case OrderClass::position_dependent:
        case OrderClass::count_dependent:
            return "SAMESUM_POLICY=ordered or direct; of averages ncclSum, then a division";
        case OrderClass::not_observable:
            return "NCCL_NVLS_ENABLE=0 and NCCL_COLLNET_ENABLE=0, or SAMESUM_POLICY=ordered or direct";
        default:
            return {};
    }
}

Exit order_calls(std::span<const std::string> arguments) {
    const auto flags = [] {
        Options options(
            "order calls FILE... [flags]",
            "Which calls of a job depend on owner, position or count? FILE is what the job's processes wrote under\n"
            "libsamesum-nccl.so.2 with SAMESUM_POLICY=observe. Alike calls are counted together; algorithm and "
            "protocol\n"
            "are the model's prediction, and what it rests on is said first.\n"
            "Exit 0 when the question is answered; with --expect invariant 1 when some sum depends on something.",
            {"LD_PRELOAD=libsamesum-nccl.so.2 SAMESUM_POLICY=observe torchrun --nproc-per-node 8 job.py",
             "samesum order calls samesum-calls.*.jsonl",
             "samesum order calls calls.jsonl --ranks-per-node 8 --channels 24 --expect invariant"});
        add_communicator_flags(options);
        options.with_json().positional("FILE", -1);
        options.add()("expect", po::value<std::string>()->value_name("WHAT"),
                      "invariant: exit 1 when a sum depends on owner, position or count");
        return options;
    };
    Options options = flags();
    if (!options.parse(arguments)) return Exit::as_claimed;
    const auto expected = options.find<std::string>("expect");
    if (expected && *expected != "invariant")
        throw UsageError(fmt::format("--expect '{}': invariant would be right", *expected));
    if (options.words().empty()) throw UsageError("needs a file of calls, as SAMESUM_POLICY=observe writes it");
    std::vector<CallStream> streams;
    std::size_t calls = 0;
    for (const std::string& file : options.words()) {
        streams.push_back(parse_call_stream(read_file(file), file));
        calls += streams.back().calls.size();
    }
    std::vector<std::string> assumptions;
    const std::vector<ClassifiedCalls> judged = classify_calls(
        streams,
        [&](const CallStream& stream, const RecordedCommunicator& recorded) {
            return scenario_of_recorded(options, arguments, stream, recorded, flags);
        },
        assumptions);

    print_assumptions(assumptions);
    fmt::print("{:>9}  {:<13} {:>12} {:<11} {:<9} {:>5} {:>5}  {:<18} {}\n", "times", "collective", "count", "dtype",
               "op", "root", "ranks", "order", "why");
    Json rows = Json::array();
    std::map<OrderClass, std::pair<std::size_t, std::size_t>> found;  // kinds, calls
    for (const ClassifiedCalls& each : judged) {
        auto& [kinds, times] = found[each.order_class];
        ++kinds;
        times += each.times;
        const RecordedCall& call = each.call;
        const std::string_view type = call.format ? name(*call.format) : "no type";
        const std::string op(call.reducing ? name(call.operation) : "");
        const std::string root = call.reducing == Collective::reduce ? std::to_string(call.root) : "";
        std::string how = each.prediction;
        if (call.did != "forwarded") how = how.empty() ? call.did : fmt::format("{}, {}", call.did, how);
        if (call.captured) how += how.empty() ? "captured" : ", captured";
        if (call.group != 0) how += how.empty() ? "grouped" : ", grouped";
        fmt::print("{:>9}  {:<13} {:>12} {:<11} {:<9} {:>5} {:>5}  {:<18} {}{}{}\n", each.times, call.collective,
                   call.count, type, op, root, each.ranks, name(each.order_class), each.why,
                   each.why.empty() || how.empty() ? "" : "; ", how);
        rows.push_back({{"times", each.times},
                        {"collective", call.collective},
                        {"count", call.count},
                        {"dtype", type},
                        {"op", op},
                        {"root", call.root},
                        {"ranks", each.ranks},
                        {"captured", call.captured},
                        {"in_place", call.in_place},
                        {"grouped", call.group != 0},
                        {"did", call.did},
                        {"prediction", each.prediction},
                        {"order", name(each.order_class)},
                        {"why", each.why},
                        {"right", remedy(each.order_class)}});
    }
    std::size_t sums = 0, dependent = 0, hidden = 0;
    Json summary = Json::object();
    fmt::print("\n");
    for (const auto& [order_class, counted] : found) {
        const auto [kinds, times] = counted;
        if (order_class != OrderClass::nothing_added) sums += times;
        if (depends(order_class)) dependent += times;
        if (order_class == OrderClass::not_observable) hidden += times;
        summary[std::string(name(order_class))] = {{"calls", times}, {"kinds", kinds}};
        const std::string right = remedy(order_class);
        fmt::print("{} {}, {} {}: {}{}{}\n", times, times == 1 ? "call" : "calls", kinds, kinds == 1 ? "kind" : "kinds",
                   name(order_class), right.empty() ? "" : "; right would be ", right);
    }
    fmt::print("{} of {} sums depend on owner, position or count\n", dependent, sums);
    if (const auto file = options.find<std::string>("json"))
        write_json(*file, {{"assumptions", assumptions},
                           {"calls", calls},
                           {"sums", sums},
                           {"dependent", dependent},
                           {"classes", summary},
                           {"kinds", rows}});
    if (sums == 0) return Exit::inconclusive;
    if (!expected) return Exit::as_claimed;
    return dependent > 0 ? Exit::not_as_claimed : hidden > 0 ? Exit::inconclusive : Exit::as_claimed;
}

}  // namespace

Exit order_command(std::span<const std::string> arguments) {
    const std::array commands{
        Command{"show", "the orders of one call: segments and their trees", order_show},
        Command{"diff", "which elements change their order between two calls", order_diff},
        Command{"invariance", "which scheme depends on owner, position, count, routing", order_invariance},
        Command{"enumerate", "all orders of a few values, and NCCL's among them", order_enumerate},
        Command{"paths", "a custom collective: batch sizes at which its order changes", order_paths},
        Command{"lint", "what an environment's settings do for the order", order_lint},
        Command{"calls", "a job's recorded calls: which depend on owner or count", order_calls},
        Command{"check", "recorded orders of real NCCL against the prediction", order_check},
    };
    return dispatch("order", arguments, commands);
}

}  // namespace samesum
