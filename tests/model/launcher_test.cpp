// The job and rank of a process: the variables of each launcher, nested launchers, and impossible values.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE launch
#include "model/support/launcher.hpp"

#include <boost/test/unit_test.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/support/error.hpp"

namespace samesum {
namespace {

Environment with(Environment base, const Environment& changes) {
    for (const auto& [name, value] : changes) base[name] = value;
    return base;
}
Environment without(Environment base, const std::string& name) {
    base.erase(name);
    return base;
}

/// The variables of each launcher, for rank 2 of 4, two per host.
const Environment torchrun{{"RANK", "2"},
                           {"WORLD_SIZE", "4"},
                           {"LOCAL_RANK", "0"},
                           {"LOCAL_WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "node07"},
                           {"MASTER_PORT", "29500"},
                           {"TORCHELASTIC_RUN_ID", "train"},
                           {"TORCHELASTIC_RESTART_COUNT", "0"}};
const Environment open_mpi{
    {"OMPI_COMM_WORLD_RANK", "2"},       {"OMPI_COMM_WORLD_SIZE", "4"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"PMIX_NAMESPACE", "927662081"},     {"OMPI_MCA_orte_hnp_uri", "927662080.0;tcp://192.0.2.2,10.0.0.2:53739"}};
const Environment mpich{{"PMI_RANK", "2"},
                        {"PMI_SIZE", "4"},
                        {"MPI_LOCALRANKID", "0"},
                        {"MPI_LOCALNRANKS", "2"},
                        {"SAMESUM_RENDEZVOUS", "node07:4000"}};
const Environment srun{{"SLURM_PROCID", "2"},
                       {"SLURM_NTASKS", "4"},
                       {"SLURM_STEP_NUM_TASKS", "4"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_JOB_ID", "77"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NUM_NODES", "2"},
                       {"SLURM_STEP_NODELIST", "node[07-08]"},
                       {"SLURM_JOB_NODELIST", "node[01-20]"}};

struct Row {
    const char* what;
    Environment environment;
    std::string launcher;  ///< expected; "": no launch
    std::vector<std::string> hosts{};
    int rank = 2;
    const char* flag = "auto";
};

const std::vector<Row> rows{
    {"nobody", {}, ""},
    {"torchrun", torchrun, "torchrun", {"node07"}},
    {"torchrun on one host",
     with(torchrun, {{"LOCAL_WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}}),
     "torchrun",
     {"127.0.0.1"}},
    {"as torchrun does, by hand",
     without(without(torchrun, "TORCHELASTIC_RUN_ID"), "LOCAL_WORLD_SIZE"),
     "torchrun",
     {"node07"}},
    {"a cluster's variables of a pod that starts its own ranks",
     without(without(torchrun, "TORCHELASTIC_RUN_ID"), "LOCAL_RANK"), ""},
    {"Open MPI", open_mpi, "Open MPI", {"192.0.2.2", "10.0.0.2"}},
    {"Open MPI on one host", with(open_mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}), "Open MPI", {"127.0.0.1"}},
    {"Open MPI in an allocation", with(open_mpi, {{"SLURM_JOB_NODELIST", "gpu[3,5]"}}), "Open MPI", {"gpu3"}},
    {"MPICH", mpich, "MPICH", {"node07"}},
    {"srun", srun, "srun", {"node07"}},
    {"srun on one host", with(srun, {{"SLURM_STEP_NUM_NODES", "1"}}), "srun", {"127.0.0.1"}},
    {"older srun", without(without(srun, "SLURM_STEP_NUM_TASKS"), "SLURM_STEP_NODELIST"), "srun", {"node01"}},
    {"a shell in an allocation", without(srun, "SLURM_STEP_ID"), ""},
    {"a batch script", with(srun, {{"SLURM_STEP_ID", "4294967291"}}), ""},
    // Nested launchers: the inner one applies.
    {"torchrun by srun", with(with(srun, torchrun), {{"SLURM_PROCID", "1"}}), "torchrun", {"node07"}},
    {"Open MPI's daemons by srun", with(with(srun, open_mpi), {{"SLURM_PROCID", "1"}}), "Open MPI", {"node01"}},
    {"MPICH's proxies by srun", with(with(srun, mpich), {{"SLURM_PROCID", "1"}}), "MPICH", {"node07"}},
    {"srun --mpi=pmi2", with(srun, {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}}), "srun", {"node07"}},
    {"torchrun by mpirun", with(with(open_mpi, torchrun), {{"OMPI_COMM_WORLD_RANK", "1"}}), "torchrun", {"node07"}},
    // The rendezvous.
    {"said by the user",
     with(torchrun, {{"SAMESUM_RENDEZVOUS", "10.1.1.1:4000"}, {"NCCL_COMM_ID", "10.2.2.2:1"}}),
     "torchrun",
     {"10.1.1.1"}},
    {"said for NCCL", with(srun, {{"NCCL_COMM_ID", "10.2.2.2:5000"}}), "srun", {"10.2.2.2"}},
    {"by IPv6", with(srun, {{"SAMESUM_RENDEZVOUS", "[fd00::2]:4000"}}), "srun", {"fd00::2"}},
    // A job of one rank.
    {"one rank", with(torchrun, {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_WORLD_SIZE", "1"}}), ""},
    // --launcher.
    {"none", torchrun, "", {}, 2, "none"},
    {"torchrun, not srun", with(srun, torchrun), "torchrun", {"node07"}, 2, "torchrun"},
    {"srun, not torchrun", with(with(srun, torchrun), {{"SLURM_PROCID", "1"}}), "srun", {"node07"}, 1, "slurm"},
    {"mpi is Open MPI", with(torchrun, open_mpi), "Open MPI", {"192.0.2.2", "10.0.0.2"}, 2, "mpi"},
    {"mpi is MPICH", with(srun, mpich), "MPICH", {"node07"}, 2, "mpi"},
};

struct Wrong {
    Environment environment;
    std::string complaint;
    const char* flag = "auto";
};

const std::vector<Wrong> wrong{
    {with(torchrun, {{"RANK", "5"}}), "torchrun: RANK=5 WORLD_SIZE=4: expected a rank from 0 to 3"},
    {with(torchrun, {{"RANK", "-1"}}), "torchrun: RANK=-1: expected 0 to 100000"},
    {with(torchrun, {{"RANK", "two"}}), "torchrun: RANK=two: expected 0 to"},
    {with(torchrun, {{"WORLD_SIZE", "4x"}}), "torchrun rank 2: WORLD_SIZE=4x: expected 1 to"},
    {with(torchrun, {{"WORLD_SIZE", "99999999999"}}), "torchrun rank 2: WORLD_SIZE=99999999999: expected 1 to"},
    {with(torchrun, {{"LOCAL_RANK", "2"}}), "torchrun rank 2: LOCAL_RANK=2 LOCAL_WORLD_SIZE=2: expected a local rank"},
    {with(torchrun, {{"LOCAL_WORLD_SIZE", "8"}}), "torchrun rank 2: LOCAL_WORLD_SIZE=8: expected 1 to 4"},
    {with(torchrun, {{"MASTER_PORT", "0"}}), "torchrun rank 2: MASTER_PORT=0: expected 1 to 65535"},
    {without(torchrun, "RANK"), "torchrun: RANK is not set"},
    {without(torchrun, "WORLD_SIZE"), "torchrun rank 2: WORLD_SIZE is not set"},
    {without(torchrun, "MASTER_ADDR"), "torchrun rank 2: the host of rank 0 is unknown"},
    {without(open_mpi, "OMPI_COMM_WORLD_SIZE"), "Open MPI rank 2: OMPI_COMM_WORLD_SIZE is not set"},
    {without(open_mpi, "OMPI_MCA_orte_hnp_uri"),
     "Open MPI rank 2: the host of rank 0 is unknown: "
     "expected SAMESUM_RENDEZVOUS=HOST:PORT"},
    {without(mpich, "SAMESUM_RENDEZVOUS"), "MPICH rank 2: the host of rank 0 is unknown"},
    {with(mpich, {{"PMI_RANK", "4"}}), "MPICH: PMI_RANK=4 PMI_SIZE=4: expected a rank from 0 to 3"},
    {with(srun, {{"SLURM_PROCID", "9"}}), "srun: SLURM_PROCID=9 SLURM_STEP_NUM_TASKS=4: expected a rank from 0 to 3"},
    {with(torchrun, {{"SAMESUM_RENDEZVOUS", "node07"}}), "SAMESUM_RENDEZVOUS=node07: expected host:port"},
    {with(torchrun, {{"SAMESUM_RENDEZVOUS", ":4000"}}), "SAMESUM_RENDEZVOUS=:4000: expected host:port"},
    {with(torchrun, {{"SAMESUM_RENDEZVOUS", "a:70000"}}), "SAMESUM_RENDEZVOUS=70000: expected 1 to 65535"},
    {with(torchrun, {{"NCCL_COMM_ID", "a:b"}}), "NCCL_COMM_ID=b: expected 1 to 65535"},
    {with(torchrun, {{"SAMESUM_JOIN_SECONDS", "-3"}}), "SAMESUM_JOIN_SECONDS=-3: expected seconds, more than 0"},
    {with(torchrun, {{"SAMESUM_JOIN_SECONDS", "soon"}}), "SAMESUM_JOIN_SECONDS=soon"},
    {{}, "torchrun: RANK is not set", "torchrun"},
    {{}, "Open MPI: OMPI_COMM_WORLD_RANK is not set", "mpi"},
    {{}, "srun: SLURM_PROCID is not set", "slurm"},
    {torchrun, "--launcher 'pbs': expected auto, none, torchrun, mpi or slurm", "pbs"},
};

}  // namespace

BOOST_AUTO_TEST_CASE(every_launcher_is_recognised_by_its_variables) {
    for (const Row& row : rows) {
        BOOST_TEST_CONTEXT(row.what) {
            const auto launch = launch_of(row.environment, row.flag);
            BOOST_TEST_REQUIRE(launch.has_value() == !row.launcher.empty());
            if (!launch) continue;
            BOOST_TEST(launch->launcher == row.launcher);
            BOOST_TEST(launch->rank == row.rank);
            BOOST_TEST(launch->ranks == 4);
            BOOST_TEST(launch->hosts == row.hosts, boost::test_tools::per_element());
            BOOST_TEST(launch->port > 0);
        }
    }
}

BOOST_AUTO_TEST_CASE(impossible_values_are_reported_with_rank_and_variable) {
    for (const Wrong& row : wrong)
        BOOST_CHECK_EXCEPTION((void)launch_of(row.environment, row.flag), UsageError, [&](const UsageError& error) {
            BOOST_TEST_MESSAGE(error.what());
            return std::string(error.what()).find(row.complaint) != std::string::npos;
        });
}

BOOST_AUTO_TEST_CASE(ranks_of_one_job_share_a_rendezvous_and_two_jobs_do_not) {
    for (const Environment& base : {torchrun, open_mpi, srun}) {
        const auto own = launch_of(base);
        Environment other_rank = base, other_job = base;
        for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
            if (other_rank.count(name) > 0) other_rank[name] = "3";
        for (const char* name : {"MASTER_PORT", "PMIX_NAMESPACE", "SLURM_JOB_ID"})
            if (other_job.count(name) > 0) other_job[name] = "4711";
        BOOST_TEST(launch_of(other_rank)->job == own->job);
        BOOST_TEST(launch_of(other_rank)->port == own->port);
        BOOST_TEST(launch_of(other_job)->job != own->job);
        BOOST_TEST(launch_of(other_job)->port != own->port);
    }
    // A job restarted by torchrun must not meet remaining ranks of the previous attempt.
    BOOST_TEST(launch_of(with(torchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}}))->job != launch_of(torchrun)->job);
    // MPICH's variables do not identify the job; the process that starts this host's ranks does.
    const Environment here = with(without(mpich, "SAMESUM_RENDEZVOUS"), {{"MPI_LOCALNRANKS", "4"}});
    BOOST_TEST(launch_of(with(here, {{"SAMESUM_HYDRA_PROXY", "1"}}))->port !=
               launch_of(with(here, {{"SAMESUM_HYDRA_PROXY", "2"}}))->port);
    BOOST_TEST(launch_of(mpich)->port == 4000);
    BOOST_TEST(launch_of(mpich)->port_is_given);
}

BOOST_AUTO_TEST_CASE(the_first_host_of_a_list) {
    const std::vector<std::pair<std::string, std::string>> lists{
        {"node7", "node7"},
        {"node7,node8", "node7"},
        {"node[07-09,12],gpu3", "node07"},
        {"node[3,5]", "node3"},
        {"rack[1-2]n[04-08].cluster", "rack1n04.cluster"},
        {"node[1", "node"},
        {"", ""},
    };
    for (const auto& [list, first] : lists) BOOST_TEST(first_host(list) == first);
}

BOOST_AUTO_TEST_CASE(the_flag_is_found_among_the_arguments) {
    const auto found = [](std::vector<std::string> words) { return launcher_flag(words); };
    BOOST_TEST(found({"--ranks", "4"}) == "auto");
    BOOST_TEST(found({"--launcher", "none", "--ranks", "4"}) == "none");
    BOOST_TEST(found({"--ranks", "4", "--launcher=mpi"}) == "mpi");
    BOOST_TEST(found({"--launchers", "mpi"}) == "auto");
    BOOST_TEST(found({"--launcher"}) == "auto");
}

}  // namespace samesum
