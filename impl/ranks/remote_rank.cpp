// Commands go over the connection that the rendezvous made; a rank that ends sends its log along.
// SPDX-License-Identifier: Apache-2.0
#include "impl/ranks/remote_rank.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "model/support/error.hpp"
#include "model/support/numbers.hpp"
#include "model/support/progress.hpp"

namespace samesum::gpu {
namespace {

using Json = nlohmann::json;

}  // namespace

RemoteRank::RemoteRank(RankRole role, const SharedMemory& memory, MessageSocket& socket)
    : role_(std::move(role)), memory_(memory), socket_(socket) {}

RemoteRank::~RemoteRank() {
    if (!running_) return;
    RemoteRank::request_stop();
    RemoteRank::wait_for_end(monotonic_seconds());
}

void RemoteRank::start(std::span<const int>) {
    const Json order{{"rank", role_.rank},
                     {"ranks", role_.ranks},
                     {"environment", role_.environment},
                     {"memory", memory_.name()},
                     {"bytes", memory_.bytes().size()}};
    if (!socket_ || !socket_.write(Message::Kind::start, order.dump()))
        throw Inconclusive(fmt::format("rank {}'s process has left the job", role_.rank));
    running_ = true;
}

void RemoteRank::wait_until_started(double seconds) {
    const auto answer = socket_.readable_within(seconds) ? socket_.read() : std::nullopt;
    if (!answer || answer->kind != Message::Kind::started)
        throw Inconclusive(
            fmt::format("rank {}'s process {}", role_.rank, answer ? answer->text : "does not start its rank"));
    shares_memory_ = answer->text == "shared";
}

std::span<const std::byte> RemoteRank::sent_memory() const {
    return shares_memory_ ? std::span<const std::byte>() : memory_.bytes();
}

bool RemoteRank::send(std::string_view command, Range input) {
    return socket_.write(Message::Kind::command, command, std::span(&input, input.bytes > 0 ? 1 : 0), sent_memory());
}

Message RemoteRank::receive() {
    if (auto message = socket_.read(memory_.bytes())) {
        if (message->kind == Message::Kind::died) message->text = keep_report(message->text);
        return std::move(*message);
    }
    socket_.close();
    current_call_ = "an unknown call";
    return {Message::Kind::died, "its process is gone, or its host", {}};
}

void RemoteRank::request_stop() {
    if (running_ && socket_ && !socket_.write(Message::Kind::end, "")) socket_.close();
}

void RemoteRank::wait_for_end(double until) {
    // Answers that are still under way come before the report. The agent, too, gives its rank half a second.
    constexpr double under_way_seconds = 5;
    while (running_ && socket_) {
        const auto message = socket_.readable_within(until + under_way_seconds - monotonic_seconds())
                                 ? socket_.read(memory_.bytes())
                                 : std::nullopt;
        if (!message) socket_.close();
        if (message && message->kind == Message::Kind::end) {
            (void)keep_report(message->text);
            break;
        }
    }
    running_ = false;
}

std::string RemoteRank::log(std::size_t from) const { return from < log_.size() ? log_.substr(from) : std::string(); }

/// Keeps the call and the log of a rank that has ended; returns how it ended.
std::string RemoteRank::keep_report(const std::string& report) {
    const Json fields = Json::parse(report, nullptr, false);
    if (fields.is_discarded()) return report;
    current_call_ = fields.value("at", "");
    log_ = fields.value("log", "");
    return fields.value("how", "");
}

RankAgent::RankAgent(MessageSocket rank_0, const WorkerFactory& factory, bool share_memory)
    : rank_0_(std::move(rank_0)), factory_(factory), share_memory_(share_memory) {}

std::span<std::byte> RankAgent::memory() const { return memory_ ? memory_->bytes() : std::span<std::byte>(); }

int RankAgent::serve() {
    // Where rank 0 is gone, it or the launcher has reported why.
    constexpr int rank_0_is_gone = static_cast<int>(Exit::inconclusive);
    for (;;) {
        std::array<pollfd, 2> sockets{pollfd{rank_0_.descriptor(), POLLIN, 0},
                                      pollfd{rank_ ? rank_->descriptor() : -1, POLLIN, 0}};
        if (::poll(sockets.data(), sockets.size(), -1) < 0) {
            if (errno == EINTR) continue;
            return rank_0_is_gone;
        }
        if (sockets[0].revents != 0) {
            const auto message = rank_0_.read(memory());
            if (!message) return rank_0_is_gone;
            if (message->kind == Message::Kind::leave) return integer_in<int>(message->text).value_or(rank_0_is_gone);
            if (!handle(*message)) return rank_0_is_gone;
        } else if (sockets[1].revents != 0 && !forward_answer()) {
            return rank_0_is_gone;
        }
    }
}

bool RankAgent::forward_answer() {
    Message message = rank_->receive();
    if (message.kind == Message::Kind::died) message.text = report(message.text);
    return rank_0_.write(message.kind, message.text, message.ranges, shared_ ? std::span<std::byte>() : memory());
}

bool RankAgent::handle(const Message& message) {
    switch (message.kind) {
        case Message::Kind::start:
            return start(message.text);
        case Message::Kind::command:
            // When the rank has died, its socket is readable, and forward_answer() reports it.
            if (rank_) (void)rank_->send(message.text, {});
            return true;
        case Message::Kind::end: {
            if (rank_) {
                rank_->request_stop();
                rank_->wait_for_end(monotonic_seconds() + 0.5);
            }
            const bool sent = rank_0_.write(Message::Kind::end, report("ended"));
            rank_.reset();
            return sent;
        }
        default:
            return false;
    }
}

bool RankAgent::start(const std::string& text) {
    rank_.reset();
    memory_.reset();
    try {
        const Json order = Json::parse(text);
        if (auto mapped = share_memory_ ? SharedMemory::of(order.at("memory")) : std::nullopt)
            memory_ = std::make_unique<SharedMemory>(std::move(*mapped));
        shared_ = memory_ != nullptr;
        if (!shared_) memory_ = std::make_unique<SharedMemory>(order.at("bytes").get<std::size_t>());
        rank_ = std::make_unique<LocalRank>(RankRole{order.at("rank"), order.at("ranks"), order.at("environment")},
                                            memory(), factory_);
        const int own = rank_0_.descriptor();
        rank_->start(std::span(&own, 1));
    } catch (const std::exception& error) {
        rank_.reset();
        return rank_0_.write(Message::Kind::error, error.what());
    }
    return rank_0_.write(Message::Kind::started, shared_ ? "shared" : "its own memory");
}

/// How the rank ended, its last call, and the end of its log.
std::string RankAgent::report(const std::string& how) const {
    if (!rank_) return Json{{"how", how}}.dump();
    // The ranks' logs are set to hold warnings and little else.
    constexpr std::size_t max_log = 1 << 16;
    const std::size_t size = rank_->log_size();
    return Json{{"how", how}, {"at", rank_->current_call()}, {"log", rank_->log(size > max_log ? size - max_log : 0)}}
        .dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace samesum::gpu
