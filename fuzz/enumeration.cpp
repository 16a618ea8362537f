// Each enumeration counts its cases, and how many of them could have revealed a mistake.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/enumeration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <tuple>

#include "model/arithmetic/random.hpp"
#include "model/sum/native_sum.hpp"
#include "model/sum/witness.hpp"
#include "model/support/error.hpp"
#include "model/support/progress.hpp"

namespace samesum::fuzz {
namespace {

constexpr std::uint64_t hidden = 2;
constexpr Format format = Format::bfloat16;

/// Counts cases and checks, keeps the first failure, and makes the line of the ledger.
class CaseCounter {
public:
    CaseCounter(std::string claim, std::string sentence, std::string scope)
        : evidence_{.claim = std::move(claim),
                    .sentence = std::move(sentence),
                    .scope = std::move(scope),
                    .expected = Verdict::upheld,
                    .verdict = Verdict::inconclusive,
                    .decided_by = {},
                    .detail = {},
                    .witness = {},
                    .replay = {},
                    .seconds = 0},
          began_(monotonic_seconds()) {}

    template <class Describe>
    void check(bool good, Describe describe) {
        ++checks_;
        if (good) return;
        ++failures_;
        if (evidence_.witness.empty()) evidence_.witness = describe();
    }
    void one_more() { ++visited_; }
    void more(std::uint64_t number) { visited_ += number; }

    /// `order_sensitive`: how often a mistake could have shown; 0 makes the line vacuous.
    [[nodiscard]] Evidence decided(std::uint64_t order_sensitive, std::string_view of_what) {
        evidence_.verdict = failures_ > 0 ? Verdict::refuted : Verdict::upheld;
        evidence_.decided_by = fmt::format("exhausted {}", visited_);
        evidence_.detail = fmt::format("{} checks, {} failed; {} {}", checks_, failures_, order_sensitive, of_what);
        if (order_sensitive == 0 || visited_ == 0) {
            evidence_.verdict = Verdict::inconclusive;
            evidence_.detail = "vacuous: " + evidence_.detail;
        }
        evidence_.seconds = monotonic_seconds() - began_;
        return evidence_;
    }

private:
    Evidence evidence_;
    double began_;
    std::uint64_t visited_ = 0, checks_ = 0, failures_ = 0;
};

/// A token's partial on a rank, the same wherever the token is.
Bits partial(int token, int rank, std::uint64_t column) {
    return Random::of(static_cast<std::uint64_t>(token) * 64 + static_cast<std::uint64_t>(rank), column)
        .spread(format, 6);
}

/// The communicator of the open ranks, or one of the model.
struct OpenCommunicator {
    Communicator comm;
    Protocol protocol = Protocol::simple;
    std::string name;
};

OpenCommunicator communicator_of(Backend& backend, int ranks, const Ring& ring) {
    const auto setup = backend.open_ring(ranks);
    if (!setup) return {{.topology = Topology::from_rings(std::vector<Ring>(2, ring))}, Protocol::simple, "the model"};
    if (!one_ring(setup->rings)) throw Inconclusive(fmt::format("{} ranks have several rings here", ranks));
    Communicator comm{.topology = Topology::from_rings(setup->rings, setup->ranks_per_node), .version = setup->nccl};
    if (setup->threads > 0) comm.settings.threads = comm.settings.ll128_threads = setup->threads;
    return {std::move(comm), setup->protocol, backend.description()};
}

/// tokens[row] is the token that lies there.
std::vector<Bits> combine_tokens(Backend& backend, Scheme scheme, const OpenCommunicator& open,
                                 const std::vector<std::uint64_t>& sizes, const std::vector<int>& tokens) {
    const Request request{.scheme = scheme,
                          .comm = open.comm,
                          .routing = {sizes, hidden},
                          .format = format,
                          .options = {.forced = {Algorithm::ring, open.protocol}}};
    std::vector<std::vector<Bits>> buffers(sizes.size());
    for (std::size_t rank = 0; rank < sizes.size(); ++rank)
        for (const int token : tokens)
            for (std::uint64_t column = 0; column < hidden; ++column)
                buffers[rank].push_back(partial(token, static_cast<int>(rank), column));
    return backend.combine(request, buffers);
}

std::array<Bits, hidden> row_of(const std::vector<Bits>& buffer, std::uint64_t row) {
    std::array<Bits, hidden> bits{};
    std::copy_n(buffer.begin() + static_cast<std::ptrdiff_t>(row * hidden), hidden, bits.begin());
    return bits;
}

bool follows_owner(Scheme scheme) {
    return scheme == Scheme::reduce_scatter || scheme == Scheme::reduce_per_owner || scheme == Scheme::vllm_default;
}

Ring plain_ring(int ranks) {
    Ring ring(static_cast<std::size_t>(ranks));
    std::iota(ring.begin(), ring.end(), 0);
    return ring;
}

/// Calls visit() for each vector of values from 0 to bound - 1.
template <class Visitor>
void for_each_vector(std::vector<int>& values, int bound, Visitor counter) {
    std::fill(values.begin(), values.end(), 0);
    for (;;) {
        counter();
        std::size_t i = 0;
        while (i < values.size() && ++values[i] == bound) values[i++] = 0;
        if (i == values.size()) return;
    }
}

}  // namespace

Evidence every_owner_assignment(Backend& backend, int tokens) {
    CaseCounter counter("every_owner_assignment",
                        "a token's bits depend on its owner in schemes that follow it, in others on nothing",
                        fmt::format("1 to {} tokens, 1 to 4 ranks, every scheme", tokens));
    std::uint64_t order_sensitive = 0;
    for (int ranks = 1; ranks <= 4; ++ranks) {
        const OpenCommunicator open = communicator_of(backend, ranks, plain_ring(ranks));
        // The first result of (scheme, token, owner); owner 0 stands for all owners where it must not matter.
        std::map<std::tuple<Scheme, int, int>, std::array<Bits, hidden>> first;
        for (int count = 1; count <= tokens; ++count) {
            std::vector<int> owners(static_cast<std::size_t>(count));
            for_each_vector(owners, ranks, [&] {
                counter.one_more();
                std::vector<std::uint64_t> sizes(static_cast<std::size_t>(ranks));
                std::vector<int> order(owners.size());
                std::iota(order.begin(), order.end(), 0);
                std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
                    return owners[static_cast<std::size_t>(a)] < owners[static_cast<std::size_t>(b)];
                });
                for (const int owner : owners) ++sizes[static_cast<std::size_t>(owner)];
                for (const Scheme scheme : all_schemes) {
                    if (scheme == Scheme::reduce_scatter && !Routing{sizes, 1}.equal_sizes()) continue;
                    const std::vector<Bits> result = combine_tokens(backend, scheme, open, sizes, order);
                    for (std::size_t row = 0; row < order.size(); ++row) {
                        const int owner = owners[static_cast<std::size_t>(order[row])];
                        const auto bits = row_of(result, row);
                        const auto& expected =
                            first.try_emplace({scheme, order[row], follows_owner(scheme) ? owner : 0}, bits)
                                .first->second;
                        counter.check(bits == expected, [&] {
                            return fmt::format("{} of sizes {}: row {} is {}, was {}", name(scheme), str_sizes(sizes),
                                               row, hex(format, bits[0]), hex(format, expected[0]));
                        });
                    }
                }
            });
        }
        for (const auto& [key, bits] : first) {
            const auto& [scheme, token, owner] = key;
            if (owner > 0 && first.count({scheme, token, 0}) > 0)
                order_sensitive += bits != first.at({scheme, token, 0});
        }
    }
    return counter.decided(order_sensitive, "pairs of owners show in the bits of schemes that follow them");
}

Evidence every_sizes_vector(Backend& backend, int total) {
    CaseCounter counter("every_sizes_vector", "every row arrives once, with the sum of its own partials",
                        fmt::format("0 to {} rows on 4 ranks, every scheme", total));
    const OpenCommunicator open = communicator_of(backend, 4, {0, 2, 1, 3});
    const Ring ring = open.comm.topology.ring(0);
    std::uint64_t order_sensitive = 0;
    std::vector<int> sizes(4);
    std::vector<int> tokens;
    for_each_vector(sizes, total + 1, [&] {
        const int rows = std::accumulate(sizes.begin(), sizes.end(), 0);
        if (rows > total) return;
        counter.one_more();
        tokens.resize(static_cast<std::size_t>(rows));
        std::iota(tokens.begin(), tokens.end(), 0);
        const Routing routing{{sizes.begin(), sizes.end()}, hidden};
        for (const Scheme scheme : all_schemes) {
            if (scheme == Scheme::reduce_scatter && !routing.equal_sizes()) continue;
            const std::vector<Bits> result = combine_tokens(backend, scheme, open, routing.sizes, tokens);
            counter.check(result.size() == routing.elements(), [&] {
                return fmt::format("{} of sizes {}: {} elements", name(scheme), str_sizes(routing.sizes),
                                   result.size());
            });
            for (std::uint64_t row = 0; row < routing.rows(); ++row) {
                // The sum depends on where the order ends; the additions are repeated here independently.
                const bool in_rank_order = is_ordered(scheme) || scheme == Scheme::exact;
                const int last = follows_owner(scheme) ? routing.owner(row) : 0;
                const Ring walk = in_rank_order ? Ring{0, 1, 2, 3} : walk_ending_at(ring, last);
                for (std::uint64_t column = 0; column < hidden; ++column) {
                    std::vector<Bits> x;
                    for (const int rank : walk) x.push_back(partial(static_cast<int>(row), rank, column));
                    const HopArithmetic hop(format);
                    Bits sum = x[0];
                    for (std::size_t i = 1; i < x.size(); ++i) sum = hop.add(sum, x[i]);
                    order_sensitive += scheme == Scheme::exact && sum != exact_sum(format, x);
                    if (scheme == Scheme::exact) sum = exact_sum(format, x);
                    const Bits got = result[row * hidden + column];
                    counter.check(got == sum, [&] {
                        return fmt::format("{} of sizes {}: row {} is {}, should be {}", name(scheme),
                                           str_sizes(routing.sizes), row, hex(format, got), hex(format, sum));
                    });
                }
            }
        }
    });
    return counter.decided(order_sensitive, "elements whose exact sum is another than that by additions");
}

Evidence every_tree(int leaves) {
    CaseCounter counter("every_tree",
                        "a tree reads back as printed, and every other one than rank order has a witness against it",
                        fmt::format("2 to {} leaves", leaves));
    std::uint64_t order_sensitive = 0;
    for (int n = 2; n <= leaves; ++n) {
        std::vector<int> ranks(static_cast<std::size_t>(n));
        std::iota(ranks.begin(), ranks.end(), 0);
        const ReductionTree rank_order = ReductionTree::left_fold(ranks);
        std::set<std::string> seen;
        std::uint64_t expected = 1;
        for (int k = 3; k <= 2 * n - 3; k += 2) expected *= static_cast<std::uint64_t>(k);
        for (const ReductionTree& tree : all_trees(n)) {
            counter.one_more();
            const std::string text = tree.str();
            const auto say = [&] { return text; };
            counter.check(seen.insert(text).second, say);
            counter.check(ReductionTree::parse(text) == tree && tree.canonical() == tree, say);
            const auto witness = separating_witness(tree, rank_order, format);
            counter.check(witness.has_value() == !same_order(tree, rank_order), say);
            order_sensitive += witness.has_value();
        }
        counter.check(seen.size() == expected, [&] { return fmt::format("{} trees of {} leaves", seen.size(), n); });
    }
    return counter.decided(order_sensitive, "trees other than rank order");
}

Evidence every_float8_pair() {
    CaseCounter counter("every_float8_pair", "addition commutes, and is the exact sum rounded once",
                        "float8_e4m3 and float8_e5m2");
    std::uint64_t order_sensitive = 0;
    for (const Format f : {Format::float8_e4m3, Format::float8_e5m2}) {
        const HopArithmetic hop(f);
        for (Bits x = 0; x < 256; ++x)
            for (Bits y = 0; y < 256; ++y) {
                counter.one_more();
                const Bits sum = hop.add(x, y);
                const std::array both{x, y};
                counter.check(sum == hop.add(y, x) && sum == exact_sum(f, both), [&] {
                    return fmt::format("{}: {} + {} makes {}, exactly {}", name(f), hex(f, x), hex(f, y), hex(f, sum),
                                       hex(f, exact_sum(f, both)));
                });
                order_sensitive += !is_nan(f, sum) && !add_is_exact(f, x, y);
            }
    }
    return counter.decided(order_sensitive, "sums that are rounded");
}

Evidence every_float8_triple() {
    CaseCounter counter("every_float8_triple",
                        "the exact sum of three values is their sum in doubles, rounded once, in any order",
                        "float8_e4m3 and float8_e5m2, every order");
    std::uint64_t order_sensitive = 0;
    for (const Format f : {Format::float8_e4m3, Format::float8_e5m2}) {
        const FormatTraits& t = traits(f);
        const std::uint8_t* const sums = float8_sums(f).data();
        std::array<double, 256> value{};
        for (Bits x = 0; x < 256; ++x) value[x] = to_double(f, x);
        // The result for one first value; threads share the slices.
        struct Slice {
            std::uint64_t visited = 0, order_sensitive = 0;
            std::optional<std::array<Bits, 3>> wrong{};
        };
        const auto slice_of = [&](Bits x) {
            Slice slice;
            for (Bits y = 0; y < 256; ++y)
                for (Bits z = 0; z < 256; ++z) {
                    ++slice.visited;
                    slice.order_sensitive += sums[sums[x << 8 | y] << 8 | z] != sums[x << 8 | sums[y << 8 | z]];
                    const std::array all{x, y, z};
                    const Bits sum = exact_sum(f, all);
                    Bits expected = 0;
                    if (is_finite(f, x) && is_finite(f, y) && is_finite(f, z)) {
                        // 53 bits hold the sum of three such numbers exactly; then it saturates.
                        expected = from_double(f, value[x] + value[y] + value[z]);
                        if (is_infinite(f, expected)) expected = (expected & t.sign()) | t.largest();
                    } else {
                        std::array sorted = all;
                        std::sort(sorted.begin(), sorted.end());
                        expected = exact_sum(f, sorted);
                    }
                    if (sum != expected && !slice.wrong) slice.wrong = all;
                }
            return slice;
        };
        std::array<Slice, 256> slices;
        std::atomic<std::size_t> next{0};
        const auto work = [&] {
            for (std::size_t x = next++; x < slices.size(); x = next++) slices[x] = slice_of(x);
        };
        std::vector<std::thread> threads;
        for (unsigned i = 1; i < std::clamp(std::thread::hardware_concurrency(), 1u, 16u); ++i)
            threads.emplace_back(work);
        work();
        for (std::thread& thread : threads) thread.join();
        for (const Slice& slice : slices) {
            counter.more(slice.visited);
            order_sensitive += slice.order_sensitive;
            counter.check(!slice.wrong, [&] {
                return fmt::format("{}: {} {} {}", name(f), hex(f, (*slice.wrong)[0]), hex(f, (*slice.wrong)[1]),
                                   hex(f, (*slice.wrong)[2]));
            });
        }
    }
    return counter.decided(order_sensitive, "triples whose sum by additions depends on the order");
}

std::vector<Evidence> enumerate(Backend& backend, Enumeration which) {
    if (which == Enumeration::none) return {};
    const bool live = backend.setups() > 0;
    if (live) {
        // Ranks that cannot be opened make that enumeration inconclusive; the others still run.
        std::vector<Evidence> all;
        const auto add = [&](const char* claim, const auto& make) {
            try {
                all.push_back(make());
            } catch (const Inconclusive& reason) {
                all.push_back({.claim = claim,
                               .sentence = {},
                               .scope = "real ranks",
                               .expected = Verdict::upheld,
                               .verdict = Verdict::inconclusive,
                               .decided_by = {},
                               .detail = reason.what(),
                               .witness = {},
                               .replay = {},
                               .seconds = 0});
            }
        };
        add("every_owner_assignment",
            [&] { return every_owner_assignment(backend, which == Enumeration::all ? 6 : 3); });
        add("every_sizes_vector", [&] { return every_sizes_vector(backend, which == Enumeration::all ? 12 : 4); });
        return all;
    }
    std::vector<Evidence> all{every_owner_assignment(backend, 6), every_sizes_vector(backend, 12), every_tree(7),
                              every_float8_pair()};
    if (which == Enumeration::all) all.push_back(every_float8_triple());
    return all;
}

}  // namespace samesum::fuzz
