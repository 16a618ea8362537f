// A corpus is a folder of .txt files, each a finding or a list of cases.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "fuzz/compare.hpp"
#include "model/support/error.hpp"
#include "model/support/files.hpp"
#include "model/support/text.hpp"

namespace samesum::fuzz {

namespace fs = std::filesystem;

Replay replay(const std::string& line, Backend& backend) {
    const Case c = parse_case(line);
    const Property& property = property_named(c.property);
    if (const std::string why = objection(property, c); !why.empty())
        throw UsageError(fmt::format("case: not a case of {}: {}", property.name, why));
    const Comparison result = compare(c, backend);
    return {&property, with_column(c, result.column), result.same};
}

std::vector<std::string> case_lines(const std::string& file) {
    const std::string text = read_file(file);
    std::vector<std::string> all, marked;
    for (const std::string_view line : split(text, '\n')) {
        if (line.starts_with("case: "))
            marked.emplace_back(line.substr(6));
        else if (!line.empty() && line.front() != '#')
            all.emplace_back(line);
    }
    return marked.empty() ? all : marked;
}

void replay_corpus(const std::string& folder, Backend& backend, std::vector<Evidence>& evidence) {
    if (!fs::is_directory(folder)) throw UsageError(fmt::format("--corpus {}: no such folder", folder));
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder))
        if (entry.is_regular_file() && entry.path().extension() == ".txt") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    std::size_t replayed = 0, unavailable = 0;
    std::string bad;
    for (const fs::path& file : files)
        for (const std::string& line : case_lines(file.string())) {
            bool good = false;
            try {
                good = replay(line, backend).as_claimed();
            } catch (const UsageError& error) {
                throw UsageError(fmt::format("{}: {}", file.string(), error.what()));
            } catch (const Inconclusive&) {
                ++unavailable;  // found on a communicator that these ranks cannot have
                continue;
            }
            ++replayed;
            if (!good) bad += fmt::format("{}{}: {}", bad.empty() ? "" : "\n", file.filename().string(), line);
        }
    if (replayed == 0) return;
    evidence.push_back(
        {.claim = "corpus",
         .sentence = "what earlier campaigns found comes out as claimed now",
         .scope = folder,
         .expected = Verdict::upheld,
         .verdict = bad.empty() ? Verdict::upheld : Verdict::refuted,
         .decided_by = fmt::format("{} cases replayed", replayed),
         .detail = unavailable == 0 ? "" : fmt::format("{} cases skipped: not possible on these ranks", unavailable),
         .witness = bad,
         .replay = {},
         .seconds = 0});
}

void keep_findings(const std::string& folder, std::span<const Tally> tallies, const RunInfo& run) {
    for (const Tally& tally : tallies) {
        if (!tally.finding || tally.property->expected == Verdict::refuted) continue;
        write_file((fs::path(folder) / (finding_name(tally) + ".txt")).string(), finding_file(run, tally));
    }
}

}  // namespace samesum::fuzz
