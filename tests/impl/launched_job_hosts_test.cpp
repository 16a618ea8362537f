// Jobs of real launchers (mpirun, torchrun, srun) where they are installed, and on two "hosts": network namespaces.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE impl_launched_job_hosts
#define BOOST_TEST_NO_MAIN
#define BOOST_TEST_ALTERNATIVE_INIT_API
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "impl/ranks/launched_job.hpp"
#include "impl/ranks/placement.hpp"
#include "impl/ranks/rank_group.hpp"
#include "model/support/program.hpp"
#include "model/support/progress.hpp"
#include "model/support/temporary_folder.hpp"
#include "tests/support/toy_job.hpp"

using namespace samesum;
using namespace samesum::gpu;
using namespace samesum::gpu::testing;

namespace {

/// A real launcher: how to start N processes of a shell line with it.
struct RealLauncher {
    std::string name, there, start;
};

const std::vector<RealLauncher> real_launchers{
    {"Open MPI", "mpirun.openmpi --version",
     "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 exec mpirun.openmpi --oversubscribe -np "},
    {"MPICH", "mpiexec.hydra --version", "exec mpiexec.hydra -n "},
    {"torchrun", "torchrun --help", "exec torchrun --no-python --standalone --nproc-per-node "},
    {"srun", "timeout 10 srun --ntasks 1 true", "exec srun --overcommit --quit-on-interrupt --ntasks "},
};

/// Real mpiruns reach the other host through a replacement for ssh.
void expect_mpirun_across(const std::string& a, const std::string& b, const std::string& in_a,
                          const std::string& in_b) {
    const Scratch scratch;
    const std::string agent = scratch.file("agent");
    fs::create_directory(scratch.file("tmp"));
    std::ofstream(agent) << "#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done; shift\nexec " << in_b
                         << "\"hostname other; TMPDIR=" << scratch.file("tmp") << " $*\"\n";
    fs::permissions(agent, fs::perms::owner_all);
    const std::string open_mpi = fmt::format(
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 exec {} mpirun.openmpi --oversubscribe "
        "--mca plm_rsh_agent {} --mca oob_tcp_if_include v{},v{} --host 10.77.0.1:2,10.77.0.2:2 ",
        in_a, agent, a, b);
    const std::string mpich = fmt::format(
        "exec {} mpiexec.hydra -launcher ssh -launcher-exec {} -iface v{} -hosts 10.77.0.1,10.77.0.2 -n 4 -ppn 2 "
        "-genv SAMESUM_RENDEZVOUS 10.77.0.1:{} ",
        in_a, agent, a, free_port());
    for (const auto& [tool, line] : {std::pair{"mpirun.openmpi", open_mpi}, std::pair{"mpiexec.hydra", mpich}}) {
        if (!runs(std::string(tool) + " --version")) {
            skip(std::string(tool) + " is not installed", true);
            continue;
        }
        BOOST_TEST_CONTEXT(tool) {
            Job job;
            job.start({"bash", "-c", line + own_path() + " --toys bulk"}, {});
            BOOST_TEST(job.exit_of(0) == 0);
            BOOST_TEST(job.said(0) == "bulk came back\n");
        }
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(real_launchers_start_ranks_and_the_answer_comes_once) {
    for (const RealLauncher& launcher : real_launchers) {
        if (!runs(launcher.there)) {
            // Not required in CI: PyTorch is large, and Slurm needs daemons.
            skip(launcher.name + " is not here", launcher.name != "torchrun" && launcher.name != "srun");
            continue;
        }
        BOOST_TEST_CONTEXT(launcher.name) {
            const struct {
                std::string words, said;
                int exit;
            } cases[] = {
                {own_path() + " --toys who", "0/3! 1/3! 2/3!\n", 0},
                {own_path() + " --toys bulk", "bulk came back\n", 0},
                // The rank's exit code; a launcher's own exit code differs.
                {own_path() + " --toys refuted", "", 1},
                {std::string(SAMESUM_BINARY_DIR) + "/samesum-impl run --rows 3 --ranks 17",
                 "samesum run: --ranks 17: expected at most 3, which " + launcher.name + " started\n", 2},
                {std::string(SAMESUM_BINARY_DIR) + "/samesum-fuzz fuzz --backend model --cases 20 --property "
                                                   "'addition_commutes' --worlds none --launcher mpj",
                 "samesum fuzz: --launcher 'mpj': expected auto, none, torchrun, mpi or slurm\n", 2},
            };
            for (const auto& each : cases) {
                if (each.words.find("samesum-fuzz") != std::string::npos &&
                    !fs::exists(std::string(SAMESUM_BINARY_DIR) + "/samesum-fuzz"))
                    continue;
                Job job;
                // The ranks' output goes to a file, apart from the launcher's own.
                std::ofstream(job.scratch().file("rank.sh"))
                    << each.words << " >> " << job.scratch().file("said") << " 2>&1\necho $? >> "
                    << job.scratch().file("exits") << "\n";
                job.start({"bash", "-c", launcher.start + "3 bash " + job.scratch().file("rank.sh")}, {});
                BOOST_TEST(job.exit_of(0, 60) == 0);
                BOOST_TEST(job.scratch().text("said") == each.said);
                BOOST_TEST(job.scratch().text("exits") == fmt::format("{0}\n{0}\n{0}\n", each.exit));
                BOOST_TEST(job.nothing_left());
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(ctrl_c_ends_all) {
    for (const RealLauncher& launcher : real_launchers) {
        if (!runs(launcher.there)) continue;  // said above
        BOOST_TEST_CONTEXT(launcher.name) {
            Job job;
            const std::size_t it = job.start({"bash", "-c", launcher.start + "3 " + own_path() + " --toys hang"}, {});
            BOOST_TEST_REQUIRE(job.says(it, "hanging", 30));
            ::kill(job.pid(it), SIGINT);
            BOOST_TEST(job.exit_of(it, 20) != -2);
            BOOST_TEST(job.nothing_left());
        }
    }
}

BOOST_AUTO_TEST_CASE(a_real_command_answers_once_and_all_its_processes_end_alike) {
    const std::string program = std::string(SAMESUM_BINARY_DIR) + "/samesum-impl";
    for (const auto& [name, launcher] : launchers) {
        BOOST_TEST_CONTEXT(name) {
            Job job;
            start_ranks(job, 4, {program, "run", "--ranks-per-node", "1"}, {}, launcher);
            const int code = job.exit_of(0, 120);
            expect_end(job, 4, code);
            const std::string said = job.said(0);
            if (code == 0) {
                BOOST_TEST(said.find("# 4 ranks, 1 per node, by " + std::string(name) + " on 1 host") !=
                           std::string::npos);
            } else {
                // No device here, or no CUDA in this build.
                BOOST_TEST(code == 3);
                BOOST_TEST(std::count(said.begin(), said.end(), '\n') == 1);
                BOOST_TEST(said.starts_with("samesum run: "));
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(two_hosts) {
    // Names of network interfaces have at most 15 letters.
    const std::string id = std::to_string(::getpid() % 1'000'000), a = "ssa" + id, b = "ssb" + id;
    const auto clean = [&] { (void)runs(fmt::format("ip netns del {}; ip netns del {}", a, b)); };
    if (!runs("ip -V")) return skip("ip is not installed", true);
    // Like containers, with their own process ids.
    const std::string in_a = fmt::format("ip netns exec {} ", a);
    const std::string in_b =
        fmt::format("ip netns exec {} unshare --pid --fork --kill-child --mount-proc --uts bash -c ", b);
    const bool made = runs(fmt::format(
        "set -e; ip netns add {0}; ip netns add {1}; ip link add v{0} type veth peer name v{1};"
        "ip link set v{0} netns {0}; ip link set v{1} netns {1};"
        "ip -n {0} address add 10.77.0.1/24 dev v{0}; ip -n {1} address add 10.77.0.2/24 dev v{1};"
        "ip -n {0} link set lo up; ip -n {1} link set lo up; ip -n {0} link set v{0} up; ip -n {1} link set v{1} up;"
        "{2} true; {3} true",
        a, b, in_a, in_b));
    if (!made) {
        clean();
        return skip("no network namespaces may be made here");
    }
    const auto start = [&](Job& job, const std::string& script) {
        const int number = fresh_number();
        for (int rank = 0; rank < 4; ++rank) {
            Variables variables = launchers.back().second(rank, 4, number);
            variables["SLURM_LOCALID"] = std::to_string(rank % 2);
            variables["SLURM_STEP_NODELIST"] = "10.77.0.1";
            const std::string words = fmt::format("{} --toys {}", own_path(), script);
            job.start({"bash", "-c",
                       rank < 2 ? fmt::format("exec {} {}", in_a, words)
                                : fmt::format("exec {} 'hostname other; exec {}'", in_b, words)},
                      variables);
        }
    };
    const std::map<std::string, std::string> scripts{{"who", "0/4! 1/4! 2/4! 3/4!\n"}, {"bulk", "bulk came back\n"}};
    for (const auto& [script, said] : scripts) {
        BOOST_TEST_CONTEXT(script) {
            Job job;
            start(job, script);
            for (std::size_t rank = 0; rank < 4; ++rank) BOOST_TEST(job.exit_of(rank) == 0);
            BOOST_TEST(job.said(0) == said);
        }
    }
    expect_mpirun_across(a, b, in_a, in_b);
    // The other host's network is cut while one of its ranks works: no connection is closed.
    Job job;
    start(job, "hang");
    BOOST_TEST(job.says(0, "hanging"));
    BOOST_TEST(runs(fmt::format("ip -n {0} link set v{0} down", b)));
    const double began = monotonic_seconds();
    for (std::size_t rank = 0; rank < 4; ++rank) BOOST_TEST(job.exit_of(rank, 60) == 3);
    BOOST_TEST(monotonic_seconds() - began < 45);
    BOOST_TEST(job.says(0, "rank 3 died in an unknown call: its process is gone, or its host"), job.said(0));
    clean();
}

int main(int argc, char** argv) {
    if (argc == 3 && std::string_view(argv[1]) == "--toys") return toys(argv[2]);
    return boost::unit_test::unit_test_main(&init_unit_test, argc, argv);
}
