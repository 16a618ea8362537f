// The judgement is the model's; only what a setting is for is written down here. Which names NCCL reads was taken from
// the sources of 2.27.3 to 2.30.7 (NCCL_PARAM and ncclGetEnv).
// SPDX-License-Identifier: Apache-2.0
#include "model/analysis/lint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "model/commands/commands.hpp"
#include "model/input/environment_file.hpp"
#include "model/nccl/schedule.hpp"
#include "model/nccl/tuning.hpp"
#include "model/support/files.hpp"
#include "model/support/options.hpp"

namespace samesum {
namespace {

using Effect = LintRow::Effect;
using Verdict = CollectiveAnswer::Verdict;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// --- What the model says -------------------------------------------------------------------------------------------

/// A possible machine under the settings. What an environment does not say is tried both ways.
struct World {
    Communicator comm;
    bool equal_rings = true;
};

/// Speeds only say which combinations exist; every one of them is looked at, so their size does not matter.
Machine any_machine(int ranks_per_node) {
    Machine machine;
    machine.ll128 = true;
    machine.nvls = ranks_per_node > 1;
    machine.ring = {8, 20, 20, 0, true, true};
    machine.tree = {8, 20, 20, 0, true, true};
    machine.nvls_graph = {8, 20, 20, 0, true, true};
    return machine;
}

/// Nodes whose channels visit their GPUs in different orders, as without a switch or with several rails: channel c
/// begins at GPU c and goes on backwards; every other channel exchanges the last two as well.
Topology unequal(int nodes, int per_node) {
    std::vector<std::vector<NodeLists>> lists(at(nodes));
    const int searched = std::min(4, std::max(2, per_node));
    for (int node = 0; node < nodes; ++node)
        for (int c = 0; c < searched; ++c) {
            NodeLists own;
            for (int i = 0; i < per_node; ++i)
                own.ring.push_back(node * per_node + (c + (c % 2 == 0 ? i : per_node - i)) % per_node);
            if (c >= 2 && per_node > 3) std::swap(own.ring[at(per_node - 1)], own.ring[at(per_node - 2)]);
            own.tree = own.ring;
            lists[at(node)].push_back(std::move(own));
        }
    return Topology::from_node_lists(lists);
}

std::vector<World> worlds(const LintScope& scope, const Settings& settings) {
    const int nodes = scope.ranks / scope.ranks_per_node;
    std::vector<World> result;
    const auto add = [&](Topology topology, bool equal) {
        Communicator comm{topology.with_channels(settings.min_channels, settings.max_channels), scope.version,
                          settings};
        comm.machine = any_machine(scope.ranks_per_node);
        result.push_back({std::move(comm), equal});
    };
    if (scope.ranks_per_node == 1 || scope.ranks == 1) {
        add(Topology::one_rank_per_node(scope.ranks, 2), true);  // rings are always equal then
        return result;
    }
    if (nodes == 1) {
        add(Topology::one_node(scope.ranks, 24), true);
    } else {
        std::vector<std::vector<NodeLists>> lists(at(nodes));
        for (int rank = 0; rank < scope.ranks; ++rank) {
            auto& own = lists[at(rank / scope.ranks_per_node)];
            if (own.empty()) own.resize(4);
            for (NodeLists& list : own) {
                list.ring.push_back(rank);
                list.tree.push_back(rank);
            }
        }
        add(Topology::from_node_lists(lists), true);
    }
    if (scope.ranks > 2) add(unequal(nodes, scope.ranks_per_node), false);
    return result;
}

struct Combination {
    Algorithm algorithm;
    Protocol protocol;
};

Call some_call(Collective collective, std::uint64_t count, int root = 0) {
    return {.collective = collective, .count = count, .format = Format::bfloat16, .root = root};
}

/// What the settings leave to NCCL's choice.
std::vector<Combination> open_combinations(const Communicator& comm, Collective collective) {
    std::vector<Combination> open;
    for (const Algorithm algorithm : all_algorithms)
        for (const Protocol protocol : all_protocols)
            if (modelled_time(comm, some_call(collective, 1024), algorithm, protocol, 2048))
                open.push_back({algorithm, protocol});
    return open;
}

std::string listed(const std::vector<Combination>& open) {
    std::string text;
    std::set<Algorithm> seen;
    for (const Combination& each : open)
        if (seen.insert(each.algorithm).second)
            text += fmt::format("{}{}", text.empty() ? "" : ", ", name(each.algorithm));
    return text;
}

std::size_t algorithms_in(const std::vector<Combination>& open) {
    std::set<Algorithm> seen;
    for (const Combination& each : open) seen.insert(each.algorithm);
    return seen.size();
}

/// One element's order in one call.
struct Sample {
    Combination how;
    std::uint64_t count, element;
    Order order;
};

std::string shown(const Sample& sample, int ranks) {
    const std::string order = ranks <= 8 ? sample.order.as_tree().str() : sample.order.label();
    return fmt::format("{} in a call of {} ({}, {})", order, sample.count, name(sample.how.algorithm),
                       name(sample.how.protocol));
}

const std::vector<std::uint64_t>& counts() {
    static const std::vector<std::uint64_t> result = [] {
        std::vector<std::uint64_t> list;
        for (std::uint64_t power = 1; power <= (std::uint64_t{1} << 24); power *= 4) {
            list.push_back(power);
            list.push_back(power * 2 + power / 2);
        }
        return list;
    }();
    return result;
}

/// Orders that were once seen equal are not unfolded again.
bool differ(const Order& a, const Order& b) { return !(a == b) && !same_order(a, b); }

/// Every plan that the settings allow, smallest calls first; `visit` returns false to stop.
template <class Visit>
void for_each_plan(const World& world, const std::vector<Combination>& open, Collective collective, int root,
                   Visit&& visit) {
    for (const std::uint64_t count : counts())
        for (const Combination& how : open) {
            const Plan plan = plan_call(world.comm, some_call(collective, count, root), {how.algorithm, how.protocol});
            if (!visit(how, count, plan.schedule)) return;
        }
}

/// A difference in position within one call, or none.
std::optional<std::string> position_difference(const World& world, const std::vector<Combination>& open,
                                               Collective collective) {
    std::optional<std::string> found;
    for_each_plan(
        world, open, collective, 0, [&](const Combination& how, std::uint64_t count, const Schedule& schedule) {
            std::optional<Sample> first;
            std::size_t looked = 0;
            schedule.visit(0, count, [&](const Segment& segment) {
                Sample sample{how, count, segment.begin, segment.order};
                if (!first)
                    first = sample;
                else if (differ(first->order, sample.order))
                    found =
                        fmt::format("element {} {}; element {} {}", first->element, shown(*first, world.comm.ranks()),
                                    sample.element, shown(sample, world.comm.ranks()));
                return !found && ++looked < 4096;
            });
            return !found;
        });
    return found;
}

/// The same element of calls of different counts.
std::optional<std::string> count_difference(const World& world, const std::vector<Combination>& open,
                                            Collective collective) {
    // One combination by itself makes the plainer example; then whatever NCCL may change to as calls grow.
    if (open.size() > 1)
        for (const Combination& each : open)
            if (auto found = count_difference(world, {each}, collective)) return found;
    std::map<std::uint64_t, Sample> first;  // by element
    std::optional<std::string> found;
    for_each_plan(
        world, open, collective, 0, [&](const Combination& how, std::uint64_t count, const Schedule& schedule) {
            for (std::uint64_t element = 0; element < count && !found; element = element == 0 ? 1 : element * 4) {
                Sample sample{how, count, element, schedule.segment_at(element).order};
                const auto [place, fresh] = first.emplace(element, sample);
                if (!fresh && differ(place->second.order, sample.order))
                    found = fmt::format("element {}: {}; {}", element, shown(place->second, world.comm.ranks()),
                                        shown(sample, world.comm.ranks()));
            }
            return !found;
        });
    return found;
}

/// The same call for another root, or another destination's block.
std::optional<std::string> owner_difference(const World& world, const std::vector<Combination>& open,
                                            Collective collective) {
    if (collective == Collective::all_reduce || world.comm.ranks() < 2) return std::nullopt;
    for (const Combination& how : open) {
        const std::uint64_t count = 64;
        const auto order_for = [&](int owner) {
            const Plan plan =
                plan_call(world.comm, some_call(collective, count, collective == Collective::reduce ? owner : 0),
                          {how.algorithm, how.protocol});
            const std::uint64_t element =
                collective == Collective::reduce ? 0 : count * static_cast<std::uint64_t>(owner);
            return Sample{how, count, element, plan.schedule.segment_at(element).order};
        };
        const Sample zero = order_for(0);
        for (int owner = 1; owner < world.comm.ranks(); ++owner) {
            const Sample other = order_for(owner);
            if (differ(zero.order, other.order))
                return fmt::format("owner 0: {}; owner {}: {}", shown(zero, world.comm.ranks()), owner,
                                   shown(other, world.comm.ranks()));
        }
    }
    return std::nullopt;
}

CollectiveAnswer judge(Collective collective, Invariance invariance, const std::vector<World>& all, bool collnet) {
    CollectiveAnswer answer{collective, invariance, Verdict::yes, ""};
    if (all.front().comm.ranks() == 1) {
        answer.why = "one rank: nothing is added";
        return answer;
    }
    bool equal_holds = true, unequal_holds = true;
    std::string equal_why, unequal_why;
    for (const World& world : all) {
        const auto open = open_combinations(world.comm, collective);
        if (open.empty())
            return {collective, invariance, Verdict::fails,
                    "no algorithm is left: NCCL fails the call with 'no algorithm/protocol available'"};
        const bool no_owner = invariance == Invariance::owner && collective == Collective::all_reduce;
        if (invariance == Invariance::rank_equal || no_owner) continue;
        for (const Combination& each : open)
            if (each.algorithm == Algorithm::nvls || each.algorithm == Algorithm::nvls_tree)
                return {collective, invariance, Verdict::unknown,
                        fmt::format("{} may be chosen: the switch adds, in an order that nothing fixes (its results "
                                    "differed from call to call on H20, NVIDIA/nccl issue 1497)",
                                    name(each.algorithm))};
        if (collnet && collective != Collective::reduce)
            return {collective, invariance, Verdict::unknown,
                    "CollNet may be chosen: the network adds, outside of NCCL"};
        if (invariance == Invariance::run_to_run) continue;
        std::optional<std::string> difference;
        const bool every = invariance == Invariance::routing;
        if (every || invariance == Invariance::owner) difference = owner_difference(world, open, collective);
        if (!difference && (every || invariance == Invariance::position))
            difference = position_difference(world, open, collective);
        if (!difference && (every || invariance == Invariance::count))
            difference = count_difference(world, open, collective);
        if (difference) {
            (world.equal_rings ? equal_holds : unequal_holds) = false;
            (world.equal_rings ? equal_why : unequal_why) = *difference;
        }
    }
    if (!equal_holds) {
        answer.verdict = Verdict::no;
        answer.why = equal_why;
    } else if (!unequal_holds) {
        answer.verdict = Verdict::depends;
        answer.why = "holds if all channels have one ring and tree ('order show --log' decides); else " + unequal_why;
    } else {
        switch (invariance) {
            case Invariance::run_to_run:
                answer.why = "every algorithm that is left fixes its order by the call alone";
                break;
            case Invariance::rank_equal:
                answer.why = collective == Collective::all_reduce
                                 ? "each element is made once and then copied to all ranks"
                                 : "each element ends at one rank";
                break;
            case Invariance::owner:
                answer.why = collective == Collective::all_reduce ? "no rank owns a result (see position)"
                                                                  : "one order for every owner";
                break;
            default:
                answer.why = fmt::format(
                    "one order in every call of 1 to 2^24 elements that was planned, by every "
                    "algorithm and protocol left ({})",
                    listed(open_combinations(all.front().comm, collective)));
        }
    }
    return answer;
}

// --- What settings are for -----------------------------------------------------------------------------------------

std::string text_of(const Environment& environment, const char* key) {
    const auto place = environment.find(key);
    return place == environment.end() ? std::string() : place->second;
}

/// Names that NCCL reads and that act on the order only by changing what the topology search finds.
constexpr std::string_view through_search =
    " NCCL_TOPO_FILE NCCL_CROSS_NIC NCCL_IB_HCA NCCL_NET_GDR_LEVEL NCCL_NET_GDR_READ NCCL_P2P_DISABLE NCCL_P2P_LEVEL "
    "NCCL_SHM_DISABLE NCCL_PXN_DISABLE NCCL_PXN_C2C NCCL_NVB_DISABLE NCCL_NETDEVS_POLICY NCCL_NET_MERGE_LEVEL "
    "NCCL_NET_MERGE_POLICY NCCL_NET_FORCE_MERGE NCCL_IB_MERGE_NICS NCCL_IB_MERGE_VFS NCCL_NET NCCL_NET_PLUGIN "
    "NCCL_IB_DISABLE "
    "NCCL_SOCKET_IFNAME NCCL_MNNVL_ENABLE NCCL_MNNVL_UUID NCCL_MNNVL_CLIQUE_ID NCCL_MNNVL_CROSS_CLIQUE "
    "NCCL_MNNVL_RAIL_PER_HOST NCCL_MNNVL_SCATTER_NETS_ENABLE NCCL_NET_DISABLE_INTRA NCCL_UNPACK_DOUBLE_NCHANNELS "
    "NCCL_IB_DATA_DIRECT NCCL_IGNORE_DISABLED_P2P NCCL_P2P_DIRECT_DISABLE NCCL_NET_GDR_C2C NCCL_LL128_C2C "
    "NCCL_TOPO_SPLIT_MLOPART NCCL_NET_GDR_MLOPART NCCL_IB_DEVICE_PCI_ORDER ";

/// Names that NCCL reads and that move bytes, print or wait, but add nothing differently.
constexpr std::string_view no_order =
    " NCCL_ALLGATHERV_ENABLE NCCL_ALLOC_P2P_NET_LL_BUFFERS NCCL_CGA_CLUSTER_SIZE NCCL_CHECK_MODE NCCL_CHECK_POINTERS "
    "NCCL_CHUNK_SIZE NCCL_COMM_BLOCKING NCCL_COMM_ID NCCL_COMM_SHRINK_SHARE_RESOURCES NCCL_CONF_FILE "
    "NCCL_CONNECT_ROUND_MAX_PEERS "
    "NCCL_CREATE_THREAD_CONTEXT NCCL_CUMEM_ENABLE NCCL_CUMEM_HOST_ENABLE NCCL_DISABLE_MEM_MANAGER NCCL_DMABUF_ENABLE "
    "NCCL_ELASTIC_BUFFER_REGISTER NCCL_ENABLE_VERSION_CHECK NCCL_ENV_PLUGIN NCCL_GRAPH_DUMP_FILE "
    "NCCL_GRAPH_DUMP_FILE_RANK "
    "NCCL_GRAPH_HELPER_DISABLE NCCL_GRAPH_MIXING_SUPPORT NCCL_GRAPH_STREAM_ORDERING NCCL_GROUP_CUDA_STREAM "
    "NCCL_IGNORE_COLLNET_MISMATCH NCCL_IGNORE_CPU_AFFINITY NCCL_IGNORE_NET_MISMATCH NCCL_IPC_USE_ABSTRACT_SOCKET "
    "NCCL_L1_SHARED_MEMORY_CARVEOUT NCCL_LAUNCH_MODE NCCL_LAUNCH_ORDER_IMPLICIT NCCL_LAUNCH_RACE_FATAL "
    "NCCL_LEGACY_CUDA_REGISTER NCCL_MAX_P2P_NCHANNELS NCCL_MEM_SYNC_DOMAIN NCCL_MIN_P2P_NCHANNELS "
    "NCCL_NCHANNELS_PER_NET_PEER "
    "NCCL_NET_FORCE_FLUSH NCCL_NET_OPTIONAL_RECV_COMPLETION NCCL_NET_PLUGIN_REF_COUNT NCCL_NET_SHARED_BUFFERS "
    "NCCL_NET_SHARED_COMMS NCCL_NSOCKS_PERTHREAD NCCL_NUM_RMA_CTX NCCL_NVB_PRECONNECT NCCL_NVTX_DISABLE "
    "NCCL_P2P_EPOCH_ENABLE NCCL_P2P_LL_THRESHOLD NCCL_P2P_MAX_PEERS NCCL_P2P_NET_CHUNKSIZE NCCL_P2P_NVL_CHUNKSIZE "
    "NCCL_P2P_PCI_CHUNKSIZE NCCL_P2P_PER_CHANNEL_NET_BW NCCL_P2P_PXN_LEVEL NCCL_P2P_READ_ENABLE "
    "NCCL_P2P_SCHEDULE_GROUP_SIZE "
    "NCCL_P2P_USE_CUDA_MEMCPY NCCL_PROGRESS_APPENDOP_FREQ NCCL_PROFILER_PLUGIN NCCL_PROFILE_EVENT_MASK "
    "NCCL_PROFILE_DUMP_FILE "
    "NCCL_REPORT_CONNECT_PROGRESS NCCL_SET_CPU_STACK_SIZE NCCL_SET_STACK_SIZE NCCL_SET_THREAD_NAME NCCL_SHM_LOCALITY "
    "NCCL_SHM_MEMCPY_MODE NCCL_SHM_USE_CUDA_MEMCPY NCCL_SYM_CE_THRESHOLD NCCL_SYM_REUSE_SYSMEM_HANDLES "
    "NCCL_TOPO_DUMP_FILE "
    "NCCL_TOPO_DUMP_FILE_RANK NCCL_TUNER_CONFIG_FILE NCCL_UID_STAGGER_RATE NCCL_UID_STAGGER_THRESHOLD "
    "NCCL_WARN_ENABLE_DEBUG_INFO "
    "NCCL_WIN_STRIDE NCCL_SHADOW_MEMPOOL_MAX_SIZE NCCL_SINGLE_PROC_MEM_REG_ENABLE NCCL_MULTI_SEGMENT_REGISTER "
    "NCCL_MLOPART_RDMA_ENABLE NCCL_DEV_API_JIT NCCL_IBVERBS_LIB ";

constexpr std::array<std::string_view, 11> no_order_prefixes{
    "NCCL_DEBUG", "NCCL_IB_",  "NCCL_SOCKET_", "NCCL_GDRCOPY_", "NCCL_GDR_",      "NCCL_GIN_",
    "NCCL_RMA_",  "NCCL_RAS_", "NCCL_PROXY_",  "NCCL_OOB_",     "NCCL_INSPECTOR_"};

/// Settings that came or went between 2.27.3 and 2.30.7.
struct Lifetime {
    std::string_view key;
    NcclVersion since;
    NcclVersion until{9, 0, 0};  ///< first release without it
};
constexpr std::array<Lifetime, 6> lifetimes{{
    {"NCCL_ALLGATHERV_ENABLE", {2, 29, 2}},
    {"NCCL_MULTI_RANK_GPU_ENABLE", {2, 30, 3}},
    {"NCCL_SYM_NOWIN_ENABLE", {2, 29, 2}},
    {"NCCL_SYM_TMA_ENABLE", {2, 30, 3}},
    {"NCCL_SYM_GIN_KERNELS_ENABLE", {2, 29, 7}},
    {"NCCL_SYM_RS_GIN_CHUNK_SIZE", {2, 29, 7}},
}};

struct Simple {
    std::string_view key;
    Effect effect;
    std::string_view what;
};
constexpr std::array<Simple, 34> simple{{
    {"NCCL_P2P_NET_DISABLE", Effect::inert, "read nowhere in NCCL 2.27 to 2.30"},
    {"NCCL_RINGS", Effect::inert, "gone: no release from 2.27 on reads it; NCCL_GRAPH_FILE gives rings"},
    {"NCCL_TREE_THRESHOLD", Effect::inert, "gone: NCCL's cost model decides; NCCL_ALGO pins"},
    {"NCCL_SINGLE_RING_THRESHOLD", Effect::inert,
     "gone: NCCL's cost model decides; NCCL_ALGO and NCCL_MAX_NCHANNELS pin"},
    {"NCCL_LL_THRESHOLD", Effect::inert, "gone: NCCL's cost model decides; NCCL_PROTO pins"},
    {"NCCL_COLLNET_NODE_THRESHOLD", Effect::acts, "from how many nodes on CollNet is tried, once it is enabled"},
    {"NCCL_GRAPH_FILE", Effect::pins, "gives each channel's ring and tree inside a node; --graph shows the orders"},
    {"NCCL_TUNER_PLUGIN", Effect::acts,
     "a tuner chooses algorithm, protocol and channels; ask its author, or a log's '-> Algo' lines"},
    {"NCCL_HOSTID", Effect::acts, "decides which ranks share a node, hence rings, trees and algorithms"},
    {"NCCL_MULTI_RANK_GPU_ENABLE", Effect::acts, "several ranks on a GPU; NVLS is off then"},
    {"NCCL_THREAD_THRESHOLDS", Effect::acts, "moves the sizes at which a call gets more channels (not modelled)"},
    {"NCCL_WORK_ARGS_BYTES", Effect::acts, "limits the channels of a kernel (not modelled)"},
    {"NCCL_WORK_FIFO_BYTES", Effect::acts, "splits large groups into several kernels (not modelled)"},
    {"NCCL_GRAPH_REGISTER", Effect::acts,
     "captured buffers are registered unless 0: an AllReduce of 17 to 24 channels then uses 16, so eager and captured "
     "orders differ; 0 makes them alike"},
    {"NCCL_LOCAL_REGISTER", Effect::acts,
     "ncclCommRegister'ed buffers: an AllReduce of 17 to 24 channels then uses 16"},
    {"NCCL_RUNTIME_CONNECT", Effect::acts,
     "connects when first used: changes NVLS's allocation history only (NVIDIA/nccl issue 2360)"},
    {"NCCL_CTA_POLICY", Effect::acts, "EFFICIENCY lets registered ReduceScatter take NVLS"},
    {"NCCL_COMM_SPLIT_SHARE_RESOURCES", Effect::acts, "a split that shares has at most its parent's channels"},
    {"NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE", Effect::inert, "schedules send/recv; nothing is added there"},
    {"NCCL_NVLS_NCHANNELS", Effect::acts, "channels of NVLS; its order is not observable with any number"},
    {"NCCL_NVLS_CHUNKSIZE", Effect::acts, "which GPU of the node asks the switch; its order is not observable anyway"},
    {"NCCL_NVLSTREE_MAX_CHUNKSIZE", Effect::acts,
     "which GPU of the node asks the switch; its order is not observable anyway"},
    {"NCCL_SYM_CTAS", Effect::acts, "blocks of symmetric kernels: moves the owners in AllReduce_RSxLD_AGxST"},
    {"NCCL_SYM_NOWIN_ENABLE", Effect::acts,
     "buffers outside windows may take symmetric kernels, whose order is rank order in float32"},
    {"NCCL_SYM_TMA_ENABLE", Effect::acts, "other kernels with the same orders, on other regions of the buffer"},
    {"NCCL_SYM_GIN_KERNELS_ENABLE", Effect::acts, "ReduceScatter of symmetric buffers over several nodes"},
    {"NCCL_SYM_RS_GIN_CHUNK_SIZE", Effect::acts, "ReduceScatter of symmetric buffers over several nodes"},
    {"NCCL_LSA_TEAM_SIZE", Effect::acts, "which ranks symmetric kernels reach directly"},
    {"CUBLAS_WORKSPACE_CONFIG", Effect::inert, "pins cuBLAS, not the collectives"},
    {"NVTE_ALLOW_NONDETERMINISTIC_ALGO", Effect::inert, "pins Transformer Engine's kernels, not the collectives"},
    {"VLLM_ALLREDUCE_USE_SYMM_MEM", Effect::acts,
     "0 keeps vLLM's all-reduce off symmetric memory, whose kernels add in other orders; else those run instead of "
     "NCCL's"},
    {"VLLM_USE_AOT_COMPILE", Effect::inert, "compilation, not the collectives"},
    {"VLLM_DISABLE_PYNCCL", Effect::acts,
     "1 sends vLLM's collectives through PyTorch's communicator instead of its own"},
    {"CUDA_DEVICE_MAX_CONNECTIONS", Effect::inert, "order of launches, not of additions"},
}};

bool in_list(std::string_view list, std::string_view key) {
    return list.find(fmt::format(" {} ", key)) != std::string_view::npos;
}

/// The settings that NCCL 2.28.9 takes from it (vLLM batch_invariant.py, override_envs_for_invariance).
const Environment& vllm_block() {
    static const Environment block{
        {"NCCL_LAUNCH_MODE", "GROUP"}, {"NCCL_COLLNET_ENABLE", "0"},        {"NCCL_NVLS_ENABLE", "0"},
        {"NCCL_P2P_NET_DISABLE", "1"}, {"NCCL_MIN_NCHANNELS", "1"},         {"NCCL_MAX_NCHANNELS", "1"},
        {"NCCL_PROTO", "Simple"},      {"NCCL_ALGO", "allreduce:tree"},     {"NCCL_NTHREADS", "1"},
        {"NCCL_SOCKET_NTHREADS", "1"}, {"VLLM_ALLREDUCE_USE_SYMM_MEM", "0"}};
    return block;
}

struct Linter {
    Environment environment;
    LintScope scope;
    Settings settings{};
    Environment accepted{};
    std::vector<World> all{};
    LintReport report{};

    std::vector<Combination> open(Collective collective) const {
        return open_combinations(all.front().comm, collective);
    }
    void row(Effect effect, const std::string& key, std::string what) {
        report.rows.push_back({effect, key, text_of(environment, key.c_str()), std::move(what)});
    }
    std::string left() const;
    void describe(const std::string& key, const std::string& value);
    void find_blocks();
    void find_gaps();
};

std::string Linter::left() const {
    std::string text;
    for (const Collective collective : all_collectives) {
        const auto list = open(collective);
        text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", name(collective),
                            list.empty() ? "nothing" : listed(list));
    }
    return text;
}

void Linter::describe(const std::string& key, const std::string& value) {
    const bool zero = value == "0";
    if (key == "NCCL_ALGO" || key == "NCCL_PROTO") {
        const bool algorithm = key == "NCCL_ALGO";
        bool one_each = true;
        for (const Collective collective : all_collectives) {
            const auto& map = settings.algorithms;
            const auto& protocols = settings.protocols;
            if (algorithm && map.count(collective) > 0 && open(collective).size() > 0)
                one_each = one_each && algorithms_in(open(collective)) == 1;
            if (!algorithm && protocols.count(collective) > 0)
                one_each = one_each && protocols.at(collective).size() == 1;
        }
        if (algorithm) {
            std::string unnamed;
            for (const Collective collective : all_collectives)
                if (settings.algorithms.count(collective) == 0)
                    unnamed += fmt::format("{}{}", unnamed.empty() ? "" : " and ", name(collective));
            if (!unnamed.empty()) unnamed = fmt::format("does not pin {}; ", unnamed);
            return row(one_each ? Effect::pins : Effect::acts, key, fmt::format("{}leaves {}", unnamed, left()));
        }
        return row(one_each ? Effect::pins : Effect::acts, key,
                   "the tree of a sum is the same under every protocol; it decides which channel and, for a ring "
                   "AllReduce, which chunk an element falls in, and for Avg which additions are fused");
    }
    if (key == "NCCL_MIN_NCHANNELS" || key == "NCCL_MAX_NCHANNELS" || key == "NCCL_MIN_CTAS" ||
        key == "NCCL_MAX_CTAS" || key == "NCCL_MIN_NRINGS" || key == "NCCL_MAX_NRINGS") {
        const int channels = all.front().comm.channels();
        const bool fixed = settings.max_channels > 0 && settings.min_channels >= settings.max_channels;
        if (settings.max_channels == 1 && channels == 1)
            return row(Effect::pins, key, "one channel: one ring, the first tree, no border between channels");
        return row(
            fixed ? Effect::pins : Effect::acts, key,
            fmt::format("{} channels; how many a call uses, hence where their borders lie, still grows with its size",
                        fixed                                  ? fmt::format("always {}", channels)
                        : key.find("MIN") != std::string::npos ? "more"
                                                               : "fewer"));
    }
    if (key == "NCCL_NTHREADS" || key == "NCCL_LL128_NTHREADS") {
        const int wanted = std::atoi(value.c_str());
        const bool wide = key == "NCCL_LL128_NTHREADS";
        const int min = wide ? 160 : 64, max = wide ? 640 : 512;
        const int taken = clamp_threads(wanted, min, max, max);
        if (wanted > 0 && taken != wanted)
            return row(Effect::rejected, key,
                       wanted % 32 != 0 ? fmt::format("not a multiple of 32: NCCL falls to the maximum, {}", max)
                                        : fmt::format("outside {} to {}: NCCL takes {}", min, max, taken));
        return row(Effect::acts, key,
                   "moves the sizes at which a call gets more channels; threads do not add in other orders");
    }
    if (key == "NCCL_BUFFSIZE" || key == "NCCL_LL_BUFFSIZE" || key == "NCCL_LL128_BUFFSIZE")
        return row(Effect::acts, key, "chunk size: moves the borders of a ring AllReduce's chunks, nothing else");
    if (key == "NCCL_NVLS_ENABLE")
        return row(
            zero ? Effect::pins : Effect::acts, key,
            zero ? "no NVLS and no NVLSTree: no adding in the switch" : "NVLS may be chosen: order not observable");
    if (key == "NCCL_COLLNET_ENABLE")
        return row(zero ? Effect::pins : Effect::acts, key,
                   zero ? "no CollNet (as by default): no adding in the network"
                        : "CollNet may be chosen: order not observable");
    if (key == "NCCL_PAT_ENABLE") {
        const bool matters = zero || value == "1" || scope.ranks_per_node == 1;
        return row(!matters ? Effect::inert
                   : zero   ? Effect::pins
                            : Effect::acts,
                   key,
                   zero           ? "no PAT: ReduceScatter by ring (or NVLS)"
                   : value == "1" ? "PAT may serve ReduceScatter in any layout"
                                  : "as by default: PAT only with one rank a node");
    }
    if (key == "NCCL_WIN_ENABLE")
        return row(zero ? Effect::pins : Effect::acts, key,
                   zero ? "no symmetric windows: no symmetric kernels"
                        : "as by default: AllReduce and ReduceScatter of buffers in symmetric windows take symmetric "
                          "kernels (float32 sums)");
    if (key == "NCCL_SYM_KERNEL")
        return row(value == "AllReduce_AGxLL_R" || value == "ReduceScatter_LL" ? Effect::pins : Effect::acts, key,
                   value == "AllReduce_AGxLL_R" || value == "ReduceScatter_LL"
                       ? "rank order in float32 for every element, for buffers in symmetric windows only"
                       : "fixes the kernel for buffers in symmetric windows only");
    if (key == "NCCL_NET_OVERHEAD")
        return row(Effect::acts, key, "an input of NCCL's cost model: moves the sizes where algorithms change");
    if (key == "VLLM_BATCH_INVARIANT")
        return row(value == "1" ? Effect::pins : Effect::inert, key,
                   value == "1" ? "vLLM overwrites its block of NCCL settings at start; they are judged as if set"
                                : "off: vLLM sets nothing");
    for (const Lifetime& each : lifetimes)
        if (each.key == key && scope.version < each.since)
            return row(Effect::inert, key,
                       fmt::format("read since NCCL {}; this is {}", str(each.since), str(scope.version)));
    for (const Simple& each : simple)
        if (each.key == key) return row(each.effect, key, std::string(each.what));
    if (in_list(through_search, key))
        return row(Effect::acts, key,
                   "through the topology search only: other links, other rings and trees; a log shows them");
    const bool known =
        in_list(no_order, key) || std::any_of(no_order_prefixes.begin(), no_order_prefixes.end(),
                                              [&](std::string_view prefix) { return key.starts_with(prefix); });
    if (known) return row(Effect::inert, key, "does not act on the order of a sum");
    row(Effect::inert, key, fmt::format("no setting of NCCL {} has this name", str(scope.version)));
}

void Linter::find_blocks() {
    const auto has = [&](const char* key, std::string_view value) {
        const std::string set = text_of(environment, key);
        return set.size() == value.size() && std::equal(set.begin(), set.end(), value.begin(), [](char a, char b) {
                   return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
               });
    };
    const auto verdict = [&](Collective collective, Invariance invariance) {
        for (const CollectiveAnswer& answer : report.answers)
            if (answer.collective == collective && answer.invariance == invariance) return answer.verdict;
        return Verdict::unknown;
    };
    const auto judged = [&](std::string_view who) {
        std::string text = fmt::format("{}:", who);
        for (const Invariance invariance :
             {Invariance::run_to_run, Invariance::position, Invariance::count, Invariance::owner}) {
            text += fmt::format("{} {}", invariance == Invariance::run_to_run ? "" : ";", name(invariance));
            for (const Collective collective : all_collectives)
                text += fmt::format("{} {} {}", collective == Collective::reduce ? "" : ",", name(collective),
                                    name(verdict(collective, invariance)));
        }
        report.blocks.push_back(std::move(text));
    };
    const bool tree = has("NCCL_ALGO", "allreduce:tree");
    const std::string min = text_of(environment, "NCCL_MIN_NCHANNELS"),
                      max = text_of(environment, "NCCL_MAX_NCHANNELS");
    const bool fixed = !min.empty() && min == max;
    if (has("VLLM_BATCH_INVARIANT", "1"))
        judged("vLLM's batch-invariant block");
    else if (tree && min == "1" && fixed && has("NCCL_PROTO", "simple"))
        judged("the block of vLLM's batch-invariant mode, as torchtitan and others copy it");
    else if (tree && fixed)
        judged("SGLang's deterministic mode (allreduce:tree, fixed channels)");
    else if (tree)
        judged("SGLang's deterministic mode before it fixed the channels (allreduce:tree)");
    if (has("NCCL_ALGO", "ring"))
        judged(text_of(environment, "NVTE_ALLOW_NONDETERMINISTIC_ALGO") == "0"
                   ? "Megatron's deterministic mode (Ring only)"
                   : "Ring only, as Megatron's deterministic mode");
    if (has("NCCL_ALGO", "tree")) judged("Tree for every function");
    if (has("NCCL_ALGO", "^nvls")) judged("PyTorch's deterministic mode (^NVLS)");
}

/// Collectives that the settings leave open or without any algorithm, and settings that work against each other.
void Linter::find_gaps() {
    for (const Collective collective : all_collectives) {
        const auto list = open(collective);
        const auto only = [&](const auto& map) {
            std::string text;
            if (const auto place = map.find(collective); place != map.end())
                for (const auto value : place->second)
                    text += fmt::format("{}{}", text.empty() ? "" : ", ", name(value));
            return text;
        };
        if (list.empty()) {
            const std::string algorithms = only(settings.algorithms), protocols = only(settings.protocols);
            std::string why = fmt::format("no algorithm is left for {}{}{}: NCCL fails the call", name(collective),
                                          algorithms.empty() ? "" : " by algorithm " + algorithms,
                                          protocols.empty() ? "" : " by protocol " + protocols);
            const bool off =
                (algorithms.find("NVLS") != std::string::npos && !settings.nvls_enabled) ||
                (algorithms == "PAT" && !settings.pat_enabled) ||
                (algorithms.find("COLLNET") != std::string::npos && text_of(environment, "NCCL_COLLNET_ENABLE") != "1");
            if (off) why += fmt::format("; {} is switched off", algorithms);
            report.rows.push_back(
                {off ? Effect::contradictory : Effect::missing, "NCCL_ALGO", text_of(environment, "NCCL_ALGO"), why});
        } else if (algorithms_in(list) > 1) {
            report.rows.push_back(
                {Effect::missing, "NCCL_ALGO", text_of(environment, "NCCL_ALGO"),
                 fmt::format("{} is unpinned: {} by size; '{}:ring' would pin it", name(collective), listed(list),
                             collective == Collective::all_reduce ? "allreduce" : "reducescatter")});
        }
    }
    const auto number = [&](const char* key) { return std::atoi(text_of(accepted, key).c_str()); };
    const int min = number("NCCL_MIN_NCHANNELS"), max = number("NCCL_MAX_NCHANNELS");
    if (max > 0 && min > max)
        row(Effect::contradictory, "NCCL_MIN_NCHANNELS",
            fmt::format("larger than NCCL_MAX_NCHANNELS={}: NCCL keeps {} channels and copies them up to {}", max, max,
                        min));
    const int min_ctas = number("NCCL_MIN_CTAS"), max_ctas = number("NCCL_MAX_CTAS");
    if (max_ctas > 0 && min_ctas > max_ctas)
        row(Effect::contradictory, "NCCL_MIN_CTAS",
            fmt::format("larger than NCCL_MAX_CTAS={}: NCCL uses {} for both", max_ctas, max_ctas));
    if (max > 0 && max_ctas > 0 && max != max_ctas)
        row(Effect::contradictory, "NCCL_MAX_CTAS",
            fmt::format("NCCL_MAX_NCHANNELS={} as well: the smaller one counts", max));
    if (settings.symmetric_enabled && text_of(environment, "NCCL_SYM_KERNEL").empty() &&
        text_of(environment, "NCCL_WIN_ENABLE").empty() && scope.ranks_per_node == scope.ranks)
        report.rows.push_back(
            {Effect::missing, "NCCL_WIN_ENABLE", "",
             "AllReduce and ReduceScatter of buffers in symmetric windows take other kernels; 0 forbids them "
             "(buffers outside windows are not concerned)"});
}

Settings without_errors(const Environment& environment, Environment& accepted, std::vector<LintRow>& rejected) {
    for (const auto& [key, value] : environment) {
        try {
            Settings alone;
            apply_environment({{key, value}}, alone);
            accepted[key] = value;
        } catch (const UsageError& error) {
            std::string why = error.what();
            if (const std::string front = fmt::format("{}={}: ", key, value); why.starts_with(front))
                why.erase(0, front.size());
            rejected.push_back({Effect::rejected, key, value, why});
        }
    }
    Settings settings;
    apply_environment(accepted, settings);
    return settings;
}

std::vector<Recipe> recipes_for(const LintScope& scope) {
    using Pairs = std::vector<std::pair<std::string, std::string>>;
    const std::pair<std::string, std::string> no_nvls{"NCCL_NVLS_ENABLE", "0"}, no_collnet{"NCCL_COLLNET_ENABLE", "0"};
    const std::pair<std::string, std::string> min{"NCCL_MIN_NCHANNELS", "1"}, max{"NCCL_MAX_NCHANNELS", "1"};
    const bool one_node = scope.ranks == scope.ranks_per_node;
    struct Candidate {
        Invariance invariance;
        Collective collective;
        Pairs settings;
        std::string cost;
    };
    std::vector<Candidate> candidates;
    for (const Collective collective : all_collectives) {
        const bool reduce = collective == Collective::reduce, all = collective == Collective::all_reduce;
        candidates.push_back({Invariance::run_to_run, collective, reduce ? Pairs{} : Pairs{no_nvls, no_collnet},
                              reduce ? "nothing: Reduce is always a ring" : "NVLS's bandwidth on NVSwitch machines"});
        candidates.push_back({Invariance::rank_equal, collective, {}, "nothing"});
        candidates.push_back(
            {Invariance::owner,
             collective,
             {},
             all ? "nothing: no rank owns a result"
                 : "no setting does it: reduce to one fixed root and scatter (fixed_root, 2.1 to 2.3 times the "
                   "traffic), or sum in rank order yourself (exchange_ordered, the same traffic)"});
        const Pairs pins = all      ? Pairs{{"NCCL_ALGO", "allreduce:tree"}, min, max}
                           : reduce ? Pairs{min, max}
                                    : Pairs{{"NCCL_ALGO", "reducescatter:ring"}, min, max};
        const std::string cost =
            all ? fmt::format(
                      "one channel: the bandwidth of one ring of many; Tree also loses to Ring for large calls{}",
                      one_node ? "" : "; over several nodes only the first of the two trees is used")
                : "one channel: the bandwidth of one ring of many";
        candidates.push_back({Invariance::position, collective, pins, cost});
        candidates.push_back({Invariance::count, collective, pins, cost});
        candidates.push_back(
            {Invariance::routing, collective, all ? pins : Pairs{},
             all ? cost
                 : "no setting does it: fixed_root on one channel (Reduce with MIN=MAX=1), exchange_ordered, "
                   "or symmetric windows with NCCL_SYM_KERNEL=ReduceScatter_LL (rank order)"});
    }
    std::vector<Recipe> result;
    for (Candidate& candidate : candidates) {
        Environment environment(candidate.settings.begin(), candidate.settings.end());
        if (candidate.settings.empty() && candidate.invariance != Invariance::rank_equal) environment.insert(no_nvls);
        Settings settings;
        apply_environment(environment, settings);
        const auto answer = judge(candidate.collective, candidate.invariance, worlds(scope, settings), false);
        result.push_back({candidate.invariance, candidate.collective, std::move(candidate.settings),
                          std::move(candidate.cost), answer.verdict});
    }
    return result;
}

std::string recipe_text(const Recipe& recipe) {
    std::string text;
    for (const auto& [key, value] : recipe.settings)
        text += fmt::format("{}{}={}", text.empty() ? "" : " ", key,
                            value.find(';') == std::string::npos ? value : "'" + value + "'");
    return text;
}

}  // namespace

std::string_view name(LintRow::Effect effect) {
    constexpr std::array<std::string_view, 6> names{"pins", "acts", "inert", "rejected", "contradictory", "missing"};
    return names.at(static_cast<std::size_t>(effect));
}

std::string_view name(CollectiveAnswer::Verdict verdict) {
    constexpr std::array<std::string_view, 5> names{"yes", "depends", "unknown", "no", "fails"};
    return names.at(static_cast<std::size_t>(verdict));
}

LintReport lint(const Environment& environment, const LintScope& scope) {
    if (scope.ranks < 1 || scope.ranks_per_node < 1 || scope.ranks % scope.ranks_per_node != 0 || scope.ranks > 1024)
        throw UsageError(
            fmt::format("{} ranks, {} a node: 1 to 1024 ranks, in whole nodes", scope.ranks, scope.ranks_per_node));
    Linter linter{environment, scope};
    // What the framework sets later is part of the environment that NCCL sees.
    if (text_of(environment, "VLLM_BATCH_INVARIANT") == "1")
        for (const auto& [key, value] : vllm_block()) linter.environment[key] = value;
    std::vector<LintRow> rejected;
    linter.settings = without_errors(linter.environment, linter.accepted, rejected);
    linter.all = worlds(scope, linter.settings);

    const bool collnet = text_of(linter.accepted, "NCCL_COLLNET_ENABLE") == "1" && scope.ranks_per_node < scope.ranks;
    const auto fatal = std::find_if(rejected.begin(), rejected.end(), [](const LintRow& row) {
        return row.key == "NCCL_ALGO" || row.key == "NCCL_PROTO";
    });
    for (const Collective collective : all_collectives)
        for (const Invariance invariance : all_invariances)
            linter.report.answers.push_back(
                fatal == rejected.end()
                    ? judge(collective, invariance, linter.all, collnet)
                    : CollectiveAnswer{collective, invariance, Verdict::fails,
                                       fmt::format("NCCL fails the communicator on {}={}", fatal->key, fatal->value)});
    for (const auto& [key, value] : linter.environment) {
        const bool ours =
            key.starts_with("NCCL_") || key.starts_with("VLLM_BATCH") || key.starts_with("VLLM_ALLREDUCE") ||
            std::any_of(simple.begin(), simple.end(), [&](const Simple& each) { return each.key == key; });
        if (!ours) continue;
        const auto bad =
            std::find_if(rejected.begin(), rejected.end(), [&](const LintRow& row) { return row.key == key; });
        if (bad != rejected.end())
            linter.report.rows.push_back(*bad);
        else
            linter.describe(key, value);
    }
    linter.find_gaps();
    linter.find_blocks();
    linter.report.recipes = recipes_for(scope);
    return std::move(linter.report);
}

Exit order_lint(std::span<const std::string> arguments) {
    Options options("order lint [flags]",
                    "What an environment's settings do for the order of sums on one NCCL version.",
                    {"samesum order lint                                  # of this shell",
                     "samesum order lint --env block.sh --want count --collective all_reduce",
                     "docker inspect C --format '{{json .Config.Env}}' | samesum order lint --env - --ranks 16 "
                     "--ranks-per-node 8"});
    options.add()("env", po::value<std::string>()->value_name("FILE"),
                  "KEY=VALUE lines, export, docker -e, JSON ('-': stdin); default: this process's environment")(
        "ranks", po::value<int>()->default_value(8)->value_name("N"), "ranks of the communicator")(
        "ranks-per-node", po::value<int>()->value_name("N"), "ranks that share a node; default: all")(
        "nccl-version", po::value<std::string>()->default_value("2.28.9")->value_name("V"), "2.27 to 2.30")(
        "want", po::value<std::string>()->value_name("W"),
        "the invariance that is to hold: run-to-run, rank-equal, owner, position, count, routing")(
        "collective", po::value<std::string>()->value_name("C"),
        "judge this one only: reduce, reduce_scatter, all_reduce");
    options.with_json();
    if (!options.parse(arguments)) return Exit::as_claimed;

    LintScope scope;
    scope.version = parse_nccl_version(options.get<std::string>("nccl-version"));
    scope.ranks = options.get<int>("ranks");
    scope.ranks_per_node = options.find<int>("ranks-per-node").value_or(scope.ranks);
    std::optional<Invariance> wanted;
    if (const auto word = options.find<std::string>("want")) wanted = parse_invariance(*word);
    std::optional<Collective> collective;
    if (const auto word = options.find<std::string>("collective")) collective = parse_collective(*word);
    Environment environment;
    if (const auto file = options.find<std::string>("env"))
        environment = parse_environment(read_file(*file), *file == "-" ? "stdin" : *file);
    else
        environment = process_environment();

    const LintReport report = lint(environment, scope);
    const auto asked = [&](const auto& each) {
        return (!wanted || each.invariance == *wanted) && (!collective || each.collective == *collective);
    };
    bool achieved = true;
    for (const CollectiveAnswer& answer : report.answers)
        if (wanted && asked(answer) && answer.verdict != Verdict::yes) achieved = false;

    nlohmann::ordered_json document;
    document["nccl_version"] = str(scope.version);
    document["ranks"] = scope.ranks;
    document["ranks_per_node"] = scope.ranks_per_node;
    document["settings"] = nlohmann::ordered_json::array();
    for (const LintRow& row : report.rows)
        document["settings"].push_back(
            {{"effect", name(row.effect)}, {"key", row.key}, {"value", row.value}, {"what", row.what}});
    document["blocks"] = report.blocks;
    document["answers"] = nlohmann::ordered_json::array();
    for (const CollectiveAnswer& answer : report.answers)
        if (asked(answer))
            document["answers"].push_back({{"collective", name(answer.collective)},
                                           {"invariance", name(answer.invariance)},
                                           {"verdict", name(answer.verdict)},
                                           {"why", answer.why}});
    document["recipes"] = nlohmann::ordered_json::array();
    for (const Recipe& recipe : report.recipes)
        if (asked(recipe)) {
            nlohmann::ordered_json settings = nlohmann::ordered_json::object();
            for (const auto& [key, value] : recipe.settings) settings[key] = value;
            document["recipes"].push_back({{"collective", name(recipe.collective)},
                                           {"invariance", name(recipe.invariance)},
                                           {"settings", settings},
                                           {"model_says", name(recipe.confirmed)},
                                           {"cost", recipe.cost}});
        }
    if (wanted) document["achieved"] = achieved;
    const Exit code = achieved ? Exit::as_claimed : Exit::not_as_claimed;
    if (const auto file = options.find<std::string>("json")) {
        write_json(*file, document);
        if (*file == "-") return code;
    }

    fmt::print("NCCL {}, {} ranks, {} a node; ncclSum, buffers outside symmetric windows\n\n", str(scope.version),
               scope.ranks, scope.ranks_per_node);
    std::size_t width = 0;
    const auto setting = [](const LintRow& row) {
        return row.value.empty() ? row.key : fmt::format("{}={}", row.key, row.value);
    };
    for (const LintRow& row : report.rows) width = std::max(width, std::min<std::size_t>(setting(row).size(), 48));
    for (const LintRow& row : report.rows)
        fmt::print("{:<13}  {:<{}}  {}\n", name(row.effect), setting(row), width, row.what);
    if (report.rows.empty()) fmt::print("no setting that concerns NCCL\n");
    for (const std::string& block : report.blocks) fmt::print("\nknown block: {}\n", block);

    if (!wanted) {
        fmt::print("\n{:<14}", "");
        for (const Invariance invariance : all_invariances) fmt::print("  {:<10}", name(invariance));
        for (std::size_t i = 0; i < report.answers.size(); ++i) {
            const CollectiveAnswer& answer = report.answers[i];
            if (collective && answer.collective != *collective) continue;
            if (answer.invariance == all_invariances.front()) fmt::print("\n{:<14}", name(answer.collective));
            fmt::print("  {:<10}", name(answer.verdict));
        }
        fmt::print("\n\n--want W says why, and what would do it.\n");
        return code;
    }
    fmt::print("\nwanted: {}\n", name(*wanted));
    for (const CollectiveAnswer& answer : report.answers)
        if (asked(answer))
            fmt::print("  {:<14}  {:<8}  {}\n", name(answer.collective), name(answer.verdict), answer.why);
    fmt::print("\nwhat would do it\n");
    for (const Recipe& recipe : report.recipes) {
        if (!asked(recipe)) continue;
        const std::string text = recipe_text(recipe);
        fmt::print("  {:<14}  {}\n  {:<14}  the model says {}; cost: {}\n", name(recipe.collective),
                   !text.empty()                      ? text
                   : recipe.confirmed == Verdict::yes ? "no setting needed"
                                                      : "no setting",
                   "", name(recipe.confirmed), recipe.cost);
    }
    return code;
}

}  // namespace samesum
