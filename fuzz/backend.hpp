// Who makes the sums that a campaign judges: the model, a model with a planted fault, or real NCCL.
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

/// A combine as every backend takes it.
struct Request {
    Scheme scheme = Scheme::fixed_root;
    Communicator comm;
    Routing routing;
    Format format = Format::bfloat16;
    CombineOptions options;
    Algorithm algorithm = Algorithm::ring;  ///< of reduce-scatters on the communicator
    LaunchMode launch_mode{};
};
/// Is it NCCL that adds?
[[nodiscard]] bool by_nccl(Scheme scheme);
[[nodiscard]] Request request_of(const Case& c, const Side& side);
/// The modelled order of the case's element; `Side::tree` where there is one.
[[nodiscard]] ReductionTree tree_of(const Case& c, const Side& side);

/// NCCL would not run this call with these settings; others it may.
struct Refused : Inconclusive {
    using Inconclusive::Inconclusive;
};

struct Element {
    std::uint64_t row = 0, column = 0;
};

/// How much a backend is asked while a finding is made small.
struct Effort {
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
    /// One row of that result. As given it makes whole buffers; a backend that can do with less overrides it.
    [[nodiscard]] virtual std::vector<Bits> combine_row(const Request& request, const Partials& partials,
                                                        std::uint64_t row);

    /// An element of the whole result of the last call, which was `request`, that is not what the model's orders make
    /// of what went in. Backends that make rows alone have none.
    [[nodiscard]] virtual std::optional<Element> stray(const Request&) { return std::nullopt; }

    /// Real ranks are opened in one way after another, and cases are drawn for each; 0: this backend takes any case.
    [[nodiscard]] virtual std::size_t worlds() const { return 0; }
    /// Opens the ranks so. Null where that could not be done here, which is then said in description().
    [[nodiscard]] virtual std::shared_ptr<const World> enter(std::size_t) { return nullptr; }
    /// Opens so many ranks as a ring in Simple, for small worlds. Null where anything goes.
    [[nodiscard]] virtual std::shared_ptr<const World> enter_ranks(int) { return nullptr; }
    /// Makes a mistake of faults_of_ranks() from now on; "none": no more. Throws UsageError in builds that make none.
    virtual void plant(std::string_view) {}
    /// The next combine is run, even if the last one was the same.
    virtual void forget() {}
    [[nodiscard]] virtual Effort effort() const { return {}; }
    /// What NCCL wrote about the last call; empty where there is no such thing.
    [[nodiscard]] virtual std::string said() const { return {}; }
    /// Flags that a replay needs.
    [[nodiscard]] virtual std::string flags() const { return {}; }
};

/// What the model's orders make of one row.
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
