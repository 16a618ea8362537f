// One JSON object per line; every field is checked before it is used.
// SPDX-License-Identifier: Apache-2.0
#include "model/input/call_stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/support/error.hpp"
#include "model/support/json_fields.hpp"
#include "model/support/text.hpp"

namespace samesum {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t max_number = std::int64_t{1} << 62;

std::uint64_t number_field(const Json& json, const char* key, std::int64_t min, std::int64_t max = max_number) {
    return static_cast<std::uint64_t>(whole_field(json, key, min, max));
}

int int_field(const Json& json, const char* key, int min, int max) {
    return static_cast<int>(whole_field(json, key, min, max));
}

std::string one_line(const Json& json, const char* key) {
    std::string text = text_field(json, key);
    if (text.find_first_of("\n\r") != std::string::npos)
        throw UsageError(fmt::format("field '{}': expected text without line breaks", key));
    return text;
}

/// One of a few words.
template <std::size_t count>
std::string word_of(const Json& json, const char* key, const std::array<std::string_view, count>& words) {
    std::string text = text_field(json, key);
    if (std::find(words.begin(), words.end(), text) == words.end()) {
        std::string list;
        for (const std::string_view word : words) list += fmt::format("{}{}", list.empty() ? "" : ", ", word);
        throw UsageError(fmt::format("field '{}': expected one of {}", key, list));
    }
    return text;
}

class Reader {
public:
    explicit Reader(const std::string& file) : stream_{.file = file} {}

    CallStream read(std::string_view text) {
        const std::vector<std::string_view> lines = lines_of(text);
        for (number_ = 1; number_ <= lines.size(); ++number_) {
            const std::string_view line = lines[number_ - 1];
            if (trimmed(line).empty()) continue;
            const Json json = Json::parse(line, nullptr, false);
            // A process that was killed leaves its last line unfinished.
            const bool unfinished = number_ > 1 && number_ == lines.size() && !text.ends_with('\n');
            if (json.is_discarded() && unfinished) break;
            here([&] { take(json); });
        }
        number_ = std::max<std::size_t>(lines.size(), 1);
        here([&] { require_header(); });
        return std::move(stream_);
    }

private:
    /// Puts file and line in front of an error.
    void here(auto&& read) const {
        try {
            read();
        } catch (const UsageError& error) {
            throw UsageError(fmt::format("{}:{}: {}", stream_.file, number_, error.what()));
        }
    }
    void require_header() const {
        if (columns_.empty()) throw UsageError("no header; expected a file that SAMESUM_POLICY=observe wrote");
    }

    void take(const Json& json) {
        if (json.is_array())
            call(json);
        else if (!json.is_object())
            throw UsageError("not a line of a call stream");
        else if (json.contains("samesum"))
            header(json);
        else
            communicator(json);
    }

    void communicator(const Json& json) {
        require_header();
        RecordedCommunicator comm;
        const std::uint64_t key = number_field(json, "communicator", 1);
        comm.ranks = int_field(json, "ranks", 1, 1 << 20);
        comm.rank = int_field(json, "rank", 0, comm.ranks - 1);
        if (json.contains("gpus_seen")) comm.gpus_seen = int_field(json, "gpus_seen", 1, 1 << 20);
        stream_.communicators[key] = comm;
    }

    void header(const Json& json) {
        if (!columns_.empty()) throw UsageError("a second header; expected one call stream per file");
        if (json_field(json, "samesum") != "calls") throw UsageError("a samesum file, not a call stream");
        if (json_field(json, "format") != 1) throw UsageError("a call stream of another format; expected 1");
        stream_.version = parse_nccl_version(one_line(json, "nccl"));
        stream_.policy =
            word_of(json, "policy", std::array<std::string_view, 4>{"observe", "fixed_root", "ordered", "direct"});
        if (const Json& environment = json_field(json, "environment"); environment.is_object())
            for (const auto& setting : environment.items())
                stream_.environment[setting.key()] = one_line(environment, setting.key().c_str());
        const Json& given = json_field(json, "columns");
        if (!given.is_array()) throw UsageError("field 'columns': expected a list");
        for (const char* name :
             {"communicator", "collective", "count", "dtype", "op", "root", "group", "captured", "did", "in_place"}) {
            const auto place = std::find(given.begin(), given.end(), name);
            if (place == given.end()) throw UsageError(fmt::format("no column '{}'", name));
            columns_[name] = static_cast<std::size_t>(place - given.begin());
        }
        width_ = given.size();
    }

    void call(const Json& row) {
        if (columns_.empty()) throw UsageError("a call before the header");
        if (row.size() != width_)
            throw UsageError(fmt::format("{} fields; expected {}, as in the header", row.size(), width_));
        Json named = Json::object();
        for (const auto& [name, column] : columns_) named[name] = row[column];
        RecordedCall call;
        call.communicator = number_field(named, "communicator", 1);
        if (stream_.communicators.count(call.communicator) == 0)
            throw UsageError(fmt::format("unknown communicator {}", call.communicator));
        constexpr std::array moving{"AllGather", "AlltoAll", "Gather", "Scatter", "Bcast", "Broadcast", "Send", "Recv"};
        call.collective = one_line(named, "collective");
        if (std::find(moving.begin(), moving.end(), call.collective) == moving.end())
            call.reducing = parse_collective(call.collective);
        call.count = number_field(named, "count", 0, std::int64_t{1} << 44);
        const std::string type = one_line(named, "dtype");
        if (type != "no type") call.format = parse_format(type);
        if (call.reducing) call.operation = parse_operation(one_line(named, "op"));
        call.root =
            static_cast<int>(std::clamp<std::int64_t>(whole_field(named, "root", INT64_MIN, INT64_MAX), -1, 1 << 20));
        call.group = number_field(named, "group", 0);
        call.captured = bool_field(named, "captured");
        call.in_place = bool_field(named, "in_place");
        call.did = word_of(named, "did", std::array<std::string_view, 3>{"forwarded", "replaced", "refused"});
        if (call.did != "forwarded" && stream_.policy == "observe")
            throw UsageError(fmt::format("a call that was {}; policy 'observe' forwards every call", call.did));
        stream_.calls.push_back(std::move(call));
    }

    std::size_t number_ = 0;  ///< of the line
    CallStream stream_;
    std::map<std::string, std::size_t> columns_;
    std::size_t width_ = 0;
};

}  // namespace

CallStream parse_call_stream(std::string_view text, const std::string& file) { return Reader(file).read(text); }

}  // namespace samesum
