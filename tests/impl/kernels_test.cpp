// The kernels alone, in one process, against the model: every format, rounding, alignment and odd size. Short enough to
// run under compute-sanitizer.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE impl_kernels
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "impl/device/cuda.hpp"
#include "impl/kernels/direct_sum.hpp"
#include "impl/kernels/ordered_sum.hpp"
#include "model/arithmetic/random.hpp"
#include "model/sum/element_sum.hpp"

using namespace samesum;
using namespace samesum::gpu;

namespace {

struct NeedsDevice {
    NeedsDevice() {
        if (device_count() > 0) return;
        std::printf("skipped: no CUDA device\n");
        std::fflush(stdout);
        ::_exit(77);
    }
};
BOOST_TEST_GLOBAL_FIXTURE(NeedsDevice);

/// Inputs of all ranks on host and device, off their alignment by `shift` elements.
struct Operands {
    Operands(Format f, int ranks, std::uint64_t n, int shift, std::uint64_t seed)
        : format(f), elements(n), width(static_cast<std::size_t>(traits(f).bytes())) {
        Random random(seed);
        for (int rank = 0; rank < ranks; ++rank) {
            auto& own = host.emplace_back(elements * width);
            for (std::uint64_t i = 0; i < elements; ++i)
                store(format, own, i, i % 3 == 0 ? random.pattern(format) : random.spread(format, 6));
            device.emplace_back((elements + static_cast<std::uint64_t>(shift)) * width + 64);
            sources.values[rank] = device.back().data() + static_cast<std::size_t>(shift) * width;
            check(cudaMemcpy(device.back().data() + static_cast<std::size_t>(shift) * width, own.data(), own.size(),
                             cudaMemcpyHostToDevice),
                  "cudaMemcpy");
        }
        sources.count = ranks;
        result = DeviceBuffer((elements + static_cast<std::uint64_t>(shift)) * width + 64);
        out = result.data() + static_cast<std::size_t>(shift) * width;
    }

    /// Elements that differ from the model's, and bytes written outside the result.
    [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> wrong(Accumulation accumulation) const {
        std::vector<std::byte> all(result.size());
        check(cudaMemcpy(all.data(), result.data(), all.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
        const auto offset = static_cast<std::size_t>(out - result.data());
        std::vector<int> order(host.size());
        std::iota(order.begin(), order.end(), 0);
        const ReductionTree tree = ReductionTree::left_fold(order);
        std::vector<Bits> leaves(host.size());
        std::uint64_t differing = 0, outside = 0;
        for (std::uint64_t i = 0; i < elements; ++i) {
            for (std::size_t rank = 0; rank < host.size(); ++rank) leaves[rank] = load(format, host[rank], i);
            const Bits modelled = sum_element({.format = format, .accumulation = accumulation}, tree, leaves);
            differing += modelled != load(format, std::span(all).subspan(offset), i) ? 1 : 0;
        }
        for (std::size_t i = 0; i < all.size(); ++i)
            if (i < offset || i >= offset + elements * width)
                outside += all[i] != std::byte{DeviceBuffer::poison} ? 1 : 0;
        return {differing, outside};
    }

    Format format;
    std::uint64_t elements;
    std::size_t width;
    std::vector<std::vector<std::byte>> host;
    std::vector<DeviceBuffer> device;
    Sources sources;
    DeviceBuffer result;
    std::byte* out = nullptr;
};

}  // namespace

BOOST_AUTO_TEST_CASE(sums_in_rank_order_have_the_models_bits) {
    const Stream stream(0);
    std::uint64_t seed = 1, cases = 0;
    for (const Format format : float_formats)
        for (const Accumulation accumulation : {Accumulation::per_hop, Accumulation::fp32_once, Accumulation::exact})
            for (const int ranks : {1, 2, 3, 8, 11})
                for (const std::uint64_t elements : {0ull, 1ull, 15ull, 33ull, 1000ull})
                    for (const int shift : {0, 1}) {
                        Operands operands(format, ranks, elements, shift, ++seed);
                        launch_sum(operands.sources, operands.out, elements, format, accumulation, stream.get());
                        stream.synchronize();
                        const auto [differing, outside] = operands.wrong(accumulation);
                        BOOST_TEST_REQUIRE(differing == 0u, name(format) << " " << name(accumulation) << " " << ranks
                                                                         << " ranks, " << elements << " elements");
                        BOOST_TEST_REQUIRE(outside == 0u);
                        ++cases;
                    }
    BOOST_TEST(cases == 6u * 3 * 5 * 5 * 2);
}

BOOST_AUTO_TEST_CASE(a_result_may_take_a_sources_place) {
    const Stream stream(0);
    for (const Accumulation accumulation : {Accumulation::per_hop, Accumulation::exact}) {
        Operands operands(Format::bfloat16, 4, 5000, 0, 7);
        launch_sum(operands.sources, const_cast<std::byte*>(operands.sources.values[2]), 5000, Format::bfloat16,
                   accumulation, stream.get());
        check(cudaMemcpyAsync(operands.out, operands.sources.values[2], 10000, cudaMemcpyDeviceToDevice, stream.get()),
              "cudaMemcpyAsync");
        stream.synchronize();
        BOOST_TEST(operands.wrong(accumulation).first == 0u);
    }
}

namespace {

/// The receive slots of several ranks, all in this process and on one GPU.
struct LocalRanks {
    LocalRanks(int number, int blocks) : ranks(number) {
        for (int rank = 0; rank < ranks; ++rank) {
            inboxes.emplace_back(inbox_bytes(ranks, blocks));
            words.emplace_back((static_cast<std::size_t>(blocks) * direct::warps + 1) * 8);
            streams.emplace_back(0);
            check(cudaMemset(inboxes.back().data(), 0, inboxes.back().size()), "cudaMemset");
            check(cudaMemset(words.back().data(), 0, words.back().size()), "cudaMemset");
        }
        for (int rank = 0; rank < ranks; ++rank) {
            auto& own = receive_slots.emplace_back();
            for (int q = 0; q < ranks; ++q) own.inbox[q] = inboxes[static_cast<std::size_t>(q)].data();
            own.steps = reinterpret_cast<std::uint64_t*>(words[static_cast<std::size_t>(rank)].data());
            own.expired = reinterpret_cast<std::uint32_t*>(own.steps + blocks * direct::warps);
            own.timeout_ns = 2'000'000'000;
            own.rank = rank;
            own.ranks = ranks;
            own.blocks = blocks;
        }
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
    [[nodiscard]] std::uint32_t expired(std::size_t rank) const {
        std::uint32_t word = 0;
        check(cudaMemcpy(&word, receive_slots[rank].expired, sizeof word, cudaMemcpyDeviceToHost), "cudaMemcpy");
        return word;
    }

    int ranks;
    std::vector<DeviceBuffer> inboxes, words;
    std::vector<Stream> streams;
    std::vector<ReceiveSlots> receive_slots;
};

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_that_write_to_each_other_have_the_models_bits) {
    std::uint64_t seed = 100, cases = 0;
    for (const int ranks : {1, 2, 3, 5}) {
        // Few blocks and many calls, so that slots are reused and warps are at different steps.
        LocalRanks local(ranks, 2);
        for (const Format format : float_formats)
            for (const Accumulation accumulation : {Accumulation::per_hop, Accumulation::fp32_once})
                for (const std::uint64_t elements : {0ull, 1ull, 60ull, 121ull, 4000ull, 40003ull})
                    for (const int shift : {0, 1}) {
                        Operands operands(format, ranks, elements, shift, ++seed);
                        // Rank `owner` owns most of the elements, the others one each, where there are as many.
                        const auto width = operands.width;
                        const int owner = static_cast<int>(seed % static_cast<unsigned>(ranks));
                        std::vector<indexing::Range<std::uint64_t>> chunks;
                        std::uint64_t at = 0;
                        for (int q = 0; q < ranks; ++q) {
                            const std::uint64_t others = elements < 50 ? 0 : 1;
                            const std::uint64_t count =
                                q == owner ? elements - others * static_cast<unsigned>(ranks - 1) : others;
                            chunks.push_back({at * width, count * width});
                            at += count;
                        }
                        for (int rank = 0; rank < ranks; ++rank) {
                            const auto r = static_cast<std::size_t>(rank);
                            DirectSum sum{.partial = operands.sources.values[rank],
                                          .result = operands.out + chunks[r].offset};
                            std::copy(chunks.begin(), chunks.end(), sum.chunks);
                            launch_direct_sum(local.receive_slots[r], sum, format, accumulation,
                                              local.streams[r].get());
                        }
                        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
                        const auto [differing, outside] = operands.wrong(accumulation);
                        BOOST_TEST_REQUIRE(differing == 0u, name(format) << " " << name(accumulation) << " " << ranks
                                                                         << " ranks, " << elements << " elements");
                        BOOST_TEST_REQUIRE(outside == 0u);
                        BOOST_TEST_REQUIRE(local.expired(0) == 0u);
                        ++cases;
                    }
    }
    BOOST_TEST(cases == 4u * 6 * 2 * 6 * 2);
}

BOOST_AUTO_TEST_CASE(calls_of_several_streams_are_in_flight_at_once) {
    // Each stream has its own receive slots; one stream is delayed while the others continue. At most 8 streams: a
    // process has 8 queues, and a kernel that waits for another behind it in its queue would never end.
    constexpr int ranks = 3, lanes = 2, calls = 20;
    // A kernel's first launch loads it and waits for running kernels, and those here wait for later launches.
    launch_delay(1, nullptr);
    std::vector<LocalRanks> groups;
    std::vector<std::vector<Operands>> operands(lanes);
    for (int lane = 0; lane < lanes; ++lane) {
        groups.emplace_back(ranks, 2);
        for (int call = 0; call < calls; ++call)
            operands[static_cast<std::size_t>(lane)].emplace_back(Format::bfloat16, ranks, 3000, 0,
                                                                  static_cast<std::uint64_t>(lane * calls + call));
    }
    for (int call = 0; call < calls; ++call)
        for (std::size_t lane = 0; lane < lanes; ++lane)
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                Operands& each = operands[lane][static_cast<std::size_t>(call)];
                if (lane == 0 && rank == 1) launch_delay(1'000'000, groups[lane].streams[rank].get());
                DirectSum sum{.partial = each.sources.values[rank], .result = each.out + 2000 * rank};
                for (std::size_t q = 0; q < ranks; ++q) sum.chunks[q] = {2000 * q, 2000};
                launch_direct_sum(groups[lane].receive_slots[rank], sum, Format::bfloat16, Accumulation::per_hop,
                                  groups[lane].streams[rank].get());
            }
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (const LocalRanks& local : groups)
        for (std::size_t rank = 0; rank < ranks; ++rank) BOOST_TEST_REQUIRE(local.expired(rank) == 0u);
    for (const auto& lane : operands)
        for (const Operands& each : lane) BOOST_TEST_REQUIRE(each.wrong(Accumulation::per_hop).first == 0u);
}

BOOST_AUTO_TEST_CASE(a_rank_whose_peer_never_runs_times_out) {
    LocalRanks local(2, 1);
    local.receive_slots[0].timeout_ns = 200'000'000;
    Operands operands(Format::float32, 2, 1000, 0, 9);
    DirectSum sum{.partial = operands.sources.values[0], .result = operands.out};
    sum.chunks[0] = {0, 4000};
    sum.chunks[1] = {4000, 0};
    launch_direct_sum(local.receive_slots[0], sum, Format::float32, Accumulation::per_hop, local.streams[0].get());
    local.streams[0].synchronize();
    BOOST_TEST(local.expired(0) == 1u);
    BOOST_TEST(operands.wrong(Accumulation::per_hop).first == 1000u);
}

BOOST_AUTO_TEST_CASE(integers_are_refused) {
    const Stream stream(0);
    Sources none;
    BOOST_CHECK_THROW(launch_sum(none, nullptr, 4, Format::int32, Accumulation::per_hop, stream.get()), UsageError);
    BOOST_CHECK_THROW(launch_sum(none, nullptr, 4, Format::int32, Accumulation::exact, stream.get()), UsageError);
}
