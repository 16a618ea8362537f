// Speed of whole-buffer sums, next to the limit set by memory: a plain streaming sum in the same run.
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <cstring>
#include <thread>
#include <vector>

#include "model/arithmetic/random.hpp"
#include "model/nccl/buffer_sum.hpp"
#include "model/sum/native_sum.hpp"
#include "model/sum/reachable.hpp"

namespace {

using namespace samesum;

constexpr std::size_t buffer_bytes = std::size_t{64} << 20;  // larger than all caches

struct Data {
    std::vector<std::vector<std::byte>> inputs;
    std::vector<std::byte> output;
    std::vector<ConstBytes> views;
};

const Data& data(std::size_t ranks) {
    static Data all;
    if (all.inputs.size() < 8) {
        all.inputs.assign(8, std::vector<std::byte>(buffer_bytes));
        all.output.resize(buffer_bytes);
        // Finite numbers in every format: 0x3f80 + 7 bits.
        for (auto& input : all.inputs)
            for (std::size_t i = 0; i < buffer_bytes; i += 2)
                store(Format::bfloat16, input, i / 2, 0x3f80 + (i * 37 / 64) % 127);
    }
    all.views.assign(all.inputs.begin(), all.inputs.begin() + static_cast<std::ptrdiff_t>(ranks));
    return all;
}

std::span<std::byte> output_of(const Data& d) { return {const_cast<std::byte*>(d.output.data()), d.output.size()}; }

/// The limit: reads every input once as 64-bit words, writes one output, on two threads, without rounding.
void memory_limit(benchmark::State& state) {
    const auto ranks = static_cast<std::size_t>(state.range(0));
    const Data& d = data(ranks);
    const auto half = [&](std::size_t from, std::size_t to) {
        auto* out = reinterpret_cast<std::uint64_t*>(output_of(d).data());
        for (std::size_t at = from; at < to; at += 512) {
            std::uint64_t tile[64] = {};
            for (const ConstBytes& input : d.views) {
                const auto* in = reinterpret_cast<const std::uint64_t*>(input.data()) + at / 8;
                for (std::size_t k = 0; k < 64; ++k) tile[k] += in[k];
            }
            std::memcpy(out + at / 8, tile, sizeof tile);
        }
    };
    for (auto _ : state) {
        std::thread other(half, buffer_bytes / 2, buffer_bytes);
        half(0, buffer_bytes / 2);
        other.join();
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * buffer_bytes * (ranks + 1)));
}

void sum(benchmark::State& state, Format format, const char* shape, Accumulation accumulation) {
    const auto ranks = static_cast<std::size_t>(state.range(0));
    const Data& d = data(ranks);
    std::vector<int> all;
    for (int rank = 0; rank < static_cast<int>(ranks); ++rank) all.push_back(rank);
    const ReductionTree tree = shape[0] == 'c' ? ReductionTree::left_fold(all) : ReductionTree::balanced(all);
    for (auto _ : state) sum_buffers({.format = format, .accumulation = accumulation}, tree, d.views, output_of(d));
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * buffer_bytes * (ranks + 1)));
    state.SetLabel(native_description());
}

void reachable_sets(benchmark::State& state, Format format) {
    Random random(1);
    std::vector<Bits> leaves;
    for (int i = 0; i < state.range(0); ++i) leaves.push_back(from_double(format, random.normal()));
    std::size_t results = 0;
    for (auto _ : state) results = ReachableSums({.format = format}, leaves, {}).results().size();
    state.SetLabel(std::to_string(results) + " results");
}

}  // namespace

BENCHMARK(memory_limit)->Arg(2)->Arg(8)->UseRealTime()->Unit(benchmark::kMillisecond);
#define SAMESUM_SUM(format, shape, accumulation)                                                                  \
    BENCHMARK_CAPTURE(sum, format##_##shape##_##accumulation, Format::format, #shape, Accumulation::accumulation) \
        ->Arg(2)                                                                                                  \
        ->Arg(8)                                                                                                  \
        ->UseRealTime()                                                                                           \
        ->Unit(benchmark::kMillisecond)
SAMESUM_SUM(float32, chain, per_hop);
SAMESUM_SUM(float32, balanced, per_hop);
SAMESUM_SUM(bfloat16, chain, per_hop);
SAMESUM_SUM(bfloat16, balanced, per_hop);
SAMESUM_SUM(bfloat16, chain, fp32_once);
SAMESUM_SUM(float16, chain, per_hop);
SAMESUM_SUM(float64, chain, per_hop);
SAMESUM_SUM(float8_e4m3, chain, per_hop);
BENCHMARK_CAPTURE(reachable_sets, bfloat16, Format::bfloat16)->Arg(8)->Arg(12)->Arg(16)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(reachable_sets, float32, Format::float32)->Arg(8)->Arg(12)->Arg(16)->Unit(benchmark::kMillisecond);

BENCHMARK_MAIN();
