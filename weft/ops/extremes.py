"""Maxima and minima of NumPy arrays, which are never -0.

Which of 0 and -0 NumPy returns depends on their order and on the width of the machine's vectors. So
an extreme that is zero is 0, here and in native code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["extreme", "without_negative_zeros"]

Array = np.ndarray[Any, Any]


def extreme(ufunc: Any, **more: Any) -> Callable[..., Any]:
    """The reduction of `np.maximum` or `np.minimum`; `more` are arguments for NumPy."""
    reduction = ufunc.reduce

    def reduce(x: Array, *, axis: tuple[int, ...], keepdims: bool) -> Any:
        out = reduction(x, axis=axis, keepdims=keepdims, **more)
        if x.dtype.kind not in "iub" and np.count_nonzero(out) != out.size:
            return np.add(out, out.dtype.type(0), **more)
        return out

    return reduce


def without_negative_zeros(x: Array) -> Array:
    """The array, changed in place: 0 for -0."""
    if x.dtype.kind not in "iub" and x.size:
        bits = x.view(f"i{x.itemsize}")  # -0 is the least of them
        if bits.min() == np.iinfo(bits.dtype).min:
            x += x.dtype.type(0)
    return x
