# PyTorch's own collectives on real NCCL under libsamesum-nccl: a token has the same bits on every owner, per policy.
# SPDX-License-Identifier: Apache-2.0
#
#   python3 tests/gpu/gpu_dropin.py --library build/release/libsamesum-nccl.so.2 [--json FILE]
#
# Needs torch with CUDA and one GPU: 4 and 8 ranks share it, each with its own NCCL_HOSTID. The controls, without the
# drop-in and with it but without a policy, must show that bits depend on owner and count, else nothing is proved.
# Prints PASS or FAIL for each check; exit 0 if all passed, else 1.
import argparse
import contextlib
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from datetime import timedelta

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "impl", "torch"))
from _mps import private_mps  # noqa: E402, the package samesum.torch need not be built

TOKENS, HIDDEN = 256, 2048
TIMEOUT_S = 60


# --- Work of the ranks ---------------------------------------------------------------------------------------------


def partials(torch, ranks, dtype):
    """[ranks, TOKENS, HIDDEN], the same on every rank. The ranks' magnitudes differ, so that the order is visible."""
    generator = torch.Generator().manual_seed(20260)
    values = torch.randn(ranks, TOKENS, HIDDEN, generator=generator)
    scale = torch.exp2(torch.arange(ranks, dtype=torch.float32) % 4 - 1).reshape(ranks, 1, 1)
    return (values * scale).to(getattr(torch, dtype))


def placements(torch, ranks):
    """The token of each row, for buffers of equal parts."""
    generator = torch.Generator().manual_seed(7)
    every = torch.arange(TOKENS)
    return {
        "as they come": every,
        "next owner": every.roll(TOKENS // ranks),
        "shuffled": torch.randperm(TOKENS, generator=generator),
        "one a rank": torch.arange(ranks).flip(0),
        "some": torch.randperm(32, generator=generator),
    }


def ragged_sizes(ranks):
    return [1 + (5 * rank) % 7 for rank in range(ranks)]


def row_sets(torch):
    return {
        "all rows": torch.arange(TOKENS),
        "32 rows": torch.arange(31, -1, -1),
        "3 rows": torch.arange(3),
        "1 row": torch.tensor([2]),
    }


def rank_work(torch, dist, rank, ranks, short):
    """All results of this rank, by name."""
    found = {}
    dtypes = ["bfloat16"] if short else ["bfloat16", "float32"]
    for dtype in dtypes:
        mine = partials(torch, ranks, dtype)[rank].cuda()
        for name, rows in placements(torch, ranks).items():
            if dtype == "float32" and name in ("shuffled", "some"):
                continue
            buffer = mine[rows.cuda()].contiguous()
            own = len(rows) // ranks
            out = torch.full((own, HIDDEN), 7.0, dtype=buffer.dtype, device="cuda")
            dist.reduce_scatter_tensor(out, buffer)
            found[f"{dtype} reduce_scatter {name}"] = out.cpu()
        for name, rows in row_sets(torch).items():
            buffer = mine[rows.cuda()].contiguous()
            dist.all_reduce(buffer)
            found[f"{dtype} all_reduce {name}"] = buffer.cpu()
        buffer = mine[7, : HIDDEN - 1].clone()
        dist.all_reduce(buffer)
        found[f"{dtype} all_reduce odd"] = buffer.cpu()
        if dtype != "bfloat16":
            continue
        buffer = mine[:32].clone()
        own = buffer[rank * 32 // ranks : (rank + 1) * 32 // ranks]
        dist.reduce_scatter_tensor(own, buffer)
        found["bfloat16 reduce_scatter in place"] = own.cpu()
        if short:
            continue
        # For parts of different sizes PyTorch calls one ncclReduce for each owner in one group, as vLLM does.
        sizes = ragged_sizes(ranks)
        parts = [part.contiguous() for part in mine[: sum(sizes)].split(sizes)]
        out = torch.full_like(parts[rank], 7.0)
        dist.reduce_scatter(out, parts)
        found["bfloat16 reduce_scatter ragged"] = out.cpu()
        for root in (0, ranks - 1):
            buffer = mine[:32].clone()
            dist.reduce(buffer, dst=root)
            if rank == root:
                found[f"bfloat16 reduce to {'first' if root == 0 else 'last'}"] = buffer.cpu()
        found.update(captured(torch, dist, mine, rank, ranks))
    return found


def captured(torch, dist, mine, rank, ranks):
    """The same calls in a CUDA graph, launched on two different inputs."""
    reduced, scattered = mine[:32].clone(), mine[:32].clone()
    out = torch.empty(32 // ranks, HIDDEN, dtype=mine.dtype, device="cuda")

    def work():
        dist.all_reduce(reduced)
        dist.reduce_scatter_tensor(out, scattered)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    found = {}
    for name, first in (("first", 0), ("second", 32)):
        reduced.copy_(mine[first : first + 32])
        scattered.copy_(mine[first : first + 32])
        out.fill_(7.0)
        graph.replay()
        torch.cuda.synchronize()
        found[f"captured all_reduce {name}"] = reduced.cpu()
        found[f"captured reduce_scatter {name}"] = out.cpu()
    return found


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


def load_dropin(library):
    lib = ctypes.CDLL(library)
    pointer, number = ctypes.c_void_p, ctypes.c_size_t
    lib.ncclAllReduce.argtypes = [pointer, pointer, number, ctypes.c_int, ctypes.c_int, pointer, pointer]
    if hasattr(lib, "samesumCombine"):
        lib.samesumLastError.restype = ctypes.c_char_p
        lib.samesumCombine.argtypes = [pointer, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64),
                                       ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_int, pointer, pointer,
                                       pointer]
    return lib


def communicator(lib, ranks, rank, share):
    ident = UniqueId()
    if rank == 0 and lib.ncclGetUniqueId(ctypes.byref(ident)) != 0:
        raise RuntimeError("ncclGetUniqueId failed")
    ident = UniqueId.from_buffer_copy(share(bytes(ident)))
    comm = ctypes.c_void_p()
    result = lib.ncclCommInitRank(ctypes.byref(comm), ranks, ident, rank)
    if result != 0:
        raise RuntimeError(f"ncclCommInitRank: {result}")
    return comm


def combines(torch, dist, lib, rank, ranks):
    """samesumCombine through its C interface, on ragged rows with an empty part."""

    def share(text):
        box = [text]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    comm = communicator(lib, ranks, rank, share)
    sizes = ragged_sizes(ranks)
    sizes[1] = 0
    rows = sum(sizes)
    mine = partials(torch, ranks, "bfloat16")[rank, :rows].cuda().contiguous()
    found = {}
    for scheme in ("fixed_root", "gather_ordered", "exchange_ordered", "direct_ordered", "auto"):
        out = torch.full((sizes[rank], HIDDEN), 7.0, dtype=mine.dtype, device="cuda")
        result = lib.samesumCombine(comm, scheme.encode(), b"per_hop", (ctypes.c_uint64 * ranks)(*sizes), ranks, HIDDEN,
                                    9, 0, mine.data_ptr(), out.data_ptr(), torch.cuda.current_stream().cuda_stream)
        torch.cuda.synchronize()
        if result != 0:
            raise RuntimeError(f"samesumCombine {scheme}: {result}, {lib.samesumLastError().decode()}")
        found[f"samesumCombine {scheme}"] = out.cpu()
    result = lib.samesumCombine(comm, b"nonsense", b"per_hop", (ctypes.c_uint64 * ranks)(*sizes), ranks, HIDDEN, 9, 0,
                                mine.data_ptr(), mine.data_ptr(), 0)
    found["samesumCombine nonsense"] = (result, lib.samesumLastError().decode())
    lib.ncclCommFinalize(comm)
    lib.ncclCommDestroy(comm)
    return found


def by_path(torch, dist, library, rank, ranks):
    """The library loaded by its path beside PyTorch's own NCCL, as vLLM does with VLLM_NCCL_SO_PATH: an all-reduce, and
    a group of ncclReduces from one buffer, one for each owner."""
    os.environ["SAMESUM_POLICY"] = "ordered"
    lib = load_dropin(library)
    pointer, number = ctypes.c_void_p, ctypes.c_size_t
    lib.ncclReduce.argtypes = [pointer, pointer, number, ctypes.c_int, ctypes.c_int, ctypes.c_int, pointer, pointer]

    def share(text):
        box = [text]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def check(what, result):
        if result != 0:
            raise RuntimeError(f"{what}: {result}, {lib.samesumLastError().decode()}")

    comm = communicator(lib, ranks, rank, share)
    stream = torch.cuda.current_stream().cuda_stream
    sizes = ragged_sizes(ranks)
    mine = partials(torch, ranks, "bfloat16")[rank, : sum(sizes)].cuda().contiguous()
    whole = torch.full_like(mine, 7.0)
    own = torch.full((sizes[rank], HIDDEN), 7.0, dtype=mine.dtype, device="cuda")
    check("ncclAllReduce", lib.ncclAllReduce(mine.data_ptr(), whole.data_ptr(), mine.numel(), 9, 0, comm, stream))
    check("ncclGroupStart", lib.ncclGroupStart())
    row = 0
    for root, size in enumerate(sizes):
        part = mine[row].data_ptr()
        check("ncclReduce", lib.ncclReduce(part, own.data_ptr(), size * HIDDEN, 9, 0, root, comm, stream))
        row += size
    check("ncclGroupEnd", lib.ncclGroupEnd())
    torch.cuda.synchronize()
    found = {"by path all_reduce": whole.cpu(), "by path reduce per owner": own.cpu()}
    lib.ncclCommDestroy(comm)
    return found


def overhead(torch, lib):
    """ns of one host call of ncclAllReduce with count 0 on one rank. NCCL returns at once, so the time is that of the
    call itself, including ctypes."""
    comm = communicator(lib, 1, 0, lambda text: text)
    data = torch.zeros(4, device="cuda")
    stream = torch.cuda.current_stream().cuda_stream
    call, address = lib.ncclAllReduce, data.data_ptr()
    rounds = []
    for _ in range(30):
        begin = time.perf_counter_ns()
        for _ in range(500):
            call(address, address, 0, 7, 0, comm, stream)
        rounds.append((time.perf_counter_ns() - begin) / 500)
    lib.ncclCommDestroy(comm)
    rounds.sort()
    return {"min": rounds[0], "median": rounds[len(rounds) // 2]}


def rank_main(torch, launch, rank, library, folder):
    import torch.distributed as dist

    ranks, policy = launch["ranks"], launch["environment"].get("SAMESUM_POLICY", "")
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=rank, world_size=ranks,
                            timeout=timedelta(seconds=TIMEOUT_S))
    found = rank_work(torch, dist, rank, ranks, launch.get("short", False))
    torch.cuda.synchronize()
    if launch["preloaded"] and policy == "" and ranks == 4:
        found.update(combines(torch, dist, load_dropin(library), rank, ranks))
    if launch.get("by_path"):
        found.update(by_path(torch, dist, library, rank, ranks))
    if launch["preloaded"] and ranks == 4 and policy in ("", "observe") and not launch.get("short"):
        dist.barrier()
        if rank == 0:
            found["overhead dropin"] = overhead(torch, load_dropin(library))
            found["overhead real"] = overhead(torch, load_dropin("libnccl.so.2"))
        dist.barrier()
    torch.save(found, f"{folder}/{rank}.part")
    os.rename(f"{folder}/{rank}.part", f"{folder}/{rank}.found")
    if launch.get("refuses"):
        # Last, because some releases of PyTorch end the process after an error of NCCL.
        try:
            dist.all_reduce(torch.ones(8, device="cuda"), op=dist.ReduceOp.AVG)
            torch.cuda.synchronize()
            open(f"{folder}/{rank}.averaged", "w").close()
        except Exception as error:  # noqa: BLE001
            print(f"refused: {error}", file=sys.stderr)
    time.sleep(0.8)  # observe writes every half second
    sys.stderr.flush()
    os._exit(0)


# --- Launches: one start of Python and torch for all of them --------------------------------------------------------


def run_launch(torch, launch, library):
    folder = tempfile.mkdtemp(prefix="samesum-dropin-")
    begin = time.monotonic()
    children = []
    for rank in range(launch["ranks"]):
        child = os.fork()
        if child == 0:
            os.dup2(os.open(f"{folder}/{rank}.err", os.O_WRONLY | os.O_CREAT, 0o644), 2)
            os.environ.update(launch["environment"])
            os.environ.update({"NCCL_HOSTID": f"dropin-{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_NVLS_ENABLE": "0",
                               "OMP_NUM_THREADS": "1"})
            if launch["environment"].get("SAMESUM_POLICY") == "observe":
                os.environ["SAMESUM_CALLS"] = f"{folder}/calls.%p.jsonl"
            torch.set_num_threads(1)
            try:
                rank_main(torch, launch, rank, library, folder)
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
                sys.stderr.flush()
            os._exit(1)
        children.append(child)
    alive = set(children)
    while alive and time.monotonic() - begin < TIMEOUT_S:
        done, _ = os.waitpid(-1, os.WNOHANG)
        alive.discard(done)
        # When a rank fails, the others would wait for it.
        failed = [r for r in range(launch["ranks"])
                  if children[r] not in alive and not os.path.exists(f"{folder}/{r}.found")]
        if failed:
            time.sleep(1)
            break
        time.sleep(0.05)
    for child in alive:
        os.kill(child, 9)
        os.waitpid(child, 0)
    found = []
    for rank in range(launch["ranks"]):
        path = f"{folder}/{rank}.found"
        found.append(torch.load(path, weights_only=False) if os.path.exists(path) else None)
    errors = [open(f"{folder}/{rank}.err", errors="replace").read() for rank in range(launch["ranks"])]
    averaged = [rank for rank in range(launch["ranks"]) if os.path.exists(f"{folder}/{rank}.averaged")]
    calls = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.startswith("calls."))
    return {"launch": launch, "found": found, "errors": errors, "averaged": averaged, "calls": calls,
            "seconds": time.monotonic() - begin}


def run_launches(library, launches, target):
    """Runs in its own process, with or without the drop-in preloaded; only its children use CUDA."""
    import torch

    torch.save([run_launch(torch, launch, library) for launch in launches], target)


# --- Checks of the results -----------------------------------------------------------------------------------------


class Checks:
    def __init__(self):
        self.lines = []

    def __call__(self, name, passed, detail=""):
        self.lines.append({"check": name, "passed": bool(passed), "detail": str(detail)})
        print(f"{'PASS' if passed else 'FAIL'}  {name}{'' if not detail else ': ' + str(detail)}", flush=True)


def same(torch, a, b):
    kind = torch.int16 if a.element_size() == 2 else torch.int32
    return a.shape == b.shape and torch.equal(a.contiguous().view(kind), b.contiguous().view(kind))


def differing(torch, a, b):
    kind = torch.int16 if a.element_size() == 2 else torch.int32
    return int((a.contiguous().view(kind) != b.contiguous().view(kind)).sum())


def tokens_of(torch, found, ranks, name, rows):
    """The call's result for each token: {token: its row}."""
    whole = torch.cat([found[rank][name] for rank in range(ranks)])
    return {int(token): whole[place] for place, token in enumerate(rows)}


def host_sum(torch, values, order, once):
    total = values[order[0]].float() if once else values[order[0]]
    for rank in order[1:]:
        total = total + (values[rank].float() if once else values[rank])
    return total.to(values.dtype)


def sums_by_call(torch, found, ranks, dtype):
    """{call: {token: row}} for every call that summed tokens of this dtype."""
    sums = {}
    for name, rows in placements(torch, ranks).items():
        if f"{dtype} reduce_scatter {name}" in found[0]:
            sums[f"reduce_scatter {name}"] = tokens_of(torch, found, ranks, f"{dtype} reduce_scatter {name}", rows)
    for name, rows in row_sets(torch).items():
        if f"{dtype} all_reduce {name}" in found[0]:
            whole = found[0][f"{dtype} all_reduce {name}"]
            sums[f"all_reduce {name}"] = {int(token): whole[place] for place, token in enumerate(rows)}
    if dtype != "bfloat16":
        return sums
    sums["reduce_scatter in place"] = tokens_of(torch, found, ranks, "bfloat16 reduce_scatter in place", range(32))
    if "bfloat16 reduce_scatter ragged" in found[0]:
        sums["reduce_scatter ragged"] = tokens_of(torch, found, ranks, "bfloat16 reduce_scatter ragged",
                                                  range(sum(ragged_sizes(ranks))))
        for root, word in ((0, "first"), (ranks - 1, "last")):
            whole = found[root][f"bfloat16 reduce to {word}"]
            sums[f"reduce to {word}"] = {token: whole[token] for token in range(32)}
        for turn, first in (("first", 0), ("second", 32)):
            rows = range(first, first + 32)
            sums[f"captured reduce_scatter {turn}"] = tokens_of(torch, found, ranks,
                                                                f"captured reduce_scatter {turn}", rows)
            whole = found[0][f"captured all_reduce {turn}"]
            sums[f"captured all_reduce {turn}"] = {token: whole[place] for place, token in enumerate(rows)}
    return sums


def differences_between_calls(torch, sums):
    """Tokens to which two calls gave different bits, and the first such pair of calls."""
    seen, differ, example = {}, set(), ""
    for call, tokens in sums.items():
        for token, row in tokens.items():
            if token not in seen:
                seen[token] = (call, row)
            elif not same(torch, seen[token][1], row):
                differ.add(token)
                example = example or (f"token {token}: {differing(torch, seen[token][1], row)} elements differ between "
                                      f"{seen[token][0]} and {call}")
    return differ, example


def check_order(torch, checks, title, ranks, found, policy, once):
    """The same bits in all calls, and those of the host's sum; without a replacing policy (control) different bits."""
    orders = {"fixed_root": [*range(1, ranks), 0], "ordered": list(range(ranks)), "direct": list(range(ranks))}
    for dtype in ("bfloat16", "float32"):
        sums = sums_by_call(torch, found, ranks, dtype)
        if not sums:
            continue
        differ, example = differences_between_calls(torch, sums)
        if policy not in orders:
            checks(f"{title}: {dtype} bits depend on owner or count (control)", differ, f"{len(differ)} tokens differ")
            continue
        values = partials(torch, ranks, dtype)
        checks(f"{title}: {dtype} tokens have the same bits in all {len(sums)} calls", not differ, example)
        expected = host_sum(torch, values, orders[policy], once)
        wrong = [f"{call}, token {token}" for call, tokens in sums.items() for token, row in tokens.items()
                 if not same(torch, row, expected[token])]
        odd = found[0][f"{dtype} all_reduce odd"]
        if not same(torch, odd, expected[7, : HIDDEN - 1]):
            wrong.append("all_reduce odd")
        order = "0, 1, 2, ..." if policy != "fixed_root" else "1, 2, ..., 0"
        checks(f"{title}: {dtype} equals the host's sum of ranks {order}", not wrong, "; ".join(wrong[:3]))
        other = host_sum(torch, values, list(range(ranks))[::-1], once)
        checks(f"{title}: {dtype} data reveals the order", once or differing(torch, other, expected) > 0)


def check_combines(torch, checks, title, ranks, found):
    sizes = ragged_sizes(ranks)
    sizes[1] = 0
    values = partials(torch, ranks, "bfloat16")[:, : sum(sizes)]
    for scheme in ("fixed_root", "gather_ordered", "exchange_ordered", "direct_ordered", "auto"):
        order = [*range(1, ranks), 0] if scheme == "fixed_root" else list(range(ranks))
        whole = torch.cat([found[rank][f"samesumCombine {scheme}"] for rank in range(ranks)])
        checks(f"{title}: samesumCombine {scheme}", same(torch, whole, host_sum(torch, values, order, False)))
    code, line = found[0]["samesumCombine nonsense"]
    checks(f"{title}: samesumCombine refuses an unknown scheme", code == 5 and "nonsense" in line, line)


def check_by_path(torch, checks, title, ranks, found):
    sizes = ragged_sizes(ranks)
    expected = host_sum(torch, partials(torch, ranks, "bfloat16")[:, : sum(sizes)], list(range(ranks)), False)
    owned = torch.cat([found[rank]["by path reduce per owner"] for rank in range(ranks)])
    checks(f"{title}, library by path: all_reduce in rank order",
           all(same(torch, found[rank]["by path all_reduce"], expected) for rank in range(ranks)))
    checks(f"{title}, library by path: reduce per owner in rank order", same(torch, owned, expected))


def check_launch(torch, checks, result):
    launch, found, errors = result["launch"], result["found"], result["errors"]
    ranks, title = launch["ranks"], launch["title"]
    if any(rank is None for rank in found):
        missing = [rank for rank in range(ranks) if found[rank] is None]
        lines = " / ".join(line for rank in missing[:1] for line in errors[rank].splitlines()[-6:])
        checks(f"{title}: all ranks finish", False, f"ranks {missing} did not: {lines[-600:]}")
        return
    checks(f"{title}: all ranks finish", True, f"{result['seconds']:.1f} s")
    policy = launch["environment"].get("SAMESUM_POLICY", "")
    check_order(torch, checks, title, ranks, found, policy,
                once=launch["environment"].get("SAMESUM_ACCUMULATION") == "fp32_once")
    unequal = [name for name in found[0] if "all_reduce" in name
               and any(not same(torch, found[0][name], found[rank][name]) for rank in range(1, ranks))]
    checks(f"{title}: all_reduce leaves the same bits on all ranks", not unequal, ", ".join(unequal))
    if "samesumCombine auto" in found[0]:
        check_combines(torch, checks, title, ranks, found)
    if launch.get("by_path"):
        check_by_path(torch, checks, title, ranks, found)
    if launch.get("refuses"):
        silent, averaged = [rank for rank in range(ranks) if "by avg over" not in errors[rank]], result["averaged"]
        checks(f"{title}: an average is refused with an error line", not silent and not averaged,
               f"no error line of ranks {silent}, averaged on {averaged}" if silent or averaged else "")
    if policy == "observe":
        check_calls(checks, title, ranks, result["calls"])


def check_calls(checks, title, ranks, files):
    rows = []
    for file in files:
        with open(file) as lines:
            rows.append([json.loads(line) for line in lines])
    names = [[row[2] for row in file if isinstance(row, list)] for file in rows]
    captured_calls = sum(1 for file in rows for row in file if isinstance(row, list) and row[9])
    recorded = [all(name in of_file for name in ("AllReduce", "ReduceScatter", "Reduce")) for of_file in names]
    checks(f"{title}: the call stream is recorded",
           len(files) == ranks and all(recorded) and captured_calls >= 2 * ranks,
           f"{len(files)} files, {sum(map(len, names))} calls, {captured_calls} captured")


def check_overhead(checks, results):
    times = {}
    for result in results:
        policy = result["launch"]["environment"].get("SAMESUM_POLICY", "") or "no policy"
        if result["found"][0] and "overhead dropin" in result["found"][0]:
            times[policy] = {"dropin": result["found"][0]["overhead dropin"],
                             "real": result["found"][0]["overhead real"]}
    for policy, pair in times.items():
        extra = pair["dropin"]["median"] - pair["real"]["median"]
        checks(f"overhead of a call, {policy}: at most 2000 ns", extra <= 2000,
               f"{extra:.0f} ns (median {pair['dropin']['median']:.0f} against {pair['real']['median']:.0f}; "
               f"min {pair['dropin']['min']:.0f} against {pair['real']['min']:.0f})")
    return times


def check_forwarding(torch, checks, results):
    """Without a policy, and under observe, the bits are NCCL's own."""
    plain = {result["launch"]["title"]: result["found"] for result in results
             if result["launch"]["ranks"] == 4 and all(result["found"])}
    control = plain.get("no drop-in, 4 ranks")
    for title in ("no policy, 4 ranks", "observe, 4 ranks"):
        if control is None or title not in plain:
            checks(f"{title}: the same bits as without the drop-in", False, "a launch failed")
            continue
        differ = [name for rank in range(4) for name, value in control[rank].items()
                  if torch.is_tensor(value) and name in plain[title][rank]
                  and not same(torch, value, plain[title][rank][name])]
        checks(f"{title}: the same bits as without the drop-in", not differ, ", ".join(differ[:3]))


def launches_of(policies, ranks_list):
    found = []
    for ranks in ranks_list:
        for policy in policies:
            if ranks > 4 and policy in ("no policy", "observe", "fp32_once", "non-blocking"):
                continue
            environment = {} if policy == "no policy" else {"SAMESUM_POLICY": policy}
            if policy == "fp32_once":
                environment = {"SAMESUM_POLICY": "ordered", "SAMESUM_ACCUMULATION": "fp32_once"}
            if policy == "non-blocking":
                environment = {"SAMESUM_POLICY": "ordered", "TORCH_NCCL_USE_COMM_NONBLOCKING": "1"}
            found.append({"title": f"{policy}, {ranks} ranks", "ranks": ranks, "environment": environment,
                          "preloaded": True, "short": policy in ("fp32_once", "non-blocking"),
                          "refuses": ranks == 4 and policy in ("fixed_root", "ordered", "direct")})
    return found


def start(library, launches, preload):
    """Runs these launches in a new process and returns their results."""
    with tempfile.TemporaryDirectory() as folder:
        target = f"{folder}/results"
        environment = dict(os.environ)
        for name in list(environment):
            if name.startswith(("SAMESUM_", "NCCL_")):
                del environment[name]
        if preload:
            environment["LD_PRELOAD"] = library
        process = subprocess.run([sys.executable, os.path.abspath(__file__), "--launches", json.dumps(launches),
                                  "--library", library, "--target", target], env=environment, check=False)
        if process.returncode != 0 or not os.path.exists(target):
            print(f"FAIL  the process {'with' if preload else 'without'} the drop-in ended with {process.returncode}")
            return None
        import torch

        return torch.load(target, weights_only=False)


def main():
    parser = argparse.ArgumentParser(description="PyTorch's collectives under libsamesum-nccl, on one GPU")
    parser.add_argument("--library", required=True, help="libsamesum-nccl.so.2")
    parser.add_argument("--json", help="the checks and the overhead as JSON")
    parser.add_argument("--policies", default="no policy,observe,fixed_root,ordered,direct,fp32_once,non-blocking")
    parser.add_argument("--ranks", default="4,8")
    parser.add_argument("--mps", action="store_true", help="start an MPS daemon: ranks of a GPU run at the same time")
    parser.add_argument("--launches", help=argparse.SUPPRESS)
    parser.add_argument("--target", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    library = os.path.abspath(arguments.library)
    if arguments.launches:
        run_launches(library, json.loads(arguments.launches), arguments.target)
        return 0
    if not os.path.exists(library):
        print(f"--library {arguments.library}: no such file; expected the output of the target samesum_nccl",
              file=sys.stderr)
        return 2
    begin = time.monotonic()
    ranks_list = [int(word) for word in arguments.ranks.split(",")]
    with private_mps() if arguments.mps else contextlib.nullcontext(True) as started:
        if not started:
            print("--mps: nvidia-cuda-mps-control is missing or does not start", file=sys.stderr)
            return 1
        control = [{"title": f"no drop-in, {ranks} ranks", "ranks": ranks, "environment": {}, "preloaded": False,
                    "by_path": True} for ranks in ranks_list]
        without = start(library, control, preload=False)
        under = start(library, launches_of(arguments.policies.split(","), ranks_list), preload=True)
    if without is None or under is None:
        return 1
    import torch

    checks = Checks()
    for result in without + under:
        check_launch(torch, checks, result)
    if "no policy" in arguments.policies and "observe" in arguments.policies and 4 in ranks_list:
        check_forwarding(torch, checks, without + under)
    times = check_overhead(checks, under)
    failed = sum(not line["passed"] for line in checks.lines)
    print(f"{len(checks.lines) - failed} of {len(checks.lines)} checks passed in {time.monotonic() - begin:.0f} s")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"nccl": ".".join(map(str, torch.cuda.nccl.version())), "torch": torch.__version__,
                       "device": torch.cuda.get_device_name(), "environment":
                       ["NCCL_HOSTID=dropin-RANK", "NCCL_NVLS_ENABLE=0", "NCCL_SOCKET_IFNAME=lo"],
                       "checks": checks.lines, "overhead_ns": times, "seconds": time.monotonic() - begin}, file,
                      indent=1)
            file.write("\n")
    return 1 if failed or not checks.lines else 0


if __name__ == "__main__":
    sys.exit(main())
