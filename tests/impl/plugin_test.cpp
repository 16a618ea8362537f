// Sums in a shared library that the test itself builds: their orders are revealed without a GPU.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE impl_plugin
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <fstream>

#include "impl/check/plugin.hpp"
#include "model/support/error.hpp"
#include "model/support/temporary_folder.hpp"

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
        const std::string command = "cc -O1 -shared -fPIC -o " + file() + " " + folder_.file("sum.c");
        BOOST_REQUIRE(std::system(command.c_str()) == 0);
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
