// Handles travel by an all-gather over the communicator itself, so that nothing else is needed to set this up.
// SPDX-License-Identifier: Apache-2.0
#include "impl/peer_memory.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace samesum::gpu {
namespace {

struct Introduction {
    cudaIpcMemHandle_t memory{};
    std::array<char, 64> host{};
    std::array<char, 16> gpu{};  ///< the device's UUID
    std::int64_t process = 0;
};

constexpr std::size_t flag_words(int ranks) {
    return static_cast<std::size_t>(most_barrier_blocks) * static_cast<std::size_t>(ranks);
}

/// All ranks' values of one trivially copyable type.
template <class Value>
std::vector<Value> all_gather(const Communicator& comm, const Value& own) {
    const Stream stream([] {
        int device = 0;
        check(cudaGetDevice(&device), "cudaGetDevice");
        return device;
    }());
    std::vector<Value> all(static_cast<std::size_t>(comm.ranks()));
    const DeviceBuffer send(sizeof own), receive(sizeof own * all.size());
    check(cudaMemcpy(send.data(), &own, sizeof own, cudaMemcpyHostToDevice), "cudaMemcpy");
    comm.check(ncclAllGather(send.data(), receive.data(), sizeof own, ncclUint8, comm.get(), stream.get()),
               "ncclAllGather");
    check(cudaMemcpyAsync(all.data(), receive.data(), receive.size(), cudaMemcpyDeviceToHost, stream.get()),
          "cudaMemcpyAsync");
    stream.synchronize();
    return all;
}

}  // namespace

PeerMemory::PeerMemory(const Communicator& comm, std::size_t bytes)
    : comm_(comm), bytes_((bytes + 255) / 256 * 256), mapped_(static_cast<std::size_t>(comm.ranks())) {
    if (comm.ranks() > most_ranks)
        throw UsageError(fmt::format("{} ranks; direct_ordered takes at most {}", comm.ranks(), most_ranks));
    const std::size_t flag_bytes = flag_words(comm.ranks()) * sizeof(std::uint32_t);
    memory_ = DeviceBuffer(bytes_ + flag_bytes);
    own_words_ = DeviceBuffer((most_barrier_blocks + 1) * sizeof(std::uint32_t));
    check(cudaMemset(memory_.data() + bytes_, 0, flag_bytes), "cudaMemset");
    check(cudaMemset(own_words_.data(), 0, own_words_.size()), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");

    Introduction self;
    check(cudaIpcGetMemHandle(&self.memory, memory_.data()), "cudaIpcGetMemHandle");
    ::gethostname(self.host.data(), self.host.size() - 1);
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    std::memcpy(self.gpu.data(), properties.uuid.bytes, self.gpu.size());
    self.process = ::getpid();

    const std::vector<Introduction> all = all_gather(comm, self);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        const Introduction& peer = all[rank];
        if (peer.host != self.host)
            throw UsageError(fmt::format("rank {} is on host {}, rank {} on {}; direct_ordered is for one host", rank,
                                         peer.host.data(), comm.rank(), self.host.data()));
        ranks_on_gpu_ = std::max(ranks_on_gpu_,
                                 static_cast<int>(std::count_if(all.begin(), all.end(), [&](const Introduction& other) {
                                     return other.gpu == peer.gpu;
                                 })));
        if (static_cast<int>(rank) == comm.rank()) {
            mapped_[rank] = memory_.data();
            continue;
        }
        if (peer.process == self.process)
            throw UsageError("two ranks in one process; direct_ordered needs a process for each rank");
        void* address = nullptr;
        check(cudaIpcOpenMemHandle(&address, peer.memory, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
        mapped_[rank] = static_cast<std::byte*>(address);
    }
    for (std::size_t rank = 0; rank < all.size(); ++rank)
        barrier_.flags[rank] = reinterpret_cast<std::uint32_t*>(mapped_[rank] + bytes_);
    barrier_.epoch = reinterpret_cast<std::uint32_t*>(own_words_.data());
    barrier_.expired = barrier_.epoch + most_barrier_blocks;
    barrier_.patience_ns = 10'000'000'000;
    barrier_.rank = comm.rank();
    barrier_.ranks = comm.ranks();
}

PeerMemory::~PeerMemory() { unmap(); }

void PeerMemory::unmap() {
    for (std::byte*& address : mapped_) {
        if (address != nullptr && address != memory_.data()) cudaIpcCloseMemHandle(address);
        address = nullptr;
    }
}

void PeerMemory::check_barriers() {
    std::uint32_t expired = 0;
    check(cudaMemcpy(&expired, barrier_.expired, sizeof expired, cudaMemcpyDeviceToHost), "cudaMemcpy");
    if (expired == 0) return;
    check(cudaMemset(barrier_.expired, 0, sizeof expired), "cudaMemset");
    throw Inconclusive(fmt::format("direct_ordered on rank {}: a peer's kernel did not come within {} s", comm_.rank(),
                                   barrier_.patience_ns / 1'000'000'000));
}

void PeerMemory::close() {
    if (memory_.data() == nullptr) return;
    unmap();
    (void)all_gather(comm_, 0);
    memory_ = DeviceBuffer();
}

}  // namespace samesum::gpu
