# The experiment of vLLM's repair, small enough for one GPU: does a prompt get the same answer wherever it is served?
# SPDX-License-Identifier: Apache-2.0
"""A tiny mixture-of-experts transformer served by 4 ranks, asked the same prompts in two ways.

First every prompt alone, on one rank, while the others idle; then all prompts as one batch, on other ranks. The model
has random bfloat16 weights and samples greedily. A prompt PASSes when both ways give it the same tokens with the same
bits of their log probabilities. Experts live on all 4 ranks, so each layer gathers the tokens, and the combine adds the
ranks' partial sums for the rank that owns the token. All else is done in arrays of one fixed shape, row by row, so that
only the combine can tell the two ways apart; the row `control`, which adds in rank order in plain torch, proves it::

    python -m samesum.torch.batch_invariance --json result.json

Layouts: dp4, four replicas of the attention, one a rank; dp2tp2, two replicas of two ranks that share the heads and each
own half of the replica's tokens in the expert layers (as vLLM's sequence-parallel experts do).

On a machine without a GPU, --device cpu adds in the orders that the schemes have on one ring, by torch: it shows what the
experiment is about, and nothing about NCCL.

Exit: 0 all came out as claimed (vllm_default changes some prompts, the others none), 1 not, 2 wrong arguments, 3 it
could not be run here.
"""
from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from typing import Callable, Dict, List, Sequence, Tuple

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
except ImportError:  # --from needs none of it
    torch = None

RANKS = 4
LAYOUTS = ("dp4", "dp2tp2")
SCHEMES = ("vllm_default", "fixed_root", "exchange_ordered", "direct_ordered")
OTHER_SCHEMES = ("reduce_per_owner", "reduce_broadcast", "gather_ordered", "exact")
# Every array has so many rows, whatever is in them: the shape of a matrix product decides its kernel.
ROWS = 64


@dataclasses.dataclass(frozen=True)
class Shape:
    """Of the model, in elements; and how many tokens a prompt has and gets."""

    layers: int = 3
    hidden: int = 1024
    heads: int = 8
    experts: int = 32
    chosen: int = 8  # experts a token
    width: int = 128  # of an expert
    vocabulary: int = 8192
    prompt: int = 4
    answer: int = 16

    @property
    def length(self) -> int:
        return self.prompt + self.answer


# A combine: this rank's partial [rows, hidden] and every rank's number of rows in, its own rows out.
Combine = Callable[["torch.Tensor", Sequence[int]], "torch.Tensor"]


def in_order(partials: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """Adds partials [ranks, rows, hidden] in that order, rounding every sum."""
    total = partials[order[0]]
    for rank in order[1:]:
        total = total + partials[rank]
    return total


def gathered_combine(order_for: Callable[[int], Sequence[int]], ranks: int, rank: int) -> Combine:
    """Gathers all partials and adds each owner's rows in the order that order_for(owner) gives."""

    def combine(partial: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        partials = partial.new_empty((ranks, *partial.shape))
        dist.all_gather(list(partials.unbind()), partial)
        first = sum(sizes[:rank])
        return in_order(partials[:, first:first + sizes[rank]], order_for(rank))

    return combine


def successors(rank: int, ranks: int) -> List[int]:
    """The chain of a ring's reduce to `rank`: from its successor around to itself."""
    return [(rank + 1 + i) % ranks for i in range(ranks)]


class Model:
    """One rank's share of the model: its heads, its experts, and all that is replicated."""

    def __init__(self, shape: Shape, layout: str, combine: Combine, rank: int, device: torch.device, seed: int,
                 groups: Sequence["dist.ProcessGroup"]) -> None:
        self.shape, self.combine, self.rank, self.device = shape, combine, rank, device
        self.tp = 2 if layout == "dp2tp2" else 1
        self.replica, self.place = divmod(rank, self.tp)
        self.replicas = RANKS // self.tp
        self.group = groups[self.replica] if self.tp > 1 else None
        generator = torch.Generator().manual_seed(seed)

        def weight(*dimensions: int, inputs: int) -> torch.Tensor:
            drawn = torch.randn(*dimensions, generator=generator) / inputs**0.5
            return drawn.to(torch.bfloat16)

        s, own_heads, own_experts = shape, shape.heads // self.tp, shape.experts // RANKS
        head = s.hidden // s.heads
        heads = slice(self.place * own_heads * head, (self.place + 1) * own_heads * head)
        experts = slice(rank * own_experts, (rank + 1) * own_experts)
        self.embedding = weight(s.vocabulary, s.hidden, inputs=1).to(device)
        self.layers = []
        for _ in range(s.layers):
            queries, keys, values = (weight(s.hidden, s.hidden, inputs=s.hidden)[:, heads] for _ in range(3))
            layer = {
                "queries": queries, "keys": keys, "values": values,
                "output": weight(s.hidden, s.hidden, inputs=s.hidden)[heads],
                "router": weight(s.hidden, s.experts, inputs=s.hidden),
                "up": weight(s.experts, s.hidden, s.width, inputs=s.hidden)[experts],
                "down": weight(s.experts, s.width, s.hidden, inputs=s.width)[experts],
            }
            self.layers.append({name: each.contiguous().to(device) for name, each in layer.items()})
        self.unembedding = weight(s.hidden, s.vocabulary, inputs=s.hidden).to(device)
        self.own_heads, self.head, self.own_experts = own_heads, head, experts

    @staticmethod
    def normalized(x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    def fresh_cache(self) -> List[Tuple[torch.Tensor, torch.Tensor]]:
        shape = (ROWS, self.own_heads, self.shape.length, self.head)
        return [(torch.zeros(shape, dtype=torch.bfloat16, device=self.device),
                 torch.zeros(shape, dtype=torch.bfloat16, device=self.device)) for _ in self.layers]

    def attention(self, layer: Dict[str, torch.Tensor], cache: Tuple[torch.Tensor, torch.Tensor], h: torch.Tensor,
                  step: int) -> torch.Tensor:
        keys, values = cache
        split = (ROWS, self.own_heads, self.head)
        queries = (h @ layer["queries"]).view(split).float()
        keys[:, :, step] = (h @ layer["keys"]).view(split)
        values[:, :, step] = (h @ layer["values"]).view(split)
        scores = (queries[:, :, None] * keys.float()).sum(-1) / self.head**0.5
        scores[:, :, step + 1:] = float("-inf")
        mixed = (torch.softmax(scores, -1)[..., None] * values.float()).sum(2)
        out = mixed.to(h.dtype).reshape(ROWS, -1) @ layer["output"]
        if self.tp > 1:
            dist.all_reduce(out, group=self.group)  # of two ranks: one addition
        return out

    def experts(self, layer: Dict[str, torch.Tensor], h: torch.Tensor, tokens: Sequence[int]) -> torch.Tensor:
        """h [ROWS, hidden]: the replica's tokens, tokens[replica] of them; the same rows of the result."""
        # Every rank of a replica owns its half of the replica's tokens.
        sizes = [count * (place + 1) // self.tp - count * place // self.tp for count in tokens
                 for place in range(self.tp)]
        own, before = sizes[self.rank], sum(sizes[self.rank - self.place:self.rank])
        mine = torch.zeros_like(h)
        mine[:own] = h[before:before + own]
        everyone = h.new_empty((RANKS, *h.shape))
        dist.all_gather(list(everyone.unbind()), mine)
        all_tokens = torch.zeros_like(h)
        total = sum(sizes)
        all_tokens[:total] = torch.cat([rows[:size] for rows, size in zip(everyone, sizes)])

        logits = (all_tokens @ layer["router"]).float()
        best, which = logits.topk(self.shape.chosen, dim=-1)
        weights = torch.zeros_like(logits).scatter_(-1, which, torch.softmax(best, -1))[:, self.own_experts]
        inner = torch.nn.functional.silu(torch.matmul(all_tokens, layer["up"]))  # [own experts, ROWS, width]
        outer = torch.matmul(inner, layer["down"]).float() * weights.t()[..., None]
        partial = outer.sum(0).to(h.dtype)
        combined = self.combine(partial[:total].contiguous(), sizes)

        out = torch.zeros_like(h)
        if self.tp == 1:
            out[:own] = combined
            return out
        mine.zero_()
        mine[:own] = combined
        halves = h.new_empty((self.tp, *h.shape))
        dist.all_gather(list(halves.unbind()), mine, group=self.group)
        first = sizes[self.rank - self.place]
        out[:first] = halves[0, :first]
        out[first:tokens[self.replica]] = halves[1, :tokens[self.replica] - first]
        return out

    def answer(self, prompts: torch.Tensor, tokens: Sequence[int]) -> Tuple[torch.Tensor, torch.Tensor]:
        """Greedy sampling for prompts [ROWS, prompt]: tokens and their log probabilities, [ROWS, answer] each."""
        s, cache = self.shape, self.fresh_cache()
        said, sure = [], []
        feed = prompts[:, 0]
        for step in range(s.length - 1):
            x = self.embedding[feed]
            for layer, of_layer in zip(self.layers, cache):
                x = x + self.attention(layer, of_layer, self.normalized(x), step)
                x = x + self.experts(layer, self.normalized(x), tokens)
            if step + 1 < s.prompt:
                feed = prompts[:, step + 1]
                continue
            odds = torch.log_softmax((self.normalized(x) @ self.unembedding).float(), -1)
            best, feed = odds.max(-1)
            said.append(feed)
            sure.append(best)
        return torch.stack(said, 1), torch.stack(sure, 1)


def serve(model: Model, prompts: torch.Tensor, replica_of: Sequence[int]) -> Dict[int, Tuple[list, list]]:
    """One batch: prompt i on replica replica_of[i], -1 for not in it. A replica without any runs a token of no one, as
    vLLM's idle ranks do. Returns {prompt: (tokens, bits of log probabilities)} of this rank's replica."""
    mine = [i for i, replica in enumerate(replica_of) if replica == model.replica]
    tokens = [max(1, sum(replica == each for replica in replica_of)) for each in range(model.replicas)]
    batch = torch.zeros((ROWS, prompts.shape[1]), dtype=torch.int64)
    for row, prompt in enumerate(mine):
        batch[row] = prompts[prompt]
    said, sure = model.answer(batch.to(model.device), tokens)
    said, bits = said.cpu(), sure.cpu().view(torch.int32)
    return {prompt: (said[row].tolist(), bits[row].tolist()) for row, prompt in enumerate(mine)}


def first_places(prompts: int, replicas: int) -> List[int]:
    return [i % replicas for i in range(prompts)]


def batch_places(prompts: int, replicas: int, seed: int) -> List[int]:
    """Ragged: replica r takes about twice as many prompts as replica r + 1, drawn by lot."""
    shares = [2**(replicas - 1 - r) for r in range(replicas)]
    counts = [max(1, prompts * share // sum(shares)) for share in shares]
    counts[0] += prompts - sum(counts)
    places = [r for r, count in enumerate(counts) for _ in range(count)]
    order = torch.randperm(prompts, generator=torch.Generator().manual_seed(seed)).tolist()
    return [places[at] for at in order]


def judge(alone: Dict[int, Tuple[list, list]], together: Dict[int, Tuple[list, list]]) -> List[dict]:
    """What became of each prompt, in their order."""
    verdicts = []
    for prompt in sorted(alone):
        (tokens, bits), (other_tokens, other_bits) = alone[prompt], together[prompt]
        apart = [i for i, pair in enumerate(zip(bits, other_bits)) if pair[0] != pair[1]]
        verdicts.append({"prompt": prompt, "pass": tokens == other_tokens and not apart,
                         "tokens_differ": tokens != other_tokens, "first_difference": apart[0] if apart else None})
    return verdicts


def summary(verdicts: Sequence[dict]) -> dict:
    return {"prompts": len(verdicts), "pass": sum(each["pass"] for each in verdicts),
            "tokens_differ": sum(each["tokens_differ"] for each in verdicts),
            "marks": "".join("." if each["pass"] else "T" if each["tokens_differ"] else "b" for each in verdicts)}


def run_rank(rank: int, options: argparse.Namespace, store: str, results: str) -> None:
    """One rank's life; rank 0 leaves the rows of the table in `results`."""
    on_gpu = options.device == "cuda"
    device = torch.device("cpu")
    if on_gpu:
        if torch.cuda.device_count() < RANKS:
            # NCCL takes ranks of one host on one GPU for a mistake; as hosts of their own they may share it.
            os.environ.update(NCCL_HOSTID=f"samesum-{rank}", NCCL_SOCKET_IFNAME="lo")
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # what a switch adds has no order that can be seen
        torch.cuda.set_device(rank % torch.cuda.device_count())
        device = torch.device("cuda", torch.cuda.current_device())
    else:
        torch.set_num_threads(1)
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", init_method=f"file://{store}", rank=rank,
                            world_size=RANKS)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    shape = Shape()
    prompts = torch.randint(shape.vocabulary, (options.prompts, shape.prompt),
                            generator=torch.Generator().manual_seed(options.seed + 1))
    ring_orders = {"vllm_default": lambda owner: successors(owner, RANKS),
                   "reduce_per_owner": lambda owner: successors(owner, RANKS),
                   "fixed_root": lambda owner: successors(0, RANKS),
                   "reduce_broadcast": lambda owner: successors(0, RANKS)}

    @contextlib.contextmanager
    def combine_named(name: str):
        if name == "control" or not on_gpu:
            yield gathered_combine(ring_orders.get(name, lambda owner: range(RANKS)), RANKS, rank)
            return
        from . import Combiner
        with Combiner(scheme=name, library=options.library) as combiner:
            yield lambda partial, sizes: combiner(partial, sizes=sizes)

    rows = []
    with torch.no_grad():
        for layout in options.layouts:
            for name in ("control", *options.schemes):
                began = time.monotonic()
                with combine_named(name) as combine:
                    model = Model(shape, layout, combine, rank, device, options.seed, pairs)
                    places = first_places(options.prompts, model.replicas)

                    def one_by_one() -> Dict[int, Tuple[list, list]]:
                        answers: Dict[int, Tuple[list, list]] = {}
                        for prompt, place in enumerate(places):
                            answers.update(serve(model, prompts, [place if i == prompt else -1
                                                                  for i in range(options.prompts)]))
                        return answers

                    ways = {"alone": one_by_one(),
                            "batch": serve(model, prompts, batch_places(options.prompts, model.replicas, options.seed))}
                    if name == "vllm_default":
                        ways["again"] = one_by_one()
                    if on_gpu:
                        torch.cuda.synchronize()
                everyone: list = [None] * RANKS
                dist.all_gather_object(everyone, ways)
                if rank != 0:
                    continue
                merged = {way: {prompt: answer for each in everyone for prompt, answer in each[way].items()}
                          for way in ways}
                seconds = time.monotonic() - began
                if "again" in merged:
                    rows.append({"layout": layout, "combine": name, "compared": "alone, twice", "all_must_pass": True,
                                 **summary(judge(merged["alone"], merged["again"]))})
                rows.append({"layout": layout, "combine": name, "compared": "alone, in a batch",
                             "all_must_pass": name not in ("vllm_default", "reduce_per_owner"),
                             **summary(judge(merged["alone"], merged["batch"]))})
                print(f"samesum: {layout} {name}: {rows[-1]['pass']} of {options.prompts} pass, {seconds:.1f} s",
                      file=sys.stderr, flush=True)
    if rank == 0:
        nccl = ".".join(map(str, torch.cuda.nccl.version())) if on_gpu else None
        with open(results, "w", encoding="utf-8") as file:
            json.dump({"nccl": nccl, "torch": torch.__version__, "python": sys.version.split()[0],
                       "device": torch.cuda.get_device_name() if on_gpu else "cpu",
                       "gpus": torch.cuda.device_count() if on_gpu else 0, "ranks": RANKS,
                       "environment": [f"{name}={value}" for name, value in sorted(os.environ.items())
                                       if name.startswith("NCCL_")],
                       "seed": options.seed, "shape": dataclasses.asdict(shape), "rows": rows}, file, indent=1)
    dist.barrier()
    dist.destroy_process_group()


@contextlib.contextmanager
def shared_gpu(wanted: bool):
    """A private MPS daemon, so that the ranks' kernels run at the same time where they share a GPU; without one they
    take turns, which is slow and right as well."""
    control = shutil.which("nvidia-cuda-mps-control")
    if not wanted or control is None or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="samesum-mps-") as folder:
        for name in ("PIPE", "LOG"):
            os.environ[f"CUDA_MPS_{name}_DIRECTORY"] = os.path.join(folder, name.lower())
            os.mkdir(os.environ[f"CUDA_MPS_{name}_DIRECTORY"])
        started = subprocess.run([control, "-d"], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            if started.returncode != 0:
                del os.environ["CUDA_MPS_PIPE_DIRECTORY"]
            yield
        finally:
            if started.returncode == 0:
                subprocess.run([control], input=b"quit -t 2\n", check=False, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
            for name in ("PIPE", "LOG"):
                os.environ.pop(f"CUDA_MPS_{name}_DIRECTORY", None)


def table(result: dict) -> str:
    """The rows as a Markdown table."""
    lines = ["| layout | combine | compared | PASS | other tokens | prompts |", "|---|---|---|--:|--:|---|"]
    for row in result["rows"]:
        lines.append(f"| {row['layout']} | `{row['combine']}` | {row['compared']} | {row['pass']} of {row['prompts']} | "
                     f"{row['tokens_differ']} | `{row['marks']}` |")
    return "\n".join(lines)


def surprises(result: dict) -> List[str]:
    """What did not come out as claimed, one line each."""
    found = []
    for row in result["rows"]:
        where = f"{row['layout']}, {row['combine']}, {row['compared']}"
        if row["all_must_pass"] and row["pass"] < row["prompts"]:
            found.append(f"{where}: {row['prompts'] - row['pass']} prompts changed; none would be right")
        if not row["all_must_pass"] and row["pass"] == row["prompts"]:
            found.append(f"{where}: no prompt changed, so the rows that pass show nothing")
    if not result["rows"]:
        found.append("nothing was run")
    return found


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m samesum.torch.batch_invariance", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Serve a tiny mixture-of-experts model on 4 ranks, every prompt alone and all as one batch: which "
        "combines give a prompt the same answer both times?",
        epilog="in the last column of the table: . the same, b other bits of a log probability, T other tokens\n\n"
        "examples:\n  python -m samesum.torch.batch_invariance\n"
        "  python -m samesum.torch.batch_invariance --schemes vllm_default,fixed_root --layouts dp4 --json result.json\n"
        "  python -m samesum.torch.batch_invariance --from result.json      # the table again")

    def words(choices: Sequence[str]) -> Callable[[str], List[str]]:
        def split(text: str) -> List[str]:
            for word in text.split(","):
                if word not in choices:
                    raise argparse.ArgumentTypeError(f"{word!r}; some of {', '.join(choices)} would be right")
            return text.split(",")

        return split

    def count(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= 48:
            raise argparse.ArgumentTypeError(f"{text!r}; 1 to 48 would be right")
        return int(text)

    parser.add_argument("--schemes", type=words(SCHEMES + OTHER_SCHEMES), default=list(SCHEMES), metavar="LIST",
                        help="combines beside the control, default " + ",".join(SCHEMES))
    parser.add_argument("--layouts", type=words(LAYOUTS), default=list(LAYOUTS), metavar="LIST", help="dp4,dp2tp2")
    parser.add_argument("--prompts", type=count, default=32, metavar="N", help="1 to 48, default 32")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of weights, prompts and places")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: the orders of one ring, in torch")
    parser.add_argument("--library", metavar="FILE", help="libsamesum-nccl.so.2, where the loader does not find it")
    parser.add_argument("--json", metavar="FILE", help="also write the result here")
    parser.add_argument("--from", dest="source", metavar="FILE", help="print what an earlier --json wrote, run nothing")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> int:
    options = parsed(arguments)
    if options.source:
        try:
            with open(options.source, encoding="utf-8") as file:
                result = json.load(file)
            print(table(result))
            found = surprises(result)
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"samesum: --from {options.source}: {error!r}; a file that --json wrote would be right",
                  file=sys.stderr)
            return 2
    else:
        if torch is None:
            print("samesum: the experiment runs in torch, which this Python does not have", file=sys.stderr)
            return 3
        if options.device == "cuda" and not torch.cuda.is_available():
            print("samesum: torch sees no CUDA device here; --device cpu shows the experiment without NCCL",
                  file=sys.stderr)
            return 3
        if options.json and not os.access(os.path.dirname(os.path.abspath(options.json)), os.W_OK):
            print(f"samesum: --json {options.json}: its folder cannot be written to", file=sys.stderr)
            return 2
        shares = options.device == "cuda" and torch.cuda.device_count() < RANKS
        with tempfile.TemporaryDirectory(prefix="samesum-") as folder, shared_gpu(shares):
            results = os.path.join(folder, "results.json")
            try:
                mp.spawn(run_rank, args=(options, os.path.join(folder, "store"), results), nprocs=RANKS)
            except Exception as error:  # a rank's, with its own traceback
                print(f"samesum: a rank failed: {error}", file=sys.stderr)
                return 3
            with open(results, encoding="utf-8") as file:
                result = json.load(file)
        print(table(result))
        found = surprises(result)
        if options.json:
            written = options.json + ".part"
            with open(written, "w", encoding="utf-8") as file:
                json.dump({**result, "surprises": found}, file, indent=1)
                file.write("\n")
            os.replace(written, options.json)
    for line in found:
        print(f"samesum: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
