// Which names NCCL reads was taken from the sources of 2.27.3 to 2.30.7 (NCCL_PARAM and ncclGetEnv).
// SPDX-License-Identifier: Apache-2.0
#include "model/analysis/lint_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <utility>

#include "model/support/numbers.hpp"
#include "model/support/text.hpp"

namespace samesum {
namespace {

using Effect = LintRow::Effect;

struct SettingEffect {
    Effect effect;
    std::string what;
};

std::set<Algorithm> algorithms_in(const std::vector<Combination>& open) {
    std::set<Algorithm> seen;
    for (const Combination& each : open) seen.insert(each.algorithm);
    return seen;
}

/// A whole number as NCCL takes it; 0 where it is none.
int number_in(std::string_view value) { return integer_in<int>(trimmed(value)).value_or(0); }

bool same_word(std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
        return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
    });
}

// --- Settings whose effect depends on their value or on other settings ---------------------------------------------

SettingEffect effect_of_algo(const LintContext& context, std::string_view, std::string_view) {
    bool one_each = true;
    std::string unnamed, left;
    for (const Collective collective : all_collectives) {
        const auto& open = context.open.at(collective);
        if (context.settings.algorithms.count(collective) == 0)
            unnamed += fmt::format("{}{}", unnamed.empty() ? "" : " and ", name(collective));
        else if (!open.empty())
            one_each = one_each && algorithms_in(open).size() == 1;
        left += fmt::format("{}{}: {}", left.empty() ? "" : "; ", name(collective),
                            open.empty() ? "nothing" : algorithms_listed(open));
    }
    if (!unnamed.empty()) unnamed = fmt::format("does not pin {}; ", unnamed);
    return {one_each ? Effect::pins : Effect::acts, fmt::format("{}leaves {}", unnamed, left)};
}

SettingEffect effect_of_proto(const LintContext& context, std::string_view, std::string_view) {
    bool one_each = true;
    for (const auto& [collective, protocols] : context.settings.protocols) one_each = one_each && protocols.size() == 1;
    return {one_each ? Effect::pins : Effect::acts,
            "the tree of a sum is the same under every protocol; the protocol decides which channel and, for a ring "
            "AllReduce, which chunk an element falls in, and for Avg which additions are fused"};
}

SettingEffect effect_of_channels(const LintContext& context, std::string_view key, std::string_view) {
    const Settings& settings = context.settings;
    if (settings.max_channels == 1 && context.channels == 1)
        return {Effect::pins, "one channel: one ring, the first tree, no border between channels"};
    const bool fixed = settings.max_channels > 0 && settings.min_channels >= settings.max_channels;
    const std::string how_many = fixed ? fmt::format("always {}", context.channels)
                                 : key.find("MIN") != std::string_view::npos ? "more"
                                                                             : "fewer";
    return {fixed ? Effect::pins : Effect::acts,
            fmt::format("{} channels; how many a call uses, hence where their borders lie, still grows with its size",
                        how_many)};
}

SettingEffect effect_of_threads(const LintContext&, std::string_view key, std::string_view value) {
    const int wanted = number_in(value);
    const bool ll128 = key == "NCCL_LL128_NTHREADS";
    const int min = ll128 ? 160 : 64, max = ll128 ? 640 : 512;
    const int taken = clamp_threads(wanted, min, max, max);
    if (wanted <= 0 || taken == wanted)
        return {Effect::acts, "moves the sizes at which a call gets more channels; threads do not change the order"};
    return {Effect::rejected, wanted % 32 != 0 ? fmt::format("not a multiple of 32: NCCL takes the maximum, {}", max)
                                               : fmt::format("outside {} to {}: NCCL takes {}", min, max, taken)};
}

SettingEffect effect_of_nvls(const LintContext&, std::string_view, std::string_view value) {
    if (value == "0") return {Effect::pins, "no NVLS and no NVLSTree: the switch adds nothing"};
    return {Effect::acts, "NVLS may be chosen: order not observable"};
}

SettingEffect effect_of_collnet(const LintContext&, std::string_view, std::string_view value) {
    if (value == "0") return {Effect::pins, "no CollNet (the default): the network adds nothing"};
    return {Effect::acts, "CollNet may be chosen: order not observable"};
}

SettingEffect effect_of_pat(const LintContext& context, std::string_view, std::string_view value) {
    if (value == "0") return {Effect::pins, "no PAT: ReduceScatter by ring (or NVLS)"};
    if (value == "1") return {Effect::acts, "ReduceScatter may take PAT in any layout"};
    return {context.scope.ranks_per_node == 1 ? Effect::acts : Effect::inert,
            "the default: PAT only with one rank per node"};
}

SettingEffect effect_of_windows(const LintContext&, std::string_view, std::string_view value) {
    if (value == "0") return {Effect::pins, "no symmetric windows: no symmetric kernels"};
    return {Effect::acts,
            "the default: AllReduce and ReduceScatter of buffers in symmetric windows take symmetric kernels "
            "(float32 sums)"};
}

SettingEffect effect_of_symmetric_kernel(const LintContext&, std::string_view, std::string_view value) {
    if (value == "AllReduce_AGxLL_R" || value == "ReduceScatter_LL")
        return {Effect::pins, "rank order in float32 for every element, for buffers in symmetric windows only"};
    return {Effect::acts, "fixes the kernel for buffers in symmetric windows only"};
}

SettingEffect effect_of_vllm(const LintContext&, std::string_view, std::string_view value) {
    if (value == "1")
        return {Effect::pins, "vLLM overwrites its block of NCCL settings at start; they are assessed as if set"};
    return {Effect::inert, "off: vLLM sets nothing"};
}

// --- The table -----------------------------------------------------------------------------------------------------

using EffectOf = SettingEffect (*)(const LintContext&, std::string_view key, std::string_view value);

/// What a variable does: always the same, or by a function.
struct Row {
    std::string_view key;
    Effect effect{};
    std::string_view what;
    NcclVersion since{0, 0, 0};  ///< the first release after 2.27.3 that reads it
    EffectOf effect_of = nullptr;

    constexpr Row(std::string_view name, EffectOf function) : key(name), effect_of(function) {}
    constexpr Row(std::string_view name, Effect always, std::string_view text, NcclVersion first = {0, 0, 0})
        : key(name), effect(always), what(text), since(first) {}
};

constexpr std::string_view chunk_size = "chunk size: moves the borders of a ring AllReduce's chunks, nothing else";
constexpr std::string_view no_effect = "does not act on the order of a sum";
constexpr std::string_view several_nodes = "ReduceScatter of symmetric buffers over several nodes";
constexpr std::string_view heads = "decides which GPU of the node sends to the switch; its order is not observable";

constexpr std::array table{
    // Algorithm, protocol, channels, threads, chunks.
    Row{"NCCL_ALGO", effect_of_algo},
    Row{"NCCL_PROTO", effect_of_proto},
    Row{"NCCL_MIN_NCHANNELS", effect_of_channels},
    Row{"NCCL_MAX_NCHANNELS", effect_of_channels},
    Row{"NCCL_MIN_CTAS", effect_of_channels},
    Row{"NCCL_MAX_CTAS", effect_of_channels},
    Row{"NCCL_MIN_NRINGS", effect_of_channels},
    Row{"NCCL_MAX_NRINGS", effect_of_channels},
    Row{"NCCL_NTHREADS", effect_of_threads},
    Row{"NCCL_LL128_NTHREADS", effect_of_threads},
    Row{"NCCL_THREAD_THRESHOLDS", Effect::acts, "moves the sizes at which a call gets more channels (not modelled)"},
    Row{"NCCL_BUFFSIZE", Effect::acts, chunk_size},
    Row{"NCCL_LL_BUFFSIZE", Effect::acts, chunk_size},
    Row{"NCCL_LL128_BUFFSIZE", Effect::acts, chunk_size},
    Row{"NCCL_NET_OVERHEAD", Effect::acts, "an input of NCCL's cost model: moves the sizes where algorithms change"},
    Row{"NCCL_TUNER_PLUGIN", Effect::acts,
        "a tuner chooses algorithm, protocol and channels; a log's '-> Algo' lines show its choices"},
    Row{"NCCL_CTA_POLICY", Effect::acts, "EFFICIENCY lets registered ReduceScatter take NVLS"},
    Row{"NCCL_WORK_ARGS_BYTES", Effect::acts, "limits the channels of a kernel (not modelled)"},
    Row{"NCCL_WORK_FIFO_BYTES", Effect::acts, "splits large groups into several kernels (not modelled)"},
    Row{"NCCL_PAT_ENABLE", effect_of_pat},
    // Sums in hardware.
    Row{"NCCL_NVLS_ENABLE", effect_of_nvls},
    Row{"NCCL_NVLS_NCHANNELS", Effect::acts, "channels of NVLS; its order is not observable with any number"},
    Row{"NCCL_NVLS_CHUNKSIZE", Effect::acts, heads},
    Row{"NCCL_NVLSTREE_MAX_CHUNKSIZE", Effect::acts, heads},
    Row{"NCCL_COLLNET_ENABLE", effect_of_collnet},
    Row{"NCCL_COLLNET_NODE_THRESHOLD", Effect::acts, "the number of nodes from which CollNet is tried, if enabled"},
    // Layout of the communicator.
    Row{"NCCL_GRAPH_FILE", Effect::pins, "gives each channel's ring and tree inside a node; --graph shows the orders"},
    Row{"NCCL_HOSTID", Effect::acts, "decides which ranks share a node, hence rings, trees and algorithms"},
    Row{"NCCL_MULTI_RANK_GPU_ENABLE", Effect::acts, "allows several ranks on one GPU, which disables NVLS", {2, 30, 3}},
    Row{"NCCL_COMM_SPLIT_SHARE_RESOURCES", Effect::acts,
        "a split that shares resources has at most its parent's channels"},
    Row{"NCCL_RUNTIME_CONNECT", Effect::acts,
        "connects when first used: changes NVLS's allocation history only (NVIDIA/nccl issue 2360)"},
    // Registered buffers and symmetric windows.
    Row{"NCCL_GRAPH_REGISTER", Effect::acts,
        "captured buffers are registered unless 0: an AllReduce of 17 to 24 channels then uses 16, so eager and "
        "captured orders differ; 0 makes them equal"},
    Row{"NCCL_LOCAL_REGISTER", Effect::acts,
        "ncclCommRegister'ed buffers: an AllReduce of 17 to 24 channels then uses 16"},
    Row{"NCCL_WIN_ENABLE", effect_of_windows},
    Row{"NCCL_SYM_KERNEL", effect_of_symmetric_kernel},
    Row{"NCCL_SYM_CTAS", Effect::acts, "blocks of symmetric kernels: moves the owners in AllReduce_RSxLD_AGxST"},
    Row{"NCCL_SYM_NOWIN_ENABLE",
        Effect::acts,
        "buffers outside windows may take symmetric kernels, whose order is rank order in float32",
        {2, 29, 2}},
    Row{"NCCL_SYM_TMA_ENABLE",
        Effect::acts,
        "other kernels with the same orders, on other regions of the buffer",
        {2, 30, 3}},
    Row{"NCCL_SYM_GIN_KERNELS_ENABLE", Effect::acts, several_nodes, {2, 29, 7}},
    Row{"NCCL_SYM_RS_GIN_CHUNK_SIZE", Effect::acts, several_nodes, {2, 29, 7}},
    Row{"NCCL_LSA_TEAM_SIZE", Effect::acts, "decides which ranks symmetric kernels reach directly"},
    // No effect on a sum.
    Row{"NCCL_ALLGATHERV_ENABLE", Effect::inert, no_effect, {2, 29, 2}},
    Row{"NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE", Effect::inert, "schedules send/recv, which adds nothing"},
    Row{"NCCL_P2P_NET_DISABLE", Effect::inert, "not read by NCCL 2.27 to 2.30"},
    Row{"NCCL_RINGS", Effect::inert, "removed: not read by NCCL 2.27 or later; NCCL_GRAPH_FILE gives rings"},
    Row{"NCCL_TREE_THRESHOLD", Effect::inert, "removed: NCCL's cost model decides; NCCL_ALGO pins the algorithm"},
    Row{"NCCL_SINGLE_RING_THRESHOLD", Effect::inert,
        "removed: NCCL's cost model decides; NCCL_ALGO and NCCL_MAX_NCHANNELS pin algorithm and channels"},
    Row{"NCCL_LL_THRESHOLD", Effect::inert, "removed: NCCL's cost model decides; NCCL_PROTO pins the protocol"},
    // Frameworks.
    Row{"VLLM_BATCH_INVARIANT", effect_of_vllm},
    Row{"VLLM_ALLREDUCE_USE_SYMM_MEM", Effect::acts,
        "0 keeps vLLM's all-reduce off symmetric memory; otherwise symmetric-memory kernels, which add in other "
        "orders, run instead of NCCL's"},
    Row{"VLLM_USE_AOT_COMPILE", Effect::inert, "concerns compilation, not the collectives"},
    Row{"VLLM_DISABLE_PYNCCL", Effect::acts,
        "1 sends vLLM's collectives through PyTorch's communicator instead of its own"},
    Row{"CUBLAS_WORKSPACE_CONFIG", Effect::inert, "pins cuBLAS, not the collectives"},
    Row{"NVTE_ALLOW_NONDETERMINISTIC_ALGO", Effect::inert, "pins Transformer Engine's kernels, not the collectives"},
    Row{"CUDA_DEVICE_MAX_CONNECTIONS", Effect::inert, "orders launches, not additions"},
};

/// Names that act on the order only by changing what NCCL's topology search finds.
constexpr std::string_view through_search =
    " NCCL_TOPO_FILE NCCL_CROSS_NIC NCCL_IB_HCA NCCL_NET_GDR_LEVEL NCCL_NET_GDR_READ NCCL_P2P_DISABLE NCCL_P2P_LEVEL "
    "NCCL_SHM_DISABLE NCCL_PXN_DISABLE NCCL_PXN_C2C NCCL_NVB_DISABLE NCCL_NETDEVS_POLICY NCCL_NET_MERGE_LEVEL "
    "NCCL_NET_MERGE_POLICY NCCL_NET_FORCE_MERGE NCCL_IB_MERGE_NICS NCCL_IB_MERGE_VFS NCCL_NET NCCL_NET_PLUGIN "
    "NCCL_IB_DISABLE NCCL_SOCKET_IFNAME NCCL_MNNVL_ENABLE NCCL_MNNVL_UUID NCCL_MNNVL_CLIQUE_ID "
    "NCCL_MNNVL_CROSS_CLIQUE NCCL_MNNVL_RAIL_PER_HOST NCCL_MNNVL_SCATTER_NETS_ENABLE NCCL_NET_DISABLE_INTRA "
    "NCCL_UNPACK_DOUBLE_NCHANNELS NCCL_IB_DATA_DIRECT NCCL_IGNORE_DISABLED_P2P NCCL_P2P_DIRECT_DISABLE "
    "NCCL_NET_GDR_C2C NCCL_LL128_C2C NCCL_TOPO_SPLIT_MLOPART NCCL_NET_GDR_MLOPART NCCL_IB_DEVICE_PCI_ORDER ";

/// Names that move bytes, print or wait, but do not change how NCCL adds.
constexpr std::string_view without_effect =
    " NCCL_ALLOC_P2P_NET_LL_BUFFERS NCCL_CGA_CLUSTER_SIZE NCCL_CHECK_MODE NCCL_CHECK_POINTERS NCCL_CHUNK_SIZE "
    "NCCL_COMM_BLOCKING NCCL_COMM_ID NCCL_COMM_SHRINK_SHARE_RESOURCES NCCL_CONF_FILE NCCL_CONNECT_ROUND_MAX_PEERS "
    "NCCL_CREATE_THREAD_CONTEXT NCCL_CUMEM_ENABLE NCCL_CUMEM_HOST_ENABLE NCCL_DISABLE_MEM_MANAGER NCCL_DMABUF_ENABLE "
    "NCCL_ELASTIC_BUFFER_REGISTER NCCL_ENABLE_VERSION_CHECK NCCL_ENV_PLUGIN NCCL_GRAPH_DUMP_FILE "
    "NCCL_GRAPH_DUMP_FILE_RANK NCCL_GRAPH_HELPER_DISABLE NCCL_GRAPH_MIXING_SUPPORT NCCL_GRAPH_STREAM_ORDERING "
    "NCCL_GROUP_CUDA_STREAM NCCL_IGNORE_COLLNET_MISMATCH NCCL_IGNORE_CPU_AFFINITY NCCL_IGNORE_NET_MISMATCH "
    "NCCL_IPC_USE_ABSTRACT_SOCKET NCCL_L1_SHARED_MEMORY_CARVEOUT NCCL_LAUNCH_MODE NCCL_LAUNCH_ORDER_IMPLICIT "
    "NCCL_LAUNCH_RACE_FATAL NCCL_LEGACY_CUDA_REGISTER NCCL_MAX_P2P_NCHANNELS NCCL_MEM_SYNC_DOMAIN "
    "NCCL_MIN_P2P_NCHANNELS NCCL_NCHANNELS_PER_NET_PEER NCCL_NET_FORCE_FLUSH NCCL_NET_OPTIONAL_RECV_COMPLETION "
    "NCCL_NET_PLUGIN_REF_COUNT NCCL_NET_SHARED_BUFFERS NCCL_NET_SHARED_COMMS NCCL_NSOCKS_PERTHREAD NCCL_NUM_RMA_CTX "
    "NCCL_NVB_PRECONNECT NCCL_NVTX_DISABLE NCCL_P2P_EPOCH_ENABLE NCCL_P2P_LL_THRESHOLD NCCL_P2P_MAX_PEERS "
    "NCCL_P2P_NET_CHUNKSIZE NCCL_P2P_NVL_CHUNKSIZE NCCL_P2P_PCI_CHUNKSIZE NCCL_P2P_PER_CHANNEL_NET_BW "
    "NCCL_P2P_PXN_LEVEL NCCL_P2P_READ_ENABLE NCCL_P2P_SCHEDULE_GROUP_SIZE NCCL_P2P_USE_CUDA_MEMCPY "
    "NCCL_PROGRESS_APPENDOP_FREQ NCCL_PROFILER_PLUGIN NCCL_PROFILE_EVENT_MASK NCCL_PROFILE_DUMP_FILE "
    "NCCL_REPORT_CONNECT_PROGRESS NCCL_SET_CPU_STACK_SIZE NCCL_SET_STACK_SIZE NCCL_SET_THREAD_NAME NCCL_SHM_LOCALITY "
    "NCCL_SHM_MEMCPY_MODE NCCL_SHM_USE_CUDA_MEMCPY NCCL_SYM_CE_THRESHOLD NCCL_SYM_REUSE_SYSMEM_HANDLES "
    "NCCL_TOPO_DUMP_FILE NCCL_TOPO_DUMP_FILE_RANK NCCL_TUNER_CONFIG_FILE NCCL_UID_STAGGER_RATE "
    "NCCL_UID_STAGGER_THRESHOLD NCCL_WARN_ENABLE_DEBUG_INFO NCCL_WIN_STRIDE NCCL_SHADOW_MEMPOOL_MAX_SIZE "
    "NCCL_SINGLE_PROC_MEM_REG_ENABLE NCCL_MULTI_SEGMENT_REGISTER NCCL_MLOPART_RDMA_ENABLE NCCL_DEV_API_JIT "
    "NCCL_IBVERBS_LIB ";
constexpr std::array<std::string_view, 11> prefixes_without_effect{
    "NCCL_DEBUG", "NCCL_IB_",  "NCCL_SOCKET_", "NCCL_GDRCOPY_", "NCCL_GDR_",      "NCCL_GIN_",
    "NCCL_RMA_",  "NCCL_RAS_", "NCCL_PROXY_",  "NCCL_OOB_",     "NCCL_INSPECTOR_"};

bool in_list(std::string_view list, std::string_view key) {
    return list.find(fmt::format(" {} ", key)) != std::string_view::npos;
}

const Row* row_for(std::string_view key) {
    const auto place = std::find_if(table.begin(), table.end(), [&](const Row& row) { return row.key == key; });
    return place == table.end() ? nullptr : &*place;
}

SettingEffect effect_of(const LintContext& context, std::string_view key, std::string_view value) {
    const NcclVersion version = context.scope.version;
    if (const Row* row = row_for(key)) {
        if (row->effect_of != nullptr) return row->effect_of(context, key, value);
        if (version < row->since)
            return {Effect::inert, fmt::format("read since NCCL {}; this is {}", str(row->since), str(version))};
        return {row->effect, std::string(row->what)};
    }
    if (in_list(through_search, key))
        return {Effect::acts, "through the topology search only: other links, other rings and trees; a log shows them"};
    const bool known =
        in_list(without_effect, key) || std::any_of(prefixes_without_effect.begin(), prefixes_without_effect.end(),
                                                    [&](std::string_view prefix) { return key.starts_with(prefix); });
    if (known) return {Effect::inert, std::string(no_effect)};
    return {Effect::inert, fmt::format("NCCL {} has no setting of this name", str(version))};
}

// --- Gaps and contradictions ---------------------------------------------------------------------------------------

/// The names that a collective is limited to; empty where it is not limited.
template <class Allowed>
std::string limits(const Allowed& allowed, Collective collective) {
    std::string text;
    if (const auto place = allowed.find(collective); place != allowed.end())
        for (const auto value : place->second) text += fmt::format("{}{}", text.empty() ? "" : ", ", name(value));
    return text;
}

LintRow row_without_algorithm(const LintContext& context, Collective collective) {
    const Settings& settings = context.settings;
    const std::string algorithms = limits(settings.algorithms, collective);
    const std::string protocols = limits(settings.protocols, collective);
    std::string why = fmt::format("no algorithm is left for {}{}{}: NCCL fails the call", name(collective),
                                  algorithms.empty() ? "" : " by algorithm " + algorithms,
                                  protocols.empty() ? "" : " by protocol " + protocols);
    const bool collnet = value_in(context.environment, "NCCL_COLLNET_ENABLE") == "1";
    const bool off = (algorithms.find("NVLS") != std::string::npos && !settings.nvls_enabled) ||
                     (algorithms == "PAT" && !settings.pat_enabled) ||
                     (algorithms.find("COLLNET") != std::string::npos && !collnet);
    if (off) why += fmt::format("; {} is switched off", algorithms);
    return {off ? Effect::contradictory : Effect::missing, "NCCL_ALGO", value_in(context.environment, "NCCL_ALGO"),
            std::move(why)};
}

void add_channel_contradictions(const LintContext& context, std::vector<LintRow>& rows) {
    const auto number = [&](std::string_view key) { return number_in(value_in(context.accepted, key)); };
    const auto add = [&](std::string_view key, std::string what) {
        rows.push_back({Effect::contradictory, std::string(key), value_in(context.environment, key), std::move(what)});
    };
    const int min = number("NCCL_MIN_NCHANNELS"), max = number("NCCL_MAX_NCHANNELS");
    if (max > 0 && min > max)
        add("NCCL_MIN_NCHANNELS",
            fmt::format("larger than NCCL_MAX_NCHANNELS={}: NCCL keeps {} channels and copies them up to {}", max, max,
                        min));
    const int min_ctas = number("NCCL_MIN_CTAS"), max_ctas = number("NCCL_MAX_CTAS");
    if (max_ctas > 0 && min_ctas > max_ctas)
        add("NCCL_MIN_CTAS", fmt::format("larger than NCCL_MAX_CTAS={}: NCCL uses {} for both", max_ctas, max_ctas));
    if (max > 0 && max_ctas > 0 && max != max_ctas)
        add("NCCL_MAX_CTAS", fmt::format("NCCL_MAX_NCHANNELS={} is set too: NCCL takes the smaller one", max));
}

}  // namespace

std::string algorithms_listed(const std::vector<Combination>& open) {
    std::string text;
    std::set<Algorithm> seen;
    for (const Combination& each : open)
        if (seen.insert(each.algorithm).second)
            text += fmt::format("{}{}", text.empty() ? "" : ", ", name(each.algorithm));
    return text;
}

std::string value_in(const Environment& environment, std::string_view key) {
    const auto place = environment.find(key);
    return place == environment.end() ? std::string() : place->second;
}

bool concerns_sums(std::string_view key) {
    return key.starts_with("NCCL_") || key.starts_with("VLLM_BATCH") || key.starts_with("VLLM_ALLREDUCE") ||
           row_for(key) != nullptr;
}

LintRow row_of_setting(const LintContext& context, const std::string& key, const std::string& value) {
    auto [effect, what] = effect_of(context, key, value);
    return {effect, key, value, std::move(what)};
}

std::vector<LintRow> rows_of_gaps(const LintContext& context) {
    std::vector<LintRow> rows;
    for (const Collective collective : all_collectives) {
        const auto& open = context.open.at(collective);
        if (open.empty()) {
            rows.push_back(row_without_algorithm(context, collective));
        } else if (algorithms_in(open).size() > 1) {
            rows.push_back({Effect::missing, "NCCL_ALGO", value_in(context.environment, "NCCL_ALGO"),
                            fmt::format("{} is not pinned: {} by size; '{}:ring' pins it", name(collective),
                                        algorithms_listed(open),
                                        collective == Collective::all_reduce ? "allreduce" : "reducescatter")});
        }
    }
    add_channel_contradictions(context, rows);
    const bool unset = value_in(context.environment, "NCCL_SYM_KERNEL").empty() &&
                       value_in(context.environment, "NCCL_WIN_ENABLE").empty();
    if (context.settings.symmetric_enabled && unset && context.scope.ranks_per_node == context.scope.ranks)
        rows.push_back({Effect::missing, "NCCL_WIN_ENABLE", "",
                        "AllReduce and ReduceScatter of buffers in symmetric windows take other kernels; 0 forbids "
                        "them (buffers outside windows are not affected)"});
    return rows;
}

const Environment& vllm_block() {
    static const Environment block{
        {"NCCL_LAUNCH_MODE", "GROUP"}, {"NCCL_COLLNET_ENABLE", "0"},        {"NCCL_NVLS_ENABLE", "0"},
        {"NCCL_P2P_NET_DISABLE", "1"}, {"NCCL_MIN_NCHANNELS", "1"},         {"NCCL_MAX_NCHANNELS", "1"},
        {"NCCL_PROTO", "Simple"},      {"NCCL_ALGO", "allreduce:tree"},     {"NCCL_NTHREADS", "1"},
        {"NCCL_SOCKET_NTHREADS", "1"}, {"VLLM_ALLREDUCE_USE_SYMM_MEM", "0"}};
    return block;
}

std::vector<std::string_view> known_blocks(const Environment& environment) {
    const auto has = [&](std::string_view key, std::string_view value) {
        return same_word(value_in(environment, key), value);
    };
    std::vector<std::string_view> blocks;
    const bool tree = has("NCCL_ALGO", "allreduce:tree");
    const std::string min = value_in(environment, "NCCL_MIN_NCHANNELS");
    const bool fixed = !min.empty() && min == value_in(environment, "NCCL_MAX_NCHANNELS");
    if (has("VLLM_BATCH_INVARIANT", "1"))
        blocks.emplace_back("vLLM's batch-invariant block");
    else if (tree && min == "1" && fixed && has("NCCL_PROTO", "simple"))
        blocks.emplace_back("the block of vLLM's batch-invariant mode, as torchtitan and others copy it");
    else if (tree && fixed)
        blocks.emplace_back("SGLang's deterministic mode (allreduce:tree, fixed channels)");
    else if (tree)
        blocks.emplace_back("SGLang's deterministic mode before it fixed the channels (allreduce:tree)");
    if (has("NCCL_ALGO", "ring"))
        blocks.emplace_back(value_in(environment, "NVTE_ALLOW_NONDETERMINISTIC_ALGO") == "0"
                                ? "Megatron's deterministic mode (Ring only)"
                                : "Ring only, as Megatron's deterministic mode");
    if (has("NCCL_ALGO", "tree")) blocks.emplace_back("Tree for every function");
    if (has("NCCL_ALGO", "^nvls")) blocks.emplace_back("PyTorch's deterministic mode (^NVLS)");
    return blocks;
}

}  // namespace samesum
