// Cases as lines: a printed case reads back, and anything else is rejected with a one-line error.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE fuzz_case
#include "fuzz/case.hpp"

#include <boost/test/unit_test.hpp>

#include "fuzz/campaign.hpp"
#include "fuzz/compare.hpp"
#include "model/arithmetic/random.hpp"
#include "model/support/error.hpp"

using namespace samesum;
using namespace samesum::fuzz;

namespace {

const std::string good =
    "fixed_root_is_routing_invariant dtype=bfloat16 x=4400,c400,3f80 hidden=4 column=1 fill=9 a: scheme=fixed_root "
    "rings=2*0,1,2;2,1,0 root=1 sizes=1,1,1 row=2 b: sizes=0,4,0 row=3";

}  // namespace

BOOST_AUTO_TEST_CASE(a_line_has_everything) {
    const Case c = parse_case(good);
    BOOST_TEST(str(c) == good);
    BOOST_TEST(c.a.rings.size() == 3u);
    BOOST_TEST((c.b.rings == c.a.rings));
    BOOST_TEST((c.b.sizes == std::vector<std::uint64_t>{0, 4, 0}));
    BOOST_TEST(c.b.root == 1);
    // The token has the same numbers on both sides; the filler depends on the row.
    const Partials a(c, c.a), b(c, c.b);
    for (int rank = 0; rank < 3; ++rank)
        for (std::uint64_t column = 0; column < 4; ++column) BOOST_TEST(a.at(rank, 2, column) == b.at(rank, 3, column));
    BOOST_TEST(a.at(1, 2, 1) == 0xc400u);
    const auto whole = a.whole();
    for (int rank = 0; rank < 3; ++rank)
        for (std::uint64_t element = 0; element < 12; ++element)
            BOOST_TEST(whole[static_cast<std::size_t>(rank)][element] == a.at(rank, element / 4, element % 4));
}

BOOST_AUTO_TEST_CASE(every_property_s_cases_read_back) {
    for (const Property& property : properties())
        for (std::uint64_t index = 0; index < 120; ++index) {
            const Case c = case_of(property, 3, index).value();
            const std::string line = str(c);
            BOOST_TEST((parse_case(line) == c), line);
            BOOST_TEST(objection(property, c) == "", line);
        }
}

BOOST_AUTO_TEST_CASE(invalid_cases_are_rejected) {
    struct Row {
        std::string from, to, complaint;
    };
    for (const Row& row : {Row{"dtype=bfloat16", "dtype=bfloat17", "bfloat17"},
                           Row{"dtype=bfloat16", "dtype=int8", "int8"},
                           Row{"x=4400", "x=zz", "zz"},
                           Row{"x=4400", "x=44000", "44000"},
                           Row{"x=4400,", "x=", "2 partials in x for 3 ranks"},
                           Row{"hidden=4", "hidden=0", "hidden 0"},
                           Row{"column=1", "column=4", "column 4"},
                           Row{"fill=9", "fill=-9", "-9"},
                           Row{"fill=9", "fil=9", "unknown field 'fil'"},
                           Row{"rings=2*", "rings=65*", "64 channels"},
                           Row{"2,1,0", "2,1,1", "does not visit"},
                           Row{"2,1,0", "2,1", "does not visit"},
                           Row{"root=1", "root=3", "root 3"},
                           Row{"root=1", "root=1 colour=2", "'colour'"},
                           Row{"row=2", "row=3", "row 3 is outside"},
                           Row{"sizes=0,4,0", "sizes=0,99999999999,0", "too large"},
                           Row{"sizes=0,4,0", "sizes=0,4,0 scheme=reduce_scatter", "equal sizes"},
                           Row{"sizes=0,4,0", "sizes=0,4,0 contributors=0,1,1", "contributes two partials"},
                           Row{"sizes=0,4,0", "sizes=0,4,0 algo=Tree", "Ring or PAT"},
                           Row{" b:", " c:", "'c:' is not KEY=VALUE"},
                           Row{good, "", "expected a name"}}) {
        std::string line = good;
        line.replace(line.find(row.from), row.from.size(), row.to);
        try {
            (void)parse_case(line);
            BOOST_ERROR("accepted as a case: " << line);
        } catch (const UsageError& error) {
            const std::string what = error.what();
            BOOST_TEST(what.find(row.complaint) != std::string::npos, what);
            BOOST_TEST(what.find('\n') == std::string::npos);
        }
    }
}

BOOST_AUTO_TEST_CASE(garbled_lines_never_crash) {
    Random random(5);
    std::size_t taken = 0, refused = 0;
    ModelBackend backend;
    constexpr std::string_view alphabet = "0123456789abcdefxzab:=,;*+-() \t\n\x7f.ringssizesrowcontributorstree";
    std::vector<std::string> lines{good};
    for (const Property& property : properties()) lines.push_back(str(case_of(property, 1, 40).value()));
    for (int i = 0; i < 20000; ++i) {
        std::string line = lines[random.below(lines.size())];
        for (std::uint64_t edits = 1 + random.below(3); edits > 0 && !line.empty(); --edits) {
            const std::size_t at = random.below(line.size());
            const char c = alphabet[random.below(alphabet.size())];
            switch (random.below(4)) {
                case 0:
                    line.erase(at, 1 + random.below(5));
                    break;
                case 1:
                    line.insert(at, 1, c);
                    break;
                case 2:
                    line[at] = c;
                    break;
                default:
                    line += line.substr(at);
            }
        }
        try {
            const Case c = parse_case(line);
            ++taken;
            BOOST_TEST((parse_case(str(c)) == c), line);
            if (c.hidden <= 1024) (void)compare(c, backend);
        } catch (const UsageError&) {
            ++refused;
        }
    }
    BOOST_TEST(taken > 500u);
    BOOST_TEST(refused > 5000u);
}
