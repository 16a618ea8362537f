# The model in Python: predicts orders, evaluates them on arrays, and tells them from defects. It compares bits, never
# values.
# SPDX-License-Identifier: Apache-2.0
#
# The model itself is C++ (samesum._model), the same code as behind `samesum order` and `samesum sum`; here keywords
# become a description of a call, and arrays become bit patterns.
from __future__ import annotations

import ast
import operator
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import Inconclusive, _model

Order = Union[str, tuple]
"""A reduction tree: "((0 1) 2)", ((0, 1), 2), "chain", "ring:3" (4, ..., 3), "reversed" or "balanced"."""

_PATTERNS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_NATIVE = {"float16", "float32", "float64"}
_ALIASES = {"float8_e4m3fn": "float8_e4m3"}


# --- Arrays as bit patterns ---


def _dtype_name(dtype: Any) -> str:
    """Accepts "bf16", numpy.float16, ml_dtypes.bfloat16, torch.bfloat16; ValueError with the choices."""
    if not isinstance(dtype, str):
        text = str(dtype)
        dtype = text[len("torch."):] if text.startswith("torch.") else np.dtype(dtype).name
    return _model.dtype(_ALIASES.get(dtype, dtype))[0]


def _own_dtype(array: np.ndarray) -> Optional[str]:
    """The float format of the array's type; None for integers, which may be patterns of any format."""
    name = array.dtype.name
    if name in _NATIVE:
        return name
    if array.dtype.kind in "iu":
        return None
    try:
        return _dtype_name(name)
    except ValueError:
        raise ValueError(f"an array of {name}: not a format that NCCL adds in") from None


def _as_numpy(array: Any) -> Tuple[np.ndarray, Optional[str]]:
    """The array on the CPU, and the format of its type."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        tensor = array.detach().cpu().contiguous()
        name = str(tensor.dtype)[len("torch."):]
        if tensor.is_complex() or tensor.dtype == torch.bool:
            raise ValueError(f"a tensor of {name}: not a format that NCCL adds in")
        patterns = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
        found = tensor.view(patterns).numpy().view(_PATTERNS[tensor.element_size()])
        return found, _dtype_name(name) if tensor.dtype.is_floating_point else None
    if not isinstance(array, np.ndarray) and hasattr(array, "__dlpack__"):
        try:
            array = np.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError, ValueError):
            pass  # e.g. bfloat16, for which NumPy has no type: some libraries still make an array of ml_dtypes
    array = np.asarray(array)
    return array.astype(array.dtype.newbyteorder("="), copy=False), _own_dtype(array)


def _holds_arrays(values: Any) -> bool:
    return isinstance(values, (list, tuple)) and len(values) > 0 and all(hasattr(each, "dtype") for each in values)


def _patterns(what: str, array: Any, dtype: Any = None) -> Tuple[np.ndarray, Optional[str]]:
    """Contiguous bit patterns of any shape, and the name of their format; None where it is not named."""
    wanted = None if dtype is None else _dtype_name(dtype)
    if _holds_arrays(array):
        each = [_patterns(f"{what}[{i}]", one, dtype) for i, one in enumerate(array)]
        for i, (one, name) in enumerate(each):
            if one.shape != each[0][0].shape or name != each[0][1]:
                raise ValueError(f"{what}[{i}] is {name} {list(one.shape)}; {what}[0] is {each[0][1]} "
                                 f"{list(each[0][0].shape)}")
        return np.stack([one for one, _ in each]), each[0][1]
    if isinstance(array, (list, tuple, int, float)):
        if wanted is None:
            raise ValueError(f"{what}: a list of numbers needs dtype=, which they are rounded to")
        return bits(array, wanted), wanted
    found, own = _as_numpy(array)
    if own and wanted and own != wanted:
        raise ValueError(f"{what} is {own}; not dtype={wanted!r}")
    name = own or wanted
    if name is not None:
        bytes_wanted = _model.dtype(name)[1]
        if found.itemsize != bytes_wanted:
            raise ValueError(f"{what} is {found.dtype.name}; expected {name}'s bit patterns in "
                             f"{_PATTERNS[bytes_wanted].__name__}")
    return np.asarray(found, order="C").view(_PATTERNS[found.itemsize]), name


def _partials(partials: Any, dtype: Any) -> Tuple[np.ndarray, str]:
    """[ranks, ...] patterns and the name of their format."""
    found, name = _patterns("partials", partials, dtype)
    if name is None:
        raise ValueError(f"partials are {found.dtype.name}, which may be bit patterns of several formats: expected "
                         "dtype=")
    if found.ndim == 0 or found.shape[0] == 0:
        raise ValueError(f"partials have shape {list(found.shape)}; expected [ranks, elements]")
    return found, name


def _flat(partials: np.ndarray) -> np.ndarray:
    return partials.reshape(partials.shape[0], -1)


def bits(values: Any, dtype: Any) -> np.ndarray:
    """Numbers rounded once to `dtype`, to nearest even, as bit patterns of the same shape (uint8 to uint64).

    >>> bits([1.0, 0.1], "bfloat16")
    array([16256, 15821], dtype=uint16)
    """
    name = _dtype_name(dtype)
    numbers = np.asarray(values, dtype=np.float64, order="C")
    result = np.empty(numbers.shape, _PATTERNS[_model.dtype(name)[1]])
    _model.round_values(name, numbers.reshape(-1), result.reshape(-1))
    return result


# --- Orders ---


def _order_text(order: Order) -> str:
    """A nested tuple as `((0 1) 2)`; text as it is."""
    if isinstance(order, str):
        return order
    if isinstance(order, (int, np.integer)):
        return str(int(order))
    if isinstance(order, (tuple, list)) and len(order) == 2:
        return f"({_order_text(order[0])} {_order_text(order[1])})"
    raise ValueError(f"order {order!r}: expected text like '((0 1) 2)' or nested pairs like ((0, 1), 2)")


def _nested(tree: str) -> Union[int, tuple]:
    return ast.literal_eval(tree.replace(" ", ", "))


def same_order(a: Order, b: Order) -> bool:
    """Are two trees the same order: equal up to swapping operands? Addition commutes, bit for bit."""
    return _model.same_order(_order_text(a), _order_text(b))


class Segment(NamedTuple):
    """Elements [begin, end) of a call's result that one order makes, on one channel."""

    begin: int
    end: int
    tree: Optional[str]
    """ "((0 1) 2)": (x0 + x1) + x2 over the ranks' values. None where the order is not observable."""
    nested: Union[None, int, tuple]
    """The same as nested pairs: ((0, 1), 2)."""
    channel: int


class Prediction(Sequence[Segment]):
    """A call and its orders: a sequence of Segments, in element order, that cover the result.

    For reduce_scatter the result is laid out rank after rank. `str()` is a table.
    """

    def __init__(self, planned: "_model.PlannedCall") -> None:
        self._planned = planned
        self._rows: Optional[List[Segment]] = None

    def segments(self, begin: int = 0, end: Optional[int] = None, limit: Optional[int] = None) -> List[Segment]:
        """The segments of elements [begin, end), at most `limit` of them; neighbours of one order and channel are
        joined."""
        end = self.elements if end is None else end
        if not 0 <= begin <= end <= self.elements:
            raise ValueError(f"elements {begin} to {end}: the call has {self.elements}")
        rows, trees = self._planned.rows(begin, end, sys.maxsize if limit is None else limit)
        nested = [None if tree is None else _nested(tree) for tree, _ in trees]
        return [Segment(first, last, trees[order][0], nested[order], channel) for first, last, order, channel in rows]

    def _all(self) -> List[Segment]:
        if self._rows is None:
            self._rows = self.segments()
        return self._rows

    def __len__(self) -> int:
        return len(self._all())

    def __getitem__(self, index):  # type: ignore[override]
        return self._all()[index]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._all())

    def tree(self, element: int) -> str:
        """The order of one element. Raises Inconclusive, with the reason, where it is not observable."""
        if not 0 <= element < self.elements:
            raise ValueError(f"element {element}: the call has {self.elements}")
        _, trees = self._planned.rows(element, element + 1, 1)
        if trees[0][0] is None:
            raise Inconclusive(trees[0][1])
        return trees[0][0]

    @property
    def trees(self) -> List[Optional[str]]:
        """The distinct orders, up to swapping operands, by first element."""
        return [tree for tree, _ in self._planned.rows(0, self.elements, sys.maxsize)[1]]

    @property
    def elements(self) -> int:
        return self._planned.elements

    @property
    def ranks(self) -> int:
        return self._planned.ranks

    @property
    def dtype(self) -> str:
        return self._planned.dtype

    @property
    def call(self) -> str:
        """The call in words."""
        return self._planned.call

    @property
    def ran(self) -> str:
        """How NCCL runs it: algorithm, protocol, channels."""
        return self._planned.ran

    @property
    def nccl_version(self) -> str:
        return self._planned.nccl_version

    @property
    def assumptions(self) -> List[str]:
        """The assumptions behind the prediction, each with a way to verify it."""
        return self._planned.assumptions

    def __repr__(self) -> str:
        return f"<Prediction: {self.call}>"

    def __str__(self) -> str:
        lines = [f"{self.call}: {self.ran} (NCCL {self.nccl_version})"]
        lines += [f"assumes {assumption}" for assumption in self.assumptions]
        shown = self.segments(limit=32)
        lines += [f"{row.begin:>14} {row.end:>14}  {row.tree or 'not observable'}" for row in shown]
        if shown and shown[-1].end < self.elements:
            lines.append(f"{'...':>14} {self.elements:>14}")
        return "\n".join(lines)


def _number(what: str, value: Any) -> int:
    """A whole number that C++ can hold; text counts as the number that it spells."""
    try:
        number = int(value) if isinstance(value, str) else operator.index(value)
    except (TypeError, ValueError):
        number = 2**31
    if not -2**31 <= number < 2**31:
        raise ValueError(f"{what} {value!r}: expected a whole number")
    return number


def _number_or_none(what: str, value: Any) -> Optional[int]:
    return None if value is None else _number(what, value)


def _described(
        *, ranks: Optional[int] = None, ranks_per_node: Optional[int] = None,
        rings: Union[None, str, Sequence[Sequence[int]]] = None, channels: Optional[int] = None,
        nccl_version: Optional[str] = None, machine: Optional[str] = None,
        environment: Union[None, str, Path, Mapping[str, Any]] = None, log: Union[None, str, Path] = None,
        communicator: Optional[str] = None, sm: Optional[int] = None, graph: Union[None, str, Path] = None,
        algorithm: Optional[str] = None, protocol: Optional[str] = None) -> "_model.CallDescription":
    """What the keywords say about a communicator."""
    description = _model.CallDescription()
    numbers = dict(ranks=ranks, ranks_per_node=ranks_per_node, channels=channels, sm=sm)
    words = dict(nccl_version=nccl_version, machine=machine, communicator=communicator, graph=graph,
                 algorithm=algorithm, protocol=protocol)
    _fill(description, **{key: _number_or_none(key, value) for key, value in numbers.items()},
          **{key: _text(value) for key, value in words.items()})
    if isinstance(rings, str):
        description.rings_text = rings
    elif rings is not None:
        description.rings = [[_number("rings", rank) for rank in ring] for ring in rings]
    if isinstance(environment, Mapping):
        description.environment = {str(key): str(value) for key, value in environment.items()}
    else:
        _fill(description, environment_file=_text(environment))
    if isinstance(log, str) and "\n" in log:
        description.log_text = log
    else:
        _fill(description, log_file=_text(log))
    return description


def _text(value: Any) -> Optional[str]:
    return None if value is None else str(value)


def _fill(description: "_model.CallDescription", **keywords: Any) -> None:
    """Sets what is given."""
    for key, value in keywords.items():
        if value is not None:
            setattr(description, key, value)


def predict(collective: str, *, count: Union[int, str], dtype: Any = "float32", root: Optional[int] = None,
            op: str = "sum", in_place: bool = False, registered: bool = False, symmetric: Optional[str] = None,
            blocks: Optional[int] = None, **communicator: Any) -> Prediction:
    """Which order NCCL adds in, for each element of a call.

    collective: "reduce", "reduce_scatter" or "all_reduce".
    count: NCCL's count, in elements ("64x2048" multiplies); for reduce_scatter that of each rank.
    root: of a reduce; 0 by default.
    op: "sum", "prod", "min", "max" or "avg".
    in_place, registered: of the buffers, which NCCL's choice may depend on.
    symmetric, blocks: for buffers in symmetric windows the kernel and `nchannels` of NCCL's log line.

    The communicator, by further keywords: ranks; ranks_per_node (1: each rank its own node; ranks: one NVSwitch node);
    rings ([[0, 1, 2, 3], [0, 3, 2, 1]]) or graph (an NCCL_GRAPH_FILE) or log (an NCCL_DEBUG=INFO log: its file or its
    text; communicator and sm pick and complete it) where they are others; channels; nccl_version ("2.27" to "2.30");
    environment (a dict or file of NCCL_* settings); machine (speeds for NCCL's choice); algorithm ("ring", "tree",
    "pat") and protocol ("ll", "ll128", "simple") where they are known.

    Nothing is assumed silently: ValueError names the keyword that is missing. Same as `samesum order show`.
    """
    description = _described(**communicator)
    _fill(description, collective=str(collective), count=str(count), dtype=_dtype_name(dtype),
          root=_number_or_none("root", root), op=str(op), in_place=bool(in_place), registered=bool(registered),
          symmetric=_text(symmetric), blocks=_number_or_none("blocks", blocks))
    return Prediction(_model.PlannedCall(description))


class Change(NamedTuple):
    """Elements [begin, end) of the first call, whose order `old` the second call replaces by `new`; None where an order
    is not observable."""

    begin: int
    end: int
    old: Optional[str]
    new: Optional[str]


@dataclass(frozen=True)
class Diff:
    """The answer of diff(); `changes` are the first of `ranges`."""

    compared: int
    changed: int
    ranges: int
    changes: List[Change]

    @property
    def same(self) -> bool:
        return self.changed == 0

    def __str__(self) -> str:
        lines = [f"{change.begin:>14} {change.end:>14}  {change.old or 'not observable'} -> "
                 f"{change.new or 'not observable'}" for change in self.changes[:32]]
        if self.ranges > len(lines):
            lines.append(f"{'...':>14} {self.ranges} ranges in all")
        return "\n".join([*lines, f"{self.changed} of {self.compared} elements change their order"])


def diff(before: Prediction, after: Prediction, *, offset: int = 0, limit: Optional[int] = None) -> Diff:
    """Exactly which elements change their order between two calls, with the old and the new tree.

    Element i of `before` is compared with element i + offset of `after` (of each rank's block, for reduce_scatter), as
    far as both go. limit: maximum number of changes to list. An order that is not observable is never called
    unchanged.
    """
    compared, changed, ranges, rows, trees = _model.diff(before._planned, after._planned, offset,
                                                         sys.maxsize if limit is None else limit)
    return Diff(compared, changed, ranges, [Change(begin, end, trees[old][0], trees[new][0])
                                            for begin, end, old, new in rows])


# --- Sums ---


def evaluate(order: Union[Order, Prediction], partials: Any, *, dtype: Any = None, rounding: str = "per_hop",
             op: str = "sum", threads: int = 0) -> np.ndarray:
    """The bits that an order gives: of one tree for all elements, or of a predicted call.

    partials: [ranks, ...]; or a list of one array a rank. Returns bit patterns [...], unsigned integers.
    rounding: "per_hop" (each addition in `dtype`, as NCCL), "fp32_once" or "exact"; of a call it is the call's own.
    op: "sum", "prod", "min", "max", "avg"; of a call the call's own.
    threads: 0 for as many as the machine runs at once. The GIL is released.

    Raises Inconclusive where a call's order is not observable.
    """
    given, name = _partials(partials, dtype)
    flat = _flat(given)
    result = np.empty(flat.shape[1], flat.dtype)
    if isinstance(order, Prediction):
        if name != order.dtype:
            raise ValueError(f"partials are {name}; the call adds {order.dtype}")
        if flat.shape != (order.ranks, order.elements):
            raise ValueError(f"partials are {flat.shape[0]} ranks of {flat.shape[1]} elements; the call has "
                             f"{order.ranks} of {order.elements}")
        _model.evaluate_call(order._planned, flat, result, threads)
    else:
        _model.evaluate_order(name, rounding, op, _order_text(order), flat, result, threads)
    return result.reshape(given.shape[1:])


_ORDERED = ("gather_ordered", "exchange_ordered", "direct_ordered")


def combine(scheme: str, partials: Any, *, sizes: Optional[Sequence[int]] = None, dtype: Any = None, root: int = 0,
            accumulation: str = "per_hop", by_node: int = 0, threads: int = 0, **communicator: Any) -> np.ndarray:
    """The bits of a whole combine of MoE partials, row by row as each row's owner receives it.

    scheme: reduce_scatter, reduce_per_owner, vllm_default, fixed_root, reduce_broadcast, gather_ordered,
        exchange_ordered, direct_ordered or exact.
    partials: [ranks, rows, hidden]. Returns bit patterns [rows, hidden].
    sizes: rows of each rank, which owns them consecutively; None: rows / ranks each.
    root: of fixed_root and reduce_broadcast. accumulation: of the ordered schemes, "per_hop" or "fp32_once".
    by_node: of the ordered schemes, add within nodes of this many ranks first; 0: one sum over all.
    communicator: predict()'s keywords, for the schemes whose order is NCCL's.
    """
    given, name = _partials(partials, dtype)
    if given.ndim != 3:
        raise ValueError(f"partials have shape {list(given.shape)}; expected [ranks, rows, hidden]")
    ranks, rows, hidden = given.shape
    if sizes is None:
        if rows % ranks:
            raise ValueError(f"{rows} rows do not divide among {ranks} ranks; expected sizes=, the rows of each rank")
        sizes = [rows // ranks] * ranks
    owned = [int(size) for size in sizes]
    if min(owned, default=0) < 0 or sum(owned) != rows:
        raise ValueError(f"sizes {owned} sum to {sum(owned)} rows; partials have {rows}")
    if "ranks" in communicator:
        raise ValueError("ranks: partials say how many there are")
    if accumulation != "per_hop" and scheme not in _ORDERED:
        raise ValueError(f"accumulation {accumulation!r} goes with {', '.join(_ORDERED)}; {scheme} takes per_hop")
    if by_node and scheme not in _ORDERED:
        raise ValueError(f"by_node {by_node} goes with {', '.join(_ORDERED)}, not with {scheme}")
    if root and scheme not in ("fixed_root", "reduce_broadcast"):
        raise ValueError(f"root {root} goes with fixed_root and reduce_broadcast; {scheme} has none")
    if not 0 <= root < ranks:
        raise ValueError(f"root {root} is not a rank: expected 0 to {ranks - 1}")
    # Summed by samesum, not NCCL: NCCL's rings do not matter.
    if scheme in (*_ORDERED, "exact") and not communicator:
        communicator = {"ranks_per_node": 1}
    result = np.empty(rows * hidden, given.dtype)
    description = _described(**({} if "log" in communicator or "rings" in communicator else {"ranks": ranks}),
                             **communicator)
    _model.combine(description, scheme, owned, hidden, name, root, accumulation, by_node, _flat(given), result, threads)
    return result.reshape(rows, hidden)


# --- Can a test reveal the order? ---


def _mask(partials: Any, dtype: Any, before: Optional[Order], after: Optional[Order], rounding: str, shape: str,
          seconds: float) -> np.ndarray:
    """1, 0, or 2 for not known."""
    given, name = _partials(partials, dtype)
    if (before is None) != (after is None):
        raise ValueError("before and after go together: expected two orders, or neither for all orders")
    if before is not None and after is not None:
        sums = [evaluate(order, given, dtype=name, rounding=rounding) for order in (before, after)]
        return (sums[0] != sums[1]).astype(np.uint8)
    flat = _flat(given)
    answers = np.empty(flat.shape[1], np.uint8)
    _model.order_mask(name, rounding, shape, seconds, flat, answers)
    return answers.reshape(given.shape[1:])


def mask(partials: Any, *, dtype: Any = None, before: Optional[Order] = None, after: Optional[Order] = None,
         rounding: str = "per_hop", shape: str = "any", seconds: float = 10) -> np.ndarray:
    """Which elements of these partials can reveal an order at all: True where two orders give other bits.

    partials: [ranks, ...]; returns bool [...]. Any two trees, or with shape="chain" any two sequences; or just `before`
    and `after`. An element whose orders are too many to try in `seconds` is False; non_vacuity() counts those.
    """
    return _mask(partials, dtype, before, after, rounding, shape, seconds) == 1


@dataclass(frozen=True)
class NonVacuity:
    """How much of a test on given partials can fail: of `elements`, `able` can reveal an order, and `unknown` may."""

    elements: int
    able: int
    unknown: int

    @property
    def share(self) -> float:
        return self.able / self.elements

    def __str__(self) -> str:
        more = f" ({self.unknown} more are not known)" if self.unknown else ""
        return f"{self.able} of {self.elements} elements can reveal an order: {100 * self.share:.2f} %{more}"


def non_vacuity(partials: Any, *, dtype: Any = None, before: Optional[Order] = None, after: Optional[Order] = None,
                rounding: str = "per_hop", shape: str = "any", seconds: float = 10) -> NonVacuity:
    """The share of elements that mask() finds able to reveal an order. Same as `samesum sum mask`."""
    answers = _mask(partials, dtype, before, after, rounding, shape, seconds)
    if answers.size == 0:
        raise ValueError("partials hold no element: expected at least one")
    return NonVacuity(answers.size, int((answers == 1).sum()), int((answers == 2).sum()))


def assert_order_visible(partials: Any, *, least: float = 0.10, dtype: Any = None, before: Optional[Order] = None,
                         after: Optional[Order] = None, rounding: str = "per_hop", shape: str = "any",
                         seconds: float = 10) -> None:
    """For tests: AssertionError where fewer than the share `least` of the elements can reveal an order, so that the
    test could hardly fail; Inconclusive where that is not known."""
    if not 0 <= least <= 1:
        raise ValueError(f"least {least}: expected a share from 0 to 1")
    found = non_vacuity(partials, dtype=dtype, before=before, after=after, rounding=rounding, shape=shape,
                        seconds=seconds)
    if found.share >= least:
        return
    if (found.able + found.unknown) / found.elements >= least:
        raise Inconclusive(f"not known whether the data can show an order: {found}; expected {100 * least:.2f} %")
    raise AssertionError(f"vacuous: {found}; below {100 * least:.2f} % a test on this data can hardly fail")


def _where(index: int, shape: Tuple[int, ...]) -> str:
    place = np.unravel_index(index, shape)
    return "element " + (str(index) if len(shape) == 1 else "[" + ", ".join(str(int(each)) for each in place) + "]")


def _hex(dtype: Optional[str], pattern: Any) -> str:
    value = int(pattern)
    return f"0x{value:0{2 * pattern.dtype.itemsize}x}" if dtype is None else _model.text(dtype, value).split(" ")[0]


def assert_same_bits(a: Any, b: Any, *, dtype: Any = None, partials: Any = None) -> None:
    """For tests: AssertionError unless two arrays are the same, bit for bit. NaNs with equal patterns are equal, +0 and
    -0 are not. With the `partials` [ranks, ...] that were added, the message names the kind of difference."""
    (first, first_name), (second, second_name) = _patterns("a", a, dtype), _patterns("b", b, dtype)
    if first.shape != second.shape:
        raise AssertionError(f"a has shape {list(first.shape)}, b {list(second.shape)}")
    if first.dtype != second.dtype or (first_name and second_name and first_name != second_name):
        raise AssertionError(f"a is {first_name or first.dtype.name}, b is {second_name or second.dtype.name}")
    if first.size == 0:
        raise ValueError("a and b hold no element: expected at least one")
    different = np.flatnonzero(first.reshape(-1) != second.reshape(-1))
    if different.size == 0:
        return
    name = first_name or second_name
    lines = [f"{different.size} of {first.size} elements have other bits"]
    for index in different[:5]:
        lines.append(f"  {_where(int(index), first.shape)}: {_hex(name, first.reshape(-1)[index])} and "
                     f"{_hex(name, second.reshape(-1)[index])}")
    if different.size > 5:
        lines.append("  ...")
    if partials is not None:
        try:
            lines.append(str(explain_difference(first, second, partials=partials, dtype=name)))
        except Inconclusive as reason:
            lines.append(f"the kind of difference is not known: {reason}")
    raise AssertionError("\n".join(lines))


# --- Order change or defect? ---


@dataclass(frozen=True)
class Evidence:
    """One element, and for each result a tree and a rounding that give it; a tree of None: none does."""

    element: int
    """Index into the flattened results."""
    a: str
    """Bits and, for people, the value: "0x3f80 (1)"."""
    b: str
    tree_a: Optional[str]
    rounding_a: Optional[str]
    tree_b: Optional[str]
    rounding_b: Optional[str]
    nearest: Tuple[str, ...] = ()
    """For a defect: the nearest results that some order gives."""
    defect_in: Tuple[str, ...] = ()
    """For a defect: which of "a" and "b" no order gives."""

    def __str__(self) -> str:
        def side(which: str, shown: str, tree: Optional[str], rounding: Optional[str]) -> str:
            if which in self.defect_in:
                near = f"; the nearest that some order gives: {', '.join(self.nearest)}" if self.nearest else ""
                return f"{which} {shown}: no order gives it{near}"
            return f"{which} {shown} by {tree}, {rounding}" if tree else f"{which} {shown}"

        return (f"element {self.element}: {side('a', self.a, self.tree_a, self.rounding_a)}; "
                f"{side('b', self.b, self.tree_b, self.rounding_b)}")


@dataclass(frozen=True)
class Explanation:
    """Why two results differ.

    kind: "same": they do not. "order change": one rounding, other orders. "rounding model": orders alone do not explain
    it, a sum that is rounded elsewhere does. "defect": no order and no rounding gives one of the results.
    """

    kind: str
    elements: int
    differing: int
    rounding_a: Optional[str] = None
    """The rounding that gives all of a; None where it takes several, or none does."""
    rounding_b: Optional[str] = None
    order_a: Optional[str] = None
    """The one tree that gives all of a, where there is one."""
    order_b: Optional[str] = None
    evidence: Tuple[Evidence, ...] = ()

    def __str__(self) -> str:
        if self.kind == "same":
            return f"same: all {self.elements} elements, bit for bit"
        lines = [f"{self.kind}: {self.differing} of {self.elements} elements have other bits"]
        for which, order, rounding in (("a", self.order_a, self.rounding_a), ("b", self.order_b, self.rounding_b)):
            if order:
                lines.append(f"  all of {which} is {order}, {rounding}")
        return "\n".join([*lines, *(f"  {each}" for each in self.evidence)])


def explain_difference(a: Any, b: Any, *, partials: Any, dtype: Any = None,
                       orders: Sequence[Union[Order, Prediction]] = (), seconds: float = 60) -> Explanation:
    """Decides about two results of adding the same partials: the order changed, the rounding, or one is a defect.

    a, b: [...]; partials: [ranks, ...], the values that were added.
    orders: to try first, before every ring, rank order and the balanced tree; of a predicted call, all of its trees.
    seconds: for the search through all orders of the elements that those do not explain.

    That an order exists does not show that it was taken; that none exists proves a defect. Raises Inconclusive where
    neither was found: too many ranks (more than about 16), or out of time.
    """
    (first, first_name), (second, second_name) = _patterns("a", a, dtype), _patterns("b", b, dtype)
    given, name = _partials(partials, dtype or first_name or second_name)
    for what, one, own in (("a", first, first_name), ("b", second, second_name)):
        if own not in (None, name) or one.dtype != given.dtype:
            raise ValueError(f"{what} is {own or one.dtype.name}; partials are {name}")
        if one.shape != given.shape[1:]:
            raise ValueError(f"{what} has shape {list(one.shape)}; partials {list(given.shape)} add up to "
                             f"{list(given.shape[1:])}")
    if first.size == 0:
        raise ValueError("a and b hold no element: expected at least one")
    tried: List[str] = []
    for order in orders:
        tried += [tree for tree in order.trees if tree] if isinstance(order, Prediction) else [_order_text(order)]
    kind, differing, roundings, whole_orders, evidence = _model.explain_difference(
        name, _flat(given), first.reshape(-1), second.reshape(-1), tried, seconds)
    return Explanation(kind, first.size, differing, *roundings, *whole_orders,
                       tuple(_evidence(*each) for each in evidence))


def _evidence(element: int, results: Sequence[Tuple[str, Optional[str], Optional[str], bool]],
              nearest: Sequence[str]) -> Evidence:
    (a, tree_a, rounding_a, _), (b, tree_b, rounding_b, _) = results
    defect_in = tuple(which for which, result in zip("ab", results) if result[3])
    return Evidence(element, a, b, tree_a, rounding_a, tree_b, rounding_b, tuple(nearest), defect_in)
