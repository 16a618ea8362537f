// Steps as SMT-LIB, evaluated on numbers, and with one of them mutated.
// SPDX-License-Identifier: Apache-2.0
#include "proofs/engine/lemma.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "model/support/error.hpp"

namespace samesum {
namespace {

__extension__ using Wide = __int128;
constexpr Wide beyond = Wide{1} << 125;

Wide magnitude(Wide a) { return a < 0 ? -a : a; }

/// SMT-LIB's div for positive divisors: rounds down.
Wide divided(Wide a, Wide b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

}  // namespace

int Lemma::take(Step step) {
    if (!running_.empty()) {
        step.function = running_;
        step.operation = ++operation_;
    }
    content_.steps.push_back(std::move(step));
    return static_cast<int>(content_.steps.size()) - 1;
}

int Lemma::step_of(const SymbolicInteger& number) {
    if (number.lemma_ == nullptr) {
        // A mutated constant is mutated wherever the code uses it.
        const auto known = constants_.find(number.written_);
        if (known != constants_.end()) return known->second;
        const int step = take({.kind = Kind::constant, .constant = number.constant_});
        if (!running_.empty()) constants_[number.written_] = step;
        return step;
    }
    ensure(number.lemma_ == this, "numbers of one lemma");
    return number.step_;
}

SymbolicInteger Lemma::number(Kind kind, const SymbolicInteger& a, const SymbolicInteger& b) {
    Lemma* lemma = a.lemma_ != nullptr ? a.lemma_ : b.lemma_;
    ensure(lemma != nullptr, "one operand is of a lemma");
    const int left = lemma->step_of(a), right = lemma->step_of(b);
    return {*lemma, lemma->take({.kind = kind, .of = {left, right}})};
}

Truth Lemma::comparison(Kind kind, const SymbolicInteger& a, const SymbolicInteger& b) {
    const SymbolicInteger compared = number(kind, a, b);
    return {*compared.lemma_, compared.step_};
}

SymbolicInteger operator+(const SymbolicInteger& a, const SymbolicInteger& b) {
    return Lemma::number(Lemma::Kind::add, a, b);
}
SymbolicInteger operator-(const SymbolicInteger& a, const SymbolicInteger& b) {
    return Lemma::number(Lemma::Kind::subtract, a, b);
}
SymbolicInteger operator*(const SymbolicInteger& a, const SymbolicInteger& b) {
    return Lemma::number(Lemma::Kind::multiply, a, b);
}
SymbolicInteger operator/(const SymbolicInteger& a, const SymbolicInteger& b) {
    return Lemma::number(Lemma::Kind::divide, a, b);
}
SymbolicInteger operator&(const SymbolicInteger& a, const SymbolicInteger& b) {
    return Lemma::number(Lemma::Kind::bit_and, a, b);
}
SymbolicInteger operator|(const SymbolicInteger& a, const SymbolicInteger& b) {
    return Lemma::number(Lemma::Kind::bit_or, a, b);
}
SymbolicInteger operator^(const SymbolicInteger& a, const SymbolicInteger& b) {
    return Lemma::number(Lemma::Kind::bit_xor, a, b);
}
Truth operator<(const SymbolicInteger& a, const SymbolicInteger& b) {
    return Lemma::comparison(Lemma::Kind::less, a, b);
}
Truth operator==(const SymbolicInteger& a, const SymbolicInteger& b) {
    return Lemma::comparison(Lemma::Kind::equal, a, b);
}
Truth operator&&(const Truth& a, const Truth& b) {
    return {*a.lemma_, a.lemma_->take({.kind = Lemma::Kind::both, .of = {a.step_, b.step_}})};
}
Truth operator||(const Truth& a, const Truth& b) {
    return {*a.lemma_, a.lemma_->take({.kind = Lemma::Kind::either, .of = {a.step_, b.step_}})};
}
Truth operator!(const Truth& a) {
    return {*a.lemma_, a.lemma_->take({.kind = Lemma::Kind::negation, .of = {a.step_}})};
}
SymbolicInteger select(const Truth& chosen, const SymbolicInteger& yes, const SymbolicInteger& no) {
    Lemma& lemma = *chosen.lemma_;
    const int a = lemma.step_of(yes), b = lemma.step_of(no);
    return {lemma, lemma.take({.kind = Lemma::Kind::select, .of = {chosen.step_, a, b}})};
}

SymbolicInteger Lemma::natural(std::string name) {
    return {*this, take({.kind = Kind::variable, .name = std::move(name)})};
}
Truth Lemma::truth(std::string name) { return {*this, take({.kind = Kind::flag, .name = std::move(name)})}; }
SymbolicInteger Lemma::constant(std::uint64_t value) { return {*this, step_of(SymbolicInteger(value))}; }
void Lemma::assume(std::string name, const Truth& what) { content_.assumed.push_back({std::move(name), what.step_}); }
void Lemma::show(std::string name, const Truth& what) { content_.shown.push_back({std::move(name), what.step_}); }

void Lemma::divides_by_no_0(std::size_t first) {
    for (std::size_t i = first, last = content_.steps.size(); i < last; ++i) {
        const Step step = content_.steps[i];
        if (step.kind == Kind::divide)
            show("divides_by_no_0", SymbolicInteger(*this, step.of[1]) >= SymbolicInteger(1));
    }
}

void Lemma::fits_64_bits() {
    const std::vector<Step> code = content_.steps;
    for (std::size_t i = 0; i < code.size(); ++i) {
        const SymbolicInteger value(*this, static_cast<int>(i));
        if (code[i].function.empty()) continue;
        if (code[i].kind == Kind::subtract)
            show("no_difference_below_zero",
                 SymbolicInteger(*this, code[i].of[1]) <= SymbolicInteger(*this, code[i].of[0]));
        if (code[i].kind == Kind::add || code[i].kind == Kind::multiply)
            show("fits_64_bits", value <= SymbolicInteger(~std::uint64_t{0}));
    }
}

std::optional<Lemma::Values> Lemma::evaluate(const Assignment& values) const { return evaluate(content_, values); }

std::optional<Lemma::Values> Lemma::evaluate(const Content& content, const Assignment& values) {
    std::vector<Wide> at;
    for (const Step& step : content.steps) {
        const auto of = [&](int operand) {
            return at[static_cast<std::size_t>(step.of[static_cast<std::size_t>(operand)])];
        };
        Wide value = 0;
        switch (step.kind) {
            case Kind::constant:
                value = step.constant;
                break;
            case Kind::variable:
            case Kind::flag:
                value = values.at(step.name);
                break;
            case Kind::add:
                value = of(0) + of(1);
                break;
            case Kind::subtract:
                value = of(0) - of(1);
                break;
            case Kind::multiply:
                if (of(0) != 0 && magnitude(of(1)) > beyond / magnitude(of(0))) return std::nullopt;
                value = of(0) * of(1);
                break;
            case Kind::divide:
                // Divisions of the code are checked by "divides_by_no_0".
                if (of(1) <= 0 && step.function.empty()) return std::nullopt;
                value = of(1) <= 0 ? 0 : divided(of(0), of(1));
                break;
            case Kind::bit_and:
                value = of(0) & of(1);
                break;
            case Kind::bit_or:
                value = of(0) | of(1);
                break;
            case Kind::bit_xor:
                value = of(0) ^ of(1);
                break;
            case Kind::less:
                value = of(0) < of(1);
                break;
            case Kind::equal:
                value = of(0) == of(1);
                break;
            case Kind::both:
                value = of(0) != 0 && of(1) != 0;
                break;
            case Kind::either:
                value = of(0) != 0 || of(1) != 0;
                break;
            case Kind::negation:
                value = of(0) == 0;
                break;
            case Kind::select:
                value = of(0) != 0 ? of(1) : of(2);
                break;
        }
        if (content.numbers == Numbers::words) value &= 0xffffffff;
        if (value > beyond || value < -beyond) return std::nullopt;
        at.push_back(value);
    }
    const auto holds = [&](const Named& each) { return at[static_cast<std::size_t>(each.step)] != 0; };
    Values result{.assumptions_hold = std::all_of(content.assumed.begin(), content.assumed.end(), holds), .fails = {}};
    const auto failing = std::find_if_not(content.shown.begin(), content.shown.end(), holds);
    if (failing != content.shown.end()) result.fails = failing->name;
    return result;
}

Statement Lemma::statement() const { return statement_of(content_, name_); }

Statement Lemma::statement_of(const Content& content, const std::string& name, std::optional<std::uint64_t> max) {
    const bool mutated = max.has_value();
    const std::vector<Step>& steps = content.steps;
    constexpr std::array<std::string_view, 16> of_integers{"", "", "",  "+", "-",   "*",  "div", "",
                                                           "", "", "<", "=", "and", "or", "not", "ite"};
    constexpr std::array<std::string_view, 16> of_words{"",       "",      "",     "bvadd", "bvsub", "bvmul",
                                                        "bvudiv", "bvand", "bvor", "bvxor", "bvult", "=",
                                                        "and",    "or",    "not",  "ite"};
    const bool words = content.numbers == Numbers::words;
    const auto term = [](int step) { return Term{fmt::format("t{}", step)}; };
    const auto is_constant = [&](int step) { return steps[static_cast<std::size_t>(step)].kind == Kind::constant; };
    Statement statement{.name = name, .logic = words ? "QF_BV" : "QF_LIA", .goal = {}};
    std::vector<bool> is_truth;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const Step& step = steps[i];
        const bool compares = step.kind == Kind::less || step.kind == Kind::equal;
        is_truth.push_back(compares || step.kind == Kind::flag || step.kind == Kind::both ||
                           step.kind == Kind::either || step.kind == Kind::negation);
        const std::string_view sort = is_truth.back() ? "Bool" : words ? "(_ BitVec 32)" : "Int";
        std::string text;
        if (step.kind == Kind::constant) {
            text = words ? bit_vector(32, step.constant).text : fmt::format("{}", step.constant);
        } else if (step.kind == Kind::variable || step.kind == Kind::flag) {
            text = step.name;
            statement.declarations += declare(Term{step.name}, sort);
            statement.constants.push_back(step.name);
        } else {
            const std::size_t operands = step.kind == Kind::negation ? 1 : step.kind == Kind::select ? 3 : 2;
            text = fmt::format("({}", (words ? of_words : of_integers).at(static_cast<std::size_t>(step.kind)));
            for (std::size_t k = 0; k < operands; ++k) text += " " + term(step.of[k]).text;
            text += ")";
            const bool multiplies = step.kind == Kind::multiply && !is_constant(step.of[0]) && !is_constant(step.of[1]);
            if (!words && (multiplies || (step.kind == Kind::divide && !is_constant(step.of[1]))))
                statement.logic = "QF_NIA";
        }
        statement.declarations += fmt::format("(define-fun t{} () {} {})", i, sort, text);
        if (!step.function.empty()) statement.declarations += fmt::format(" ; {} {}", step.function, step.operation);
        statement.declarations += "\n";
        if (step.kind != Kind::variable) continue;
        if (!words)
            statement.assumptions.push_back(
                {"amounts_are_not_negative", call(">=", term(static_cast<int>(i)), Term{"0"})});
        // A mutation is refuted by numbers that a person can check.
        if (max)
            statement.assumptions.push_back({"small", call(words ? "bvule" : "<=", term(static_cast<int>(i)),
                                                           words ? bit_vector(32, *max) : Term{std::to_string(*max)})});
    }
    for (const Named& each : content.assumed) statement.assumptions.push_back({each.name, term(each.step)});
    std::vector<Term> goals;
    for (const Named& each : content.shown) goals.push_back(term(each.step));
    statement.goal = conjunction(goals);
    statement.confirm = [content, mutated, name](const Assignment& values) {
        const auto result = evaluate(content, values);
        if (!result || !result->assumptions_hold || !result->fails) return std::string();
        // In combined lemmas, constants have the lemma's name as a prefix.
        const std::size_t dot = mutated ? result->fails->find('.') + 1 : 0;
        const std::string lemma = result->fails->substr(0, dot);
        std::string text = fmt::format("{}{} fails for", mutated ? name + " changed: " : "", *result->fails);
        for (const auto& [constant, value] : values)
            if (constant.starts_with(lemma)) text += fmt::format(" {} = {},", constant.substr(dot), value);
        text.pop_back();
        return text;
    };
    return statement;
}

std::optional<Lemma::Content> Lemma::changed(const std::string& function, int operation) const {
    Content content = content_;
    bool found = false;
    for (Step& step : content.steps) {
        if (step.function != function || step.operation != operation) continue;
        found = true;
        switch (step.kind) {
            case Kind::constant:
                ++step.constant;
                break;
            case Kind::add:
                step.kind = Kind::subtract;
                break;
            case Kind::subtract:
            case Kind::multiply:
                step.kind = Kind::add;
                break;
            case Kind::divide:
                step.kind = Kind::multiply;
                break;
            case Kind::less:
                std::swap(step.of[0], step.of[1]);
                break;
            case Kind::equal:
                step.kind = Kind::less;
                break;
            case Kind::both:
                step.kind = Kind::either;
                break;
            case Kind::either:
                step.kind = Kind::both;
                break;
            case Kind::bit_and:
            case Kind::bit_xor:
                step.kind = Kind::bit_or;
                break;
            case Kind::bit_or:
                step.kind = Kind::bit_xor;
                break;
            case Kind::negation:
                step.kind = Kind::both;
                step.of[1] = step.of[0];
                break;
            case Kind::select:
                std::swap(step.of[1], step.of[2]);
                break;
            case Kind::variable:
            case Kind::flag:
                ensure(false, "code declares nothing");
        }
    }
    return found ? std::optional(std::move(content)) : std::nullopt;
}

void Lemma::append(Content& to, Content content, const std::string& name) {
    ensure(to.steps.empty() || to.numbers == content.numbers, "a function runs on one kind of numbers");
    to.numbers = content.numbers;
    const int offset = static_cast<int>(to.steps.size());
    for (Step& step : content.steps) {
        for (int& operand : step.of) operand += offset;
        if (!step.name.empty()) step.name = fmt::format("{}.{}", name, step.name);
        to.steps.push_back(std::move(step));
    }
    const auto take = [&](Kind kind, int a, int b) {
        to.steps.push_back({.kind = kind, .of = {a, b}});
        return static_cast<int>(to.steps.size()) - 1;
    };
    std::optional<int> fails_assumption;
    for (const Named& each : content.assumed) {
        const int fails = take(Kind::negation, each.step + offset, 0);
        fails_assumption = fails_assumption ? take(Kind::either, *fails_assumption, fails) : fails;
    }
    for (const Named& each : content.shown)
        to.shown.push_back(
            {fmt::format("{}.{}", name, each.name),
             fails_assumption ? take(Kind::either, *fails_assumption, each.step + offset) : each.step + offset});
}

std::vector<Statement> Lemma::mutations(std::span<const std::unique_ptr<Lemma>> lemmas, std::uint64_t max) {
    std::vector<Statement> all;
    std::set<std::pair<std::string, int>> places;
    for (const auto& lemma : lemmas)
        for (const Step& step : lemma->content_.steps)
            if (!step.function.empty()) places.insert({step.function, step.operation});
    for (const auto& [function, operation] : places) {
        Content content;
        for (const auto& lemma : lemmas)
            if (auto changed = lemma->changed(function, operation)) append(content, std::move(*changed), lemma->name_);
        all.push_back(statement_of(content, fmt::format("{}_{}", function, operation), max));
        all.back().expected = SatResult::sat;
    }
    return all;
}

std::vector<Statement> Lemmas::statements() const {
    std::vector<Statement> all;
    for (const auto& lemma : lemmas_) all.push_back(lemma->statement());
    return all;
}

Obligation mutations_are_refuted(const std::string& file, std::vector<Statement> changes) {
    std::string scope = fmt::format("{}, {} mutations", file, changes.size());
    return {.name = "mutations_are_refuted",
            .sentence = "a change of any one operation of the index arithmetic breaks a proof",
            .scope = std::move(scope),
            .statements = std::move(changes),
            .settled = Obligation::Settled::by_every_example};
}

}  // namespace samesum
