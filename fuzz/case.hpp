// One case of a campaign as a plain value: a token's partials, and two ways to sum them that should agree.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/combine/scheme.hpp"
#include "model/nccl/topology.hpp"
#include "model/sum/reduction_tree.hpp"

namespace samesum::fuzz {

/// How the token's row is made.
enum class Maker : std::uint8_t {
    combine,     ///< the backend under test
    prediction,  ///< the model's order, evaluated element by element
    movement,    ///< no addition: the row of the only contributor as it is
    tree,        ///< `Side::tree` over the partials
};

/// The rings of a communicator's channels. Copies share them: shrinking copies thousands of cases.
class Rings {
public:
    Rings() = default;
    Rings(std::vector<Ring> rings) : rings_(std::make_shared<const std::vector<Ring>>(std::move(rings))) {}

    [[nodiscard]] std::size_t size() const { return rings_ ? rings_->size() : 0; }
    [[nodiscard]] bool empty() const { return size() == 0; }
    [[nodiscard]] const Ring* data() const { return rings_ ? rings_->data() : nullptr; }
    [[nodiscard]] const Ring* begin() const { return data(); }
    [[nodiscard]] const Ring* end() const { return data() + size(); }
    [[nodiscard]] const Ring& front() const { return rings_->front(); }
    [[nodiscard]] const Ring& operator[](std::size_t channel) const { return (*rings_)[channel]; }
    /// To change.
    [[nodiscard]] std::vector<Ring> copy() const { return {begin(), end()}; }

    friend bool operator==(const Rings& a, const Rings& b) {
        return a.rings_ == b.rings_ || std::equal(a.begin(), a.end(), b.begin(), b.end());
    }

private:
    std::shared_ptr<const std::vector<Ring>> rings_;
};
/// Do all channels have the same ring?
[[nodiscard]] bool one_ring(const Rings& rings);

/// How real ranks run a call; it must not change the bits. The model ignores it.
struct LaunchMode {
    bool captured = false;  ///< from a CUDA graph
    bool in_place = false;  ///< the result takes the place of the rank's own rows
    bool fresh = false;     ///< on a communicator made for this call
    bool delayed = false;   ///< behind a producer that still runs on the stream
    int shift = 0;          ///< elements by which the buffers are off their alignment

    friend bool operator==(const LaunchMode&, const LaunchMode&) = default;
};
/// "captured+in_place+shift3", or "plain".
[[nodiscard]] std::string str(const LaunchMode& launch_mode);

/// One way to make the token's row: where the token lies, and which call is made on which communicator.
struct Side {
    Maker maker = Maker::combine;
    Scheme scheme = Scheme::fixed_root;
    Rings rings;                            ///< one for each channel
    Algorithm algorithm = Algorithm::ring;  ///< of reduce_scatter; reduces are rings
    Protocol protocol = Protocol::simple;
    int root = 0;
    Accumulation accumulation = Accumulation::per_hop;
    std::vector<std::uint64_t> sizes;  ///< rows of each rank
    std::uint64_t row = 0;             ///< the token's
    int ranks_per_node = 1;            ///< consecutive ranks that share a node
    NcclVersion nccl{};                ///< whose rules hold
    int threads = 0;                   ///< of a channel where the protocol is the side's; 0: NCCL's usual number
    LaunchMode launch_mode{};
    std::vector<int> contributors;      ///< the rank of each x[i], other ranks hold -0; empty: rank i holds x[i]
    std::optional<ReductionTree> tree;  ///< of Maker::tree only, which ignores the fields above

    [[nodiscard]] int ranks() const { return static_cast<int>(sizes.size()); }
    friend bool operator==(const Side&, const Side&) = default;
};

/// Everything that a check needs and nothing else; printed as one line, which replays it anywhere.
struct Case {
    std::string property;
    Format format = Format::bfloat16;
    std::uint64_t hidden = 1;
    std::uint64_t column = 0;  ///< of the token's row, the element whose partials are x
    std::vector<Bits> x;
    std::uint64_t fill = 0;  ///< seed of all other elements; 0: they are +0
    Side a, b;

    friend bool operator==(const Case&, const Case&) = default;
};

/// "NAME dtype=bfloat16 x=4400,c400,3f80 a: scheme=fixed_root rings=2*0,1,2 sizes=1,1,1 b: row=2". Defaults are left
/// out; what b does not name is as in a.
[[nodiscard]] std::string str(const Case& c);
/// Reads such a line back. Throws UsageError naming the wrong word, also for a case that cannot be a call: rings that
/// are not permutations, rows outside of the buffer, and so on.
[[nodiscard]] Case parse_case(std::string_view line);
/// Why the case cannot be a call; empty when it can.
[[nodiscard]] std::string objection(const Case& c);

[[nodiscard]] Routing routing_of(const Case& c, const Side& side);

/// How a communicator of real ranks is opened, and what it then describes; cases for real ranks are drawn for one
/// setup.
struct CommunicatorSetup {
    int ranks = 2, ranks_per_node = 1;
    Algorithm algorithm = Algorithm::ring;  ///< of reduce-scatters; reduces are rings
    Protocol protocol = Protocol::simple;
    std::string graph_file{};  ///< NCCL_GRAPH_FILE; empty: none
    bool launch_modes = true;  ///< can Side::launch_mode be chosen?
    Rings rings{};             ///< one for each channel, as described once it is open
    NcclVersion nccl{};        ///< so too
    int threads = 0;           ///< so too; see Side::threads
};
/// "8 ranks Ring LL128", for people.
[[nodiscard]] std::string str(const CommunicatorSetup& setup);

/// All partials of one side, computed on demand: large buffers cost nothing until whole() is called.
class Partials {
public:
    /// Rows beside the token's repeat after this many; a prime, so that they do not repeat with chunks.
    static constexpr std::uint64_t filler_rows = 61;
    [[nodiscard]] static Bits filler(Format format, std::uint64_t fill, int rank, std::uint64_t row,
                                     std::uint64_t column);

    Partials(const Case& c, const Side& side);

    [[nodiscard]] int ranks() const { return routing_.ranks(); }
    [[nodiscard]] const Routing& routing() const { return routing_; }
    [[nodiscard]] Format format() const { return format_; }
    [[nodiscard]] std::uint64_t row() const { return row_; }
    [[nodiscard]] std::uint64_t fill() const { return fill_; }
    [[nodiscard]] Bits at(int rank, std::uint64_t row, std::uint64_t column) const;
    /// whole()[q]: rank q's [rows, hidden] buffer.
    [[nodiscard]] std::vector<std::vector<Bits>> whole() const;

    friend bool operator==(const Partials&, const Partials&) = default;

private:
    Routing routing_;
    Format format_;
    std::uint64_t row_, column_, fill_;
    std::uint64_t salt_;  ///< of the token's other columns
    std::vector<Bits> x_;
    std::vector<int> contribution_;  ///< of each rank: which of x it holds, or -1
};

}  // namespace samesum::fuzz
