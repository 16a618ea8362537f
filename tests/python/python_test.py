#!/usr/bin/env python3
# The Python package against the command line: both must give the same bits and trees.
# SPDX-License-Identifier: Apache-2.0
#
# python_test.py [pytest's words]: runs itself under pytest. Exit 77, a skip, where a package is missing; with
# SAMESUM_STRICT set that is a failure. SAMESUM_MODEL names the program samesum-model, SAMESUM_BINARY_DIR the build.
# Tests of samesum.torch need torch and are skipped without; they need no GPU: a stand-in replaces the library.
import contextlib
import ctypes
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
STRICT = "SAMESUM_STRICT" in os.environ



def has(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False


if __name__ == "__main__":
    missing = [name for name in ("numpy", "pytest", "samesum._model") if not has(name)]
    if missing:
        print("skipped: this Python has no " + ", ".join(missing))
        sys.exit(1 if STRICT else 77)
    import pytest

    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--tb=short", __file__, *sys.argv[1:]]))

import numpy as np
import pytest
import samesum

PROGRAM = os.environ.get("SAMESUM_MODEL", "samesum-model")
BINARY_DIR = Path(os.environ.get("SAMESUM_BINARY_DIR", SOURCE / "build"))
FLOATS = {"float64": np.uint64, "float32": np.uint32, "float16": np.uint16, "bfloat16": np.uint16,
          "float8_e4m3": np.uint8, "float8_e5m2": np.uint8}


def command(*words, text=None):
    done = subprocess.run([PROGRAM, *(str(word) for word in words)], input=text, capture_output=True, text=True,
                          check=False)
    assert done.returncode in (0, 1, 3) and not done.stderr, done.stderr
    return done.stdout


def flags(keywords):
    """The command line that is the same as predict() with these keywords."""
    names = {"algorithm": "algo", "protocol": "proto"}
    words = []
    for key, value in keywords.items():
        if key == "rings" and not isinstance(value, str):
            value = ";".join(",".join(str(rank) for rank in ring) for ring in value)
        flag = "--" + names.get(key, key).replace("_", "-")
        words += [flag] if value is True else [flag, str(value)]
    return words


def random_patterns(dtype, shape, seed):
    """Any patterns, NaNs and infinities among them."""
    kind = FLOATS[dtype]
    return np.random.default_rng(seed).integers(0, np.iinfo(kind).max, shape, dtype=kind, endpoint=True)


def normal(ranks, shape, dtype="float16", seed=1):
    return samesum.bits(np.random.default_rng(seed).standard_normal((ranks, *np.atleast_1d(shape))), dtype)


# --- Orders ---

CALLS = [
    dict(collective="reduce", count=8192, dtype="bfloat16", ranks=4, root=1, ranks_per_node=1, protocol="simple"),
    dict(collective="reduce", count=100000, ranks=4, rings=[[0, 1, 2, 3], [0, 3, 2, 1]], protocol="ll"),
    dict(collective="all_reduce", count=4096, dtype="bfloat16", ranks=8, ranks_per_node=8, channels=24,
         algorithm="ring", protocol="ll"),
    dict(collective="all_reduce", count="64x4096", ranks=8, ranks_per_node=8, channels=16, algorithm="tree",
         protocol="simple"),
    dict(collective="reduce_scatter", count=5000, dtype="float16", ranks=8, ranks_per_node=1, algorithm="pat",
         protocol="simple"),
    dict(collective="reduce_scatter", count=777, ranks=5, ranks_per_node=1, algorithm="ring", protocol="ll128",
         nccl_version="2.27.7"),
    dict(collective="all_reduce", count=1000, ranks=4, ranks_per_node=4, channels=8, registered=True, in_place=True,
         algorithm="nvls", protocol="simple"),
    dict(collective="all_reduce", count=4000, ranks=4, ranks_per_node=4, channels=8, symmetric="AllReduce_AGxLL_R",
         blocks=4),
    dict(collective="reduce", count=30000, graph=str(SOURCE / "tests/golden/graphs/reversed-second-channel.xml"),
         ranks=8, algorithm="ring", protocol="ll"),
]


@pytest.mark.parametrize("keywords", CALLS, ids=lambda k: f"{k['collective']}-{k['count']}")
def test_predict_is_order_show(keywords):
    shown = json.loads(command("order", "show", *flags(keywords), "--limit", 1000000, "--json", "-"))
    call = samesum.predict(**keywords)
    assert (call.call, call.ran, call.nccl_version, call.elements, call.trees) == (
        shown["call"], shown["ran"], shown["nccl_version"], shown["elements"], shown["trees"])
    assert [(s.begin, s.end, s.tree, s.channel) for s in call] == [
        (begin, end, shown["trees"][tree], channel) for begin, end, tree, channel in shown["segments"]]
    assert len(call) == len(shown["segments"]) > 0
    assert [re.sub("[-_]", "", each) for each in call.assumptions] == [
        re.sub("[-_]", "", each) for each in shown["assumptions"]]
    assert not any("--" in each for each in call.assumptions)  # inputs are named by their keywords
    for segment in call[:5]:
        if segment.tree is None:
            with pytest.raises(samesum.Inconclusive):
                call.tree(segment.begin)
        else:
            assert call.tree(segment.end - 1) == segment.tree
            assert str(segment.nested).replace(",", "") == segment.tree
            assert samesum.same_order(segment.nested, segment.tree)


def test_predict_reads_logs_and_environments(tmp_path):
    log = next(path for path in sorted((SOURCE / "tests/golden").rglob("*.log")) if path.stat().st_size < 4000000)
    keywords = dict(collective="reduce", count=100000, protocol="simple")
    told = subprocess.run([PROGRAM, "order", "show", *flags(keywords), "--log", log, "--json", "-"], text=True,
                          capture_output=True, check=False)
    if told.returncode == 2:  # then in the same words, but for the flags' names
        with pytest.raises(ValueError) as raised:
            samesum.predict(**keywords, log=log)
        assert "\n" not in str(raised.value)
    else:
        assert samesum.predict(**keywords, log=log).trees == json.loads(told.stdout)["trees"]
        assert samesum.predict(**keywords, log=log.read_text()).trees == json.loads(told.stdout)["trees"]
    settings = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL", "NCCL_MAX_NCHANNELS": 1}
    file = tmp_path / "job.env"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    keywords = dict(collective="all_reduce", count=9000, ranks=4, ranks_per_node=1)
    shown = json.loads(command("order", "show", *flags(keywords), "--env", file, "--json", "-"))
    for environment in (settings, file, str(file)):
        assert samesum.predict(**keywords, environment=environment).ran == shown["ran"] == "RING, LL, channels 0..0"


def test_diff_is_order_diff():
    base = dict(collective="all_reduce", ranks=8, ranks_per_node=1, algorithm="ring", protocol="ll", count=4096)
    for change in (dict(count=8192), dict(algorithm="tree"), dict(nccl_version="2.30"), dict(protocol="simple")):
        words = " ".join(flags(change))
        shown = json.loads(command("order", "diff", *flags(base), "--with", words, "--limit", 100000, "--json", "-"))
        found = samesum.diff(samesum.predict(**base), samesum.predict(**{**base, **change}))
        assert (found.compared, found.changed, found.ranges) == (
            shown["compared"], shown["changed"], shown["ranges_total"])
        assert list(found.changes) == [(begin, end, shown["trees"][old], shown["trees"][new])
                                       for begin, end, old, new in shown["changes"]]
        assert found.same == (shown["changed"] == 0)
    one = samesum.predict(**base)
    assert samesum.diff(one, one).same and "0 of 4096" in str(samesum.diff(one, one))
    assert samesum.diff(one, samesum.predict(**{**base, "count": 9000}), offset=4000, limit=2).compared == 4096
    with pytest.raises(ValueError, match="different numbers of ranks"):
        samesum.diff(one, samesum.predict(**{**base, "ranks": 4}))


# --- Sums ---


@pytest.mark.parametrize("dtype", FLOATS)
def test_evaluate_is_sum_eval(dtype):
    width = 2 * FLOATS[dtype]().itemsize
    for number, (order, ranks, rounding) in enumerate([
            ("((0 1) 2)", 3, "per_hop"), ((2, (0, 1)), 3, "per_hop"), ("ring:2", 5, "per_hop"),
            ("balanced", 8, "per_hop"), ("chain", 4, "fp32_once"), ("reversed", 6, "exact")]):
        if rounding == "fp32_once" and dtype in ("float64", "float32"):
            rounding = "per_hop"
        partials = random_patterns(dtype, (ranks, 500), number)
        text = "".join(" ".join(f"0x{int(bits):0{width}x}" for bits in column) + "\n" for column in partials.T)
        tree = order if isinstance(order, str) else str(order).replace(",", "")
        if not tree.startswith("("):  # the stream's number of ranks is known late
            tree = samesum.model._model.tree(tree, ranks)
        told = command("sum", "eval", "--dtype", dtype, "--tree", tree, "--rounding", rounding, text=text).split()
        found = samesum.evaluate(order, partials, dtype=dtype, rounding=rounding, threads=1 + number % 2)
        assert found.dtype == FLOATS[dtype]
        assert [f"0x{int(bits):0{width}x}" for bits in found] == told


def test_evaluate_of_a_call_is_evaluate_of_its_trees():
    keywords = dict(ranks=4, ranks_per_node=1, protocol="ll")
    for call in (samesum.predict("all_reduce", count=30000, dtype="bfloat16", algorithm="ring", **keywords),
                 samesum.predict("all_reduce", count=30000, dtype="float64", algorithm="tree", **keywords),
                 samesum.predict("reduce_scatter", count=500, dtype="float8_e5m2", algorithm="ring", **keywords),
                 samesum.predict("reduce", count=3000, dtype="float32", op="max", **keywords)):
        partials = random_patterns(call.dtype, (4, call.elements), 5)
        if call.dtype == "float64":  # which of two NaNs stays is the protocol's: sum eval knows of none
            partials &= ~np.uint64(1 << 62)
        found = samesum.evaluate(call, partials, dtype=call.dtype)
        assert len(call) > 0
        for segment in call:
            part = partials[:, segment.begin:segment.end]
            op = "max" if "max" in call.call or call.dtype == "float32" else "sum"
            assert (samesum.evaluate(segment.tree, part, dtype=call.dtype, op=op)
                    == found[segment.begin:segment.end]).all()


def test_combine_is_its_calls():
    ranks, hidden = 4, 96
    ring = dict(ranks_per_node=1, protocol="simple", algorithm="ring")
    for sizes in ([2, 2, 2, 2], [0, 5, 1, 3]):
        rows = sum(sizes)
        partials = normal(ranks, (rows, hidden), "bfloat16")
        flat = partials.reshape(ranks, -1)
        same = dict(sizes=sizes, dtype="bfloat16")
        call = dict(dtype="bfloat16", ranks=ranks, **ring)
        rank_order = samesum.evaluate("chain", flat, dtype="bfloat16").reshape(rows, hidden)
        for scheme in ("gather_ordered", "exchange_ordered", "direct_ordered"):
            assert (samesum.combine(scheme, partials, **same) == rank_order).all()
        assert (samesum.combine("direct_ordered", partials, by_node=2, **same).reshape(-1)
                == samesum.evaluate("((0 1) (2 3))", flat, dtype="bfloat16")).all()
        assert (samesum.combine("exchange_ordered", partials, accumulation="fp32_once", **same).reshape(-1)
                == samesum.evaluate("chain", flat, dtype="bfloat16", rounding="fp32_once")).all()
        assert (samesum.combine("exact", partials, **same).reshape(-1)
                == samesum.evaluate("chain", flat, dtype="bfloat16", rounding="exact")).all()
        for root in (0, 2):
            whole = samesum.evaluate(samesum.predict("reduce", count=rows * hidden, root=root, **call), flat,
                                     dtype="bfloat16").reshape(rows, hidden)
            for scheme in ("fixed_root", "reduce_broadcast"):
                assert (samesum.combine(scheme, partials, root=root, **same, **ring) == whole).all()
        owners = np.repeat(np.arange(ranks), sizes)
        per_owner = np.stack([samesum.evaluate(f"ring:{owner}", partials[:, row], dtype="bfloat16")
                              for row, owner in enumerate(owners)])
        assert (samesum.combine("reduce_per_owner", partials, **same, **ring) == per_owner).all()
        assert (samesum.combine("vllm_default", partials, **same, **ring) == per_owner).all()
        # Owner dependence is there to be seen.
        assert (per_owner != rank_order).any()


# --- Arrays of every kind ---


def test_every_kind_of_array_gives_the_same_bits():
    values = np.random.default_rng(3).standard_normal((4, 3, 50))
    for dtype in ("float16", "float32", "float64"):
        partials = values.astype(dtype)
        expected = samesum.evaluate("balanced", partials)
        assert expected.shape == (3, 50)
        patterns = partials.view(FLOATS[dtype])
        for same in (patterns, list(partials), partials.copy(order="F"), partials[..., ::-1][..., ::-1],
                     samesum.bits(partials, dtype), partials.astype(partials.dtype.newbyteorder(">")),
                     memoryview(partials) if dtype != "float16" else patterns):
            assert (samesum.evaluate("balanced", same, dtype=dtype) == expected).all()
    numbers = [[1.0, 256.0], [1.0, 1.0], [1.0, 1.0]]
    assert samesum.evaluate("chain", numbers, dtype="bf16").tolist() == [0x4040, 0x4380]
    assert samesum.evaluate("chain", numbers, dtype="bf16", rounding="exact").tolist() == [0x4040, 0x4381]
    assert samesum.bits(0.1, "bfloat16").shape == () and int(samesum.bits(0.1, "bfloat16")) == 0x3DCD


def test_arrays_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for kind, dtype in ((ml_dtypes.bfloat16, "bfloat16"), (ml_dtypes.float8_e4m3fn, "float8_e4m3"),
                        (ml_dtypes.float8_e5m2, "float8_e5m2")):
        patterns = normal(4, 64, dtype)
        expected = samesum.evaluate("ring:1", patterns, dtype=dtype)
        assert (samesum.evaluate("ring:1", patterns.view(kind)) == expected).all()
        assert (samesum.evaluate("ring:1", patterns, dtype=kind) == expected).all()
        assert (patterns.view(kind) == np.random.default_rng(1).standard_normal((4, 64)).astype(kind)).all()


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    values = torch.randn(4, 8, 16, generator=torch.Generator().manual_seed(1))
    for kind, dtype in ((torch.bfloat16, "bfloat16"), (torch.float16, "float16"), (torch.float32, "float32"),
                        (torch.float64, "float64"), (torch.float8_e4m3fn, "float8_e4m3"),
                        (torch.float8_e5m2, "float8_e5m2")):
        partials = values.to(kind)
        expected = samesum.evaluate("ring:3", samesum.bits(values.double().numpy(), dtype)
                                    if dtype != "float64" else values.double().numpy(), dtype=dtype)
        assert (samesum.evaluate("ring:3", partials) == expected).all()
        assert (samesum.evaluate("ring:3", list(partials), dtype=kind) == expected).all()
        assert (samesum.evaluate("ring:3", partials.transpose(1, 2).contiguous().transpose(1, 2)) == expected).all()
        samesum.assert_same_bits(partials, partials.clone())
    with pytest.raises(ValueError, match="complex64: not a format that NCCL adds in"):
        samesum.evaluate("chain", torch.zeros(2, 4, dtype=torch.complex64), dtype="float64")


# --- Can a test reveal the order? ---


def test_mask_is_sum_mask(tmp_path):
    for dtype, partials in (("bfloat16", normal(4, 500, "bfloat16")), ("float16", np.ones((3, 100), np.float16)),
                            ("float8_e4m3", random_patterns("float8_e4m3", (5, 300), 2))):
        files = [tmp_path / f"{dtype}-{rank}" for rank in range(len(partials))]
        for file, row in zip(files, partials):
            file.write_bytes(row.tobytes())
        for words, keywords in (([], {}), (["--shape", "chain"], dict(shape="chain")),
                                (["--rounding", "fp32_once"], dict(rounding="fp32_once")),
                                (["--before", "ring:0", "--after", "ring:1"], dict(before="ring:0", after="ring:1"))):
            told = json.loads(command("sum", "mask", "--dtype", dtype, *words, *files, "--list", "--json", "-"))
            found = samesum.non_vacuity(partials, dtype=dtype, **keywords)
            assert (found.elements, found.able, found.unknown, found.share) == (
                told["elements"], told["able"], told["unknown"], told["share"])
            mask = samesum.mask(partials, dtype=dtype, **keywords)
            assert mask.dtype == bool and "".join("01"[bit] for bit in mask.astype(int)) == told["mask"]


def test_assertions_for_tests_can_fail():
    samesum.assert_order_visible(normal(4, 200), dtype="float16")
    with pytest.raises(AssertionError, match="^vacuous: 0 of 100 elements"):
        samesum.assert_order_visible(np.ones((4, 100), np.float32))
    with pytest.raises(samesum.Inconclusive, match="not known"):
        samesum.assert_order_visible(normal(24, 50), dtype="float16", seconds=0.001, least=1)
    with pytest.raises(ValueError, match="least 2"):
        samesum.assert_order_visible(normal(4, 200), dtype="float16", least=2)
    with pytest.raises(ValueError, match="no element"):
        samesum.assert_order_visible(np.ones((4, 0), np.float32))
    ones = np.ones((2, 3), np.float32)
    samesum.assert_same_bits(ones, ones.copy())
    samesum.assert_same_bits(np.full(3, np.nan), np.full(3, np.nan))
    other = ones.copy()
    other[1, 2] = -0.0
    with pytest.raises(AssertionError) as raised:
        samesum.assert_same_bits(ones, other)
    assert str(raised.value) == ("1 of 6 elements have other bits\n"
                                 "  element [1, 2]: 0x3f800000 and 0x80000000")
    for a, b in ((np.float32(0.0), np.float32(-0.0)), (ones, ones.astype(np.float64)), (ones, ones[:1])):
        with pytest.raises(AssertionError):
            samesum.assert_same_bits(np.asarray(a), np.asarray(b))
    partials = normal(4, 300)
    a, b = (samesum.evaluate(order, partials, dtype="float16") for order in ("ring:0", "ring:1"))
    with pytest.raises(AssertionError, match="order change"):
        samesum.assert_same_bits(a, b, dtype="float16", partials=partials)


# --- Order change or defect? ---


def check_evidence(found, a, b, partials, dtype):
    """Every tree that is named gives the bits that it is named for."""
    flat = partials.reshape(len(partials), -1)
    assert found.evidence
    for evidence in found.evidence:
        for shown, tree, rounding, side in ((evidence.a, evidence.tree_a, evidence.rounding_a, a),
                                            (evidence.b, evidence.tree_b, evidence.rounding_b, b)):
            assert int(shown.split()[0], 16) == side.reshape(-1)[evidence.element]
            if tree:
                column = flat[:, [evidence.element]]
                made = samesum.evaluate(tree, column, dtype=dtype, rounding=rounding)
                assert made[0] == side.reshape(-1)[evidence.element]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float8_e5m2"])
def test_differences_are_explained(dtype):
    partials = normal(5, (4, 100), dtype)

    def of(order, rounding="per_hop"):
        return samesum.evaluate(order, partials, dtype=dtype, rounding=rounding)

    chain = of("chain")
    unusual = of("((0 3) ((1 4) 2))")
    mixed = chain.copy()
    mixed[::2] = of("ring:2")[::2]
    flipped, lost = chain.copy(), of("ring:1")
    flipped[2, 50] ^= FLOATS[dtype](1 << (8 * chain.itemsize - 3))
    lost[1:3] = samesum.evaluate("chain", partials[:4], dtype=dtype)[1:3]
    for kind, other in (("same", chain.copy()), ("order change", of("ring:2")), ("order change", unusual),
                        ("order change", mixed), ("defect", flipped), ("defect", lost)):
        for a, b in ((chain, other), (other, chain)):
            found = samesum.explain_difference(a, b, partials=partials, dtype=dtype)
            assert found.kind == kind, str(found)
            assert found.elements == 400 and found.differing == (a != b).sum()
            assert str(found).startswith(kind)
            if kind != "same":
                check_evidence(found, a, b, partials, dtype)
    found = samesum.explain_difference(chain, of("ring:2"), partials=partials, dtype=dtype)
    assert (found.order_a, found.order_b) == ("((((0 1) 2) 3) 4)", "((((3 4) 0) 1) 2)")
    assert found.rounding_a == found.rounding_b == "per_hop"
    found = samesum.explain_difference(chain, flipped, partials=partials, dtype=dtype)
    assert found.evidence[0].element == 250 and found.evidence[0].defect_in == ("b",) and found.evidence[0].nearest
    # The command line decides the same about this element.
    told = json.loads(command("sum", "reachable", "--dtype", dtype, "--values",
                              " ".join(hex(int(bits)) for bits in partials[:, 2, 50]),
                              "--result", hex(int(flipped[2, 50])), "--json", "-"))
    assert told["verdict"] == "not by any order: defect"


def test_rounding_is_told_from_order():
    partials = normal(6, 800, "bfloat16", seed=4)
    once = samesum.evaluate("chain", partials, dtype="bfloat16", rounding="fp32_once")
    hops = samesum.evaluate("chain", partials, dtype="bfloat16")
    found = samesum.explain_difference(hops, once, partials=partials, dtype="bfloat16")
    assert (found.kind, found.rounding_a, found.rounding_b) == ("rounding model", "per_hop", "fp32_once")
    assert found.order_a == found.order_b
    check_evidence(found, hops, once, partials, "bfloat16")
    other = samesum.evaluate("ring:3", partials, dtype="bfloat16", rounding="fp32_once")
    if (other != once).any():
        assert samesum.explain_difference(once, other, partials=partials, dtype="bfloat16").kind == "order change"
    partials = normal(6, 800, "float32")
    hops, exact = (samesum.evaluate("ring:1", partials, dtype="float32", rounding=rounding)
                   for rounding in ("per_hop", "exact"))
    found = samesum.explain_difference(exact, hops, partials=partials, dtype="float32")
    assert (found.kind, found.rounding_a, found.rounding_b) == ("rounding model", "exact", "per_hop")


def test_what_cannot_be_told_is_inconclusive():
    # What nearly cancels has wide bounds, and 24 values have too many orders to try.
    large = np.random.default_rng(1).standard_normal((12, 100)) * np.exp2(np.arange(12) * 2)[:, None]
    partials = samesum.bits(np.concatenate([large, 0.1 - large]), "float32")
    chain = samesum.evaluate("chain", partials, dtype="float32")
    odd = chain.copy()
    odd[3] ^= np.uint32(1)
    with pytest.raises(samesum.Inconclusive, match="neither an order nor a defect was found; element 3 of b: "):
        samesum.explain_difference(chain, odd, partials=partials, dtype="float32")
    tree = re.sub(r"\b(0|23)\b", lambda rank: str(23 - int(rank[0])), samesum.model._model.tree("balanced", 24))
    other = samesum.evaluate(tree, partials, dtype="float32")
    found = samesum.explain_difference(chain, other, partials=partials, dtype="float32", orders=[tree])
    assert (found.kind, found.order_b) == ("order change", tree)
    call = samesum.predict("all_reduce", count=100, ranks=24, ranks_per_node=1, algorithm="tree", protocol="ll")
    other = samesum.evaluate(call, partials, dtype="float32")
    assert samesum.explain_difference(chain, other, partials=partials, dtype="float32", orders=[call]).kind == (
        "order change")
    partials = normal(9, 4000)
    a, b = (samesum.evaluate(order, partials, dtype="float16")
            for order in ("chain", "(((0 3) (1 7)) ((2 (8 5)) (4 6)))"))
    with pytest.raises(samesum.Inconclusive, match="seconds are over"):
        samesum.explain_difference(a, b, partials=partials, dtype="float16", seconds=0.01)


# --- Wrong input ---

PARTIALS = np.ones((4, 8), np.float16)
WRONG = [
    (lambda: samesum.predict("reduce", count=4), "ranks is missing (or rings, log, graph)"),
    (lambda: samesum.predict("reduce", count=4, ranks=4), "the rings are not known: expected ranks_per_node 1"),
    (lambda: samesum.predict("reduce", count=4, ranks=4, ranks_per_node=1), "expected algorithm and protocol, log"),
    (lambda: samesum.predict("gather", count=4, ranks=4, ranks_per_node=1), "gather"),
    (lambda: samesum.predict("reduce", count="4y", ranks=4, ranks_per_node=1), "count '4y'"),
    (lambda: samesum.predict("reduce", count=4, ranks=4, ranks_per_node=1, root=4), "root 4 is not a rank"),
    (lambda: samesum.predict("reduce", count=4, ranks=4, rings=[[0, 1, 2]]), "ranks 4, but rings has 3"),
    (lambda: samesum.predict("reduce", count=4, ranks=4, dtype="float17"), "float17"),
    (lambda: samesum.predict("reduce", count=4, ranks="four"), "ranks 'four': expected a whole number"),
    (lambda: samesum.predict("reduce", count=4, ranks=2**40), "ranks 1099511627776: expected a whole number"),
    (lambda: samesum.predict("reduce", count=4, rings=[[0, None]]), "rings None: expected a whole number"),
    (lambda: samesum.predict("reduce", count=4, ranks=4, ranks_per_node=1, machine="fast"), "machine: 'fast'"),
    (lambda: samesum.predict("all_reduce", count=4, ranks=4, ranks_per_node=1, root=0), "root goes with collective"),
    (lambda: samesum.predict("reduce", count=4, ranks=4, ranks_per_node=4, channels=99), "channels 99: expected 1"),
    (lambda: samesum.same_order("chain", "chain"), "'chain' needs ranks"),
    (lambda: samesum.predict("reduce", count=4, log="no\nlog\n"), "log: no 'NCCL INFO' line"),
    (lambda: samesum.predict("reduce", count=4, log="/nonexistent"), "/nonexistent"),
    (lambda: samesum.evaluate("((0 1) 2)", PARTIALS), "adds 3 values: expected 4"),
    (lambda: samesum.evaluate("ring:4", PARTIALS), "'ring:4' is not an order of 4 ranks"),
    (lambda: samesum.evaluate((0, 1, 2), PARTIALS), "nested pairs"),
    (lambda: samesum.evaluate("chain", PARTIALS, rounding="twice"), "twice"),
    (lambda: samesum.evaluate("chain", PARTIALS, rounding="exact", op="max"), "rounding 'exact' is for sums"),
    (lambda: samesum.evaluate("chain", PARTIALS, dtype="bfloat16"), "partials is float16; not dtype='bfloat16'"),
    (lambda: samesum.evaluate("chain", PARTIALS.view(np.uint16)), "bit patterns of several formats: expected dtype="),
    (lambda: samesum.evaluate("chain", PARTIALS.astype(int), dtype="bfloat16"), "bit patterns in uint16"),
    (lambda: samesum.evaluate("chain", PARTIALS.astype(complex)), "complex128: not a format that NCCL adds in"),
    (lambda: samesum.evaluate("chain", [PARTIALS[0], PARTIALS[1, :4]]), "partials[1] is float16 [4]"),
    (lambda: samesum.evaluate("chain", [[1, 2], [3, 4]]), "needs dtype="),
    (lambda: samesum.evaluate("chain", np.float16(1)), "expected [ranks, elements]"),
    (lambda: samesum.evaluate(samesum.predict(**CALLS[0]), PARTIALS), "partials are float16; the call adds bfloat16"),
    (lambda: samesum.combine("fixed_root", PARTIALS), "expected [ranks, rows, hidden]"),
    (lambda: samesum.combine("fixed_root", PARTIALS[:, None]), "1 rows do not divide among 4 ranks"),
    (lambda: samesum.combine("fixed_root", PARTIALS[:, None], sizes=[1, 1, 0, 0]), "sum to 2 rows; partials have 1"),
    (lambda: samesum.combine("fixed_root", PARTIALS[:, None], sizes=[1, 0, 0, 0]), "the rings are not known"),
    (lambda: samesum.combine("direct", PARTIALS[:, None], sizes=[1, 0, 0, 0], ranks_per_node=1), "unknown scheme"),
    (lambda: samesum.combine("exact", PARTIALS[:, None], sizes=[1, 0, 0, 0], accumulation="fp32_once"),
     "exact takes per_hop"),
    (lambda: samesum.combine("exact", PARTIALS[:, None], sizes=[1, 0, 0, 0], by_node=2), "not with exact"),
    (lambda: samesum.combine("exact", PARTIALS[:, None], sizes=[1, 0, 0, 0], root=2), "exact has none"),
    (lambda: samesum.combine("fixed_root", PARTIALS[:, None], sizes=[1, 0, 0, 0], root=4), "root 4 is not a rank"),
    (lambda: samesum.combine("direct_ordered", PARTIALS[:, None], sizes=[1, 0, 0, 0], by_node=3), "multiple of the 3 ranks"),
    (lambda: samesum.mask(PARTIALS, before="chain"), "before and after go together"),
    (lambda: samesum.mask(PARTIALS, shape="ring"), "shape 'ring': expected any or chain"),
    (lambda: samesum.explain_difference(PARTIALS[0], PARTIALS[0, :4], partials=PARTIALS), "b has shape [4]"),
    (lambda: samesum.explain_difference(PARTIALS[0], np.ones(8, np.float32), partials=PARTIALS), "b is float32"),
    (lambda: samesum.assert_same_bits(PARTIALS[:0], PARTIALS[:0]), "a and b hold no element"),
    (lambda: samesum.same_order("((0 1) 2)", "((0 1)"), "((0 1)"),
]


@pytest.mark.parametrize("wrong, says", WRONG, ids=lambda each: each if isinstance(each, str) else "")
def test_wrong_input_is_one_line(wrong, says):
    with pytest.raises(ValueError) as raised:
        wrong()
    assert says in str(raised.value) and "\n" not in str(raised.value) and "--" not in str(raised.value)


# --- The package itself ---


def example():
    """The package's example, and what its comments say it prints."""
    text = textwrap.dedent(samesum.__doc__.split("::\n", 1)[1].split("\nTensors:")[0])
    return text, [line.split("#", 1)[1].strip() for line in text.splitlines() if line.startswith("print(")]


def test_the_example_prints_what_it_says():
    text, expected = example()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(text, {})
    assert printed.getvalue().split("\n") == [*expected, ""] and len(expected) == 4


def test_names_are_there_and_documented():
    for name in samesum.__all__:
        assert getattr(samesum, name).__doc__, name
    assert set(samesum.__all__) <= set(dir(samesum))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        samesum.nonsense


def test_the_package_can_be_imported_without_its_module(tmp_path):
    """As samesum.torch is where the wheel was built for another Python."""
    package = tmp_path / "samesum"
    package.mkdir()
    for file in ("__init__.py", "model.py"):
        shutil.copy(SOURCE / "model/python" / file, package)
    check = "import samesum\nassert issubclass(samesum.Inconclusive, RuntimeError)\ntry:\n    samesum.predict\n" \
            "except ImportError as error:\n    print(error)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert "_model" in subprocess.run([sys.executable, "-c", check], env=environment, text=True, capture_output=True,
                                      check=True).stdout


def test_pip_install():
    """`pip install .` into an empty folder, out of reach of any index, and the example from there."""
    if not has("scikit_build_core"):
        assert not STRICT
        pytest.skip("no scikit-build-core")
    target, build = BINARY_DIR / "pip-target", BINARY_DIR / "pip-build"
    shutil.rmtree(target, ignore_errors=True)
    defines = {"SAMESUM_GPU": "OFF"}
    if "SAMESUM_PIP_DEFINES" in os.environ:  # the build's own flags, so that ccache knows the objects
        defines.update(each.split("=", 1) for each in os.environ["SAMESUM_PIP_DEFINES"].split("|"))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment.update(SKBUILD_BUILD_DIR=str(build), CCACHE_NOHASHDIR="1",
                       SKBUILD_CMAKE_DEFINE=";".join(f"{key}={value}" for key, value in defines.items()))
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index", "--target",
         str(target), str(SOURCE)], env=environment, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    files = {str(path.relative_to(target / "samesum")) for path in (target / "samesum").rglob("*")
             if path.is_file() and "__pycache__" not in str(path)}
    module = {name for name in files if name.startswith("_model.")}
    sources = {file.name for file in (SOURCE / "model/python").glob("*.py")} | {"py.typed"}
    sources |= {"torch/" + file.name for file in (SOURCE / "impl/torch").glob("*.py")}
    assert len(module) == 1 and files - module == sources and {"model.py", "torch/__init__.py"} < sources
    assert [path.name for path in target.iterdir() if not path.name.startswith(("samesum", "__pycache__"))] == []
    text, expected = example()
    check = "\n".join(["import importlib.metadata", "import samesum",
                       f"assert samesum.__file__.startswith({str(target)!r})", text,
                       "print(importlib.metadata.version('samesum'))"])
    environment["PYTHONPATH"] = str(target)
    printed = subprocess.run([sys.executable, "-c", check], env=environment, text=True, capture_output=True, check=True,
                             cwd=BINARY_DIR).stdout.split("\n")
    version = re.search(r"project\(samesum VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text())[1]
    assert printed == [*expected, version, ""]


# --- samesum.torch ---


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory):
    """The path of a library that notes how it is called."""
    compiler = next((found for found in map(shutil.which, ("cc", "gcc", "clang")) if found), None)
    if compiler is None:
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("library") / "libsamesum-nccl.so.2"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", path,
                    SOURCE / "tests/impl/fake_samesum_nccl.c"], check=True)
    return str(path)


@pytest.fixture
def library():
    """samesum/torch/_library.py by itself, since the package around it needs torch."""
    spec = importlib.util.spec_from_file_location("samesum_library", SOURCE / "impl/torch/_library.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def calls_of(opened):
    functions = opened._functions
    functions.fake_calls.restype = ctypes.c_char_p
    text = functions.fake_calls().decode()
    functions.fake_clear()
    return text.splitlines()


def test_library_calls(library, stand_in):
    opened = library.load_library(stand_in)
    calls_of(opened)
    assert opened.version() == "2.28.9" and stand_in in repr(opened)
    name = opened.unique_id()
    assert len(name) == 128
    communicator = opened.init_rank(4, name, 2)
    partial, result = np.arange(24, dtype=np.float32).reshape(6, 4), np.zeros((2, 4), np.float32)
    arguments = [opened.as_sizes([1, 2, 2, 1]), 4, 7, 3, partial.ctypes.data, result.ctypes.data, 2**40 + 5]
    opened.combine(communicator, b"fixed_root", b"per_hop", *arguments)
    assert (result == partial[3:5]).all()
    with pytest.raises(RuntimeError, match="^reduce_per_owner combine: this rank's link is down$"):
        opened.combine(communicator, b"reduce_per_owner", b"per_hop", *arguments)
    with pytest.raises(RuntimeError, match="^reduce_broadcast combine: invalid usage$"):
        opened.combine(communicator, b"reduce_broadcast", b"per_hop", *arguments)
    opened.destroy(communicator)
    opened.abort(communicator)
    assert calls_of(opened) == [
        "unique_id", "init 2 of 4, id 'fake id' 42",
        f"combine fixed_root per_hop sizes 1 2 2 1 hidden 4 type 7 root 3 stream {2**40 + 5}",
        f"combine reduce_per_owner per_hop sizes 1 2 2 1 hidden 4 type 7 root 3 stream {2**40 + 5}",
        f"combine reduce_broadcast per_hop sizes 1 2 2 1 hidden 4 type 7 root 3 stream {2**40 + 5}",
        "destroy 2", "abort 2"]


def test_library_is_looked_for(library, stand_in, monkeypatch, tmp_path):
    monkeypatch.delenv("SAMESUM_NCCL_LIBRARY", raising=False)
    if not (SOURCE / "impl/torch" / library.FILE_NAME).exists():
        with pytest.raises(OSError, match="library= or SAMESUM_NCCL_LIBRARY, or its folder in LD_LIBRARY_PATH") as raised:
            library.load_library()
        assert "\n" not in str(raised.value)
    monkeypatch.setenv("SAMESUM_NCCL_LIBRARY", stand_in)
    assert library.load_library().path == stand_in and library.load_library() is library.load_library(stand_in)
    with pytest.raises(OSError, match="nonexistent.so"):
        library.load_library(tmp_path / "nonexistent.so")
    monkeypatch.setenv("SAMESUM_NCCL_LIBRARY", "libm.so.6")
    with pytest.raises(OSError, match=r"^libm.so.6 is not libsamesum-nccl.so.2: .*samesumCombine"):
        library.load_library()
    # Beside the package comes before the loader's path.
    monkeypatch.delenv("SAMESUM_NCCL_LIBRARY")
    package = tmp_path / "package"
    package.mkdir()
    for file in (SOURCE / "impl/torch/_library.py", Path(stand_in)):
        shutil.copy(file, package)
    spec = importlib.util.spec_from_file_location("other_library", package / "_library.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.load_library().path == str(package / library.FILE_NAME)


def on_the_cpu(monkeypatch):
    """samesum.torch with CPU tensors taken for those of a GPU."""
    module = pytest.importorskip("samesum.torch")
    monkeypatch.setattr(module, "_DEVICE", "cpu")
    monkeypatch.setattr(module, "_has_device", lambda: True)
    monkeypatch.setattr(module, "_current_device", lambda: 0)
    monkeypatch.setattr(module, "_current_stream", lambda device: 77)
    return module


@pytest.fixture
def alone(monkeypatch):
    """samesum.torch on the CPU, in a group of one."""
    dist = pytest.importorskip("torch.distributed")
    module = on_the_cpu(monkeypatch)
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield module
    dist.destroy_process_group()


def test_combiner_passes_on_what_it_was_told(alone, stand_in):
    torch = pytest.importorskip("torch")
    opened = alone.load_library(stand_in)
    calls_of(opened)
    numbers = {torch.float16: 6, torch.float32: 7, torch.float64: 8, torch.bfloat16: 9, torch.float8_e4m3fn: 10,
               torch.float8_e5m2: 11}
    with alone.Combiner(scheme="auto", accumulation="fp32_once", library=stand_in) as combine:
        assert (combine.ranks, combine.rank, combine.scheme, combine.closed) == (1, 0, "auto", False)
        for kind in numbers:
            partial = torch.arange(12).reshape(3, 4).to(kind)
            result = combine(partial)
            assert result.dtype == kind and (result.float() == partial.float()).all()
            for sizes in ([3], (3,), torch.tensor([3]), np.array([3])):
                assert combine(partial, sizes).shape == (3, 4)
            out = torch.empty_like(partial)
            assert combine(partial, [3], out) is out and combine(partial, out=partial) is partial
        assert combine(torch.empty(0, 4)).shape == (0, 4)
    assert combine.closed and "closed" in repr(combine)
    combine.close()
    noted = calls_of(opened)
    assert noted[:2] == ["unique_id", "init 0 of 1, id 'fake id' 42"] and noted[-1] == "destroy 0"
    assert noted[2:-1] == [f"combine auto fp32_once sizes 3 hidden 4 type {number} root 0 stream 77"
                           for number in numbers.values() for _ in range(7)] + [
        "combine auto fp32_once sizes 0 hidden 4 type 7 root 0 stream 77"]
    with pytest.raises(KeyError), alone.Combiner(library=stand_in):
        raise KeyError("the user's")
    assert calls_of(opened)[-1] == "abort 0"
    combine = alone.Combiner(scheme="reduce_per_owner", library=opened)
    with pytest.raises(RuntimeError, match="this rank's link is down"):
        combine(torch.zeros(1, 1))
    with pytest.warns(ResourceWarning, match="never closed"):
        del combine


def test_combiner_refuses_before_the_gpu(alone, stand_in):
    torch = pytest.importorskip("torch")
    opened = alone.load_library(stand_in)
    partial = torch.zeros(4, 8)
    combine = alone.Combiner(library=opened)
    calls_of(opened)
    meta = torch.zeros(4, 8, device="meta")
    for arguments, error, says in [
            ((None,), TypeError, "expected a torch.Tensor [rows, hidden]"),
            ((np.zeros((4, 8)),), TypeError, "partial is a ndarray"),
            ((partial.int(),), TypeError, "partial is torch.int32: expected one of torch.float16"),
            ((partial.t(),), ValueError, "strides [1, 8] is not contiguous"),
            ((partial[:, :4],), ValueError, "not contiguous"),
            ((partial[0],), ValueError, "partial has shape [8]: expected [rows, hidden]"),
            ((meta,), ValueError, "partial is on meta: expected cpu:0"),
            ((partial.clone().requires_grad_(),), ValueError, "requires a gradient"),
            ((partial, [3]), ValueError, "sum to 3 rows: expected 4"),
            ((partial, [2, 2]), ValueError, "are for 2 ranks: expected 1"),
            ((partial, [-4]), ValueError, "0 or more"),
            ((partial, [4.0]), TypeError, "whole numbers"),
            ((partial, 4), TypeError, "whole numbers"),
            ((partial, [[4]]), TypeError, "whole numbers"),
            ((partial, torch.zeros(1, device="meta")), ValueError, "sizes are on meta"),
            ((partial, None, partial[:2]), ValueError, "out has shape [2, 8]: expected [4, 8]"),
            ((partial, None, partial.half()), TypeError, "out is torch.float16"),
            ((partial, None, torch.zeros(8, 4).t()), ValueError, "not contiguous"),
            ((partial, None, meta), ValueError, "out is on meta"),
            ((partial, None, 3), TypeError, "out is a int")]:
        with pytest.raises(error) as raised:
            combine(*arguments)
        assert says in str(raised.value) and "\n" not in str(raised.value), says
    buffer = torch.zeros(48)
    with pytest.raises(ValueError, match="out overlaps partial 32 bytes from its beginning"):
        combine(buffer[:32].view(4, 8), None, buffer[8:40].view(4, 8))
    assert calls_of(opened) == []
    combine.close()
    with pytest.raises(ValueError, match="closed"):
        combine(partial)
    for keywords, error, says in [
            (dict(scheme="fastest"), ValueError, "unknown scheme 'fastest': expected one of reduce_scatter"),
            (dict(scheme=None), TypeError, "scheme None"),
            (dict(accumulation="exact"), ValueError, "unknown accumulation 'exact': expected one of per_hop, fp32_once"),
            (dict(root=1), ValueError, "root 1: expected a rank of the group, 0 to 0"),
            (dict(root="0"), TypeError, ""),
            (dict(accumulation="fp32_once"), ValueError, "with scheme fixed_root: expected per_hop"),
            (dict(root=3, scheme="auto"), ValueError, "root 3 with scheme auto: expected 0"),
            (dict(library="/nonexistent.so"), OSError, "/nonexistent.so")]:
        with pytest.raises(error) as raised:
            alone.Combiner(**{"library": opened, **keywords})
        assert says in str(raised.value) and "\n" not in str(raised.value)


def test_combiner_without_a_gpu_or_a_group(stand_in):
    torch = pytest.importorskip("torch")
    import samesum.torch as module

    with pytest.raises(ValueError, match="init_process_group"):
        module.Combiner(library=stand_in)
    if torch.cuda.is_available():
        return
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    try:
        with pytest.raises(RuntimeError, match="no CUDA device"):
            module.Combiner(library=stand_in)
    finally:
        torch.distributed.destroy_process_group()


RANK = """
import sys
sys.path[:0] = {paths!r}
import torch, torch.distributed as dist
import samesum.torch as st
st._DEVICE, st._has_device, st._current_device, st._current_stream = "cpu", lambda: True, lambda: 0, lambda device: 77
rank, ranks, store, library = int(sys.argv[1]), 3, sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", rank=rank, world_size=ranks, store=dist.FileStore(store, ranks))
def trouble(make):
    try:
        make()
        return "none"
    except Exception as error:
        return type(error).__name__ + " " + str(error)
partial = torch.arange(30, dtype=torch.bfloat16).reshape(6, 5)
with st.Combiner(library=library, check_calls=True) as combine:
    print(combine(partial, [1, 3, 2]).float().tolist() == partial.float()[[0, 1, 4][rank]:[1, 4, 6][rank]].tolist())
    print(combine(partial, [1, 3, 2], partial[1:4]).shape[0] if rank == 1 else combine(partial, [1, 3, 2]).shape[0])
    print(trouble(lambda: combine(partial, [1, 3, 2] if rank < 2 else [2, 2, 2])))
    print(trouble(lambda: combine(partial, [1, 3, 2], partial[:3] if rank == 1 else None)))
print(trouble(lambda: st.Combiner(library=library, scheme=["fixed_root", "exact"][rank == 2])))
print(trouble(lambda: st.Combiner(library=library, scheme=["fixed_root", "exakt"][rank == 1])))
print(trouble(lambda: st.Combiner(library=library if rank else "/nonexistent.so")))
groups = [dist.new_group([1, 2]), dist.new_group([0])]
if rank:
    with st.Combiner(groups[0], library=library, root=1) as combine:
        print(combine.rank, combine.ranks, combine(partial, [4, 2]).shape[0])
else:
    print(trouble(lambda: st.Combiner(groups[0], library=library)))
dist.destroy_process_group()
"""


def test_ranks_agree_or_all_hear_of_it(stand_in, tmp_path):
    pytest.importorskip("torch")
    script = RANK.format(paths=[path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path])
    ranks = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", script, str(rank), str(tmp_path / "store"),
                               stand_in], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
             for rank in range(3)]
    said = [rank.communicate(timeout=120) for rank in ranks]
    lines = [[line for line in out.splitlines() if "[Gloo]" not in line] for out, _ in said]
    assert all(rank.returncode == 0 for rank in ranks), said
    for rank in range(3):
        assert lines[rank][:3] == [
            "True", str([1, 3, 2][rank]),
            "ValueError ranks disagree on sizes: rank 0 has [1, 3, 2], rank 2 has [2, 2, 2]"], lines
        assert lines[rank][4] == ("ValueError ranks disagree on scheme: rank 0 has 'fixed_root', rank 2 has "
                                  "'exact'")
        assert ("unknown scheme 'exakt'" in lines[rank][5]
                and ("rank 1 of the group: " in lines[rank][5]) == (rank != 1))
        assert "/nonexistent.so" in lines[rank][6] and ("RuntimeError rank 0 of" in lines[rank][6]) == (rank != 0)
        from_other = "" if rank == 1 else "rank 1 of the group: "
        assert lines[rank][3].startswith(f"ValueError {from_other}out overlaps partial 0 bytes from its beginning")
    assert lines[0][7].startswith("ValueError rank 0 is not in the group")
    assert [lines[rank][7] for rank in (1, 2)] == ["0 2 4", "1 2 2"]
