// Every repetition starts with a barrier, so that no rank's time includes waiting for another's previous repetition.
// SPDX-License-Identifier: Apache-2.0
#include "impl/ranks/timing.hpp"

#include <memory>

#include "impl/device/cuda.hpp"
#include "impl/kernels/link_limits.hpp"

namespace samesum::gpu {

std::vector<std::vector<double>> time_all(const std::vector<BenchItem>& items, const Repetitions& how,
                                          const Communicator& comm, cudaStream_t stream) {
    const DeviceBuffer word(4);
    const auto synchronize = [&] { check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); };
    const auto barrier = [&] {
        comm.check(ncclAllReduce(word.data(), word.data(), 1, ncclUint32, ncclSum, comm.get(), stream),
                   "ncclAllReduce");
        synchronize();
    };
    const auto all_iterations = [&](const BenchItem& item) {
        for (int i = 0; i < how.iterations; ++i) item.work(stream);
    };
    std::vector<std::unique_ptr<Graph>> graphs;
    for (const BenchItem& item : items) {
        // The first calls set up connections; they are not timed.
        for (int i = 0; i < 3; ++i) item.work(stream);
        synchronize();
        if (how.captured) {
            graphs.push_back(std::make_unique<Graph>(stream, [&] { all_iterations(item); }));
            graphs.back()->launch(stream);
            synchronize();
        }
    }
    std::vector<std::vector<double>> times(items.size());
    const Event begin, end;
    for (int repetition = 0; repetition < how.repetitions; ++repetition)
        for (std::size_t i = 0; i < items.size(); ++i) {
            barrier();
            begin.record(stream);
            if (how.captured)
                graphs[i]->launch(stream);
            else
                all_iterations(items[i]);
            end.record(stream);
            synchronize();
            times[i].push_back(1000 * Event::milliseconds(begin, end) / how.iterations);
        }
    return times;
}

std::vector<BenchItem> limits(const PeerMappedBuffer& peers, std::byte* sink, std::uint64_t bytes,
                              const Communicator& comm) {
    const auto each_peer = [ranks = comm.ranks(), rank = comm.rank()](auto&& move) {
        for (int next = 1; next < ranks; ++next) move((rank + next) % ranks);
    };
    const std::uint64_t packs = bytes / 16 * 16;
    return {{"peer_read",
             [=, &peers](cudaStream_t stream) {
                 each_peer([&](int peer) { launch_peer_read(peers.of(peer), sink, packs, stream); });
             }},
            {"peer_write",
             [=, &peers](cudaStream_t stream) {
                 each_peer([&](int peer) { launch_peer_write(peers.of(peer), packs, stream); });
             }},
            {"launch", launch_nothing}};
}

}  // namespace samesum::gpu
