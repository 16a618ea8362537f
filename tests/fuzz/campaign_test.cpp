// Generators reach every class, shrinking ends small, planted faults are caught, and a seed determines a campaign.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE fuzz_campaign
#include "fuzz/campaign.hpp"

#include <rapidcheck.h>

#include <boost/test/unit_test.hpp>
#include <set>

#include "fuzz/compare.hpp"
#include "fuzz/enumeration.hpp"
#include "fuzz/report.hpp"
#include "model/support/error.hpp"

using namespace samesum;
using namespace samesum::fuzz;

namespace {

CampaignOptions campaign_of(std::vector<const Property*> chosen, std::uint64_t cases, std::uint64_t seed = 1) {
    CampaignOptions options;
    options.properties = std::move(chosen);
    options.cases = cases;
    options.seed = seed;
    options.backend = [] { return std::make_unique<ModelBackend>(); };
    return options;
}

std::vector<const Property*> all_properties() {
    std::vector<const Property*> all;
    for (const Property& property : properties()) all.push_back(&property);
    return all;
}

/// Without most of the false claims: shrinking their findings takes the most time.
std::vector<const Property*> mostly_true_properties() {
    std::vector<const Property*> chosen;
    int refuted = 0;
    for (const Property& property : properties())
        if (property.expected == Verdict::upheld || ++refuted <= 2) chosen.push_back(&property);
    return chosen;
}

const Fault& fault_named(std::string_view name) {
    for (const Fault& fault : faults())
        if (fault.name == name) return fault;
    throw std::logic_error("no such fault");
}

}  // namespace

BOOST_AUTO_TEST_CASE(names_are_unique_and_sentences_are_there) {
    std::set<std::string> names;
    for (const Property& property : properties()) {
        BOOST_TEST(names.insert(property.name).second, property.name);
        BOOST_TEST(!property.sentence.empty());
        BOOST_TEST(!property.scope.empty());
    }
    BOOST_TEST(names.size() > 40u);
    for (const char* shared :
         {"two_ranks_agree", "vllm_default_is_owner_invariant", "reduce_scatter_is_owner_invariant",
          "reduce_per_owner_is_owner_invariant", "fixed_root_is_routing_invariant",
          "fixed_root_is_routing_invariant_on_any_rings", "reduce_broadcast_is_routing_invariant",
          "gather_ordered_is_routing_invariant", "exchange_ordered_is_routing_invariant",
          "direct_ordered_is_routing_invariant", "exact_is_order_free", "ordered_schemes_agree", "addition_commutes",
          "addition_is_associative"})
        BOOST_TEST(names.count(shared) == 1u, shared);
    BOOST_CHECK_THROW((void)property_named("fixed_root_is_fast"), UsageError);
}

BOOST_AUTO_TEST_CASE(every_claim_comes_out_as_stated) {
    for (const Tally& tally : run_campaign(campaign_of(all_properties(), 300, 7))) {
        const Evidence line = evidence_of(tally, "model");
        BOOST_TEST(line.as_claimed(), tally.property->name << ": " << name(line.verdict) << " " << line.detail);
        BOOST_TEST(tally.cases == 300u);
        if (tally.property->of_orders) BOOST_TEST(tally.order_sensitive * 8 > tally.cases, tally.property->name);
        BOOST_TEST(tally.finding.has_value() == (tally.property->expected == Verdict::refuted));
    }
}

BOOST_AUTO_TEST_CASE(generators_reach_every_class) {
    std::set<std::string_view> seen;
    for (const Tally& tally : run_campaign(campaign_of(mostly_true_properties(), 150)))
        for (const auto& [label, count] : tally.classes) seen.insert(label);
    for (const Format format : float_formats) BOOST_TEST(seen.count(name(format)) == 1u);
    for (const char* label : {"data: NaN",
                              "data: infinity",
                              "data: subnormal",
                              "data: -0",
                              "data: largest",
                              "data: cancels",
                              "data: wide",
                              "data: k of n",
                              "routing: equal",
                              "routing: one owner",
                              "routing: zero sizes",
                              "routing: ragged",
                              "ranks: 1",
                              "ranks: 2",
                              "ranks: 3 to 4",
                              "ranks: 5 to 8",
                              "ranks: 9 and more",
                              "rings: one channel",
                              "rings: one on all channels",
                              "rings: different",
                              "protocol: LL",
                              "protocol: LL128",
                              "protocol: Simple",
                              "trees alone"})
        BOOST_TEST(seen.count(label) == 1u, label);
}

BOOST_AUTO_TEST_CASE(each_kind_of_data_is_what_it_says) {
    const auto share = [](Data data, Format format, auto holds) {
        int good = 0;
        for (std::uint64_t i = 0; i < 200; ++i) {
            const auto x = partials(format, 5, data)(rc::Random(i), 50).value();
            good += std::any_of(x.begin(), x.end(), [&](Bits bits) { return holds(format, bits); });
        }
        return good;
    };
    for (const Format format : float_formats) {
        BOOST_TEST(share(Data::not_numbers, format, is_nan) == 200);
        BOOST_TEST(share(Data::subnormal, format, is_subnormal) > 50);
        if (traits(format).has_infinity) BOOST_TEST(share(Data::infinite, format, is_infinite) == 200);
        std::set<Bits> edges;
        for (std::uint64_t i = 0; i < 1000; ++i) edges.insert(edge_bits(format)(rc::Random(i), 50).value());
        const FormatTraits& t = traits(format);
        for (const Bits edge : {Bits{0}, t.sign(), Bits{1}, t.sign() | 1, t.largest(), t.sign() | t.largest(),
                                (Bits{1} << t.fraction_bits) - 1, Bits{1} << t.fraction_bits, t.one(), t.one() - 1})
            BOOST_TEST(edges.count(edge) == 1u, name(format) << " " << hex(format, edge));
    }
}

BOOST_AUTO_TEST_CASE(a_shrink_is_a_case_and_is_simpler) {
    for (const Property& property : properties())
        for (std::uint64_t index = 20; index < 24; ++index) {
            auto shrinks = case_of(property, 11, index).shrinks();
            const Case c = case_of(property, 11, index).value();
            while (auto next = shrinks.next()) {
                BOOST_TEST(objection(property, next->value()) == "", str(next->value()));
                BOOST_TEST((next->value() != c));
            }
        }
}

BOOST_AUTO_TEST_CASE(shrinking_ends_small) {
    ModelBackend model;
    for (const char* name : {"vllm_default_is_owner_invariant", "reduce_scatter_is_owner_invariant",
                             "reduce_per_owner_is_owner_invariant", "fixed_root_is_root_invariant"}) {
        const Property& property = property_named(name);
        for (std::uint64_t index = 0, found = 0; found < 5; ++index) {
            const auto drawn = case_of(property, 2, index);
            const Comparison result = compare(drawn.value(), model);
            if (result.same) continue;
            ++found;
            const Finding finding = investigate(shrinkable(property, with_column(drawn.value(), result.column)), model);
            const Case& c = finding.minimal;
            BOOST_TEST(finding.repeats);
            BOOST_TEST(finding.kind == "order change", finding.text);
            BOOST_TEST(c.a.ranks() == 3, str(c));
            BOOST_TEST(c.hidden == 1u, str(c));
            BOOST_TEST(c.fill == 0u, str(c));
            BOOST_TEST(c.a.rings.size() == 1u, str(c));
            BOOST_TEST(routing_of(c, c.a).rows() <= (c.a.scheme == Scheme::reduce_scatter ? 3u : 2u), str(c));
            BOOST_TEST((parse_case(str(c)) == c));
            BOOST_TEST(!compare(parse_case(str(c)), model).same);
            BOOST_TEST(finding.text.find("makes") != std::string::npos);
            BOOST_TEST(finding.text.find("first addition apart: a (") != std::string::npos, finding.text);
        }
    }
}

BOOST_AUTO_TEST_CASE(planted_faults_are_caught_and_shrink) {
    const auto searches = search_faults(1, 2000);
    BOOST_TEST(searches.size() >= 20u);
    for (const FaultSearch& search : searches) BOOST_TEST(search.caught, search.fault->name);
    BOOST_TEST(evidence_of(searches).as_claimed());
    for (const FaultSearch& search : searches) {
        const std::string_view name = search.fault->name;
        // These need calls large enough for several channels, or sums of several hops.
        if (name == "channel_split_off_by_a_cell" || name == "one_channel_for_all" || name == "channels_swapped" ||
            name == "protocol_taken_for_simple")
            continue;
        const auto backend = search.fault->plant();
        const Property& property = property_named(search.fault->property);
        const Finding finding = investigate(shrinkable(property, search.example.value()), *backend);
        if (name == "stale_receive_buffer") {
            // Its bits depend on the previous call, so the finding is reported and not shrunk.
            BOOST_TEST(!finding.repeats);
            BOOST_TEST(finding.kind == "run-to-run");
            continue;
        }
        BOOST_TEST(finding.repeats, name);
        BOOST_TEST(finding.minimal.a.ranks() <= (name == "balanced_instead_of_fold" || name == "pat_is_a_ring" ||
                                                         name == "dispatcher_ignores_sizes"
                                                     ? 4
                                                     : 3),
                   name << ": " << str(finding.minimal));
        const std::uint64_t rows = routing_of(finding.minimal, finding.minimal.a).rows();
        // Equal sizes are one row per rank; rotated sizes show only from the third row on.
        const bool equal = finding.minimal.a.scheme == Scheme::reduce_scatter || name == "dispatcher_ignores_sizes" ||
                           name == "pat_is_a_ring";
        BOOST_TEST(rows <= (equal ? 4u : name == "sizes_rotated" ? 3u : 2u), name << ": " << str(finding.minimal));
    }
}

BOOST_AUTO_TEST_CASE(a_fault_turns_the_campaign_red) {
    CampaignOptions options = campaign_of({&property_named("results_are_as_predicted")}, 200);
    options.backend = [] { return fault_named("ring_rotated").plant(); };
    const Tally tally = run_campaign(options).front();
    const Evidence line = evidence_of(tally, "model");
    BOOST_TEST((line.verdict == Verdict::refuted));
    BOOST_TEST(!line.as_claimed());
    BOOST_TEST(tally.finding->kind.starts_with("another order"), tally.finding->kind);
    options.backend = [] { return fault_named("added_twice").plant(); };
    BOOST_TEST(run_campaign(options).front().finding->kind.starts_with("no order makes these bits"));
}

BOOST_AUTO_TEST_CASE(data_that_reveals_nothing_is_vacuous) {
    Property hollow = property_named("gather_ordered_is_routing_invariant");
    const auto draw = hollow.draw;
    hollow.draw = [draw](Draw& d) {
        Case c = draw(d);
        for (Bits& bits : c.x) bits = 0;
        return c;
    };
    const Tally tally = run_campaign(campaign_of({&hollow}, 100)).front();
    BOOST_TEST(tally.vacuous());
    BOOST_TEST((evidence_of(tally, "model").verdict == Verdict::inconclusive));
    BOOST_TEST(evidence_of(tally, "model").detail.starts_with("vacuous"));
    Tally none;
    none.property = &hollow;
    BOOST_TEST((evidence_of(none, "model").verdict == Verdict::inconclusive));
    BOOST_TEST((evidence_of(std::span<const FaultSearch>()).verdict == Verdict::inconclusive));
}

BOOST_AUTO_TEST_CASE(a_seed_determines_a_campaign) {
    CampaignOptions options = campaign_of(mostly_true_properties(), 70, 42);
    const auto first = run_campaign(options);
    options.jobs = 3;
    const auto second = run_campaign(options);
    BOOST_TEST(digest_of(first) == digest_of(second));
    options.seed = 43;
    BOOST_TEST(digest_of(first) != digest_of(run_campaign(options)));
    // Shards are disjoint and together complete, except that each guides its cases by its own results only.
    options.seed = 42;
    options.guided = false;
    const auto unguided = run_campaign(options);
    BOOST_TEST(digest_of(first) != digest_of(unguided));
    options.shards = 3;
    std::uint64_t cases = 0, differing = 0, whole = 0, whole_differing = 0;
    for (options.shard = 0; options.shard < 3; ++options.shard)
        for (const Tally& tally : run_campaign(options)) {
            cases += tally.cases;
            differing += tally.differing;
        }
    for (const Tally& tally : unguided) {
        whole += tally.cases;
        whole_differing += tally.differing;
    }
    BOOST_TEST(cases == whole);
    BOOST_TEST(differing == whole_differing);
}

BOOST_AUTO_TEST_CASE(guidance_reaches_more) {
    CampaignOptions options = campaign_of({&property_named("results_are_as_predicted")}, 1500, 5);
    const Tally guided = run_campaign(options).front();
    options.guided = false;
    const Tally unguided = run_campaign(options).front();
    BOOST_TEST(guided.combinations.size() > unguided.combinations.size());
    BOOST_TEST(guided.combinations.size() > 100u);
    std::set<Combination::Cut> cuts;
    for (const auto& [combination, count] : guided.combinations) cuts.insert(combination.cut);
    BOOST_TEST(cuts.size() == 4u);
}

BOOST_AUTO_TEST_CASE(enumerations_are_complete) {
    ModelBackend model;
    struct Row {
        Evidence line;
        std::string_view decided_by;
    };
    // 1 + ... + 4^5 assignments and so on; C(16, 4) sizes; 1 + 3 + 15 + 105 + 945 + 10395 trees; 2 * 256^2 pairs.
    for (const Row& row :
         {Row{every_owner_assignment(model, 4), "exhausted 494"}, Row{every_sizes_vector(model, 12), "exhausted 1820"},
          Row{every_tree(7), "exhausted 11464"}, Row{every_float8_pair(), "exhausted 131072"}}) {
        BOOST_TEST((row.line.verdict == Verdict::upheld), row.line.claim << ": " << row.line.witness);
        BOOST_TEST(row.line.decided_by == row.decided_by);
    }
}

BOOST_AUTO_TEST_CASE(rapidcheck_s_own_loop_runs_the_cases) {
    const Property& property = property_named("ordered_schemes_agree");
    rc::detail::TestParams params;
    params.maxSuccess = 100;
    params.seed = 4;
    const auto result = rc::detail::checkTestable(
        [&] {
            const Case c = *cases(property);
            ModelBackend model;
            RC_ASSERT(compare(c, model).same);
        },
        rc::detail::TestMetadata(), params);
    rc::detail::SuccessResult success;
    BOOST_TEST(result.match(success));
    BOOST_TEST(success.numSuccess == 100);
}
