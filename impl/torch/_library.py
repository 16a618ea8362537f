# libsamesum-nccl through ctypes: finds the library and declares the functions that samesum.torch calls.
# SPDX-License-Identifier: Apache-2.0
#
# ctypes instead of a compiled extension, so that one wheel works with every Python and every torch: the library's
# interface is C (impl/dropin/samesum_nccl.h, nccl.h of NCCL 2.28.9). ctypes releases the GIL during each call.
from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Optional, Sequence, Union

FILE_NAME = "libsamesum-nccl.so.2"
VARIABLE = "SAMESUM_NCCL_LIBRARY"


class UniqueId(ctypes.Structure):
    """ncclUniqueId, which ncclCommInitRank takes by value."""

    _fields_ = [("internal", ctypes.c_byte * 128)]


class Library:
    """A loaded libsamesum-nccl. Methods raise RuntimeError with the library's error when a call fails."""

    def __init__(self, path: str) -> None:
        try:
            self._functions = ctypes.CDLL(path)
        except OSError as error:
            raise OSError(str(error)) from None  # it names the path
        self.path = path
        pointer, integer, size, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_char_p
        sizes = ctypes.POINTER(ctypes.c_uint64)
        try:
            self._combine = self._declare(
                "samesumCombine", integer,
                pointer, text, text, sizes, integer, size, integer, integer, pointer, pointer, pointer)
            self._last_error = self._declare("samesumLastError", text)
            self._error_string = self._declare("ncclGetErrorString", text, integer)
            self._get_version = self._declare("ncclGetVersion", integer, ctypes.POINTER(integer))
            self._get_unique_id = self._declare("ncclGetUniqueId", integer, ctypes.POINTER(UniqueId))
            self._init_rank = self._declare(
                "ncclCommInitRank", integer, ctypes.POINTER(pointer), integer, UniqueId, integer)
            self._destroy = self._declare("ncclCommDestroy", integer, pointer)
            self._abort = self._declare("ncclCommAbort", integer, pointer)
        except AttributeError as error:
            raise OSError(f"{path} is not {FILE_NAME}: {error}") from None

    def _declare(self, name, result, *arguments):
        function = getattr(self._functions, name)
        function.restype, function.argtypes = result, list(arguments)
        return function

    def __repr__(self) -> str:
        return f"<{self.path}, NCCL {self.version()}>"

    def _check(self, code: int, what: str) -> None:
        if code != 0:
            text = (self._last_error() or b"").strip() or self._error_string(code) or b""
            raise RuntimeError(f"{what}: {text.decode(errors='replace')}")

    def version(self) -> str:
        """Release of the NCCL that it forwards to, e.g. "2.28.9"."""
        number = ctypes.c_int()
        self._check(self._get_version(ctypes.byref(number)), "ncclGetVersion")
        major, rest = divmod(number.value, 10000)
        return f"{major}.{rest // 100}.{rest % 100}"

    def unique_id(self) -> bytes:
        """A new unique id of 128 bytes, by which the ranks of a communicator find each other."""
        made = UniqueId()
        self._check(self._get_unique_id(ctypes.byref(made)), "ncclGetUniqueId")
        return bytes(made)

    def init_rank(self, ranks: int, unique_id: bytes, rank: int) -> int:
        """Makes this rank's communicator on the current CUDA device. Returns when all `ranks` have called."""
        communicator = ctypes.c_void_p()
        self._check(
            self._init_rank(ctypes.byref(communicator), ranks, UniqueId.from_buffer_copy(unique_id), rank),
            f"ncclCommInitRank of rank {rank}")
        return communicator.value or 0

    def destroy(self, communicator: int) -> None:
        self._check(self._destroy(communicator), "ncclCommDestroy")

    def abort(self, communicator: int) -> None:
        self._check(self._abort(communicator), "ncclCommAbort")

    @staticmethod
    def as_sizes(sizes: Sequence[int]) -> ctypes.Array:
        """Rows of each rank as the array that samesumCombine takes."""
        return (ctypes.c_uint64 * len(sizes))(*sizes)

    def combine(self, communicator: int, scheme: bytes, accumulation: bytes, sizes: ctypes.Array, hidden: int,
                data_type: int, root: int, partial: int, result: int, stream: int) -> None:
        """Calls samesumCombine. `sizes` come from as_sizes(), `data_type` is nccl.h's number; addresses and the stream
        are integers."""
        code = self._combine(communicator, scheme, accumulation, sizes, len(sizes), hidden, data_type, root, partial,
                             result, stream)
        if code:
            self._check(code, f"{scheme.decode()} combine")


_opened: dict = {}


def load_library(path: Optional[Union[str, os.PathLike]] = None) -> Library:
    """Loads libsamesum-nccl: from `path` if given, else from the file that the environment variable
    SAMESUM_NCCL_LIBRARY names, else from the package's folder, else wherever the loader finds libsamesum-nccl.so.2
    (LD_LIBRARY_PATH).

    Raises OSError, in one line, if there is none or it is another library. Each path is loaded once in a process.
    """
    beside = Path(__file__).with_name(FILE_NAME)
    if path is not None:
        chosen = os.fspath(path)
    elif os.environ.get(VARIABLE):
        chosen = os.environ[VARIABLE]
    elif beside.exists():
        chosen = str(beside)
    else:
        chosen = FILE_NAME
    if chosen not in _opened:
        try:
            _opened[chosen] = Library(chosen)
        except OSError as error:
            if chosen != FILE_NAME:
                raise
            raise OSError(f"{error}; the package's folder has none either: expected its path in library= or "
                          f"{VARIABLE}, or its folder in LD_LIBRARY_PATH") from None
    return _opened[chosen]
