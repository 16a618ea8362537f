// RapidCheck draws and shrinks the cases. Its own loop is not used: it stops at one finding, reads options from the
// environment, and treats a nondeterministic case as an error, although that is a finding here.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/campaign.hpp"

#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "fuzz/compare.hpp"
#include "model/support/error.hpp"
#include "model/support/hash.hpp"
#include "model/support/progress.hpp"

namespace samesum::fuzz {
namespace {

std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

std::uint64_t digest_of(std::uint64_t digest, std::span<const Bits> bits) {
    for (const Bits each : bits) digest = mixed(digest ^ each) + 0x9e3779b97f4a7c15;
    return digest;
}

/// One case in `guided_every` is chosen among candidates: the one whose combination this property has reached least.
/// The choice depends only on seed, shard and the cases before it.
constexpr std::uint64_t guided_every = 8, candidates = 6;

Case draw_case(const Tally& tally, const CampaignOptions& options, const Limits& limits, std::uint64_t index) {
    const Property& property = *tally.property;
    const auto draw = [&](std::uint64_t attempt) {
        if (limits.setup) return case_on_ranks(property, options.seed, index, limits, attempt);
        const rc::Random random(rc::Random::Key{options.seed, fnv1a(property.name), index, attempt});
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
    } catch (const Unavailable&) {
        ++tally.unavailable;
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
    if (property.of_orders) tally.order_sensitive += is_order_sensitive(c);
    for (const std::string_view label : classes(c)) ++tally.classes[label];
    for (const Side* side : {&c.a, &c.b})
        if (const auto reached = combination(c, *side)) ++tally.combinations[*reached];
    if (result.same) return;
    ++tally.differing;
    if (tally.finding) return;
    const std::string mismatch_elsewhere = objection(property, c);
    ensure(mismatch_elsewhere.empty(), "generated cases are cases of their property");
    if (result.mismatch_elsewhere)
        tally.finding = investigate(shrinkable(property, with_element(c, *result.mismatch_elsewhere)), backend);
    else
        tally.finding = investigate(shrinkable(property, with_column(c, result.column)), backend,
                                    Seen{result.a[result.column], result.b[result.column]});
}

}  // namespace

Case case_on_ranks(const Property& property, std::uint64_t seed, std::uint64_t index, const Limits& limits,
                   std::uint64_t attempt) {
    // Calls are expensive, and a round of them has few data: data that are not order-sensitive are drawn again, at most
    // twice. The data are side a's, so cases that share it agree about that.
    constexpr std::uint64_t in_common = 8, redraws = 2;
    const std::uint64_t first = index / in_common * in_common;
    for (std::uint64_t redraw = 0;; ++redraw) {
        const rc::Random a(rc::Random::Key{seed, fnv1a(property.name), first, 1 + (redraw << 32)});
        const rc::Random b(rc::Random::Key{seed, fnv1a(property.name), index, 2 + attempt + (redraw << 32)});
        // Properties that do not share a side draw each case independently.
        Case c = draw_case(property, property.shares_side ? Draw(a, b, static_cast<int>(1 + first % 100), &limits)
                                                          : Draw(b, static_cast<int>(1 + index % 100), &limits));
        if (!property.of_orders || redraw == redraws || is_order_sensitive(c)) return c;
    }
}

bool Tally::vacuous() const { return property->of_orders && order_sensitive * 10 < cases; }

rc::Shrinkable<Case> case_of(const Property& property, std::uint64_t seed, std::uint64_t index, const Limits& limits) {
    const rc::Random random(rc::Random::Key{seed, fnv1a(property.name), index, 0});
    return cases(property, limits)(random, static_cast<int>(1 + index % 100));
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
    const std::size_t setups = backends.front()->setups();
    ensure(setups == 0 || options.jobs == 1, "real ranks are asked by one thread");
    int failures_in_a_row = 0;
    std::size_t closed = 0;  // setups in a row that could not be opened
    std::string given_up;
    // Rounds, so that every property has had its turn when time runs out.
    for (std::uint64_t first = 0; first < max; first += round_cases) {
        Limits limits = options.limits;
        if (setups > 0) {
            // A round for each setup in turn.
            limits.setup = backends.front()->open_setup(first / round_cases % setups);
            if (!limits.setup && ++closed < setups) continue;
            if (!limits.setup) break;
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
                    if (!tally.why_undecided.empty() || !given_up.empty()) continue;
                    const double start = monotonic_seconds();
                    try {
                        for (std::uint64_t index = first; index < last; ++index)
                            if (index % options.shards == options.shard)
                                try_case(tally, options, limits, index, backend);
                        if (tally.cases > 0) failures_in_a_row = 0;
                    } catch (const Inconclusive& reason) {
                        tally.why_undecided = reason.what();
                        if (setups > 0 && ++failures_in_a_row >= max_failures_in_a_row) given_up = reason.what();
                    }
                    tally.seconds += monotonic_seconds() - start;
                    // A round on real ranks takes many seconds.
                    if (setups > 0 && options.progress) options.progress(tallies);
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
                if (tally.why_undecided.empty()) tally.why_undecided = "given up: " + given_up;
            break;
        }
        if (options.seconds && monotonic_seconds() - began >= *options.seconds) break;
    }
    return tallies;
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
    } else if (!tally.why_undecided.empty()) {
        evidence.verdict = Verdict::inconclusive;
        evidence.detail = tally.why_undecided;
    } else if (tally.cases == 0) {
        evidence.verdict = Verdict::inconclusive;
        evidence.detail = "empty: no case was tried";
    } else if (tally.vacuous()) {
        evidence.verdict = Verdict::inconclusive;
        evidence.detail = "vacuous: " + evidence.detail + ", fewer than 10 %";
    }
    return evidence;
}

}  // namespace samesum::fuzz
