// A sum in a user's shared library, whose order is to be revealed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/arithmetic/format.hpp"
#include "model/sum/reveal.hpp"

extern "C" {
/// The library exports this as `samesum_sum`: it adds `ranks` buffers of `elements` elements in host memory into
/// `result` and returns 0 on success. It may use a GPU, but must have finished when it returns.
using SamesumSum = int (*)(int ranks, std::size_t elements, const void* const* inputs, void* result);
}

namespace samesum::gpu {

class Plugin {
public:
    /// Throws UsageError when the file is no library or has no `samesum_sum`.
    explicit Plugin(const std::string& file);

    /// Calls throw Inconclusive when the library reports a failure. The plug-in must outlive the returned object.
    [[nodiscard]] SumUnderTest sum(Format format, int ranks, std::uint64_t elements);

private:
    void run(int ranks, std::uint64_t elements, std::byte* result);

    std::string file_;
    std::shared_ptr<void> library_;
    SamesumSum sum_ = nullptr;
    std::vector<std::vector<std::byte>> inputs_, results_;
};

}  // namespace samesum::gpu
