// One JSON object a line; every field is checked before it is used.
// SPDX-License-Identifier: Apache-2.0
#include "model/input/call_stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "model/support/error.hpp"
#include "model/support/text.hpp"

namespace samesum {
namespace {

using Json = nlohmann::json;

/// Reads lines, knows where it is.
class Reader {
public:
    explicit Reader(std::string_view text, const std::string& file) : rest_(text), stream_{.file = file} {}

    CallStream read() {
        while (!rest_.empty()) {
            const std::size_t end = rest_.find('\n');
            const bool finished = end != std::string_view::npos;
            const std::string_view line = rest_.substr(0, end);
            rest_.remove_prefix(finished ? end + 1 : rest_.size());
            ++number_;
            if (trimmed(line).empty()) continue;
            const Json json = Json::parse(line, nullptr, false);
            if (json.is_discarded() && !finished && number_ > 1) break;
            if (json.is_array())
                call(json);
            else if (json.is_object())
                object(json);
            else
                wrong("not a line of a call stream");
        }
        if (columns_.empty()) wrong("no header; a file that SAMESUM_POLICY=observe wrote would be right");
        return std::move(stream_);
    }

private:
    [[noreturn]] void wrong(std::string_view what) const {
        throw UsageError(fmt::format("{}:{}: {}", stream_.file, std::max<std::size_t>(number_, 1), what));
    }
    [[nodiscard]] const Json& field(const Json& json, const char* key) const {
        const auto place = json.find(key);
        if (place == json.end()) wrong(fmt::format("no field '{}'", key));
        return *place;
    }
    [[nodiscard]] std::string text(const Json& value, std::string_view what) const {
        if (!value.is_string()) wrong(fmt::format("{} is no text", what));
        auto found = value.get<std::string>();
        if (found.find_first_of("\n\r") != std::string::npos) wrong(fmt::format("{} has a line break", what));
        return found;
    }
    [[nodiscard]] std::uint64_t whole(const Json& value, std::string_view what, std::uint64_t min,
                                      std::uint64_t max) const {
        if (!value.is_number_unsigned() || value.get<std::uint64_t>() < min || value.get<std::uint64_t>() > max)
            wrong(fmt::format("{} is no whole number from {} to {}", what, min, max));
        return value.get<std::uint64_t>();
    }
    [[nodiscard]] bool truth(const Json& value, std::string_view what) const {
        if (!value.is_boolean()) wrong(fmt::format("{} is neither true nor false", what));
        return value.get<bool>();
    }
    /// A reader's complaint, with the place in front.
    auto here(auto&& read) const {
        try {
            return read();
        } catch (const UsageError& error) {
            wrong(error.what());
        }
    }

    void object(const Json& json) {
        if (json.contains("samesum")) return header(json);
        if (columns_.empty()) wrong("no header; a file that SAMESUM_POLICY=observe wrote would be right");
        RecordedCommunicator comm;
        const std::uint64_t key = whole(field(json, "communicator"), "communicator", 1, max_number);
        comm.ranks = static_cast<int>(whole(field(json, "ranks"), "ranks", 1, 1 << 20));
        comm.rank = static_cast<int>(whole(field(json, "rank"), "rank", 0, static_cast<std::uint64_t>(comm.ranks - 1)));
        if (json.contains("gpus_seen"))
            comm.gpus_seen = static_cast<int>(whole(json["gpus_seen"], "gpus_seen", 1, 1 << 20));
        stream_.communicators[key] = comm;
    }

    void header(const Json& json) {
        if (!columns_.empty()) wrong("a second header: two files in one");
        if (field(json, "samesum") != "calls") wrong("a file of samesum's, but no call stream");
        if (field(json, "format") != 1) wrong("a call stream of another format; 1 would be right");
        stream_.version = here([&] { return parse_nccl_version(text(field(json, "nccl"), "nccl")); });
        stream_.policy = text(field(json, "policy"), "policy");
        constexpr std::array policies{"observe", "fixed_root", "ordered", "direct"};
        if (std::find(policies.begin(), policies.end(), stream_.policy) == policies.end())
            wrong("policy: observe, fixed_root, ordered or direct");
        if (field(json, "environment").is_object())
            for (const auto& [key, value] : json["environment"].items())
                stream_.environment[key] = text(value, "a setting");
        std::vector<std::string> given;
        if (field(json, "columns").is_array())
            for (const Json& each : json["columns"]) given.push_back(text(each, "a column"));
        for (const char* name :
             {"communicator", "collective", "count", "dtype", "op", "root", "group", "captured", "did", "in_place"}) {
            const auto place = std::find(given.begin(), given.end(), name);
            if (place == given.end()) wrong(fmt::format("no column '{}'", name));
            columns_[name] = static_cast<std::size_t>(place - given.begin());
        }
        width_ = given.size();
    }

    void call(const Json& row) {
        if (columns_.empty()) wrong("a call before the header");
        if (row.size() != width_) wrong(fmt::format("{} fields; the header names {}", row.size(), width_));
        const auto at = [&](const char* column) -> const Json& { return row[columns_.at(column)]; };
        RecordedCall call;
        call.communicator = whole(at("communicator"), "communicator", 1, max_number);
        if (stream_.communicators.count(call.communicator) == 0)
            wrong(fmt::format("communicator {} was not introduced", call.communicator));
        constexpr std::array moving{"AllGather", "AlltoAll", "Gather", "Scatter", "Bcast", "Broadcast", "Send", "Recv"};
        call.collective = text(at("collective"), "collective");
        if (std::find(moving.begin(), moving.end(), call.collective) == moving.end())
            call.reducing = here([&] { return parse_collective(call.collective); });
        call.count = whole(at("count"), "count", 0, std::uint64_t{1} << 44);
        const std::string type = text(at("dtype"), "dtype");
        if (type != "no type") call.format = here([&] { return parse_format(type); });
        if (call.reducing) call.operation = here([&] { return parse_operation(text(at("op"), "op")); });
        if (!at("root").is_number_integer()) wrong("root is no whole number");
        const auto root = at("root").get<std::int64_t>();
        call.root = static_cast<int>(std::clamp<std::int64_t>(root, -1, 1 << 20));
        call.group = whole(at("group"), "group", 0, max_number);
        call.captured = truth(at("captured"), "captured");
        call.in_place = truth(at("in_place"), "in_place");
        call.did = text(at("did"), "did");
        if (call.did != "forwarded" && call.did != "replaced" && call.did != "refused")
            wrong("did: forwarded, replaced or refused");
        if (call.did != "forwarded" && stream_.policy == "observe") wrong("observe forwards every call");
        stream_.calls.push_back(std::move(call));
    }

    static constexpr std::uint64_t max_number = std::uint64_t{1} << 62;
    std::string_view rest_;
    std::size_t number_ = 0;
    CallStream stream_;
    std::map<std::string, std::size_t> columns_;
    std::size_t width_ = 0;
};

}  // namespace

CallStream parse_call_stream(std::string_view text, const std::string& file) { return Reader(text, file).read(); }

}  // namespace samesum
