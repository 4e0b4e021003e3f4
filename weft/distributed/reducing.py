"""Reductions of arrays, in one way for all engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import as_dtype
from weft.base.world import Array

__all__ = ["REDUCTIONS", "is_narrow", "reduced"]

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def is_narrow(dtype: Any) -> bool:
    """Whether sums are computed in float32 and rounded once: float16, bfloat16, float8."""
    known = as_dtype(dtype)
    return known.kind == "float" and known.itemsize < 4


def reduced(arrays: Sequence[Array], op: str) -> Array:
    """Arrays of the ranks, in their order, as one."""
    first = arrays[0]
    combine = REDUCTIONS[op]
    wide = is_narrow(first.dtype)
    total = first.astype(np.float32) if wide else first.copy()
    for array in arrays[1:]:
        combine(total, array.astype(np.float32) if wide else array, out=total)
    return total.astype(first.dtype) if wide else total
