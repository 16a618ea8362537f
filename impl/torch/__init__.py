# The combines on torch tensors: libsamesum-nccl driven over a torch.distributed group.
# SPDX-License-Identifier: Apache-2.0
"""Combines of MoE partials on torch tensors. Their order of additions does not depend on the routing.

Every rank holds a partial sum of every token, `partial` [rows, hidden]. Rank r owns `sizes[r]` consecutive rows, in
rank order. A combine adds the partials over the ranks and gives each rank its own rows::

    import torch
    import torch.distributed as dist
    from samesum.torch import Combiner

    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    with Combiner(scheme="fixed_root") as combine:
        partial = torch.randn(8, 2048, dtype=torch.bfloat16, device="cuda")
        mine = combine(partial, sizes=[1, 5, 0, 2])  # this rank's rows, [sizes[rank], hidden]

It needs a GPU and libsamesum-nccl.so.2 (see `load_library`), and nothing else of samesum.
"""
from __future__ import annotations

import operator
import os
import warnings
from typing import Optional, Sequence, Tuple, Union, cast

import torch
import torch.distributed as dist

from ._library import Library, load_library

__all__ = ["ACCUMULATIONS", "SCHEMES", "Combiner", "Library", "load_library"]

SCHEMES = ("reduce_scatter", "reduce_per_owner", "vllm_default", "fixed_root", "reduce_broadcast", "gather_ordered",
           "exchange_ordered", "direct_ordered", "exact", "auto")
ACCUMULATIONS = ("per_hop", "fp32_once")
_ORDERED = ("gather_ordered", "exchange_ordered", "direct_ordered")

# ncclDataType_t of nccl.h (NCCL 2.28.9) for each torch type.
_DTYPES = {torch.float16: 6, torch.float32: 7, torch.float64: 8, torch.bfloat16: 9}
for _name, _number in (("float8_e4m3fn", 10), ("float8_e5m2", 11)):
    if hasattr(torch, _name):  # torch 2.1 and later
        _DTYPES[getattr(torch, _name)] = _number

_DEVICE = "cuda"
_MAX_LAYOUTS = 4096


def _has_device() -> bool:
    return torch.cuda.is_available()


def _current_device() -> int:
    return torch.cuda.current_device()


def _current_stream(device: int) -> int:
    return torch.cuda.current_stream(device).cuda_stream


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _chosen(what: str, word: object, choices: Sequence[str]) -> bytes:
    if not isinstance(word, str):
        raise TypeError(f"{what} {_short(word)}: expected a name, one of {', '.join(choices)}")
    if word not in choices:
        raise ValueError(f"unknown {what} {word!r}: expected one of {', '.join(choices)}")
    return word.encode()


class _Layout:
    """Checked sizes, as a call passes them on, and the place of this rank's rows."""

    __slots__ = ("sizes", "own_rows", "first_row")

    def __init__(self, sizes: Optional[Sequence[int]], rows: int, ranks: int, rank: int) -> None:
        if sizes is None:
            if rows % ranks:
                raise ValueError(f"{rows} rows do not divide among {ranks} ranks: expected sizes=, the rows of each")
            numbers = [rows // ranks] * ranks
        else:
            try:
                numbers = [operator.index(size) for size in sizes]
            except TypeError:
                raise TypeError(f"sizes {_short(sizes)}: expected whole numbers of rows, one for each rank") from None
            if len(numbers) != ranks:
                raise ValueError(f"sizes {_short(numbers)} are for {len(numbers)} ranks: expected {ranks}, as the "
                                 "group has")
            if any(size < 0 for size in numbers):
                raise ValueError(f"sizes {_short(numbers)}: expected numbers of 0 or more")
            if sum(numbers) != rows:
                raise ValueError(f"sizes {_short(numbers)} sum to {sum(numbers)} rows: expected {rows}, as partial has")
        self.sizes = Library.as_sizes(numbers)
        self.own_rows = numbers[rank]
        self.first_row = sum(numbers[:rank])


class Combiner:
    """A combine over a torch.distributed group, on an NCCL communicator of its own.

    group: a process group, None for all ranks. Any backend will do: the group only carries the communicator's unique id
        and the comparison of the arguments. All ranks of the group must make, call and close their Combiner alike.
    scheme: a name of SCHEMES. "auto" is the fastest scheme that adds in rank order on this machine; all of these give
        the same bits.
    accumulation: of the ordered schemes, "per_hop" (each addition in the tensor's type) or "fp32_once" (float32 sums,
        rounded once).
    root: rank of the group that fixed_root and reduce_broadcast reduce to.
    library: a path, or a result of load_library(); None: the library that load_library() finds.
    check_calls: compare sizes, shape and type between the ranks before every call, to find out why ranks hang or
        differ. Costs a collective of the group, and the call cannot be captured.

    Raises ValueError or TypeError for arguments that are wrong or differ between ranks (then on every rank), before
    anything reaches the GPU; OSError without the library; RuntimeError with the library's error. Messages are one
    line.
    """

    def __init__(self, group: Optional["dist.ProcessGroup"] = None, *, scheme: str = "fixed_root",
                 accumulation: str = "per_hop", root: int = 0,
                 library: Union[None, str, os.PathLike, Library] = None, check_calls: bool = False) -> None:
        self._communicator = 0
        self._layouts: dict = {}
        problem: Optional[Exception] = None
        try:
            self._scheme = _chosen("scheme", scheme, SCHEMES)
            self._accumulation = _chosen("accumulation", accumulation, ACCUMULATIONS)
            self._root = operator.index(root)
        except (TypeError, ValueError) as error:
            problem = error
        if not dist.is_available() or not dist.is_initialized():
            raise problem or ValueError(
                "torch.distributed has no process group: expected init_process_group() before Combiner")
        self._group = cast("dist.ProcessGroup", dist.group.WORLD if group is None else group)
        self._ranks = dist.get_world_size(self._group)
        self._rank = dist.get_rank(self._group)
        if self._rank < 0:
            raise problem or ValueError(f"rank {dist.get_rank()} is not in the group: expected a Combiner only on the "
                                        "group's ranks")
        self._check_calls = bool(check_calls)
        # A rank that raised here would leave the others waiting in the group, so the error is shared first.
        try:
            if problem is not None:
                raise problem
            if accumulation != "per_hop" and scheme not in ("auto", *_ORDERED):
                raise ValueError(f"accumulation {accumulation!r} with scheme {scheme}: expected per_hop, or one of "
                                 f"auto, {', '.join(_ORDERED)}")
            if self._root and scheme not in ("fixed_root", "reduce_broadcast"):
                raise ValueError(f"root {self._root} with scheme {scheme}: expected 0, or one of fixed_root, "
                                 "reduce_broadcast")
            if not 0 <= self._root < self._ranks:
                raise ValueError(f"root {self._root}: expected a rank of the group, 0 to {self._ranks - 1}")
            self._library = library if isinstance(library, Library) else load_library(library)
            if not _has_device():
                raise RuntimeError("torch finds no CUDA device; a combine runs on a GPU")
            self._device = _current_device()
        except Exception as error:  # any kind: it is raised again by _agree()
            problem = error
        self._agree({"scheme": scheme, "accumulation": accumulation, "root": root, "check_calls": self._check_calls},
                    problem)
        self._communicator = self._library.init_rank(self._ranks, self._shared_id(), self._rank)

    def _agree(self, arguments: dict, problem: Optional[Exception] = None) -> None:
        """Raises on all ranks if the arguments differ between them or one of them has a problem."""
        everyone: list = [None] * self._ranks
        shared_problem = problem and (isinstance(problem, (TypeError, ValueError)), str(problem))
        dist.all_gather_object(everyone, (arguments, shared_problem), group=self._group)
        if problem is not None:
            raise problem
        for rank, (_, other) in enumerate(everyone):
            if other is not None:
                raise (ValueError if other[0] else RuntimeError)(f"rank {rank} of the group: {other[1]}")
        for rank, (other, _) in enumerate(everyone):
            for what, first in everyone[0][0].items():
                if other[what] != first:
                    raise ValueError(f"ranks disagree on {what}: rank 0 has {_short(first)}, rank {rank} has "
                                     f"{_short(other[what])}")

    def _shared_id(self) -> bytes:
        """A new unique id from rank 0; if rank 0 cannot make one, its error is raised on all ranks."""
        box: list = [None]
        if self._rank == 0:
            try:
                box[0] = self._library.unique_id()
            except RuntimeError as error:
                box[0] = str(error)
        dist.broadcast_object_list(box, src=dist.get_global_rank(self._group, 0), group=self._group)
        if isinstance(box[0], str):
            raise RuntimeError(box[0])
        return box[0]

    @property
    def ranks(self) -> int:
        """Ranks of the group."""
        return self._ranks

    @property
    def rank(self) -> int:
        """This process's rank in the group."""
        return self._rank

    @property
    def scheme(self) -> str:
        return self._scheme.decode()

    @property
    def closed(self) -> bool:
        return not self._communicator

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<Combiner {self.scheme}, {self._accumulation.decode()}, rank {self._rank} of {self._ranks}{state}>"

    def __call__(self, partial: torch.Tensor, sizes: Optional[Sequence[int]] = None,
                 out: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Adds the ranks' partials and returns this rank's rows, [sizes[rank], hidden].

        partial: [rows, hidden], contiguous, on the device that was current when the Combiner was made; float16,
            bfloat16, float32, float64, float8_e4m3fn or float8_e5m2.
        sizes: rows of each rank, the same on all ranks; None: rows / ranks each, which must divide.
        out: where the result goes, [sizes[rank], hidden], else a new tensor; may be this rank's rows of `partial`, but
            must not overlap it otherwise.

        Runs on torch's current stream and does not wait, so it can be captured into a CUDA graph (after one call
        outside a capture, because NCCL connects lazily). Calls on several streams must not overlap: they share the
        communicator's scratch memory. Has no gradient. Raises ValueError or TypeError for wrong arguments, RuntimeError
        with the library's error.
        """
        if not self._communicator:
            raise ValueError("this Combiner is closed: expected a call before close() or abort()")
        if self._check_calls:
            self._agree_on_call(partial, sizes, out)
        data_type, layout = self._checked(partial, sizes, out)
        hidden = partial.shape[1]
        if out is None:
            out = torch.empty((layout.own_rows, hidden), dtype=partial.dtype, device=partial.device)
        arguments = (self._communicator, self._scheme, self._accumulation, layout.sizes, hidden, data_type, self._root,
                     partial.data_ptr(), out.data_ptr(), _current_stream(self._device))
        if _current_device() == self._device:
            self._library.combine(*arguments)
        else:
            with torch.cuda.device(self._device):
                self._library.combine(*arguments)
        return out

    def _where(self) -> str:
        return f"{_DEVICE}:{self._device}"

    def _agree_on_call(self, partial, sizes, out) -> None:
        """Compares the checked arguments between the ranks. An error on one rank is raised on all of them."""
        arguments: dict = {}
        problem: Optional[Exception] = None
        try:
            _, layout = self._checked(partial, sizes, out)
            arguments = {"sizes": list(layout.sizes), "shape": list(partial.shape), "dtype": str(partial.dtype)}
        except (TypeError, ValueError) as error:
            problem = error
        self._agree(arguments, problem)

    def _checked(self, partial, sizes, out) -> Tuple[int, _Layout]:
        """Checks all arguments. Returns NCCL's number of the type and the sizes' layout."""
        if not isinstance(partial, torch.Tensor):
            raise TypeError(f"partial is a {type(partial).__name__}: expected a torch.Tensor [rows, hidden]")
        self._check_place("partial", partial)
        data_type = _DTYPES.get(partial.dtype)
        if data_type is None:
            raise TypeError(f"partial is {partial.dtype}: expected one of {', '.join(str(each) for each in _DTYPES)}")
        if partial.dim() != 2:
            raise ValueError(f"partial has shape {list(partial.shape)}: expected [rows, hidden]")
        if not partial.is_contiguous():
            raise ValueError(f"partial of shape {list(partial.shape)} and strides {list(partial.stride())} is not "
                             "contiguous: expected partial.contiguous()")
        if partial.requires_grad and torch.is_grad_enabled():
            raise ValueError("partial requires a gradient, and a combine has none: expected partial.detach() or "
                             "torch.no_grad()")
        layout = self._layout(sizes, partial.shape[0])
        if out is not None:
            self._check_out(out, partial, layout)
        return data_type, layout

    def _check_place(self, what: str, tensor: torch.Tensor) -> None:
        device = tensor.device
        # A CPU device has no index.
        if device.type != _DEVICE or (device.index or 0) != self._device:
            raise ValueError(f"{what} is on {device}: expected {self._where()}, the device of this Combiner")

    def _layout(self, sizes: Optional[Sequence[int]], rows: int) -> _Layout:
        if isinstance(sizes, torch.Tensor):
            if sizes.device.type != "cpu":
                raise ValueError(f"sizes are on {sizes.device}, where reading them would wait for the GPU: expected a "
                                 "list or a CPU tensor")
            sizes = sizes.tolist()
        try:
            key = (None if sizes is None else tuple(sizes), rows)
            found = self._layouts.get(key)
        except TypeError:
            raise TypeError(f"sizes {_short(sizes)}: expected whole numbers of rows, one for each rank") from None
        if found is None:
            found = _Layout(key[0], rows, self._ranks, self._rank)
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            self._layouts[key] = found
        return found

    def _check_out(self, out: torch.Tensor, partial: torch.Tensor, layout: _Layout) -> None:
        if not isinstance(out, torch.Tensor):
            raise TypeError(f"out is a {type(out).__name__}: expected a torch.Tensor")
        self._check_place("out", out)
        if out.dtype != partial.dtype:
            raise TypeError(f"out is {out.dtype}: expected {partial.dtype}, the type of partial")
        wanted = [layout.own_rows, partial.shape[1]]
        if list(out.shape) != wanted:
            raise ValueError(f"out has shape {list(out.shape)}: expected {wanted}, the rows of rank {self._rank}")
        if not out.is_contiguous():
            raise ValueError(f"out of strides {list(out.stride())} is not contiguous: expected a contiguous tensor")
        row_bytes = partial.shape[1] * partial.element_size()
        begin, end = partial.data_ptr(), partial.data_ptr() + partial.shape[0] * row_bytes
        at, bytes_of_out = out.data_ptr(), out.numel() * out.element_size()
        if bytes_of_out and at < end and at + bytes_of_out > begin and at != begin + layout.first_row * row_bytes:
            raise ValueError(f"out overlaps partial {at - begin} bytes from its beginning: expected no overlap, or "
                             f"this rank's own rows, {layout.first_row} to {layout.first_row + layout.own_rows - 1}")

    def close(self) -> None:
        """Waits for pending work and destroys the communicator. Every rank must call it; a second call does
        nothing."""
        communicator, self._communicator = self._communicator, 0
        if communicator:
            self._library.destroy(communicator)

    def abort(self) -> None:
        """Destroys the communicator without waiting for other ranks; for use after an error."""
        communicator, self._communicator = self._communicator, 0
        if communicator:
            self._library.abort(communicator)

    def __enter__(self) -> "Combiner":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        # Destroying would wait for the other ranks, which may have ended; the end of the process frees it.
        if getattr(self, "_communicator", 0):
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2)
