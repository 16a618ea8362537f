// Sums of elements: exact sums against big integers, the rounding of fp32_once, and averages recorded from NCCL.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE element_sum
#include "model/sum/element_sum.hpp"

#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <sstream>

#include "model/arithmetic/hop_arithmetic.hpp"
#include "model/arithmetic/random.hpp"
#include "model/nccl/call.hpp"
#include "model/nccl/schedule.hpp"
#include "model/support/files.hpp"
#include "tests/support/exact_reference.hpp"

using namespace samesum;

namespace {

Bits reference_sum(Format format, std::span<const Bits> values) {
    exact_reference::Dyadic exact{0, 0};
    bool all_negative = true;
    for (const Bits value : values) {
        exact = exact + exact_reference::value(format, value);
        all_negative = all_negative && value == traits(format).sign();
    }
    return exact_reference::nearest(format, exact, exact_reference::saturates(format),
                                    all_negative ? traits(format).sign() : 0);
}

}  // namespace

BOOST_AUTO_TEST_CASE(exact_sums_are_big_integer_sums_rounded_once) {
    for (const Format format : float_formats) {
        Random random(3);
        for (int i = 0; i < 4000; ++i) {
            std::vector<Bits> values;
            while (values.size() < 1 + static_cast<std::size_t>(i) % 17) {
                const Bits bits = i % 3 ? random.spread(format, 30) : random.pattern(format);
                if (!is_finite(format, bits)) continue;
                values.push_back(bits);
                // Half of the time also the opposite, so that the sum is small.
                if (random.below(2)) values.push_back(bits ^ traits(format).sign());
            }
            const Bits wanted = reference_sum(format, values);
            const Bits got = exact_sum(format, values);
            BOOST_REQUIRE_MESSAGE(
                got == wanted, name(format) << " case " << i << ": " << hex(format, got) << " " << hex(format, wanted));
            std::reverse(values.begin(), values.end());
            BOOST_REQUIRE(exact_sum(format, values) == got);
        }
    }
}

BOOST_AUTO_TEST_CASE(exact_sums_of_special_values) {
    const auto sum = [](std::vector<Bits> values) { return exact_sum(Format::float32, values); };
    BOOST_TEST(sum({0x7f800000, 0x3f800000}) == 0x7f800000u);
    BOOST_TEST(sum({0x7f800000, 0xff800000}) == 0x7fffffffu);
    BOOST_TEST(sum({0x3f800000, 0x7fc00001}) == 0x7fffffffu);
    BOOST_TEST(sum({0x80000000, 0x80000000}) == 0x80000000u);
    BOOST_TEST(sum({0x80000000, 0x00000000}) == 0u);
    BOOST_TEST(sum({0x7f7fffff, 0x7f7fffff, 0xff7fffff}) == 0x7f7fffffu);  // no intermediate overflow
    BOOST_TEST(exact_sum(Format::float8_e5m2, std::vector<Bits>{0x7c, 0x3c}) == 0x7bu);
}

BOOST_AUTO_TEST_CASE(one_element_in_each_rounding) {
    struct Case {
        Format format;
        const char* tree;
        std::vector<Bits> leaves;
        Accumulation accumulation;
        Bits wanted;
    };
    const std::vector<Case> cases{
        // C12: 0.5, 512, 512.5 in float16.
        {Format::float16, "((0 1) 2)", {0x3800, 0x6000, 0x6001}, Accumulation::per_hop, 0x6401},
        {Format::float16, "(0 (1 2))", {0x3800, 0x6000, 0x6001}, Accumulation::per_hop, 0x6400},
        {Format::float16, "(0 (1 2))", {0x3800, 0x6000, 0x6001}, Accumulation::fp32_once, 0x6401},
        // 256 + 1 + 1 in bfloat16: each hop loses the 1, float32 keeps both.
        {Format::bfloat16, "((0 1) 2)", {0x4380, 0x3f80, 0x3f80}, Accumulation::per_hop, 0x4380},
        {Format::bfloat16, "((0 1) 2)", {0x4380, 0x3f80, 0x3f80}, Accumulation::fp32_once, 0x4381},
        // 2^30 + 1 - 2^30: float32 loses the 1 as well, an exact sum does not.
        {Format::bfloat16, "((0 1) 2)", {0x4e80, 0x3f80, 0xce80}, Accumulation::fp32_once, 0},
        {Format::bfloat16, "((0 1) 2)", {0x4e80, 0x3f80, 0xce80}, Accumulation::exact, 0x3f80},
        {Format::float32, "((0 1) 2)", {0x4b800000, 0x3f800000, 0x3f800000}, Accumulation::fp32_once, 0x4b800000},
    };
    for (const Case& c : cases) {
        const SumRule rule{.format = c.format, .accumulation = c.accumulation};
        BOOST_TEST(sum_element(rule, ReductionTree::parse(c.tree), c.leaves) == c.wanted,
                   name(c.format) << " " << c.tree << " " << name(c.accumulation));
    }
}

BOOST_AUTO_TEST_CASE(integers_and_their_averages) {
    const auto of = [](Format format, Operation operation, std::vector<Bits> leaves, Bits scale = 0) {
        return sum_element({.format = format, .operation = operation, .scale = scale},
                           ReductionTree::parse("((0 1) 2)"), leaves);
    };
    BOOST_TEST(of(Format::int8, Operation::sum, {0x7f, 0x7f, 0x02}) == 0x00u);
    BOOST_TEST(of(Format::int32, Operation::avg, {0xffffffff, 0xfffffffe, 0xfffffffe}) == 0xffffffffu);  // -5 / 3
    BOOST_TEST(of(Format::uint8, Operation::avg, {0xff, 0x01, 0x05}) == 0x01u);                          // wraps first
    BOOST_TEST(of(Format::int32, Operation::premulsum, {1, 2, 3}, 10) == 60u);
    BOOST_TEST(of(Format::int32, Operation::max, {0xffffffff, 2, 1}) == 2u);
}

// C24: an average is not a sum divided by n. Ten times 3.3e38 stays finite because each rank scales its own value
// first.
BOOST_AUTO_TEST_CASE(an_average_scales_before_it_adds) {
    std::vector<int> ranks(10);
    for (int i = 0; i < 10; ++i) ranks[static_cast<std::size_t>(i)] = i;
    const ReductionTree chain = ReductionTree::left_fold(ranks);
    const std::vector<Bits> leaves(10, 0x7f78);
    const SumRule average{
        .format = Format::bfloat16, .operation = Operation::avg, .scale = average_scale(Format::bfloat16, 10)};
    BOOST_TEST(is_finite(Format::bfloat16, sum_element(average, chain, leaves)));
    BOOST_TEST(is_infinite(Format::bfloat16, sum_element({.format = Format::bfloat16}, chain, leaves)));
    BOOST_TEST(average_scale(Format::float8_e4m3, 3) == parse_value(Format::float8_e4m3, "0.34375"));
}

// Recorded on an H200: ncclReduce with ncclAvg to root 0 of 3 ranks, every format and protocol, 2048 elements each.
BOOST_AUTO_TEST_CASE(recorded_averages_are_reproduced_bit_for_bit) {
    const std::string file = read_file(SAMESUM_SOURCE_DIR "/tests/golden/observed/avg-3-ranks.bin");
    const std::span<const std::byte> data = std::as_bytes(std::span(file));
    const ReductionTree tree = ReductionTree::parse("((1 2) 0)");
    int blocks = 0;
    std::size_t wrong = 0, wrong_if_all_fused = 0, differing_from_sum = 0;
    for (std::size_t at = 0; at < data.size(); ++blocks) {
        std::istringstream header(std::string(file.data() + at, 64));
        std::string format_word, protocol_word;
        std::size_t bytes = 0, count = 0;
        int ranks = 0;
        header >> format_word >> bytes >> ranks >> count >> protocol_word;
        at += 64;
        BOOST_REQUIRE(ranks == 3);
        const Format format = parse_format(format_word);
        const Protocol protocol = parse_protocol(protocol_word.substr(0, protocol_word.find('\0')));
        SumRule rule{.format = format, .operation = Operation::avg, .scale = average_scale(format, ranks)};
        for (std::size_t i = 0; i < count; ++i) {
            std::vector<Bits> leaves;
            for (std::size_t rank = 0; rank < 3; ++rank)
                leaves.push_back(load(format, data.subspan(at + rank * count * bytes, count * bytes), i));
            const Bits recorded = load(format, data.subspan(at + 3 * count * bytes, count * bytes), i);
            rule.fused = hop_is_fused(protocol, format, i * bytes);
            wrong += sum_element(rule, tree, leaves) != recorded;
            rule.fused = true;
            wrong_if_all_fused += sum_element(rule, tree, leaves) != recorded;
            const HopArithmetic hop(format);
            differing_from_sum += hop.multiply(sum_element({.format = format}, tree, leaves), rule.scale) != recorded;
        }
        at += 4 * count * bytes;
    }
    BOOST_TEST(blocks == 9);
    BOOST_TEST(wrong == 0u);
    // The data distinguishes the rules: without the position rule, or with a divided sum, thousands of elements differ.
    BOOST_TEST(wrong_if_all_fused > 1000u);
    BOOST_TEST(differing_from_sum > 1000u);
}
