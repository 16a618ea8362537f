// A rank that dies is seen at once; a rank that hangs is seen by the deadline.
// SPDX-License-Identifier: Apache-2.0
#include "impl/ranks/rank_group.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "impl/ranks/launched_job.hpp"
#include "model/support/progress.hpp"

namespace samesum::gpu {
namespace {

std::size_t as_bytes(const RankGroupOptions& options) {
    if (options.ranks < 1) throw UsageError(fmt::format("{} ranks; at least 1 would be right", options.ranks));
    if (options.launched_job != nullptr && options.ranks > options.launched_job->ranks())
        throw UsageError(fmt::format("{} ranks; {} started {}", options.ranks, options.launched_job->launch().launcher,
                                     options.launched_job->ranks()));
    return options.memory_bytes;
}

}  // namespace

RankFailure::RankFailure(Kind k, int r, std::string c, std::string w)
    : Inconclusive(fmt::format("rank {} {} in {}: {}", r,
                               k == Kind::died   ? "died"
                               : k == Kind::hung ? "hung"
                                                 : "failed",
                               c.empty() ? "start" : c, w)),
      kind(k),
      rank(r),
      call(std::move(c)),
      why(std::move(w)) {}

RankGroup::RankGroup(RankGroupOptions options, WorkerFactory factory)
    : options_(std::move(options)), memory_(as_bytes(options_)) {
    for (int rank = 0; rank < options_.ranks; ++rank) {
        RankRole role{rank, options_.ranks, {}};
        if (!options_.environment.empty())
            role.environment =
                options_.environment.at(options_.environment.size() == 1 ? 0 : static_cast<std::size_t>(rank));
        if (options_.launched_job != nullptr && rank > 0)
            processes_.push_back(options_.launched_job->process(std::move(role), memory_));
        else
            processes_.push_back(std::make_unique<LocalRank>(std::move(role), memory_.bytes(), factory));
    }
}

RankGroup::~RankGroup() { stop(); }

std::vector<pid_t> RankGroup::processes() const {
    std::vector<pid_t> pids;
    if (running_)
        for (const auto& process : processes_) pids.push_back(process->pid());
    return pids;
}

std::string RankGroup::log(int rank, std::size_t from) const {
    return processes_.at(static_cast<std::size_t>(rank))->log(from);
}

std::size_t RankGroup::log_size(int rank) const { return processes_.at(static_cast<std::size_t>(rank))->log_size(); }

void RankGroup::start() {
    ++starts_;
    running_ = true;
    try {
        std::vector<int> sockets;
        if (options_.launched_job != nullptr) sockets = options_.launched_job->sockets();
        for (const auto& process : processes_) {
            process->start(sockets);
            if (process->pid() > 0) sockets.push_back(process->socket());
        }
        for (const auto& process : processes_) process->started(options_.start_seconds);
    } catch (...) {
        stop();
        throw;
    }
}

void RankGroup::fail(RankFailure::Kind kind, std::size_t rank, const std::string& why) {
    stop();
    throw RankFailure(kind, static_cast<int>(rank), processes_[rank]->current_call(), why);
}

std::vector<std::string> RankGroup::ask(std::string_view command, double seconds) {
    return ask(std::vector<std::string>(processes_.size(), std::string(command)), seconds);
}

std::vector<std::string> RankGroup::ask(std::span<const std::string> commands, double seconds,
                                        std::span<const Range> inputs) {
    ensure(commands.size() == processes_.size(), "a command for every rank");
    ensure(inputs.empty() || inputs.size() == processes_.size(), "an input for every rank, or for none");
    double deadline = monotonic_seconds() + seconds;
    if (!running_) {
        start();
        deadline += options_.start_seconds;
    }
    const auto answer_of = [&](std::size_t rank) {
        Message message = processes_[rank]->take();
        if (message.kind == Message::Kind::died) fail(RankFailure::Kind::died, rank, message.text);
        if (message.kind == Message::Kind::error) fail(RankFailure::Kind::failed, rank, message.text);
        if (message.kind == Message::Kind::usage_error) {
            stop();
            throw UsageError(message.text);
        }
        return std::move(message.text);
    };
    for (std::size_t rank = 0; rank < commands.size(); ++rank)
        if (!processes_[rank]->put(commands[rank], inputs.empty() ? Range{} : inputs[rank])) (void)answer_of(rank);

    std::vector<std::string> answers(commands.size());
    std::vector<pollfd> waiting(commands.size());
    for (std::size_t i = 0; i < commands.size(); ++i) waiting[i] = {processes_[i]->socket(), POLLIN, 0};
    for (std::size_t left = commands.size(); left > 0;) {
        const double rest = deadline - monotonic_seconds();
        const int ready = rest <= 0 ? 0
                                    : ::poll(waiting.data(), static_cast<nfds_t>(waiting.size()),
                                             static_cast<int>(std::min(rest * 1000 + 1, 1e9)));
        if (ready < 0 && errno == EINTR) continue;
        if (ready < 0) throw Inconclusive(fmt::format("poll on the ranks: {}", std::strerror(errno)));
        if (ready == 0) {
            const auto silent =
                std::find_if(waiting.begin(), waiting.end(), [](const pollfd& each) { return each.fd >= 0; });
            fail(RankFailure::Kind::hung, static_cast<std::size_t>(silent - waiting.begin()),
                 fmt::format("no answer in {:.3g} s; {} of {} ranks are silent", seconds, left, commands.size()));
        }
        for (std::size_t i = 0; i < waiting.size(); ++i) {
            if (waiting[i].fd < 0 || waiting[i].revents == 0) continue;
            answers[i] = answer_of(i);
            waiting[i].fd = -1;
            --left;
        }
    }
    return answers;
}

void RankGroup::stop() {
    if (!running_) return;
    running_ = false;
    for (const auto& process : processes_) process->request_stop();
    const double timeout = monotonic_seconds() + 0.5;
    for (const auto& process : processes_) process->end(timeout);
}

}  // namespace samesum::gpu
