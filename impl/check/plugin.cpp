// Results start as poison, so that a library that writes nothing is detected.
// SPDX-License-Identifier: Apache-2.0
#include "impl/check/plugin.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "model/support/error.hpp"

namespace samesum::gpu {
namespace {
constexpr std::byte poison{0xa5};
}

Plugin::Plugin(const std::string& file) : file_(file) {
    // dlopen would search the system's folders for a name without a slash.
    const std::string path = file.find('/') == std::string::npos ? "./" + file : file;
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw UsageError(fmt::format("--plugin {}: {}", file, ::dlerror()));
    library_ = std::shared_ptr<void>(library, [](void* handle) { ::dlclose(handle); });
    sum_ = reinterpret_cast<SamesumSum>(::dlsym(library, "samesum_sum"));
    if (sum_ == nullptr)
        throw UsageError(
            fmt::format("--plugin {}: exports no samesum_sum(int ranks, size_t elements, "
                        "const void* const* inputs, void* result)",
                        file));
}

void Plugin::run(int ranks, std::uint64_t elements, std::byte* result) {
    std::vector<const void*> inputs;
    for (const auto& input : inputs_) inputs.push_back(input.data());
    const int failed = sum_(ranks, elements, inputs.data(), result);
    if (failed != 0) throw Inconclusive(fmt::format("{}: samesum_sum returned {}", file_, failed));
}

SumUnderTest Plugin::sum(Format format, int ranks, std::uint64_t elements) {
    const std::size_t bytes = elements * static_cast<std::size_t>(traits(format).bytes());
    inputs_.assign(static_cast<std::size_t>(ranks), std::vector<std::byte>(bytes));
    SumUnderTest under_test;
    under_test.elements = elements;
    under_test.run_masks = [this, format, ranks, elements, bytes](std::span<const std::vector<Bits>> masks) {
        results_.assign(masks.size(), std::vector<std::byte>(bytes, poison));
        std::vector<std::span<const std::byte>> views;
        for (std::size_t k = 0; k < masks.size(); ++k) {
            for (std::size_t rank = 0; rank < inputs_.size(); ++rank)
                for (std::uint64_t e = 0; e < elements; ++e) store(format, inputs_[rank], e, masks[k][rank]);
            run(ranks, elements, results_[k].data());
            views.emplace_back(results_[k]);
        }
        return views;
    };
    under_test.run_data = [this, ranks, elements, bytes](const std::function<void(int, std::span<std::byte>)>& fill) {
        for (int rank = 0; rank < ranks; ++rank) fill(rank, inputs_[static_cast<std::size_t>(rank)]);
        results_.assign(1, std::vector<std::byte>(bytes, poison));
        run(ranks, elements, results_[0].data());
        return std::span<const std::byte>(results_[0]);
    };
    return under_test;
}

}  // namespace samesum::gpu
