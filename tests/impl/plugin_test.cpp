// Sums in a shared library that the test itself builds: their orders are revealed without a GPU.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE impl_plugin
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "impl/check/plugin.hpp"
#include "model/support/error.hpp"
#include "model/support/temporary_folder.hpp"
#include "tests/support/program.hpp"

using namespace samesum;
using namespace samesum::gpu;

namespace {

/// A library whose samesum_sum has this body.
class Library {
public:
    explicit Library(const std::string& body) {
        std::ofstream(folder_.file("sum.c"))
            << "#include <stddef.h>\nint samesum_sum(int ranks, size_t elements, const void* "
               "const* inputs, void* result) {\n  const float* const* x = (const float* "
               "const*)inputs;\n  float* y = (float*)result;\n"
            << body << "\n}\n";
        const auto built =
            testing::run_line("cc -O1 -shared -fPIC -o '" + file() + "' '" + folder_.file("sum.c") + "'");
        BOOST_REQUIRE_MESSAGE(built.exit == 0, built.err);
    }
    [[nodiscard]] std::string file() const { return folder_.file("sum.so"); }

private:
    TemporaryFolder folder_{"samesum-plugin"};
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_librarys_order_is_revealed) {
    const Library library(
        "for (size_t i = 0; i < elements; ++i) {\n"
        "  float s = x[ranks - 1][i];\n"
        "  for (int r = ranks - 2; r >= 0; --r) s += x[r][i];\n"
        "  y[i] = i < 10 ? s : (x[0][i] + x[1][i]) + (x[2][i] + x[3][i]);\n"
        "}\nreturn 0;");
    Plugin plugin(library.file());
    const Revealed revealed = reveal(Format::float32, 4, plugin.sum(Format::float32, 4, 32));
    BOOST_TEST((revealed.answer == Revealed::Answer::order), revealed.why);
    BOOST_TEST_REQUIRE(revealed.segments.size() == 2u);
    BOOST_TEST(revealed.trees[revealed.segments[0].tree].str() == "(0 (1 (2 3)))");
    BOOST_TEST(revealed.segments[0].end == 10u);
    BOOST_TEST(revealed.trees[revealed.segments[1].tree].str() == "((0 1) (2 3))");
}

BOOST_AUTO_TEST_CASE(wide_accumulators_and_failures_are_told) {
    const Library wide(
        "for (size_t i = 0; i < elements; ++i) {\n"
        "  double s = 0;\n  for (int r = 0; r < ranks; ++r) s += x[r][i];\n  y[i] = (float)s;\n}\nreturn 0;");
    Plugin plugin(wide.file());
    BOOST_TEST(
        (reveal(Format::float32, 4, plugin.sum(Format::float32, 4, 64)).answer == Revealed::Answer::not_observable));
    const Library failing("return 5;");
    Plugin broken(failing.file());
    BOOST_CHECK_THROW((void)reveal(Format::float32, 4, broken.sum(Format::float32, 4, 8)), Inconclusive);
    const Library idle("return 0;");
    Plugin lazy(idle.file());
    BOOST_TEST(
        (reveal(Format::float32, 4, lazy.sum(Format::float32, 4, 8)).answer == Revealed::Answer::not_observable));
    BOOST_CHECK_THROW(Plugin("/nowhere/sum.so"), UsageError);
    BOOST_CHECK_THROW(Plugin("/lib/x86_64-linux-gnu/libm.so.6"), UsageError);
}

BOOST_AUTO_TEST_CASE(reveal_shows_a_librarys_order_as_text_and_as_json) {
    const Library library(
        "for (size_t i = 0; i < elements; ++i) {\n"
        "  float s = x[0][i];\n  for (int r = 1; r < ranks; ++r) s += x[r][i];\n  y[i] = s;\n}\nreturn 0;");
    const std::string command = "reveal --plugin " + library.file() + " --ranks 3 --elements 8";
    const auto text = samesum::testing::run(command), alone = samesum::testing::run(command + " --json -");
    BOOST_TEST(text.exit == 0, text.err);
    BOOST_TEST(text.out == "3 ranks, 8 x float32: order\n  [0, 8): ((0 1) 2)\n");
    BOOST_TEST(alone.exit == 0, alone.err);
    const nlohmann::json segments = nlohmann::json::parse(alone.out).at("sums").at(0).at("segments");
    BOOST_TEST_REQUIRE(segments.size() == 1u);
    BOOST_TEST(segments[0].at("begin") == 0);
    BOOST_TEST(segments[0].at("end") == 8);
    BOOST_TEST(segments[0].at("tree") == "((0 1) 2)");
}
