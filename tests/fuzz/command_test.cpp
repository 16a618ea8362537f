// samesum fuzz as a user runs it.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE fuzz_command
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/support/files.hpp"
#include "model/support/ledger.hpp"
#include "model/support/temporary_folder.hpp"
#include "tests/support/program.hpp"

using namespace samesum;
using samesum::testing::Outcome;
using samesum::testing::run;
using samesum::testing::run_line;

namespace {

/// A library whose samesum_sum has this body, x being float inputs and y the result.
struct Library {
    TemporaryFolder folder;
    explicit Library(const std::string& body) {
        write_file(folder.file("sum.c"),
                   "#include <stddef.h>\nint samesum_sum(int ranks, size_t elements, const void* "
                   "const* inputs, void* result) {\nconst float* const* x = (const float* "
                   "const*)inputs; float* y = (float*)result;\n" +
                       body + "\n}\n");
        const Outcome built = run_line("cc -O1 -shared -fPIC -o " + file() + " " + folder.file("sum.c"));
        BOOST_REQUIRE_MESSAGE(built.exit == 0, built.err);
    }
    [[nodiscard]] std::string file() const { return folder.file("sum.so"); }
};

std::string last_line(const std::string& text) {
    const std::size_t end = text.find_last_not_of('\n');
    return text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end));
}

const std::string associative =
    "addition_is_associative dtype=bfloat16 x=4400,c400,3f80 a: by=tree tree=((0+1)+2) b: tree=(0+(1+2))";

}  // namespace

BOOST_AUTO_TEST_CASE(the_ledger_is_what_verify_reads) {
    const TemporaryFolder folder;
    const std::string file = folder.file("ledger.json");
    const Outcome outcome = run("fuzz --ledger --cases 60 --seed 1 --json " + file);
    BOOST_TEST(outcome.exit == 0, outcome.err + outcome.out);
    const auto document = nlohmann::ordered_json::parse(read_file(file));
    std::size_t refuted = 0, canaries = 0;
    for (const auto& line : document.at("evidence")) {
        const Evidence evidence = evidence_from_json(line);
        BOOST_TEST(evidence.as_claimed(), evidence.claim);
        canaries += evidence.claim == "planted_faults_are_caught";
        if (evidence.verdict != Verdict::refuted) continue;
        ++refuted;
        BOOST_TEST(!evidence.witness.empty());
        BOOST_TEST(evidence.replay.starts_with("samesum fuzz --replay '"));
        // The ledger's replay line shows the refutation again.
        const Outcome again = run(evidence.replay.substr(std::string("samesum ").size()));
        BOOST_TEST(again.exit == 0, again.err);
        BOOST_TEST(again.says("differ, as claimed"), again.out);
    }
    BOOST_TEST(refuted >= 5u);
    BOOST_TEST(canaries == 1u);
    const Outcome bare = run("fuzz --ledger --cases 60 --seed 1 --json -");
    BOOST_TEST(nlohmann::ordered_json::parse(bare.out).at("digest") == document.at("digest"));
}

BOOST_AUTO_TEST_CASE(a_run_prints_how_to_repeat_it) {
    const std::string campaign = "fuzz --property 'fixed_root_*' --cases 100 --seed ";
    const Outcome first = run(campaign + "1f3870be274f6c49"), second = run(campaign + "1f3870be274f6c49");
    BOOST_TEST(first.exit == 0, first.out);
    BOOST_TEST(first.out.starts_with("# seed 2249671975877176393\n# commit "), first.out.substr(0, 80));
    const auto digest = [](const Outcome& o) {
        const std::string line = last_line(o.out);
        return line.substr(line.find("digest"));
    };
    BOOST_TEST(digest(first).size() == std::string("digest ").size() + 16);
    BOOST_TEST(digest(first) == digest(second));
    BOOST_TEST(digest(first) != digest(run(campaign + "2")));
    BOOST_TEST(digest(first) == digest(run(campaign + "2249671975877176393 --jobs 1")));
    for (const char* part : {"what the cases were:", "data: NaN", "fixed_root RING LL, ", "claims came out as stated"})
        BOOST_TEST(first.says(part), part);
    const Outcome limited = run("fuzz --property 'gather_*' --cases 50 --ranks 8 --dtypes float16");
    BOOST_TEST(limited.exit == 0);
    BOOST_TEST(!limited.says("bfloat16  "));
    BOOST_TEST(limited.says("ranks: 5 to 8                       200  100.0 %"), limited.out);
}

BOOST_AUTO_TEST_CASE(documents) {
    const TemporaryFolder folder;
    const std::string json = folder.file("fuzz.json"), junit = folder.file("fuzz.xml");
    BOOST_TEST(run("fuzz --property 'addition_*' --cases 50 --json " + json + " --junit " + junit).exit == 0);
    const std::string xml = read_file(junit);
    BOOST_TEST(xml.find("<testsuite ") != std::string::npos);
    BOOST_TEST(xml.find("tests=\"3\" failures=\"0\" errors=\"0\" skipped=\"0\"") != std::string::npos, xml);
    BOOST_TEST(xml.find("name=\"addition_commutes\"") != std::string::npos);
    const Library wrong(
        "for (size_t i = 0; i < elements; ++i) { float s = x[0][i]; for (int r = 1; r < ranks; ++r) s += x[r][i];"
        "y[i] = i % 7 == 3 ? -s : s; } return 0;");
    const Outcome found = run("fuzz --backend plugin --plugin " + wrong.file() + " --ranks 4 --cases 64 --junit " +
                              folder.file("found.xml") + " --bundle " + folder.file("bundles"));
    BOOST_TEST(found.exit == 1, found.err);
    BOOST_TEST(read_file(folder.file("found.xml")).find("<failure message=") != std::string::npos);
    std::size_t bundles = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder.file("bundles"))) {
        ++bundles;
        for (const char* file : {"finding.txt", "replay.txt", "environment.txt", "campaign.json"})
            BOOST_TEST(std::filesystem::file_size(entry.path() / file) > 20u, entry.path() / file);
        const std::string again = "fuzz --backend plugin --plugin " + wrong.file() + " --replay ";
        BOOST_TEST(run(again + (entry.path() / "replay.txt").string()).exit == 1);
        BOOST_TEST(run(again + (entry.path() / "finding.txt").string()).exit == 1);
    }
    BOOST_TEST(bundles >= 4u);
    if (run_line("xmllint --version").exit != 0) {
        BOOST_TEST_MESSAGE("skipped: xmllint is not installed");
        return;
    }
    for (const std::string& file : {junit, folder.file("found.xml")}) {
        const Outcome check = run_line("xmllint --noout --schema tests/fuzz/junit.xsd " + file);
        BOOST_TEST(check.exit == 0, check.err);
    }
    const auto document = nlohmann::ordered_json::parse(read_file(json));
    for (const char* field : {"seed", "commit", "backend", "versions", "digest", "evidence", "properties", "faults"})
        BOOST_TEST(document.contains(field), field);
    BOOST_TEST(document.at("faults").size() >= 20u);
}

BOOST_AUTO_TEST_CASE(a_library_is_compared_with_the_order_it_claims) {
    // A CPU's NaNs have other bits than a GPU's.
    const std::string sum =
        "s += x[r][i]; union { float f; unsigned u; } bits = {s}; if (s != s) bits.u = 0x7fffffff;"
        "y[i] = bits.f; } return 0;";
    const Library right("for (size_t i = 0; i < elements; ++i) { float s = x[0][i]; for (int r = 1; r < ranks; ++r) " +
                        sum);
    const Outcome good = run("fuzz --backend plugin --plugin " + right.file() + " --ranks 3,8 --cases 300");
    BOOST_TEST(good.exit == 0, good.out + good.err);
    BOOST_TEST(good.says("gather_ordered_is_position_invariant"));
    BOOST_TEST(good.says("results_are_as_predicted"));
    const Library backwards(
        "for (size_t i = 0; i < elements; ++i) { float s = x[ranks - 1][i]; for (int r = ranks - 2; r >= 0; --r) " +
        sum);
    const Outcome other = run("fuzz --backend plugin --plugin " + backwards.file() + " --ranks 3,8 --cases 300");
    BOOST_TEST(other.exit == 1);
    BOOST_TEST(other.says("seen: another order, such as "), other.out);
}

BOOST_AUTO_TEST_CASE(replays_and_corpus) {
    const TemporaryFolder folder;
    const Outcome one = run("fuzz --replay '" + associative + "'");
    BOOST_TEST(one.exit == 0, one.err);
    BOOST_TEST(one.says("differ, as claimed"));
    BOOST_TEST(one.says("makes 1 (0x3f80)"));
    std::string agreeing = associative;
    agreeing.replace(agreeing.find("4400"), 4, "0000");
    BOOST_TEST(run("fuzz --replay '" + agreeing + "'").exit == 1);
    write_file(folder.file("kept.txt"), "# a finding\ncase: " + associative + "\nreplay: not a case\n");
    BOOST_TEST(run("fuzz --replay " + folder.file("kept.txt")).exit == 0);
    const std::string with_corpus = "fuzz --property addition_commutes --cases 10 --corpus " + folder.path().string();
    const Outcome good = run(with_corpus);
    BOOST_TEST(good.exit == 0, good.err);
    BOOST_TEST(good.says("1 cases replayed"));
    write_file(folder.file("stale.txt"), agreeing + "\n");
    const Outcome bad = run(with_corpus);
    BOOST_TEST(bad.exit == 1);
    BOOST_TEST(bad.says("stale.txt"));
}

BOOST_AUTO_TEST_CASE(wrong_input_is_a_one_line_error) {
    struct Row {
        std::string arguments;
        int exit;
        std::string complaint;
    };
    for (const Row& row :
         {Row{"fuzz --cases 0", 2, "--cases 0: expected 1 or more"},
          Row{"fuzz --cases 5 --seconds 5", 2, "expected one of them"},
          Row{"fuzz --seconds -1", 2, "above 0"},
          Row{"fuzz --property 'no_*'", 2, "no property with this name"},
          Row{"fuzz --seed -7", 2, "--seed '-7'"},
          Row{"fuzz --shard 4/4", 2, "0/4 .. 3/4"},
          Row{"fuzz --shard 1", 2, "0/4 .. 3/4"},
          Row{"fuzz --backend gpu", 2, "auto, model, nccl, plugin"},
          Row{"fuzz --jobs 0", 2, "--jobs"},
          Row{"fuzz --ranks 4,x", 2, "--ranks 'x'"},
          Row{"fuzz --ranks 2 --property 'three_*'", 2, "--ranks and --schemes leave"},
          Row{"fuzz --dtypes int32", 2, "floats only"},
          Row{"fuzz --schemes no_such", 2, "unknown scheme 'no_such'"},
          Row{"fuzz --schemes exact --property 'fixed_*'", 2, "--schemes leave"},
          Row{"fuzz --shape 64", 2, "ROWSxHIDDEN"},
          Row{"fuzz --shape 0x64", 2, "ROWSxHIDDEN"},
          Row{"fuzz --backend plugin", 2, "needs --plugin FILE"},
          Row{"fuzz --backend plugin --plugin /no/such.so", 2, "--plugin /no/such.so"},
          Row{"fuzz --corpus /no/such/folder", 2, "no such folder"},
          Row{"fuzz --replay 'no_such_property dtype=bfloat16 x=0000 a: by=tree tree=0 b:'", 2, "--list"},
          Row{"fuzz --replay 'addition_commutes dtype=bfloat16 x=0000 a: by=tree tree=0 b:'", 2, "the sides are"},
          Row{"fuzz --replay ''", 2, "expected a name"},
          Row{"fuzz --case 5", 2, "--case"}}) {
        const Outcome outcome = run(row.arguments);
        BOOST_TEST(outcome.exit == row.exit, row.arguments << ": " << outcome.exit << " " << outcome.err);
        BOOST_TEST(outcome.complains(row.complaint), row.arguments << ": " << outcome.err);
        BOOST_TEST(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1, outcome.err);
    }
    BOOST_TEST(run("fuzz --list").says("fixed_root_is_routing_invariant"));
    BOOST_TEST(run("fuzz --self-test").says("28 of 28 planted faults caught"));
}
