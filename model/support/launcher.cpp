// Launchers can be nested: torchrun runs under srun, and Open MPI and MPICH start their daemons with srun. The
// innermost launcher applies.
// SPDX-License-Identifier: Apache-2.0
#include "model/support/launcher.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "model/support/error.hpp"
#include "model/support/hash.hpp"
#include "model/support/numbers.hpp"
#include "model/support/text.hpp"

extern char** environ;

namespace samesum {
namespace {

constexpr int max_ranks = 100'000;

/// Reads a launcher's variables; errors name the launcher and the rank.
class Variables {
public:
    Variables(const Environment& environment, std::string launcher)
        : environment_(environment), launcher_(std::move(launcher)) {}

    [[nodiscard]] const std::string* find(std::string_view name) const {
        const auto found = environment_.find(name);
        return found == environment_.end() || found->second.empty() ? nullptr : &found->second;
    }
    [[nodiscard]] std::string text(std::string_view name) const {
        const std::string* const value = find(name);
        return value == nullptr ? "" : *value;
    }
    /// A required number.
    [[nodiscard]] int number(std::string_view name, int min, int max) const {
        const std::string* const value = find(name);
        if (value == nullptr)
            throw UsageError(fmt::format("{}{}: {} is not set: expected a number", launcher_, rank_, name));
        const auto result = integer_in<int>(*value);
        if (!result || *result < min || *result > max)
            throw UsageError(fmt::format("{}{}: {}={}: expected {} to {}", launcher_, rank_, name, *value, min, max));
        return *result;
    }
    [[nodiscard]] int number_or(std::string_view name, int otherwise, int min, int max) const {
        return find(name) == nullptr ? otherwise : number(name, min, max);
    }

    /// Rank, ranks and the rank on this host, from the variables of these names; `local_ranks` may be absent.
    [[nodiscard]] Launch launch(std::string_view rank, std::string_view ranks, std::string_view local_rank,
                                std::string_view local_ranks) {
        Launch result;
        result.launcher = launcher_;
        result.rank = number(rank, 0, max_ranks);
        rank_ = fmt::format(" rank {}", result.rank);
        result.ranks = number(ranks, 1, max_ranks);
        if (result.rank >= result.ranks)
            throw UsageError(fmt::format("{}: {}={} {}={}: expected a rank from 0 to {}", launcher_, rank, result.rank,
                                         ranks, result.ranks, result.ranks - 1));
        result.local_rank = number(local_rank, 0, max_ranks);
        if (find(local_ranks) != nullptr) {
            const int here = number(local_ranks, 1, result.ranks);
            if (result.local_rank >= here)
                throw UsageError(fmt::format("{}{}: {}={} {}={}: expected a local rank from 0 to {}", launcher_, rank_,
                                             local_rank, result.local_rank, local_ranks, here, here - 1));
            result.one_host = here == result.ranks;
        }
        return result;
    }

private:
    const Environment& environment_;
    std::string launcher_, rank_;
};

bool is_launcher(std::string_view word) {
    return word == "auto" || word == "none" || word == "torchrun" || word == "mpi" || word == "slurm";
}

Launch torchrun(const Environment& environment) {
    Variables read(environment, "torchrun");
    Launch launch = read.launch("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
    // The port itself is used by torchrun's store. A restarted job counts as another job.
    launch.job = fmt::format("{}:{}:{}", read.text("TORCHELASTIC_RUN_ID"), read.number("MASTER_PORT", 1, 65535),
                             read.text("TORCHELASTIC_RESTART_COUNT"));
    launch.hosts = {read.text("MASTER_ADDR")};
    return launch;
}

Launch open_mpi(const Environment& environment) {
    Variables read(environment, "Open MPI");
    Launch launch = read.launch("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                "OMPI_COMM_WORLD_LOCAL_SIZE");
    launch.job = read.text(read.find("PMIX_NAMESPACE") != nullptr ? "PMIX_NAMESPACE" : "OMPI_MCA_ess_base_jobid");
    // No variable names rank 0's host. It is the first host of the allocation, or else the host of mpirun, whose
    // addresses are listed in "927662080.0;tcp://192.0.2.2,10.0.0.2:53739;tcp6://...".
    if (const std::string* const nodes = read.find("SLURM_JOB_NODELIST")) {
        launch.hosts = {first_host(*nodes)};
    } else {
        std::string uri = read.text("OMPI_MCA_orte_hnp_uri");
        if (const std::size_t begin = uri.find("tcp://"); begin != std::string::npos) {
            uri = uri.substr(begin + 6);
            uri = uri.substr(0, uri.find(':'));
            for (const std::string_view host : split(uri, ','))
                if (!host.empty()) launch.hosts.emplace_back(host);
        }
    }
    return launch;
}

Launch mpich(const Environment& environment) {
    Variables read(environment, "MPICH");
    Launch launch = read.launch("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
    launch.job = launch.one_host ? read.text("SAMESUM_HYDRA_PROXY") : "";
    if (const std::string* const nodes = read.find("SLURM_JOB_NODELIST")) launch.hosts = {first_host(*nodes)};
    return launch;
}

Launch slurm(const Environment& environment) {
    Variables read(environment, "srun");
    const bool of_step = read.find("SLURM_STEP_NUM_TASKS") != nullptr;
    Launch launch = read.launch("SLURM_PROCID", of_step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", "SLURM_LOCALID", "");
    launch.one_host = read.number_or("SLURM_STEP_NUM_NODES", 0, 1, max_ranks) == 1;
    launch.job = fmt::format("{}.{}", read.text("SLURM_JOB_ID"), read.text("SLURM_STEP_ID"));
    const std::string* nodes = read.find("SLURM_STEP_NODELIST");
    if (nodes == nullptr) nodes = read.find("SLURM_JOB_NODELIST");
    if (nodes != nullptr) launch.hosts = {first_host(*nodes)};
    return launch;
}

void set_rendezvous(Launch& launch, const Environment& environment) {
    const Variables read(environment, fmt::format("{} rank {}", launch.launcher, launch.rank));
    for (const char* const name : {"SAMESUM_RENDEZVOUS", "NCCL_COMM_ID"}) {
        const std::string* const where = read.find(name);
        if (where == nullptr) continue;
        // host:port, or [IPv6 address]:port
        const std::size_t colon = where->rfind(':');
        std::string host = where->substr(0, colon);
        if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
        const Environment port{{name, colon == std::string::npos ? "" : where->substr(colon + 1)}};
        if (colon == std::string::npos || host.empty() || port.at(name).empty())
            throw UsageError(fmt::format("{}={}: expected host:port", name, *where));
        launch.port = Variables(port, fmt::format("the port of {}", *where)).number(name, 1, 65535);
        launch.hosts = {host};
        launch.port_is_given = true;
        return;
    }
    if (launch.one_host) launch.hosts = {"127.0.0.1"};
    if (launch.hosts.empty() || launch.hosts.front().empty())
        throw UsageError(
            fmt::format("{} rank {}: the host of rank 0 is unknown: expected SAMESUM_RENDEZVOUS=HOST:PORT on all ranks",
                        launch.launcher, launch.rank));
    // Above the well-known ports, below the ephemeral ports.
    launch.port = 20000 + static_cast<int>(fnv1a(launch.job) % 11000);
}

}  // namespace

std::string first_host(std::string_view list) {
    std::string host;
    for (std::size_t i = 0; i < list.size() && list[i] != ','; ++i) {
        if (list[i] != '[') {
            host += list[i];
            continue;
        }
        const std::size_t end = list.find(']', i);
        if (end == std::string_view::npos) break;
        host += list.substr(i + 1, list.find_first_of(",-]", i + 1) - i - 1);
        i = end;
    }
    return host;
}

std::string launcher_flag(std::span<const std::string> arguments) {
    constexpr std::string_view flag = "--launcher";
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        if (arguments[i] == flag && i + 1 < arguments.size()) return arguments[i + 1];
        if (arguments[i].starts_with(flag) && arguments[i].size() > flag.size() && arguments[i][flag.size()] == '=')
            return arguments[i].substr(flag.size() + 1);
    }
    return "auto";
}

void check_launcher(std::string_view word) {
    if (!is_launcher(word))
        throw UsageError(fmt::format("--launcher '{}': expected auto, none, torchrun, mpi or slurm", word));
}

std::optional<Launch> this_launch(std::span<const std::string> arguments) {
    const std::string word = launcher_flag(arguments);
    return launch_of(this_environment(), is_launcher(word) ? word : "auto");
}

Environment this_environment() {
    Environment environment;
    for (char** variable = environ; *variable != nullptr; ++variable) {
        const std::string_view text(*variable);
        const std::size_t equals = text.find('=');
        if (equals != std::string_view::npos) environment.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
    if (environment.count("PMI_RANK") == 0) return environment;
    // "pid (name) state parent ...": follows the parents to the proxy, through any shells.
    for (int pid = ::getppid(); pid > 1;) {
        std::ifstream stat(fmt::format("/proc/{}/stat", pid));
        std::string line, state;
        std::getline(stat, line);
        const std::size_t open = line.find('('), close = line.rfind(')');
        if (open == std::string::npos || close == std::string::npos || line.size() < close + 5) break;
        if (line.substr(open + 1, close - open - 1) == "hydra_pmi_proxy") {
            environment["SAMESUM_HYDRA_PROXY"] = std::to_string(pid);
            break;
        }
        const std::string_view fields = std::string_view(line).substr(close + 4);
        const auto parent = integer_in<int>(fields.substr(0, fields.find(' ')));
        if (!parent) break;
        pid = *parent;
    }
    return environment;
}

std::optional<Launch> launch_of(const Environment& environment, std::string_view launcher) {
    const auto has = [&](std::string_view name) {
        const auto found = environment.find(name);
        return found != environment.end() && !found->second.empty();
    };
    const auto wanted = [&](std::string_view word, bool there) {
        return launcher == word || (launcher == "auto" && there);
    };
    // Step ids from here on are those of the allocation itself: its batch script and its interactive shell.
    constexpr std::string_view first_special_step = "4294967290";
    const bool step = has("SLURM_STEP_ID") && has("SLURM_PROCID") &&
                      !(environment.find("SLURM_STEP_ID")->second.size() >= first_special_step.size() &&
                        environment.find("SLURM_STEP_ID")->second >= first_special_step);
    std::optional<Launch> launch;
    check_launcher(launcher);
    if (launcher == "none") return std::nullopt;
    if (wanted("torchrun", has("TORCHELASTIC_RUN_ID") || (has("RANK") && has("WORLD_SIZE") && has("LOCAL_RANK") &&
                                                          has("MASTER_ADDR") && has("MASTER_PORT"))))
        launch = torchrun(environment);
    else if (wanted("mpi", has("OMPI_COMM_WORLD_RANK")) && (has("OMPI_COMM_WORLD_RANK") || !has("PMI_RANK")))
        launch = open_mpi(environment);
    // srun --mpi=pmi2 also sets PMI_RANK, without Hydra.
    else if (wanted("mpi", has("PMI_RANK") && (has("MPI_LOCALRANKID") || !step)))
        launch = mpich(environment);
    else if (wanted("slurm", step))
        launch = slurm(environment);
    if (!launch || launch->ranks == 1) return std::nullopt;
    set_rendezvous(*launch, environment);
    if (has("SAMESUM_JOIN_SECONDS")) {
        const std::string& text = environment.find("SAMESUM_JOIN_SECONDS")->second;
        const auto seconds = real_in(text);
        if (!seconds || *seconds <= 0)
            throw UsageError(fmt::format("SAMESUM_JOIN_SECONDS={}: expected seconds, more than 0", text));
        launch->timeout_s = *seconds;
    }
    return launch;
}

}  // namespace samesum
