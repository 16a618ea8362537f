// Lines to ranks (log_ranks), ranks to communicators (log_communicator), and calls to their communicators.
// SPDX-License-Identifier: Apache-2.0
#include "model/input/nccl_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "model/input/log_ranks.hpp"
#include "model/support/error.hpp"
#include "model/support/input_names.hpp"

namespace samesum {
namespace {

/// Puts the calls into their communicators; returns how many fit none or several. `group_of`: a rank's communicator.
std::size_t place_calls(LogRanks& ranks, const std::map<std::size_t, std::size_t>& group_of, NcclLog& log) {
    std::size_t unplaced = 0;
    for (CallLog& call : ranks.calls) {
        std::optional<std::size_t> owner;
        if (call.rank)
            if (const auto group = group_of.find(*call.rank); group != group_of.end()) owner = group->second;
        if (!owner) {
            // Choices are printed by rank 0 alone: the only communicator of which this process is rank 0.
            std::set<std::size_t> candidates;
            for (const auto& [i, group] : group_of)
                if (ranks.ranks[i].process == call.process && ranks.ranks[i].rank == 0) candidates.insert(group);
            if (candidates.size() == 1) owner = *candidates.begin();
            if (candidates.empty() && log.communicators.size() == 1) owner = 0;
        }
        if (!owner) {
            ++unplaced;
            continue;
        }
        LogCommunicator& comm = log.communicators[*owner];
        if (auto* choice = std::get_if<LoggedChoice>(&call.choice))
            comm.choices.push_back(std::move(*choice));
        else
            comm.symmetric.push_back(std::move(std::get<LoggedSymmetric>(call.choice)));
    }
    return unplaced;
}

}  // namespace

NcclLog parse_nccl_log(std::string_view text, const std::string& file) {
    LogRanks ranks = read_log_ranks(text);
    NcclLog log{.file = file, .communicators = {}, .notes = {}, .lines = ranks.lines, .nccl_lines = ranks.nccl_lines};
    if (log.nccl_lines == 0)
        throw UsageError(
            fmt::format("{}: no 'NCCL INFO' line in {} lines; run with NCCL_DEBUG=INFO "
                        "NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,TUNING,COLL",
                        file, log.lines));
    std::map<std::size_t, std::size_t> group_of;
    std::size_t anonymous = 0;
    for (const auto& members : ranks_by_communicator(ranks.ranks)) {
        for (const std::size_t i : members) group_of[i] = log.communicators.size();
        const RankLog& first = ranks.ranks[members.front()];
        if (first.comm_id.empty() && first.parent.empty()) ++anonymous;
        log.communicators.push_back(assemble_communicator(ranks, members, file));
    }
    if (const std::size_t unplaced = place_calls(ranks, group_of, log); unplaced > 0)
        log.notes.push_back(
            fmt::format("{} lines of choices ('-> Algo') fit several communicators and were left out; add COLL to "
                        "NCCL_DEBUG_SUBSYS",
                        unplaced));
    if (ranks.cut_lines > 0)
        log.notes.push_back(fmt::format(
            "{} lines were cut by NCCL ('Channel' at 127 characters, 'Trees' at 1023); the cut part was not used",
            ranks.cut_lines));
    if (ranks.garbled_lines > 0)
        log.notes.push_back(fmt::format("{} garbled lines were left out", ranks.garbled_lines));
    if (anonymous > 1)
        log.notes.emplace_back("no commId in the log: communicators were distinguished by the order of their lines");
    return log;
}

const LogCommunicator& NcclLog::communicator(std::string_view pick) const {
    std::string list;
    for (std::size_t i = 0; i < communicators.size() && i < 8; ++i)
        list += fmt::format("{}{} ({}: {})", i == 0 ? "" : "; ", i, communicators[i].id, communicators[i].str());
    if (communicators.size() > 8) list += fmt::format("; and {} more", communicators.size() - 8);
    if (communicators.empty())
        throw UsageError(
            fmt::format("{}: no communicator in {} NCCL lines; keep the subsystems INIT and GRAPH", file, nccl_lines));
    if (!pick.empty()) {
        const LogCommunicator* found = nullptr;
        for (std::size_t i = 0; i < communicators.size(); ++i)
            if (pick == communicators[i].id || pick == std::to_string(i)) found = &communicators[i];
        if (found == nullptr)
            throw UsageError(fmt::format("{}: no communicator '{}'; expected one of: {}", file, pick, list));
        return *found;
    }
    const auto max = std::max_element(communicators.begin(), communicators.end(),
                                      [](const auto& a, const auto& b) { return a.ranks < b.ranks; });
    const auto as_large = std::count_if(communicators.begin(), communicators.end(),
                                        [&](const auto& comm) { return comm.ranks == max->ranks; });
    if (as_large > 1)
        throw UsageError(fmt::format("{}: {} communicators; expected {} with one of: {}", file, communicators.size(),
                                     input_name("communicator"), list));
    return *max;
}

}  // namespace samesum
