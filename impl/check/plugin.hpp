// A sum of somebody else's, in a shared library, whose order is to be revealed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/arithmetic/format.hpp"
#include "model/sum/reveal.hpp"

extern "C" {
/// What the library exports as `samesum_sum`: adds `ranks` buffers of `elements` elements, host memory, into `result`.
/// Returns 0 when it did. It may copy to a GPU and run a kernel there; it must have finished when it returns.
using SamesumSum = int (*)(int ranks, std::size_t elements, const void* const* inputs, void* result);
}

namespace samesum::gpu {

class Plugin {
public:
    /// Throws UsageError when the file is no library or has no `samesum_sum`.
    explicit Plugin(const std::string& file);

    /// Calls throw Inconclusive when the library says that it failed. The plug-in must outlive the result.
    [[nodiscard]] SumUnderTest sum(Format format, int ranks, std::uint64_t elements);

private:
    void run(int ranks, std::uint64_t elements, std::byte* result);

    std::string file_;
    std::shared_ptr<void> library_;
    SamesumSum sum_ = nullptr;
    std::vector<std::vector<std::byte>> inputs_, results_;
};

}  // namespace samesum::gpu
