// IPC handles are exchanged by an all-gather over the communicator itself; no other channel is needed.
// SPDX-License-Identifier: Apache-2.0
#include "impl/kernels/peer_memory.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace samesum::gpu {
namespace {

struct PeerInfo {
    std::array<char, 64> host{};
    std::array<char, 16> gpu{};  ///< the device's UUID
    std::int64_t process = 0;
    int multiprocessors = 0;
};

int current_device() {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    return device;
}

cudaDeviceProp properties_of(int device) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    return properties;
}

/// More memory than this gives no more speed.
constexpr std::size_t max_inbox_bytes = std::size_t{128} << 20;

/// As many blocks as all ranks of the GPU with most ranks can have running at once.
int blocks_for(int ranks, int multiprocessors, int ranks_on_gpu) {
    const int resident = ranks_on_gpu > 1 ? multiprocessors / ranks_on_gpu
                                          : direct::waves * direct::blocks_per_sm(ranks) * multiprocessors;
    const auto stored = static_cast<int>(max_inbox_bytes / inbox_bytes(ranks, 1));
    return std::max(1, std::min(resident, stored));
}

/// Only NVLink delivers a line of 128 bytes whole; PCIe may split it. Native atomics between GPUs show that NVLink
/// joins them.
void require_nvlink(int own_device, const std::array<char, 16>& peer_gpu, int peer, int self) {
    int devices = 0;
    check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    for (int device = 0; device < devices; ++device) {
        if (std::memcmp(peer_gpu.data(), properties_of(device).uuid.bytes, peer_gpu.size()) != 0) continue;
        if (device == own_device) return;
        int atomics = 0;
        check(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, own_device, device),
              "cudaDeviceGetP2PAttribute");
        if (atomics != 0) return;
        throw UsageError(fmt::format(
            "no NVLink joins the GPUs of ranks {} and {}: expected exchange_ordered, which needs none", self, peer));
    }
    throw UsageError(
        fmt::format("rank {} does not see rank {}'s GPU, so cannot tell whether NVLink joins them: "
                    "expected CUDA_VISIBLE_DEVICES with all GPUs on each rank",
                    self, peer));
}

/// All ranks' values of one trivially copyable type.
template <class Value>
std::vector<Value> all_gather(const Communicator& comm, const Value& own) {
    const Stream stream(current_device());
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

bool one_nvlink_domain(const Communicator& comm) {
    bool joined = comm.ranks() <= max_direct_ranks;
    try {
        (void)discover_peers(comm);
    } catch (const UsageError&) {
        joined = false;
    }
    const auto all = all_gather(comm, static_cast<char>(joined));
    return std::all_of(all.begin(), all.end(), [](char each) { return each != 0; });
}

PeerTopology discover_peers(const Communicator& comm) {
    PeerInfo self;
    ::gethostname(self.host.data(), self.host.size() - 1);
    const int device = current_device();
    const cudaDeviceProp properties = properties_of(device);
    std::memcpy(self.gpu.data(), properties.uuid.bytes, self.gpu.size());
    self.process = ::getpid();
    self.multiprocessors = properties.multiProcessorCount;

    const std::vector<PeerInfo> all = all_gather(comm, self);
    PeerTopology topology{1, self.multiprocessors};
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        const PeerInfo& peer = all[rank];
        topology.multiprocessors = std::min(topology.multiprocessors, peer.multiprocessors);
        const auto on_gpu =
            std::count_if(all.begin(), all.end(), [&](const PeerInfo& other) { return other.gpu == peer.gpu; });
        topology.ranks_on_gpu = std::max(topology.ranks_on_gpu, static_cast<int>(on_gpu));
        if (static_cast<int>(rank) == comm.rank()) continue;
        if (peer.host != self.host)
            throw UsageError(fmt::format("rank {} is on host {}, rank {} on {}: direct_ordered expects one host", rank,
                                         peer.host.data(), comm.rank(), self.host.data()));
        if (peer.process == self.process)
            throw UsageError("two ranks in one process: direct_ordered expects a process for each rank");
        require_nvlink(device, peer.gpu, static_cast<int>(rank), comm.rank());
    }
    return topology;
}

PeerMappedBuffer::PeerMappedBuffer(const Communicator& comm, std::size_t bytes)
    : comm_(comm), memory_(bytes), mapped_(static_cast<std::size_t>(comm.ranks())) {
    check(cudaMemset(memory_.data(), 0, memory_.size()), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    cudaIpcMemHandle_t own{};
    check(cudaIpcGetMemHandle(&own, memory_.data()), "cudaIpcGetMemHandle");
    const auto all = all_gather(comm, own);
    for (int rank = 0; rank < comm.ranks(); ++rank) {
        void* address = memory_.data();
        if (rank != comm.rank())
            check(cudaIpcOpenMemHandle(&address, all[static_cast<std::size_t>(rank)], cudaIpcMemLazyEnablePeerAccess),
                  "cudaIpcOpenMemHandle");
        mapped_[static_cast<std::size_t>(rank)] = static_cast<std::byte*>(address);
    }
}

PeerMappedBuffer::~PeerMappedBuffer() { unmap(); }

void PeerMappedBuffer::unmap() {
    for (std::byte*& address : mapped_) {
        if (address != nullptr && address != memory_.data()) cudaIpcCloseMemHandle(address);
        address = nullptr;
    }
}

void PeerMappedBuffer::close() {
    if (memory_.data() == nullptr) return;
    unmap();
    (void)all_gather(comm_, 0);
    memory_ = DeviceBuffer();
}

PeerMemory::PeerMemory(const Communicator& comm, double timeout_s)
    : PeerMemory(comm, timeout_s, [&] {
          if (comm.ranks() > max_direct_ranks)
              throw UsageError(
                  fmt::format("{} ranks: direct_ordered expects at most {}", comm.ranks(), max_direct_ranks));
          const PeerTopology topology = discover_peers(comm);
          return blocks_for(comm.ranks(), topology.multiprocessors, topology.ranks_on_gpu);
      }()) {}

PeerMemory::PeerMemory(const Communicator& comm, double timeout_s, int blocks)
    : rank_(comm.rank()),
      inboxes_(comm, inbox_bytes(comm.ranks(), blocks)),
      own_words_((static_cast<std::size_t>(blocks) * direct::warps + 1) * sizeof(std::uint64_t)) {
    check(cudaMemset(own_words_.data(), 0, own_words_.size()), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (int rank = 0; rank < comm.ranks(); ++rank) receive_slots_.inbox[rank] = inboxes_.of(rank);
    receive_slots_.steps = reinterpret_cast<std::uint64_t*>(own_words_.data());
    receive_slots_.expired = reinterpret_cast<std::uint32_t*>(receive_slots_.steps + blocks * direct::warps);
    receive_slots_.timeout_ns = static_cast<std::uint64_t>(timeout_s * 1e9);
    receive_slots_.rank = comm.rank();
    receive_slots_.ranks = comm.ranks();
    receive_slots_.blocks = blocks;
    receive_slots_.early_launch = properties_of(current_device()).major >= 9;
}

void PeerMemory::check_delivery() {
    std::uint32_t expired = 0;
    check(cudaMemcpy(&expired, receive_slots_.expired, sizeof expired, cudaMemcpyDeviceToHost), "cudaMemcpy");
    if (expired == 0) return;
    throw Inconclusive(fmt::format("direct_ordered on rank {}: a peer's kernel did not run within {} s", rank_,
                                   static_cast<double>(receive_slots_.timeout_ns) * 1e-9));
}

}  // namespace samesum::gpu
