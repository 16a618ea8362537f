// The sum commands, run as users run them.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE sum_commands
#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/analysis/changed_share.hpp"
#include "model/arithmetic/random.hpp"
#include "model/sum/element_sum.hpp"
#include "model/sum/rounding_steps.hpp"
#include "tests/support/program.hpp"

using namespace samesum;
using samesum::testing::Outcome;
using samesum::testing::run;

namespace {

struct Case {
    const char* what;
    const char* arguments;
    const char* input;
    int exit;
    std::vector<const char*> says;       // on stdout
    std::vector<const char*> complains;  // on stderr
};

void check(const std::vector<Case>& cases) {
    for (const Case& c : cases) {
        BOOST_TEST_CONTEXT(c.what << ": samesum " << c.arguments) {
            const Outcome outcome = run(c.arguments, c.input);
            BOOST_TEST(outcome.exit == c.exit);
            for (const char* text : c.says) BOOST_TEST(outcome.says(text), text << " in: " << outcome.out);
            for (const char* text : c.complains) BOOST_TEST(outcome.complains(text), text << " in: " << outcome.err);
        }
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(eval) {
    check({
        {"C12, left to right",
         "sum eval --dtype float16 --tree '((0 1) 2)' --values '0.5 512 512.5'",
         "",
         0,
         {"0x6401\n"},
         {}},
        {"C12, why",
         "sum eval --dtype float16 --tree '(0 (1 2))' --values '0.5 512 512.5' --explain",
         "",
         0,
         {"0x6000 + 0x6001", "1024.5 exactly", "rounded down by 1/2 ulp (tie to even)", "= 0x6400 (1024)"},
         {}},
        {"1e8 + 1 - 1e8", "sum eval --values '1e8 1 -1e8'", "", 0, {"0x00000000\n"}, {}},
        {"the same, exactly", "sum eval --values '1e8 1 -1e8' --rounding exact", "", 0, {"0x3f800000\n"}, {}},
        {"lines",
         "sum eval --dtype bfloat16 --tree '(0 (1 2))'",
         "0x3f80 0x3b80 0xbf80\n3f80 3b80 bf80\n",
         0,
         {"0x3b80\n0x3b80\n"},
         {}},
        {"chain by default, odd spacing, no newline at the end",
         "sum eval --dtype float32",
         "  3f800000\t0x3f800000 \r\n\n# remark\n0x1 2",
         0,
         {"0x40000000\n0x00000003\n"},
         {}},
        {"a bad line",
         "sum eval --dtype bfloat16 --tree '(0 1)'",
         "0x3f80 0x3f80\n0x3f80 0x3f8g\n",
         2,
         {"0x4000\n"},
         {"line 2", "'0x3f8g' is not a bfloat16 bit pattern", "the 1 elements before it are written"}},
        {"a short line",
         "sum eval --dtype bfloat16 --tree '(0 1)'",
         "0x3f80\n",
         2,
         {},
         {"line 1", "1 bit patterns: expected 2"}},
        {"no line", "sum eval --dtype bfloat16", "", 2, {}, {"no element on stdin"}},
        {"a tree that leaves out a rank", "sum eval --tree '(0 2)' --values '1 2'", "", 2, {}, {"a rank is missing"}},
        {"average", "sum eval --dtype bfloat16 --op avg --values '1 2 4' --explain", "", 0, {"= 0x4016"}, {}},
        {"rounding of what has none", "sum eval --op max --rounding exact --values '1 2'", "", 2, {}, {"is for sums"}},
        {"help", "sum eval --help", "", 0, {"examples:", "--explain"}, {}},
        {"NaN rule", "sum eval --values 'inf -inf'", "", 0, {"0x7fffffff"}, {}},
    });
}

BOOST_AUTO_TEST_CASE(a_long_stream_has_the_bits_of_its_elements) {
    for (const Format format : {Format::bfloat16, Format::float32, Format::float64, Format::float8_e4m3}) {
        Random random(1);
        std::string input, wanted;
        const ReductionTree tree = ReductionTree::parse("((0 3) (2 1))");
        for (int i = 0; i < 20000; ++i) {
            std::vector<Bits> leaves;
            for (int rank = 0; rank < 4; ++rank) {
                leaves.push_back(random.pattern(format));
                // Lines in the usual form, upper case, and short ones, mixed.
                input += rank ? " " : "";
                input += i % 5 == 0   ? fmt::format("{:x}", leaves.back())
                         : i % 5 == 1 ? fmt::format("0X{:X}", leaves.back())
                                      : hex(format, leaves.back());
            }
            input += "\n";
            wanted += hex(format, sum_element({.format = format}, tree, leaves)) + "\n";
        }
        const Outcome outcome = run(fmt::format("sum eval --dtype {} --tree '((0 3) (2 1))'", name(format)), input);
        BOOST_TEST(outcome.exit == 0);
        BOOST_TEST((outcome.out == wanted), name(format));
    }
}

BOOST_AUTO_TEST_CASE(every_explanation_ends_on_the_result) {
    Random random(2);
    std::size_t steps = 0, exact = 0;
    for (int i = 0; i < 3000; ++i) {
        const Format format = all_formats[random.below(all_formats.size())];
        SumRule rule{.format = format};
        const auto operation = static_cast<Operation>(random.below(6));
        if (operation == Operation::sum) rule.accumulation = static_cast<Accumulation>(random.below(3));
        rule.operation = operation;
        rule.fused = random.below(2);
        rule.own_is_left = random.below(2);
        rule.scale = operation == Operation::premulsum || !traits(format).is_float ? random.pattern(format)
                                                                                   : average_scale(format, 4);
        std::vector<Bits> leaves;
        for (int rank = 0; rank < 4; ++rank)
            leaves.push_back(traits(format).is_float && i % 2 ? random.spread(format, 3) : random.pattern(format));
        const ReductionTree tree = ReductionTree::parse(i % 3 ? "((0 1) (2 3))" : "(((2 1) 0) 3)");
        const Explanation explanation = explain(rule, tree, leaves);
        BOOST_TEST(explanation.result == sum_element(rule, tree, leaves));
        for (const RoundingStep& step : explanation.steps) {
            ++steps;
            exact += !step.rounded;
            BOOST_TEST(!step.rounding.empty());
            // No step may claim more than half a unit: the model would not round to nearest.
            if (step.rounding.starts_with("rounded")) {
                const auto by = step.rounding.find(" by ");
                if (step.rounding.find("1/2 ulp") == std::string::npos &&
                    step.rounding.find("less than") == std::string::npos &&
                    !(traits(format).width == 8 && operation != Operation::sum))
                    BOOST_TEST(std::stod(step.rounding.substr(by + 4)) <= 0.5, step.rounding);
            }
        }
    }
    BOOST_TEST(steps > 5000u);
    BOOST_TEST(exact > 500u);
}

BOOST_AUTO_TEST_CASE(witness) {
    check({
        {"two orders",
         "sum witness --tree '((0 1) 2)' --other '(0 (1 2))' --dtype bfloat16",
         "",
         0,
         {"512 (0x4400)", "1 of 1 pairs of orders told apart"},
         {}},
        {"every format", "sum witness --ranks 8 --tree ring:0 --other ring:3", "", 0, {"6 of 6 pairs"}, {}},
        {"every pair of orders of 4 values", "sum witness --leaves 4", "", 0, {"630 of 630 pairs"}, {}},
        {"operands swapped", "sum witness --tree '((0 1) 2)' --other '(2 (1 0))'", "", 1, {"the same order"}, {}},
        {"integers", "sum witness --leaves 3 --dtype int32", "", 2, {}, {"integers add to the same bits"}},
        {"different sizes", "sum witness --tree '(0 1)' --other '((0 1) 2)'", "", 2, {}, {"no values fit both"}},
    });
}

BOOST_AUTO_TEST_CASE(expect) {
    check({
        {"C6: bfloat16 hops",
         "sum expect --ranks 8 --before chain --after ring:0 --dtype bfloat16",
         "",
         0,
         {"57.0", "200000 samples, seed 1"},
         {}},
        {"C6: float32 accumulation hides the order",
         "sum expect --ranks 8 --before chain --after ring:0 --dtype bfloat16 --rounding fp32_once",
         "",
         0,
         {"0.00 % +- 0.00 %"},
         {}},
        {"C14: symmetric kernels round once",
         "sum expect --ranks 4 --before chain --after chain --rounding-after fp32_once --dtype bfloat16",
         "",
         0,
         {"32.8", "per_hop -> fp32_once"},
         {}},
        {"two calls",
         "sum expect --collective all_reduce --ranks 4 --ranks-per-node 1 --algo ring --proto ll --count "
         "4096 --dtype bfloat16 --samples 50000 --with '--algo tree'",
         "",
         0,
         {"of the elements change bits"},
         {}},
        {"nothing to compare", "sum expect --ranks 4", "", 2, {}, {"--before and --after"}},
        {"no data model",
         "sum expect --ranks 4 --before chain --after ring:0 --data gauss",
         "",
         2,
         {},
         {"normal[:DEVIATION]"}},
        {"no order", "sum expect --ranks 4 --before ring:4 --after chain", "", 2, {}, {"not an order of 4 ranks"}},
    });
}

BOOST_AUTO_TEST_CASE(reachable) {
    check({
        {"C12",
         "sum reachable --dtype float16 --values '0.5 512 512.5' --result 1024",
         "",
         0,
         {"reachable: by (0 (1 2))"},
         {}},
        {"a wider accumulator",
         "sum reachable --dtype bfloat16 --values '256 1 1 1 -1' --result 258",
         "",
         0,
         {"reachable: by"},
         {}},
        {"one step too far",
         "sum reachable --dtype bfloat16 --values '256 1' --result 258",
         "",
         1,
         {"not by any order: defect", "nearest 0x4380 (256); 1 step of the format away"},
         {}},
        {"C13: NaN from finite values",
         "sum reachable --dtype bfloat16 --values '1 2 3 4' --result nan",
         "",
         1,
         {"not by any order: defect"},
         {}},
        {"C13: many values",
         "sum reachable --dtype bfloat16 --result nan --values "
         "'1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24'",
         "",
         1,
         {"by no order: every result lies between", "defect"},
         {}},
        {"what the bound cannot tell",
         "sum reachable --dtype bfloat16 --rounding per_hop --result 292 --values "
         "'1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24.25'",
         "",
         3,
         {"undecided"},
         {}},
        {"all results", "sum reachable --dtype float16 --values '0.5 512 512.5' --list", "", 0, {"2 results"}, {}},
        {"lines: every second one is wrong, three times",
         "sum reachable --dtype bfloat16",
         "3f80 3f80 4000\n3f80 3f80 7fff\n3f80 3f80 4000\n3f80 3f80 7fff\n3f80 3f80 4000\n3f80 3f80 7fff\n",
         1,
         {"elements: 1 3 5", "all 2 apart", "6 elements: 3 reachable, 3 by no order (defects), 0 undecided"},
         {}},
        {"lines that are right",
         "sum reachable --dtype bfloat16",
         "3f80 3f80 4000\n",
         0,
         {"1 elements: 1 reachable"},
         {}},
        {"no lines", "sum reachable --dtype bfloat16", "", 2, {}, {"each line on stdin"}},
        {"shape", "sum reachable --values '1 2' --result 3 --shape ring", "", 2, {}, {"expected any or chain"}},
    });
}

BOOST_AUTO_TEST_CASE(mask) {
    Random random(3);
    std::string whole, wide;
    for (int i = 0; i < 400; ++i)
        for (int rank = 0; rank < 4; ++rank) {
            const char* end = rank < 3 ? " " : "\n";
            whole += hex(Format::bfloat16, from_double(Format::bfloat16, static_cast<double>(random.below(8)))) + end;
            wide += hex(Format::bfloat16, random.spread(Format::bfloat16, 4)) + end;
        }
    check({
        {"C18: data of nccl-tests' kind",
         "sum mask --dtype bfloat16",
         whole.c_str(),
         1,
         {"0 of 400 elements can reveal an order: 0.00 %", "vacuous"},
         {}},
        {"data that can tell",
         "sum mask --dtype bfloat16",
         wide.c_str(),
         0,
         {"of 400 elements can reveal an order"},
         {}},
        {"two given orders",
         "sum mask --dtype bfloat16 --before ring:0 --after ring:2 --list",
         wide.c_str(),
         0,
         {"\n1\n"},
         {}},
        {"the same order",
         "sum mask --dtype bfloat16 --before ring:0 --after ring:0",
         wide.c_str(),
         1,
         {"vacuous"},
         {}},
        {"float32 accumulation", "sum mask --dtype bfloat16 --rounding fp32_once", wide.c_str(), 1, {"vacuous"}, {}},
        {"nothing", "sum mask --dtype bfloat16", "", 2, {}, {"no element"}},
        {"no file", "sum mask --dtype bfloat16 /nowhere/at/all.bin", "", 2, {}, {"cannot read"}},
    });
}

BOOST_AUTO_TEST_CASE(json) {
    const auto read = [](const char* arguments) { return nlohmann::json::parse(run(arguments).out); };
    BOOST_TEST(read("sum eval --dtype float16 --values '0.5 512 512.5' --json -")["result"]["bits"] == "0x6401");
    BOOST_TEST(read("sum witness --leaves 3 --dtype float16 --json -")["told_apart"] == 3);
    BOOST_TEST(read("sum expect --ranks 4 --before chain --after ring:0 --samples 2000 --json -")["samples"] == 2000);
    BOOST_TEST(read("sum reachable --values '1 2' --result 3 --json -")["verdict"] == "reachable");
}
