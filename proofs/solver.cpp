// Z3's C++ interface is known to this file alone.
// SPDX-License-Identifier: Apache-2.0
#include "proofs/solver.hpp"

#include <fmt/format.h>
#include <z3++.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "model/error.hpp"
#include "proofs/child.hpp"

namespace samesum {
namespace {

std::uint64_t number(const z3::expr& value) {
    std::uint64_t bits = 0;
    if (value.is_bool()) return value.is_true() ? 1 : 0;
    return value.is_numeral_u64(bits) ? bits : 0;
}

/// Runs in the child; the answer goes back as JSON.
std::string answer_in_z3(const Question& question) {
    nlohmann::json answer;
    try {
        z3::set_param("memory_max_size", "3000");  // MB; beyond it Z3 gives up
        z3::context context;
        z3::solver solver(context);
        solver.from_string(question.script.c_str());
        const z3::check_result result = solver.check();
        answer["result"] = static_cast<int>(result == z3::sat     ? Satisfiable::yes
                                            : result == z3::unsat ? Satisfiable::no
                                                                  : Satisfiable::unknown);
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

}  // namespace

std::string_view name(Satisfiable answer) {
    constexpr std::array<std::string_view, 3> names{"sat", "unsat", "unknown"};
    return names.at(static_cast<std::size_t>(answer));
}

Answer ask(const Question& question, double limit) {
    const ChildResult child = run_in_child([&] { return answer_in_z3(question); }, limit);
    Answer answer;
    answer.seconds = child.seconds;
    answer.why = child.why;
    if (!child.output) return answer;
    const auto json = nlohmann::json::parse(*child.output);
    if (json.contains("error")) {
        std::string what = json.at("error").get<std::string>();
        std::replace(what.begin(), what.end(), '\n', ' ');
        // Out of memory is a limit like another; anything else is a script that Z3 does not read.
        if (what.find("memory") == std::string::npos) throw UsageError("not SMT-LIB as Z3 reads it: " + what);
        answer.why = "Z3 gave up: " + what;
        return answer;
    }
    answer.satisfiable = static_cast<Satisfiable>(json.at("result").get<int>());
    answer.why = json.value("why", std::string());
    for (const std::string& constant : question.constants) {
        const bool matters = json.contains("values") && json.at("values").contains(constant);
        answer.values[constant] = matters ? json.at("values").at(constant).get<std::uint64_t>() : 0;
    }
    return answer;
}

Answer ask_program(const std::string& program, const std::string& file, double limit) {
    Answer answer;
    const ChildResult child = run_in_child(
        [&] {
            const ProgramResult result = run_executable({program, file}, 0);
            return result.output.empty() ? "no answer: " + result.why : result.output;
        },
        limit);
    answer.seconds = child.seconds;
    const std::string said = child.output.value_or(child.why);
    const std::string first = said.substr(0, said.find('\n'));
    for (const Satisfiable each : {Satisfiable::yes, Satisfiable::no, Satisfiable::unknown})
        if (first == name(each)) answer.satisfiable = each;
    if (answer.satisfiable == Satisfiable::unknown) answer.why = first;
    return answer;
}

std::string solver_version() {
    unsigned major = 0, minor = 0, build = 0, revision = 0;
    Z3_get_version(&major, &minor, &build, &revision);
    return fmt::format("Z3 {}.{}.{}", major, minor, build);
}

}  // namespace samesum
