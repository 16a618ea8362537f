// How the sum commands read and write values, and the flags that several of them take.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/arithmetic/format.hpp"
#include "model/sum/reachable.hpp"
#include "model/support/options.hpp"

namespace samesum {

/// The values of --values, separated by blanks or commas; at least one.
[[nodiscard]] std::vector<Bits> values_in(Format format, std::string_view text);

/// "0x3f80 (1)".
[[nodiscard]] std::string value_text(Format format, Bits bits);
/// {"bits": "0x3f80", "value": "1"}.
[[nodiscard]] nlohmann::ordered_json value_json(Format format, Bits bits);

/// A flag that takes a word, with or without a default.
[[nodiscard]] po::typed_value<std::string>* word(const char* fallback, const char* shown_as);
[[nodiscard]] po::typed_value<std::string>* word(const char* shown_as);

/// --shape and --seconds of a search through all orders.
[[nodiscard]] ReachableOptions limits_in(const Options& options);

}  // namespace samesum
