// Writes to a temporary file and renames it.
// SPDX-License-Identifier: Apache-2.0
#include "model/support/files.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "model/support/error.hpp"

namespace samesum {

void write_file(const std::string& file, std::string_view text) {
    if (file == "-") {
        std::fwrite(text.data(), 1, text.size(), stdout);
        return;
    }
    // Written next to the file, then renamed: a reader sees the old file or the new one, never a part.
    const std::string fresh = fmt::format("{}.{}.tmp", file, ::getpid());
    std::ofstream stream(fresh, std::ios::binary);
    stream << text;
    stream.close();
    std::error_code error;
    if (stream) std::filesystem::rename(fresh, file, error);
    if (!stream || error) {
        const std::string why = error ? error.message() : std::strerror(errno);
        std::filesystem::remove(fresh, error);
        throw UsageError(fmt::format("cannot write {}: {}", file, why));
    }
}

std::string json_text(const nlohmann::ordered_json& document) {
    return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void write_json(const std::string& file, const nlohmann::ordered_json& document) {
    write_file(file, json_text(document));
}

std::string read_file(const std::string& file) {
    if (file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
    std::error_code error;
    if (std::filesystem::is_directory(file, error)) throw UsageError(fmt::format("{} is a folder, not a file", file));
    std::ifstream stream(file, std::ios::binary);
    if (!stream) throw UsageError(fmt::format("cannot read {}: {}", file, std::strerror(errno)));
    return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace samesum
