#!/usr/bin/env bash
# Runs everything that needs a GPU: orders revealed and predicted, arithmetic, properties, planted faults, kernels under
# compute-sanitizer, speeds. Usage: tests/gpu/gpu_session.sh BUILD_FOLDER OUTPUT_FOLDER [part ...]
# SPDX-License-Identifier: Apache-2.0
#
# Runs on any machine with a GPU. If NCCL's library is not where the build found it, set LD_LIBRARY_PATH. Parts: forced,
# free, grouped, captured, nodes, arithmetic, properties, faults, tests, sanitizer, speed, bench, fuzz, large, torch,
# many, domain; default: all but the last three. `torch` needs PyTorch with CUDA. `domain` repeats the main parts with
# one rank on each GPU of one NVLink domain: made for four and eight GPUs, needs two. FUZZ_SECONDS is the time of fuzz.
set -uo pipefail

build=${1:?usage: gpu_session.sh BUILD_FOLDER OUTPUT_FOLDER [part ...]}
out=${2:?usage: gpu_session.sh BUILD_FOLDER OUTPUT_FOLDER [part ...]}
shift 2
parts=${*:-forced free grouped captured nodes arithmetic properties faults tests sanitizer speed bench fuzz large}
here=$(dirname "$(readlink -f "$0")")
impl=$build/samesum-impl
mkdir -p "$out"
log=$out/session.log
gpus=$(nvidia-smi -L | wc -l)
failed=0

# step LIMIT COMMAND: runs a command for at most LIMIT seconds, logs its output, counts a failure and goes on.
step() {
    local limit=$1 begin=$SECONDS
    shift
    echo "## $*" >>"$log"
    timeout "$limit" "$@" >>"$log" 2>&1
    local code=$?
    [ $code -eq 0 ] || failed=$((failed + 1))
    echo "exit $code after $((SECONDS - begin)) s: ${*##*/}" | tee -a "$log"
}
reveal() { step "$1" "$impl" reveal --timeout 30 "${@:2}"; }

{
    date -u +"# %Y-%m-%d"
    nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader | sed 's/^/# /'
    env | grep -E '^(NCCL|CUDA)_' | sort | sed 's/^/# /'
} >>"$log"

for part in $parts; do
    case $part in
    forced) # every algorithm and protocol, forced, where NCCL has them
        formats=float32,bfloat16,float16
        for ranks in 2 3 4 5 6 7 8; do
            reveal 60 --ranks $ranks --algo ring --proto ll,ll128,simple --dtype $formats \
                --calls "reduce:$((ranks - 1)):5,reduce:0:20000,rs:5000,ar:5,ar:30001" \
                --records "$out/forced-$ranks-ring.jsonl"
            reveal 60 --ranks $ranks --algo tree --proto ll,ll128,simple --dtype $formats --calls ar:5,ar:30001 \
                --records "$out/forced-$ranks-tree.jsonl"
            reveal 60 --ranks $ranks --algo pat --proto simple --dtype $formats --calls rs:5,rs:5000,rs:40000 \
                --records "$out/forced-$ranks-pat.jsonl"
        done
        cat "$out"/forced-?-*.jsonl >"$out/forced.jsonl" && rm "$out"/forced-?-*.jsonl
        # What NCCL does not have must be skipped with NCCL's message, never passed.
        reveal 60 --ranks 2 --algo tree --calls reduce:0:100,rs:100,ar:100
        ;;
    free) # NCCL's own choices, counts around the thresholds of its cost model
        calls=
        for count in 1 7 100 1000 4096 8192 16384 32768 65536 131072 262144 1048576; do
            calls+=reduce:1:$count,rs:$count,ar:$count,
        done
        reveal 200 --ranks 2,4,8 --dtype float32 --calls "$calls" --records "$out/free.jsonl"
        reveal 100 --ranks 3,6,8 --dtype bfloat16,float16 --calls reduce:2:100000,rs:30000,ar:1000,ar:100000 \
            --records "$out/free-16-bits.jsonl"
        ;;
    many) # more ranks than cores; not among the default parts
        reveal 300 --ranks 12,16,20 --dtype float32 --calls reduce:3:30000,rs:3000,ar:3000,ar:100000 \
            --records "$out/free-many-ranks.jsonl"
        ;;
    grouped) # calls of one group share algorithm and protocol, and continue on the next channel
        reveal 100 --ranks 4,8 --dtype float32 --algo ring --proto ll,simple --records "$out/grouped.jsonl" \
            --calls "ar:1000;ar:3000;ar:9000,ar:5000;ar:5000;ar:5000,rs:1000;ar:9000;reduce:2:50000,reduce:0:70000;reduce:1:300;reduce:2:70000;reduce:3:1"
        ;;
    captured) # the same calls from a CUDA graph
        reveal 100 --ranks 4,8 --captured --dtype float32,bfloat16 --records "$out/captured.jsonl" \
            --calls "reduce:1:300,reduce:1:100000,rs:300,rs:30000,ar:300,ar:30000,ar:1000000,ar:1000;ar:3000;ar:9000"
        ;;
    nodes) # nodes of two ranks, rings that differ between channels
        if [ "$gpus" -lt 2 ]; then
            echo "skipped: nodes: one GPU cannot hold a node of two ranks" | tee -a "$log"
            continue
        fi
        graph=$here/../golden/observed/graph-reversed-second-channel.xml
        for unequal in "" "--graph-file $graph --graph-label rev2"; do
            # shellcheck disable=SC2086
            reveal 200 --ranks 4,8 --ranks-per-node 2 --algo ring,tree,pat --proto ll,ll128,simple $unequal \
                --dtype float32,bfloat16,float16 --calls "reduce:0:300,reduce:3:262144,rs:5000,ar:5,ar:100000" \
                --records "$out/nodes${unequal:+-unequal-rings}.jsonl"
        done
        step 200 "$impl" run --properties --ranks 8 --ranks-per-node 2 --json "$out/properties-8-in-nodes-of-2.json"
        step 100 "$impl" run --properties --by-node 2 --ranks 8 --ranks-per-node 2 --dtype bfloat16,float32 \
            --scheme exchange_ordered,direct_ordered --json "$out/properties-by-node.json"
        # shellcheck disable=SC2086
        step 200 "$impl" run --properties --ranks 8 --ranks-per-node 2 --hidden 4096 --scheme fixed_root \
            --graph-file "$graph" --json "$out/properties-unequal-rings.json"
        ;;
    arithmetic)
        reveal 100 --arithmetic --dtype float64,float32,float16,bfloat16,float8_e4m3,float8_e5m2 \
            --json "$out/arithmetic.json"
        ;;
    properties)
        step 100 "$impl" run --properties --ranks 2 --json "$out/properties-2.json"
        step 100 "$impl" run --properties --ranks 3 --dtype bfloat16,float32 --cases 3 --json "$out/properties-3.json"
        step 200 "$impl" run --properties --ranks 4 --cases 2 --hidden 256 --json "$out/properties-4.json" \
            --dtype float32,float16,bfloat16,float64,float8_e4m3,float8_e5m2
        step 200 "$impl" run --properties --ranks 8 --json "$out/properties-8.json" --dtype bfloat16,float16
        ;;
    faults) # each must be found and named
        for fault in root_is_owner root_copy_on_other_stream; do
            step 60 "$build/samesum-impl-faulty" run --properties --ranks 4 --cases 2 --hidden 256 \
                --scheme fixed_root --fault $fault
        done
        for fault in offset_by_one_row missing_wait ring_order fp32_instead_of_per_hop stale_receive_buffer \
            sizes_rotated; do
            step 60 "$build/samesum-impl-faulty" run --properties --ranks 4 --cases 2 --hidden 256 \
                --scheme gather_ordered,exchange_ordered --fault $fault
        done
        ;;
    tests)
        step 60 "$build/impl_kernels_test"
        step 200 "$build/impl_gpu_test"
        ;;
    sanitizer)
        sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
        if [ -z "$sanitizer" ]; then
            echo "skipped: sanitizer: compute-sanitizer is not installed" | tee -a "$log"
            continue
        fi
        for tool in memcheck racecheck; do
            step 200 "$sanitizer" --tool $tool --error-exitcode 9 "$build/impl_kernels_test"
        done
        ;;
    speed)
        # The first call includes setting up the connections; the second is the cost of a reveal.
        reveal 60 --ranks 8 --dtype float32 --calls reduce:0:32768,reduce:0:32768,reduce:0:32768
        step 60 "$impl" run --ranks 8 --rows 64 --hidden 2048 --dtype bfloat16 --speed 2 \
            --scheme reduce_scatter,reduce_per_owner,fixed_root,reduce_broadcast,gather_ordered,exchange_ordered,direct_ordered,exact
        ;;
    bench) # one rank on each of two GPUs
        if [ "$gpus" -lt 2 ]; then
            echo "skipped: bench: one GPU has no link to measure" | tee -a "$log"
            continue
        fi
        step 200 "$impl" bench --sizes 8K,64K,512K,2M,16M,128M --json "$out/bench.json" \
            --scheme auto,reduce_scatter,reduce_per_owner,fixed_root,reduce_broadcast,gather_ordered,exchange_ordered,direct_ordered,exact
        # With buffers that NCCL may register when a graph is captured.
        NCCL_LEGACY_CUDA_REGISTER=1 step 100 "$impl" bench --sizes 16M,128M --json "$out/bench-registered.json" \
            --scheme reduce_scatter,exchange_ordered
        ;;
    fuzz) # the nightly campaign, for FUZZ_SECONDS
        step $((${FUZZ_SECONDS:-600} + 120)) "$build/samesum-fuzz" fuzz --backend nccl --ranks 2,4,8 \
            --seconds "${FUZZ_SECONDS:-600}" --json "$out/fuzz.json" --junit "$out/fuzz.xml"
        ;;
    domain)
        # Orders of 4 KiB to 16 MiB element by element; larger buffers by bench's comparison with the model.
        calls=
        for count in 1024 8192 65536 524288 4194304; do
            calls+=reduce:0:$count,rs:$((count / gpus)),ar:$count,
        done
        for protocol in ll ll128 simple; do
            reveal 200 --ranks "$gpus" --algo ring --proto $protocol --dtype float32 --calls "$calls" \
                --records "$out/domain-$protocol.jsonl"
        done
        reveal 200 --ranks "$gpus" --dtype float32 --calls "$calls" --records "$out/domain-free.jsonl"
        reveal 200 --ranks "$gpus" --captured --dtype float32 --calls "$calls" --records "$out/domain-captured.jsonl"
        step 300 "$impl" run --properties --ranks "$gpus" --dtype bfloat16 --json "$out/domain-properties.json"
        step 300 "$impl" bench --ranks "$gpus" -b 4K -e 256M -f 4 --json "$out/domain-bench.json"
        step $((${FUZZ_SECONDS:-180} + 120)) "$build/samesum-fuzz" fuzz --backend nccl --ranks "$gpus" \
            --seconds "${FUZZ_SECONDS:-180}" --json "$out/domain-fuzz.json"
        ;;
    torch) # PyTorch's collectives under the drop-in NCCL, combines of torch tensors, 32 prompts alone and in a batch
        library=$build/libsamesum-nccl.so.2
        export PYTHONPATH=$build/python${PYTHONPATH:+:$PYTHONPATH} SAMESUM_NCCL_LIBRARY=$library
        step 200 python3 "$here/gpu_dropin.py" --library "$library" --mps --json "$out/dropin.json"
        step 450 python3 "$here/gpu_dropin_faults.py" --library "$library"
        step 200 python3 "$here/gpu_combiner.py" --json "$out/combiner.json"
        step 200 python3 -m samesum.torch.batch_invariance --json "$out/batch-invariance.json"
        ;;
    large) # more than 2^31 bytes
        step 200 "$impl" run --ranks 2 --rows 2 --hidden 600000000 --dtype bfloat16 --timeout 100 \
            --scheme fixed_root,exchange_ordered,direct_ordered
        ;;
    *)
        echo "part $part: expected one of the parts listed at the top of gpu_session.sh" >&2
        exit 2
        ;;
    esac
done
grep -E '^(predicted|fault|[0-9]+ of [0-9]+ claims)' "$log"
echo "$failed steps failed"
[ $failed -eq 0 ]
