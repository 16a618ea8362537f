// The only file that uses Z3's C++ interface.
// SPDX-License-Identifier: Apache-2.0
#include "proofs/engine/solver.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <z3++.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/support/error.hpp"
#include "model/support/options.hpp"
#include "model/support/progress.hpp"
#include "model/support/subprocess.hpp"
#include "model/support/temporary_folder.hpp"
#include "model/support/text.hpp"

namespace samesum {
namespace {

std::uint64_t number(const z3::expr& value) {
    std::uint64_t bits = 0;
    if (value.is_bool()) return value.is_true() ? 1 : 0;
    return value.is_numeral_u64(bits) ? bits : 0;
}

/// Runs in the child; returns the answer as JSON.
std::string answer_in_z3(const Query& query) {
    nlohmann::json answer;
    try {
        z3::set_param("memory_max_size", "3000");  // MB; beyond this Z3 stops
        z3::context context;
        // Z3 has a special solver for products; for others the general one is as fast or faster.
        z3::solver solver = query.logic == "QF_NIA" ? z3::solver(context, "QF_NIA") : z3::solver(context);
        solver.from_string(query.script.c_str());
        const z3::check_result result = solver.check();
        answer["result"] = static_cast<int>(result == z3::sat     ? SatResult::sat
                                            : result == z3::unsat ? SatResult::unsat
                                                                  : SatResult::unknown);
        if (result == z3::unknown) answer["why"] = "Z3 says unknown: " + solver.reason_unknown();
        if (result == z3::sat) {
            const z3::model model = solver.get_model();
            for (unsigned i = 0; i < model.num_consts(); ++i) {
                const z3::func_decl constant = model.get_const_decl(i);
                answer["values"][constant.name().str()] = number(model.get_const_interp(constant));
            }
        }
    } catch (const z3::exception& error) {
        answer["error"] = error.msg();
    }
    return answer.dump();
}

/// Solvers that come as Python wheels without a program: each script checks the file named by its argument.
struct Wheel {
    std::string_view name, script;
};
constexpr std::array wheels{Wheel{"cvc5",
                                  "import sys, cvc5\n"
                                  "terms = cvc5.TermManager()\n"
                                  "solver = cvc5.Solver(terms)\n"
                                  "solver.setOption('fp-exp', 'true')\n"
                                  "solver.setOption('finite-model-find', 'true')\n"
                                  "parser = cvc5.InputParser(solver)\n"
                                  "parser.setFileInput(cvc5.InputLanguage.SMT_LIB_2_6, sys.argv[1])\n"
                                  "symbols = parser.getSymbolManager()\n"
                                  "command = parser.nextCommand()\n"
                                  "while not command.isNull():\n"
                                  "    print(command.invoke(solver, symbols), end='')\n"
                                  "    command = parser.nextCommand()\n"},
                            Wheel{"bitwuzla",
                                  "import sys, bitwuzla\n"
                                  "bitwuzla.Parser(bitwuzla.TermManager(), bitwuzla.Options()).parse(sys.argv[1])\n"}};

/// The private Python environment: beside the build folders, or SAMESUM_ENV.
std::filesystem::path environment() {
    if (const char* given = std::getenv("SAMESUM_ENV")) return given;
    return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "env";
}

/// Where the program is, or nothing.
std::string found_in_path(std::string_view program) {
    const char* path = std::getenv("PATH");
    for (const std::string_view folder : split(path != nullptr ? path : "", ':')) {
        const std::string file = fmt::format("{}/{}", folder, program);
        if (!folder.empty() && ::access(file.c_str(), X_OK) == 0) return file;
    }
    return {};
}

}  // namespace

std::string_view name(SatResult answer) {
    constexpr std::array<std::string_view, 3> names{"sat", "unsat", "unknown"};
    return names.at(static_cast<std::size_t>(answer));
}

Answer check(const Query& query, double limit) {
    const ChildResult child = run_in_child([&] { return answer_in_z3(query); }, limit);
    Answer answer;
    answer.seconds = child.seconds;
    answer.why = child.why;
    if (!child.output) return answer;
    const auto json = nlohmann::json::parse(*child.output);
    if (json.contains("error")) {
        std::string what = json.at("error").get<std::string>();
        std::replace(what.begin(), what.end(), '\n', ' ');
        // Out of memory is a limit; any other error is a script that Z3 cannot read.
        if (what.find("memory") == std::string::npos) throw UsageError("not SMT-LIB as Z3 reads it: " + what);
        answer.why = "Z3 gave up: " + what;
        return answer;
    }
    answer.result = static_cast<SatResult>(json.at("result").get<int>());
    answer.why = json.value("why", std::string());
    for (const std::string& constant : query.constants) {
        const bool matters = json.contains("values") && json.at("values").contains(constant);
        answer.values[constant] = matters ? json.at("values").at(constant).get<std::uint64_t>() : 0;
    }
    return answer;
}

std::vector<std::string> second_solver(const std::string& name) {
    if (name.find('/') != std::string::npos) {
        if (!std::filesystem::exists(name)) throw UsageError(fmt::format("--cross-check {}: no such program", name));
        return {name};
    }
    const auto known = std::find_if(wheels.begin(), wheels.end(), [&](const Wheel& w) { return w.name == name; });
    if (known == wheels.end())
        throw UsageError(fmt::format("--cross-check '{}': expected cvc5, bitwuzla, or a program's path", name));
    const std::string python = (environment() / "bin/python").string();
    if (run_executable({python, "-c", fmt::format("import {}", name)}, 20).exit_code != 0)
        throw UsageError(
            fmt::format("--cross-check {0}: not installed; install it by: {1} -m pip install {0}", name, python));
    return {python, "-c", std::string(known->script)};
}

bool second_solver_reads(const std::string& name, std::string_view logic) {
    return name != "bitwuzla" || logic.starts_with("QF_BV");
}

Answer check_with_second(std::vector<std::string> command, const std::string& file, double limit) {
    command.push_back(file);
    const double started = monotonic_seconds();
    const ProgramResult result = run_executable(command, limit);
    Answer answer;
    answer.seconds = monotonic_seconds() - started;
    const std::string first = result.output.substr(0, result.output.find('\n'));
    for (const SatResult each : {SatResult::sat, SatResult::unsat})
        if (first == name(each)) answer.result = each;
    if (answer.result == SatResult::unknown)
        answer.why = !result.why.empty() ? result.why : first.empty() ? "no answer" : first;
    return answer;
}

bool coq_is_installed() { return !found_in_path("coqc").empty(); }

std::string refused_by_coq(const std::string& file, double limit) {
    namespace fs = std::filesystem;
    const std::string coqc = found_in_path("coqc");
    if (coqc.empty()) return "coqc is not installed; Debian's package is coq";
    // An installed samesum has it beside its programs.
    const fs::path beside = fs::read_symlink("/proc/self/exe").parent_path() / file;
    const fs::path source = fs::exists(beside) ? beside : fs::path(SAMESUM_PROOFS_FOLDER) / file;
    if (!fs::exists(source)) return "no such file";
    const TemporaryFolder folder("samesum-coq");
    const std::string copy = folder.file(source.filename().string());
    fs::copy_file(source, copy);
    const ProgramResult result = run_executable({coqc, "-q", copy}, limit);
    if (!result.why.empty()) return result.why;
    if (result.exit_code != 0) return fmt::format("rejected by coqc, exit code {}", result.exit_code.value_or(-1));
    if (result.output.find("Axioms:") != std::string::npos ||
        result.output.find("Closed under the global context") == std::string::npos)
        return "uses axioms: " + result.output;
    return {};
}

std::string solver_version() {
    unsigned major = 0, minor = 0, build = 0, revision = 0;
    Z3_get_version(&major, &minor, &build, &revision);
    return fmt::format("Z3 {}.{}.{}", major, minor, build);
}

}  // namespace samesum
