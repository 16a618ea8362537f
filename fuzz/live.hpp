// Combines that really run: what a campaign needs of ranks, and the backend that asks them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fuzz/backend.hpp"
#include "impl/ranks/live_ranks.hpp"

namespace samesum::fuzz {

/// Ranks as a campaign sees them: gpu::LiveRanks, a library with a sum, or a stand-in of a test.
class Ranks {
public:
    Ranks() = default;
    virtual ~Ranks() = default;
    Ranks(const Ranks&) = delete;
    Ranks& operator=(const Ranks&) = delete;

    /// "NCCL 2.28.9, 1 x NVIDIA H200 sm_90".
    [[nodiscard]] virtual std::string description() const = 0;
    /// A communicator of world.ranks ranks with its settings, as it describes itself; the old one is closed.
    /// Throws Inconclusive.
    [[nodiscard]] virtual Communicator open(const World& world) = 0;
    /// Where rank `rank`'s partials of so many bytes are to be written; stays where it is while `bytes` does.
    [[nodiscard]] virtual std::span<std::byte> input(int rank, std::uint64_t bytes) = 0;
    /// Combines them; returns what NCCL wrote about its calls. Throws gpu::Refusal, other Inconclusives.
    virtual std::string combine(const gpu::CombineRun& run) = 0;
    /// The [rows, hidden] result.
    [[nodiscard]] virtual std::span<const std::byte> result(std::uint64_t bytes) const = 0;
};

/// What users say about real ranks.
struct LiveOptions {
    std::vector<int> ranks{2, 4, 8};
    int ranks_per_node = 0;  ///< 0: all if the GPUs suffice, else 1
    std::vector<std::string> graph_files{};
    std::string mps = "auto";
    double timeout_s = 60;
    std::string fault = "none";  ///< a planted mistake of impl/, in builds that obey
};

/// Keeps what does not change between calls: the communicator, the rows that are not the token's, and the last two
/// results, so that of two cases with one side in common three calls are made.
class LiveBackend : public Backend {
public:
    /// `worlds` in the order in which enter() numbers them. `flags`: of a replay.
    LiveBackend(std::unique_ptr<Ranks> ranks, std::vector<World> worlds, std::string flags, std::string fault = "none");

    [[nodiscard]] std::string description() const override { return ranks_->description(); }
    [[nodiscard]] std::vector<Bits> combine(const Request& request,
                                            std::span<const std::vector<Bits>> partials) override;
    [[nodiscard]] std::vector<Bits> combine_row(const Request& request, const Partials& partials,
                                                std::uint64_t row) override;
    [[nodiscard]] std::size_t worlds() const override { return worlds_.size(); }
    [[nodiscard]] std::shared_ptr<const World> enter(std::size_t index) override;
    [[nodiscard]] std::optional<Element> stray(const Request& request) override;
    [[nodiscard]] std::shared_ptr<const World> enter_ranks(int ranks) override;
    void plant(std::string_view fault) override;
    void forget() override { remembered_.clear(); }
    [[nodiscard]] Effort effort() const override { return {.tries = 2000, .seconds = 60}; }
    [[nodiscard]] std::string said() const override { return said_; }
    [[nodiscard]] std::string flags() const override { return flags_; }

    /// Calls that were made, and communicators.
    [[nodiscard]] std::uint64_t calls() const { return calls_; }
    [[nodiscard]] std::uint64_t openings() const { return openings_; }

private:
    struct Filler {
        Format format;
        std::uint64_t fill, hidden;
        int ranks;
        std::vector<std::vector<std::byte>> rows;  ///< [rank]: Partials::filler_rows of them
        std::uint64_t used = 0;
    };
    struct Remembered {
        std::string world;
        gpu::CombineRun run;
        Partials partials;
        std::vector<Bits> row;
    };

    void open(World world);
    void suit(const Request& request);
    [[nodiscard]] gpu::CombineRun run_of(const Request& request) const;
    void run(const gpu::CombineRun& run);
    const Filler& filler_of(const Partials& partials);
    /// Returns the rows of the inputs that are others than before; nothing: any may be.
    std::optional<std::vector<std::uint64_t>> write(const Partials& partials);

    std::unique_ptr<Ranks> ranks_;
    std::vector<World> worlds_;
    std::string flags_, fault_, said_;
    std::shared_ptr<const World> open_;
    std::vector<std::string> closed_;  ///< by world: why it cannot be opened
    std::set<std::string> told_;       ///< worlds whose opening stderr has heard of
    std::set<Scheme> warm_;            ///< that have run on the open communicator
    std::vector<Filler> fillers_;
    std::optional<Partials> written_;  ///< what the inputs hold
    std::vector<Remembered> remembered_;
    bool last_is_whole_ = false;  ///< do the ranks still hold the last call's inputs and result?
    std::vector<std::byte> expected_;
    std::uint64_t calls_ = 0, openings_ = 0;
};

/// On this machine's GPUs. Throws Inconclusive, with the reason, where there are none.
[[nodiscard]] std::shared_ptr<Backend> nccl_backend(const LiveOptions& options);
/// A shared library's samesum_sum, taken for whatever scheme is asked of it. Throws UsageError.
[[nodiscard]] std::shared_ptr<Backend> plugin_backend(const std::string& file, const std::vector<int>& ranks);

}  // namespace samesum::fuzz
