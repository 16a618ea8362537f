// Combines on real ranks: the interface that a campaign needs, and the backend that uses it.
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

/// Ranks as a campaign uses them: gpu::LiveRanks, a library with a sum, or a test double.
class Ranks {
public:
    Ranks() = default;
    virtual ~Ranks() = default;
    Ranks(const Ranks&) = delete;
    Ranks& operator=(const Ranks&) = delete;

    /// "NCCL 2.28.9, 1 x NVIDIA H200 sm_90".
    [[nodiscard]] virtual std::string description() const = 0;
    /// A communicator of setup.ranks ranks with these settings, as described by NCCL; closes the old one.
    /// Throws Inconclusive.
    [[nodiscard]] virtual Communicator open(const CommunicatorSetup& setup) = 0;
    /// The buffer of this many bytes for rank `rank`'s partials; stays in place while `bytes` is the same.
    [[nodiscard]] virtual std::span<std::byte> input(int rank, std::uint64_t bytes) = 0;
    /// Combines them; returns what NCCL logged about its calls. Throws gpu::Refusal or another Inconclusive.
    virtual std::string combine(const gpu::CombineRun& run) = 0;
    /// The [rows, hidden] result.
    [[nodiscard]] virtual std::span<const std::byte> result(std::uint64_t bytes) const = 0;
};

/// The user's options for real ranks.
struct LiveOptions {
    std::vector<int> ranks{2, 4, 8};
    int ranks_per_node = 0;  ///< 0: all if the GPUs suffice, else 1
    std::vector<std::string> graph_files{};
    std::string mps = "auto";
    double timeout_s = 60;
    std::string fault = "none";  ///< a planted fault of impl/, in builds that have them
};

/// Keeps what does not change between calls: the communicator, the rows that are not the token's, and the last two
/// results, so that two cases with a common side need three calls.
class LiveBackend : public Backend {
public:
    /// `setups` in the order in which open_setup() numbers them. `flags`: of a replay.
    LiveBackend(std::unique_ptr<Ranks> ranks, std::vector<CommunicatorSetup> setups, std::string flags,
                std::string fault = "none");

    [[nodiscard]] std::string description() const override { return ranks_->description(); }
    [[nodiscard]] std::vector<Bits> combine(const Request& request,
                                            std::span<const std::vector<Bits>> partials) override;
    [[nodiscard]] std::vector<Bits> combine_row(const Request& request, const Partials& partials,
                                                std::uint64_t row) override;
    [[nodiscard]] std::size_t setups() const override { return setups_.size(); }
    [[nodiscard]] std::shared_ptr<const CommunicatorSetup> open_setup(std::size_t index) override;
    [[nodiscard]] std::optional<Element> mismatch_elsewhere(const Request& request) override;
    [[nodiscard]] std::shared_ptr<const CommunicatorSetup> open_ring(int ranks) override;
    void plant(std::string_view fault) override;
    void forget_results() override { cached_rows_.clear(); }
    [[nodiscard]] ShrinkLimits shrink_limits() const override { return {.tries = 2000, .seconds = 60}; }
    [[nodiscard]] std::string nccl_log() const override { return nccl_log_; }
    [[nodiscard]] std::string flags() const override { return flags_; }

    /// Number of calls made, and of communicators opened.
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
    struct CachedRow {
        std::string setup;
        gpu::CombineRun run;
        Partials partials;
        std::vector<Bits> row;
    };

    void open(CommunicatorSetup setup);
    void open_for(const Request& request);
    [[nodiscard]] gpu::CombineRun run_of(const Request& request) const;
    void run(const gpu::CombineRun& run);
    const Filler& filler_of(const Partials& partials);
    /// Returns the rows of the inputs that changed; nothing: any may have.
    std::optional<std::vector<std::uint64_t>> write(const Partials& partials);

    std::unique_ptr<Ranks> ranks_;
    std::vector<CommunicatorSetup> setups_;
    std::string flags_, fault_, nccl_log_;
    std::shared_ptr<const CommunicatorSetup> open_;
    std::vector<std::string> closed_;  ///< by setup: why it cannot be opened
    std::set<std::string> announced_;  ///< setups whose opening was reported on stderr
    std::set<Scheme> warm_;            ///< schemes that have run on the open communicator
    std::vector<Filler> fillers_;
    std::optional<Partials> written_;  ///< what the inputs hold
    std::vector<CachedRow> cached_rows_;
    bool last_is_whole_ = false;  ///< do the ranks still hold the last call's inputs and result?
    std::vector<std::byte> expected_;
    std::uint64_t calls_ = 0, openings_ = 0;
};

/// NCCL on this machine's GPUs. Throws Inconclusive, with the reason, if there are none.
[[nodiscard]] std::shared_ptr<Backend> nccl_backend(const LiveOptions& options);
/// A shared library's samesum_sum, used for every scheme. Throws UsageError.
[[nodiscard]] std::shared_ptr<Backend> plugin_backend(const std::string& file, const std::vector<int>& ranks);

}  // namespace samesum::fuzz
