// A side is a combine of the backend, the model's prediction, a movement of one row, or a tree of additions.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/compare.hpp"

#include "model/arithmetic/hop_arithmetic.hpp"
#include "model/support/error.hpp"

namespace samesum::fuzz {

std::vector<Bits> row_of(const Case& c, const Side& side, Backend& backend) {
    if (side.maker == Maker::tree) {
        const HopArithmetic hop(c.format);
        std::vector<Bits> row(c.hidden);
        row[c.column] = evaluate<Bits>(side.tree.value(), c.x, [&](Bits l, Bits r) { return hop.add(l, r); });
        return row;
    }
    const Partials partials(c, side);
    switch (side.maker) {
        case Maker::movement: {
            std::vector<Bits> row(c.hidden);
            const int from = side.contributors.empty() ? 0 : side.contributors.front();
            for (std::uint64_t column = 0; column < c.hidden; ++column)
                row[column] = partials.at(from, side.row, column);
            return row;
        }
        case Maker::prediction:
            return predicted_row(request_of(c, side), partials, side.row);
        default:
            return backend.combine_row(request_of(c, side), partials, side.row);
    }
}

Comparison compare(const Case& c, Backend& backend) {
    Comparison result;
    result.column = c.column;
    result.a = row_of(c, c.a, backend);
    // If the sides are equal, the call is made twice.
    if (c.a == c.b) backend.forget_results();
    result.b = row_of(c, c.b, backend);
    ensure(result.a.size() == c.hidden && result.b.size() == c.hidden, "a row has hidden elements");
    result.same = result.a == result.b;
    if (result.same && c.a.maker == Maker::combine && c.b.maker == Maker::prediction) {
        result.mismatch_elsewhere = backend.mismatch_elsewhere(request_of(c, c.a));
        result.same = !result.mismatch_elsewhere;
        return result;
    }
    if (result.same || result.a[c.column] != result.b[c.column]) return result;
    for (result.column = 0; result.a[result.column] == result.b[result.column];) ++result.column;
    return result;
}

Case with_column(const Case& c, std::uint64_t column) {
    if (column == c.column) return c;
    Case other = c;
    other.column = column;
    const Partials partials(c, c.a);
    for (std::size_t i = 0; i < c.x.size(); ++i)
        other.x[i] = partials.at(c.a.contributors.empty() ? static_cast<int>(i) : c.a.contributors[i], c.a.row, column);
    return other;
}

Case with_element(const Case& c, const Element& element) {
    Case other = c;
    other.column = element.column;
    other.a.row = other.b.row = element.row;
    const Partials partials(c, c.a);
    other.x.clear();
    other.a.contributors.clear();
    other.b.contributors.clear();
    for (int rank = 0; rank < c.a.ranks(); ++rank) other.x.push_back(partials.at(rank, element.row, element.column));
    return other;
}

}  // namespace samesum::fuzz
