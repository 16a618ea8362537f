// Whole buffers in vector code against sum_element(), bit for bit.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE buffer_sum
#include "model/nccl/buffer_sum.hpp"

#include <boost/test/unit_test.hpp>

#include "model/arithmetic/random.hpp"
#include "model/sum/native_sum.hpp"
#include "model/support/error.hpp"

using namespace samesum;

namespace {

using Buffers = std::vector<std::vector<std::byte>>;

Buffers random_buffers(Format format, std::size_t ranks, std::size_t count, std::uint64_t seed) {
    Random random(seed);
    Buffers buffers(ranks, std::vector<std::byte>(count * static_cast<std::size_t>(traits(format).bytes())));
    for (std::size_t i = 0; i < count; ++i)
        for (auto& buffer : buffers) {
            // A third edge cases and NaNs, a third of similar magnitude (ties and cancellation are common), a third
            // wide.
            const Bits bits = i % 3 == 0 || !traits(format).is_float ? random.pattern(format)
                                                                     : random.spread(format, i % 3 == 1 ? 3 : 30);
            store(format, buffer, i, bits);
        }
    return buffers;
}

std::vector<ConstBytes> views(const Buffers& buffers) { return {buffers.begin(), buffers.end()}; }

ReductionTree random_tree(Random& random, int leaves) {
    std::vector<ReductionTree> parts;
    for (int rank = 0; rank < leaves; ++rank) parts.push_back(ReductionTree::leaf(rank));
    while (parts.size() > 1) {
        const std::size_t i = random.below(parts.size());
        std::swap(parts[i], parts.back());
        const ReductionTree right = parts.back();
        parts.pop_back();
        ReductionTree& left = parts[random.below(parts.size())];
        left = ReductionTree::node(left, right);
    }
    return parts.front();
}

}  // namespace

BOOST_AUTO_TEST_CASE(native_additions_are_the_models) {
    for (const Format format : all_formats) {
        const HopArithmetic hop(format);
        Random random(1);
        std::size_t wrong = 0;
        with_native_add(format, [&](auto native) {
            for (int i = 0; i < 400000; ++i) {
                const Bits a = random.pattern(format);
                const Bits b = i % 2 ? random.pattern(format) : (a ^ (random.next() & 0xff)) & traits(format).mask();
                wrong += native.add(a, b) != hop.add(a, b);
            }
        });
        BOOST_TEST(wrong == 0u, name(format));
    }
}

BOOST_AUTO_TEST_CASE(float16_conversions_are_the_models) {
    for (Bits x = 0; x < 65536; ++x) {
        if (is_nan(Format::float16, x)) continue;
        const float wide = float16_to_float32(static_cast<std::uint32_t>(x));
        BOOST_REQUIRE(std::bit_cast<std::uint32_t>(wide) == convert(Format::float16, Format::float32, x));
    }
    Random random(2);
    for (int i = 0; i < 500000; ++i) {
        const Bits x = i % 2 ? random.pattern(Format::float32) : random.spread(Format::float32, 30);
        if (is_nan(Format::float32, x)) continue;
        BOOST_REQUIRE(float32_to_float16(std::bit_cast<float>(static_cast<std::uint32_t>(x))) ==
                      convert(Format::float32, Format::float16, x));
    }
}

BOOST_AUTO_TEST_CASE(buffers_have_the_bits_of_their_elements) {
    Random random(3);
    for (const Format format : all_formats) {
        for (const Accumulation accumulation : {Accumulation::per_hop, Accumulation::fp32_once, Accumulation::exact}) {
            for (const int ranks : {1, 2, 3, 8}) {
                const SumRule rule{.format = format, .accumulation = accumulation};
                // Odd counts: whole tiles and a remainder.
                const std::size_t count = 1021;
                const Buffers inputs = random_buffers(format, static_cast<std::size_t>(ranks), count, random.next());
                const ReductionTree tree = random_tree(random, ranks);
                std::vector<std::byte> output(inputs.front().size());
                sum_buffers(rule, tree, views(inputs), output);
                std::size_t wrong = 0;
                for (std::size_t i = 0; i < count; ++i) {
                    std::vector<Bits> leaves;
                    for (const auto& input : inputs) leaves.push_back(load(format, input, i));
                    wrong += load(format, output, i) != sum_element(rule, tree, leaves);
                }
                BOOST_TEST(wrong == 0u, name(format) << " " << name(accumulation) << " " << tree.str());
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(every_sum_of_two_bfloat16_of_a_slice) {
    // All left operands with edge cases and neighbours, in long buffers, so that vector code gets each class of pair.
    for (const Format format : {Format::float16, Format::bfloat16}) {
        const HopArithmetic hop(format);
        for (const Bits right :
             {0x0000, 0x8000, 0x0001, 0x3c00, 0x3f80, 0x7bff, 0x7f7f, 0xff80, 0xfc00, 0x7fff, 0x8403}) {
            std::vector<std::byte> left(131072), other(131072), output(131072);
            for (Bits x = 0; x < 65536; ++x) store(format, left, x, x), store(format, other, x, right);
            const std::vector<ConstBytes> inputs{left, other};
            sum_buffers({.format = format}, ReductionTree::parse("(0 1)"), inputs, output);
            std::size_t wrong = 0;
            for (Bits x = 0; x < 65536; ++x) wrong += load(format, output, x) != hop.add(x, right);
            BOOST_TEST(wrong == 0u, name(format) << " + " << hex(format, right));
        }
    }
}

BOOST_AUTO_TEST_CASE(schedules_threads_and_rules_beyond_sums) {
    const int ranks = 4;
    const Communicator comm{.topology = Topology::one_rank_per_node(ranks, 2)};
    struct Case {
        Format format;
        Operation operation;
        Protocol protocol = Protocol::simple;
    };
    // The protocol determines which of two float64 NaNs is kept.
    for (const Case& c :
         {Case{Format::bfloat16, Operation::sum}, Case{Format::float32, Operation::avg},
          Case{Format::float32, Operation::prod}, Case{Format::float8_e5m2, Operation::sum},
          Case{Format::float64, Operation::sum}, Case{Format::float64, Operation::sum, Protocol::ll128}}) {
        const Call call{.collective = Collective::all_reduce, .count = 300001, .format = c.format};
        Forced forced;
        forced.algorithm = Algorithm::ring;
        forced.protocol = c.protocol;
        const Plan plan = plan_call(comm, call, forced);
        const Buffers inputs = random_buffers(c.format, ranks, call.count, 9);
        const SumRule rule{.format = c.format, .operation = c.operation, .scale = average_scale(c.format, ranks)};
        std::vector<std::byte> output(inputs.front().size()), again(output.size());
        sum_buffers(rule, plan.schedule, views(inputs), output, 1);
        sum_buffers(rule, plan.schedule, views(inputs), again, 3);
        BOOST_TEST((output == again));
        std::size_t wrong = 0, orders = 0;
        plan.schedule.visit(0, call.count, [&](const Segment& segment) {
            ++orders;
            SumRule ruled = rule_for(segment, c.format, rule.accumulation);
            ruled.operation = rule.operation;
            ruled.scale = rule.scale;
            for (const std::uint64_t e : {segment.begin, (segment.begin + segment.end) / 2, segment.end - 1}) {
                std::vector<Bits> leaves;
                for (const auto& input : inputs) leaves.push_back(load(c.format, input, e));
                wrong += load(c.format, output, e) != sum_element(ruled, segment.order.as_tree(), leaves);
            }
            return true;
        });
        BOOST_TEST(wrong == 0u);
        BOOST_TEST(orders > 1u);
    }
}

BOOST_AUTO_TEST_CASE(sizes_that_do_not_fit_are_refused) {
    const Buffers inputs = random_buffers(Format::float32, 2, 8, 1);
    std::vector<std::byte> output(28), odd(31);
    const ReductionTree two = ReductionTree::parse("(0 1)");
    BOOST_CHECK_THROW(sum_buffers({}, two, views(inputs), output), UsageError);
    BOOST_CHECK_THROW(sum_buffers({}, two, views(inputs), odd), UsageError);
    output.resize(32);
    BOOST_CHECK_THROW(sum_buffers({}, ReductionTree::parse("(0 2)"), views(inputs), output), UsageError);
    sum_buffers({}, two, views(inputs), output);
}
