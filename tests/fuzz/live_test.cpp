// The backend for real ranks, tested on ranks simulated by the model: what it writes, keeps, opens and reports.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE fuzz_live
#include "fuzz/live_backend.hpp"

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <numeric>
#include <set>

#include "fuzz/campaign.hpp"
#include "fuzz/compare.hpp"
#include "fuzz/enumeration.hpp"
#include "fuzz/fault_search.hpp"
#include "fuzz/report.hpp"
#include "model/analysis/record_check.hpp"
#include "model/input/recording.hpp"
#include "model/nccl/buffer_sum.hpp"
#include "model/support/error.hpp"
#include "model/support/files.hpp"
#include "model/support/text.hpp"

using namespace samesum;
using namespace samesum::fuzz;

namespace {

/// The fault of the simulated ranks.
enum class Wrong { nothing, order, nondeterministic, dies, refuses_ll, shows_shift, other_row };

/// Ranks on one ring, or on two different rings; they add as the model does, except for the fault.
class ModelRanks : public Ranks {
public:
    explicit ModelRanks(Wrong wrong, bool two_rings = false) : wrong_(wrong), two_rings_(two_rings) {}

    std::string description() const override { return "ranks of a test"; }
    Communicator open(const CommunicatorSetup& setup) override {
        ++openings;
        if (wrong_ == Wrong::refuses_ll && setup.protocol == Protocol::ll128) throw Inconclusive("no such links");
        setup_ = setup;
        Ring ring(static_cast<std::size_t>(setup.ranks));
        std::iota(ring.begin(), ring.end(), 0);
        std::vector<Ring> rings(2, ring);
        if (two_rings_) std::swap(rings[1][1], rings[1][2]);
        comm_ = Communicator{.topology = Topology::from_rings(rings, setup.ranks_per_node), .version = {2, 28, 9}};
        inputs_.assign(ring.size(), {});
        return comm_;
    }
    std::span<std::byte> input(int rank, std::uint64_t bytes) override {
        auto& buffer = inputs_.at(static_cast<std::size_t>(rank));
        buffer.resize(bytes);
        return buffer;
    }
    std::string combine(const gpu::CombineRun& run) override {
        ++calls;
        captured += run.captured;
        if (wrong_ == Wrong::dies && calls % 50 == 0) throw Inconclusive("rank 1 died");
        const bool scatters = dispatched(run.scheme, run.routing) == Scheme::reduce_scatter;
        if (wrong_ == Wrong::refuses_ll && setup_.protocol == Protocol::ll && run.format == Format::float64)
            throw gpu::Refusal("no such kernel");
        CombineOptions options{.root = run.root, .accumulation = run.accumulation, .forced = {}};
        options.forced = {scatters ? setup_.algorithm : Algorithm::ring, setup_.protocol};
        if (wrong_ == Wrong::order && run.scheme == Scheme::fixed_root && run.routing.sizes.front() == 0)
            options.root = (options.root + 1) % setup_.ranks;
        const CombinePlan plan = plan_combine(run.scheme, comm_, run.routing, run.format, options);
        std::vector<ConstBytes> partials(inputs_.begin(), inputs_.end());
        result_.assign(inputs_.front().size(), std::byte{0});
        plan.schedule.visit(0, plan.schedule.size(), [&](const Segment& segment) {
            const std::uint64_t width = inputs_.front().size() / plan.schedule.size();
            std::vector<ConstBytes> cut;
            for (const ConstBytes input : partials)
                cut.push_back(input.subspan(segment.begin * width, (segment.end - segment.begin) * width));
            sum_buffers(rule_for(segment, run.format, plan.accumulation), segment.order.as_tree(), cut,
                        std::span(result_).subspan(segment.begin * width, cut.front().size()), 1);
            return true;
        });
        if (wrong_ == Wrong::nondeterministic && calls % 97 == 0)
            for (std::byte& byte : result_) byte ^= std::byte{1};
        if (wrong_ == Wrong::other_row && run.routing.rows() > 3) result_[0] ^= std::byte{1};
        if (run.fault == "ring_order") result_[result_.size() / 2] ^= std::byte{1};
        if (run.fault == "sizes_rotated") throw Inconclusive("rank 2 died");
        if (wrong_ == Wrong::shows_shift && run.shift % 2 == 1 && run.in_place) result_[0] ^= std::byte{1};
        return "Reduce: 8 Bytes -> Algo RING";
    }
    std::span<const std::byte> result(std::uint64_t bytes) const override {
        return std::span<const std::byte>(result_).first(bytes);
    }

    std::uint64_t calls = 0, openings = 0, captured = 0;

private:
    Wrong wrong_;
    bool two_rings_;
    CommunicatorSetup setup_;
    Communicator comm_{.topology = Topology::one_rank_per_node(1)};
    std::vector<std::vector<std::byte>> inputs_;
    std::vector<std::byte> result_;
};

std::vector<CommunicatorSetup> setups_of(std::initializer_list<int> ranks) {
    std::vector<CommunicatorSetup> setups;
    for (const int count : ranks)
        for (const Protocol protocol : all_protocols) {
            CommunicatorSetup setup;
            setup.ranks = count;
            setup.protocol = protocol;
            setups.push_back(setup);
            if (protocol != Protocol::simple) continue;
            setup.algorithm = Algorithm::pat;
            setups.push_back(setup);
        }
    return setups;
}

struct Campaign {
    ModelRanks* ranks;
    std::shared_ptr<LiveBackend> backend;
    CampaignOptions options;

    explicit Campaign(Wrong wrong, bool two_rings = false, std::initializer_list<int> counts = {3, 4}) {
        auto made = std::make_unique<ModelRanks>(wrong, two_rings);
        ranks = made.get();
        backend = std::make_shared<LiveBackend>(std::move(made), setups_of(counts), "--backend test ");
        for (const Property& property : properties()) options.properties.push_back(&property);
        options.cases = 64 * backend->setups();
        options.limits.hidden = 16;
        options.backend = [this] { return backend; };
    }
    std::vector<Tally> run() { return run_campaign(options); }
    void only(std::string_view name) { options.properties = {&property_named(name)}; }
};

}  // namespace

BOOST_AUTO_TEST_CASE(right_ranks_make_every_claim_come_out) {
    Campaign campaign(Wrong::nothing);
    std::set<std::string_view> labels;
    std::uint64_t cases = 0, left_out = 0;
    for (const Tally& tally : campaign.run()) {
        BOOST_TEST(tally.why_undecided == "", tally.property->name);
        cases += tally.cases;
        for (const auto& [label, count] : tally.classes) labels.insert(label);
        if (tally.cases == 0) {
            ++left_out;
            continue;
        }
        BOOST_TEST(evidence_of(tally, "ranks").as_claimed(),
                   tally.property->name << (tally.finding ? tally.finding->text : ""));
    }
    BOOST_TEST(cases > 10000u);
    // Claims about several rings, about 2 ranks, and about no ranks.
    BOOST_TEST(left_out == 11u);
    for (const char* label :
         {"run: captured", "run: in place", "run: fresh communicator", "run: producer still running",
          "run: off alignment", "protocol: LL", "protocol: LL128", "data: NaN"})
        BOOST_TEST(labels.count(label) == 1u, label);
    BOOST_TEST(campaign.ranks->captured > 500u);
    BOOST_TEST(campaign.ranks->openings > campaign.backend->setups());
    BOOST_TEST(campaign.ranks->calls < 2.1 * static_cast<double>(cases));
    BOOST_TEST(campaign.backend->calls() == campaign.ranks->calls);
}

/// Communicators as NCCL described them on H200s; nothing is run.
class RecordedRanks : public Ranks {
public:
    explicit RecordedRanks(std::vector<Record> records) : records_(std::move(records)) {}

    std::string description() const override { return "records"; }
    Communicator open(const CommunicatorSetup& setup) override {
        for (const Record& record : records_) {
            if (record.ranks != setup.ranks || record.ranks_per_node != setup.ranks_per_node) continue;
            if (record.graph.empty() != setup.graph_file.empty()) continue;
            Record named = record;
            named.algorithms = setup.algorithm == Algorithm::pat ? "reducescatter:pat;reduce:ring" : "ring";
            named.protocols = name(setup.protocol);
            return communicator_of(named);
        }
        throw Inconclusive("not recorded");
    }
    std::span<std::byte> input(int, std::uint64_t) override { return {}; }
    std::string combine(const gpu::CombineRun&) override { return {}; }
    std::span<const std::byte> result(std::uint64_t) const override { return {}; }

private:
    std::vector<Record> records_;
};

BOOST_AUTO_TEST_CASE(a_case_names_all_that_decides_the_orders_of_communicators_that_were_seen) {
    struct Row {
        const char* file;
        std::vector<int> ranks;
        int ranks_per_node;
        const char* graph;
        bool one_ring;
    };
    for (const Row& row :
         {Row{"h200x1-forced.jsonl", {2, 3, 4, 5, 6, 7, 8}, 1, "", true},
          Row{"h200x2-nodes.jsonl", {4, 8}, 2, "", true}, Row{"h200x2-unequal-rings.jsonl", {4, 8}, 2, "rev2", false},
          Row{"h200x2-one-node.jsonl", {2}, 2, "", true}}) {
        std::vector<Record> records;
        const std::string text = read_file(std::string(SAMESUM_SOURCE_DIR "/tests/golden/observed/") + row.file);
        for (const std::string_view line : split(text, '\n'))
            if (!line.empty()) records.push_back(parse_record(std::string(line)));
        std::vector<CommunicatorSetup> setups;
        for (const int ranks : row.ranks)
            for (const Protocol protocol : all_protocols)
                for (const Algorithm algorithm : {Algorithm::ring, Algorithm::pat}) {
                    if (algorithm == Algorithm::pat && (protocol != Protocol::simple || row.ranks_per_node > 1))
                        continue;
                    CommunicatorSetup setup;
                    setup.ranks = ranks;
                    setup.ranks_per_node = row.ranks_per_node;
                    setup.protocol = protocol;
                    setup.algorithm = algorithm;
                    setup.graph_file = row.graph;
                    setups.push_back(setup);
                }
        LiveBackend backend(std::make_unique<RecordedRanks>(std::move(records)), setups, "");
        for (std::size_t i = 0; i < setups.size(); ++i) {
            const auto setup = backend.open_setup(i);
            BOOST_TEST_REQUIRE(setup != nullptr, row.file << ": " << str(setups[i]));
            BOOST_TEST(one_ring(setup->rings) == row.one_ring);
            BOOST_TEST(setup->rings.size() >= 2u);
        }
    }
}

BOOST_AUTO_TEST_CASE(rings_that_differ_show) {
    Campaign campaign(Wrong::nothing, true, {4});
    campaign.only("fixed_root_is_routing_invariant_on_any_rings");
    campaign.options.cases = 64 * 12;
    const Tally tally = campaign.run().front();
    BOOST_TEST(tally.differing > 0u);
    BOOST_TEST(evidence_of(tally, "ranks").as_claimed());
    campaign.only("fixed_root_is_routing_invariant");
    const Tally one_ring = campaign.run().front();
    BOOST_TEST(one_ring.cases == 0u);
    BOOST_TEST(one_ring.unavailable > 0u);
}

BOOST_AUTO_TEST_CASE(a_seed_is_a_campaign_on_ranks_too) {
    Campaign a(Wrong::nothing), b(Wrong::nothing), c(Wrong::nothing);
    for (Campaign* each : {&a, &b, &c}) each->only("vllm_default_is_owner_invariant");
    c.options.seed = 2;
    const auto first = a.run();
    BOOST_TEST(digest_of(first) == digest_of(b.run()));
    BOOST_TEST(digest_of(first) != digest_of(c.run()));
    // A finding's replay line shows it again, on a backend that is open with another setup.
    BOOST_REQUIRE(first.front().finding.has_value());
    const Case again = parse_case(str(first.front().finding->minimal));
    Campaign other(Wrong::nothing);
    BOOST_TEST(!compare(again, *other.backend).same);
    BOOST_TEST(first.front().finding->replay.starts_with("samesum fuzz --backend test --replay '"));
}

BOOST_AUTO_TEST_CASE(a_wrong_order_is_found_and_made_small) {
    Campaign campaign(Wrong::order);
    campaign.only("fixed_root_is_routing_invariant");
    const Tally tally = campaign.run().front();
    BOOST_REQUIRE(tally.finding.has_value());
    BOOST_TEST(tally.finding->repeats);
    BOOST_TEST(tally.finding->minimal.hidden == 1u);
    BOOST_TEST((tally.finding->minimal.a.launch_mode == LaunchMode{}));
    BOOST_TEST(tally.finding->kind.starts_with("another order"), tally.finding->kind);
    BOOST_TEST(tally.finding->text.find("a: NCCL logged: Reduce: 8 Bytes") != std::string::npos, tally.finding->text);
    BOOST_TEST(!evidence_of(tally, "ranks").as_claimed());
}

BOOST_AUTO_TEST_CASE(nondeterminism_is_reported_and_not_shrunk) {
    Campaign campaign(Wrong::nondeterministic);
    campaign.only("results_are_as_predicted");
    const Tally tally = campaign.run().front();
    BOOST_REQUIRE(tally.finding.has_value());
    BOOST_TEST(!tally.finding->repeats);
    BOOST_TEST(tally.finding->kind == "run-to-run");
    BOOST_TEST(tally.finding->steps == 0u);
}

BOOST_AUTO_TEST_CASE(alignment_that_shows_stays_in_the_case) {
    Campaign campaign(Wrong::shows_shift);
    campaign.only("results_are_as_predicted");
    const Tally tally = campaign.run().front();
    BOOST_REQUIRE(tally.finding.has_value());
    BOOST_TEST(tally.finding->minimal.a.launch_mode.shift % 2 == 1);
    BOOST_TEST(tally.finding->minimal.a.launch_mode.in_place);
    BOOST_TEST(!tally.finding->minimal.a.launch_mode.captured);
}

BOOST_AUTO_TEST_CASE(a_row_that_is_not_the_token_s_is_looked_at_too) {
    Campaign campaign(Wrong::other_row);
    campaign.only("results_are_as_predicted");
    const Tally tally = campaign.run().front();
    BOOST_REQUIRE(tally.finding.has_value());
    BOOST_TEST(tally.finding->repeats);
    BOOST_TEST(tally.finding->original.a.row == 0u);
    BOOST_TEST(routing_of(tally.finding->minimal, tally.finding->minimal.a).rows() == 4u);
}

BOOST_AUTO_TEST_CASE(faults_of_ranks_are_searched_for) {
    Campaign campaign(Wrong::nothing);
    std::string caught;
    for (const FaultSearch& search : search_faults_of_ranks(*campaign.backend, 1, 300))
        if (search.caught) caught += std::string(search.fault->name) + " ";
    BOOST_TEST(caught == "ring_order ");
}

BOOST_AUTO_TEST_CASE(enumerations_are_complete_on_ranks_too) {
    Campaign campaign(Wrong::nothing, false, {1, 2, 3, 4});
    for (const Evidence& line : enumerate(*campaign.backend, Enumeration::some)) {
        BOOST_TEST(line.as_claimed(), line.claim << ": " << line.detail << line.witness);
        BOOST_TEST(line.decided_by == (line.claim == "every_sizes_vector" ? "exhausted 70" : "exhausted 140"));
    }
    Campaign wrong(Wrong::order);
    BOOST_TEST((every_sizes_vector(*wrong.backend, 4).verdict == Verdict::refuted));
    Campaign bent(Wrong::nothing, true);
    BOOST_CHECK_THROW((void)every_sizes_vector(*bent.backend, 4), Inconclusive);
}

BOOST_AUTO_TEST_CASE(ranks_that_die_decide_nothing) {
    Campaign campaign(Wrong::dies);
    bool reported = false;
    for (const Tally& tally : campaign.run()) {
        BOOST_TEST(!tally.why_undecided.empty());
        BOOST_TEST((tally.finding || evidence_of(tally, "ranks").verdict == Verdict::inconclusive));
        reported |= tally.why_undecided.find("rank 1 died\n  case: ") != std::string::npos;
    }
    BOOST_TEST(reported);
}

BOOST_AUTO_TEST_CASE(what_nccl_refuses_is_counted) {
    Campaign campaign(Wrong::refuses_ll);
    campaign.only("gather_ordered_is_routing_invariant");
    const Tally tally = campaign.run().front();
    BOOST_TEST(tally.refused > 0u);
    BOOST_TEST(tally.cases > 100u);
    BOOST_TEST(tally.why_undecided == "");
    BOOST_TEST(evidence_of(tally, "ranks").as_claimed());
    BOOST_TEST(tally.classes.count("protocol: LL128") == 0u);
}

BOOST_AUTO_TEST_CASE(no_gpu_is_said) {
    try {
        (void)nccl_backend({});
        BOOST_TEST_MESSAGE("there is a GPU here");
    } catch (const Inconclusive& reason) {
        BOOST_TEST(std::string(reason.what()) != "");
    }
}
