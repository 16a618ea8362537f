// Fields of a JSON object from outside: each is checked before it is used.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace samesum {

/// All throw UsageError with the field's name and what was expected; callers add the file and the line.
[[nodiscard]] const nlohmann::json& json_field(const nlohmann::json& object, const char* key);
[[nodiscard]] std::string text_field(const nlohmann::json& object, const char* key);
[[nodiscard]] bool bool_field(const nlohmann::json& object, const char* key);
[[nodiscard]] std::int64_t whole_field(const nlohmann::json& object, const char* key, std::int64_t min,
                                       std::int64_t max);
/// A value that is already at hand; `key` names it for messages.
[[nodiscard]] std::int64_t whole_value(const nlohmann::json& value, const char* key, std::int64_t min,
                                       std::int64_t max);

}  // namespace samesum
