// A token's values depend on the token alone; routings place it in different rows. Invariance: its result has the same
// bits everywhere.
// SPDX-License-Identifier: Apache-2.0
#include "impl/check/invariance_properties.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>

#include "impl/check/compare_with_model.hpp"
#include "model/arithmetic/random.hpp"
#include "model/support/progress.hpp"

namespace samesum::gpu {
namespace {

/// A routing together with the token that each row holds.
struct Layout {
    std::vector<std::uint64_t> sizes;
    std::vector<std::uint64_t> token_of_row;
};

enum class Data : std::uint8_t { spread, edges };

class Table {
public:
    Table(LiveRanks& ranks, const PropertyOptions& options) : ranks_(ranks), options_(options) {}

    std::vector<Evidence> run() {
        for (const Format format : options_.formats) {
            for (const Scheme scheme : options_.schemes) {
                for (const Accumulation accumulation : {Accumulation::per_hop, Accumulation::fp32_once}) {
                    if (accumulation == Accumulation::fp32_once &&
                        (!is_ordered(scheme) || traits(format).width >= 32 || options_.by_node > 0))
                        continue;
                    base_ = CombineRun{.scheme = scheme, .routing = {}, .format = format, .accumulation = accumulation};
                    base_.routing.hidden = options_.hidden;
                    base_.fault = options_.fault;
                    base_.ranks_per_node = options_.by_node;
                    check_scheme();
                }
            }
            check_agreement(format);
        }
        return std::move(ledger_);
    }

private:
    using Check = std::function<std::string(Random&)>;

    [[nodiscard]] bool equal_sizes_only() const { return base_.scheme == Scheme::reduce_scatter; }
    [[nodiscard]] std::uint64_t ranks() const { return static_cast<std::uint64_t>(ranks_.ranks()); }

    /// One line of the ledger. `check` returns what went wrong, or an empty text. The property is expected to hold
    /// unless the model says that a token's order changes between the layouts that the check compares.
    void property(const std::string& claim, const std::string& sentence, const Check& check) {
        if (!options_.only.empty() && claim.find(options_.only) == std::string::npos) return;
        Evidence evidence;
        evidence.claim = claim;
        evidence.sentence = sentence;
        evidence.scope = fmt::format("{}{}, {} ranks", samesum::name(base_.format),
                                     base_.accumulation == Accumulation::fp32_once ? " fp32_once" : "", ranks_.ranks());
        progress_.update(fmt::format("{} {}", claim, evidence.scope));
        const double begin = monotonic_seconds();
        int done = 0;
        order_changes_ = false;
        try {
            evidence.verdict = Verdict::upheld;
            for (; done < options_.cases && evidence.verdict == Verdict::upheld; ++done) {
                Random random = Random::of(options_.seed, static_cast<std::uint64_t>(done));
                const std::string wrong = check(random);
                if (wrong.empty()) continue;
                evidence.verdict = Verdict::refuted;
                evidence.witness = fmt::format("case {}: {}", done, wrong);
                evidence.replay = fmt::format(
                    "samesum run --properties --scheme {} --dtype {} --ranks {} --seed {} --only {}",
                    samesum::name(base_.scheme), samesum::name(base_.format), ranks_.ranks(), options_.seed, claim);
            }
        } catch (const Inconclusive& why) {
            evidence.verdict = Verdict::inconclusive;
            evidence.detail = why.what();
        }
        evidence.expected = order_changes_ ? Verdict::refuted : Verdict::upheld;
        evidence.decided_by = fmt::format("{} cases on NCCL {}", done, str(ranks_.hardware().nccl));
        evidence.seconds = monotonic_seconds() - begin;
        ledger_.push_back(std::move(evidence));
    }

    void check_scheme() {
        check_bits();
        check_invariance();
        check_stream_and_buffers();
    }

    /// "fixed_root_on_nccl_": how the names of the scheme's properties begin.
    [[nodiscard]] std::string claim_prefix() const {
        return fmt::format("{}{}", samesum::name(base_.scheme),
                           options_.by_node > 0 ? "_by_node_on_nccl_" : "_on_nccl_");
    }

    void check_bits() {
        const std::string scheme(samesum::name(base_.scheme)), named = claim_prefix();
        property(named + "equals_model", scheme + " gives the model's bits, special values included",
                 [&](Random& random) {
                     for (const Data data : {Data::spread, Data::edges}) {
                         const Layout layout = equal_sizes_only() ? even(random) : ragged(random);
                         const std::string wrong = against_model(layout, data, random.next(), base_);
                         if (!wrong.empty()) return wrong;
                     }
                     return std::string();
                 });
        property(named + "repeats", scheme + " gives the same bits again, on a fresh communicator too",
                 [&](Random& random) {
                     const Layout layout = equal_sizes_only() ? even(random) : ragged(random);
                     const std::uint64_t seed = random.next();
                     const auto first = outcome(layout, Data::spread, seed, base_);
                     if (outcome(layout, Data::spread, seed, base_) != first)
                         return std::string("a repeated call gave other bits");
                     if (fresh_communicators_++ % 4 == 0) ranks_.open(ranks_.environment());
                     if (outcome(layout, Data::spread, seed, base_) != first)
                         return std::string("a fresh communicator gave other bits");
                     return std::string();
                 });
    }

    /// A token's bits do not depend on its place in the call, nor on what else is in the call.
    void check_invariance() {
        const std::string named = claim_prefix();
        property(named + "is_owner_invariant", "a token's bits do not depend on which rank owns it",
                 [&](Random& random) {
                     // Whole shares of tokens change places; where sizes may differ, only the owners change.
                     Layout here = even(random), there = here;
                     if (ranks() == 1) return same_tokens(here, there, random.next());
                     const auto share = static_cast<std::ptrdiff_t>(options_.rows_per_rank);
                     if (equal_sizes_only() || base_.scheme == Scheme::vllm_default) {
                         std::rotate(there.token_of_row.begin(), there.token_of_row.begin() + share,
                                     there.token_of_row.end());
                     } else {
                         here.sizes.assign(ranks(), 0);
                         there.sizes = here.sizes;
                         here.sizes[random.below(ranks())] = here.token_of_row.size();
                         there.sizes = rotated_sizes(here.sizes, 1 + random.below(ranks() - 1));
                     }
                     return same_tokens(here, there, random.next());
                 });
        property(named + "is_position_invariant", "a token's bits do not depend on its row within its owner's share",
                 [&](Random& random) {
                     const Layout here = even(random);
                     Layout there = here;
                     const std::uint64_t share = options_.rows_per_rank;
                     for (std::uint64_t rank = 0; rank < ranks(); ++rank) {
                         const auto begin = there.token_of_row.begin() + static_cast<std::ptrdiff_t>(rank * share);
                         std::rotate(begin, begin + static_cast<std::ptrdiff_t>(1 + random.below(share - 1)),
                                     begin + static_cast<std::ptrdiff_t>(share));
                     }
                     return same_tokens(here, there, random.next());
                 });
        property(named + "is_count_invariant", "a token's bits do not depend on what else is in the call",
                 [&](Random& random) {
                     // More rows after each rank's own; for the dispatcher one row, which makes the sizes unequal.
                     const Layout here = even(random);
                     Layout there{{}, {}};
                     std::uint64_t filler = here.token_of_row.size();
                     for (std::uint64_t rank = 0; rank < ranks(); ++rank) {
                         const std::uint64_t more = equal_sizes_only()                     ? 3
                                                    : base_.scheme == Scheme::vllm_default ? rank == 0
                                                                                           : random.below(40);
                         there.sizes.push_back(options_.rows_per_rank + more);
                         for (std::uint64_t row = 0; row < options_.rows_per_rank; ++row)
                             there.token_of_row.push_back(here.token_of_row[rank * options_.rows_per_rank + row]);
                         for (std::uint64_t row = 0; row < more; ++row) there.token_of_row.push_back(filler++);
                     }
                     return same_tokens(here, there, random.next());
                 });
        property(named + "is_routing_invariant", "a token's bits do not depend on the routing", [&](Random& random) {
            const Layout here = equal_sizes_only() ? even(random) : ragged(random);
            Layout there = equal_sizes_only() ? even(random) : ragged(random);
            shuffle(there.token_of_row, random);
            return same_tokens(here, there, random.next());
        });
    }

    void check_stream_and_buffers() {
        const std::string named = claim_prefix();
        property(named + "waits_for_producer", "a producer that still runs on the same stream is waited for",
                 [&](Random& random) {
                     CombineRun run = base_;
                     run.delay_s = 0.003;
                     const Layout layout = equal_sizes_only() ? even(random) : ragged(random);
                     return against_model(layout, Data::spread, random.next(), run);
                 });
        property(named + "captured_equals_eager", "a CUDA graph gives the bits that the same calls give by themselves",
                 [&](Random& random) {
                     const Layout layout = equal_sizes_only() ? even(random) : ragged(random);
                     const std::uint64_t seed = random.next();
                     CombineRun run = base_;
                     const auto eager = outcome(layout, Data::spread, seed, run);
                     run.captured = true;
                     return outcome(layout, Data::spread, seed, run) == eager ? ""
                                                                              : std::string("other bits when captured");
                 });
        property(
            named + "writes_its_result_alone",
            "in place or not, aligned or not, with zero rows or not, nothing else is written", [&](Random& random) {
                for (const bool in_place : {false, true})
                    for (const int shift : {0, 1, 3}) {
                        CombineRun run = base_;
                        run.in_place = in_place;
                        run.shift = shift;
                        run.guards = true;
                        const Layout layout = equal_sizes_only() ? even(random) : ragged(random);
                        const std::string wrong = against_model(layout, Data::spread, random.next(), run);
                        if (!wrong.empty())
                            return fmt::format("in place {}, {} elements off alignment: {}", in_place, shift, wrong);
                    }
                return std::string();
            });
    }

    /// All schemes that add in rank order agree bit for bit.
    void check_agreement(Format format) {
        std::vector<Scheme> ordered;
        for (const Scheme scheme : options_.schemes)
            if (is_ordered(scheme)) ordered.push_back(scheme);
        if (ordered.size() < 2) return;
        for (const Accumulation accumulation : {Accumulation::per_hop, Accumulation::fp32_once}) {
            if (accumulation == Accumulation::fp32_once && (traits(format).width >= 32 || options_.by_node > 0))
                continue;
            base_ =
                CombineRun{.scheme = ordered.front(), .routing = {}, .format = format, .accumulation = accumulation};
            base_.routing.hidden = options_.hidden;
            base_.fault = options_.fault;
            base_.ranks_per_node = options_.by_node;
            property(options_.by_node > 0 ? "ordered_schemes_by_node_on_nccl_agree" : "ordered_schemes_on_nccl_agree",
                     "all ordered schemes give the same bits", [&](Random& random) {
                         const Layout layout = ragged(random);
                         const std::uint64_t seed = random.next();
                         std::vector<std::byte> first;
                         for (const Scheme scheme : ordered) {
                             CombineRun run = base_;
                             run.scheme = scheme;
                             auto bits = outcome(layout, Data::edges, seed, run);
                             if (first.empty())
                                 first = std::move(bits);
                             else if (bits != first)
                                 return fmt::format("{} and {} give other bits", samesum::name(ordered.front()),
                                                    samesum::name(scheme));
                         }
                         return std::string();
                     });
        }
    }

    [[nodiscard]] Layout even(Random&) const {
        Layout layout{std::vector<std::uint64_t>(ranks(), options_.rows_per_rank), {}};
        layout.token_of_row.resize(ranks() * options_.rows_per_rank);
        std::iota(layout.token_of_row.begin(), layout.token_of_row.end(), std::uint64_t{0});
        return layout;
    }
    /// The same tokens over random owners; some ranks own nothing.
    [[nodiscard]] Layout ragged(Random& random) const {
        Layout layout = even(random);
        layout.sizes.assign(ranks(), 0);
        const std::uint64_t idle = ranks() > 1 ? random.below(ranks()) : ranks();
        for (std::uint64_t row = 0; row < layout.token_of_row.size();) {
            const std::uint64_t owner = random.below(ranks());
            if (owner == idle) continue;
            ++layout.sizes[owner];
            ++row;
        }
        return layout;
    }
    static std::vector<std::uint64_t> rotated_sizes(std::vector<std::uint64_t> sizes, std::uint64_t by) {
        std::rotate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(by % sizes.size()), sizes.end());
        return sizes;
    }
    static void shuffle(std::vector<std::uint64_t>& values, Random& random) {
        for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(i)]);
    }

    [[nodiscard]] std::uint64_t row_bytes() const {
        return options_.hidden * static_cast<std::uint64_t>(traits(base_.format).bytes());
    }

    /// Writes the partials into the ranks' inputs: a token's values are a function of token, rank and seed alone.
    std::vector<std::span<const std::byte>> write_partials(const Layout& layout, Data data, std::uint64_t seed) {
        const std::uint64_t bytes = layout.token_of_row.size() * row_bytes();
        std::vector<std::span<const std::byte>> partials;
        for (int rank = 0; rank < ranks_.ranks(); ++rank) {
            const auto buffer = ranks_.input(rank, bytes);
            for (std::size_t row = 0; row < layout.token_of_row.size(); ++row) {
                Random random = Random::of(seed + static_cast<std::uint64_t>(rank),
                                           layout.token_of_row[row] * 2 + (data == Data::edges));
                for (std::uint64_t i = 0; i < options_.hidden; ++i)
                    store(base_.format, buffer, row * options_.hidden + i,
                          data == Data::edges ? random.pattern(base_.format) : random.spread(base_.format, 6));
            }
            partials.push_back(buffer);
        }
        return partials;
    }

    CombineOutcome combine(const Layout& layout, CombineRun& run) {
        run.routing.sizes = layout.sizes;
        CombineOutcome outcome = ranks_.combine(run);
        said_ = outcome.said;
        return outcome;
    }

    std::vector<std::byte> outcome(const Layout& layout, Data data, std::uint64_t seed, CombineRun run) {
        (void)write_partials(layout, data, seed);
        (void)combine(layout, run);
        const auto result = ranks_.result(layout.token_of_row.size() * row_bytes());
        return {result.begin(), result.end()};
    }

    std::string against_model(const Layout& layout, Data data, std::uint64_t seed, CombineRun run) {
        const auto partials = write_partials(layout, data, seed);
        const CombineOutcome done = combine(layout, run);
        const auto result = ranks_.result(layout.token_of_row.size() * row_bytes());
        if (!done.damage.empty()) return done.damage;
        const auto difference = first_difference(described_communicator(ranks_), run, partials, result, done.said);
        return difference
                   ? fmt::format("sizes {}: {} ({})", str_sizes(layout.sizes), difference->str(run.format), done.said)
                   : std::string();
    }

    /// Compares the bits of the tokens that are in both layouts.
    std::string same_tokens(const Layout& here, const Layout& there, std::uint64_t seed) {
        const auto a = outcome(here, Data::spread, seed, base_);
        const std::string said_of_a = said_;
        const auto b = outcome(there, Data::spread, seed, base_);
        CombineRun run_here = base_, run_there = base_;
        run_here.routing.sizes = here.sizes;
        run_there.routing.sizes = there.sizes;
        const RowOrders orders(described_communicator(ranks_), run_here, said_of_a, run_there, said_);
        std::vector<std::size_t> row_of(there.token_of_row.size());
        for (std::size_t row = 0; row < there.token_of_row.size(); ++row)
            if (there.token_of_row[row] < row_of.size()) row_of[there.token_of_row[row]] = row;
        for (std::size_t row = 0; row < here.token_of_row.size() && !order_changes_; ++row)
            order_changes_ = orders.differ(row, row_of[here.token_of_row[row]]);
        for (std::size_t row = 0; row < here.token_of_row.size(); ++row) {
            const std::size_t other = row_of[here.token_of_row[row]];
            if (std::memcmp(a.data() + row * row_bytes(), b.data() + other * row_bytes(), row_bytes()) == 0) continue;
            std::uint64_t element = 0;
            while (load(base_.format, a, row * options_.hidden + element) ==
                   load(base_.format, b, other * options_.hidden + element))
                ++element;
            return fmt::format("token {}: row {} of sizes {} and row {} of sizes {}; element {}: {} and {}",
                               here.token_of_row[row], row, str_sizes(here.sizes), other, str_sizes(there.sizes),
                               element, hex(base_.format, load(base_.format, a, row * options_.hidden + element)),
                               hex(base_.format, load(base_.format, b, other * options_.hidden + element)));
        }
        return "";
    }

    LiveRanks& ranks_;
    const PropertyOptions& options_;
    CombineRun base_;
    std::vector<Evidence> ledger_;
    Progress progress_{"properties"};
    int fresh_communicators_ = 0;
    std::string said_;            ///< NCCL's log lines about the last combine
    bool order_changes_ = false;  ///< in the current property, as the model predicts
};

}  // namespace

std::vector<Evidence> check_properties(LiveRanks& ranks, const PropertyOptions& options) {
    if (options.rows_per_rank < 2) throw UsageError("position invariance: expected at least 2 rows per rank");
    return Table(ranks, options).run();
}

}  // namespace samesum::gpu
