// samesum sum mask: which elements of given tensors can reveal an order.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "model/arithmetic/hex_lines.hpp"
#include "model/commands/commands.hpp"
#include "model/commands/sum_values.hpp"
#include "model/nccl/buffer_sum.hpp"
#include "model/sum/reachable.hpp"
#include "model/support/files.hpp"
#include "model/support/output.hpp"
#include "model/support/progress.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;

Options mask_options() {
    Options options(
        "sum mask [flags] [FILES]",
        "Which elements of these tensors can reveal an order at all: those that two orders add to different "
        "bits. Their share\nsays how much of a test on this data can fail; exit 1 when it is below --least. FILES: one "
        "raw little-endian file a rank;\nwithout them one element a line on stdin, the ranks' bit patterns.",
        {"samesum sum mask --dtype bfloat16 rank0.bin rank1.bin rank2.bin rank3.bin",
         "samesum sum mask --dtype bfloat16 --before ring:0 --after ring:2 --list <elements.txt"});
    options.positional("FILES", -1);
    options.add()("dtype", word("float32", "T"), "data type")(
        "before", word("ORDER"), (std::string("two given orders instead of all: ") + order_help).c_str())(
        "after", word("ORDER"), "the other one")("shape", word("any", "S"), "any tree, or chain")(
        "rounding", word("per_hop", "R"), "per_hop, fp32_once or exact")(
        "least", po::value<double>()->default_value(0.10, "0.10")->value_name("SHARE"), "the share that is enough")(
        "seconds", po::value<double>()->default_value(10)->value_name("S"), "for all orders of one element")(
        "list", "print 1 or 0 (or ? where there are too many orders) for each element");
    options.with_json();
    return options;
}

using Buffers = std::vector<std::vector<std::byte>>;

/// A buffer for each rank, of equal sizes.
Buffers buffers_in(const Options& options, Format format) {
    Buffers inputs;
    const auto bytes_each = static_cast<std::size_t>(traits(format).bytes());
    for (const std::string& file : options.words()) {
        const std::string text = read_file(file);
        const auto bytes = std::as_bytes(std::span(text));
        inputs.emplace_back(bytes.begin(), bytes.end());
        if (inputs.back().size() != inputs.front().size() || inputs.back().size() % bytes_each != 0)
            throw UsageError(fmt::format("{} has {} bytes: expected {}, as the first file, and a multiple of {}", file,
                                         inputs.back().size(), inputs.front().size(), bytes_each));
    }
    if (inputs.empty()) {
        HexLines lines(STDIN_FILENO, format, 0);
        inputs.resize(lines.columns());
        while (!inputs.empty() && lines.read(inputs, 65536) > 0) continue;
    }
    if (inputs.empty() || inputs.front().empty())
        throw UsageError("no element: expected a file a rank, or lines of bit patterns on stdin");
    return inputs;
}

/// 1 where two given orders give different bits, else 0.
std::string mask_of_two(const Options& options, const SumRule& rule, const Buffers& inputs, std::size_t elements) {
    const std::vector<ConstBytes> views(inputs.begin(), inputs.end());
    std::array<std::vector<std::byte>, 2> sums;
    for (std::size_t i = 0; i < 2; ++i) {
        sums[i].resize(inputs.front().size());
        const std::string order = options.get<std::string>(i ? "after" : "before");
        sum_buffers(rule, parse_order(order, static_cast<int>(inputs.size())), views, sums[i]);
    }
    std::string mask(elements, '0');
    for (std::size_t i = 0; i < elements; ++i)
        if (load(rule.format, sums[0], i) != load(rule.format, sums[1], i)) mask[i] = '1';
    return mask;
}

/// 1 where any two orders give different bits, 0 where none do, ? where there are too many orders.
std::string mask_of_all(const SumRule& rule, const Buffers& inputs, std::size_t elements,
                        const ReachableOptions& limits) {
    std::string mask(elements, '0');
    Progress progress("sum mask");
    for (std::size_t i = 0; i < elements; ++i) {
        std::vector<Bits> leaves;
        for (const auto& input : inputs) leaves.push_back(load(rule.format, input, i));
        try {
            if (order_matters(rule, leaves, limits)) mask[i] = '1';
        } catch (const Inconclusive&) {
            mask[i] = '?';
        }
        if (i % 1024 == 0) progress.update(fmt::format("{} of {} elements", i, elements));
    }
    return mask;
}

}  // namespace

Exit sum_mask(std::span<const std::string> arguments) {
    Options options = mask_options();
    if (!options.parse(arguments)) return Exit::as_claimed;
    const SumRule rule{.format = parse_format(options.get<std::string>("dtype")),
                       .accumulation = parse_accumulation(options.get<std::string>("rounding"))};
    const double enough = options.get<double>("least");
    if (!(enough >= 0 && enough <= 1))
        throw UsageError(fmt::format("--least {}: expected a share from 0 to 1, e.g. 0.10", enough));
    const ReachableOptions limits = limits_in(options);
    const Buffers inputs = buffers_in(options, rule.format);
    const std::size_t elements = inputs.front().size() / static_cast<std::size_t>(traits(rule.format).bytes());
    const std::string mask = options.has("before") || options.has("after")
                                 ? mask_of_two(options, rule, inputs, elements)
                                 : mask_of_all(rule, inputs, elements, limits);

    const auto count = [&](char c) { return static_cast<std::size_t>(std::count(mask.begin(), mask.end(), c)); };
    const std::size_t able = count('1'), unknown = count('?');
    const double share = static_cast<double>(able) / static_cast<double>(elements);
    const double possible = static_cast<double>(able + unknown) / static_cast<double>(elements);
    const Exit exit = share >= enough      ? Exit::as_claimed
                      : possible >= enough ? Exit::inconclusive
                                           : Exit::not_as_claimed;
    const std::string_view verdict = exit == Exit::as_claimed     ? "sufficient"
                                     : exit == Exit::inconclusive ? "not known"
                                                                  : "vacuous";
    std::string text;
    if (options.has("list"))
        for (const char c : mask) text += {c, '\n'};
    text += fmt::format("{} of {} elements can reveal an order: {:.2f} %{}\n", able, elements, 100 * share,
                        unknown ? fmt::format(" ({} more are not known)", unknown) : "");
    if (exit != Exit::as_claimed)
        text += fmt::format("{}: below {:.2f} %, a test on this data can hardly fail\n", verdict, 100 * enough);
    return emit(options, text,
                {{"elements", elements},
                 {"able", able},
                 {"unknown", unknown},
                 {"share", share},
                 {"least", enough},
                 {"verdict", verdict},
                 {"ranks", inputs.size()},
                 {"mask", options.has("list") ? Json(mask) : Json(nullptr)}},
                exit);
}

}  // namespace samesum
