# The experiment behind vLLM's fix, small enough for one GPU: does every rank give a prompt the same answer?
# SPDX-License-Identifier: Apache-2.0
"""Serves the same prompts twice with a tiny mixture-of-experts transformer on 4 ranks.

First each prompt is served alone, on one rank, while the other ranks idle; then all prompts are served as one batch, on
other ranks. The model has random bfloat16 weights and samples greedily. A prompt PASSes if both runs give it the same
tokens with the same bits of their log probabilities. The experts are spread over all 4 ranks, so each layer gathers the
tokens, and the combine adds the ranks' partial sums for the rank that owns the token. All other arithmetic uses arrays
of one fixed shape, row by row, so that only the combine can make the two runs differ; the row `control`, which adds in
rank order in plain torch, proves it::

    python -m samesum.torch.batch_invariance --json result.json

Layouts: dp4 has four replicas of the attention, one on each rank; dp2tp2 has two replicas of two ranks, which share the
heads and each own half of the replica's tokens in the expert layers (like vLLM's sequence-parallel experts).

--device cpu needs no GPU: torch adds in the orders that the schemes have on one ring. This shows the experiment, not
NCCL.

Exit: 0 all results as claimed (vllm_default changes some prompts, the other schemes none), 1 some not, 2 wrong
arguments, 3 the experiment cannot run here.
"""
from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import sys
import tempfile
import time
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
except ImportError:  # --from works without torch
    torch = None

RANKS = 4
LAYOUTS = ("dp4", "dp2tp2")
SCHEMES = ("vllm_default", "fixed_root", "exchange_ordered", "direct_ordered")
OTHER_SCHEMES = ("reduce_per_owner", "reduce_broadcast", "gather_ordered", "exact")
# Every array has this many rows, used or not: the shape of a matrix product selects its kernel.
ROWS = 64


@dataclasses.dataclass(frozen=True)
class Shape:
    """Dimensions of the model in elements; tokens of a prompt and of its answer."""

    layers: int = 3
    hidden: int = 1024
    heads: int = 8
    experts: int = 32
    chosen: int = 8  # experts for each token
    width: int = 128  # of an expert
    vocabulary: int = 8192
    prompt: int = 4
    answer: int = 16

    @property
    def length(self) -> int:
        return self.prompt + self.answer


# Takes this rank's partial [rows, hidden] and the rows of each rank; returns this rank's rows.
Combine = Callable[["torch.Tensor", Sequence[int]], "torch.Tensor"]
# Tokens and bits of their log probabilities for each prompt.
Answers = Dict[int, Tuple[list, list]]


def in_order(partials: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """Adds partials [ranks, rows, hidden] in this order and rounds every sum."""
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
    """Order of a ring's reduce to `rank`: from its successor around the ring to itself."""
    return [(rank + 1 + i) % ranks for i in range(ranks)]


class Model:
    """One rank's part of the model: its heads, its experts, and the replicated weights."""

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
        """h [ROWS, hidden] holds the replica's tokens, of which there are tokens[replica]; so does the result."""
        # Each rank of a replica owns an equal part of the replica's tokens.
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
        answers, log_probabilities = [], []
        feed = prompts[:, 0]
        for step in range(s.length - 1):
            x = self.embedding[feed]
            for layer, of_layer in zip(self.layers, cache):
                x = x + self.attention(layer, of_layer, self.normalized(x), step)
                x = x + self.experts(layer, self.normalized(x), tokens)
            if step + 1 < s.prompt:
                feed = prompts[:, step + 1]
                continue
            best, feed = torch.log_softmax((self.normalized(x) @ self.unembedding).float(), -1).max(-1)
            answers.append(feed)
            log_probabilities.append(best)
        return torch.stack(answers, 1), torch.stack(log_probabilities, 1)


def serve(model: Model, prompts: torch.Tensor, replica_of: Sequence[int]) -> Answers:
    """Serves one batch: prompt i on replica replica_of[i], or not at all if that is -1. A replica without prompts runs
    a dummy token, like vLLM's idle ranks. Returns the answers of this rank's replica."""
    mine = [i for i, replica in enumerate(replica_of) if replica == model.replica]
    tokens = [max(1, sum(replica == each for replica in replica_of)) for each in range(model.replicas)]
    batch = torch.zeros((ROWS, prompts.shape[1]), dtype=torch.int64)
    for row, prompt in enumerate(mine):
        batch[row] = prompts[prompt]
    answers, log_probabilities = model.answer(batch.to(model.device), tokens)
    answers, bits = answers.cpu(), log_probabilities.cpu().view(torch.int32)
    return {prompt: (answers[row].tolist(), bits[row].tolist()) for row, prompt in enumerate(mine)}


def first_replicas(prompts: int, replicas: int) -> List[int]:
    """The replica that serves each prompt alone."""
    return [i % replicas for i in range(prompts)]


def batch_replicas(prompts: int, replicas: int, seed: int) -> List[int]:
    """The replica of each prompt in the batch, at random; replica r gets about twice as many as replica r + 1."""
    shares = [2**(replicas - 1 - r) for r in range(replicas)]
    counts = [max(1, prompts * share // sum(shares)) for share in shares]
    counts[0] += prompts - sum(counts)
    sorted_replicas = [r for r, count in enumerate(counts) for _ in range(count)]
    order = torch.randperm(prompts, generator=torch.Generator().manual_seed(seed)).tolist()
    return [sorted_replicas[at] for at in order]


def compare(answers: Answers, others: Answers) -> List[dict]:
    """The verdict of each prompt, in the order of the prompts."""
    verdicts = []
    for prompt in sorted(answers):
        (tokens, bits), (other_tokens, other_bits) = answers[prompt], others[prompt]
        different = [i for i, pair in enumerate(zip(bits, other_bits)) if pair[0] != pair[1]]
        verdicts.append({"prompt": prompt, "pass": tokens == other_tokens and not different,
                         "tokens_differ": tokens != other_tokens,
                         "first_difference": different[0] if different else None})
    return verdicts


def summary(verdicts: Sequence[dict]) -> dict:
    return {"prompts": len(verdicts), "pass": sum(each["pass"] for each in verdicts),
            "tokens_differ": sum(each["tokens_differ"] for each in verdicts),
            "marks": "".join("." if each["pass"] else "T" if each["tokens_differ"] else "b" for each in verdicts)}


def join_group(rank: int, on_gpu: bool, store: str) -> torch.device:
    """Joins the process group of all ranks; returns the device that this rank computes on."""
    device = torch.device("cpu")
    if on_gpu:
        if torch.cuda.device_count() < RANKS:
            # NCCL refuses two ranks of one host on one GPU; with different host ids they may share it.
            os.environ.update(NCCL_HOSTID=f"samesum-{rank}", NCCL_SOCKET_IFNAME="lo")
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # the order of additions in a switch is not observable
        torch.cuda.set_device(rank % torch.cuda.device_count())
        device = torch.device("cuda", torch.cuda.current_device())
    else:
        torch.set_num_threads(1)
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", init_method=f"file://{store}", rank=rank,
                            world_size=RANKS)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    return device


@contextlib.contextmanager
def combine_named(name: str, rank: int, on_gpu: bool, library: Optional[str]) -> Iterator[Combine]:
    """The control or, on the CPU, any scheme: torch adds. Else a Combiner."""
    if name == "control" or not on_gpu:
        ring_orders = {"vllm_default": lambda owner: successors(owner, RANKS),
                       "reduce_per_owner": lambda owner: successors(owner, RANKS),
                       "fixed_root": lambda owner: successors(0, RANKS),
                       "reduce_broadcast": lambda owner: successors(0, RANKS)}
        yield gathered_combine(ring_orders.get(name, lambda owner: range(RANKS)), RANKS, rank)
        return
    from . import Combiner
    with Combiner(scheme=name, library=library) as combiner:
        yield lambda partial, sizes: combiner(partial, sizes=sizes)


def answers_of(model: Model, prompts: torch.Tensor, seed: int, twice: bool) -> Dict[str, Answers]:
    """This rank's answers, by the way of serving: every prompt alone, all as one batch, and alone again."""
    count = len(prompts)
    replicas = first_replicas(count, model.replicas)

    def one_by_one() -> Answers:
        answers: Answers = {}
        for prompt, replica in enumerate(replicas):
            answers.update(serve(model, prompts, [replica if i == prompt else -1 for i in range(count)]))
        return answers

    found = {"alone": one_by_one(), "batch": serve(model, prompts, batch_replicas(count, model.replicas, seed))}
    if twice:
        found["again"] = one_by_one()
    return found


def rows_of(layout: str, name: str, answers: Dict[str, Answers]) -> List[dict]:
    """The table's rows of one combine in one layout, from the answers of all ranks."""
    rows = []
    if "again" in answers:
        rows.append({"layout": layout, "combine": name, "compared": "alone, twice", "all_must_pass": True,
                     **summary(compare(answers["alone"], answers["again"]))})
    rows.append({"layout": layout, "combine": name, "compared": "alone, in a batch",
                 "all_must_pass": name not in ("vllm_default", "reduce_per_owner"),
                 **summary(compare(answers["alone"], answers["batch"]))})
    return rows


def write_results(path: str, options: argparse.Namespace, shape: Shape, rows: List[dict]) -> None:
    on_gpu = options.device == "cuda"
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if on_gpu else None
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"nccl": nccl, "torch": torch.__version__, "python": sys.version.split()[0],
                   "device": torch.cuda.get_device_name() if on_gpu else "cpu",
                   "gpus": torch.cuda.device_count() if on_gpu else 0, "ranks": RANKS,
                   "environment": [f"{name}={value}" for name, value in sorted(os.environ.items())
                                   if name.startswith("NCCL_")],
                   "seed": options.seed, "shape": dataclasses.asdict(shape), "rows": rows}, file, indent=1)


def run_rank(rank: int, options: argparse.Namespace, store: str, results: str) -> None:
    """Runs one rank of the experiment; rank 0 writes the rows of the table to `results`."""
    on_gpu = options.device == "cuda"
    device = join_group(rank, on_gpu, store)
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    shape = Shape()
    prompts = torch.randint(shape.vocabulary, (options.prompts, shape.prompt),
                            generator=torch.Generator().manual_seed(options.seed + 1))
    rows: List[dict] = []
    with torch.no_grad():
        for layout, name in itertools.product(options.layouts, ("control", *options.schemes)):
            began = time.monotonic()
            with combine_named(name, rank, on_gpu, options.library) as combine:
                model = Model(shape, layout, combine, rank, device, options.seed, pairs)
                own = answers_of(model, prompts, options.seed, twice=name == "vllm_default")
                if on_gpu:
                    torch.cuda.synchronize()
            everyone: list = [None] * RANKS
            dist.all_gather_object(everyone, own)
            if rank != 0:
                continue
            merged = {way: {prompt: answer for each in everyone for prompt, answer in each[way].items()} for way in own}
            rows += rows_of(layout, name, merged)
            print(f"samesum: {layout} {name}: {rows[-1]['pass']} of {options.prompts} pass, "
                  f"{time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    if rank == 0:
        write_results(results, options, shape, rows)
    dist.barrier()
    dist.destroy_process_group()


def table(result: dict) -> str:
    """The rows as a Markdown table."""
    lines = ["| layout | combine | compared | PASS | other tokens | prompts |", "|---|---|---|--:|--:|---|"]
    for row in result["rows"]:
        lines.append(f"| {row['layout']} | `{row['combine']}` | {row['compared']} | "
                     f"{row['pass']} of {row['prompts']} | {row['tokens_differ']} | `{row['marks']}` |")
    return "\n".join(lines)


def unexpected(result: dict) -> List[str]:
    """Results that differ from the claims, one line each."""
    found = []
    for row in result["rows"]:
        where = f"{row['layout']}, {row['combine']}, {row['compared']}"
        if row["all_must_pass"] and row["pass"] < row["prompts"]:
            found.append(f"{where}: {row['prompts'] - row['pass']} prompts changed: expected none")
        if not row["all_must_pass"] and row["pass"] == row["prompts"]:
            found.append(f"{where}: no prompt changed: expected some, else the rows that pass prove nothing")
    if not result["rows"]:
        found.append("no rows: expected at least one combine and one layout")
    return found


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m samesum.torch.batch_invariance", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Serves prompts with a tiny mixture-of-experts model on 4 ranks, each alone and all as one batch, "
        "and shows which combines give a prompt the same answer both times.",
        epilog="last column of the table: . same answer, b other bits of a log probability, T other tokens\n\n"
        "examples:\n  python -m samesum.torch.batch_invariance\n"
        "  python -m samesum.torch.batch_invariance --schemes vllm_default,fixed_root --layouts dp4\n"
        "  python -m samesum.torch.batch_invariance --json result.json\n"
        "  python -m samesum.torch.batch_invariance --from result.json      # the table again")

    def words(choices: Sequence[str]) -> Callable[[str], List[str]]:
        def split(text: str) -> List[str]:
            for word in text.split(","):
                if word not in choices:
                    raise argparse.ArgumentTypeError(f"{word!r}: expected some of {', '.join(choices)}")
            return text.split(",")

        return split

    def count(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= 48:
            raise argparse.ArgumentTypeError(f"{text!r}: expected 1 to 48")
        return int(text)

    parser.add_argument("--schemes", type=words(SCHEMES + OTHER_SCHEMES), default=list(SCHEMES), metavar="LIST",
                        help="combines beside the control, default " + ",".join(SCHEMES))
    parser.add_argument("--layouts", type=words(LAYOUTS), default=list(LAYOUTS), metavar="LIST", help="dp4,dp2tp2")
    parser.add_argument("--prompts", type=count, default=32, metavar="N", help="1 to 48, default 32")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of weights, prompts and replicas")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: orders of one ring, in torch")
    parser.add_argument("--library", metavar="FILE", help="libsamesum-nccl.so.2, if the loader does not find it")
    parser.add_argument("--json", metavar="FILE", help="also write the result here")
    parser.add_argument("--from", dest="source", metavar="FILE", help="print the table of a --json file; runs nothing")
    return parser.parse_args(arguments)


def replay(path: str) -> int:
    """Prints the table that an earlier run wrote with --json."""
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        print(table(result))
        found = unexpected(result)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"samesum: --from {path}: {error!r}; expected a file that --json wrote", file=sys.stderr)
        return 2
    return report(found)


def report(found: List[str]) -> int:
    for line in found:
        print(f"samesum: {line}", file=sys.stderr)
    return 1 if found else 0


def cannot_run(options: argparse.Namespace) -> Optional[Tuple[int, str]]:
    """Exit code and reason, if the experiment cannot run here."""
    if torch is None:
        return 3, "this Python has no torch, which the experiment needs"
    if options.device == "cuda" and not torch.cuda.is_available():
        return 3, "torch finds no CUDA device; --device cpu shows the experiment without NCCL"
    if options.json and not os.access(os.path.dirname(os.path.abspath(options.json)), os.W_OK):
        return 2, f"--json {options.json}: its folder is not writable"
    return None


def run(options: argparse.Namespace) -> dict:
    """Runs the experiment in one process for each rank."""
    with contextlib.ExitStack() as stack:
        if options.device == "cuda" and torch.cuda.device_count() < RANKS:
            from ._mps import private_mps
            stack.enter_context(private_mps())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="samesum-"))
        results = os.path.join(folder, "results.json")
        mp.spawn(run_rank, args=(options, os.path.join(folder, "store"), results), nprocs=RANKS)
        with open(results, encoding="utf-8") as file:
            return json.load(file)


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> int:
    options = parse(arguments)
    if options.source:
        return replay(options.source)
    reason = cannot_run(options)
    if reason:
        print(f"samesum: {reason[1]}", file=sys.stderr)
        return reason[0]
    try:
        result = run(options)
    except Exception as error:  # of a rank, with the rank's traceback
        print(f"samesum: a rank failed: {error}", file=sys.stderr)
        return 3
    print(table(result))
    found = unexpected(result)
    if options.json:
        part = options.json + ".part"
        with open(part, "w", encoding="utf-8") as file:
            json.dump({**result, "surprises": found}, file, indent=1)
            file.write("\n")
        os.replace(part, options.json)
    return report(found)


if __name__ == "__main__":
    sys.exit(main())
