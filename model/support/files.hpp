// Reads and writes whole files; a write is complete or does not happen.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace samesum {

/// The document as write_json() writes it, indented by two.
[[nodiscard]] std::string json_text(const nlohmann::ordered_json& document);
/// Writes the document to a file, complete or not at all ("-": to stdout). Throws UsageError when that cannot be done.
void write_json(const std::string& file, const nlohmann::ordered_json& document);
/// The same for any text.
void write_file(const std::string& file, std::string_view text);
/// The whole file as text ("-": stdin); throws UsageError naming the file.
[[nodiscard]] std::string read_file(const std::string& file);

}  // namespace samesum
