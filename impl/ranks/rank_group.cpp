// A rank that dies is noticed at once, a rank that hangs at the deadline.
// SPDX-License-Identifier: Apache-2.0
#include "impl/ranks/rank_group.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "impl/ranks/launched_job.hpp"
#include "model/support/progress.hpp"

namespace samesum::gpu {
namespace {

/// Bytes of memory, once the number of ranks is known to be possible.
std::size_t checked_memory_bytes(const RankGroupOptions& options) {
    if (options.ranks < 1) throw UsageError(fmt::format("{} ranks: expected at least 1", options.ranks));
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
    : options_(std::move(options)), memory_(checked_memory_bytes(options_)) {
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
        std::vector<int> foreign;
        if (options_.launched_job != nullptr) foreign = options_.launched_job->descriptors();
        for (const auto& process : processes_) {
            process->start(foreign);
            if (process->pid() > 0) foreign.push_back(process->descriptor());
        }
        for (const auto& process : processes_) process->wait_until_started(options_.start_seconds);
    } catch (...) {
        stop();
        throw;
    }
}

void RankGroup::fail(RankFailure::Kind kind, std::size_t rank, const std::string& why) {
    stop();
    throw RankFailure(kind, static_cast<int>(rank), processes_[rank]->current_call(), why);
}

std::vector<std::string> RankGroup::execute(std::string_view command, double seconds) {
    return execute(std::vector<std::string>(processes_.size(), std::string(command)), seconds);
}

std::string RankGroup::answer_of(std::size_t rank) {
    Message message = processes_[rank]->receive();
    if (message.kind == Message::Kind::died) fail(RankFailure::Kind::died, rank, message.text);
    if (message.kind == Message::Kind::error) fail(RankFailure::Kind::failed, rank, message.text);
    if (message.kind == Message::Kind::usage_error) {
        stop();
        throw UsageError(message.text);
    }
    return std::move(message.text);
}

std::vector<std::string> RankGroup::execute(std::span<const std::string> commands, double seconds,
                                            std::span<const Range> inputs) {
    ensure(commands.size() == processes_.size(), "a command for every rank");
    ensure(inputs.empty() || inputs.size() == processes_.size(), "an input for every rank, or for none");
    double deadline = monotonic_seconds() + seconds;
    if (!running_) {
        start();
        deadline += options_.start_seconds;
    }
    for (std::size_t rank = 0; rank < commands.size(); ++rank)
        if (!processes_[rank]->send(commands[rank], inputs.empty() ? Range{} : inputs[rank])) (void)answer_of(rank);

    std::vector<std::string> answers(commands.size());
    std::vector<pollfd> sockets(commands.size());
    for (std::size_t i = 0; i < commands.size(); ++i) sockets[i] = {processes_[i]->descriptor(), POLLIN, 0};
    for (std::size_t left = commands.size(); left > 0;) {
        const double rest = deadline - monotonic_seconds();
        const int ready = rest <= 0 ? 0
                                    : ::poll(sockets.data(), static_cast<nfds_t>(sockets.size()),
                                             static_cast<int>(std::min(rest * 1000 + 1, 1e9)));
        if (ready < 0 && errno == EINTR) continue;
        if (ready < 0) throw Inconclusive(fmt::format("poll on the ranks: {}", std::strerror(errno)));
        if (ready == 0) {
            const auto silent =
                std::find_if(sockets.begin(), sockets.end(), [](const pollfd& each) { return each.fd >= 0; });
            fail(RankFailure::Kind::hung, static_cast<std::size_t>(silent - sockets.begin()),
                 fmt::format("no answer in {:.3g} s; {} of {} ranks are silent", seconds, left, commands.size()));
        }
        for (std::size_t i = 0; i < sockets.size(); ++i) {
            if (sockets[i].fd < 0 || sockets[i].revents == 0) continue;
            answers[i] = answer_of(i);
            sockets[i].fd = -1;
            --left;
        }
    }
    return answers;
}

void RankGroup::stop() {
    if (!running_) return;
    running_ = false;
    for (const auto& process : processes_) process->request_stop();
    const double deadline = monotonic_seconds() + 0.5;
    for (const auto& process : processes_) process->wait_for_end(deadline);
}

}  // namespace samesum::gpu
