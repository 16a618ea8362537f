// Campaigns as JSON, JUnit XML and text.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/report.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <boost/version.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <utility>

#include "model/support/files.hpp"
#include "model/support/hash.hpp"
#include "model/support/subprocess.hpp"

namespace samesum::fuzz {

std::string commit() {
    // An installed samesum has the commit in a file beside its programs; a built one lies in its checkout.
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
    std::string text;
    if (const std::filesystem::path file = folder / "commit"; std::filesystem::is_regular_file(file, error))
        text = read_file(file.string());
    if (text.empty())
        text = run_executable({"/usr/bin/env", "git", "-C", folder.string(), "describe", "--always", "--dirty"}, 20)
                   .output;
    return text.empty() ? "unknown" : text.substr(0, text.find('\n'));
}

std::string versions() {
    return fmt::format("compiler {}, fmt {}, nlohmann-json {}.{}.{}, boost {}.{}", __VERSION__, FMT_VERSION,
                       NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH,
                       BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000);
}

namespace {

std::map<Combination, std::uint64_t> all_combinations(std::span<const Tally> tallies) {
    std::map<Combination, std::uint64_t> sum;
    for (const Tally& tally : tallies)
        for (const auto& [combination, count] : tally.combinations) sum[combination] += count;
    return sum;
}

}  // namespace

std::uint64_t digest_of(std::span<const Tally> tallies) {
    std::uint64_t digest = 0;
    for (const Tally& tally : tallies) digest = (digest ^ tally.digest) * 0x9e3779b97f4a7c15 + 1;
    return digest;
}

nlohmann::ordered_json json_of(const RunInfo& head) {
    nlohmann::ordered_json document{
        {"seed", head.seed}, {"commit", head.commit}, {"backend", head.backend}, {"versions", head.versions}};
    if (!head.backend_note.empty()) document["nccl_not_used"] = head.backend_note;
    return document;
}

nlohmann::ordered_json json_of(std::span<const FaultSearch> searches) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const FaultSearch& search : searches)
        rows.push_back({{"fault", search.fault->name},
                        {"sentence", search.fault->sentence},
                        {"property", search.fault->property},
                        {"caught", search.caught},
                        {"cases", search.cases},
                        {"case", search.example ? str(*search.example) : ""}});
    return rows;
}

nlohmann::ordered_json json_of(const RunInfo& head, std::span<const Tally> tallies,
                               std::span<const FaultSearch> searches, std::span<const Evidence> evidence) {
    nlohmann::ordered_json document = json_of(head);
    document["digest"] = fmt::format("{:016x}", digest_of(tallies));
    document["evidence"] = nlohmann::ordered_json::array();
    for (const Evidence& line : evidence) document["evidence"].push_back(line);
    document["properties"] = nlohmann::ordered_json::array();
    for (const Tally& tally : tallies) {
        nlohmann::ordered_json row{{"property", tally.property->name},
                                   {"cases", tally.cases},
                                   {"differing", tally.differing},
                                   {"digest", fmt::format("{:016x}", tally.digest)},
                                   {"seconds", tally.seconds}};
        if (tally.property->of_orders) row["order_sensitive"] = tally.order_sensitive;
        row["classes"] = tally.classes;
        if (tally.finding)
            row["finding"] = {{"kind", tally.finding->kind},
                              {"repeats", tally.finding->repeats},
                              {"original", str(tally.finding->original)},
                              {"minimal", str(tally.finding->minimal)},
                              {"steps", tally.finding->steps},
                              {"text", tally.finding->text}};
        document["properties"].push_back(std::move(row));
    }
    document["combinations"] = nlohmann::ordered_json::object();
    for (const auto& [combination, count] : all_combinations(tallies))
        document["combinations"][fmt::format("{} on {}", str(combination), combination.channels)] = count;
    document["faults"] = json_of(searches);
    return document;
}

std::string junit_of(const RunInfo& head, std::span<const Evidence> evidence) {
    boost::property_tree::ptree suite;
    for (const auto& [name, value] : {std::pair<const char*, std::string>{"seed", fmt::format("{}", head.seed)},
                                      {"commit", head.commit},
                                      {"backend", head.backend},
                                      {"versions", head.versions}}) {
        boost::property_tree::ptree property;
        property.put("<xmlattr>.name", name);
        property.put("<xmlattr>.value", value);
        suite.add_child("properties.property", property);
    }
    std::size_t failures = 0, skipped = 0;
    double seconds = 0;
    for (const Evidence& line : evidence) {
        boost::property_tree::ptree test;
        test.put("<xmlattr>.classname", "samesum.fuzz");
        test.put("<xmlattr>.name", line.claim);
        test.put("<xmlattr>.time", fmt::format("{:.3f}", line.seconds));
        const std::string what =
            fmt::format("{}, claimed {}; {}", name(line.verdict), name(line.expected), line.detail);
        if (!line.as_claimed()) {
            const bool undecided = line.verdict == Verdict::inconclusive;
            (undecided ? skipped : failures) += 1;
            boost::property_tree::ptree& why = test.add(undecided ? "skipped" : "failure", "");
            why.put("<xmlattr>.message", what);
            if (!undecided) why.put("<xmlattr>.type", "not as claimed");
            if (!undecided) why.put_value(fmt::format("{}\n{}\n{}", line.sentence, line.witness, line.replay));
        }
        test.add("system-out", fmt::format("{}\n{}\n{}", line.decided_by, line.detail, line.replay));
        seconds += line.seconds;
        suite.add_child("testcase", test);
    }
    boost::property_tree::ptree root;
    boost::property_tree::ptree& written = root.add_child("testsuites.testsuite", suite);
    written.put("<xmlattr>.name", "samesum fuzz");
    written.put("<xmlattr>.tests", evidence.size());
    written.put("<xmlattr>.failures", failures);
    written.put("<xmlattr>.errors", 0);
    written.put("<xmlattr>.skipped", skipped);
    written.put("<xmlattr>.time", fmt::format("{:.3f}", seconds));
    std::ostringstream text;
    boost::property_tree::write_xml(text, root, boost::property_tree::xml_writer_make_settings<std::string>(' ', 2));
    return text.str();
}

std::string finding_name(const Tally& tally) {
    return fmt::format("{}-{:08x}", tally.property->name, fnv1a(str(tally.finding.value().minimal)) >> 32);
}

std::string finding_file(const RunInfo& head, const Tally& tally) {
    const Finding& finding = tally.finding.value();
    return fmt::format("# {}: {}\n# seed {}, commit {}, {}\n# {}\n# found as: {}\n# kind: {}\n{}\nreplay: {}\n",
                       tally.property->name, tally.property->sentence, head.seed, head.commit, head.backend,
                       head.versions, str(finding.original), finding.kind, finding.text, finding.replay);
}

namespace {

/// The parts of the environment that matter for a bug report; never values that could be secrets.
std::string environment() {
    std::string text;
    utsname system{};
    if (::uname(&system) == 0) text += fmt::format("{} {} {}\n", system.sysname, system.release, system.machine);
    for (char** variable = ::environ; *variable != nullptr; ++variable) {
        const std::string_view word(*variable);
        if (word.starts_with("NCCL_") || word.starts_with("CUDA_") || word.starts_with("SAMESUM_"))
            text += fmt::format("{}\n", word);
    }
    for (const char* file : {"/proc/driver/nvidia/version", "/etc/os-release"})
        if (std::ifstream stream(file); stream) {
            text += fmt::format("--- {}\n", file);
            text.append(std::istreambuf_iterator<char>(stream), {});
        }
    return text;
}

}  // namespace

std::vector<std::string> write_bundles(const std::string& folder, const RunInfo& head, std::span<const Tally> tallies,
                                       const nlohmann::ordered_json& campaign) {
    std::vector<std::string> names;
    for (const Tally& tally : tallies) {
        if (!tally.finding || tally.property->expected == Verdict::refuted) continue;
        const std::filesystem::path bundle = std::filesystem::path(folder) / finding_name(tally);
        std::error_code error;
        std::filesystem::create_directories(bundle, error);
        if (error) throw UsageError(fmt::format("--bundle {}: cannot be made: {}", bundle.string(), error.message()));
        write_file((bundle / "finding.txt").string(), finding_file(head, tally));
        write_file((bundle / "replay.txt").string(), str(tally.finding->minimal) + "\n");
        write_file((bundle / "environment.txt").string(),
                   fmt::format("{}\ncommit {}\n{}\n{}", head.backend, head.commit, head.versions, environment()));
        write_json((bundle / "campaign.json").string(), campaign);
        names.push_back(bundle.string());
    }
    return names;
}

std::string coverage_of(std::span<const Tally> tallies) {
    // One line for all numbers of channels.
    std::vector<std::pair<Combination, std::pair<std::uint64_t, std::string>>> lines;
    for (const auto& [reached_on, count] : all_combinations(tallies)) {
        Combination combination = reached_on;
        const int channels = std::exchange(combination.channels, 0);
        if (lines.empty() || lines.back().first != combination) lines.push_back({combination, {}});
        auto& [cases, reached] = lines.back().second;
        cases += count;
        reached += fmt::format("{}{}", reached.empty() ? "" : ",", channels);
    }
    std::string text;
    for (const auto& [combination, reached] : lines)
        text += fmt::format("  {:<64} {:>10}  on {} channels\n", str(combination), reached.first, reached.second);
    return text;
}

std::string histogram_of(std::span<const Tally> tallies) {
    std::map<std::string_view, std::uint64_t> sum;
    std::uint64_t cases = 0;
    for (const Tally& tally : tallies) {
        cases += tally.cases;
        for (const auto& [label, count] : tally.classes) sum[label] += count;
    }
    std::string text;
    for (const auto& [label, count] : sum)
        text +=
            fmt::format("  {:<28} {:>10}  {:5.1f} %\n", label, count,
                        100.0 * static_cast<double>(count) / static_cast<double>(std::max<std::uint64_t>(cases, 1)));
    return text;
}

}  // namespace samesum::fuzz
