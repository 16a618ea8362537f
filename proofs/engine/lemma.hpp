// Symbolic integers: code that is a template over its integer type runs on them, and its result becomes a proof goal.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proofs/engine/obligation.hpp"

namespace samesum {

class Lemma;
class Truth;

/// An integer of a lemma; SymbolicInteger(n) is the constant n. Value type; the lemma must outlive it.
class SymbolicInteger {
public:
    explicit SymbolicInteger(std::uint64_t constant) : constant_(constant), written_(++constants_written) {}

private:
    friend class Lemma;
    SymbolicInteger(Lemma& lemma, int step) : lemma_(&lemma), step_(step) {}

    Lemma* lemma_ = nullptr;
    int step_ = 0;
    std::uint64_t constant_ = 0;
    std::uint64_t written_ = 0;  ///< distinguishes one constant used twice from two constants
    inline static std::uint64_t constants_written = 0;

    friend SymbolicInteger operator+(const SymbolicInteger&, const SymbolicInteger&);
    friend SymbolicInteger operator-(const SymbolicInteger&, const SymbolicInteger&);
    friend SymbolicInteger operator*(const SymbolicInteger&, const SymbolicInteger&);
    friend SymbolicInteger operator/(const SymbolicInteger&, const SymbolicInteger&);
    friend SymbolicInteger operator&(const SymbolicInteger&, const SymbolicInteger&);
    friend SymbolicInteger operator|(const SymbolicInteger&, const SymbolicInteger&);
    friend SymbolicInteger operator^(const SymbolicInteger&, const SymbolicInteger&);
    friend class Truth;
    friend Truth operator<(const SymbolicInteger&, const SymbolicInteger&);
    friend Truth operator==(const SymbolicInteger&, const SymbolicInteger&);
    friend SymbolicInteger select(const Truth&, const SymbolicInteger&, const SymbolicInteger&);
};

/// A truth value of a lemma.
class Truth {
    friend class Lemma;
    Truth(Lemma& lemma, int step) : lemma_(&lemma), step_(step) {}

    Lemma* lemma_;
    int step_;

    friend Truth operator<(const SymbolicInteger&, const SymbolicInteger&);
    friend Truth operator==(const SymbolicInteger&, const SymbolicInteger&);
    friend Truth operator&&(const Truth&, const Truth&);
    friend Truth operator||(const Truth&, const Truth&);
    friend Truth operator!(const Truth&);
    friend SymbolicInteger select(const Truth&, const SymbolicInteger&, const SymbolicInteger&);
};

inline Truth operator>(const SymbolicInteger& a, const SymbolicInteger& b) { return b < a; }
inline Truth operator<=(const SymbolicInteger& a, const SymbolicInteger& b) { return !(b < a); }
inline Truth operator>=(const SymbolicInteger& a, const SymbolicInteger& b) { return !(a < b); }
inline Truth operator!=(const SymbolicInteger& a, const SymbolicInteger& b) { return !(a == b); }
inline Truth implies(const Truth& a, const Truth& b) { return !a || b; }
inline Truth operator==(const Truth& a, const Truth& b) { return implies(a, b) && implies(b, a); }

/// The number type of a lemma.
enum class Numbers : std::uint8_t {
    integers,  ///< unbounded; declared ones are not negative
    words,     ///< 32 bits, modulo 2^32, with bit operations
};

/// Assumptions, the steps that code performs, and goals. The steps of the code are kept apart from those of the lemma
/// itself: each can be mutated, and then some goal must fail.
class Lemma {
public:
    explicit Lemma(std::string name, Numbers numbers = Numbers::integers) : name_(std::move(name)) {
        content_.numbers = numbers;
    }
    Lemma(const Lemma&) = delete;
    Lemma& operator=(const Lemma&) = delete;

    [[nodiscard]] SymbolicInteger natural(std::string name);
    [[nodiscard]] Truth truth(std::string name);
    /// A constant that the lemma passes to the code, so that it does not count as one of the code's.
    [[nodiscard]] SymbolicInteger constant(std::uint64_t value);
    void assume(std::string name, const Truth& what);
    void show(std::string name, const Truth& what);
    /// Runs a function of the code under proof, which must never divide by 0. A mutation of one of its operations
    /// applies to every run.
    template <class Call>
    auto code(std::string_view function, Call&& call) {
        running_ = function;
        operation_ = 0;
        const std::size_t first = content_.steps.size();
        auto result = call();
        running_.clear();
        constants_.clear();
        divides_by_no_0(first);
        return result;
    }
    /// For integers: adds the goal that every step of the code stays in [0, 2^64), so that what holds for integers also
    /// holds for std::uint64_t.
    void fits_64_bits();

    /// "The assumptions imply the goals." A counterexample is evaluated, step by step, before it counts.
    [[nodiscard]] Statement statement() const;
    /// One statement for each operation of the code that the lemmas run: with it mutated, one of the lemmas should have
    /// a counterexample, of numbers up to `max`.
    [[nodiscard]] static std::vector<Statement> mutations(std::span<const std::unique_ptr<Lemma>> lemmas,
                                                          std::uint64_t max);

    /// The lemma evaluated for given values: for tests.
    struct Values {
        bool assumptions_hold = false;
        std::optional<std::string> fails;  ///< the first goal that does not hold
    };
    /// Nothing if a step has no value: the lemma's own divisions by 0, or numbers beyond 2^125.
    [[nodiscard]] std::optional<Values> evaluate(const Assignment& values) const;

private:
    enum class Kind : std::uint8_t {
        constant,
        variable,
        flag,
        add,
        subtract,
        multiply,
        divide,
        bit_and,
        bit_or,
        bit_xor,
        less,
        equal,
        both,
        either,
        negation,
        select
    };
    struct Step {
        Kind kind;
        std::array<int, 3> of{};
        std::uint64_t constant = 0;
        std::string name{};      ///< of a variable or flag
        std::string function{};  ///< of the code that performs it; empty for the lemma's own steps
        int operation = 0;       ///< its number within that function
    };
    struct Named {
        std::string name;
        int step;
    };
    struct Content {
        Numbers numbers = Numbers::integers;
        std::vector<Step> steps;
        std::vector<Named> assumed, shown;
    };

    friend class SymbolicInteger;
    friend SymbolicInteger operator+(const SymbolicInteger&, const SymbolicInteger&);
    friend SymbolicInteger operator-(const SymbolicInteger&, const SymbolicInteger&);
    friend SymbolicInteger operator*(const SymbolicInteger&, const SymbolicInteger&);
    friend SymbolicInteger operator/(const SymbolicInteger&, const SymbolicInteger&);
    friend SymbolicInteger operator&(const SymbolicInteger&, const SymbolicInteger&);
    friend SymbolicInteger operator|(const SymbolicInteger&, const SymbolicInteger&);
    friend SymbolicInteger operator^(const SymbolicInteger&, const SymbolicInteger&);
    friend Truth operator<(const SymbolicInteger&, const SymbolicInteger&);
    friend Truth operator==(const SymbolicInteger&, const SymbolicInteger&);
    friend Truth operator&&(const Truth&, const Truth&);
    friend Truth operator||(const Truth&, const Truth&);
    friend Truth operator!(const Truth&);
    friend SymbolicInteger select(const Truth&, const SymbolicInteger&, const SymbolicInteger&);

    static SymbolicInteger number(Kind kind, const SymbolicInteger& a, const SymbolicInteger& b);
    static Truth comparison(Kind kind, const SymbolicInteger& a, const SymbolicInteger& b);
    int take(Step step);
    void divides_by_no_0(std::size_t first);
    int step_of(const SymbolicInteger& number);
    static Statement statement_of(const Content& content, const std::string& name,
                                  std::optional<std::uint64_t> max = {});
    static std::optional<Values> evaluate(const Content& content, const Assignment& values);
    /// The content with one operation of a function mutated, or nothing when it has no such operation.
    [[nodiscard]] std::optional<Content> changed(const std::string& function, int operation) const;
    /// Adds the content's goals, each as "the assumptions imply it".
    static void append(Content& to, Content content, const std::string& name);

    std::string name_;
    Content content_;
    std::string running_;
    int operation_ = 0;
    std::map<std::uint64_t, int> constants_;  ///< their steps in the code that runs now
};

/// 1 or 0.
[[nodiscard]] inline SymbolicInteger count_if(const Truth& holds) {
    return select(holds, SymbolicInteger(1), SymbolicInteger(0));
}

/// The lemmas of one obligation.
class Lemmas {
public:
    template <class Build>
    void add(std::string name, Build&& build, Numbers numbers = Numbers::integers) {
        lemmas_.push_back(std::make_unique<Lemma>(std::move(name), numbers));
        build(*lemmas_.back());
    }
    [[nodiscard]] std::vector<Statement> statements() const;
    /// Lemma::mutations() of all.
    [[nodiscard]] std::vector<Statement> mutations(std::uint64_t max = 1000) const {
        return Lemma::mutations(lemmas_, max);
    }

private:
    std::vector<std::unique_ptr<Lemma>> lemmas_;
};

/// The obligation that each mutation of a file is refuted.
[[nodiscard]] Obligation mutations_are_refuted(const std::string& file, std::vector<Statement> mutations);

}  // namespace samesum
