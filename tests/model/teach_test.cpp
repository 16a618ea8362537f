// The lessons: their commands print what they show, exercises are graded, drawn additions are right, and the page's
// tables equal the model's.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE teach
#include <fmt/format.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <utility>

#include "model/arithmetic/random.hpp"
#include "model/sum/native_sum.hpp"
#include "model/sum/reduction_tree.hpp"
#include "model/sum/rounding_steps.hpp"
#include "model/support/files.hpp"
#include "model/support/text.hpp"
#include "model/teach/lessons.hpp"
#include "model/teach/page.hpp"
#include "tests/support/program.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;
using testing::Outcome;
using testing::run;

const std::vector<Lesson>& all() {
    static const std::vector<Lesson> made = lessons();
    return made;
}

std::string text_of(const std::string& file) { return read_file(std::string(SAMESUM_SOURCE_DIR "/") + file); }

/// In single quotes, for a shell.
std::string quoted(const std::string& text) { return "'" + text + "'"; }

// --- An independent check of drawn additions: it reads only the digits ---

struct Row {
    char mark;
    std::string kept, lost;  ///< digits before and after the bar, without the point
    int exponent;            ///< of the first digit
    double value;            ///< as drawn, sign included
    std::string said;
};

std::vector<Row> rows_of(const std::string& text) {
    static const std::regex form(R"(^ *([ +=>]) ([ -])([01])\.([01]+)(\|?)([01]*)(\.\.)? *  x 2\^(-?[0-9]+)  (.*)$)");
    std::vector<Row> rows;
    for (const std::string_view line : split(text, '\n')) {
        std::cmatch found;
        if (!std::regex_match(line.data(), line.data() + line.size(), found, form)) continue;
        Row row{found[1].str()[0], found[3].str() + found[4].str(), found[6].str(), std::stoi(found[8].str()), 0,
                found[9].str()};
        if (found[7].matched) row.lost += "..";
        int place = row.exponent;
        for (const char digit : row.kept + found[6].str()) {
            if (digit == '1') row.value += std::ldexp(1, place);
            --place;
        }
        if (found[2].str() == "-") row.value = -row.value;
        rows.push_back(row);
    }
    return rows;
}

/// The mistakes in the additions drawn in a text; counts the additions.
std::vector<std::string> mistakes_in(const std::string& text, std::size_t& additions) {
    std::vector<std::string> mistakes;
    std::vector<Row> terms;
    const std::vector<Row> rows = rows_of(text);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const Row& row = rows[i];
        if (row.mark == ' ') terms.clear();
        if (row.mark == ' ' || row.mark == '+') {
            terms.push_back(row);
            continue;
        }
        if (row.mark != '=') continue;
        ++additions;
        const auto wrong = [&](const char* what) { mistakes.push_back(fmt::format("{}: {}", what, row.said)); };
        double sum = 0;
        bool shortened = false;
        for (const Row& term : terms) {
            sum += term.value;
            shortened = shortened || term.lost.ends_with("..");
            // "256 (0x4380)": the decimal is the value of the digits, to the six digits shown.
            const double said = std::strtod(term.said.c_str(), nullptr);
            if (!term.lost.ends_with("..") && std::fabs(said - term.value) > 1e-5 * std::fabs(said))
                wrong("a term's digits are not its value");
        }
        if (!shortened && sum != row.value) wrong("the digits of the terms do not add up");
        if (row.said.ends_with("exact")) {
            if (!row.lost.empty()) wrong("exact, but bits are lost");
            continue;
        }
        if (i + 1 == rows.size() || rows[i + 1].mark != '>') {
            wrong("no rounded result");
            continue;
        }
        // Rounding to nearest even on the digits.
        const bool guard = row.lost.starts_with('1'), sticky = row.lost.size() > 1;
        std::string kept = row.kept;
        if (guard && (sticky || kept.back() == '1')) {
            auto digit = kept.rbegin();
            while (digit != kept.rend() && *digit == '1') *digit++ = '0';
            if (digit != kept.rend()) *digit = '1';
        }
        const bool saturates = text.find("saturated") != std::string::npos;
        if (kept != rows[i + 1].kept && !saturates) wrong("not rounded to nearest even");
    }
    return mistakes;
}

BOOST_AUTO_TEST_CASE(there_are_twelve_lessons_each_of_a_few_minutes) {
    BOOST_TEST(all().size() == 12u);
    std::set<std::string> names;
    for (const Lesson& lesson : all()) {
        BOOST_TEST_CONTEXT(lesson.name) {
            BOOST_TEST(names.insert(lesson.name).second);
            BOOST_TEST((lesson.minutes >= 2 && lesson.minutes <= 5));
            BOOST_TEST(lesson.question.ends_with("?"));
            BOOST_TEST(!lesson.answer.empty());
            BOOST_TEST(
                std::any_of(lesson.text.begin(), lesson.text.end(), [](const Passage& p) { return p.is_figure; }));
        }
    }
}

BOOST_AUTO_TEST_CASE(all_lessons_are_as_recorded) {
    const std::string file = SAMESUM_SOURCE_DIR "/tests/golden/teach/all.txt";
    const Outcome outcome = run("teach --all");
    BOOST_TEST(outcome.exit == 0);
    if (std::getenv("SAMESUM_UPDATE_GOLDEN") != nullptr) write_file(file, outcome.out);
    const std::string golden = read_file(file);
    const auto lines = split(outcome.out, '\n'), wanted = split(golden, '\n');
    for (std::size_t i = 0; i < std::min(lines.size(), wanted.size()); ++i)
        BOOST_REQUIRE_MESSAGE(lines[i] == wanted[i], "line " << i + 1 << ":\n  now      " << lines[i] << "\n  recorded "
                                                             << wanted[i]
                                                             << "\nSAMESUM_UPDATE_GOLDEN=1 records them again");
    BOOST_TEST(lines.size() == wanted.size());
}

BOOST_AUTO_TEST_CASE(each_command_reproduces_its_lesson) {
    for (const Lesson& lesson : all()) BOOST_TEST_CONTEXT(lesson.command) {
            BOOST_REQUIRE(lesson.command.starts_with("samesum "));
            const Outcome outcome = run(lesson.command.substr(8));
            BOOST_TEST((outcome.exit == 0 || outcome.exit == 1), outcome.err);
            BOOST_TEST(!lesson.result.empty());
            BOOST_TEST(outcome.says(lesson.result), outcome.out << "does not say " << lesson.result);
        }
}

BOOST_AUTO_TEST_CASE(each_exercise_grades_right_and_wrong_answers) {
    const std::vector<std::pair<std::string, std::string>> wrong{{"addition", "1"},
                                                                 {"addition", "2"},
                                                                 {"two_answers", "1 2 4"},
                                                                 {"ties", "256"},
                                                                 {"ties", "7"},
                                                                 {"three_ranks", "15"},
                                                                 {"algorithms", "((((2 3) 4) 0) 1)"},
                                                                 {"algorithms", "((0 1) 2)"},
                                                                 {"owner", "1 2 3 4"},
                                                                 {"position", "5000"},
                                                                 {"float8", "1 2 4"},
                                                                 {"float8", "448 448 448"},
                                                                 {"fp32_once", "16777216 1 -16777216"},
                                                                 {"fp32_once", "256 1 1"},
                                                                 {"nvls", "258"},
                                                                 {"fixed_root", "no"},
                                                                 {"order_free", "0.5"},
                                                                 {"order_free", "2"}};
    const std::vector<std::pair<std::string, std::string>> also_right{
        {"two_answers", "0.5 256 -256"}, {"algorithms", "(2 (1 (0 (4 3))))"},
        {"owner", "3 1000 -1000 0"},     {"nvls", "nan"},
        {"float8", "0x7e 32 -448"},      {"fp32_once", "16777216 -1 -16777216"}};
    std::set<std::string> tried;
    for (const Lesson& lesson : all()) {
        BOOST_TEST_CONTEXT(lesson.name) {
            BOOST_TEST(lesson.exercise.grade(lesson.exercise.solution).right);
            const std::string asked = "teach " + lesson.name + " --answer ";
            const Outcome right = run(asked + quoted(lesson.exercise.solution));
            BOOST_TEST(right.exit == 0, right.out << right.err);
            BOOST_TEST(right.out.starts_with("right: "), right.out);
            BOOST_TEST(run(asked + "'what?'").exit == 2);
            BOOST_TEST(run(asked + "''").exit == 2);
        }
    }
    for (const auto& [name, answer] : wrong) {
        tried.insert(name);
        const Outcome outcome = run("teach " + name + " --answer " + quoted(answer));
        BOOST_TEST(outcome.exit == 1, name << ", " << answer << ": " << outcome.out << outcome.err);
        BOOST_TEST(outcome.out.starts_with("not yet: "), outcome.out);
    }
    BOOST_TEST(tried.size() == all().size());
    for (const auto& [name, answer] : also_right)
        BOOST_TEST(run("teach " + name + " --answer " + quoted(answer)).exit == 0, name << ", " << answer);
}

BOOST_AUTO_TEST_CASE(the_notes_for_instructors_have_right_answers) {
    const std::string note = text_of("model/teach/TEACHING.md");
    static const std::regex row(R"(\| `([a-z0-9_]+)` \| `([^`]+)` \|)");
    std::set<std::string> answered;
    for (std::sregex_iterator it(note.begin(), note.end(), row), end; it != end; ++it) {
        const auto lesson =
            std::find_if(all().begin(), all().end(), [&](const Lesson& each) { return each.name == (*it)[1].str(); });
        BOOST_REQUIRE(lesson != all().end());
        BOOST_TEST(lesson->exercise.grade((*it)[2].str()).right, it->str());
        answered.insert(lesson->name);
    }
    BOOST_TEST(answered.size() == all().size());
    int minutes = 0;
    for (const Lesson& lesson : all()) minutes += lesson.minutes;
    BOOST_TEST(note.find(fmt::format("{} minutes in all", minutes)) != std::string::npos);
}

BOOST_AUTO_TEST_CASE(drawn_additions_are_right) {
    std::size_t additions = 0;
    for (const Lesson& lesson : all()) {
        std::vector<Passage> passages = lesson.text;
        passages.insert(passages.end(), lesson.answer.begin(), lesson.answer.end());
        for (const Passage& passage : passages)
            for (const std::string& mistake : mistakes_in(passage.text, additions))
                BOOST_TEST(mistake.empty(), lesson.name << ": " << mistake);
    }
    BOOST_TEST(additions > 30u);
    // The check must be able to fail: it finds a wrong digit in any place.
    const std::string drawn = draw_bits(explain({.format = Format::bfloat16}, ReductionTree::parse("(0 1)"),
                                                parse_values(Format::bfloat16, "256 1.5", 2))
                                            .steps.front());
    std::size_t changed = 0, found = 0, unused = 0;
    BOOST_TEST(mistakes_in(drawn, unused).empty());
    for (std::size_t i = 0; i < drawn.size(); ++i) {
        const std::size_t column = i - (drawn.rfind('\n', i) + 1);
        if ((drawn[i] != '0' && drawn[i] != '1') || column > 14) continue;
        std::string other = drawn;
        other[i] = drawn[i] == '0' ? '1' : '0';
        ++changed;
        found += !mistakes_in(other, unused).empty();
    }
    BOOST_TEST(changed > 20u);
    BOOST_TEST(found == changed);
}

BOOST_AUTO_TEST_CASE(any_addition_can_be_drawn) {
    Random random(8);
    std::size_t additions = 0;
    const ReductionTree tree = ReductionTree::parse("(0 1)");
    // The digits of float64 do not fit into a double's sum; those of the others do, if they are not too far apart.
    for (const Format format :
         {Format::bfloat16, Format::float16, Format::float32, Format::float8_e4m3, Format::float8_e5m2})
        for (int i = 0; i < 4000; ++i) {
            const std::vector<Bits> values{i % 2 ? random.spread(format, 6) : random.pattern(format),
                                           i % 4 ? random.spread(format, 6) : random.pattern(format)};
            const RoundingStep step = explain({.format = format}, tree, values).steps.front();
            const std::string drawn = draw_bits(step);
            if (!is_finite(format, values[0]) || !is_finite(format, values[1])) {
                BOOST_TEST(drawn.empty());
                continue;
            }
            for (const std::string& mistake : mistakes_in(drawn, additions))
                BOOST_TEST(mistake.empty(), name(format) << ": " << mistake << "\n" << drawn);
            // Guard and sticky agree with the text of the rounding.
            const Rounding rounding = rounding_of_sum(format, values[0], values[1]);
            BOOST_TEST((rounding.kind == Rounding::Kind::exact) == (step.rounding == "exact"), step.rounding << drawn);
            const bool tie = rounding.kind == Rounding::Kind::truncated_at_tie ||
                             rounding.kind == Rounding::Kind::incremented_at_tie;
            BOOST_TEST(tie == (step.rounding.find("tie") != std::string::npos), step.rounding << drawn);
        }
    BOOST_TEST(additions > 15000u);
}

BOOST_AUTO_TEST_CASE(sum_eval_explains_by_the_same_figures) {
    const Outcome outcome = run("sum eval --dtype float16 --tree '(0 (1 2))' --values '0.5 512 512.5' --explain");
    BOOST_TEST(outcome.says("    0 ────┐\n    1 ──┐ │\n    2 ──┴─┴─\n"));
    BOOST_TEST(
        outcome.says("    =  1.0000000000|1  x 2^10  1024.5 exactly\n                    ^ guard 1, sticky 0: a tie;"));
    std::size_t additions = 0;
    BOOST_TEST(mistakes_in(outcome.out, additions).empty());
    BOOST_TEST(additions == 2u);
}

// --- At a terminal ---

/// A program on its own pseudo-terminal.
class Terminal {
public:
    explicit Terminal(const char* lesson) {
        child_ = ::forkpty(&screen_, nullptr, nullptr, nullptr);
        BOOST_REQUIRE(child_ >= 0);
        if (child_ > 0) return;
        ::execl(SAMESUM_BINARY_DIR "/samesum-model", "samesum-model", "teach", lesson, nullptr);
        ::_exit(127);
    }
    ~Terminal() {
        if (child_ > 0) ::kill(child_, SIGKILL), ::waitpid(child_, nullptr, 0);
        ::close(screen_);
    }
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;

    /// The output up to and including `text`; stops when there is no output for a while.
    std::string until(const std::string& text) {
        std::string shown;
        pollfd ready{screen_, POLLIN, 0};
        while (shown.find(text) == std::string::npos && ::poll(&ready, 1, 10000) > 0) {
            char c = 0;
            if (::read(screen_, &c, 1) != 1) break;
            shown += c;
        }
        BOOST_TEST(shown.find(text) != std::string::npos, "no '" << text << "' in:\n" << shown);
        return shown;
    }
    void type(std::string_view keys) { BOOST_REQUIRE(::write(screen_, keys.data(), keys.size()) > 0); }
    int exit() {
        int status = 0;
        ::waitpid(std::exchange(child_, -1), &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }

private:
    int screen_ = -1;
    pid_t child_ = -1;
};

BOOST_AUTO_TEST_CASE(at_a_terminal_the_answer_waits_for_a_key_and_the_exercise_for_an_answer) {
    Terminal terminal("addition");
    const std::string lesson = terminal.until("press a key");
    BOOST_TEST(lesson.find("also a tie") == std::string::npos);
    terminal.until("] ");
    terminal.type(" ");
    BOOST_TEST(terminal.until("Your answer").find("also a tie") != std::string::npos);
    terminal.type("1\n");
    terminal.until("Not yet. 256 + 1 is still 256");
    terminal.type("one\n");
    terminal.until("'one' is not a number");
    terminal.type("'1.0078125'\n");
    terminal.until("Right. ");
    BOOST_TEST(terminal.exit() == 0);

    Terminal left("ties");
    left.until("] ");
    left.type("q");
    BOOST_TEST(left.exit() == 0);
}

// --- The page ---

std::vector<std::uint8_t> from_base64(const std::string& text) {
    static const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::vector<std::uint8_t> bytes;
    std::uint32_t group = 0;
    int bits = 0;
    for (const char c : text) {
        if (c == '=') break;
        group = group << 6 | static_cast<std::uint32_t>(digits.find(c));
        bits += 6;
        if (bits >= 8) bytes.push_back(static_cast<std::uint8_t>(group >> (bits -= 8)));
    }
    return bytes;
}

BOOST_AUTO_TEST_CASE(the_page_has_the_models_sums) {
    const Json data = teach_data(all(), {});
    std::size_t float8 = 0, pairs_seen = 0;
    for (const Json& each : data["formats"]) {
        const Format format = parse_format(each["name"].get<std::string>());
        BOOST_TEST_CONTEXT(name(format)) {
            for (const Json& preset : each["presets"])
                for (const Json& value : preset["values"])
                    BOOST_TEST(std::count(each["choices"].begin(), each["choices"].end(), value) == 1);
            if (each.contains("sums")) {
                const auto sums = from_base64(each["sums"].get<std::string>()),
                           native = std::vector<std::uint8_t>(float8_sums(format).begin(), float8_sums(format).end());
                BOOST_REQUIRE(sums.size() == 256u * 257 / 2);
                for (std::size_t b = 0; b < 256; ++b)
                    for (std::size_t a = 0; a <= b; ++a)
                        BOOST_REQUIRE(sums[b * (b + 1) / 2 + a] == native[a * 256 + b]);
                float8 += 1;
                continue;
            }
            const auto pairs = from_base64(each["pairs"].get<std::string>());
            const auto patterns = each["patterns"].get<std::vector<Bits>>();
            BOOST_REQUIRE(pairs.size() % 8 == 0u);
            for (std::size_t i = 0; i < pairs.size(); i += 8, ++pairs_seen) {
                const auto pattern = [&](std::size_t k) { return patterns.at(pairs[i + k] * 256u + pairs[i + k + 1]); };
                BOOST_REQUIRE(HopArithmetic(format).add(pattern(0), pattern(2)) == pattern(4));
            }
        }
    }
    BOOST_TEST(float8 == 2u);
    BOOST_TEST(pairs_seen > 3000u);
    std::size_t trees = 0;
    for (const Json& scheme : data["schemes"])
        for (const auto& [ranks, owners] : scheme["trees"].items())
            for (const Json& owner : owners) {
                const ReductionTree tree(owner["postfix"].get<std::vector<std::int32_t>>());
                BOOST_TEST(tree.str() == owner["tree"].get<std::string>());
                BOOST_TEST(std::to_string(tree.leaf_count()) == ranks);
                ++trees;
            }
    BOOST_TEST(trees == 6u * (2 + 3 + 4 + 5 + 6 + 7 + 8));
}

BOOST_AUTO_TEST_CASE(demonstrations_on_the_page_agree_with_the_lessons) {
    const Json data = teach_data(all(), {});
    std::size_t shown = 0;
    for (const Lesson& lesson : all()) {
        if (!lesson.demonstration) continue;
        ++shown;
        const Demonstration& example = *lesson.demonstration;
        const auto scheme = std::find_if(data["schemes"].begin(), data["schemes"].end(),
                                         [&](const Json& each) { return each["name"] == example.scheme; });
        BOOST_REQUIRE(scheme != data["schemes"].end());
        const Json& owners = (*scheme)["trees"][std::to_string(example.values.size())];
        const auto sum = [&](int owner) {
            const std::string tree = owners[static_cast<std::size_t>(owner)]["tree"].get<std::string>();
            return sum_of(example.format, ReductionTree::parse(tree), example.values);
        };
        // A moved token changes the sum, except with fixed_root and in rank order.
        const bool moves = example.scheme != "fixed_root" && example.scheme != "gather_ordered";
        BOOST_TEST((sum(example.before) != sum(example.after)) == moves, lesson.name);
    }
    BOOST_TEST(shown == 8u);
}

BOOST_AUTO_TEST_CASE(the_page_is_one_small_file) {
    const std::string page = teach_page(all(), {});
    BOOST_TEST(page.size() < 1u << 20);
    BOOST_TEST(page.starts_with("<!doctype html>"));
    BOOST_TEST(page.find("PAGE_DATA") == std::string::npos);
    for (const char* loading : {"src=", "href=\"http", "@import", "fetch(", "XMLHttpRequest"})
        BOOST_TEST(page.find(loading) == std::string::npos, loading);
}

BOOST_AUTO_TEST_CASE(the_program_writes_it_with_given_values) {
    const std::string file =
        (std::filesystem::temp_directory_path() / fmt::format("teach-{}.html", ::getpid())).string();
    const Outcome outcome = run("teach --html " + file + " --dtype float16 --values '0.1 0.2 100,-100' --ranks 4");
    BOOST_TEST(outcome.exit == 0, outcome.err);
    const std::string page = read_file(file);
    BOOST_TEST(page.find("\"given values\"") != std::string::npos);
    std::filesystem::remove(file);
    BOOST_TEST(run("teach --html - --ranks 3").out.starts_with("<!doctype html>"));
    const Json told = Json::parse(run("teach ties --json -").out);
    BOOST_TEST(told["lessons"].size() == 1u);
    const Json graded = Json::parse(run("teach ties --answer 2048 --json -").out);
    BOOST_TEST(graded["right"].get<bool>());
}

}  // namespace
}  // namespace samesum
