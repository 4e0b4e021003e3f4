"""Whether two results are equal up to rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Difference", "Tolerance", "distance"]

#: For each dtype, the default relative tolerance.
RELATIVE = {
    "float16": 1e-2,
    "bfloat16": 5e-2,
    "float32": 1e-4,
    "float64": 1e-9,
    "complex64": 1e-4,
    "complex128": 1e-9,
}


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two arrays.

    text    a description
    size    the largest absolute difference; inf if shapes or kinds differ
    """

    text: str
    size: float


@dataclass(frozen=True, slots=True)
class Tolerance:
    """|a - b| <= atol + rtol · |a|. By default `rtol` depends on the dtype, and `atol` is relative
    to the largest |a|."""

    rtol: float | None = None
    atol: float | None = None

    def difference(self, a: Any, b: Any) -> Difference | None:
        """The difference of b from a; None if they are equal."""
        one, two = np.asarray(a), np.asarray(b)
        if one.shape != two.shape or one.dtype != two.dtype:
            text = f"{one.dtype}{list(one.shape)} and {two.dtype}{list(two.shape)}"
            return Difference(text, np.inf)
        if one.dtype.kind not in "fcV":
            wrong = np.asarray(one != two)
            return self._said(one, two, wrong) if wrong.any() else None
        wide = np.complex128 if one.dtype.kind == "c" else np.float64
        x, y = one.astype(wide), two.astype(wide)
        known = RELATIVE.get(str(one.dtype), 1e-1)
        rtol = known if self.rtol is None else self.rtol
        finite = np.abs(x[np.isfinite(x)])
        largest = float(finite.max()) if finite.size else 0.0
        atol = known * 0.1 * largest if self.atol is None else self.atol
        with np.errstate(all="ignore"):
            near = np.isfinite(x) & (np.abs(x - y) <= atol + rtol * np.abs(x))
        wrong = ~(near | (x == y) | (np.isnan(x) & np.isnan(y)))
        return self._said(x, y, wrong) if wrong.any() else None

    @staticmethod
    def _said(x: Any, y: Any, wrong: Any) -> Difference:
        first = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        at = f" at {[int(i) for i in first]}" if wrong.ndim else ""
        size = distance(x, y) or np.inf
        count = f"{int(wrong.sum())} of {wrong.size} elements: " if wrong.ndim else ""
        return Difference(f"{count}{x[first]:.8g} and {y[first]:.8g}{at}", size)


def distance(a: Any, b: Any) -> float:
    """The largest finite absolute difference of two arrays of the same shape."""
    x, y = np.asarray(a), np.asarray(b)
    if x.shape != y.shape or x.dtype.kind not in "biufcV":
        return 0.0
    with np.errstate(all="ignore"):
        sizes = np.abs(x.astype(np.complex128) - y.astype(np.complex128))
    known = sizes[np.isfinite(sizes)]
    return float(known.max()) if known.size else 0.0
