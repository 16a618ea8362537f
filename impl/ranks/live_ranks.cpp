// Commands are JSON, answered by gpu_worker.cpp; inputs and results lie in the group's memory.
// SPDX-License-Identifier: Apache-2.0
#include "impl/ranks/live_ranks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "impl/ranks/gpu_worker.hpp"
#include "impl/ranks/launched_job.hpp"
#include "model/support/text.hpp"

namespace samesum::gpu {
namespace {

using Json = nlohmann::json;

/// The first half of the shared memory holds the ranks' inputs, the second the results.
constexpr std::size_t memory_bytes = std::size_t{64} << 30;
constexpr std::size_t output_offset = memory_bytes / 2;

/// The lines that hold `mark`, from where `from` begins in them.
std::vector<std::string> lines_with(std::string_view text, std::string_view mark, std::string_view from) {
    std::vector<std::string> lines;
    for (const std::string_view line : split(text, '\n')) {
        if (line.find(mark) == std::string_view::npos) continue;
        const std::size_t start = line.find(from);
        if (start != std::string_view::npos) lines.emplace_back(line.substr(start));
    }
    return lines;
}

/// NCCL's lines about the calls it ran: algorithm, protocol, channels.
std::vector<std::string> choice_lines(std::string_view log) {
    constexpr std::string_view prefix = "NCCL INFO ";
    std::vector<std::string> lines = lines_with(log, "-> Algo ", prefix);
    for (std::string& line : lines) line.erase(0, prefix.size());
    return lines;
}

/// One command for each rank, with the offset of that rank's input in the memory.
struct WithInputs {
    std::vector<std::string> commands;
    std::vector<Range> inputs;
};

WithInputs with_inputs(LiveRanks& ranks, Json command, std::uint64_t bytes) {
    WithInputs all;
    for (int rank = 0; rank < ranks.ranks(); ++rank) {
        const auto offset = static_cast<std::uint64_t>(ranks.input(rank, bytes).data() - ranks.group().memory().data());
        all.inputs.push_back({offset, bytes});
        command["input"] = offset;
        all.commands.push_back(command.dump());
    }
    return all;
}

}  // namespace

Hardware probe_hardware() {
    LaunchedJob* const job = launched_job();
    RankGroup group({.ranks = job == nullptr ? 1 : job->ranks(), .memory_bytes = 4096, .launched_job = job},
                    gpu_workers());
    Hardware hardware;
    int rank = 0;
    for (const std::string& answer : group.execute(R"({"do": "probe"})", 60)) {
        const Json found = Json::parse(answer);
        const Json& gpus = found.at("gpus");
        const std::string who =
            job == nullptr ? "" : fmt::format("rank {} on {}: ", rank, job->member(rank).host_name());
        if (gpus.empty()) throw Inconclusive(who + "no CUDA device on this machine");
        const NcclVersion nccl = parse_nccl_version(found.at("nccl").get<std::string>());
        if (rank == 0) {
            hardware.driver = found.at("driver");
            hardware.runtime = found.at("runtime");
            hardware.compute_capability = gpus.front().at("compute_capability");
            hardware.nccl = nccl;
        }
        if (job == nullptr) {
            for (const Json& gpu : gpus) hardware.gpus.push_back(gpu.at("name"));
            break;
        }
        // A launcher may make one GPU visible to each of its processes, or all of them.
        const int device = job->member(rank).local_rank % static_cast<int>(gpus.size());
        const Json& own = gpus.at(static_cast<std::size_t>(device));
        if (own.at("compute_capability") != hardware.compute_capability || !(nccl == hardware.nccl))
            throw Inconclusive(fmt::format("{}sm_{} and NCCL {}; rank 0 has sm_{} and NCCL {}", who,
                                           own.at("compute_capability").get<int>(), str(nccl),
                                           hardware.compute_capability, str(hardware.nccl)));
        RankLocation location{job->member(rank).host, own.at("bus"), device};
        const bool known = std::any_of(
            hardware.locations.begin(), hardware.locations.end(),
            [&](const RankLocation& other) { return other.host == location.host && other.gpu == location.gpu; });
        if (!known) hardware.gpus.push_back(own.at("name"));
        hardware.locations.push_back(std::move(location));
        ++rank;
    }
    return hardware;
}

std::uint64_t ReduceGroup::total(int ranks) const {
    return std::accumulate(calls.begin(), calls.end(), std::uint64_t{0},
                           [&](std::uint64_t sum, const Call& call) { return sum + call.total(ranks); });
}

LiveRanks::LiveRanks(const Options& options, const Hardware& hardware)
    : placement_(place_ranks(options.ranks, options.ranks_per_node, hardware)),
      hardware_(hardware),
      timeout_s_(options.timeout_s) {
    // A private daemon would serve only this host's ranks, and the launcher's processes have started already.
    if (launched_job() != nullptr && options.mps == MpsUse::on)
        throw UsageError(fmt::format("--mps on: {} has started the ranks: expected an MPS daemon started with the job",
                                     launched_job()->launch().launcher));
    const bool wanted = launched_job() == nullptr &&
                        (options.mps == MpsUse::on ||
                         (options.mps == MpsUse::automatic && placement_.gpus_are_shared && PrivateMps::available()));
    if (wanted) mps_ = std::make_unique<PrivateMps>();
    std::vector<std::map<std::string, std::string>> environment;
    for (int rank = 0; rank < ranks(); ++rank) {
        // NVLS is off: its sums are made in the switch and cannot be observed, and multicast is a shared resource.
        std::map<std::string, std::string> own{{"NCCL_NVLS_ENABLE", "0"},
                                               {"NCCL_DEBUG", rank == 0 ? "INFO" : "WARN"},
                                               {"NCCL_DEBUG_SUBSYS", "INIT,GRAPH,TUNING,ENV"}};
        if (placement_.several_nodes && !placement_.nodes_are_hosts)
            own["NCCL_HOSTID"] = fmt::format("samesum-node-{}", rank / placement_.ranks_per_node);
        if (placement_.several_nodes && placement_.hosts == 1) own["NCCL_SOCKET_IFNAME"] = "lo";
        if (mps_)
            for (const auto& [name, value] : mps_->environment()) own[name] = value;
        environment.push_back(std::move(own));
    }
    group_ = std::make_unique<RankGroup>(RankGroupOptions{.ranks = ranks(),
                                                          .environment = std::move(environment),
                                                          .memory_bytes = memory_bytes,
                                                          .launched_job = launched_job()},
                                         gpu_workers());
}

LiveRanks::~LiveRanks() = default;

std::vector<std::string> LiveRanks::execute(std::span<const std::string> commands, std::span<const Range> inputs) {
    try {
        return group_->execute(commands, timeout_s_, inputs);
    } catch (const RankFailure& failure) {
        // NCCL's warnings often give the cause.
        std::string warnings;
        for (int rank = 0; rank < ranks(); ++rank)
            for (const std::string& line : lines_with(group_->log(rank), "NCCL WARN", "NCCL WARN"))
                if (warnings.size() < 1000) warnings += fmt::format("\n  rank {}: {}", rank, line);
        if (warnings.empty()) throw;
        throw RankFailure(failure.kind, failure.rank, failure.call, failure.why + warnings);
    }
}

void LiveRanks::open(const NcclEnvironment& environment) {
    const auto on_all_ranks = [&](const Json& command) {
        return execute(std::vector(static_cast<std::size_t>(ranks()), command.dump()));
    };
    if (is_open()) on_all_ranks({{"do", "close"}});
    opened_at_start_ = 0;
    const std::string id = on_all_ranks({{"do", "id"}}).front();
    const std::size_t mark = group_->log_size(0);
    Json variables;
    const auto set = [&](const char* name, const std::string& value) {
        // The user's own setting stays where nothing is forced.
        const char* given = std::getenv(name);
        variables[name] = !value.empty() ? Json(value) : given != nullptr ? Json(given) : Json();
    };
    set("NCCL_ALGO", environment.algorithms);
    set("NCCL_PROTO", environment.protocols);
    set("NCCL_GRAPH_FILE", environment.graph_file);
    set("NCCL_MIN_NCHANNELS", environment.min_channels);
    std::vector<std::string> commands;
    for (int rank = 0; rank < ranks(); ++rank)
        commands.push_back(Json{
            {"do", "open"},
            {"id", id},
            {"device", placement_.gpu_of[static_cast<std::size_t>(rank)]},
            {"environment",
             variables}}.dump());
    execute(commands);
    environment_ = environment;
    opened_at_start_ = group_->starts();
    const std::string text = log_.text = group_->log(0, mark);
    log_.rings.clear();
    for (const std::string& line : lines_with(text, " : ", "Channel "))
        if (line.find(" via ") == std::string::npos) log_.rings.push_back(line);
    log_.graphs = lines_with(text, "Pattern ", "Pattern ");
    const auto trees = lines_with(text, "Trees [0]", "Trees [0]");
    log_.rank0_trees = trees.empty() ? "" : trees.front();
}

bool LiveRanks::is_open() const {
    return group_->running() && opened_at_start_ > 0 && opened_at_start_ == group_->starts();
}

void LiveRanks::ensure_open() {
    if (!is_open()) open(environment_);
}

std::string LiveRanks::said_since(std::size_t mark) const {
    return fmt::format("{}", fmt::join(choice_lines(group_->log(0, mark)), " | "));
}

std::span<std::byte> LiveRanks::input(int rank, std::uint64_t bytes) {
    // Every rank's input begins on its own page.
    const std::uint64_t spaced = (bytes + 4095) / 4096 * 4096;
    if (spaced * static_cast<std::uint64_t>(ranks()) > output_offset)
        throw UsageError(
            fmt::format("{} bytes on each of {} ranks: expected at most {} together", bytes, ranks(), output_offset));
    return group_->memory().subspan(spaced * static_cast<std::uint64_t>(rank), bytes);
}

std::span<const std::byte> LiveRanks::result(std::uint64_t bytes) const {
    if (bytes > memory_bytes - output_offset)
        throw UsageError(fmt::format("a result of {} bytes: expected at most {}", bytes, memory_bytes - output_offset));
    return group_->memory().subspan(output_offset, bytes);
}

namespace {

Json reduce_command(const ReduceGroup& group) {
    ensure(!group.calls.empty(), "a group has calls");
    Json calls = Json::array();
    for (const Call& call : group.calls) {
        ensure(call.format == group.calls.front().format && call.operation == group.calls.front().operation,
               "a group has one format and one operation");
        calls.push_back({{"collective", samesum::name(call.collective)}, {"count", call.count}, {"root", call.root}});
    }
    return {{"do", "reduce"},
            {"format", samesum::name(group.calls.front().format)},
            {"operation", samesum::name(group.calls.front().operation)},
            {"calls", calls},
            {"captured", group.captured},
            {"input", 0},
            {"output", output_offset},
            {"fills", Json::array()}};
}

/// The ranks' answers. Throws Refusal when NCCL refused to run the calls.
std::vector<Json> parsed(const std::vector<std::string>& answers) {
    std::vector<Json> read;
    for (const std::string& answer : answers) {
        read.push_back(Json::parse(answer));
        if (read.back().contains("refused")) throw Refusal(read.back().at("refused").get<std::string>());
    }
    return read;
}

}  // namespace

std::vector<std::span<const std::byte>> LiveRanks::run_masks(const ReduceGroup& group,
                                                             std::span<const std::vector<Bits>> masks,
                                                             std::string& said) {
    ensure_open();
    std::vector<std::string> commands;
    Json command = reduce_command(group);
    for (int rank = 0; rank < ranks(); ++rank) {
        Json fills = Json::array();
        for (const std::vector<Bits>& mask : masks) fills.push_back(mask[static_cast<std::size_t>(rank)]);
        command["fills"] = std::move(fills);
        commands.push_back(command.dump());
    }
    const std::uint64_t bytes =
        group.total(ranks()) * static_cast<std::uint64_t>(traits(group.calls.front().format).bytes());
    const auto all = result(bytes * masks.size());
    const std::size_t mark = group_->log_size(0);
    const auto answers = execute(commands);
    try {
        (void)parsed(answers);
    } catch (const Refusal&) {
        opened_at_start_ = 0;
        throw;
    }
    // NCCL logs the same for every mask; the last run's lines are enough.
    std::vector<std::string> lines = choice_lines(group_->log(0, mark));
    if (lines.size() > group.calls.size())
        lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(group.calls.size()));
    said = fmt::format("{}", fmt::join(lines, " | "));
    std::vector<std::span<const std::byte>> results;
    for (std::size_t i = 0; i < masks.size(); ++i) results.push_back(all.subspan(i * bytes, bytes));
    return results;
}

std::span<const std::byte> LiveRanks::run_data(const ReduceGroup& group, std::string& said) {
    ensure_open();
    const std::uint64_t bytes =
        group.total(ranks()) * static_cast<std::uint64_t>(traits(group.calls.front().format).bytes());
    const auto all = result(bytes);
    const std::size_t mark = group_->log_size(0);
    const auto [commands, inputs] = with_inputs(*this, reduce_command(group), bytes);
    const auto answers = execute(commands, inputs);
    std::vector<Json> read;
    try {
        read = parsed(answers);
    } catch (const Refusal&) {
        opened_at_start_ = 0;
        throw;
    }
    for (std::size_t rank = 1; rank < read.size(); ++rank)
        if (read[rank].at("digest") != read[0].at("digest"))
            throw Inconclusive(fmt::format("after an all-reduce, rank {} holds other bits than rank 0", rank));
    said = said_since(mark);
    return all;
}

CombineOutcome LiveRanks::combine(const CombineRun& run) {
    ensure_open();
    const auto width = static_cast<std::uint64_t>(traits(run.format).bytes());
    const std::uint64_t bytes = run.routing.elements() * width;
    std::memset(group_->memory().subspan(output_offset, bytes).data(), 0xa5, bytes);
    Json command{{"do", "combine"},
                 {"scheme", run.fastest ? "auto" : samesum::name(run.scheme)},
                 {"sizes", run.routing.sizes},
                 {"hidden", run.routing.hidden},
                 {"format", samesum::name(run.format)},
                 {"root", run.root},
                 {"accumulation", samesum::name(run.accumulation)},
                 {"ranks_per_node", run.ranks_per_node},
                 {"fault", run.fault},
                 {"captured", run.captured},
                 {"in_place", run.in_place},
                 {"shift", static_cast<std::uint64_t>(run.shift) * width},
                 {"delay_ns", static_cast<std::uint64_t>(run.delay_s * 1e9)},
                 {"guards", run.guards},
                 {"digest", run.digest},
                 {"changed", run.changed_rows ? Json(*run.changed_rows) : Json()},
                 {"output", output_offset}};
    const std::size_t mark = group_->log_size(0);
    const auto [commands, inputs] = with_inputs(*this, std::move(command), bytes);
    const auto answers = execute(commands, inputs);
    CombineOutcome outcome;
    try {
        int rank = 0;
        for (const Json& answer : parsed(answers)) {
            if (run.digest) outcome.digests.push_back(answer.at("digest"));
            outcome.ran = answer.at("ran");
            if (run.guards && !answer.at("guards_intact").get<bool>())
                outcome.damage += fmt::format("rank {} wrote outside its buffers; ", rank);
            if (run.guards && !answer.at("partial_intact").get<bool>())
                outcome.damage += fmt::format("rank {} wrote into its partial; ", rank);
            ++rank;
        }
    } catch (const Refusal&) {
        opened_at_start_ = 0;
        throw;
    }
    outcome.said = said_since(mark);
    return outcome;
}

std::map<std::string, std::vector<double>> LiveRanks::bench(const BenchRun& run) {
    ensure_open();
    const Json command{{"do", "bench"},
                       {"schemes", run.schemes},
                       {"hidden", run.hidden},
                       {"format", samesum::name(run.format)},
                       {"accumulation", samesum::name(run.accumulation)},
                       {"value", from_double(run.format, 1.0)},
                       {"iterations", run.iterations},
                       {"repetitions", run.repetitions},
                       {"captured", run.captured},
                       {"limits", run.limits}};
    std::map<std::string, std::vector<double>> slowest;
    for (const Json& answer :
         parsed(execute(std::vector<std::string>(static_cast<std::size_t>(ranks()), command.dump()))))
        for (const auto& [name, times] : answer.items()) {
            auto& all = slowest[name];
            all.resize(times.size());
            for (std::size_t i = 0; i < times.size(); ++i) all[i] = std::max(all[i], times[i].get<double>());
        }
    return slowest;
}

}  // namespace samesum::gpu
