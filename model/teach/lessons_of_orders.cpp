// Lessons on the orders of collectives: ring, tree and PAT; the owner of a token; position and count.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "model/combine/combine.hpp"
#include "model/combine/invariance.hpp"
#include "model/sum/draw_tree.hpp"
#include "model/sum/rounding_steps.hpp"
#include "model/sum/witness.hpp"
#include "model/support/error.hpp"
#include "model/teach/lessons.hpp"

namespace samesum {
namespace {

constexpr Format bf16 = Format::bfloat16;

/// The number of additions that a rank's value goes through.
int depth_of(const ReductionTree& tree, int rank) {
    struct Part {
        bool holds;
        int depth;
    };
    std::vector<Part> leaves(static_cast<std::size_t>(tree.leaf_count()), {false, 0});
    leaves[static_cast<std::size_t>(rank)].holds = true;
    return evaluate<Part>(
               tree, leaves,
               [](const Part& a, const Part& b) {
                   return Part{a.holds || b.holds, (a.holds ? a.depth : b.depth) + (a.holds || b.holds ? 1 : 0)};
               })
        .depth;
}

int deepest(const ReductionTree& tree) {
    int max = 0;
    for (int rank = 0; rank < tree.leaf_count(); ++rank) max = std::max(max, depth_of(tree, rank));
    return max;
}

Lesson who_adds_first() {
    constexpr int ranks = 8;
    const Topology topology = Topology::one_rank_per_node(ranks);
    const ReductionTree ring = Order::ring(topology.channels()[0].ring, 0).as_tree();
    const ReductionTree tree = Order::tree(topology.channels()[0].tree).as_tree();
    const ReductionTree pat = Order::pat(ranks, 0, pat_dimensions(ranks, 65536, 65536)).as_tree();
    const Plan planned = plan_call({.topology = topology}, {.collective = Collective::reduce_scatter, .count = 8},
                                   {Algorithm::pat, Protocol::simple});
    ensure(planned.schedule.segment_at(0).order.as_tree() == pat, "the command shows the lesson's PAT order");
    const std::vector<Bits> values = parse_values(bf16, "1 1 1 512 1 1 -512 1", ranks);
    struct Row {
        const char* name;
        const ReductionTree& order;
    };
    const std::array rows{Row{"ring, to rank 0", ring}, Row{"tree", tree}, Row{"PAT, to rank 0", pat}};
    std::string pictures, sums;
    std::set<Bits> results;
    for (const Row& row : rows) {
        pictures += fmt::format("{}{}: {}\n\n{}", pictures.empty() ? "" : "\n", row.name, row.order.str(),
                                draw_text(row.order));
        const Bits sum = sum_of(bf16, row.order, values);
        results.insert(sum);
        sums += fmt::format("{:<16} {}\n", row.name, with_pattern(bf16, sum));
    }
    ensure(results.size() == rows.size(), "ring, tree and PAT give three results");
    ensure(deepest(ring) == ranks - 1 && depth_of(ring, 0) == 1, "a ring adds rank after rank");

    Lesson lesson;
    lesson.name = "algorithms";
    lesson.demonstration = {bf16, "reduce_scatter, PAT", values, 1, 0};
    lesson.title = "Ring, tree, PAT: which rank adds first";
    lesson.minutes = 4;
    lesson.text = {
        prose("The brackets of a collective come from NCCL's algorithm. Along a ring the sum moves from rank to rank; "
              "each adds its own value, and the rank that receives the result adds last. In a tree every rank adds its "
              "children's sums to its own value. PAT, NCCL's newer reduce-scatter for one rank per node, uses one tree "
              "for each destination. Eight ranks, one per node:"),
        figure(pictures), prose("The same eight values, 1, 1, 1, 512, 1, 1, -512, 1 in bfloat16, give:"), figure(sums),
        prose("NCCL chooses the algorithm by size, ranks, machine and version, again for every call.")};
    lesson.question = "How many additions does the first value go through, and how many the receiver's own value?";
    lesson.answer = {prose(
        fmt::format("On a ring of {}: {} for the first, {} for the receiver's, so early values are rounded most "
                    "often. In the tree above no value goes through more than {}, in PAT through no more than {}.",
                    ranks, deepest(ring), depth_of(ring, 0), deepest(tree), deepest(pat)))};
    lesson.command =
        "samesum order show --collective reduce_scatter --count 8 --ranks 8 --ranks-per-node 1 --algo pat --proto "
        "simple --element 0";
    lesson.result = pat.str();
    const ReductionTree wanted = Order::ring(Topology::one_rank_per_node(5).channels()[0].ring, 2).as_tree();
    lesson.exercise = {"Write the order in which the ring 0 1 2 3 4 sums the result of rank 2.",
                       "brackets, e.g. '((0 1) 2)'", wanted.str(), [=](std::string_view answer) -> Grade {
                           const ReductionTree tree_given = ReductionTree::parse(answer);
                           std::vector<int> leaves = tree_given.leaves();
                           std::sort(leaves.begin(), leaves.end());
                           if (leaves != std::vector{0, 1, 2, 3, 4})
                               return {false, "Each of the ranks 0 to 4 adds exactly once."};
                           if (same_order(tree_given, wanted))
                               return {true, "The receiver's successor starts, the receiver adds last."};
                           if (depth_of(tree_given, 2) != 1)
                               return {false, "Rank 2 receives the result: it adds last."};
                           return {false, "The rank after the receiver starts, and the sum follows the ring."};
                       }};
    return lesson;
}

constexpr int owners = 4;

ReductionTree order_of_row(const CombinePlan& plan, std::uint64_t row) {
    return plan.schedule.segment_at(row).order.as_tree();
}

/// The orders of vLLM's combine of 4 rows, one for each owner; its ragged branch has the same ones.
std::vector<ReductionTree> orders_by_owner(const Communicator& comm, const CombineOptions& options) {
    const Routing decode{.sizes = {1, 1, 1, 1}};
    const CombinePlan plan = plan_combine(Scheme::vllm_default, comm, decode, bf16, options);
    ensure(dispatched(Scheme::vllm_default, decode) == Scheme::reduce_scatter, "equal sizes take ncclReduceScatter");
    std::vector<ReductionTree> orders;
    for (std::uint64_t row = 0; row < owners; ++row) orders.push_back(order_of_row(plan, row));
    // The ragged branch: one ncclReduce for each owner.
    const Routing ragged{.sizes = {2, 1, 1, 0}};
    ensure(dispatched(Scheme::vllm_default, ragged) == Scheme::reduce_per_owner, "unequal sizes take ncclReduce");
    const CombinePlan ragged_plan = plan_combine(Scheme::vllm_default, comm, ragged, bf16, options);
    for (std::uint64_t row = 0; row < ragged.rows(); ++row)
        ensure(same_order(order_of_row(ragged_plan, row), orders[static_cast<std::size_t>(ragged.owner(row))]),
               "both branches give an owner the same chain");
    return orders;
}

/// The same partials in each owner's order, one line an owner.
std::string sums_by_owner(std::span<const ReductionTree> orders, std::span<const Bits> partials) {
    std::set<Bits> sums;
    std::string table;
    for (std::size_t owner = 0; owner < orders.size(); ++owner) {
        const Bits sum = sum_of(bf16, orders[owner], partials);
        sums.insert(sum);
        table += fmt::format("owner {}  {}  {}\n", owner, orders[owner].str(), with_pattern(bf16, sum));
    }
    ensure(sums.size() == 3, "three sums of the same four partials");
    return table;
}

/// Four values that two orders add to different bits: a solution of the exercise.
std::string separating_values(const ReductionTree& a, const ReductionTree& b) {
    const auto witness = separating_witness(a, b, bf16);
    ensure(witness.has_value(), "owners 0 and 2 have different orders");
    std::string values;
    for (const Bits value : witness->leaves) values += (values.empty() ? "" : " ") + exact_decimal(bf16, value);
    return values;
}

Lesson owner_moves_order() {
    const Communicator comm{.topology = Topology::one_rank_per_node(owners)};
    const CombineOptions options{.forced = {Algorithm::ring, Protocol::simple}};
    const std::vector<ReductionTree> orders = orders_by_owner(comm, options);
    const std::vector<Bits> partials = parse_values(bf16, "1 512 -512 1", owners);
    const InvarianceAnswer invariant =
        decide_invariance(Invariance::owner, Scheme::vllm_default, comm, 2048, bf16, options);
    ensure(!invariant.holds && invariant.example.has_value(), "the combine depends on the owner");
    const Placement& after = invariant.example->after;

    Lesson lesson;
    lesson.name = "owner";
    lesson.demonstration = {bf16, "reduce_scatter, ring", partials, 0, 1};
    lesson.title = "The order follows the owner";
    lesson.minutes = 4;
    lesson.text = {
        prose("In data + expert parallel serving each rank holds a partial sum for every token. The combine adds the "
              "partials over the ranks and gives each token's row to the rank that owns it. During decoding each of 4 "
              "ranks owns one token: sizes 1,1,1,1. Then vLLM calls ncclReduceScatter, and on a ring the owner adds "
              "last."),
        prose(
            "So the same four partials are added in four orders, depending on the rank to which the scheduler assigned "
            "the request:"),
        figure(sums_by_owner(orders, partials)),
        prose("The values of these sums, and the first two orders side by side:"),
        figure(tell_apart(orders[0], orders[1], bf16, partials, "owner 0", "owner 1") + "\n"),
        prose("Real partials differ less, but one unit in the last place of a hidden state is enough: if the two best "
              "candidates for the next token are close, the other one is sampled, and from then on the answers "
              "diverge. vLLM's issue reports that the same prompt sent to another rank sampled other tokens.")};
    lesson.question = "With unequal sizes, as in prefill, vLLM calls one ncclReduce for each owner. Does that help?";
    lesson.answer = {prose(
        "No. The root of each reduce is the owner, and the chain of ncclReduce ends at its root: each owner has the "
        "same order as before. One order for all owners helps: see lesson `fixed_root`.")};
    lesson.command = "samesum order invariance --ranks 4 --ranks-per-node 1 --schemes vllm_default";
    lesson.result = fmt::format("sizes {}, row {} (owner {}): {}", str_sizes(after.routing.sizes), after.row,
                                after.routing.owner(after.row), invariant.example->after_order.as_tree().str());
    lesson.exercise = {
        "Find four bfloat16 partials whose sum differs between owner 0 and owner 2.",
        "four values of ranks 0 to 3, e.g. '1 2 3 4'", separating_values(orders[0], orders[2]),
        [=](std::string_view answer) {
            return grade_difference(
                {.format = bf16}, orders[0], orders[2], answer,
                "Take a large value and its negative, and a 1 that only one of the orders adds to one of them early.");
        }};
    return lesson;
}

/// The number of `count` elements that change their order when they start at `offset` of the second call.
std::uint64_t changed_elements(const Schedule& before, const Schedule& after, std::uint64_t count,
                               std::uint64_t offset) {
    std::uint64_t changed = 0;
    for (std::uint64_t i = 0; i < count;) {
        const Segment a = before.segment_at(i), b = after.segment_at(i + offset);
        const std::uint64_t end = std::min({count, a.end, b.end - offset});
        if (!same_order(a.order, b.order)) changed += end - i;
        i = end;
    }
    return changed;
}

Lesson position_and_count() {
    constexpr int ranks = 8;
    constexpr std::uint64_t first = 5000, second = 3000;
    const Communicator comm{.topology = Topology::one_rank_per_node(ranks)};
    const auto schedule = [&](std::uint64_t count) {
        return plan_call(comm, {.collective = Collective::all_reduce, .count = count}, {Algorithm::ring, Protocol::ll})
            .schedule;
    };
    const Schedule first_alone = schedule(first), second_alone = schedule(second), fused = schedule(first + second);
    const std::uint64_t first_changed = changed_elements(first_alone, fused, first, 0);
    const std::uint64_t second_changed = changed_elements(second_alone, fused, second, first);
    ensure(first_changed > 0 && first_changed < first && second_changed > 0 && second_changed < second,
           "most elements change their order, some do not");
    // Chunk by chunk: which rank adds last.
    const auto chunks = [&](const Schedule& of, std::uint64_t offset, std::uint64_t count) {
        std::string text;
        of.visit(offset, offset + count, [&](const Segment& segment) {
            text += fmt::format("  {:>4} to {:>4}  {}\n", std::max(segment.begin, offset) - offset,
                                std::min(segment.end, offset + count) - offset - 1, segment.order.as_tree().str());
            return true;
        });
        return text;
    };

    Lesson lesson;
    lesson.name = "position";
    lesson.title = "Position and count: fused tensors";
    lesson.minutes = 4;
    lesson.text = {
        prose(
            "A ring all-reduce splits the buffer into as many chunks as there are ranks. Each chunk starts at another "
            "rank, so that all links are busy. An element's order thus depends on its chunk: on its position and, "
            "since the chunks grow with the buffer, on the count."),
        prose(fmt::format("A user reduced tensors one by one, then two at a time in one call, and got different sums "
                          "(NVIDIA/nccl issue 157). Take a tensor of {} float32 on 8 ranks. Alone:",
                          second)),
        figure(chunks(second_alone, 0, second)),
        prose(fmt::format("The same tensor after another one of {}, in one call of {}:", first, first + second)),
        figure(chunks(fused, first, second)),
        prose(fmt::format("{} of its {} elements change their order. Both calls give the same bits in every run and on "
                          "all ranks: the difference is not noise but another order.",
                          second_changed, second))};
    lesson.question = fmt::format("{} of {} elements keep their order. Why those?", second - second_changed, second);
    lesson.answer = {prose(
        "Those where an old and a new chunk with the same starting rank overlap. Exactly these elements must have the "
        "same bits on all inputs, so a test that knows them can check NCCL's behaviour.")};
    const std::string diff =
        "samesum order diff --collective all_reduce --ranks 8 --ranks-per-node 1 --algo ring --proto ll ";
    lesson.command = diff + fmt::format("--count {} --with '--count {}' --offset {}", second, first + second, first);
    lesson.result = fmt::format("{} of {} elements change their order", second_changed, second);
    lesson.exercise = {
        fmt::format("The first tensor of the pair, {} elements, stays at offset 0. How many of its elements change "
                    "their order when the second one is appended?",
                    first),
        "a whole number", std::to_string(first_changed), [=](std::string_view answer) {
            return grade_number(answer, first_changed,
                                "Same position, larger buffer: the chunks grew. The order depends on the count as well "
                                "as on the position.",
                                diff + fmt::format("--count {} --with '--count {}' shows it.", first, first + second));
        }};
    return lesson;
}

}  // namespace

std::vector<Lesson> lessons_of_orders() { return {who_adds_first(), owner_moves_order(), position_and_count()}; }

}  // namespace samesum
