// The loop is ours, the cases RapidCheck's: its own loop stops at one finding, takes options from the environment, and
// calls a case that wavers an error, where for us it is the finding.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/campaign.hpp"

#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "model/sum/rounding_steps.hpp"
#include "model/sum/witness.hpp"
#include "model/support/error.hpp"
#include "model/support/progress.hpp"

namespace samesum::fuzz {
namespace {

constexpr int reruns = 3;
/// Ranks that died or hung so often in a row will do so again; each time costs a minute.
constexpr int max_troubles = 3;
constexpr std::uint64_t round_cases = 64;

std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

std::uint64_t digest_of(std::uint64_t digest, std::span<const Bits> bits) {
    for (const Bits each : bits) digest = mixed(digest ^ each) + 0x9e3779b97f4a7c15;
    return digest;
}

std::uint64_t hash_of(std::string_view text) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return hash;
}

/// As case_of(), but several cases in a row have side a in common. `attempt`: another one in its place.
Case live_case(const Property& property, std::uint64_t seed, std::uint64_t index, const Limits& limits,
               std::uint64_t attempt = 0) {
    // Calls are dear, and a round of them has few data: what cannot tell orders apart is drawn anew, twice at most. The
    // data are side a's, so cases that have it in common agree about that.
    constexpr std::uint64_t in_common = 8, redraws = 2;
    const std::uint64_t first = index / in_common * in_common;
    for (std::uint64_t redraw = 0;; ++redraw) {
        const rc::Random a(rc::Random::Key{seed, hash_of(property.name), first, 1 + (redraw << 32)});
        const rc::Random b(rc::Random::Key{seed, hash_of(property.name), index, 2 + attempt + (redraw << 32)});
        // Properties that do not share a side draw each case anew.
        Case c = draw_case(property, property.shares_side ? Draw(a, b, static_cast<int>(1 + first % 100), &limits)
                                                          : Draw(b, static_cast<int>(1 + index % 100), &limits));
        if (!property.of_orders || redraw == redraws || tells_orders(c)) return c;
    }
}

/// Every so many cases one is chosen among a few: the one that reaches what this property has reached least. What has
/// been reached depends on seed, shard and the cases before it, and on nothing else.
constexpr std::uint64_t guided_every = 8, candidates = 6;

Case draw_case(const Tally& tally, const CampaignOptions& options, const Limits& limits, std::uint64_t index) {
    const Property& property = *tally.property;
    const auto draw = [&](std::uint64_t attempt) {
        if (limits.world) return live_case(property, options.seed, index, limits, attempt);
        const rc::Random random(rc::Random::Key{options.seed, hash_of(property.name), index, attempt});
        return fuzz::draw_case(property, Draw(random, static_cast<int>(1 + index % 100), &limits));
    };
    Case best = draw(0);
    if (!options.guided || index % guided_every != guided_every - 1) return best;
    const auto reached = [&](const Case& c) {
        std::uint64_t min = ~std::uint64_t{0};
        for (const Side* side : {&c.a, &c.b})
            if (const auto combination = fuzz::combination(c, *side)) {
                const auto known = tally.combinations.find(*combination);
                min = std::min(min, known == tally.combinations.end() ? 0 : known->second);
            }
        return min;
    };
    std::uint64_t min = reached(best);
    for (std::uint64_t attempt = 1; attempt < candidates && min > 0; ++attempt) {
        Case other = draw(attempt);
        const std::uint64_t times = reached(other);
        if (times >= min) continue;
        min = times;
        best = std::move(other);
    }
    return best;
}

void try_case(Tally& tally, const CampaignOptions& options, const Limits& limits, std::uint64_t index,
              Backend& backend) {
    const Property& property = *tally.property;
    std::optional<Case> drawn;
    try {
        drawn = draw_case(tally, options, limits, index);
    } catch (const NotHere&) {
        ++tally.unfit;
        return;
    }
    const Case& c = *drawn;
    Comparison result;
    try {
        result = compare(c, backend);
    } catch (const Refused&) {
        ++tally.refused;
        return;
    } catch (const Inconclusive& reason) {
        throw Inconclusive(fmt::format("{}\n  case: {}", reason.what(), str(c)));
    }
    ++tally.cases;
    tally.digest = digest_of(digest_of(digest_of(tally.digest, c.x), result.a), result.b);
    if (property.of_orders) tally.order_sensitive += tells_orders(c);
    for (const std::string_view label : classes(c)) ++tally.classes[label];
    for (const Side* side : {&c.a, &c.b})
        if (const auto reached = combination(c, *side)) ++tally.combinations[*reached];
    if (result.same) return;
    ++tally.differing;
    if (tally.finding) return;
    const std::string stray = objection(property, c);
    ensure(stray.empty(), "generated cases are cases of their property");
    if (result.stray)
        tally.finding = investigate(shrinkable(property, about_element(c, *result.stray)), backend);
    else
        tally.finding = investigate(shrinkable(property, about_column(c, result.column)), backend,
                                    Seen{result.a[result.column], result.b[result.column]});
}

/// What could have made these bits of the case's element.
struct Explanation {
    bool as_modelled = false;
    std::string what;
};

Explanation explain(const Case& c, const Side& side, Bits bits) {
    if (side.maker != Maker::combine) return {true, {}};
    if (!side.seats.empty()) return {true, {}};  // the leaves are spread over other ranks
    const Accumulation accumulation = side.scheme == Scheme::exact ? Accumulation::exact : side.accumulation;
    const bool rounds_once = is_ordered(side.scheme) || side.scheme == Scheme::exact;
    const ReductionTree own = tree_of(c, side);
    const auto sum = [&](const ReductionTree& tree, Accumulation how) {
        return sum_element({.format = c.format, .accumulation = how}, tree, c.x);
    };
    if (sum(own, rounds_once ? accumulation : Accumulation::per_hop) == bits) return {true, {}};
    if (c.x.size() <= 7) {
        const auto trees = all_trees(static_cast<int>(c.x.size()));
        for (const ReductionTree& tree : trees)
            if (sum(tree, Accumulation::per_hop) == bits) return {false, "another order, such as " + tree.str()};
        for (const ReductionTree& tree : trees)
            if (sum(tree, Accumulation::fp32_once) == bits)
                return {false, "float32 sums rounded once, such as " + tree.str()};
    }
    if (exact_sum(c.format, c.x) == bits) return {false, "the exact sum rounded once"};
    return {false, c.x.size() <= 7 ? "no order makes these bits: corruption or a race" : "not the modelled order"};
}

/// The first addition of each side that the other one does not make.
std::string first_additions_apart(const Case& c, const ReductionTree& a, const ReductionTree& b) {
    const SumRule rule{.format = c.format};
    const auto steps_of_a = samesum::explain(rule, a.canonical(), c.x).steps;
    const auto steps_of_b = samesum::explain(rule, b.canonical(), c.x).steps;
    const auto first = [](const std::vector<RoundingStep>& own, const std::vector<RoundingStep>& other) {
        for (const RoundingStep& step : own)
            if (std::none_of(other.begin(), other.end(), [&](const auto& each) { return each.what == step.what; }))
                return fmt::format("{}: {} makes {}", step.what, step.values, decimal(step.format, step.result));
        return std::string("none");
    };
    return fmt::format("first addition apart: a {}; b {}", first(steps_of_a, steps_of_b),
                       first(steps_of_b, steps_of_a));
}

std::string where(const Case& c, const Side& side) {
    if (side.maker == Maker::tree) return side.tree->str();
    if (side.maker == Maker::movement)
        return fmt::format("rank {}'s row as it is", side.seats.empty() ? 0 : side.seats[0]);
    const int owner = routing_of(c, side).owner(side.row);
    return fmt::format("{}{}, sizes {}, row {} (owner {})", side.maker == Maker::prediction ? "predicted: " : "",
                       name(side.scheme), str_sizes(side.sizes), side.row, owner);
}

std::string quoted(const Case& c, const Backend& backend) {
    return fmt::format("samesum fuzz {}--replay '{}'", backend.flags(), str(c));
}

}  // namespace

bool Tally::vacuous() const { return property->of_orders && order_sensitive * 10 < cases; }

rc::Shrinkable<Case> case_of(const Property& property, std::uint64_t seed, std::uint64_t index, const Limits& limits) {
    const rc::Random random(rc::Random::Key{seed, hash_of(property.name), index, 0});
    return cases(property, limits)(random, static_cast<int>(1 + index % 100));
}

std::string tell(const Case& c, Backend& backend) {
    const Comparison result = compare(c, backend);
    const Bits a = result.a[c.column], b = result.b[c.column];
    const Explanation of_a = explain(c, c.a, a), of_b = explain(c, c.b, b);
    const bool by_order = of_a.as_modelled && of_b.as_modelled && a != b && c.a.maker != Maker::movement &&
                          c.b.maker != Maker::movement && c.a.seats.empty() && c.b.seats.empty() &&
                          c.a.scheme != Scheme::exact && c.b.scheme != Scheme::exact &&
                          c.a.accumulation == Accumulation::per_hop && c.b.accumulation == Accumulation::per_hop;
    if (by_order) {
        std::string label_a = where(c, c.a), label_b = where(c, c.b);
        const ReductionTree tree_a = tree_of(c, c.a), tree_b = tree_of(c, c.b);
        return fmt::format("{}\n{}", tell_apart(tree_a, tree_b, c.format, c.x, label_a, label_b),
                           first_additions_apart(c, tree_a, tree_b));
    }
    std::string text = str_leaves(c.format, c.x);
    for (const auto& [letter, side, bits, why] : {std::tuple{'a', &c.a, a, &of_a}, std::tuple{'b', &c.b, b, &of_b}}) {
        text += fmt::format("\n{}: {} makes {} ({})", letter, where(c, *side), decimal(c.format, bits),
                            hex(c.format, bits));
        if (side->maker == Maker::combine || side->maker == Maker::prediction)
            text += fmt::format("\n   modelled order {}", tree_of(c, *side).str());
        if (!why->as_modelled) text += fmt::format("\n   seen: {}", why->what);
    }
    return text;
}

Finding investigate(const rc::Shrinkable<Case>& found, Backend& backend, std::optional<Seen> seen) {
    Finding finding;
    finding.original = finding.minimal = found.value();
    finding.replay = quoted(finding.original, backend);
    const Case& original = finding.original;
    for (int i = 0; i <= reruns; ++i) {
        backend.forget();
        const Comparison result = compare(original, backend);
        const Seen again{result.a[original.column], result.b[original.column]};
        if (!seen) seen = again;
        // An element that was wrong and is right now wavers, too.
        const bool differs = again.a != again.b;
        if (*seen == again && differs) continue;
        finding.repeats = false;
        finding.kind = "run-to-run";
        const auto pattern = [&](Bits bits) { return hex(original.format, bits); };
        finding.text =
            fmt::format("the same call made {} and then {} on side a, {} and then {} on side b\ncase: {}",
                        pattern(seen->a), pattern(again.a), pattern(seen->b), pattern(again.b), str(original));
        return finding;
    }
    rc::Shrinkable<Case> smallest = found;
    // What the model explains is made small on the model, which is a thousand times as fast as ranks, and then seen on
    // the ranks once more. Those have the communicators that they have: settings stay as they were found.
    ModelBackend model;
    const bool explained = backend.worlds() > 0 && explain(original, original.a, seen->a).as_modelled &&
                           explain(original, original.b, seen->b).as_modelled;
    Backend& quick = explained ? static_cast<Backend&>(model) : backend;
    const auto same_ranks = [](const Side& side, const Side& as) {
        return side.ranks() == as.ranks() && side.rings == as.rings && side.ranks_per_node == as.ranks_per_node &&
               side.protocol == as.protocol && side.algorithm == as.algorithm;
    };
    const auto fits = [&](const Case& c) {
        return !explained || (same_ranks(c.a, original.a) && same_ranks(c.b, original.b));
    };
    const Effort effort = quick.effort();
    const double until = monotonic_seconds() + effort.seconds;
    std::size_t tries = 0;
    const auto differs = [&](const Case& c) {
        try {
            // The differing column stays the case's own, so that x stays what makes the difference.
            const Comparison result = compare(c, quick);
            return result.a[c.column] != result.b[c.column];
        } catch (const Inconclusive&) {
            return false;  // real ranks cannot have every simpler case
        }
    };
    for (bool smaller = true; smaller;) {
        smaller = false;
        auto shrinks = smallest.shrinks();
        while (auto next = shrinks.next()) {
            if (++tries > effort.tries || monotonic_seconds() > until) break;
            if (!fits(next->value()) || !differs(next->value())) continue;
            smallest = *next;
            smaller = true;
            ++finding.steps;
            break;
        }
    }
    finding.minimal = smallest.value();
    if (explained) {
        const Comparison confirmed = compare(finding.minimal, backend);
        if (confirmed.a[finding.minimal.column] == confirmed.b[finding.minimal.column]) finding.minimal = original;
    }
    finding.replay = quoted(finding.minimal, backend);
    const Case& c = finding.minimal;
    const Comparison result = compare(c, backend);
    const Explanation a = explain(c, c.a, result.a[c.column]), b = explain(c, c.b, result.b[c.column]);
    finding.kind = a.as_modelled && b.as_modelled ? "order change" : !a.as_modelled ? a.what : b.what;
    finding.text = fmt::format("{}\ncase: {}", tell(c, backend), str(c));
    for (const auto& [side, letter] : {std::pair{&c.a, 'a'}, std::pair{&c.b, 'b'}}) {
        backend.forget();
        static_cast<void>(row_of(c, *side, backend));
        if (const std::string said = backend.said(); !said.empty() && side->maker == Maker::combine)
            finding.text += fmt::format("\n{}: NCCL said: {}", letter, said);
    }
    return finding;
}

std::vector<Tally> run_campaign(const CampaignOptions& options) {
    ensure(options.cases.has_value() || options.seconds.has_value(), "a campaign has a budget");
    ensure(options.shard < options.shards && options.jobs >= 1, "a shard is one of the shards");
    std::vector<Tally> tallies(options.properties.size());
    for (std::size_t i = 0; i < tallies.size(); ++i) tallies[i].property = options.properties[i];
    std::vector<std::shared_ptr<Backend>> backends;
    for (int i = 0; i < options.jobs; ++i) backends.push_back(options.backend());
    const double began = monotonic_seconds();
    const std::uint64_t max = options.cases.value_or(~std::uint64_t{0});
    const std::size_t worlds = backends.front()->worlds();
    ensure(worlds == 0 || options.jobs == 1, "real ranks are asked by one thread");
    int troubles = 0;
    std::size_t closed = 0;  // worlds in a row that could not be opened
    std::string given_up;
    // Rounds, so that every property has had its turn whenever the time is up.
    for (std::uint64_t first = 0; first < max; first += round_cases) {
        Limits limits = options.limits;
        if (worlds > 0) {
            // A round for each world in turn.
            limits.world = backends.front()->enter(first / round_cases % worlds);
            if (!limits.world && ++closed < worlds) continue;
            if (!limits.world) break;
            closed = 0;
        }
        const std::uint64_t last = first + std::min(round_cases, max - first);
        std::atomic<std::size_t> next{0};
        std::exception_ptr failure;
        std::mutex guard;
        const auto work = [&](Backend& backend) {
            try {
                for (std::size_t i = next++; i < tallies.size(); i = next++) {
                    Tally& tally = tallies[i];
                    if (!tally.trouble.empty() || !given_up.empty()) continue;
                    const double start = monotonic_seconds();
                    try {
                        for (std::uint64_t index = first; index < last; ++index)
                            if (index % options.shards == options.shard)
                                try_case(tally, options, limits, index, backend);
                        if (tally.cases > 0) troubles = 0;
                    } catch (const Inconclusive& reason) {
                        tally.trouble = reason.what();
                        if (worlds > 0 && ++troubles >= max_troubles) given_up = reason.what();
                    }
                    tally.seconds += monotonic_seconds() - start;
                    // A round on real ranks takes many seconds.
                    if (worlds > 0 && options.progress) options.progress(tallies);
                }
            } catch (...) {
                const std::lock_guard lock(guard);
                failure = std::current_exception();
            }
        };
        std::vector<std::thread> threads;
        for (std::size_t i = 1; i < backends.size(); ++i) threads.emplace_back(work, std::ref(*backends[i]));
        work(*backends.front());
        for (std::thread& thread : threads) thread.join();
        if (failure) std::rethrow_exception(failure);
        if (options.progress) options.progress(tallies);
        if (!given_up.empty()) {
            for (Tally& tally : tallies)
                if (tally.trouble.empty()) tally.trouble = "given up: " + given_up;
            break;
        }
        if (options.seconds && monotonic_seconds() - began >= *options.seconds) break;
    }
    return tallies;
}

std::vector<FaultSearch> hunt_faults(std::uint64_t seed, std::uint64_t max_cases) {
    std::vector<FaultSearch> hunts;
    for (const Fault& fault : faults()) {
        FaultSearch hunt;
        hunt.fault = &fault;
        const Property& property = property_named(fault.property);
        const std::unique_ptr<Backend> backend = fault.plant();
        while (!hunt.caught && hunt.cases < max_cases) {
            const Case c = case_of(property, seed, hunt.cases++).value();
            const Comparison result = compare(c, *backend);
            hunt.caught = !result.same;
            if (hunt.caught) hunt.example = about_column(c, result.column);
        }
        hunts.push_back(std::move(hunt));
    }
    return hunts;
}

std::vector<FaultSearch> hunt_faults_of_ranks(Backend& backend, std::uint64_t seed, std::uint64_t max_cases) {
    std::vector<FaultSearch> hunts;
    for (const Fault& fault : faults_of_ranks()) {
        FaultSearch hunt;
        hunt.fault = &fault;
        const Property& property = property_named(fault.property);
        Limits limits;
        limits.schemes = fault.schemes;
        backend.plant(fault.name);
        int deaths = 0;
        for (std::uint64_t index = 0; !hunt.caught && hunt.cases < max_cases; ++index) {
            if (index % round_cases == 0) limits.world = backend.enter(index / round_cases % backend.worlds());
            try {
                if (!limits.world) throw NotHere{};
                const Case c = live_case(property, seed, index, limits);
                ++hunt.cases;
                const Comparison result = compare(c, backend);
                hunt.caught = !result.same;
                if (hunt.caught) hunt.example = about_column(c, result.column);
            } catch (const NotHere&) {
                if (index > 100 * max_cases) break;
            } catch (const Refused&) {
            } catch (const Inconclusive& reason) {
                // Ranks may die of anything; wrong bits alone are a catch.
                fmt::print(stderr, "samesum fuzz: {}: {}\n", fault.name, reason.what());
                if (++deaths >= max_troubles) break;
            }
        }
        hunts.push_back(std::move(hunt));
    }
    backend.plant("none");
    return hunts;
}

Evidence evidence_of(const Tally& tally, std::string_view backend) {
    const Property& property = *tally.property;
    Evidence evidence{.claim = property.name,
                      .sentence = property.sentence,
                      .scope = property.scope,
                      .expected = property.expected,
                      .verdict = tally.differing > 0 ? Verdict::refuted : Verdict::upheld,
                      .decided_by = fmt::format("{} cases on the {}", tally.cases, backend),
                      .detail = {},
                      .witness = {},
                      .replay = {},
                      .seconds = tally.seconds};
    if (property.of_orders)
        evidence.detail = fmt::format("{:.0f} % of the cases can tell orders apart",
                                      100.0 * static_cast<double>(tally.order_sensitive) /
                                          static_cast<double>(std::max<std::uint64_t>(tally.cases, 1)));
    if (tally.finding) {
        evidence.detail = fmt::format("{} of {} cases differ; {}", tally.differing, tally.cases, tally.finding->kind);
        evidence.witness = tally.finding->text;
        evidence.replay = tally.finding->replay;
    } else if (!tally.trouble.empty()) {
        evidence.verdict = Verdict::inconclusive;
        evidence.detail = tally.trouble;
    } else if (tally.cases == 0) {
        evidence.verdict = Verdict::inconclusive;
        evidence.detail = "empty: no case was tried";
    } else if (tally.vacuous()) {
        evidence.verdict = Verdict::inconclusive;
        evidence.detail = "vacuous: " + evidence.detail + ", fewer than 10 %";
    }
    return evidence;
}

Evidence evidence_of(std::span<const FaultSearch> hunts) {
    std::string survivors;
    std::uint64_t caught = 0, slowest = 0;
    for (const FaultSearch& hunt : hunts) {
        caught += hunt.caught;
        slowest = std::max(slowest, hunt.cases);
        if (!hunt.caught) survivors += fmt::format("{}{}", survivors.empty() ? "survived: " : ", ", hunt.fault->name);
    }
    return {.claim = "planted_faults_are_caught",
            .sentence = "backends that are wrong on purpose are told from right ones",
            .scope = fmt::format("{} faults", hunts.size()),
            .expected = Verdict::upheld,
            .verdict = hunts.empty()       ? Verdict::inconclusive
                       : survivors.empty() ? Verdict::upheld
                                           : Verdict::refuted,
            .decided_by = fmt::format("{} of {} caught within {} cases", caught, hunts.size(), slowest),
            .detail = survivors,
            .witness = survivors,
            .replay = survivors.empty() ? "" : "samesum fuzz --self-test",
            .seconds = 0};
}

}  // namespace samesum::fuzz
