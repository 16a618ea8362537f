// Text mutated from seeds, the same on every machine: a parser may accept it or reject it with a one-line error.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "model/support/error.hpp"

namespace samesum {

/// splitmix64.
struct Mutator {
    std::uint64_t state;

    std::uint64_t below(std::uint64_t bound) {
        std::uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return (z ^ (z >> 31)) % bound;
    }
    std::string operator()(const std::vector<std::string>& seeds) {
        std::string text = seeds[below(seeds.size())];
        for (std::uint64_t edits = 1 + below(4); edits > 0; --edits) {
            const std::size_t place = below(text.size() + 1);
            switch (below(7)) {
                case 0:
                    text.insert(place, 1, static_cast<char>(below(256)));
                    break;
                case 1:
                    text.erase(place, 1 + below(8));
                    break;
                case 2:
                    if (place < text.size()) text[place] = static_cast<char>(below(256));
                    break;
                case 3:
                    if (place < text.size()) text[place] = "0123456789-/>[]:= \n\"'{}"[below(23)];
                    break;
                case 4:
                    text.insert(place, text.substr(below(text.size() + 1), 1 + below(200)));
                    break;
                case 5:
                    text.insert(place, std::to_string(static_cast<std::int64_t>(below(~std::uint64_t{0}) -
                                                                                (std::uint64_t{1} << 62))));
                    break;
                default:
                    text.resize(place);
            }
        }
        return text;
    }
};

/// Runs `parse` on `cases` mutants; returns the numbers of accepted and rejected mutants.
template <class Parse>
std::pair<int, int> mutate(const std::vector<std::string>& seeds, std::uint64_t seed, int cases, Parse&& parse) {
    Mutator mutator{seed};
    int parsed = 0, refused = 0;
    for (int i = 0; i < cases; ++i) {
        const std::string text = mutator(seeds);
        try {
            parse(text);
            ++parsed;
        } catch (const UsageError& error) {
            ++refused;
            const std::string what = error.what();
            if (what.empty() || what.find('\n') != std::string::npos)
                BOOST_ERROR("mutant " << i << " of seed " << seed << ": not one line: " << what);
        } catch (const std::exception& error) {
            BOOST_ERROR("mutant " << i << " of seed " << seed << ": " << error.what() << "\n" << text.substr(0, 400));
        }
    }
    return {parsed, refused};
}

}  // namespace samesum
