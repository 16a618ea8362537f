// samesum teach: the lessons in a terminal, their exercises checked, and all of it as one page.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "model/commands/commands.hpp"
#include "model/commands/sum_values.hpp"
#include "model/support/files.hpp"
#include "model/support/options.hpp"
#include "model/support/output.hpp"
#include "model/support/progress.hpp"
#include "model/support/text.hpp"
#include "model/teach/lessons.hpp"
#include "model/teach/page.hpp"

namespace samesum {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t line_width = 80;

bool on_terminal() { return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1; }

/// Lines of at most `line_width` columns; `code` in backquotes stays on one line.
std::string wrapped(std::string_view text, std::string_view first, std::string_view indent) {
    std::vector<std::string> words(1);
    bool code = false;
    for (const char c : text) {
        if (c == '`') code = !code;
        if (c == ' ' && !code)
            words.emplace_back();
        else
            words.back() += c;
    }
    std::string result, line(first);
    bool fresh = true;
    for (const std::string& word : words) {
        if (!fresh && line.size() + 1 + word.size() > line_width) {
            result += line + "\n";
            line = indent;
            fresh = true;
        }
        line += (fresh ? "" : " ") + word;
        fresh = false;
    }
    return result + line + "\n";
}

std::string indented(std::string_view text) {
    std::string result;
    for (const std::string_view line : split(text, '\n')) result += line.empty() ? "\n" : fmt::format("    {}\n", line);
    while (result.ends_with("\n\n")) result.pop_back();
    return result;
}

/// `first` stands before the first paragraph, or above a figure that comes first.
std::string as_text(const std::vector<Passage>& passages, const std::string& first = "") {
    std::string result;
    for (const Passage& each : passages) {
        const std::string before = &each == &passages.front() ? first : "";
        if (!result.empty()) result += "\n";
        if (each.is_figure)
            result += (before.empty() ? "" : std::string(trimmed(before)) + "\n\n") + indented(each.text);
        else
            result += wrapped(each.text, before, "");
    }
    return result;
}

/// Waits for a key at the terminal; false when the reader wants to leave.
bool go_on(std::string_view prompt) {
    fmt::print("[{}; q leaves] ", prompt);
    std::fflush(stdout);
    termios before{};
    ::tcgetattr(STDIN_FILENO, &before);
    termios raw = before;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    char key = 'q';
    const ssize_t got = ::read(STDIN_FILENO, &key, 1);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before);
    fmt::print("\r\x1b[K");
    constexpr char end_of_input = 4;
    return got == 1 && key != 'q' && key != 'Q' && key != end_of_input;
}

std::string heading(const std::vector<Lesson>& all, const Lesson& lesson) {
    const std::string text = fmt::format("Lesson {} of {}: {}", &lesson - all.data() + 1, all.size(), lesson.title);
    const std::string line = text + "\n" + std::string(text.size(), '=') + "\n";
    return colourful(STDOUT_FILENO) ? "\x1b[1m" + line + "\x1b[0m" : line;
}

std::string question_text(const std::vector<Lesson>& all, const Lesson& lesson) {
    return fmt::format("{}\n{}\n{}\n", heading(all, lesson), as_text(lesson.text),
                       wrapped(lesson.question, "Question: ", ""));
}

std::string answer_text(const Lesson& lesson) {
    return fmt::format("{}\nReproduce it:\n\n    {}\n\n{}\n    samesum teach {} --answer '...'    ({})\n",
                       as_text(lesson.answer, "Answer: "), lesson.command,
                       wrapped(lesson.exercise.task, "Exercise: ", ""), lesson.name, lesson.exercise.form);
}

/// Reads answers until one is right or empty.
void practise(const Exercise& exercise) {
    std::string answer;
    for (;;) {
        fmt::print("\nYour answer (Enter leaves): ");
        std::fflush(stdout);
        if (!std::getline(std::cin, answer) || trimmed(answer).empty()) return;
        std::string_view given = trimmed(answer);
        if (given.size() > 1 && given.front() == '\'' && given.back() == '\'')
            given = given.substr(1, given.size() - 2);
        try {
            const Grade grade = exercise.grade(given);
            fmt::print("{}", wrapped(grade.says, grade.right ? "Right. " : "Not yet. ", ""));
            if (grade.right) return;
        } catch (const UsageError& error) {
            fmt::print("{}; expected {}\n", error.what(), exercise.form);
        }
    }
}

const Lesson& find(const std::vector<Lesson>& all, std::string_view word) {
    std::string names;
    for (const Lesson& lesson : all) {
        if (word == lesson.name || word == std::to_string(&lesson - all.data() + 1)) return lesson;
        names += (names.empty() ? "" : ", ") + lesson.name;
    }
    throw UsageError(fmt::format("no lesson is called '{}'; one of: {}", word, names));
}

std::string list_text(const std::vector<Lesson>& all) {
    std::size_t names = 0, titles = 0;
    for (const Lesson& lesson : all) {
        names = std::max(names, lesson.name.size());
        titles = std::max(titles, lesson.title.size());
    }
    std::string text = "Why (a + b) + c is not a + (b + c), and why your model sampled another token:\n\n";
    int minutes = 0;
    for (const Lesson& lesson : all) {
        minutes += lesson.minutes;
        text += fmt::format("{:>4}  {:<{}}  {:<{}}  {} min\n", &lesson - all.data() + 1, lesson.name, names,
                            lesson.title, titles, lesson.minutes);
    }
    return text +
           fmt::format(
               "\n{} minutes in all. samesum teach {} shows the first, samesum teach --all all of them;\nsamesum "
               "teach --html FILE makes a page of them, with a reduction to step through.\n",
               minutes, all.front().name);
}

PageOptions page_options(const Options& options) {
    PageOptions page{.ranks = options.get<int>("ranks")};
    if (page.ranks < 3 || page.ranks > 8) throw UsageError(fmt::format("--ranks {}: expected 3 to 8", page.ranks));
    const auto values = options.find<std::string>("values");
    if (!values) return page;
    const Format format = parse_format(options.get<std::string>("dtype"));
    if (format != Format::bfloat16 && format != Format::float16 && format != Format::float32)
        throw UsageError(
            fmt::format("--dtype {}: --values go with bfloat16, float16 or float32; the page has every value of float8",
                        name(format)));
    page.values[format] = values_in(format, *values);
    if (page.values[format].size() < 2)
        throw UsageError("--values: expected 2 values or more, e.g. '0.1 0.2 100 -100'");
    for (const Bits bits : page.values[format])
        if (!is_finite(format, bits)) throw UsageError("--values: expected finite numbers, e.g. '0.1 0.2 100 -100'");
    return page;
}

Exit write_page(const Options& options, const std::vector<Lesson>& all, Json json) {
    const std::string file = options.get<std::string>("html"), text = teach_page(all, page_options(options));
    if (file == "-" && json_alone(options))
        throw UsageError("--html - and --json -: both go to stdout; expected a file for one of them");
    write_file(file, text);
    json["page"] = {{"file", file}, {"bytes", text.size()}};
    return emit(options,
                file == "-" ? ""
                            : fmt::format("{}: {} lessons and a reduction to step through, {} KiB, no network needed\n",
                                          file, all.size(), (text.size() + 1023) / 1024),
                json, Exit::as_claimed);
}

Exit grade_answer(const Options& options, const Lesson& lesson, const std::string& answer) {
    const Grade grade = lesson.exercise.grade(answer);
    return emit(options, wrapped(grade.says, grade.right ? "right: " : "not yet: ", ""),
                {{"lesson", lesson.name}, {"answer", answer}, {"right", grade.right}, {"says", grade.says}},
                grade.right ? Exit::as_claimed : Exit::not_as_claimed);
}

/// One lesson at a terminal: the answer waits for a key, then exercises are graded until the reader leaves.
void practise_lesson(const std::vector<Lesson>& all, const Lesson& lesson) {
    fmt::print("{}", question_text(all, lesson));
    if (!go_on("think, then press a key for the answer")) return;
    fmt::print("{}", answer_text(lesson));
    practise(lesson.exercise);
}

Options teach_options() {
    Options options("teach [LESSON] [flags]",
                    "Lessons on why the order of additions changes results, each a few minutes long, every number in "
                    "them computed when it is shown.\nWithout LESSON (its name or number): the list. On a terminal a "
                    "lesson waits for a key before its answer.",
                    {"samesum teach", "samesum teach addition", "samesum teach addition --answer '1.25'",
                     "samesum teach --all", "samesum teach --html lessons.html",
                     "samesum teach --html lessons.html --dtype bfloat16 --values '0.1 0.2 100 -100'"});
    options.positional("LESSON", 1);
    options.add()("all", "all lessons, without a pause")(
        "answer", word("A"), "check an answer to the lesson's exercise: exit 0 when right, 1 with a hint when not")(
        "html", word("FILE"), "all lessons as one page, with a reduction to step through")(
        "ranks", po::value<int>()->default_value(8)->value_name("N"),
        "--html: maximum number of ranks on the page, 3 to 8")("dtype", word("bfloat16", "T"),
                                                               "--html: data type of --values")(
        "values", word("LIST"), "--html: the values to choose from on the page, in place of its own");
    options.with_json();
    return options;
}

}  // namespace

Exit teach_command(std::span<const std::string> arguments) {
    Options options = teach_options();
    if (!options.parse(arguments)) return Exit::as_claimed;
    const std::vector<std::string> words = options.words();
    if (options.has("html") + options.has("all") + !words.empty() > 1)
        throw UsageError("LESSON, --all and --html FILE: expected one of them");
    const auto answer = options.find<std::string>("answer");
    if (answer && words.empty())
        throw UsageError("--answer: expected a LESSON, e.g. samesum teach addition --answer '1.25'");
    if (options.has("values") && !options.has("html")) throw UsageError("--values goes with --html FILE");

    const std::vector<Lesson> all = lessons();
    const Lesson* chosen = words.empty() ? nullptr : &find(all, words.front());
    if (answer) return grade_answer(options, *chosen, *answer);
    Json json{{"lessons", Json::array()}};
    for (const Lesson& lesson : all)
        if (chosen == nullptr || chosen == &lesson) json["lessons"].push_back(as_json(lesson));
    if (options.has("html")) return write_page(options, all, std::move(json));
    if (chosen != nullptr && on_terminal() && !json_alone(options)) {
        const Exit exit = emit(options, "", json, Exit::as_claimed);
        practise_lesson(all, *chosen);
        return exit;
    }
    std::string text;
    if (chosen != nullptr)
        text = question_text(all, *chosen) + answer_text(*chosen);
    else if (!options.has("all"))
        text = list_text(all);
    else
        for (const Lesson& lesson : all)
            text += (text.empty() ? "" : "\n\n") + question_text(all, lesson) + answer_text(lesson);
    return emit(options, text, json, Exit::as_claimed);
}

}  // namespace samesum
