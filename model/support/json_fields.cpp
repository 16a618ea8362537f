// One message for each way in which a field can be wrong.
// SPDX-License-Identifier: Apache-2.0
#include "model/support/json_fields.hpp"

#include <fmt/format.h>

#include "model/support/error.hpp"

namespace samesum {

const nlohmann::json& json_field(const nlohmann::json& object, const char* key) {
    const auto place = object.find(key);
    if (place == object.end()) throw UsageError(fmt::format("field '{}' is missing", key));
    return *place;
}

std::string text_field(const nlohmann::json& object, const char* key) {
    const nlohmann::json& value = json_field(object, key);
    if (!value.is_string()) throw UsageError(fmt::format("field '{}': expected text", key));
    return value.get<std::string>();
}

bool bool_field(const nlohmann::json& object, const char* key) {
    const nlohmann::json& value = json_field(object, key);
    if (!value.is_boolean()) throw UsageError(fmt::format("field '{}': expected true or false", key));
    return value.get<bool>();
}

std::int64_t whole_value(const nlohmann::json& value, const char* key, std::int64_t min, std::int64_t max) {
    const bool too_large = value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX};
    if (!value.is_number_integer() || too_large || value.get<std::int64_t>() < min || value.get<std::int64_t>() > max)
        throw UsageError(fmt::format("field '{}' is {}: expected a whole number from {} to {}", key,
                                     value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 40),
                                     min, max));
    return value.get<std::int64_t>();
}

std::int64_t whole_field(const nlohmann::json& object, const char* key, std::int64_t min, std::int64_t max) {
    return whole_value(json_field(object, key), key, min, max);
}

}  // namespace samesum
