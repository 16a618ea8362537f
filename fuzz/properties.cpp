// The table, what it takes to be a case of a property, and how such cases are drawn and shrunk.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/properties.hpp"

#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>

#include "fuzz/property_tables.hpp"
#include "fuzz/shrink.hpp"
#include "model/support/error.hpp"

namespace samesum::fuzz {

bool same_but_launch_mode(Side expected, const Side& b) {
    expected.launch_mode = b.launch_mode;
    return expected == b;
}

std::span<const Property> properties() {
    static const std::vector<Property> all = [] {
        std::vector<Property> table;
        for (const auto part :
             {properties_of_addition, properties_of_few_ranks, properties_of_invariance, properties_of_schemes})
            for (Property& property : part()) table.push_back(std::move(property));
        return table;
    }();
    return all;
}

const Property& property_named(std::string_view name) {
    const auto all = properties();
    const auto found = std::find_if(all.begin(), all.end(), [&](const Property& p) { return p.name == name; });
    if (found == all.end())
        throw UsageError(fmt::format("no property is called '{}'; samesum fuzz --list names them", name));
    return *found;
}

std::string objection(const Property& property, const Case& c) {
    std::string why = objection(c);
    return why.empty() ? property.objection(c) : why;
}

rc::Shrinkable<Case> shrinkable(const Property& property, Case c) {
    return rc::shrinkable::shrinkRecur(std::move(c), [&property](const Case& from) {
        // One after another: most are never asked for.
        return rc::seq::filter(rc::seq::fromContainer(simpler(from)),
                               [&property](const Case& each) { return objection(property, each).empty(); });
    });
}

bool fits(const Property& property, const Limits& limits) {
    if (!limits.allows_ranks(property.min_ranks, property.max_ranks)) return false;
    if (property.schemes.empty()) return limits.schemes.empty();
    return std::any_of(property.schemes.begin(), property.schemes.end(), [&](Scheme s) { return limits.allows(s); });
}

Case draw_case(const Property& property, Draw draw) {
    const bool live = draw.setup() != nullptr;
    const LaunchMode launch_mode = live ? draw_launch_mode(draw) : LaunchMode{};
    Case c = property.draw(draw);
    c.property = property.name;
    c.a.launch_mode = launch_mode;
    if (live) c.b.launch_mode = draw_launch_mode(draw);
    return c;
}

rc::Gen<Case> cases(const Property& property, const Limits& limits) {
    return [&property, limits](const rc::Random& random, int size) {
        return shrinkable(property, draw_case(property, Draw(random, size, &limits)));
    };
}

}  // namespace samesum::fuzz
