// libFuzzer target for what reads users' files; the first byte picks the parser. Not part of the default build:
//   cmake -S . -B build/libfuzzer -G Ninja -DCMAKE_CXX_COMPILER=clang++-16 -DSAMESUM_LIBFUZZER=ON -DSAMESUM_GPU=OFF
//   ninja -C build/libfuzzer fuzz_parsers
//   SAMESUM_PARSER=log build/libfuzzer/fuzz_parsers -max_total_time=60 -rss_limit_mb=1024 tests/golden/logs
// A parser may throw UsageError of one line and nothing else; SAMESUM_PARSER is log, graph, environment, lint or hex.
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "model/environment.hpp"
#include "model/error.hpp"
#include "model/graph_file.hpp"
#include "model/hex_lines.hpp"
#include "model/lint.hpp"
#include "model/nccl_log.hpp"

using namespace samesum;

namespace {

/// Runs it; anything but success or a one-line UsageError escapes or aborts, which libFuzzer reports.
template <class Parse>
void one_line_or_nothing(Parse&& parse) {
    try {
        parse();
    } catch (const UsageError& error) {
        if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const std::string which = [] {
        const char* word = std::getenv("SAMESUM_PARSER");
        return std::string(word == nullptr ? "log" : word);
    }();
    const std::string text(reinterpret_cast<const char*>(data), size);
    if (which == "log") {
        one_line_or_nothing([&] {
            const NcclLog log = parse_nccl_log(text, "fuzz");
            for (const LogCommunicator& comm : log.communicators) {
                (void)comm.str();
                one_line_or_nothing([&] { (void)comm.communicator(NcclVersion{2, 28, 9}, 90); });
            }
            one_line_or_nothing([&] { (void)log.communicator(); });
        });
    } else if (which == "hex") {
        static const int file = ::memfd_create("fuzz", 0);
        if (::ftruncate(file, 0) != 0 ||
            ::pwrite(file, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
            std::abort();
        ::lseek(file, 0, SEEK_SET);
        one_line_or_nothing([&] {
            HexLines lines(file, all_formats[size % all_formats.size()], size % 4);
            std::vector<std::vector<std::byte>> columns(lines.columns());
            while (!columns.empty() && lines.read(columns, 7) > 0) continue;
        });
    } else if (which == "graph") {
        one_line_or_nothing([&] {
            const GraphFile graph = parse_graph_file(text, "fuzz");
            (void)graph_assumptions(graph, 2);
            (void)communicator_from_graph(graph, 2, graph.gpus);
        });
    } else if (which == "environment") {
        one_line_or_nothing([&] {
            const Environment environment = parse_environment(text, "fuzz");
            Settings settings;
            apply_environment(environment, settings);
        });
    } else {
        one_line_or_nothing([&] { (void)lint(parse_environment(text, "fuzz"), {{2, 28, 9}, 4, 4}); });
    }
    return 0;
}
