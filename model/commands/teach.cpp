// samesum teach: the lessons in a terminal, their exercises checked, and all of it as one page.
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

/// Waits for a key where somebody sits at a terminal; false when that one wants to leave.
bool go_on(std::string_view prompt) {
    if (!on_terminal()) return true;
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

/// False when the reader has left.
bool show(const std::vector<Lesson>& all, const Lesson& lesson, bool pauses) {
    fmt::print("{}\n{}\n{}\n", heading(all, lesson), as_text(lesson.text), wrapped(lesson.question, "Question: ", ""));
    if (pauses && !go_on("think, then press a key for the answer")) return false;
    fmt::print("{}\n", as_text(lesson.answer, "Answer: "));
    fmt::print("Reproduce it:\n\n    {}\n\n", lesson.command);
    fmt::print("{}\n", wrapped(lesson.exercise.task, "Exercise: ", ""));
    fmt::print("    samesum teach {} --answer '...'    ({})\n", lesson.name, lesson.exercise.form);
    return true;
}

/// Asks until the answer is right or the reader has had enough.
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
            fmt::print("{}; it takes {}\n", error.what(), exercise.form);
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

void print_list(const std::vector<Lesson>& all) {
    std::size_t names = 0, titles = 0;
    for (const Lesson& lesson : all) {
        names = std::max(names, lesson.name.size());
        titles = std::max(titles, lesson.title.size());
    }
    fmt::print("Why (a + b) + c is not a + (b + c), and why your model sampled another token:\n\n");
    int minutes = 0;
    for (const Lesson& lesson : all) {
        minutes += lesson.minutes;
        fmt::print("{:>4}  {:<{}}  {:<{}}  {} min\n", &lesson - all.data() + 1, lesson.name, names, lesson.title,
                   titles, lesson.minutes);
    }
    fmt::print(
        "\n{} minutes in all. samesum teach {} shows the first, samesum teach --all all of them;\nsamesum teach --html "
        "FILE makes a page of them, with a reduction to step through.\n",
        minutes, all.front().name);
}

Exit write_page(const Options& options, const std::vector<Lesson>& all) {
    PageOptions page{.ranks = options.get<int>("ranks")};
    if (page.ranks < 3 || page.ranks > 8)
        throw UsageError(fmt::format("--ranks {}: 3 to 8 would be right", page.ranks));
    if (const auto values = options.find<std::string>("values")) {
        const Format format = parse_format(options.get<std::string>("dtype"));
        if (format != Format::bfloat16 && format != Format::float16 && format != Format::float32)
            throw UsageError(
                fmt::format("--dtype {}: --values go with bfloat16, float16 or float32; every value of float8 is on "
                            "the page anyway",
                            name(format)));
        std::string spaced = *values;
        std::replace(spaced.begin(), spaced.end(), ',', ' ');
        for (const std::string_view word : split(spaced, ' '))
            if (!trimmed(word).empty()) page.values[format].push_back(parse_value(format, trimmed(word)));
        if (page.values[format].size() < 2) throw UsageError("--values: 2 values or more, e.g. '0.1 0.2 100 -100'");
        for (const Bits bits : page.values[format])
            if (!is_finite(format, bits)) throw UsageError("--values: finite numbers, e.g. '0.1 0.2 100 -100'");
    }
    const std::string file = options.get<std::string>("html"), text = teach_page(all, page);
    write_file(file, text);
    if (file != "-")
        fmt::print("{}: {} lessons and a reduction to step through, {} KiB, no network needed\n", file, all.size(),
                   (text.size() + 1023) / 1024);
    return Exit::as_claimed;
}

}  // namespace

Exit teach_command(std::span<const std::string> arguments) {
    Options options("teach [LESSON] [flags]",
                    "Lessons on why an order of additions shows, each a few minutes long, every number of them "
                    "computed as it is shown.\nWithout LESSON (its name or number): the list. On a terminal a lesson "
                    "waits for a key before its answer.",
                    {"samesum teach", "samesum teach addition", "samesum teach addition --answer '1.25'",
                     "samesum teach --all", "samesum teach --html lessons.html",
                     "samesum teach --html lessons.html --dtype bfloat16 --values '0.1 0.2 100 -100'"});
    options.positional("LESSON", 1);
    const auto word = [](const char* shown_as) { return po::value<std::string>()->value_name(shown_as); };
    options.add()("all", "all lessons, without a pause")(
        "answer", word("A"), "check an answer to the lesson's exercise: exit 0 when right, 1 with a hint when not")(
        "html", word("FILE"), "all lessons as one page, with a reduction to step through")(
        "ranks", po::value<int>()->default_value(8)->value_name("N"), "--html: most ranks on the page, 3 to 8")(
        "dtype", po::value<std::string>()->default_value("bfloat16")->value_name("T"), "--html: data type of --values")(
        "values", word("LIST"), "--html: the values to choose from on the page, in place of its own");
    options.with_json();
    if (!options.parse(arguments)) return Exit::as_claimed;
    const std::vector<std::string> words = options.words();
    if (options.has("html") + options.has("all") + !words.empty() > 1)
        throw UsageError("a LESSON, --all or --html FILE, one at a time");
    if (options.has("answer") && words.empty())
        throw UsageError("--answer: to which lesson? e.g. samesum teach addition --answer '1.25'");
    if (options.has("values") && !options.has("html")) throw UsageError("--values goes with --html FILE");

    const std::vector<Lesson> all = lessons();
    Json json{{"lessons", Json::array()}};
    for (const Lesson& lesson : all)
        if (words.empty() || &find(all, words.front()) == &lesson) json["lessons"].push_back(as_json(lesson));
    if (const auto answer = options.find<std::string>("answer")) {
        const Grade grade = find(all, words.front()).exercise.grade(*answer);
        json = {{"lesson", find(all, words.front()).name},
                {"answer", *answer},
                {"right", grade.right},
                {"says", grade.says}};
        const auto file = options.find<std::string>("json");
        if (file) write_json(*file, json);
        if (file != "-") fmt::print("{}", wrapped(grade.says, grade.right ? "right: " : "not yet: ", ""));
        return grade.right ? Exit::as_claimed : Exit::not_as_claimed;
    }
    if (const auto file = options.find<std::string>("json")) {
        write_json(*file, json);
        if (*file == "-") return Exit::as_claimed;
    }
    if (options.has("html")) return write_page(options, all);
    if (options.has("all")) {
        for (const Lesson& lesson : all) {
            if (&lesson != &all.front()) fmt::print("\n\n");
            show(all, lesson, false);
        }
        return Exit::as_claimed;
    }
    if (words.empty()) {
        print_list(all);
        return Exit::as_claimed;
    }
    const Lesson& lesson = find(all, words.front());
    if (show(all, lesson, true) && on_terminal()) practise(lesson.exercise);
    return Exit::as_claimed;
}

}  // namespace samesum
