// What makes the sums that a campaign compares: the model, a model with a planted fault, or real NCCL.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/case.hpp"
#include "model/combine/combine.hpp"
#include "model/support/error.hpp"

namespace samesum::fuzz {

/// A combine, as passed to every backend.
struct Request {
    Scheme scheme = Scheme::fixed_root;
    Communicator comm;
    Routing routing;
    Format format = Format::bfloat16;
    CombineOptions options;
    Algorithm algorithm = Algorithm::ring;  ///< of reduce-scatters on the communicator
    LaunchMode launch_mode{};
};
/// Does NCCL add, not samesum?
[[nodiscard]] bool by_nccl(Scheme scheme);
[[nodiscard]] Request request_of(const Case& c, const Side& side);
/// The modelled order of the case's element; `Side::tree` where there is one.
[[nodiscard]] ReductionTree tree_of(const Case& c, const Side& side);

/// NCCL refuses this call with these settings; it may run others.
struct Refused : Inconclusive {
    using Inconclusive::Inconclusive;
};

struct Element {
    std::uint64_t row = 0, column = 0;
};

/// Limits on shrinking one finding.
struct ShrinkLimits {
    std::size_t tries = 50000;
    double seconds = 120;
};

class Backend {
public:
    Backend() = default;
    virtual ~Backend() = default;
    Backend(const Backend&) = delete;
    Backend& operator=(const Backend&) = delete;

    /// "model", "nccl 2.28.9 on 4 H200", for the head of a report.
    [[nodiscard]] virtual std::string description() const = 0;
    /// partials[q]: rank q's [rows, hidden] buffer. The result: every row as its owner received it, rank after rank.
    /// Throws Inconclusive for a request that this backend cannot serve.
    [[nodiscard]] virtual std::vector<Bits> combine(const Request& request,
                                                    std::span<const std::vector<Bits>> partials) = 0;
    /// One row of that result. By default makes whole buffers; a backend that needs less overrides it.
    [[nodiscard]] virtual std::vector<Bits> combine_row(const Request& request, const Partials& partials,
                                                        std::uint64_t row);

    /// An element of the whole result of the last call, which was `request`, that differs from the model's prediction.
    /// Nothing for backends that make rows only.
    [[nodiscard]] virtual std::optional<Element> mismatch_elsewhere(const Request&) { return std::nullopt; }

    /// The number of setups of real ranks, opened one after another, with cases drawn for each; 0: any case will do.
    [[nodiscard]] virtual std::size_t setups() const { return 0; }
    /// Opens the ranks with one setup. Null if that is not possible here; stderr then has the reason.
    [[nodiscard]] virtual std::shared_ptr<const CommunicatorSetup> open_setup(std::size_t) { return nullptr; }
    /// Opens this many ranks as a ring with Simple, for enumerations. Null if the backend takes any case.
    [[nodiscard]] virtual std::shared_ptr<const CommunicatorSetup> open_ring(int) { return nullptr; }
    /// Activates a fault of faults_of_ranks(); "none": deactivates it. Throws UsageError in builds without faults.
    virtual void plant(std::string_view) {}
    /// The next combine is run even if the same one was just run.
    virtual void forget_results() {}
    [[nodiscard]] virtual ShrinkLimits shrink_limits() const { return {}; }
    /// What NCCL logged about the last call; may be empty.
    [[nodiscard]] virtual std::string nccl_log() const { return {}; }
    /// Flags that a replay needs.
    [[nodiscard]] virtual std::string flags() const { return {}; }
};

/// One row, as the model predicts it.
[[nodiscard]] std::vector<Bits> predicted_row(const Request& request, const Partials& partials, std::uint64_t row);

/// The model: the orders of model/combine/combine.hpp, evaluated.
class ModelBackend : public Backend {
public:
    [[nodiscard]] std::string description() const override { return "model"; }
    [[nodiscard]] std::vector<Bits> combine(const Request& request,
                                            std::span<const std::vector<Bits>> partials) override;
    [[nodiscard]] std::vector<Bits> combine_row(const Request& request, const Partials& partials,
                                                std::uint64_t row) override;

private:
    std::vector<std::byte> bytes_;  // the ranks' rows and their sums
};

}  // namespace samesum::fuzz
