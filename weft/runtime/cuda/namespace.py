"""The Array API namespace in which cards are evaluated on a GPU: CuPy's, and what it lacks.

CuPy says nothing where an index is out of range (it wraps around) or a matrix is singular; the
functions here say it, as NumPy does. CuPy's elementwise kernels take bfloat16; what has no kernel
for it (sorting, searching, products) computes in float32, which holds all its values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import as_dtype, bfloat16
from weft.base.precision import rounds_to_tf32
from weft.codegen.cuda.matrix import gemms, is_matrix
from weft.ops.index_cards import in_range
from weft.runtime.cuda.opening import driver
from weft.schedule.views import View

__all__ = ["Namespace"]

_BFLOAT16 = bfloat16.numpy


class _Linalg:
    """`cupy.linalg`, with errors where a matrix is singular."""

    def __init__(self, cupy: Any, cupyx: Any) -> None:
        self._cupy = cupy
        self._cupyx = cupyx

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._cupy.linalg, name)

        def checked(*args: Any, **kwargs: Any) -> Any:
            with self._cupyx.errstate(linalg="raise"):
                return function(*args, **kwargs)

        setattr(self, name, checked)
        return checked

    def solve(self, a: Any, b: Any) -> Any:
        """CuPy's takes stacks of equal shapes only."""
        column = b[:, None] if b.ndim == 1 else b
        stack = np.broadcast_shapes(a.shape[:-2], column.shape[:-2])
        a, column = (self._cupy.broadcast_to(x, (*stack, *x.shape[-2:])) for x in (a, column))
        if not column.size:
            out = self._cupy.empty(column.shape, dtype=column.dtype)
        else:
            with self._cupyx.errstate(linalg="raise"):
                out = self._cupy.linalg.solve(a, column)
        return out[..., 0] if b.ndim == 1 else out


class Namespace:
    """CuPy's functions under their names, but for those that differ from NumPy's."""

    def __init__(self, cupy: Any, cupyx: Any) -> None:
        self._cupy = self.raw = cupy
        self.linalg = _Linalg(cupy, cupyx)
        self.erf = cupyx.scipy.special.erf

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cupy, name)
        setattr(self, name, found)
        return found

    # --- new arrays: on the current GPU, which is that of the operands

    def arange(self, *args: Any, device: Any = None, **options: Any) -> Any:
        return self._cupy.arange(*args, **options)

    def zeros(self, *args: Any, device: Any = None, **options: Any) -> Any:
        return self._cupy.zeros(*args, **options)

    def ones(self, *args: Any, device: Any = None, **options: Any) -> Any:
        return self._cupy.ones(*args, **options)

    def eye(self, *args: Any, device: Any = None, **options: Any) -> Any:
        return self._cupy.eye(*args, **options)

    # --- order ---------------------------------------------------------------------------------

    def sort(self, x: Any, *, axis: int = -1, stable: bool = True) -> Any:
        if x.dtype == _BFLOAT16:
            return self._cupy.sort(x.astype(np.float32), axis=axis).astype(_BFLOAT16)
        return self._cupy.sort(x, axis=axis)

    def argsort(self, x: Any, *, axis: int = -1, stable: bool = True) -> Any:
        return self._cupy.argsort(_widened(x), axis=axis, kind="stable")

    def searchsorted(self, x1: Any, x2: Any, *, side: str = "left") -> Any:
        return self._cupy.searchsorted(_widened(x1), _widened(x2), side=side)

    # --- parts ---------------------------------------------------------------------------------

    def take(self, x: Any, indices: Any, *, axis: int) -> Any:
        return self._cupy.take(x, in_range(self._cupy, indices, x.shape[axis]), axis=axis)

    def take_along_axis(self, x: Any, indices: Any, *, axis: int) -> Any:
        within = in_range(self._cupy, indices, x.shape[axis])
        return self._cupy.take_along_axis(x, within, axis=axis)

    def repeat(self, x: Any, repeats: Any, *, axis: int) -> Any:
        """CuPy's takes no array of counts."""
        if isinstance(repeats, int):
            return self._cupy.repeat(x, repeats, axis=axis)
        if repeats.size and int(repeats.min()) < 0:
            raise ValueError("repeats may not contain negative values.")
        ends = self._cupy.cumsum(repeats.astype(np.int64))
        total = int(ends[-1]) if repeats.size else 0
        places = self._cupy.searchsorted(ends, self._cupy.arange(total), side="right")
        return self._cupy.take(x, places, axis=axis)

    def where(self, condition: Any, x1: Any, x2: Any) -> Any:
        """Bfloat16 is moved as bits: CuPy's gives float32."""
        if not any(getattr(x, "dtype", None) == _BFLOAT16 for x in (x1, x2)):
            return self._cupy.where(condition, x1, x2)
        bits = [
            x.view(np.uint16)
            if hasattr(x, "view")
            else self._cupy.asarray(x, dtype=_BFLOAT16).view(np.uint16)
            for x in (x1, x2)
        ]
        return self._cupy.where(condition, *bits).view(_BFLOAT16)

    # --- elementwise ---------------------------------------------------------------------------

    def logical_and(self, x1: Any, x2: Any) -> Any:
        return self._cupy.logical_and(_truth(x1), _truth(x2))

    def logical_or(self, x1: Any, x2: Any) -> Any:
        return self._cupy.logical_or(_truth(x1), _truth(x2))

    def logical_xor(self, x1: Any, x2: Any) -> Any:
        return self._cupy.logical_xor(_truth(x1), _truth(x2))

    def logical_not(self, x: Any) -> Any:
        return self._cupy.logical_not(_truth(x))

    def remainder(self, x1: Any, x2: Any) -> Any:
        """By an exact division with rest: CuPy's is NaN for infinite divisors."""
        if x1.dtype.kind != "f":
            return self._cupy.remainder(x1, x2)
        rest = self._cupy.fmod(x1, x2)
        other = (rest != 0) & ((rest < 0) != (x2 < 0))
        return self._cupy.where(
            rest == 0, self._cupy.copysign(rest, x2), self._cupy.where(other, rest + x2, rest)
        )

    def left_shift(self, x1: Any, x2: Any) -> Any:
        """0 where all bits are shifted out: on a GPU, the number of bits would wrap around."""
        inside = (x2 >= 0) & (x2 < 8 * x1.dtype.itemsize)
        zero = self._cupy.zeros_like(x2)
        shifted = self._cupy.left_shift(x1, self._cupy.where(inside, x2, zero))
        return self._cupy.where(inside, shifted, self._cupy.zeros_like(shifted))

    def right_shift(self, x1: Any, x2: Any) -> Any:
        """0, or -1 of negative numbers, where all bits are shifted out."""
        last = 8 * x1.dtype.itemsize - 1
        inside = (x2 >= 0) & (x2 <= last)
        most = self._cupy.full_like(x2, last)
        return self._cupy.right_shift(
            self._cupy.right_shift(x1, self._cupy.where(inside, x2, most)),
            self._cupy.where(inside, self._cupy.zeros_like(x2), self._cupy.ones_like(x2)),
        )

    bitwise_left_shift = left_shift
    bitwise_right_shift = right_shift

    # --- products ------------------------------------------------------------------------------

    def matmul(self, x1: Any, x2: Any) -> Any:
        """Of bfloat16, and of float32 that may be rounded, by cuBLAS itself: CuPy has neither."""
        narrow = x1.dtype == _BFLOAT16
        direct = narrow or (x1.dtype == np.float32 and rounds_to_tf32())
        filled = x1.size and x2.size and min(x1.ndim, x2.ndim) >= 2
        if direct and filled and x1.dtype == x2.dtype:
            return self._product(x1, x2)
        if narrow:  # in float32, rounded once
            return self._cupy.matmul(_widened(x1), _widened(x2)).astype(_BFLOAT16)
        return self._cupy.matmul(x1, x2)

    def _product(self, x1: Any, x2: Any) -> Any:
        if x1.shape[-1] != x2.shape[-2]:
            raise ValueError  # the type rule explains the error
        stack = np.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
        shape = (*stack, x1.shape[-2], x2.shape[-1])
        given = [x if is_matrix(_view(x)) else x.copy() for x in (x1, x2)]
        out = self._cupy.empty(shape, dtype=x1.dtype)
        device = driver()
        at = [device.address(x) for x in (*given, out)]
        for call in gemms(_view(given[0]), _view(given[1]), shape):
            device.product(call, as_dtype(x1.dtype), as_dtype(x1.dtype), at)
        return out


def _view(x: Any) -> View:
    return View(x.shape, tuple(step // x.itemsize for step in x.strides), 0)


def _widened(x: Any) -> Any:
    return x.astype(np.float32) if x.dtype == _BFLOAT16 else x


def _truth(x: Any) -> Any:
    """Complex numbers as bools: CuPy's logical functions take none."""
    return x != 0 if x.dtype.kind == "c" else x
