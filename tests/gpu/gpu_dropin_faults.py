# libsamesum-nccl on real NCCL when something goes wrong: a rank is killed, streams and graphs mix, graphs are captured
# again and again, communicators start in opposite order, a rank lacks the library.
# SPDX-License-Identifier: Apache-2.0
#
#   python3 tests/gpu/gpu_dropin_faults.py --library build/release/libsamesum-nccl.so.2
#
# Needs torch with CUDA, MPS and one GPU, which 4 ranks share, each with its own NCCL_HOSTID. The library is opened by
# its path beside torch's own NCCL. Prints PASS or FAIL for each check; exit 0 if all passed, else 1.
import argparse
import ctypes
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "impl", "torch"))
from _mps import private_mps  # noqa: E402, the package samesum.torch need not be built

RANKS = 4
LIMIT_S = 40  # of a case
BFLOAT16, SUM = 9, 0


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


class Rank:
    """One rank's process: the library, and what it needs to make communicators and calls."""

    def __init__(self, torch, library, folder, rank):
        self.torch, self.folder, self.rank = torch, folder, rank
        torch.cuda.set_device(0)
        torch.zeros(1, device="cuda")
        self.lib = ctypes.CDLL(library)
        pointer, number = ctypes.c_void_p, ctypes.c_size_t
        self.lib.ncclAllReduce.argtypes = [pointer, pointer, number, ctypes.c_int, ctypes.c_int, pointer, pointer]
        self.lib.ncclGetLastError.restype = ctypes.c_char_p

    def wait_for(self, name):
        while not os.path.exists(f"{self.folder}/{name}"):
            time.sleep(0.01)

    def tell(self, name, data=b""):
        with open(f"{self.folder}/{name}.part", "wb") as file:
            file.write(data)
        os.rename(f"{self.folder}/{name}.part", f"{self.folder}/{name}")

    def meet(self, name):
        self.tell(f"{name}.{self.rank}")
        for rank in range(RANKS):
            self.wait_for(f"{name}.{rank}")

    def init(self, name="id"):
        ident = UniqueId()
        if self.rank == 0:
            self.check("ncclGetUniqueId", self.lib.ncclGetUniqueId(ctypes.byref(ident)))
            self.tell(name, bytes(ident))
        self.wait_for(name)
        with open(f"{self.folder}/{name}", "rb") as file:
            ident = UniqueId.from_buffer_copy(file.read())
        comm = ctypes.c_void_p()
        self.check("ncclCommInitRank", self.lib.ncclCommInitRank(ctypes.byref(comm), RANKS, ident, self.rank))
        return comm

    def check(self, what, result):
        if result != 0:
            raise RuntimeError(f"{what}: {result}, {self.lib.ncclGetLastError(None).decode()}")

    def all_reduce(self, comm, given, result, stream):
        return self.lib.ncclAllReduce(given.data_ptr(), result.data_ptr(), given.numel(), BFLOAT16, SUM, comm,
                                      stream.cuda_stream)

    def values(self, rows, seed):
        """This rank's partial, and the sum in rank order."""
        torch = self.torch
        generator = torch.Generator().manual_seed(seed)
        every = torch.randn(RANKS, rows, 2048, generator=generator) * torch.exp2(
            torch.arange(RANKS, dtype=torch.float32) % 4 - 1).reshape(RANKS, 1, 1)
        every = every.to(torch.bfloat16)
        total = every[0]
        for rank in range(1, RANKS):
            total = total + every[rank]
        return every[self.rank].cuda(), total.cuda()

    def wrong(self, result, expected):
        int16 = self.torch.int16
        return (result.view(int16) != expected.view(int16)).sum()


# --- Cases: each runs on every rank and returns what the checks need --------------------------------------------------


def killed_in_mid_sum(rank):
    """Rank 3 is killed. The others' watchdog aborts 1 s later, while the main thread waits for the sum."""
    torch, comm, stream = rank.torch, rank.init(), rank.torch.cuda.Stream()
    given, _ = rank.values(2048, 1)
    result = torch.empty_like(given)
    rank.check("ncclAllReduce", rank.all_reduce(comm, given, result, stream))
    stream.synchronize()
    rank.meet("ready")
    if rank.rank == RANKS - 1:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    took = {}

    def watchdog():
        time.sleep(1.5)
        begin = time.monotonic()
        took["abort"] = rank.lib.ncclCommAbort(comm), round(time.monotonic() - begin, 2)

    thread = threading.Thread(target=watchdog)
    thread.start()
    calls = [rank.all_reduce(comm, given, result, stream) for _ in range(3)]
    stream.synchronize()
    ended = time.monotonic()
    thread.join()
    # The device works on.
    torch.cuda.synchronize()
    alive = int(torch.ones(1000, device="cuda").sum())
    return {"calls": calls, "abort": took["abort"][0], "seconds": took["abort"][1], "alive": alive,
            "after": round(time.monotonic() - ended, 2)}


def graph_of(rank, work):
    graph = rank.torch.cuda.CUDAGraph()
    with rank.torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work(rank.torch.cuda.current_stream())
    return graph


def graphs_beside_calls(rank):
    """Calls on one stream, replays on two others, nothing between them."""
    torch, comm = rank.torch, rank.init()
    streams = [torch.cuda.Stream() for _ in range(3)]
    sets = [rank.values(rows, 5 + rows) for rows in (64, 256, 32)]
    results = [torch.empty_like(given) for given, _ in sets]
    wrong = [torch.zeros(1, dtype=torch.int64, device="cuda") for _ in sets]

    def work(i, times):
        def calls(stream):
            for _ in range(times):
                results[i].zero_()
                rank.check("ncclAllReduce", rank.all_reduce(comm, sets[i][0], results[i], stream))
                wrong[i].add_(rank.wrong(results[i], sets[i][1]))

        return calls

    with torch.cuda.stream(streams[0]):
        work(0, 1)(streams[0])
    torch.cuda.synchronize()
    graphs = [None, graph_of(rank, work(1, 3)), graph_of(rank, work(2, 2))]
    rank.meet("captured")
    for _ in range(100):
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                work(0, 2)(stream) if i == 0 else graphs[i].replay()
    torch.cuda.synchronize()
    return {"wrong": [int(each) for each in wrong]}


def graphs_captured_again(rank):
    """Free memory of the GPU after a few captures and after many."""
    torch, comm = rank.torch, rank.init()
    given, expected = rank.values(8192, 3)  # 32 MiB
    result, wrong = torch.empty_like(given), 0
    stream = torch.cuda.Stream()
    rank.check("ncclAllReduce", rank.all_reduce(comm, given, result, stream))
    torch.cuda.synchronize()
    free = []
    for turn in range(30):
        result.zero_()
        graph = graph_of(rank, lambda stream: rank.check("ncclAllReduce", rank.all_reduce(comm, given, result, stream)))
        graph.replay()
        torch.cuda.synchronize()
        wrong += int(rank.wrong(result, expected))
        del graph
        if turn in (9, 29):
            rank.meet(f"turn {turn}")
            free.append(torch.cuda.mem_get_info()[0])
            rank.meet(f"measured {turn}")
    return {"wrong": wrong, "grown MiB": (free[0] - free[1]) >> 20}


def opposite_order(rank):
    """Two communicators on two streams. Work before them lets the first start late on even ranks, the other on odd."""
    torch = rank.torch
    comms = [rank.init("first"), rank.init("second")]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    given, expected = rank.values(8192, 4)
    results = [torch.empty_like(given) for _ in comms]
    for comm, result in zip(comms, results):
        rank.check("ncclAllReduce", rank.all_reduce(comm, given, result, streams[0]))
    torch.cuda.synchronize()
    wrong = 0
    for turn in range(10):
        rank.meet(f"turn {turn}")
        with torch.cuda.stream(streams[rank.rank % 2]):
            torch.cuda._sleep(20_000_000)
        for comm, result, stream in zip(comms, results, streams):
            rank.check("ncclAllReduce", rank.all_reduce(comm, given, result, stream))
        torch.cuda.synchronize()
        wrong += sum(int(rank.wrong(result, expected)) for result in results)
    return {"wrong": wrong}


def without_the_library(rank):
    """Only rank 1 calls NCCL itself. It must fail; the others wait for it and are ended."""
    begin = time.monotonic()
    try:
        rank.init()
    except RuntimeError as error:
        return {"error": str(error), "seconds": round(time.monotonic() - begin, 2)}
    return {"error": "", "seconds": 0}


# --- Launches ---------------------------------------------------------------------------------------------------------


def run_case(torch, library, work, environment, awaited=range(RANKS), plain_rank=None):
    """The results of the awaited ranks, None for one that had none in time; the other ranks are killed."""
    folder = tempfile.mkdtemp(prefix="samesum-faults-")
    children = []
    for rank in range(RANKS):
        child = os.fork()
        if child == 0:
            os.dup2(os.open(f"{folder}/{rank}.err", os.O_WRONLY | os.O_CREAT, 0o600), 2)
            os.environ.update({"NCCL_HOSTID": f"faults-{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_NVLS_ENABLE": "0",
                               **environment})
            try:
                found = work(Rank(torch, "libnccl.so.2" if rank == plain_rank else library, folder, rank))
                with open(f"{folder}/{rank}.part", "w") as file:
                    json.dump(found, file)
                os.rename(f"{folder}/{rank}.part", f"{folder}/{rank}.found")
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(0)
        children.append(child)
    begin = time.monotonic()
    alive = dict(enumerate(children))
    while any(rank in alive for rank in awaited) and time.monotonic() - begin < LIMIT_S:
        for rank in list(alive):
            if os.waitpid(alive[rank], os.WNOHANG)[0] != 0:
                del alive[rank]
        time.sleep(0.05)
    for child in alive.values():
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    found = []
    for rank in awaited:
        path = f"{folder}/{rank}.found"
        found.append(json.load(open(path)) if os.path.exists(path) else None)
        if found[-1] is None:
            print(f"rank {rank}: {open(f'{folder}/{rank}.err', errors='replace').read()[-600:]}", file=sys.stderr)
    return found, round(time.monotonic() - begin, 1)


def cases(policies):
    """(name, work, environment, ranks that must end, rank without the library, what must hold of each result)."""
    survivors = range(RANKS - 1)

    def aborted(found):
        return found["abort"] == 0 and found["seconds"] < 10 and found["alive"] == 1000

    def right(found):
        return found["wrong"] in (0, [0, 0, 0])

    for policy in policies:
        environment = {"SAMESUM_POLICY": policy}
        yield f"{policy}: a rank is killed in mid-sum", killed_in_mid_sum, environment, survivors, None, aborted
        if policy == "fixed_root":
            continue
        yield f"{policy}: graphs beside calls", graphs_beside_calls, environment, range(RANKS), None, right
        yield (f"{policy}: graphs captured again and again", graphs_captured_again, environment, range(RANKS), None,
               lambda found: right(found) and found["grown MiB"] < 64)
        yield f"{policy}: two communicators in opposite order", opposite_order, environment, range(RANKS), None, right
    yield ("a rank without the library", without_the_library, {"SAMESUM_POLICY": "ordered"}, [1], 1,
           lambda found: found["error"] != "" and found["seconds"] < 20)


def main():
    parser = argparse.ArgumentParser(description="libsamesum-nccl when something goes wrong, on one GPU")
    parser.add_argument("--library", required=True, help="libsamesum-nccl.so.2")
    parser.add_argument("--policies", default="fixed_root,ordered,direct")
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    arguments = parser.parse_args()
    library = os.path.abspath(arguments.library)
    for name in list(os.environ):
        if name.startswith("SAMESUM_"):
            del os.environ[name]
    import torch

    passed = total = 0
    with private_mps() as started:
        if not started:
            print("nvidia-cuda-mps-control is missing or does not start", file=sys.stderr)
            return 1
        for name, work, environment, awaited, plain_rank, holds in cases(arguments.policies.split(",")):
            if arguments.only not in name:
                continue
            found, seconds = run_case(torch, library, work, environment, awaited, plain_rank)
            good = all(each is not None and holds(each) for each in found)
            print(f"{'PASS' if good else 'FAIL'}  {name}: {seconds} s, {json.dumps(found)}", flush=True)
            passed, total = passed + good, total + 1
    print(f"{passed} of {total} checks passed")
    return 0 if passed == total and total > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
