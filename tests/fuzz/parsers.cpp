// libFuzzer target for the parsers of users' files and lines. tests/fuzz/libfuzzer_test.sh builds and runs it; by hand:
//   SAMESUM_PARSER=log build/ci/libfuzzer/fuzz_parsers -max_total_time=60 -rss_limit_mb=1024 tests/golden/logs
// A parser may only throw UsageError with one line; SAMESUM_PARSER is a name in tests/fuzz/parsers.hpp.
// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/parsers.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

using namespace samesum;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const testing::Parser parser = [] {
        const char* word = std::getenv("SAMESUM_PARSER");
        const auto found =
            std::find_if(testing::parsers.begin(), testing::parsers.end(),
                         [&](const testing::Parser& each) { return word != nullptr && each.name == word; });
        return found == testing::parsers.end() ? testing::parsers.front() : *found;
    }();
    testing::one_line_or_nothing([&] { parser.read(std::string(reinterpret_cast<const char*>(data), size)); });
    return 0;
}
