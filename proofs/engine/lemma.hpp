// Numbers that are formulas: code that is a template over its integers runs on them, and what it did can be proved.
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

/// An integer of a lemma; Natural(n) is the constant n. Value type; the lemma must outlive it.
class SymbolicInteger {
public:
    explicit SymbolicInteger(std::uint64_t constant) : constant_(constant), written_(++constants_written) {}

private:
    friend class Lemma;
    SymbolicInteger(Lemma& lemma, int step) : lemma_(&lemma), step_(step) {}

    Lemma* lemma_ = nullptr;
    int step_ = 0;
    std::uint64_t constant_ = 0;
    std::uint64_t written_ = 0;  ///< tells a constant that is used twice from two constants
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

/// What a lemma's numbers are.
enum class Numbers : std::uint8_t {
    integers,  ///< unbounded; those that are declared are not negative
    words,     ///< of 32 bits, modulo 2^32, with operations on bits
};

/// What is assumed, what code makes of it, and what is to be shown. The steps of code are kept
/// apart from the words of the lemma: they can be changed one at a time, and then something must no longer hold.
class Lemma {
public:
    explicit Lemma(std::string name, Numbers numbers = Numbers::integers) : name_(std::move(name)) {
        content_.numbers = numbers;
    }
    Lemma(const Lemma&) = delete;
    Lemma& operator=(const Lemma&) = delete;

    [[nodiscard]] SymbolicInteger natural(std::string name);
    [[nodiscard]] Truth truth(std::string name);
    /// A constant that the lemma hands to the code, so that it is not taken for one of the code's.
    [[nodiscard]] SymbolicInteger constant(std::uint64_t value);
    void assume(std::string name, const Truth& what);
    void show(std::string name, const Truth& what);
    /// Runs a function of the code under proof, which must never divide by 0. A change of one of its operations changes
    /// every run of it.
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
    /// Of integers: also shows that no step of the code leaves [0, 2^64): what holds of integers then holds of
    /// std::uint64_t.
    void fits_64_bits();

    /// "What is assumed implies what is to be shown." A counterexample is evaluated, step by step, before it counts.
    [[nodiscard]] Statement statement() const;
    /// One for each operation of the code that the lemmas run: with it changed, one of them should have a
    /// counterexample, of numbers up to `most`.
    [[nodiscard]] static std::vector<Statement> planted(std::span<const std::unique_ptr<Lemma>> lemmas,
                                                        std::uint64_t max);

    /// What the steps come to for given values, in order: for tests.
    struct Values {
        bool assumptions_hold = false;
        std::optional<std::string> fails;  ///< the first thing to be shown that does not hold
    };
    /// Nothing where a step has no value: the lemma's own divisions by 0, or numbers beyond 2^125.
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
        bits_of_either,
        bits_that_differ,
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
        std::string function{};  ///< of the code that took it; empty for the lemma's own words
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
    /// The content with one operation of a function changed, or nothing when it has no such operation.
    [[nodiscard]] std::optional<Content> changed(const std::string& function, int operation) const;
    /// Adds what the content says, as things to be shown: what is assumed implies each of them.
    static void append(Content& to, Content content, const std::string& name);

    std::string name_;
    Content content_;
    std::string running_;
    int operation_ = 0;
    std::map<std::uint64_t, int> constants_;  ///< steps of those in use in the code that runs
};

/// 1 or 0.
[[nodiscard]] inline SymbolicInteger count_if(const Truth& holds) {
    return select(holds, SymbolicInteger(1), SymbolicInteger(0));
}

/// What one obligation states.
class Lemmas {
public:
    template <class Build>
    void add(std::string name, Build&& build, Numbers numbers = Numbers::integers) {
        lemmas_.push_back(std::make_unique<Lemma>(std::move(name), numbers));
        build(*lemmas_.back());
    }
    [[nodiscard]] std::vector<Statement> statements() const;
    /// Lemma::planted() of all.
    [[nodiscard]] std::vector<Statement> planted(std::uint64_t max = 1000) const {
        return Lemma::planted(lemmas_, max);
    }

private:
    std::vector<std::unique_ptr<Lemma>> lemmas_;
};

/// The obligation that each of the planted changes of a file is refuted.
[[nodiscard]] Obligation mutations_are_refuted(const std::string& file, std::vector<Statement> changes);

}  // namespace samesum
