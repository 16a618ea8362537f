// Who makes the sums that a campaign judges: the model, a model with a planted fault, or real NCCL.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/case.hpp"
#include "model/combine.hpp"

namespace samesum::fuzz {

/// A combine as every backend takes it.
struct Request {
    Scheme scheme = Scheme::fixed_root;
    Communicator comm;
    Routing routing;
    Format format = Format::bfloat16;
    CombineOptions options;
};
[[nodiscard]] Request request_of(const Case& c, const Side& side);
/// The modelled order of the case's element; `Side::tree` where there is one.
[[nodiscard]] ReductionTree tree_of(const Case& c, const Side& side);

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
};

/// The model: the orders of model/combine.hpp, evaluated.
class ModelBackend : public Backend {
public:
    [[nodiscard]] std::string description() const override { return "model"; }
    [[nodiscard]] std::vector<Bits> combine(const Request& request,
                                            std::span<const std::vector<Bits>> partials) override;
    [[nodiscard]] std::vector<Bits> combine_row(const Request& request, const Partials& partials,
                                                std::uint64_t row) override;
};

/// "auto", "model" or "nccl". Throws UsageError for another word, Inconclusive where there is no such backend.
[[nodiscard]] std::unique_ptr<Backend> make_backend(std::string_view word);

}  // namespace samesum::fuzz
