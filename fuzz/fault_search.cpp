// Each fault is searched for with the property that has to catch it.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fault_search.hpp"

#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>

#include "fuzz/campaign.hpp"
#include "fuzz/compare.hpp"
#include "model/support/error.hpp"

namespace samesum::fuzz {

std::vector<FaultSearch> search_faults(std::uint64_t seed, std::uint64_t max_cases) {
    std::vector<FaultSearch> searches;
    for (const Fault& fault : faults()) {
        FaultSearch search;
        search.fault = &fault;
        const Property& property = property_named(fault.property);
        const std::unique_ptr<Backend> backend = fault.plant();
        while (!search.caught && search.cases < max_cases) {
            const Case c = case_of(property, seed, search.cases++).value();
            const Comparison result = compare(c, *backend);
            search.caught = !result.same;
            if (search.caught) search.example = with_column(c, result.column);
        }
        searches.push_back(std::move(search));
    }
    return searches;
}

std::vector<FaultSearch> search_faults_of_ranks(Backend& backend, std::uint64_t seed, std::uint64_t max_cases) {
    std::vector<FaultSearch> searches;
    for (const Fault& fault : faults_of_ranks()) {
        FaultSearch search;
        search.fault = &fault;
        const Property& property = property_named(fault.property);
        Limits limits;
        limits.schemes = fault.schemes;
        backend.plant(fault.name);
        int failures = 0;
        for (std::uint64_t index = 0; !search.caught && search.cases < max_cases; ++index) {
            if (index % round_cases == 0) limits.setup = backend.open_setup(index / round_cases % backend.setups());
            try {
                if (!limits.setup) throw Unavailable{};
                const Case c = case_on_ranks(property, seed, index, limits);
                ++search.cases;
                const Comparison result = compare(c, backend);
                search.caught = !result.same;
                if (search.caught) search.example = with_column(c, result.column);
            } catch (const Unavailable&) {
                if (index > 100 * max_cases) break;
            } catch (const Refused&) {
            } catch (const Inconclusive& reason) {
                // Ranks may die for any reason; only wrong bits count as caught.
                fmt::print(stderr, "samesum fuzz: {}: {}\n", fault.name, reason.what());
                if (++failures >= max_failures_in_a_row) break;
            }
        }
        searches.push_back(std::move(search));
    }
    backend.plant("none");
    return searches;
}

Evidence evidence_of(std::span<const FaultSearch> searches) {
    std::string survivors;
    std::uint64_t caught = 0, slowest = 0;
    for (const FaultSearch& search : searches) {
        caught += search.caught;
        slowest = std::max(slowest, search.cases);
        if (!search.caught)
            survivors += fmt::format("{}{}", survivors.empty() ? "survived: " : ", ", search.fault->name);
    }
    return {.claim = "planted_faults_are_caught",
            .sentence = "backends that are wrong on purpose are told from right ones",
            .scope = fmt::format("{} faults", searches.size()),
            .expected = Verdict::upheld,
            .verdict = searches.empty()    ? Verdict::inconclusive
                       : survivors.empty() ? Verdict::upheld
                                           : Verdict::refuted,
            .decided_by = fmt::format("{} of {} caught within {} cases", caught, searches.size(), slowest),
            .detail = survivors,
            .witness = survivors,
            .replay = survivors.empty() ? "" : "samesum fuzz --self-test",
            .seconds = 0};
}

}  // namespace samesum::fuzz
