# PyTorch's own collectives on real NCCL under libsamesum-nccl: the same bits wherever a token lands, for each policy.
# SPDX-License-Identifier: Apache-2.0
#
#   python3 tests/gpu/gpu_dropin.py --library build/release/libsamesum-nccl.so.2 [--json FILE]
#
# Needs torch with CUDA and one GPU: 4 and 8 ranks share it, each with a NCCL_HOSTID of its own. Without the shim, and
# under it without a policy, the control must show that bits do depend on owner and count; else nothing is proved.
# Prints PASS or FAIL for each check; exit 0 when all passed, else 1.
import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from datetime import timedelta

TOKENS, HIDDEN = 256, 2048
PATIENCE_S = 60


# --- What ranks do -------------------------------------------------------------------------------------------------


def partials(torch, ranks, dtype):
    """[ranks, TOKENS, HIDDEN], the same on every rank; the ranks' magnitudes differ, so that orders show."""
    generator = torch.Generator().manual_seed(20260)
    values = torch.randn(ranks, TOKENS, HIDDEN, generator=generator)
    scale = torch.exp2(torch.arange(ranks, dtype=torch.float32) % 4 - 1).reshape(ranks, 1, 1)
    return (values * scale).to(getattr(torch, dtype))


def placements(torch, ranks):
    """Which token lies in which row, for buffers of equal parts."""
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
    """Everything that this rank received, by name."""
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
        # Parts of unlike sizes: PyTorch makes a group of ncclReduces of them, one for each owner, as vLLM does.
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
    """The same calls in a CUDA graph, launched on two inputs."""
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


def shim(library):
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
    """samesumCombine by its C door, on ragged rows with an empty part."""

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
    """As vLLM has it by VLLM_NCCL_SO_PATH: the library loaded by its path beside PyTorch's own NCCL. All-reduce, and a
    group of ncclReduces, one for each owner, out of one buffer."""
    os.environ["SAMESUM_POLICY"] = "ordered"
    lib = shim(library)
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
    """ns of one host call of ncclAllReduce of nothing on one rank: NCCL returns at once, so what is left is the way
    there. By ctypes, whose own cost is in all of them."""
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
                            timeout=timedelta(seconds=PATIENCE_S))
    found = rank_work(torch, dist, rank, ranks, launch.get("short", False))
    torch.cuda.synchronize()
    if launch["preloaded"] and policy == "" and ranks == 4:
        found.update(combines(torch, dist, shim(library), rank, ranks))
    if launch.get("by_path"):
        found.update(by_path(torch, dist, library, rank, ranks))
    if launch["preloaded"] and ranks == 4 and policy in ("", "observe") and not launch.get("short"):
        dist.barrier()
        if rank == 0:
            found["overhead shim"] = overhead(torch, shim(library))
            found["overhead real"] = overhead(torch, shim("libnccl.so.2"))
        dist.barrier()
    torch.save(found, f"{folder}/{rank}.part")
    os.rename(f"{folder}/{rank}.part", f"{folder}/{rank}.found")
    if launch.get("refuses"):
        # The last thing that a rank does: some releases of PyTorch end the process for it.
        try:
            dist.all_reduce(torch.ones(8, device="cuda"), op=dist.ReduceOp.AVG)
            torch.cuda.synchronize()
            open(f"{folder}/{rank}.averaged", "w").close()
        except Exception as error:  # noqa: BLE001
            print(f"refused: {error}", file=sys.stderr)
    time.sleep(0.8)  # observe writes every half second
    sys.stderr.flush()
    os._exit(0)


# --- One start of Python and torch for many launches ---------------------------------------------------------------


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
    while alive and time.monotonic() - begin < PATIENCE_S:
        done, _ = os.waitpid(-1, os.WNOHANG)
        alive.discard(done)
        # One that failed leaves the others waiting.
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


def host(library, launches, target):
    """Runs in a process of its own, preloaded or not: CUDA is touched in its children only."""
    import torch

    torch.save([run_launch(torch, launch, library) for launch in launches], target)


# --- What must hold ------------------------------------------------------------------------------------------------


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
    """What the call made of each token: {token: its row}."""
    whole = torch.cat([found[rank][name] for rank in range(ranks)])
    return {int(token): whole[place] for place, token in enumerate(rows)}


def host_sum(torch, values, order, once):
    total = values[order[0]].float() if once else values[order[0]]
    for rank in order[1:]:
        total = total + (values[rank].float() if once else values[rank])
    return total.to(values.dtype)


def sums_of_tokens(torch, found, ranks, dtype):
    """{how: {token: row}} for every way in which the tokens of this dtype were summed."""
    ways = {}
    for name, rows in placements(torch, ranks).items():
        if f"{dtype} reduce_scatter {name}" in found[0]:
            ways[f"reduce_scatter {name}"] = tokens_of(torch, found, ranks, f"{dtype} reduce_scatter {name}", rows)
    for name, rows in row_sets(torch).items():
        if f"{dtype} all_reduce {name}" in found[0]:
            whole = found[0][f"{dtype} all_reduce {name}"]
            ways[f"all_reduce {name}"] = {int(token): whole[place] for place, token in enumerate(rows)}
    if dtype != "bfloat16":
        return ways
    ways["reduce_scatter in place"] = tokens_of(torch, found, ranks, "bfloat16 reduce_scatter in place", range(32))
    if "bfloat16 reduce_scatter ragged" in found[0]:
        ways["reduce_scatter ragged"] = tokens_of(torch, found, ranks, "bfloat16 reduce_scatter ragged",
                                                  range(sum(ragged_sizes(ranks))))
        for root, word in ((0, "first"), (ranks - 1, "last")):
            whole = found[root][f"bfloat16 reduce to {word}"]
            ways[f"reduce to {word}"] = {token: whole[token] for token in range(32)}
        for turn, first in (("first", 0), ("second", 32)):
            rows = range(first, first + 32)
            ways[f"captured reduce_scatter {turn}"] = tokens_of(torch, found, ranks,
                                                                f"captured reduce_scatter {turn}", rows)
            whole = found[0][f"captured all_reduce {turn}"]
            ways[f"captured all_reduce {turn}"] = {token: whole[place] for place, token in enumerate(rows)}
    return ways


def differences_between_ways(torch, ways):
    """Tokens of which some two ways made different bits, and the first such pair."""
    seen, differ, example = {}, set(), ""
    for how, tokens in ways.items():
        for token, row in tokens.items():
            if token not in seen:
                seen[token] = (how, row)
            elif not same(torch, seen[token][1], row):
                differ.add(token)
                example = example or (f"token {token}: {differing(torch, seen[token][1], row)} elements differ between "
                                      f"{seen[token][0]} and {how}")
    return differ, example


def judge(torch, checks, result):
    launch = result["launch"]
    ranks, title = launch["ranks"], launch["title"]
    found = result["found"]
    if any(rank is None for rank in found):
        missing = [rank for rank in range(ranks) if found[rank] is None]
        words = " / ".join(line for rank in missing[:1] for line in result["errors"][rank].splitlines()[-6:])
        checks(f"{title}: all ranks finish", False, f"ranks {missing} did not: {words[-600:]}")
        return
    checks(f"{title}: all ranks finish", True, f"{result['seconds']:.1f} s")
    policy = launch["environment"].get("SAMESUM_POLICY", "")
    once = launch["environment"].get("SAMESUM_ACCUMULATION") == "fp32_once"
    orders = {"fixed_root": [*range(1, ranks), 0], "ordered": list(range(ranks)), "direct": list(range(ranks))}
    for dtype in ("bfloat16", "float32"):
        ways = sums_of_tokens(torch, found, ranks, dtype)
        if not ways:
            continue
        differ, example = differences_between_ways(torch, ways)
        if policy not in orders:
            checks(f"{title}: {dtype} bits depend on owner or count (control)", differ, f"{len(differ)} tokens differ")
            continue
        values = partials(torch, ranks, dtype)
        checks(f"{title}: {dtype} tokens have the same bits in all {len(ways)} ways", not differ, example)
        expected = host_sum(torch, values, orders[policy], once)
        wrong = [f"{how}, token {token}" for how, tokens in ways.items() for token, row in tokens.items()
                 if not same(torch, row, expected[token])]
        odd = found[0][f"{dtype} all_reduce odd"]
        if not same(torch, odd, expected[7, : HIDDEN - 1]):
            wrong.append("all_reduce odd")
        order = "0, 1, 2, ..." if policy != "fixed_root" else "1, 2, ..., 0"
        checks(f"{title}: {dtype} equals the host's sum of ranks {order}", not wrong, "; ".join(wrong[:3]))
        other = host_sum(torch, values, list(range(ranks))[::-1], once)
        checks(f"{title}: {dtype} data shows the order", once or differing(torch, other, expected) > 0)
    unequal = [name for name in found[0] if "all_reduce" in name
               and any(not same(torch, found[0][name], found[rank][name]) for rank in range(1, ranks))]
    checks(f"{title}: all_reduce leaves the same bits on all ranks", not unequal, ", ".join(unequal))
    if "samesumCombine auto" in found[0]:
        sizes = ragged_sizes(ranks)
        sizes[1] = 0
        values = partials(torch, ranks, "bfloat16")[:, : sum(sizes)]
        for scheme in ("fixed_root", "gather_ordered", "exchange_ordered", "direct_ordered", "auto"):
            order = [*range(1, ranks), 0] if scheme == "fixed_root" else list(range(ranks))
            whole = torch.cat([found[rank][f"samesumCombine {scheme}"] for rank in range(ranks)])
            checks(f"{title}: samesumCombine {scheme}", same(torch, whole, host_sum(torch, values, order, False)))
        code, line = found[0]["samesumCombine nonsense"]
        checks(f"{title}: samesumCombine refuses an unknown scheme", code == 5 and "nonsense" in line, line)
    if launch.get("by_path"):
        sizes = ragged_sizes(ranks)
        expected = host_sum(torch, partials(torch, ranks, "bfloat16")[:, : sum(sizes)], list(range(ranks)), False)
        owned = torch.cat([found[rank]["by path reduce per owner"] for rank in range(ranks)])
        checks(f"{title}, library by path: all_reduce in rank order",
               all(same(torch, found[rank]["by path all_reduce"], expected) for rank in range(ranks)))
        checks(f"{title}, library by path: reduce per owner in rank order", same(torch, owned, expected))
    if launch.get("refuses"):
        quiet = [rank for rank in range(ranks) if "by avg over" not in result["errors"][rank]]
        checks(f"{title}: an average is refused aloud", not quiet and not result["averaged"],
               f"quiet ranks {quiet}, averaged on {result['averaged']}" if quiet or result["averaged"] else "")
    if policy == "observe":
        judge_calls(checks, title, ranks, result["calls"])


def judge_calls(checks, title, ranks, files):
    rows = []
    for file in files:
        with open(file) as lines:
            rows.append([json.loads(line) for line in lines])
    names = [[row[2] for row in file if isinstance(row, list)] for file in rows]
    captured_calls = sum(1 for file in rows for row in file if isinstance(row, list) and row[9])
    checks(f"{title}: the call stream is on file", len(files) == ranks and all("AllReduce" in n and "ReduceScatter" in n
           and "Reduce" in n for n in names) and captured_calls >= 2 * ranks,
           f"{len(files)} files, {sum(map(len, names))} calls, {captured_calls} captured")


def judge_overhead(checks, results):
    times = {}
    for result in results:
        policy = result["launch"]["environment"].get("SAMESUM_POLICY", "") or "no policy"
        if result["found"][0] and "overhead shim" in result["found"][0]:
            times[policy] = {"shim": result["found"][0]["overhead shim"], "real": result["found"][0]["overhead real"]}
    for policy, pair in times.items():
        extra = pair["shim"]["median"] - pair["real"]["median"]
        checks(f"overhead of a call, {policy}: at most 2000 ns", extra <= 2000,
               f"{extra:.0f} ns (median {pair['shim']['median']:.0f} against {pair['real']['median']:.0f}; "
               f"min {pair['shim']['min']:.0f} against {pair['real']['min']:.0f})")
    return times


def judge_forwarding(torch, checks, results):
    """Without a policy, and observed, the bits are NCCL's own."""
    plain = {result["launch"]["title"]: result["found"] for result in results
             if result["launch"]["ranks"] == 4 and all(result["found"])}
    control = plain.get("no shim, 4 ranks")
    for title in ("no policy, 4 ranks", "observe, 4 ranks"):
        if control is None or title not in plain:
            checks(f"{title}: the same bits as without the shim", False, "a launch failed")
            continue
        differ = [name for rank in range(4) for name, value in control[rank].items()
                  if torch.is_tensor(value) and name in plain[title][rank]
                  and not same(torch, value, plain[title][rank][name])]
        checks(f"{title}: the same bits as without the shim", not differ, ", ".join(differ[:3]))


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
    """A process of its own for these launches, and what it found."""
    with tempfile.TemporaryDirectory() as folder:
        target = f"{folder}/results"
        environment = dict(os.environ)
        for name in list(environment):
            if name.startswith(("SAMESUM_", "NCCL_")):
                del environment[name]
        if preload:
            environment["LD_PRELOAD"] = library
        process = subprocess.run([sys.executable, os.path.abspath(__file__), "--host", json.dumps(launches),
                                  "--library", library, "--target", target], env=environment, check=False)
        if process.returncode != 0 or not os.path.exists(target):
            print(f"FAIL  the process with {'the shim' if preload else 'no shim'} ended with {process.returncode}")
            return None
        import torch

        return torch.load(target, weights_only=False)


def main():
    parser = argparse.ArgumentParser(description="PyTorch's collectives under libsamesum-nccl, on one GPU")
    parser.add_argument("--library", required=True, help="libsamesum-nccl.so.2")
    parser.add_argument("--json", help="the checks and the overhead as JSON")
    parser.add_argument("--policies", default="no policy,observe,fixed_root,ordered,direct,fp32_once,non-blocking")
    parser.add_argument("--ranks", default="4,8")
    parser.add_argument("--mps", action="store_true", help="start an MPS daemon: ranks of one GPU run side by side")
    parser.add_argument("--host", help=argparse.SUPPRESS)
    parser.add_argument("--target", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    library = os.path.abspath(arguments.library)
    if arguments.host:
        host(library, json.loads(arguments.host), arguments.target)
        return 0
    if not os.path.exists(library):
        print(f"--library {arguments.library}: no such file; build the target samesum_nccl", file=sys.stderr)
        return 2
    begin = time.monotonic()
    mps = None
    if arguments.mps:
        mps = tempfile.mkdtemp(prefix="samesum-mps-")
        os.environ["CUDA_MPS_PIPE_DIRECTORY"] = os.environ["CUDA_MPS_LOG_DIRECTORY"] = mps
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True)
    try:
        ranks_list = [int(word) for word in arguments.ranks.split(",")]
        control = [{"title": f"no shim, {ranks} ranks", "ranks": ranks, "environment": {}, "preloaded": False,
                    "by_path": True} for ranks in ranks_list]
        without = start(library, control, preload=False)
        under = start(library, launches_of(arguments.policies.split(","), ranks_list), preload=True)
    finally:
        if mps:
            subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", check=False)
    if without is None or under is None:
        return 1
    import torch

    checks = Checks()
    for result in without + under:
        judge(torch, checks, result)
    if "no policy" in arguments.policies and "observe" in arguments.policies and 4 in ranks_list:
        judge_forwarding(torch, checks, without + under)
    times = judge_overhead(checks, under)
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
