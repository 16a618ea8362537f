# samesum.torch on a real GPU: the bits of every scheme against the model, CUDA graphs, reused buffers, error messages.
# SPDX-License-Identifier: Apache-2.0
#
#   PYTHONPATH=build/release/python python3 tests/gpu/gpu_combiner.py [--ranks 4] [--json FILE]
#
# Needs torch with CUDA, one GPU, and libsamesum-nccl.so.2 (found as samesum.torch.load_library describes). The ranks
# share the GPU, each with its own NCCL_HOSTID; their process group is gloo's. If the compiled model is missing (built
# for another Python), torch adds on the CPU in the order that the model predicts. Prints PASS or FAIL for each check;
# exit 0 if all passed, else 1.
import argparse
import json
import math
import os
import sys
import tempfile
import time

HIDDEN = 1536
DTYPES = ["bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"]
NCCL_SCHEMES = ["fixed_root", "reduce_broadcast", "reduce_per_owner"]
ORDERED = ["gather_ordered", "exchange_ordered", "direct_ordered", "auto"]
TIMEOUT_S = 240


def sizes_of(ranks):
    """Equal, ragged with an empty part, all on one rank."""
    return [[3] * ranks, [(5 * rank) % 4 for rank in range(ranks)], [0] * (ranks - 1) + [7]]


def partials_of(torch, ranks, rows, dtype):
    generator = torch.Generator().manual_seed(rows)
    scale = torch.exp2(torch.arange(ranks, dtype=torch.float32) % 3 - 1).reshape(ranks, 1, 1)
    return (torch.randn(ranks, rows, HIDDEN, generator=generator) * scale).to(getattr(torch, dtype))


def expected_of(torch, scheme, partials, sizes, root, accumulation):
    """Expected bits of the whole buffer, as a NumPy array of integers."""
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[partials.element_size()]
    ranks = len(sizes)
    try:
        import samesum

        rings = dict(ranks_per_node=1, algorithm="ring", protocol="simple") if scheme in NCCL_SCHEMES else {}
        found = samesum.combine("exchange_ordered" if scheme == "auto" else scheme, partials, sizes=sizes, root=root,
                                accumulation=accumulation, **rings)
        return found.view(partials.view(kind).numpy().dtype)
    except ImportError:
        pass
    rows = []
    owners = [rank for rank, size in enumerate(sizes) for _ in range(size)]
    for row, owner in enumerate(owners):
        last = {"reduce_per_owner": owner}.get(scheme, root if scheme in NCCL_SCHEMES else ranks - 1)
        order = [(last + 1 + step) % ranks for step in range(ranks)]
        if scheme == "exact":
            columns = partials[:, row].double()
            exact = [math.fsum(column) for column in columns.t().tolist()] if partials.element_size() == 8 else \
                columns.sum(0).tolist()  # in float64, sums of narrow floats need no rounding
            rows.append(torch.tensor(exact, dtype=torch.float64).to(partials.dtype))
            continue
        if accumulation == "fp32_once" and partials.element_size() < 4:
            total = sum((partials[rank, row].float() for rank in order[1:]), partials[order[0], row].float())
            rows.append(total.to(partials.dtype))
            continue
        total = partials[order[0], row]
        for rank in order[1:]:
            # An 8-bit sum is exact in float32 and then rounded once.
            wide = partials.element_size() == 1
            total = (total.float() + partials[rank, row].float()).to(total.dtype) if wide else \
                total + partials[rank, row]
        rows.append(total)
    return torch.stack(rows).view(kind).numpy()


def bits_of(torch, tensor):
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.detach().cpu().contiguous().view(kind).numpy()


def check_results(torch, check, scheme, accumulation, rank, ranks):
    """Every type and layout, into a new tensor and in place."""
    from samesum.torch import Combiner

    root = 1 if scheme == "fixed_root" else 0
    wrong, cases = [], 0
    with Combiner(scheme=scheme, accumulation=accumulation, root=root) as combine:
        for dtype in DTYPES:
            for sizes in sizes_of(ranks):
                rows, first = sum(sizes), sum(sizes[:rank])
                partials = partials_of(torch, ranks, rows, dtype)
                wanted = expected_of(torch, scheme, partials, sizes, root, accumulation)
                wanted = wanted[first:first + sizes[rank]]
                mine = partials[rank].cuda()
                fresh = combine(mine, sizes)
                reused = mine.clone()
                own = reused[first:first + sizes[rank]]
                combine(reused, sizes, out=own)
                cases += 2
                for name, result in (("new", fresh), ("in place", own)):
                    if (bits_of(torch, result) != wanted).any():
                        wrong.append(f"{dtype} {sizes} {name}")
    check(f"{scheme} {accumulation}: {cases} results equal the model's", cases and not wrong, wrong[:4])


def check_graph(torch, dist, check, scheme, rank, ranks):
    """A graph replayed on other partials than it was captured on; the call before the capture connects the ranks."""
    from samesum.torch import Combiner

    sizes = [2] * ranks
    with Combiner(scheme=scheme) as combine:
        partials = partials_of(torch, ranks, 2 * ranks, "bfloat16")
        static, out = torch.zeros_like(partials[rank].cuda()), torch.zeros(2, HIDDEN, dtype=torch.bfloat16).cuda()
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            combine(static, sizes, out)
            stream.synchronize()
            dist.barrier()
            with torch.cuda.graph(graph, stream=stream):
                combine(static, sizes, out)
            dist.barrier()
            static.copy_(partials[rank].cuda())
            out.fill_(7)
            graph.replay()
            stream.synchronize()
        wanted = expected_of(torch, scheme, partials, sizes, 0, "per_hop")[2 * rank:2 * rank + 2]
        check(f"{scheme}: captured and replayed", (bits_of(torch, out) == wanted).all())
        dist.barrier()
        del graph  # before its communicator


def check_refusals(torch, check, rank, ranks):
    from samesum.torch import Combiner

    with Combiner(scheme="reduce_scatter", check_calls=True) as combine:
        same = torch.zeros(ranks, 8, device="cuda")
        # Rank 1 raises its own error, the others raise it as rank 1's.
        of_rank_1 = "rows do not divide" if rank == 1 else "rank 1 of the group: "
        for name, arguments, expected in [("unequal sizes", (same, [ranks] + [0] * (ranks - 1)), "equal sizes"),
                                          ("a transposed tensor", (same.clone().t(),), "contiguous"),
                                          ("a CPU tensor", (same.cpu(),), "on cpu"),
                                          ("fewer rows on rank 1", (same[:ranks - (rank == 1)],), of_rank_1)]:
            try:
                combine(*arguments)
                message = ""
            except (RuntimeError, TypeError, ValueError) as error:
                message = str(error)
            check(f"refused in one line: {name}", expected in message and "\n" not in message, message or "no error")
        try:
            combine(same, [1] * ranks if rank else None)
            message = ""
        except (RuntimeError, TypeError, ValueError) as error:
            message = str(error)
        check("equal sizes given or absent are the same call", message == "", message)


def rank_work(torch, dist, rank, ranks):
    checks = []

    def check(name, passed, detail=""):
        checks.append([name, bool(passed), "" if passed else str(detail)])

    for scheme in NCCL_SCHEMES + ORDERED + ["exact"]:
        for accumulation in ["per_hop", "fp32_once"] if scheme in ORDERED else ["per_hop"]:
            check_results(torch, check, scheme, accumulation, rank, ranks)
        check_graph(torch, dist, check, scheme, rank, ranks)
    check_refusals(torch, check, rank, ranks)
    return checks


def rank_main(rank, ranks, folder):
    os.environ.update({"NCCL_HOSTID": f"combiner-{rank}", "NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo",
                       "NCCL_NVLS_ENABLE": "0", "OMP_NUM_THREADS": "1"})
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(0)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", ranks), rank=rank, world_size=ranks)
    checks = rank_work(torch, dist, rank, ranks)
    dist.barrier()
    dist.destroy_process_group()
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(checks, file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="samesum-combiner-")
    children = {}
    for rank in range(options.ranks):
        child = os.fork()
        if child == 0:
            try:
                rank_main(rank, options.ranks, folder)
            except BaseException as error:  # of any kind: this process must end here
                print(f"rank {rank}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        children[child] = rank
    deadline, failed = time.monotonic() + TIMEOUT_S, []
    while children and not failed and time.monotonic() < deadline:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            rank = children.pop(child)
            failed += [rank] if status else []
        time.sleep(0.05)
    for child in children:  # they wait for a rank that has ended, or exceed the time limit
        os.kill(child, 9)
        os.waitpid(child, 0)
    lines = []
    if failed or children:
        lines.append([f"rank {(failed or list(children.values()))[0]} finishes", False, ""])
    else:
        by_rank = [json.load(open(f"{folder}/{rank}.json")) for rank in range(options.ranks)]
        for each in zip(*by_rank):
            bad = [f"rank {rank}: {line[2]}" for rank, line in enumerate(each) if not line[1]]
            lines.append([each[0][0], not bad, "; ".join(bad)])
    for name, passed, detail in lines:
        print(f"{'PASS' if passed else 'FAIL'}  {name}{': ' + detail if detail else ''}")
    if options.json:
        import torch

        with open(options.json, "w") as file:
            json.dump({"nccl": ".".join(map(str, torch.cuda.nccl.version())), "torch": torch.__version__,
                       "device": torch.cuda.get_device_name(), "ranks": options.ranks,
                       "checks": [dict(zip(("check", "passed", "detail"), line)) for line in lines]}, file, indent=1)
            file.write("\n")
    passed = sum(line[1] for line in lines)
    print(f"{passed} of {len(lines)} checks passed")
    return 0 if lines and passed == len(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
