// Backends with planted faults: a campaign that does not catch them shows nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "fuzz/backend.hpp"

namespace samesum::fuzz {

struct Fault {
    std::string_view name;
    std::string_view sentence;
    std::string_view property;                        ///< that has to catch it
    std::function<std::unique_ptr<Backend>()> plant;  ///< null: planted in impl/, see Backend::plant()
    std::vector<Scheme> schemes{};                    ///< that show it; empty: all
};
[[nodiscard]] std::span<const Fault> faults();
/// Faults that the combines of impl/ can be built with (impl/combine/combine.hpp).
[[nodiscard]] std::span<const Fault> faults_of_ranks();

}  // namespace samesum::fuzz
