// IPC handles are exchanged by an all-gather over the communicator itself; no other channel is needed.
// SPDX-License-Identifier: Apache-2.0
#include "impl/kernels/peer_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "model/support/error.hpp"
#include "model/support/host.hpp"

namespace samesum::gpu {
namespace {

/// What ranks tell each other. Texts are zero-terminated, cut to fit.
struct PeerInfo {
    std::array<char, 128> host{}, process{};  ///< host_identity(), process_identity()
    std::array<char, 16> gpu{};               ///< the device's UUID
    int multiprocessors = 0;
};
using Reason = std::array<char, 192>;

template <std::size_t size>
std::array<char, size> as_array(std::string_view text) {
    std::array<char, size> array{};
    std::copy_n(text.begin(), std::min(text.size(), size - 1), array.begin());
    return array;
}

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

/// Collective. A set-up that failed on one rank has failed on all, for that rank's reason; `why` is empty where it
/// worked. Nothing on all ranks where it worked on all.
std::optional<std::string> first_failure(const Communicator& comm, std::string_view why) {
    const auto all = all_gather(comm, as_array<std::tuple_size_v<Reason>>(why));
    for (const Reason& each : all)
        if (each.front() != '\0') return std::string(each.data());
    return std::nullopt;
}

PeerInfo own_info() {
    const cudaDeviceProp properties = properties_of(current_device());
    PeerInfo self;
    self.host = as_array<128>(host_identity());
    self.process = as_array<128>(process_identity());
    std::memcpy(self.gpu.data(), properties.uuid.bytes, self.gpu.size());
    self.multiprocessors = properties.multiProcessorCount;
    return self;
}

/// Throws UsageError where this rank and that one cannot write each other's memory.
void require_neighbour(const PeerInfo& self, int self_rank, const PeerInfo& peer, int rank) {
    const auto name = [](const PeerInfo& info) {
        return std::string_view(info.host.data()).substr(0, std::string_view(info.host.data()).find(' '));
    };
    if (peer.host != self.host)
        throw UsageError(fmt::format("rank {} is on host {}, rank {} on {}: direct_ordered expects one host", rank,
                                     name(peer), self_rank, name(self)));
    if (peer.process == self.process)
        throw UsageError("two ranks in one process: direct_ordered expects a process for each rank");
    require_nvlink(current_device(), peer.gpu, rank, self_rank);
}

/// Ranks on the GPU that most of these share.
int max_ranks_on_gpu(const std::vector<PeerInfo>& all) {
    std::ptrdiff_t max = 1;
    for (const PeerInfo& peer : all)
        max = std::max(max, std::count_if(all.begin(), all.end(), [&](const PeerInfo& other) {
                           return other.host == peer.host && other.gpu == peer.gpu;
                       }));
    return static_cast<int>(max);
}

}  // namespace

bool one_nvlink_domain(const Communicator& comm) {
    if (comm.ranks() > max_direct_ranks) return false;
    try {
        (void)discover_peers(comm);
        return true;
    } catch (const UsageError&) {
        return false;
    }
}

PeerTopology discover_peers(const Communicator& comm) {
    const PeerInfo self = own_info();
    const std::vector<PeerInfo> all = all_gather(comm, self);
    PeerTopology topology{max_ranks_on_gpu(all), self.multiprocessors};
    std::string why;
    try {
        for (int rank = 0; rank < comm.ranks(); ++rank) {
            const PeerInfo& peer = all[static_cast<std::size_t>(rank)];
            topology.multiprocessors = std::min(topology.multiprocessors, peer.multiprocessors);
            if (rank != comm.rank()) require_neighbour(self, comm.rank(), peer, rank);
        }
    } catch (const UsageError& error) {
        why = error.what();
    }
    if (const auto failure = first_failure(comm, why)) throw UsageError(why.empty() ? *failure : why);
    return topology;
}

PeerMappedBuffer::PeerMappedBuffer(const Communicator& comm, std::size_t bytes)
    : comm_(comm), memory_(bytes), mapped_(static_cast<std::size_t>(comm.ranks())) {
    check(cudaMemset(memory_.data(), 0, memory_.size()), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    cudaIpcMemHandle_t own{};
    check(cudaIpcGetMemHandle(&own, memory_.data()), "cudaIpcGetMemHandle");
    const auto all = all_gather(comm, own);
    std::string why;
    for (int rank = 0; rank < comm.ranks() && why.empty(); ++rank) {
        void* address = memory_.data();
        if (rank != comm.rank())
            if (const cudaError_t error =
                    cudaIpcOpenMemHandle(&address, all[static_cast<std::size_t>(rank)], cudaIpcMemLazyEnablePeerAccess);
                error != cudaSuccess) {
                why = fmt::format("rank {} cannot map the memory of rank {}: {}", comm.rank(), rank,
                                  cudaGetErrorString(error));
                (void)cudaGetLastError();
                continue;
            }
        mapped_[static_cast<std::size_t>(rank)] = static_cast<std::byte*>(address);
    }
    // Where one rank failed no kernel may start on the others: it would wait for that rank.
    if (const auto failure = first_failure(comm, why)) {
        unmap();
        throw Inconclusive(*failure);
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

PeerMemory::PeerMemory(const Communicator& comm, double timeout_s, const Communicator* job)
    : PeerMemory(comm, timeout_s, [&] {
          if (comm.ranks() > max_direct_ranks)
              throw UsageError(
                  fmt::format("{} ranks: direct_ordered expects at most {}", comm.ranks(), max_direct_ranks));
          PeerTopology topology = discover_peers(comm);
          if (job != nullptr) topology.ranks_on_gpu = max_ranks_on_gpu(all_gather(*job, own_info()));
          return topology;
      }()) {}

PeerMemory::PeerMemory(const Communicator& comm, double timeout_s, const PeerTopology& topology)
    : PeerMemory(comm, timeout_s, topology, blocks_for(comm.ranks(), topology.multiprocessors, topology.ranks_on_gpu)) {
}

PeerMemory::PeerMemory(const Communicator& comm, double timeout_s, const PeerTopology& topology, int blocks)
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
    // On a GPU that ranks share, the next call's blocks would take the room that a peer's blocks of this call need.
    receive_slots_.early_launch = topology.ranks_on_gpu == 1 && properties_of(current_device()).major >= 9;
}

void PeerMemory::check_delivery() {
    std::uint32_t expired = 0;
    check(cudaMemcpy(&expired, receive_slots_.expired, sizeof expired, cudaMemcpyDeviceToHost), "cudaMemcpy");
    if (expired == 0) return;
    throw Inconclusive(fmt::format("direct_ordered on rank {}: a peer's kernel did not run within {} s", rank_,
                                   static_cast<double>(receive_slots_.timeout_ns) * 1e-9));
}

}  // namespace samesum::gpu
