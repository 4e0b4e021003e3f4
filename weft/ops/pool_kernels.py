"""Pooling on NumPy arrays, over the last axes, tap by tap.

Maxima and sums are computed axis by axis. The position of the largest element of a window (the
first of equal ones, or the first NaN) is found tap by tap, and only by kernels that need it: a
forward pass without a backward does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft.base.shapes import Shape
from weft.ops.extremes import without_negative_zeros
from weft.ops.windows import Padding, Window, slices, taps, windows_of

Array = np.ndarray[Any, Any]


def _windows(sizes: Shape, kernel: Shape, *rest: Any) -> tuple[Window, ...]:
    return windows_of(sizes[len(sizes) - len(kernel) :], kernel, *rest)


def _places(window: Window, axes_behind: int) -> list[tuple[Any, Any]]:
    """For each tap that reads the axis: the windows and the elements, as indices."""
    behind = (slice(None),) * axes_behind
    return [
        ((..., outside, *behind), (..., inside, *behind))
        for outside, inside in slices(window)
        if outside.stop > outside.start
    ]


# --- forward -----------------------------------------------------------------------------------


def _pool_axis(x: Array, window: Window, behind: int, ufunc: np.ufunc, start: Any) -> Array:
    """The windows along one axis, each folded by `ufunc`."""
    axis = x.ndim - 1 - behind
    whole_axis = window.taps == window.size and window.dilation == 1
    if whole_axis and window.out == 1 and not window.low:
        folded: Array = ufunc.reduce(x, axis=axis, keepdims=True, dtype=x.dtype)
        return folded
    places = _places(window, behind)
    full = slice(0, window.out)
    whole = [p for p in places if p[0][1] == full]  # taps of all windows
    shape = (*x.shape[:axis], window.out, *x.shape[axis + 1 :])
    if len(whole) > 1:
        first, second = whole[:2]
        out = np.asarray(ufunc(x[first[1]], x[second[1]]))
        done = [first, second]
    elif whole:
        out = x[whole[0][1]].copy()
        done = whole
    else:
        out = np.full(shape, start, x.dtype)
        done = []
    for place in places:
        if place not in done:
            part = out[place[0]]
            ufunc(part, x[place[1]], out=part)
    return out


def _pool(x: Array, windows: Sequence[Window], ufunc: np.ufunc, start: Any) -> Array:
    out = x
    for number, window in enumerate(windows):
        if not window.trivial:
            out = _pool_axis(out, window, len(windows) - 1 - number, ufunc, start)
    return out.copy() if out is x else out


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def max_pool(x: Array, *, kernel: Shape, stride: Shape, padding: Padding, dilation: Shape) -> Array:
    """The largest element of each window, 0 for -0; NaN where there is one."""
    windows = _windows(x.shape, kernel, stride, dilation, padding)
    return without_negative_zeros(_pool(x, windows, np.maximum, _lowest(x.dtype)))


def sum_pool(x: Array, *, kernel: Shape, stride: Shape, padding: Padding) -> Array:
    """The sum of each window."""
    windows = _windows(x.shape, kernel, stride, (1,) * len(kernel), padding)
    return _pool(x, windows, np.add, 0)


# --- which element was the largest -------------------------------------------------------------


def _winners(x: Array, out: Array, windows: Sequence[Window]) -> Iterator[tuple[Any, Any, Array]]:
    """For each tap: windows, elements, and a mask of the windows whose maximum this tap reads."""
    free = np.ones(out.shape, bool)
    nans = out.dtype.kind == "f" and bool(np.isnan(out).any())
    for outside, inside in taps(windows):
        part = free[outside]
        if part.size:
            here = x[inside]
            mask = here == out[outside]
            if nans:
                mask |= here != here
            mask &= part
            part ^= mask
            yield outside, inside, mask


def _bits(x: Array) -> Array:
    """The same memory as unsigned integers: bits times 0 or 1 are exact, also for NaN and inf."""
    return x.view(f"u{x.itemsize}")


def max_pool_input(
    g: Array,
    x: Array,
    out: Array,
    *,
    kernel: Shape,
    stride: Shape,
    padding: Padding,
    dilation: Shape,
) -> Array:
    """Each g added to the element of x that was the largest in its window."""
    windows = _windows(x.shape, kernel, stride, dilation, padding)
    disjoint = all(w.disjoint for w in windows)
    result = (np.empty if all(w.tiling for w in windows) else np.zeros)(x.shape, g.dtype)
    given, written = _bits(g), _bits(result)
    for outside, inside, mask in _winners(x, out, windows):
        if disjoint:
            np.multiply(given[outside], mask, out=written[inside])
        else:
            part = result[inside]
            part += np.multiply(given[outside], mask).view(g.dtype)
    return result


def max_pool_pick(
    v: Array,
    x: Array,
    out: Array,
    *,
    kernel: Shape,
    stride: Shape,
    padding: Padding,
    dilation: Shape,
) -> Array:
    """For each window, the element of v at the position of the largest element of x."""
    windows = _windows(x.shape, kernel, stride, dilation, padding)
    result = np.zeros(out.shape, v.dtype)
    given, written = _bits(v), _bits(result)
    for outside, inside, mask in _winners(x, out, windows):
        part = written[outside]
        part |= np.multiply(given[inside], mask)
    return result


def max_pool_indices(
    x: Array, out: Array, *, kernel: Shape, stride: Shape, padding: Padding, dilation: Shape
) -> Array:
    """The flat index of the largest element of each window, in row-major order of the axes."""
    windows = _windows(x.shape, kernel, stride, dilation, padding)
    result = np.zeros(out.shape, np.int64)
    numbers = np.arange(np.prod([w.size for w in windows])).reshape([w.size for w in windows])
    for outside, inside, mask in _winners(x, out, windows):
        part = result[outside]
        part += mask * numbers[inside]
    return result


# --- the transpose of sums ---------------------------------------------------------------------


def sum_pool_input(
    g: Array, *, size: Shape, kernel: Shape, stride: Shape, padding: Padding
) -> Array:
    """Each g added to all elements of its window."""
    windows = windows_of(size, kernel, stride, (1,) * len(kernel), padding)
    out = g
    for number, window in enumerate(windows):
        if window.trivial:
            continue
        axis = g.ndim - len(windows) + number
        shape = (*out.shape[:axis], window.size, *out.shape[axis + 1 :])
        result = (np.empty if window.tiling else np.zeros)(shape, g.dtype)
        for outside, inside in _places(window, len(windows) - 1 - number):
            if window.disjoint:
                result[inside] = out[outside]
            else:
                part = result[inside]
                part += out[outside]
        out = result
    return out.copy() if out is g else out
