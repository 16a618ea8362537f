# The package samesum: its overview, and its names, which are imported when they are first used.
# SPDX-License-Identifier: Apache-2.0
"""samesum: which order GPU collectives add in, and what that does to the bits.

Floating-point addition is not associative: another order gives other bits. This package predicts the order in which
NCCL adds each element of a call, evaluates orders on your tensors, and decides about two results that differ: another
order, another rounding, or a defect. No GPU is needed, and values are never compared, only bits::

    import numpy as np
    import samesum

    # Which order makes which elements? Two roots of the same reduce, on 4 nodes of one GPU.
    to_0 = samesum.predict("reduce", ranks=4, count=4096, dtype="float16", root=0, ranks_per_node=1, protocol="simple")
    to_1 = samesum.predict("reduce", ranks=4, count=4096, dtype="float16", root=1, ranks_per_node=1, protocol="simple")
    print(to_0[0].tree, to_1[0].tree)                # (((1 2) 3) 0) (((2 3) 0) 1)
    print(samesum.diff(to_0, to_1).changed)          # 4096

    # Which bits do these orders give on these partials, one row a rank? Could a test on them fail at all?
    partials = np.random.default_rng(7).standard_normal((4, 4096)).astype(np.float16)
    samesum.assert_order_visible(partials)
    a, b = samesum.evaluate(to_0, partials), samesum.evaluate(to_1, partials)

    # The two results differ: by their order alone, or is there a defect?
    found = samesum.explain_difference(a, b, partials=partials)
    print(found.kind)                                # order change
    b[17] ^= 0x40                                    # a flipped bit
    print(samesum.explain_difference(a, b, partials=partials).kind)  # defect

Tensors: whatever NumPy or DLPack can read. bfloat16 and float8 are bit patterns (uint16, uint8) with `dtype` named, or
arrays of ml_dtypes, or torch tensors; a plain list of numbers is values, rounded once to `dtype`. Results are bit
patterns, unsigned integers: `.view(np.float16)` are the values.

Errors: ValueError, in one line, for wrong input; Inconclusive where the input is right but the answer cannot be known,
such as the order inside an NVLink switch. samesum.torch runs the combines themselves on GPUs.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .model import (Change, Diff, Evidence, Explanation, NonVacuity, Prediction, Segment, assert_order_visible,
                        assert_same_bits, bits, combine, diff, evaluate, explain_difference, mask, non_vacuity,
                        predict, same_order)

__all__ = ["Change", "Diff", "Evidence", "Explanation", "Inconclusive", "NonVacuity", "Prediction", "Segment",
           "assert_order_visible", "assert_same_bits", "bits", "combine", "diff", "evaluate", "explain_difference",
           "mask", "non_vacuity", "predict", "same_order"]


class Inconclusive(RuntimeError):
    """The input is right, but the answer cannot be known here; the message says why."""


def __getattr__(name: str):
    # Imported late, so that samesum.torch runs where the compiled module or NumPy is missing.
    if name in __all__:
        from . import model

        return getattr(model, name)
    raise AttributeError(f"module 'samesum' has no attribute {name!r}")


def __dir__() -> list:
    return sorted([*globals(), *__all__])
