// samesum teach: shows lessons in a terminal, grades exercises, and writes the lessons as one HTML page.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "model/commands/commands.hpp"
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

/// `first` precedes the first paragraph, or is a line above a leading figure.
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

/// On a terminal: waits for a key; false if it means to quit.
bool wait_for_key(std::string_view prompt) {
    if (!on_terminal()) return true;
    fmt::print("[{}; q quits] ", prompt);
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

/// A lesson up to its question.
std::string first_part(const std::vector<Lesson>& all, const Lesson& lesson) {
    return fmt::format("{}\n{}\n{}\n", heading(all, lesson), as_text(lesson.text),
                       wrapped(lesson.question, "Question: ", ""));
}

/// The answer, the command and the exercise.
std::string second_part(const Lesson& lesson) {
    return fmt::format("{}\nReproduce it:\n\n    {}\n\n{}\n    samesum teach {} --answer '...'    ({})\n",
                       as_text(lesson.answer, "Answer: "), lesson.command,
                       wrapped(lesson.exercise.task, "Exercise: ", ""), lesson.name, lesson.exercise.form);
}

/// Asks until the answer is right or empty.
void practise(const Exercise& exercise) {
    std::string answer;
    for (;;) {
        fmt::print("\nYour answer (Enter quits): ");
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
    throw UsageError(fmt::format("unknown lesson '{}': expected one of: {}", word, names));
}

std::string list_of(const std::vector<Lesson>& all) {
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
    return text + fmt::format(
                      "\n{} minutes in all. `samesum teach {}` shows the first, `samesum teach --all` all "
                      "lessons;\n`samesum teach "
                      "--html FILE` writes them as a page with an interactive reduction.\n",
                      minutes, all.front().name);
}

/// Writes the page; returns a line about it, nothing if the page went to stdout.
std::string write_page(const Options& options, const std::vector<Lesson>& all) {
    PageOptions page{.ranks = options.get<int>("ranks")};
    if (page.ranks < 3 || page.ranks > 8) throw UsageError(fmt::format("--ranks {}: expected 3 to 8", page.ranks));
    if (const auto values = options.find<std::string>("values")) {
        const Format format = parse_format(options.get<std::string>("dtype"));
        if (format != Format::bfloat16 && format != Format::float16 && format != Format::float32)
            throw UsageError(
                fmt::format("--dtype {}: expected bfloat16, float16 or float32 with --values; the page always offers "
                            "all values of float8",
                            name(format)));
        std::string spaced = *values;
        std::replace(spaced.begin(), spaced.end(), ',', ' ');
        for (const std::string_view word : split(spaced, ' '))
            if (!trimmed(word).empty()) page.values[format].push_back(parse_value(format, trimmed(word)));
        if (page.values[format].size() < 2)
            throw UsageError("--values: expected 2 or more values, e.g. '0.1 0.2 100 -100'");
        for (const Bits bits : page.values[format])
            if (!is_finite(format, bits))
                throw UsageError("--values: expected finite numbers, e.g. '0.1 0.2 100 -100'");
    }
    const std::string file = options.get<std::string>("html"), text = teach_page(all, page);
    write_file(file, text);
    if (file == "-") return "";
    return fmt::format("{}: {} lessons and an interactive reduction, {} KiB, works offline\n", file, all.size(),
                       (text.size() + 1023) / 1024);
}

}  // namespace

Exit teach_command(std::span<const std::string> arguments) {
    Options options("teach [LESSON] [flags]",
                    "Lessons on why the order of additions matters, each a few minutes long. Every number in them is "
                    "computed when it is shown.\nWithout LESSON (a name or number): lists the lessons. On a terminal a "
                    "lesson waits for a key before its answer.",
                    {"samesum teach", "samesum teach addition", "samesum teach addition --answer '1.25'",
                     "samesum teach --all", "samesum teach --html lessons.html",
                     "samesum teach --html lessons.html --dtype bfloat16 --values '0.1 0.2 100 -100'"});
    options.positional("LESSON", 1);
    const auto word = [](const char* shown_as) { return po::value<std::string>()->value_name(shown_as); };
    options.add()("all", "all lessons, without a pause")(
        "answer", word("A"), "check an answer to the lesson's exercise: exit 0 if right, else 1 with a hint")(
        "html", word("FILE"), "write all lessons as one HTML page with an interactive reduction")(
        "ranks", po::value<int>()->default_value(8)->value_name("N"),
        "--html: maximal number of ranks on the page, 3 to 8")(
        "dtype", po::value<std::string>()->default_value("bfloat16")->value_name("T"), "--html: data type of --values")(
        "values", word("LIST"), "--html: the values that the page offers instead of its default ones");
    options.with_json();
    if (!options.parse(arguments)) return Exit::as_claimed;
    const std::vector<std::string> words = options.words();
    if (options.has("html") + options.has("all") + !words.empty() > 1)
        throw UsageError("LESSON, --all, --html: expected at most one of them");
    if (options.has("answer") && words.empty())
        throw UsageError("--answer: expected a LESSON, e.g. samesum teach addition --answer '1.25'");
    if (options.has("values") && !options.has("html")) throw UsageError("--values: expected --html FILE with it");

    const std::vector<Lesson> all = lessons();
    Json json{{"lessons", Json::array()}};
    for (const Lesson& lesson : all)
        if (words.empty() || &find(all, words.front()) == &lesson) json["lessons"].push_back(as_json(lesson));
    if (const auto answer = options.find<std::string>("answer")) {
        const Lesson& lesson = find(all, words.front());
        const Grade grade = lesson.exercise.grade(*answer);
        return emit(options, wrapped(grade.says, grade.right ? "right: " : "not yet: ", ""),
                    {{"lesson", lesson.name}, {"answer", *answer}, {"right", grade.right}, {"says", grade.says}},
                    grade.right ? Exit::as_claimed : Exit::not_as_claimed);
    }
    const auto show = [&](std::string_view text) { return emit(options, text, json, Exit::as_claimed); };
    if (json_alone(options)) return show("");
    if (options.has("html")) return show(write_page(options, all));
    if (options.has("all")) {
        std::string text;
        for (const Lesson& lesson : all)
            text += (text.empty() ? "" : "\n\n") + first_part(all, lesson) + second_part(lesson);
        return show(text);
    }
    if (words.empty()) return show(list_of(all));
    const Lesson& lesson = find(all, words.front());
    const Exit exit = show(first_part(all, lesson));
    if (!wait_for_key("think, then press a key for the answer")) return exit;
    fmt::print("{}", second_part(lesson));
    if (on_terminal()) practise(lesson.exercise);
    return exit;
}

}  // namespace samesum
