// What the order of sums depends on: topology, NCCL release, settings, machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "model/nccl/call.hpp"
#include "model/nccl/settings.hpp"
#include "model/nccl/topology.hpp"

namespace samesum {

enum class CpuVendor : std::uint8_t { intel, amd, other };

/// Speeds of one search graph as NCCL prints them ("Pattern 4, ... bw 1.2/1.2").
struct GraphSpeed {
    int channels = 0;                   ///< before NCCL doubles them
    double bw_intra = 0, bw_inter = 0;  ///< GB/s per channel
    double latency_inter = 0;           ///< us
    bool nvlink = true;                 ///< typeIntra is NVL (else as PCI)
    bool same_channels = true;
};

/// The inputs of NCCL's cost model that depend on the machine. Needed only where the choice is left to NCCL.
struct Machine {
    int compute_capability = 90;
    CpuVendor cpu = CpuVendor::intel;
    bool ll128 = false;       ///< enabled by link types (typeInter <= PXN, typeIntra <= NVB)
    bool nvls = false;        ///< multicast support, NVSwitch, 2 or more heads
    bool pat_network = true;  ///< net device of type "host", so that PAT may run
    GraphSpeed ring, tree, nvls_graph;
};

/// The properties of a communicator on which the order of sums depends.
struct Communicator {
    Topology topology;
    NcclVersion version{};
    Settings settings{};
    std::optional<Machine> machine{};

    [[nodiscard]] int ranks() const { return topology.ranks(); }
    [[nodiscard]] int nodes() const { return topology.nodes(); }
    [[nodiscard]] int channels() const { return static_cast<int>(topology.channels().size()); }
};

}  // namespace samesum
