// One line of NCCL's log: which process and thread wrote it, and what it says.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/nccl/call.hpp"
#include "model/nccl/communicator.hpp"

namespace samesum {

/// Upper bounds on numbers read from a log: a garbled line must not cause an allocation without bound.
inline constexpr int max_logged_ranks = 1 << 20;
inline constexpr int max_logged_channels = 64;

/// Which process and thread printed a line: "host:pid:tid [dev]" before "NCCL INFO", or a launcher's rank tag.
struct LogSource {
    std::string host, process, thread;  ///< process and thread include what is before them
    std::size_t begin = 0;              ///< where it begins in the text before "NCCL INFO"
};
[[nodiscard]] LogSource log_source(std::string_view prefix);

/// The line without colours (ESC [ ... letter) and other control characters; tabs stay.
[[nodiscard]] std::string without_control(std::string_view line);

/// "NCCL version 2.28.9+cuda13.0", anywhere in the text.
[[nodiscard]] std::optional<NcclVersion> version_in(std::string_view text);

/// What NCCL chose for one call: "AllReduce: 64 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}", printed by rank 0.
struct LoggedChoice {
    std::string function;                  ///< "AllReduce"; empty in logs before 2.24, which do not say
    std::optional<Collective> collective;  ///< none for functions that add nothing, and where it is not said
    std::uint64_t bytes = 0;               ///< count * element size, for reduce_scatter of one rank's result
    Algorithm algorithm{};
    Protocol protocol{};
    std::optional<int> first_channel, last_channel;  ///< since 2.24
    std::size_t line = 0;                            ///< of the log; 0 where it is not from a log
};
/// The first choice in the text; nothing where there is none. Throws UsageError for an unknown algorithm or protocol.
[[nodiscard]] std::optional<LoggedChoice> parse_choice_line(std::string_view text);

/// A symmetric-memory kernel took the call: its order is the kernel's, not a ring's or tree's.
struct LoggedSymmetric {
    std::string function;
    std::uint64_t bytes = 0;
    std::string kernel;
    int blocks = 0;
    std::size_t line = 0;
};

/// A search graph of one node ("Pattern 4, crossNic 0, nChannels 2, bw 24.0/24.0, type NVL/PIX, sameChannels 1").
struct LoggedGraph {
    int pattern = 0;  ///< 4 ring; 1, 2, 3 tree (TreePattern); 5 NVLS; 6 CollNet direct
    int cross_nic = 0;
    GraphSpeed speed;
    std::string type_intra, type_inter;
    std::vector<std::vector<std::string>> lists;  ///< each channel's GPUs as printed, without the NICs
};

/// A line of a known kind whose numbers make no sense.
struct GarbledLine {};

struct VersionLine {
    NcclVersion version;
};

/// "... comm 0x5581 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1000 commId 0xd1 - Init START"
struct InitLine {
    enum class Stage : std::uint8_t {
        start,
        during,
        torn,  ///< its end is overwritten by another process's line
        complete,
    };
    Stage stage = Stage::during;
    std::string pointer{};  ///< of the ncclComm
    int rank = 0, ranks = 0;
    int nodes = 0, local_ranks = 0;                   ///< 0: not said
    std::string comm_id{}, bus{}, parent{}, split{};  ///< empty: not said; split is "split 0 color 1"
};

/// The address of a communicator may be used again after "Destroy COMPLETE".
struct DestroyLine {
    std::string pointer;
};

/// "4 coll channels, 4 collnet channels, ..."
struct ChannelCountLine {
    int channels = 0;
    std::string pointer;  ///< empty where the line does not say it
};

/// Single facts of a communicator's initialisation; what the line does not say is left empty.
struct FeatureLine {
    std::optional<bool> nvls, collnet, net_offload;
    std::string thread_thresholds;
};

/// "Channel 00/02 : 0 1 2 3", which rank 0 prints. NCCL cuts it at 127 characters (graph/rings.cc, dumpLine).
struct ChannelLine {
    int channel = 0, channels = 0;
    std::vector<int> ranks;
    bool cut = false;
};

/// "Ring 00 : 2 -> 0 -> 1"
struct RingLine {
    int channel = 0, previous = 0, rank = 0, next = 0;
};

/// One rank's links in one channel's tree; -1: none.
struct RankLinks {
    int up = -1;
    std::array<int, 3> down{-1, -1, -1};
    friend bool operator==(const RankLinks&, const RankLinks&) = default;
};
/// "Tree 0 : -1 -> 0 -> 1/-1/-1", and one item of "Trees [0] 1/-1/-1->0->-1 [1] ..."
struct TreeLine {
    int channel = 0, rank = 0;
    RankLinks links;
};
struct TreesLine {
    std::vector<TreeLine> items;        ///< those before the line was cut or garbled
    bool cut = false, garbled = false;  ///< init.cc prints into 1023 characters
};

/// "0 : NET/0 GPU/0 GPU/1 NET/0" below a "Pattern" line.
struct GraphListLine {
    int channel = 0;
    std::vector<std::string> gpus;
};

/// graph/topo.cc: "GPU/0-47000 (3)" gives the rank of a GPU, "CPU/0-0 (1/2/-1)" architecture and vendor.
struct GpuLine {
    std::string gpu;
    int rank = 0;
};
struct CpuLine {
    CpuVendor vendor{};
};

/// "AllReduce: opCount 1f sendbuff ... comm 0x55 [nranks=4] stream 0x66"
struct CollLine {
    std::string function, pointer;
};

/// "NCCL_ALGO set by environment to Ring"
struct SettingLine {
    std::string key, value;
};

/// What a message says; std::monostate: nothing about orders.
using LogLine = std::variant<std::monostate, GarbledLine, VersionLine, InitLine, DestroyLine, ChannelCountLine,
                             FeatureLine, ChannelLine, RingLine, TreeLine, TreesLine, LoggedGraph, GraphListLine,
                             GpuLine, CpuLine, CollLine, LoggedChoice, LoggedSymmetric, SettingLine>;

/// Reads the text behind "NCCL INFO ", without blanks at its ends.
[[nodiscard]] LogLine parse_log_line(std::string_view text);

}  // namespace samesum
