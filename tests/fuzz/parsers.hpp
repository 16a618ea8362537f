// The parsers of users' files and lines, one entry each: run on seeded mutants in every test run, and by libFuzzer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/backend.hpp"
#include "fuzz/case.hpp"
#include "model/analysis/call_classes.hpp"
#include "model/analysis/lint.hpp"
#include "model/analysis/record_check.hpp"
#include "model/arithmetic/hex_lines.hpp"
#include "model/combine/routing.hpp"
#include "model/input/call_stream.hpp"
#include "model/input/custom_collective.hpp"
#include "model/input/environment_file.hpp"
#include "model/input/graph_file.hpp"
#include "model/input/nccl_log.hpp"
#include "model/input/recording.hpp"
#include "model/nccl/settings.hpp"
#include "model/support/error.hpp"
#include "model/support/ledger.hpp"

namespace samesum::testing {

/// Accepting invalid input is as much a mistake as a crash.
inline void must(bool holds, const char* what) {
    if (!holds) throw std::logic_error(what);
}

/// For code that may throw UsageError on text that a parser accepted.
template <class Use>
void one_line_or_nothing(Use&& use) {
    try {
        use();
    } catch (const UsageError& error) {
        must(std::string_view(error.what()).find('\n') == std::string_view::npos, "an error of several lines");
    }
}

/// Parsers of command-line words never get a second line.
inline void be_one_line(const std::string& text) {
    if (text.find_first_of("\n\r") != std::string::npos) throw UsageError("several lines");
}

inline void read_log(const std::string& text) {
    const NcclLog log = parse_nccl_log(text, "mutant");
    for (const LogCommunicator& comm : log.communicators) {
        (void)comm.str();
        one_line_or_nothing([&] { (void)comm.communicator(NcclVersion{2, 28, 9}, 90); });
    }
    one_line_or_nothing([&] { (void)log.communicator(); });
}

inline void read_graph(const std::string& text) {
    const GraphFile graph = parse_graph_file(text, "mutant");
    (void)graph_assumptions(graph, 2);
    const Communicator comm = communicator_from_graph(graph, 2, graph.gpus);
    must(comm.ranks() == 2 * graph.gpus, "two graphs of n GPUs have 2 n ranks");
}

inline void read_environment(const std::string& text) {
    const Environment environment = parse_environment(text, "mutant");
    Settings settings;
    apply_environment(environment, settings);
}

inline void read_lint(const std::string& text) { (void)lint(parse_environment(text, "mutant"), {{2, 28, 9}, 4, 4}); }

inline void read_hex(const std::string& text) {
    static const int file = ::memfd_create("mutant", 0);
    must(::ftruncate(file, 0) == 0 && ::pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()),
         "the text is written");
    ::lseek(file, 0, SEEK_SET);
    HexLines lines(file, all_formats[text.size() % all_formats.size()], text.size() % 4);
    std::vector<std::vector<std::byte>> columns(lines.columns());
    while (!columns.empty() && lines.read(columns, 7) > 0) continue;
}

/// A line of samesum fuzz: an accepted case is printed as a line that reads back, and can be run.
inline void read_case(const std::string& text) {
    be_one_line(text);
    const fuzz::Case c = fuzz::parse_case(text);
    must(fuzz::parse_case(fuzz::str(c)) == c, "a case reads back as printed");
    const auto calls = [](const fuzz::Side& side) { return side.maker != fuzz::Maker::tree; };
    for (const fuzz::Side* side : {&c.a, &c.b})
        if (calls(*side)) must(side->row < fuzz::routing_of(c, *side).rows(), "the token's row is one of the buffer's");
    if (c.hidden > 256) return;
    fuzz::ModelBackend model;
    for (const fuzz::Side* side : {&c.a, &c.b})
        if (calls(*side))
            one_line_or_nothing(
                [&] { (void)model.combine_row(fuzz::request_of(c, *side), fuzz::Partials(c, *side), side->row); });
}

inline void read_routing(const std::string& text) {
    be_one_line(text);
    const int ranks = 1 + static_cast<int>(text.size() % 9);
    const std::vector<std::uint64_t> sizes = parse_sizes(text, ranks);
    must(static_cast<int>(sizes.size()) == ranks, "one size per rank");
    must(parse_sizes(str_sizes(sizes), ranks) == sizes, "sizes read back as printed");
}

inline void read_tree(const std::string& text) {
    be_one_line(text);
    const ReductionTree tree = ReductionTree::parse(text);
    must(ReductionTree::parse(tree.str()) == tree, "a tree reads back as printed");
}

inline void read_record(const std::string& text) {
    const Record record = parse_record(text);
    one_line_or_nothing([&] { (void)check_record(record); });
}

inline void read_evidence(const std::string& text) {
    const auto document = nlohmann::ordered_json::parse(text, nullptr, false);
    if (document.is_discarded()) throw UsageError("not JSON");
    const Evidence evidence = evidence_from_json(document);
    nlohmann::ordered_json again;
    to_json(again, evidence);
    must(evidence_from_json(again).claim == evidence.claim, "evidence reads back as written");
}

inline void read_custom(const std::string& text) { (void)parse_custom(text, "mutant"); }

/// Accepted calls can be classified.
inline void read_calls(const std::string& text) {
    const CallStream stream = parse_call_stream(text, "mutant");
    std::vector<std::string> assumptions;
    one_line_or_nothing([&] {
        (void)classify_calls(
            {&stream, 1},
            [](const CallStream& from, const RecordedCommunicator& comm) {
                if (comm.ranks > 64) throw UsageError("too many ranks for a test");
                ResolvedCommunicator resolved{.comm = {Topology::one_rank_per_node(comm.ranks, 2)}};
                apply_environment(from.environment, resolved.comm.settings);
                return resolved;
            },
            assumptions);
    });
}

struct Parser {
    std::string_view name;
    void (*read)(const std::string& text);
};
inline constexpr std::array parsers{
    Parser{"log", read_log},           Parser{"graph", read_graph},   Parser{"environment", read_environment},
    Parser{"lint", read_lint},         Parser{"hex", read_hex},       Parser{"case", read_case},
    Parser{"routing", read_routing},   Parser{"tree", read_tree},     Parser{"record", read_record},
    Parser{"evidence", read_evidence}, Parser{"custom", read_custom}, Parser{"calls", read_calls}};

}  // namespace samesum::testing
